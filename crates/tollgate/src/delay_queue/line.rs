//! The requests that wait for one key, and the time at which each of them goes.

use std::collections::BTreeMap;
use std::task::Waker;

use tollgate_core::{Nanos, Timestamp};

/// The part of a late start that the line makes up for. All later requests move back by the rest. With 25 ms, a line that has
/// stalled lets through at most a fortieth more than its limit within any second.
const CATCH_UP: Nanos = Nanos::new(25_000_000);

/// One line. It stores the gaps between requests and not their times, so that all requests behind one that leaves move with one
/// change.
#[derive(Debug, Default)]
pub(super) struct Line {
    waiting: BTreeMap<u64, Waiting>, // by id, which is their order
    first_at: Timestamp,             // when the first goes
    last_at: Timestamp,              // when the last goes
    next_id: u64,
    pub(super) alarm: Option<Timestamp>, // of this line in the schedule
}

#[derive(Debug)]
struct Waiting {
    gap: Nanos, // to the request in front; without meaning for the first
    waker: Option<Waker>,
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When the last request goes.
    pub(super) const fn last_at(&self) -> Timestamp {
        self.last_at
    }

    /// When this request goes, if it is the first.
    pub(super) fn turn_of(&self, id: u64) -> Option<Timestamp> {
        self.waiting.first_key_value().filter(|(first, _)| **first == id).map(|_| self.first_at)
    }

    /// When the first request goes.
    pub(super) fn first_turn(&self) -> Option<Timestamp> {
        (!self.is_empty()).then_some(self.first_at)
    }

    /// When the second request goes, if nothing changes before.
    pub(super) fn second_turn(&self) -> Option<Timestamp> {
        self.waiting.values().nth(1).map(|second| self.first_at.after(second.gap))
    }

    /// Takes the waker of the first request.
    pub(super) fn take_first_waker(&mut self) -> Option<Waker> {
        self.waiting.first_entry()?.get_mut().waker.take()
    }

    /// Puts a request at the end, and returns its id. It goes at `at`, or together with the request in front if that is later.
    pub(super) fn push(&mut self, at: Timestamp) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        if self.waiting.is_empty() {
            (self.first_at, self.last_at) = (at, at);
        }
        let at = at.max(self.last_at);
        self.waiting.insert(id, Waiting { gap: at.since(self.last_at), waker: None });
        self.last_at = at;
        id
    }

    /// Stores the waker of a request. Returns the waker that was stored before.
    pub(super) fn set_waker(&mut self, id: u64, waker: Waker) -> Option<Waker> {
        self.waiting.get_mut(&id)?.waker.replace(waker)
    }

    /// Moves all requests back if the first is late by more than [`CATCH_UP`]. Returns by how much.
    pub(super) fn postpone(&mut self, now: Timestamp) -> Nanos {
        let late = now.since(self.first_at);
        let by = Nanos::new(late.get().saturating_sub(CATCH_UP.get()));
        self.first_at = self.first_at.after(by);
        self.last_at = self.last_at.after(by);
        by
    }

    /// Removes a request. Those behind it go sooner by `sooner`, but not before the time of the removed one.
    pub(super) fn remove(&mut self, id: u64, sooner: Nanos) -> Removed {
        let was_first = self.turn_of(id).is_some();
        let Some(removed) = self.waiting.remove(&id) else { return Removed::default() };
        let own = removed.waker;
        let Some((_, behind)) = self.waiting.range_mut(id..).next() else {
            let gap = if was_first { Nanos::ZERO } else { removed.gap };
            self.last_at = before(self.last_at, gap);
            return Removed { own, was_first };
        };
        let sooner = sooner.min(behind.gap);
        let rest = Nanos::new(behind.gap.get() - sooner.get());
        self.last_at = before(self.last_at, sooner);
        if was_first {
            self.first_at = self.first_at.after(rest);
            behind.gap = Nanos::ZERO;
        } else {
            behind.gap = Nanos::new(removed.gap.get().saturating_add(rest.get()));
        }
        Removed { own, was_first }
    }
}

/// A removed request.
#[derive(Debug, Default)]
#[must_use = "the next request may have to be woken"]
pub(super) struct Removed {
    /// Its waker, which the caller drops without a lock.
    pub(super) own: Option<Waker>,
    /// Whether another request, if there is one, is now the first.
    pub(super) was_first: bool,
}

