//! The requests of one tenant, in the order of their arrival.

use std::collections::{BTreeMap, VecDeque};

use super::Request;

/// A chunk has at most this many requests. A short line has only its first chunk.
const CHUNK: usize = 64;

/// A line that a request can leave from the middle in O(log n). It is kept in chunks, so that no call moves more than a chunk.
#[derive(Debug)]
pub(super) struct Line<T> {
    first: VecDeque<Waiting<T>>, // empty only if the line is
    rest: Option<Box<Rest<T>>>,  // never empty
}

/// The requests of a long line that arrived after those of the first chunk.
#[derive(Debug)]
struct Rest<T> {
    chunks: BTreeMap<u64, Vec<Waiting<T>>>, // by an arrival before all of the chunk and after all of the chunks before; never empty
    last: Vec<Waiting<T>>,
    len: usize,
}

#[derive(Debug)]
pub(super) struct Waiting<T> {
    pub(super) arrival: u64,
    pub(super) request: Request<T>,
}

impl<T> Line<T> {
    pub(super) fn len(&self) -> usize {
        self.first.len() + self.rest.as_ref().map_or(0, |rest| rest.len)
    }

    pub(super) fn front(&self) -> Option<&Waiting<T>> {
        self.first.front()
    }

    /// Adds a request that arrived after all others.
    pub(super) fn push_back(&mut self, waiting: Waiting<T>) {
        match &mut self.rest {
            None if self.first.len() < CHUNK => self.first.push_back(waiting),
            rest => rest.get_or_insert_default().push_back(waiting),
        }
    }

    pub(super) fn pop_front(&mut self) -> Option<Waiting<T>> {
        let front = self.first.pop_front();
        self.refill();
        front
    }

    /// Removes the request of this arrival, wherever it stands.
    pub(super) fn remove(&mut self, arrival: u64) -> Option<Waiting<T>> {
        if self.first.back().is_some_and(|last| arrival <= last.arrival) {
            let place = self.first.binary_search_by_key(&arrival, |waiting| waiting.arrival).ok()?;
            let removed = self.first.remove(place);
            self.refill();
            return removed;
        }
        let rest = self.rest.as_mut()?;
        let removed = rest.remove(arrival);
        if rest.len == 0 {
            self.rest = None;
        }
        removed
    }

    /// Makes the next chunk the first one if that has become empty.
    fn refill(&mut self) {
        if let (true, Some(rest)) = (self.first.is_empty(), &mut self.rest) {
            self.first = match rest.chunks.pop_first() {
                Some((_, chunk)) => chunk.into(),
                None => std::mem::take(&mut rest.last).into(),
            };
            rest.len -= self.first.len();
            if rest.len == 0 {
                self.rest = None;
            }
        }
    }
}

impl<T> Rest<T> {
    fn push_back(&mut self, waiting: Waiting<T>) {
        self.last.push(waiting);
        self.len += 1;
        if self.last.len() == CHUNK {
            let chunk = std::mem::replace(&mut self.last, Vec::with_capacity(CHUNK));
            self.chunks.insert(chunk[0].arrival, chunk);
        }
    }

    fn remove(&mut self, arrival: u64) -> Option<Waiting<T>> {
        let find =
            |chunk: &[Waiting<T>]| chunk.binary_search_by_key(&arrival, |waiting| waiting.arrival).ok();
        let removed = if let Some(place) = find(&self.last) {
            self.last.remove(place)
        } else {
            let (&key, chunk) = self.chunks.range_mut(..=arrival).next_back()?;
            let removed = chunk.remove(find(chunk)?);
            if chunk.is_empty() {
                self.chunks.remove(&key);
            } else if chunk.len() <= chunk.capacity() / 4 {
                chunk.shrink_to(2 * chunk.len());
            }
            removed
        };
        self.len -= 1;
        Some(removed)
    }
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self { first: VecDeque::new(), rest: None }
    }
}

impl<T> Default for Rest<T> {
    fn default() -> Self {
        Self { chunks: BTreeMap::new(), last: Vec::new(), len: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Weight;
    use super::*;

    fn waiting(arrival: u64) -> Waiting<()> {
        Waiting { arrival, request: Request { weight: Weight::ONE, cost: 1, deadline: None, item: () } }
    }

    fn line_of(count: u64) -> Line<()> {
        let mut line = Line::default();
        (0..count).for_each(|arrival| line.push_back(waiting(arrival)));
        line
    }

    /// The number of requests that each chunk has, and has room for.
    fn chunks(line: &Line<()>) -> Vec<(usize, usize)> {
        let mut chunks = vec![(line.first.len(), line.first.capacity())];
        if let Some(rest) = &line.rest {
            chunks.extend(
                rest.chunks.values().chain([&rest.last]).map(|chunk| (chunk.len(), chunk.capacity())),
            );
        }
        chunks
    }

    #[test]
    fn no_chunk_grows_with_the_line() {
        for count in [1000, 10_000, 100_000] {
            let chunks = chunks(&line_of(count));
            assert!(chunks.iter().all(|(len, room)| len <= room && *room <= CHUNK), "{count}: {chunks:?}");
        }
    }

    #[test]
    fn memory_follows_the_requests_that_wait() {
        let mut line = line_of(100_000);
        for arrival in (0..100_000).filter(|arrival| arrival % 1000 != 500) {
            assert!(line.remove(arrival).is_some(), "{arrival}");
        }
        let chunks = chunks(&line);
        let room: usize = chunks.iter().map(|(_, room)| room).sum();
        assert_eq!(line.len(), 100);
        assert!(chunks.len() <= 102 && room <= 100 * 4 + 2 * CHUNK, "{} chunks, room {room}", chunks.len());
    }

    #[test]
    fn requests_leave_in_the_order_of_arrival() {
        for count in [1, 63, 64, 65, 127, 128, 129, 1000] {
            for kept in [1, 2, 3, 64, 65, 100] {
                let mut line = line_of(count);
                // From the middle of the line on, and the rest.
                for arrival in (count / 2..count).chain(0..count / 2).filter(|arrival| arrival % kept != 0) {
                    assert!(line.remove(arrival).is_some());
                    assert!(line.remove(arrival).is_none());
                }
                line.push_back(waiting(count));
                let order: Vec<u64> =
                    std::iter::from_fn(|| line.pop_front()).map(|waiting| waiting.arrival).collect();
                let expected: Vec<u64> =
                    (0..count).filter(|arrival| arrival % kept == 0).chain([count]).collect();
                assert_eq!(order, expected, "{count}, every {kept}");
                assert!(line.rest.is_none() && line.front().is_none() && line.len() == 0);
            }
        }
    }
}
