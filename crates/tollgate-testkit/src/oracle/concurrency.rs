//! Concurrency: who holds how much, and until when at the latest.

use super::rounding::reported;
use crate::answer::{Answer, Retry};

#[cfg(test)]
mod tests;

/// At most `limit` in flight; with a lease, a holder that never lets go is freed when the lease
/// ends.
///
/// A lease taken at t holds in `[t, t + lease)`. As in a log, a request stamped before the newest
/// admitted one is decided, and its lease taken, as if it came with that one.
#[derive(Clone, Debug)]
pub struct Concurrency {
    limit: u64,
    lease: Option<u64>,
    holders: Vec<Holder>,
    /// Time of the newest admitted acquisition.
    newest: u64,
}

#[derive(Clone, Debug)]
struct Holder {
    id: u64,
    cost: u64,
    /// `None`: until it is released.
    ends: Option<i128>,
}

impl Holder {
    fn holds(&self, time: i128) -> bool {
        self.ends.is_none_or(|ends| time < ends)
    }
}

impl Concurrency {
    /// Nothing in flight.
    pub fn new(limit: u64, lease: Option<u64>) -> Self {
        Self { limit, lease, holders: Vec::new(), newest: 0 }
    }

    /// Decides without taking anything.
    pub fn would(&self, now: u64, cost: u64) -> Answer {
        self.answer(now, self.decide(now, cost))
    }

    /// Decides, and holds `cost` under `id` if allowed. An id names one acquisition: it must not be
    /// in use.
    pub fn acquire(&mut self, now: u64, id: u64, cost: u64) -> Answer {
        let decision = self.decide(now, cost);
        if decision.is_ok() && cost > 0 {
            let time = self.not_before_newest(now);
            self.newest = time;
            // No later request is decided before `time`, so these have ended for good.
            self.holders.retain(|holder| holder.holds(time.into()));
            assert!(self.holders.iter().all(|holder| holder.id != id), "id {id} already holds");
            let ends = self.lease.map(|lease| i128::from(time) + i128::from(lease));
            self.holders.push(Holder { id, cost, ends });
        }
        self.answer(now, decision)
    }

    /// Lets go of what `id` holds. False if it held nothing, or no longer.
    pub fn release(&mut self, now: u64, id: u64) -> bool {
        let time = self.not_before_newest(now).into();
        match self.holders.iter().position(|holder| holder.id == id) {
            Some(place) => self.holders.remove(place).holds(time),
            None => false,
        }
    }

    /// Changes the limit. Nobody loses what they hold.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Changes the lease of permits that are given from now on.
    pub fn set_lease(&mut self, lease: Option<u64>) {
        self.lease = lease;
    }

    /// Cost in flight.
    pub fn in_flight(&self, now: u64) -> u64 {
        self.held(self.not_before_newest(now).into())
    }

    fn decide(&self, now: u64, cost: u64) -> Result<u64, Retry> {
        let fits = |time: i128| u128::from(self.held(time)) + u128::from(cost) <= u128::from(self.limit);
        let time = self.not_before_newest(now).into();
        if cost == 0 || fits(time) {
            return Ok(0);
        }
        if cost > self.limit {
            return Err(Retry::Never);
        }
        let mut ends: Vec<_> = self
            .holders
            .iter()
            .filter(|holder| holder.holds(time))
            .filter_map(|holder| holder.ends)
            .collect();
        ends.sort_unstable();
        match ends.into_iter().find(|ends| fits(*ends)) {
            Some(ends) => Err(Retry::After(reported(ends - i128::from(now)))),
            None => Err(Retry::Unknown),
        }
    }

    fn answer(&self, now: u64, decision: Result<u64, Retry>) -> Answer {
        let time = self.not_before_newest(now).into();
        let holding = self.holders.iter().filter(|holder| holder.holds(time));
        let reset = holding.filter_map(|holder| holder.ends).max().map_or(0, |ends| ends - i128::from(now));
        Answer::new(decision, self.limit.saturating_sub(self.held(time)), reported(reset))
    }

    fn held(&self, time: i128) -> u64 {
        self.holders.iter().filter(|holder| holder.holds(time)).map(|holder| holder.cost).sum()
    }

    fn not_before_newest(&self, now: u64) -> u64 {
        now.max(self.newest)
    }
}
