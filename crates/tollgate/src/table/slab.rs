//! States that are larger than a word.

use tollgate_core::State;

/// States by number, in chunks, so that more room never means moving what is there, and memory is given back when
/// all of a chunk are gone.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    chunks: Vec<Chunk>,
    open: Vec<u32>,   // chunks that may have a free place
    vacant: Vec<u32>, // chunks without memory
    free: usize,      // places in chunks that have memory
    heap: usize,      // bytes that the states keep besides
}

#[derive(Debug)]
struct Chunk {
    states: Box<[State]>, // none where it has no memory
    free: u64,            // one bit for each place that is free
    is_open: bool,        // whether it is among those
}

const CHUNK: usize = u64::BITS as usize;

const CHUNK_BYTES: usize = CHUNK * size_of::<State>();

/// Of a chunk's place in the lists, which have up to twice the room they need.
const LISTED_BYTES: usize = 2 * (size_of::<Chunk>() + 2 * size_of::<u32>());

impl Slab {
    /// Keeps a state and returns its number.
    pub(crate) fn add(&mut self, state: State) -> u64 {
        let chunk = self.open_chunk();
        let place = self.chunks[chunk].free.trailing_zeros() as usize;
        self.chunks[chunk].free &= !(1 << place);
        self.free -= 1;
        let number = (chunk * CHUNK + place) as u64;
        self.edit(number, |place| *place = state);
        number
    }

    #[inline]
    pub(crate) fn get(&self, number: u64) -> &State {
        &self.chunks[number as usize / CHUNK].states[number as usize % CHUNK]
    }

    /// Changes a state.
    #[inline]
    pub(crate) fn edit<T>(&mut self, number: u64, change: impl FnOnce(&mut State) -> T) -> T {
        let state = &mut self.chunks[number as usize / CHUNK].states[number as usize % CHUNK];
        let before = state.heap_bytes();
        let result = change(state);
        self.heap = self.heap + state.heap_bytes() - before;
        result
    }

    /// Forgets a state.
    pub(crate) fn remove(&mut self, number: u64) {
        self.edit(number, |state| *state = State::default());
        let index = number as usize / CHUNK;
        let chunk = &mut self.chunks[index];
        chunk.free |= 1 << (number as usize % CHUNK);
        self.free += 1;
        if chunk.free == u64::MAX && self.free >= 2 * CHUNK {
            // As many places are free elsewhere, so that this one is not wanted back at once.
            chunk.states = Box::default();
            self.vacant.push(index as u32);
            self.free -= CHUNK;
        } else if !chunk.is_open {
            chunk.is_open = true;
            self.open.push(index as u32);
        }
    }

    /// Bytes of memory in use.
    #[inline]
    pub(crate) const fn bytes(&self) -> usize {
        let with_memory = self.chunks.len() - self.vacant.len();
        with_memory * CHUNK_BYTES + self.chunks.len() * LISTED_BYTES + self.heap
    }

    /// Bytes that one more state may add, but for what it keeps on the heap.
    #[inline]
    pub(crate) const fn growth(&self) -> usize {
        if self.free == 0 { CHUNK_BYTES + LISTED_BYTES } else { 0 }
    }

    /// A chunk with a free place.
    fn open_chunk(&mut self) -> usize {
        while let Some(&last) = self.open.last() {
            let chunk = &mut self.chunks[last as usize];
            if chunk.free != 0 && !chunk.states.is_empty() {
                return last as usize;
            }
            chunk.is_open = false;
            self.open.pop();
        }
        let index = self.vacant.pop().unwrap_or(self.chunks.len() as u32);
        let states = (0..CHUNK).map(|_| State::default()).collect();
        let chunk = Chunk { states, free: u64::MAX, is_open: true };
        match self.chunks.get_mut(index as usize) {
            Some(vacant) => *vacant = chunk,
            None => self.chunks.push(chunk),
        }
        self.open.push(index);
        self.free += CHUNK;
        index as usize
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{PermitId, Rule, SlidingLog, Timestamp};
    use tollgate_testkit::Random;

    use super::*;

    #[test]
    fn holds_what_was_put_in_and_gives_memory_back() {
        let rule = Rule::from(SlidingLog::new(100, std::time::Duration::from_secs(1)).unwrap());
        let mut random = Random::new(1);
        let (mut slab, mut kept, mut most) = (Slab::default(), Vec::<(u64, State)>::new(), 0);
        for round in 0..200_000_u64 {
            // Swells to thousands and shrinks to none, several times.
            let grows = (round / 20_000).is_multiple_of(2);
            if random.below(10) < if grows { 7 } else { 2 } {
                let mut state = State::Unused;
                rule.spend(&mut state, PermitId(0), 1 + round % 5, Timestamp::from_nanos(round));
                kept.push((slab.add(state.clone()), state));
            } else if !kept.is_empty() {
                let (number, state) = kept.swap_remove(random.below(kept.len() as u64) as usize);
                assert_eq!(slab.get(number), &state);
                slab.remove(number);
            }
            let heap: usize = if round.is_multiple_of(1000) {
                kept.iter().map(|(_, state)| state.heap_bytes()).sum()
            } else {
                slab.heap
            };
            assert_eq!(slab.heap, heap);
            most = slab.bytes().max(most);
        }
        assert!(kept.iter().all(|(number, state)| slab.get(*number) == state));
        kept.into_iter().for_each(|(number, _)| slab.remove(number));
        assert!(slab.bytes() * 10 < most, "{} of {most}", slab.bytes());
        assert!(slab.open.len() <= slab.chunks.len());
    }
}
