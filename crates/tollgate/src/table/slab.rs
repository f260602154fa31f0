//! States that are larger than a word.

use tollgate_core::State;

/// States by number, in chunks, so that more room never means moving what is there.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    chunks: Vec<Box<[State]>>,
    free: Vec<u32>,
}

const CHUNK: usize = 64;

impl Slab {
    /// Keeps a state and returns its number.
    pub(crate) fn add(&mut self, state: State) -> u64 {
        if self.free.is_empty() {
            let first = self.chunks.len() * CHUNK;
            self.chunks.push((0..CHUNK).map(|_| State::default()).collect());
            self.free.extend((first..first + CHUNK).rev().map(|number| number as u32));
        }
        let number = u64::from(self.free.pop().expect("just made some"));
        *self.get_mut(number) = state;
        number
    }

    #[inline]
    pub(crate) fn get(&self, number: u64) -> &State {
        &self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u64) -> &mut State {
        &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }

    /// Forgets a state.
    pub(crate) fn remove(&mut self, number: u64) {
        *self.get_mut(number) = State::default();
        self.free.push(number as u32);
    }

    /// Bytes of memory in use, but for what the states keep on the heap.
    pub(crate) fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<State>() + self.free.capacity() * size_of::<u32>()
    }
}
