//! The most that a client had within each of several times, in bounded memory.

use std::collections::VecDeque;

use super::WINDOWS;

const WINDOW_COUNT: usize = WINDOWS.len();

/// A client has this many cells for itself. Times of whole seconds make at most 3600 of them, which stay exact.
const OWN_CELLS: usize = 4096;

/// All clients together have this many cells beyond their own: 4 MiB.
pub(super) const SPARE_CELLS: usize = 1 << 18;

/// Where cells are joined, a cell is no longer than this part of the shortest window that it is in.
const CELLS_PER_WINDOW: u64 = 512;

/// The requests of a client within the longest window, as cells of one time each.
///
/// A client with more than [`OWN_CELLS`] different times uses spare cells. When no spare cell is left, neighbouring
/// cells of the client are joined. A joined cell has the time of its last request. So a peak is never too low, and is
/// at most the peak of a window that is 1/512 longer.
#[derive(Debug, Default)]
pub(super) struct ClientPeaks {
    cells: VecDeque<Cell>,
    starts: [usize; WINDOW_COUNT], // the first cell of each window that ends now
    sums: [u64; WINDOW_COUNT],     // the cost in each of these windows
    pub(super) most: [u64; WINDOW_COUNT],
    pub(super) total: u64,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    at: u64,
    cost: u64,
}

fn nanos(window: usize) -> u64 {
    u64::try_from(WINDOWS[window].as_nanos()).unwrap_or(u64::MAX)
}

impl ClientPeaks {
    /// Adds a request. They come in the order of their times. `spare` is the number of spare cells that are left.
    pub(super) fn add(&mut self, at: u64, cost: u64, spare: &mut usize) {
        *spare += self.spare_cells();
        for window in 0..WINDOW_COUNT {
            // A window is half open: a request that is exactly as old is out.
            while let Some(cell) =
                self.cells.get(self.starts[window]).filter(|cell| at - cell.at >= nanos(window))
            {
                self.sums[window] = self.sums[window].saturating_sub(cell.cost);
                self.starts[window] += 1;
            }
        }
        let ended = self.starts[WINDOW_COUNT - 1];
        self.cells.drain(..ended);
        self.starts.iter_mut().for_each(|start| *start -= ended);
        match self.cells.back_mut().filter(|last| last.at == at) {
            Some(last) => last.cost = last.cost.saturating_add(cost),
            None => {
                if self.spare_cells() >= *spare && self.cells.len() >= OWN_CELLS {
                    self.join();
                }
                self.cells.push_back(Cell { at, cost });
            }
        }
        *spare -= self.spare_cells();
        self.total = self.total.saturating_add(cost);
        for (sum, most) in self.sums.iter_mut().zip(&mut self.most) {
            *sum = sum.saturating_add(cost);
            *most = (*most).max(*sum);
        }
    }

    fn spare_cells(&self) -> usize {
        self.cells.len().saturating_sub(OWN_CELLS)
    }

