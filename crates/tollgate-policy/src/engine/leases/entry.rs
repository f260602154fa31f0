//! What this process holds of one key.

use std::sync::Arc;

use tollgate::lease::{DrawId, GrantId, Lease, Step, Take, Terms};
use tollgate::{Decision, Nanos, Outcome, Retry, Status, Timestamp};

use super::counts::LeaseCounts;
use super::draw_wait::DrawWait;
use super::tasks::LeaseCall;
use crate::store::{
    DrawCall, Drawn, KeyState, LeaseStore, LeasedKey, LimitDecision, PrimaryId, ReturnCall, Unavailable,
};

/// The lease of one key, with what the engine needs to speak to the store about it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) lease: Lease,
    key: Arc<LeasedKey>,
    counts: Arc<LeaseCounts>,
    /// No other entry of this process ever had the same. Answers to draws of an earlier entry are dropped.
    pub(super) serial: u64,
    pub(super) policy: u64,     // the number of the policy that it was last asked under
    primary: Option<PrimaryId>, // that has the key
    connections: u64,           // when the primary was looked up
    stored: Status,             // of the key in the store, as of the newest answer
    answered: Timestamp,        // when that came
    exact_until: Timestamp,     // after a change of numbers
    wait: Option<Arc<DrawWait>>,
}

impl Entry {
    pub(super) fn new(
        key: LeasedKey,
        terms: Terms,
        demand: u64,
        counts: Arc<LeaseCounts>,
        serial: u64,
        now: Timestamp,
    ) -> Self {
        let stored = Status { remaining: key.rule.capacity(), ..Status::default() };
        let lease = if demand == 0 { Lease::new(terms) } else { Lease::with_demand(terms, demand, now) };
        Self {
            lease,
            key: Arc::new(key),
            counts,
            serial,
            policy: 0,
            primary: None,
            connections: 0,
            stored,
            answered: now,
            exact_until: now,
            wait: None,
        }
    }

    /// Has the entry go by the numbers of a request. Grants of other numbers are dropped. If requests of one key have numbers in
    /// turns, the store decides them for one life of a grant after each change.
    pub(super) fn use_numbers(
        &mut self,
        same: impl FnOnce(&LeasedKey) -> bool,
        key: impl FnOnce() -> LeasedKey,
        terms: &Terms,
        policy: u64,
        now: Timestamp,
    ) {
        let is_new_policy = std::mem::replace(&mut self.policy, policy) != policy;
        if same(&self.key) && self.lease.terms() == terms {
            return;
        }
        self.key = Arc::new(key());
        self.lease.change_terms(*terms);
        if !is_new_policy {
            self.exact_until = now.after(terms.life());
        }
    }

    /// Looks up the primary of the key if connections have changed.
    fn find_primary(&mut self, store: &dyn LeaseStore) -> Result<PrimaryId, Unavailable> {
        let connections = store.connections();
        if let Some(primary) = self.primary.filter(|_| self.connections == connections) {
            return Ok(primary);
        }
        let found = store.primary(&self.key)?;
        self.connections = connections;
        if self.primary.replace(found).is_some_and(|before| before != found) {
            self.lease.change_primary();
        }
        Ok(found)
    }

    /// Takes the cost of a request from a grant.
    pub(super) fn take(
        &mut self,
        store: &dyn LeaseStore,
        cost: u64,
        is_again: bool,
        now: Timestamp,
    ) -> Result<Take, Unavailable> {
        let primary = self.find_primary(store).map(|_| ());
        let take = if is_again { self.lease.take_again(cost, now) } else { self.lease.take(cost, now) };
        match take {
            Take::Taken(_) | Take::Denied(_) => Ok(take),
            Take::Wait | Take::Exact => primary.map(|()| match take {
                Take::Wait if now < self.exact_until => Take::Exact,
                take => take,
            }),
        }
    }

    /// Takes the cost of a request from what is left while the store gives no answer.
    pub(super) fn take_held(&mut self, cost: u64, now: Timestamp) -> Option<GrantId> {
        match self.lease.take_again(cost, now) {
            Take::Taken(grant) => Some(grant),
            Take::Denied(_) | Take::Wait | Take::Exact => None,
        }
    }

    /// Puts units back into their grant. They lapse if it is gone.
    pub(super) fn put_back(&mut self, grant: GrantId, cost: u64) {
        let given = self.lease.put_back(grant, cost);
        if given < cost {
            self.counts.add_lapsed(cost - given);
        }
    }

    /// What has to be sent now. With `may_draw` false, only returns are sent: a newer policy may have other numbers.
    pub(super) fn next_call(
        &mut self,
        store: &dyn LeaseStore,
        may_draw: bool,
        now: Timestamp,
    ) -> Option<LeaseCall> {
        let primary = self.find_primary(store).ok();
        let step = self.lease.next_step(now)?;
        let may_draw = may_draw && now >= self.exact_until;
        self.call(step, primary.filter(|_| may_draw || matches!(step, Step::Return { .. })))
    }

