//! What an algorithm has decided, added up.

use tollgate_core::Outcome;

use crate::algorithms::{Event, held};

/// What an algorithm has decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests that passed.
    pub allowed: u64,
    /// Requests that did not.
    pub denied: u64,
    /// The cost of those that passed.
    pub allowed_cost: u64,
    /// Requests that were denied, by client.
    pub denied_of: Vec<u64>,
    /// The longest that a request was held, in nanoseconds.
    pub longest_wait: u64,
}

impl Tally {
    /// Adds decisions.
    pub fn add(&mut self, events: &[Event], outcomes: &[Outcome]) {
        events.iter().zip(outcomes).for_each(|(event, outcome)| self.add_one(event, *outcome));
    }

    /// Adds a decision.
    #[inline]
    pub(crate) fn add_one(&mut self, event: &Event, outcome: Outcome) {
        match held(outcome) {
            Some(delay) => {
                self.allowed += 1;
                self.allowed_cost = self.allowed_cost.saturating_add(event.cost);
                self.longest_wait = self.longest_wait.max(delay.get());
            }
            None => {
                self.denied += 1;
                let client = event.client as usize;
                if client >= self.denied_of.len() {
                    self.denied_of.resize(client + 1, 0);
                }
                self.denied_of[client] += 1;
            }
        }
    }

    /// How many clients were denied at least once.
    pub fn clients_denied(&self) -> u64 {
        self.denied_of.iter().filter(|denied| **denied > 0).count() as u64
    }

    /// The clients that were denied most, and how often.
    pub fn most_denied(&self, count: usize) -> Vec<(u32, u64)> {
        let mut all: Vec<(u32, u64)> = (0_u32..).zip(self.denied_of.iter().copied()).collect();
        all.retain(|(_, denied)| *denied > 0);
        all.sort_by_key(|(client, denied)| (std::cmp::Reverse(*denied), *client));
        all.truncate(count);
        all
    }
}