fn before(at: Timestamp, span: Nanos) -> Timestamp {
    Timestamp::from_nanos(at.as_nanos().saturating_sub(span.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    /// The id of each request, and the nanosecond at which it goes.
    fn schedule(line: &Line) -> Vec<(u64, u64)> {
        let mut at = line.first_at;
        let mut schedule = Vec::new();
        for (index, (id, waiting)) in line.waiting.iter().enumerate() {
            at = if index > 0 { at.after(waiting.gap) } else { at };
            schedule.push((*id, at.as_nanos()));
        }
        assert!(schedule.last().is_none_or(|(_, last)| *last == line.last_at.as_nanos()), "{line:?}");
        schedule
    }

    fn times_in_ms(line: &Line) -> Vec<u64> {
        schedule(line).into_iter().map(|(_, at)| at / 1_000_000).collect()
    }

    fn remove(line: &mut Line, id: u64, sooner: Nanos) {
        let _ = line.remove(id, sooner);
    }

    #[test]
    fn only_requests_behind_one_that_leaves_go_sooner() {
        let sooner = Nanos::new(10_000_000);
        for leaving in 0..4 {
            let mut line = Line::default();
            let ids = [10, 20, 30, 40].map(|at| line.push(ms(at)));
            remove(&mut line, ids[leaving], sooner);
            assert_eq!(times_in_ms(&line), [10, 20, 30], "after number {leaving} has left");
        }
        let mut line = Line::default();
        let ids = [10, 20, 30].map(|at| line.push(ms(at)));
        remove(&mut line, ids[0], Nanos::ZERO);
        assert_eq!(times_in_ms(&line), [20, 30], "a request whose turn has come moves nobody");
        remove(&mut line, ids[1], sooner);
        remove(&mut line, ids[2], sooner);
        assert_eq!(times_in_ms(&line), [0; 0]);
        line.push(ms(5));
        assert_eq!(times_in_ms(&line), [5]);
    }

    /// Random arrivals and departures, compared with a list of times.
    #[test]
    fn a_line_equals_a_list_of_times() {
        let mut random = tollgate_testkit::Random::new(7);
        for _ in 0..200 {
            let (mut line, mut model): (Line, Vec<(u64, u64)>) = (Line::default(), Vec::new());
            for _ in 0..100 {
                if random.below(3) > 0 || model.is_empty() {
                    let at = model.last().map_or(random.below(20), |(_, at)| at + random.below(20));
                    model.push((line.push(Timestamp::from_nanos(at)), at));
                } else {
                    let index = random.below(model.len() as u64) as usize;
                    let (id, removed_at) = model.remove(index);
                    let sooner = random.below(30);
                    let gap = model.get(index).map_or(0, |(_, at)| at - removed_at);
                    model[index..].iter_mut().for_each(|(_, at)| *at -= sooner.min(gap));
                    remove(&mut line, id, Nanos::new(sooner));
                }
                assert_eq!(schedule(&line), model);
            }
        }
    }

    /// A line of one request per millisecond starts half a second late.
    #[test]
    fn a_late_line_makes_up_for_25_ms_only() {
        let mut line = Line::default();
        let ids: Vec<u64> = (0..1000).map(|at| line.push(ms(at))).collect();
        let (mut now, mut times) = (ms(500), Vec::new());
        for id in ids {
            now = now.max(line.first_at);
            line.postpone(now);
            remove(&mut line, id, Nanos::ZERO);
            times.push(now.as_nanos() / 1_000_000);
        }
        assert_eq!(times[..26], [500; 26]);
        assert_eq!(times[26..30], [501, 502, 503, 504]);
        assert_eq!(times[998..], [1473, 1474]);
    }

    #[test]
    fn times_at_the_end_of_time_do_not_overflow() {
        let mut line = Line::default();
        let ids = [0, u64::MAX - 1, u64::MAX].map(|at| line.push(Timestamp::from_nanos(at)));
        line.postpone(Timestamp::from_nanos(u64::MAX));
        for id in [ids[1], ids[0], ids[2], ids[2]] {
            remove(&mut line, id, Nanos::new(u64::MAX));
        }
        assert!(line.is_empty());
    }
}