    /// A draw of exactly the cost of one request, or a return that makes room for it.
    pub(super) fn single_draw(
        &mut self,
        store: &dyn LeaseStore,
        cost: u64,
        now: Timestamp,
    ) -> Option<LeaseCall> {
        let primary = self.find_primary(store).ok();
        let step = self.lease.draw_single(cost, now)?;
        self.call(step, primary)
    }

    /// The call of a step. Without a primary, a draw counts as lost, and returned units lapse.
    fn call(&mut self, step: Step, primary: Option<PrimaryId>) -> Option<LeaseCall> {
        let key = Arc::clone(&self.key);
        match (step, primary) {
            (Step::Draw { id, draw }, Some(primary)) => {
                self.counts.add_draw(draw.mark.is_some());
                let deadline = Nanos::new(self.lease.terms().life().get() / 2).into();
                Some(LeaseCall::Draw(id, DrawCall { key, draw, primary, deadline }))
            }
            (Step::Draw { id, .. }, None) => {
                self.lease.cancel_draw(id);
                None
            }
            (Step::Return { id, units, charged }, Some(primary)) => {
                self.counts.add_returned(units);
                let (grant, life) = (self.grant_number(id), self.lease.terms().life());
                Some(LeaseCall::Return(ReturnCall { key, grant, units, charged, life, primary }))
            }
            (Step::Return { units, .. }, None) => {
                self.counts.add_lapsed(units);
                None
            }
        }
    }

    /// A number that no other grant of this process has while its return may be repeated.
    const fn grant_number(&self, id: GrantId) -> u64 {
        self.serial << 24 | (id.number() & 0xFF_FFFF)
    }

    /// Takes the answer to a draw. Returns the requests that waited for it.
    pub(super) fn answer(
        &mut self,
        id: DrawId,
        answer: Result<&Drawn, &Unavailable>,
        now: Timestamp,
    ) -> Option<Arc<DrawWait>> {
        match answer {
            Ok(drawn) => {
                let units = drawn.grant.units;
                self.counts.add_drawn(units);
                self.count_lapsed(now);
                let is_added = self.lease.accept_grant(id, &drawn.grant, drawn.charged, now);
                if is_added || units == 0 {
                    (self.stored, self.answered) = (drawn.grant.status, now);
                }
                // A draw has one answer here. The lease takes one to a draw that it no longer knows for a second answer.
                if !is_added {
                    let _ = self.lease.take_lapsed();
                    self.counts.add_lapsed(units);
                }
            }
            // A store that has been away for some time was not asked.
            Err(unavailable) if !unavailable.out_for.is_zero() => self.lease.cancel_draw(id),
            Err(_) => self.lease.give_up_draw(id),
        }
        self.count_lapsed(now);
        // The answer to a draw that was given up wakes nobody who waits for the next.
        if self.lease.has_draw_in_flight() { None } else { self.wait.take() }
    }

    /// What requests that find no units wait for: the answer to the draw in flight. None if no draw is in flight.
    pub(super) fn wait(&mut self) -> Option<Arc<DrawWait>> {
        if !self.lease.has_draw_in_flight() {
            return None;
        }
        Some(Arc::clone(self.wait.get_or_insert_default()))
    }

    /// Ends the entry: nothing is spent any more. Returns the requests that wait for a draw.
    pub(super) fn end(mut self) -> Option<Arc<DrawWait>> {
        self.counts.add_lapsed(self.lease.units() + self.lease.take_lapsed());
        self.wait.take()
    }

    pub(super) fn count_lapsed(&mut self, now: Timestamp) {
        self.lease.drop_ended(now);
        match self.lease.take_lapsed() {
            0 => {}
            units => self.counts.add_lapsed(units),
        }
    }

    pub(super) const fn counts(&self) -> &Arc<LeaseCounts> {
        &self.counts
    }

    /// The decision of a leased limit, as far as this process knows the key: what it holds itself, and what the store had when it
    /// answered last.
    pub(super) fn decision(&self, outcome: Outcome, now: Timestamp) -> LimitDecision {
        let held = self.lease.units_now(now);
        let capacity = self.key.rule.capacity();
        let remaining = match outcome {
            Outcome::Allow { .. } => {
                // Units that the store keeps for single requests are not for nodes with grants.
                let stored = self.stored.remaining.saturating_sub(self.lease.terms().reserve());
                held.saturating_add(stored).min(capacity)
            }
            Outcome::Deny { .. } => held,
        };
        let elapsed = now.since(self.answered).get();
        let reset_after = Nanos::new(self.stored.reset_after.get().saturating_sub(elapsed));
        let status = Status { remaining, reset_after };
        LimitDecision {
            decision: Decision { outcome, status },
            key_state: KeyState::Stored { more_after: None },
        }
    }
}

/// A denial for a time. A wait of zero would say that it is over.
pub(super) fn denied_for(wait: Nanos) -> Outcome {
    Outcome::Deny { retry: Retry::After(wait.max(Nanos::new(1))) }
}
