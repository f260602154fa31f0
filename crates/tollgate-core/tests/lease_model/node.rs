//! A node: its lease, and what the model knows of its grants.

use tollgate_core::Timestamp;
use tollgate_core::lease::{DrawId, GrantId, Lease};

use super::model::{LIFE, terms};

/// A draw, and the grant that came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Record {
    /// The units that it asks for at least.
    pub(super) cost: u8,
    /// When it was sent, by the clock of the node.
    pub(super) sent: u8,
    /// The units that the store has charged.
    pub(super) granted: u8,
    /// The units of the grant that were not spent.
    pub(super) units: u8,
    /// The numbers of the node when it was sent.
    pub(super) numbers: u8,
    /// The store has forgotten the charge.
    pub(super) is_forgotten: bool,
}

/// A node. What it does is up to its lease; the rest is for the properties and the bounds of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) lease: Lease,
    /// How often it has crashed.
    pub(super) restarts: u8,
    /// The time that its clock has not seen.
    pub(super) unseen: u8,
    /// The draws that it may still send.
    pub(super) draws: u8,
    /// 0 for the old numbers, 1 for the new ones.
    pub(super) numbers: u8,
    /// The primary that it is connected to.
    pub(super) primary: u8,
    pub(super) is_closed: bool,
    /// Its draws since it started, in the order of their numbers.
    pub(super) records: Vec<Record>,
    /// The number of the newest draw that was answered, or that no answer can come to.
    pub(super) answered: u8,
    /// The draw whose answer it waits for, and when it was sent.
    pub(super) in_flight: Option<(DrawId, u8)>,
    /// Units that were taken for a request that will not go ahead. They are put back later.
    pub(super) taken: Option<(GrantId, u8)>,
}

impl Node {
    pub(super) fn new(draws: u8, lease: Lease) -> Self {
        Self {
            lease,
            restarts: 0,
            unseen: 0,
            draws,
            numbers: 0,
            primary: 0,
            is_closed: false,
            records: Vec::new(),
            answered: 0,
            in_flight: None,
            taken: None,
        }
    }

    pub(super) fn record(&mut self, number: u64) -> Option<&mut Record> {
        self.records.get_mut(usize::try_from(number).ok()?.checked_sub(1)?)
    }

    pub(super) fn change_terms(&mut self) {
        self.numbers = 1;
        self.lease.change_terms(terms(1));
        self.lose_answers();
    }

    pub(super) fn change_primary(&mut self, primary: u8) {
        self.primary = primary;
        self.lease.change_primary();
        self.lose_answers();
    }

    fn lose_answers(&mut self) {
        self.in_flight = None;
        self.answered = u8::try_from(self.records.len()).unwrap();
    }

    /// Otherwise states would differ in what has no effect any more.
    pub(super) fn forget_what_has_no_effect(&mut self) {
        self.lease.take_lapsed(); // a count for metrics
        for record in self.records.iter_mut().take(self.answered.into()) {
            (record.cost, record.sent) = (0, 0);
        }
    }

    /// The units in hand, dated and in flight together, at a time of its clock. While the node has to return a grant, its units in hand
    /// do not count: an answer may come so late that its grant goes back before it can be spent.
    pub(super) fn most_units(&self, clock: u8, now: Timestamp) -> u64 {
        let has_to_return = self.lease.next_return().is_some_and(|at| at <= now);
        let in_hand = if has_to_return { 0 } else { self.lease.units() };
        let alive =
            self.records.iter().skip(self.answered.into()).filter(|record| clock < record.sent + LIFE);
        in_hand + alive.map(|record| u64::from(record.cost)).sum::<u64>()
    }
}
