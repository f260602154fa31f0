//! How a semaphore is made.

use std::sync::Arc;

use super::FairSemaphore;
use super::waiting::Shared;
use crate::{Clock, Secret};

/// How a [`FairSemaphore`] is made.
///
/// ```
/// use tollgate::FairSemaphore;
///
/// let semaphore = FairSemaphore::builder(16).max_waiting(1000).max_waiting_each(50).build();
/// assert_eq!(semaphore.slots_in_use(), 0);
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until it builds"]
pub struct FairSemaphoreBuilder {
    pub(super) slots: usize,
    pub(super) max_waiting: usize,
    pub(super) max_waiting_each: usize,
    pub(super) clock: Clock,
}

impl FairSemaphoreBuilder {
    /// The most requests that wait at once: 100 000 unless told otherwise. With 0, nobody waits.
    ///
    /// ```
    /// use tollgate::FairSemaphore;
    ///
    /// let semaphore = FairSemaphore::builder(16).max_waiting(1000).build();
    /// assert!(semaphore.try_acquire("acme", 1).is_some());
    /// ```
    pub fn max_waiting(mut self, max_waiting: usize) -> Self {
        self.max_waiting = max_waiting;
        self
    }

    /// The most requests of one tenant that wait at once: as many as wait in all, unless told otherwise. With 0, none does.
    ///
    /// ```
    /// use tollgate::FairSemaphore;
    ///
    /// let semaphore = FairSemaphore::builder(16).max_waiting_each(50).build();
    /// assert!(semaphore.try_acquire("acme", 1).is_some());
    /// ```
    pub fn max_waiting_each(mut self, max_waiting_each: usize) -> Self {
        self.max_waiting_each = max_waiting_each;
        self
    }

    /// Where the time comes from that deadlines are told in.
    ///
    /// ```
    /// use tollgate::{Clock, FairSemaphore, Timestamp};
    ///
    /// let semaphore = FairSemaphore::builder(16).clock(Clock::manual()).build();
    /// assert_eq!(semaphore.clock().now(), Timestamp::from_nanos(0));
    /// ```
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Makes the semaphore.
    ///
    /// ```
    /// use tollgate::FairSemaphore;
    ///
    /// let semaphore = FairSemaphore::builder(16).build();
    /// assert_eq!(semaphore.waiting(), 0);
    /// ```
    pub fn build(self) -> FairSemaphore {
        let Self { slots, max_waiting, max_waiting_each, clock } = self;
        let shared = Shared::new(slots, max_waiting, max_waiting_each, clock);
        FairSemaphore { shared: Arc::new(shared), secret: Secret::random() }
    }
}
