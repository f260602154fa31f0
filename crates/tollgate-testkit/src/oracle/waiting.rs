//! Admitted requests that are held back until their release: the `max_wait` and `max_waiting` of a
//! bucket.

use super::rounding::reported;
use crate::answer::Retry;
use std::collections::VecDeque;

/// How long a request may be held, how many may be held at once, and who is.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    max_wait: u64,
    max_waiting: u64,
    /// Release times of the admitted requests that had to wait, oldest first. A later admission is
    /// never released before an earlier one, so the list is in order; and whether `max_waiting` of
    /// them still wait depends on the newest `max_waiting` alone, so no more are kept.
    releases: VecDeque<i128>,
}

impl Waiting {
    pub(super) fn new(max_wait: u64, max_waiting: u64) -> Self {
        Self { max_wait, max_waiting, releases: VecDeque::new() }
    }

    pub(super) fn max_wait(&self) -> i128 {
        self.max_wait.into()
    }

    /// Decides a request that need not wait any more `delay` from now, and that the bucket alone
    /// would accept, to be held, `own` from now.
    pub(super) fn decide(&self, now: u64, delay: i128, own: i128) -> Result<u64, Retry> {
        if delay <= 0 {
            return Ok(0);
        }
        let wait = match self.until_room(now) {
            // Once it need not wait at all it needs no place among the waiting either.
            Some(room) => room.max(own).min(delay),
            None => delay,
        };
        if wait <= 0 { Ok(reported(delay)) } else { Err(Retry::After(reported(wait))) }
    }

    /// Remembers an admitted request, if it has to wait at all.
    pub(super) fn admit(&mut self, now: u64, delay: u64) {
        if delay == 0 {
            return;
        }
        let release = i128::from(now) + i128::from(delay);
        debug_assert!(self.releases.back().is_none_or(|last| *last <= release), "released out of order");
        self.releases.push_back(release);
        while self.releases.len() as u128 > u128::from(self.max_waiting) {
            self.releases.pop_front();
        }
    }

    /// Whether anybody is still to be released.
    pub(super) fn somebody_waits(&self, now: u64) -> bool {
        self.releases.iter().any(|release| *release > i128::from(now))
    }

    /// Forgets those who have been released. A clock that steps back would otherwise find them waiting
    /// again, behind somebody who goes at once on tokens that were put back.
    pub(super) fn forget(&mut self) {
        self.releases.clear();
    }

    /// Time until fewer than `max_waiting` wait; `None` where nobody may ever wait.
    fn until_room(&self, now: u64) -> Option<i128> {
        let places = usize::try_from(self.max_waiting).unwrap_or(usize::MAX);
        if places == 0 {
            return None;
        }
        let now = i128::from(now);
        let released = self.releases.partition_point(|release| *release <= now);
        if self.releases.len() - released < places {
            return Some(0);
        }
        // When this one leaves, only the `places - 1` younger ones can still wait.
        Some(self.releases[self.releases.len() - places] - now)
    }
}
