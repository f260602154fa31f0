//! States that are larger than a word.

use tollgate_core::State;

/// States by number, in chunks, so that more room never means moving what is there.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    chunks: Vec<Box<[State]>>,
    free: Vec<u32>, // has room for all numbers
    heap: usize,    // bytes that the states keep besides
}

const CHUNK: usize = 64;

/// Of one chunk, with its place in the list of chunks and its numbers' in the list of those that are free.
const CHUNK_BYTES: usize = CHUNK * (size_of::<State>() + size_of::<u32>()) + 2 * size_of::<Box<[State]>>();

impl Slab {
    /// Keeps a state and returns its number.
    pub(crate) fn add(&mut self, state: State) -> u64 {
        if self.free.is_empty() {
            let first = self.chunks.len() * CHUNK;
            self.chunks.push((0..CHUNK).map(|_| State::default()).collect());
            self.free.reserve_exact(first + CHUNK);
            self.free.extend((first..first + CHUNK).rev().map(|number| number as u32));
        }
        let number = u64::from(self.free.pop().expect("just made some"));
        self.edit(number, |place| *place = state);
        number
    }

    #[inline]
    pub(crate) fn get(&self, number: u64) -> &State {
        &self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }

    /// Changes a state.
    #[inline]
    pub(crate) fn edit<T>(&mut self, number: u64, change: impl FnOnce(&mut State) -> T) -> T {
        let state = &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK];
        let before = state.heap_bytes();
        let result = change(state);
        self.heap = self.heap + state.heap_bytes() - before;
        result
    }

    /// Forgets a state.
    pub(crate) fn remove(&mut self, number: u64) {
        self.edit(number, |state| *state = State::default());
        self.free.push(number as u32);
    }

    /// Bytes of memory in use.
    #[inline]
    pub(crate) const fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK_BYTES + self.heap
    }

    /// Bytes that one more state may add, but for what it keeps on the heap.
    #[inline]
    pub(crate) const fn growth(&self) -> usize {
        if self.free.is_empty() { CHUNK_BYTES } else { 0 }
    }
}