    /// Joins neighbouring cells that begin in the same windows and in the same stretch of time.
    fn join(&mut self) {
        let mut joined: VecDeque<Cell> = VecDeque::with_capacity(OWN_CELLS);
        let (mut starts, mut last) = ([None; WINDOW_COUNT], None);
        for (place, cell) in self.cells.iter().enumerate() {
            let shortest = self.starts.iter().position(|start| place >= *start).unwrap_or(WINDOW_COUNT - 1);
            let stretch = Some((shortest, cell.at / (nanos(shortest) / CELLS_PER_WINDOW)));
            match joined.back_mut().filter(|_| stretch == last) {
                Some(before) => *before = Cell { at: cell.at, cost: before.cost.saturating_add(cell.cost) },
                None => {
                    // Windows that hold this cell and none before it start here.
                    let begin = self.starts.iter().zip(&mut starts).filter(|(start, _)| place >= **start);
                    begin.for_each(|(_, start)| _ = start.get_or_insert(joined.len()));
                    joined.push_back(*cell);
                }
            }
            last = stretch;
        }
        self.starts = starts.map(|start| start.unwrap_or(joined.len()));
        self.cells = joined;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate_testkit::Random;

    use super::*;

    /// The obvious way, with all requests in memory.
    fn most_within(requests: &[(u64, u64)], within: u64) -> u64 {
        let (mut from, mut sum, mut most) = (0, 0, 0);
        for &(at, cost) in requests {
            sum += cost;
            while at - requests[from].0 >= within {
                sum -= requests[from].1;
                from += 1;
            }
            most = most.max(sum);
        }
        most
    }

    /// The peaks of a client. `spare`: the cells that it may take from those that all clients share.
    fn peaks_with(requests: &[(u64, u64)], spare: usize) -> ClientPeaks {
        let (mut peaks, mut left) = (ClientPeaks::default(), spare);
        for &(at, cost) in requests {
            peaks.add(at, cost, &mut left);
            assert_eq!(peaks.spare_cells() + left, spare);
        }
        assert!(peaks.cells.capacity() <= (OWN_CELLS + spare).next_power_of_two());
        peaks
    }

    fn peaks(requests: &[(u64, u64)]) -> ClientPeaks {
        peaks_with(requests, 0)
    }

    /// Requests that come in bursts and with pauses, with times that are multiples of `grain`.
    fn requests(random: &mut Random, count: usize, pause: u64, grain: u64) -> Vec<(u64, u64)> {
        let mut at = random.log_uniform(1, 1 << 60) / grain * grain;
        let next = |_| {
            let most = if random.chance(1, 1000) { 1000 * pause } else { pause };
            at += random.log_uniform(1, most) / grain * grain;
            (at, random.log_uniform(0, 100))
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn peaks_of_whole_seconds_are_exact_and_others_are_within_the_bound() {
        let second = 1_000_000_000;
        for seed in 0..60 {
            let mut random = Random::new(seed);
            let pause = *random.pick(&[1000, 1_000_000, 100 * 1_000_000, 10 * second, 1000 * second]);
            let grain = if seed % 2 == 0 { second } else { 1 };
            let requests = requests(&mut random, 20_000, pause, grain);
            let found = peaks(&requests);
            for (window, found) in found.most.iter().enumerate() {
                let exact = most_within(&requests, nanos(window));
                let longer = most_within(&requests, nanos(window) + nanos(window) / CELLS_PER_WINDOW + 1);
                let most = if grain == second { exact } else { longer };
                assert!((exact..=most).contains(found), "seed {seed}, {:?}: {found}", WINDOWS[window]);
            }
            assert_eq!(found.total, requests.iter().map(|(_, cost)| cost).sum::<u64>());
        }
    }

    #[test]
    fn peaks_are_exact_as_long_as_there_are_cells() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let pause = *random.pick(&[1000, 1_000_000_000, 60_000_000_000]);
            for (count, spare) in [(OWN_CELLS, 0), (OWN_CELLS + 1000, 1000)] {
                let requests = requests(&mut random, count, pause, 1);
                let found = peaks_with(&requests, spare);
                let exact: [u64; WINDOW_COUNT] =
                    std::array::from_fn(|window| most_within(&requests, nanos(window)));
                assert_eq!(found.most, exact, "seed {seed}");
            }
        }
    }

    #[test]
    fn memory_of_a_client_does_not_grow_with_its_requests() {
        let cells =
            |count: u64| peaks(&(0..count).map(|i| (i * 1_000_001, 1)).collect::<Vec<_>>()).cells.len();
        assert!([10_000, 100_000, 1_000_000].into_iter().all(|count| cells(count) <= OWN_CELLS));
    }

    #[test]
    fn a_window_begins_anywhere() {
        let at = |second: u64, cost| (second * 1_000_000_000, cost);
        let found = peaks(&[at(0, 1), at(9, 2), at(10, 4), at(30, 8)]);
        assert_eq!(WINDOWS[..3], [1, 10, 60].map(Duration::from_secs));
        assert_eq!(found.most[..3], [8, 8, 15]);
    }
}
