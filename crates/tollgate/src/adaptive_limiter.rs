//! As many in flight as the work can bear.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_core::adaptive::{Controller, Sample};

use crate::sync::Mutex;
use crate::{FairSemaphore, FairSemaphoreBuilder, NoSlot, Slot};

/// Finds how many requests may be in flight from how long they take and whether they are dropped, and shares the
/// places between tenants.
///
/// The controller is one of [`adaptive`](crate::adaptive): [`Gradient2`](crate::adaptive::Gradient2) and
/// [`Vegas`](crate::adaptive::Vegas) learn from latency, [`Aimd`](crate::adaptive::Aimd) from drops and timeouts
/// alone. Start with `Gradient2` where latency tells of load, as it mostly does, and with `Aimd` where the upstream
/// refuses what is too much. Without tenants, give everybody the same: `acquire(&(), 1)`. Each
/// request says how it ended: [success](Flight::success), [dropped](Flight::dropped) for want of capacity, or
/// [ignore](Flight::ignore) where that says nothing of the load. Clones share everything.
///
/// ```
/// # futures_lite::future::block_on(async {
/// use std::time::Duration;
/// use tollgate::AdaptiveLimiter;
/// use tollgate::adaptive::{Aimd, Bounds};
///
/// // Ten at first; a drop, or a request longer than 5 s, keeps 900 thousandths of the limit.
/// let aimd = Aimd::new(10, Bounds::new(1, 100)?, 900, Duration::from_secs(5))?;
/// let limiter = AdaptiveLimiter::new(aimd);
/// let flight = limiter.acquire("acme", 1).await?;
/// // the upstream refuses, being overloaded
/// flight.dropped();
/// assert_eq!(limiter.limit(), 9);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct AdaptiveLimiter {
    semaphore: FairSemaphore,
    controller: Arc<Mutex<Box<dyn Controller + Send>>>,
}

impl AdaptiveLimiter {
    /// A limiter in which 100 000 may wait. The controller is asked under the limiter's lock: one of your own must not
    /// call back.
    ///
    /// ```
    /// use tollgate::AdaptiveLimiter;
    /// use tollgate::adaptive::{Bounds, Vegas};
    ///
    /// let limiter = AdaptiveLimiter::new(Vegas::new(20, Bounds::new(1, 100)?, 42));
    /// assert_eq!(limiter.limit(), 20);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn new(controller: impl Controller + Send + 'static) -> Self {
        FairSemaphore::builder(0).build_adaptive(controller)
    }

    /// Waits for a place, on any runtime or none, as [`FairSemaphore::acquire`] does.
    ///
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use tollgate::AdaptiveLimiter;
    /// use tollgate::adaptive::{Bounds, Vegas};
    ///
    /// let limiter = AdaptiveLimiter::new(Vegas::new(20, Bounds::new(1, 100)?, 42));
    /// let flight = limiter.acquire("acme", 1).await?;
    /// flight.success();
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// When too many wait already.
    pub async fn acquire<K: Hash + ?Sized>(&self, tenant: &K, cost: u64) -> Result<Flight, NoSlot> {
        let slot = self.semaphore.acquire(tenant, cost).await?;
        Ok(self.begin(slot))
    }

    /// A place, if one is free and nobody waits.
    ///
    /// ```
    /// use tollgate::AdaptiveLimiter;
    /// use tollgate::adaptive::{Bounds, Vegas};
    ///
    /// let limiter = AdaptiveLimiter::new(Vegas::new(1, Bounds::new(1, 100)?, 42));
    /// let flight = limiter.try_acquire("acme", 1).unwrap();
    /// assert!(limiter.try_acquire("globex", 1).is_none());
    /// flight.success();
    /// assert!(limiter.try_acquire("globex", 1).is_some());
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    #[must_use = "a request that is not kept has ended at once, and nothing is learnt from it"]
    pub fn try_acquire<K: Hash + ?Sized>(&self, tenant: &K, cost: u64) -> Option<Flight> {
        self.semaphore.try_acquire(tenant, cost).map(|slot| self.begin(slot))
    }

    /// How many may be in flight now.
    ///
    /// ```
    /// use tollgate::AdaptiveLimiter;
    /// use tollgate::adaptive::{Bounds, Vegas};
    ///
    /// let limiter = AdaptiveLimiter::new(Vegas::new(500, Bounds::new(1, 100)?, 42));
    /// assert_eq!(limiter.limit(), 100); // held within the bounds from the start
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn limit(&self) -> u64 {
        self.controller.lock().limit()
    }

    /// The slots it moves the number of: to ask with a weight or a deadline ([`begin`](Self::begin)), to see how
    /// many wait. Their number is the controller's: what [`FairSemaphore::set_slots`] sets holds until the next
    /// request ends.
    ///
    /// ```
    /// use tollgate::AdaptiveLimiter;
    /// use tollgate::adaptive::{Bounds, Vegas};
    ///
    /// let limiter = AdaptiveLimiter::new(Vegas::new(20, Bounds::new(1, 100)?, 42));
    /// let flight = limiter.try_acquire("acme", 1).unwrap();
    /// assert_eq!(limiter.semaphore().slots_in_use(), 1);
    /// # drop(flight);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub const fn semaphore(&self) -> &FairSemaphore {
        &self.semaphore
    }

    /// Begins a request with a slot of [`semaphore`](Self::semaphore).
    ///
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use tollgate::adaptive::{Bounds, Vegas};
    /// use tollgate::{AdaptiveLimiter, Weight};
    ///
    /// let limiter = AdaptiveLimiter::new(Vegas::new(20, Bounds::new(1, 100)?, 42));
    /// let slot = limiter.semaphore().ask("acme").weight(Weight::new(8).unwrap()).acquire().await?;
    /// limiter.begin(slot).success();
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Panics
    ///
    /// When the slot is of another semaphore.
    pub fn begin(&self, slot: Slot) -> Flight {
        assert!(self.semaphore.has_given(&slot), "the slot must be of this limiter's own semaphore");
        let began = self.semaphore.clock().now();
        Flight { limiter: self.clone(), slot, began }
    }

    fn observe(&self, began: Timestamp, dropped: bool) {
        let now = self.semaphore.clock().now();
        let rtt = now.since(began).into();
        self.semaphore.set_slots_by(|in_use| {
            let mut controller = self.controller.lock();
            controller.observe_at(Sample { rtt, in_flight: in_use as u64, dropped }, now);
            slots(controller.limit())
        });
    }
}

fn slots(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

impl FairSemaphoreBuilder {
    /// Makes a limiter whose number of slots is the controller's, whatever the builder began with.
    ///
    /// ```
    /// use tollgate::FairSemaphore;
    /// use tollgate::adaptive::{Bounds, Vegas};
    ///
    /// let vegas = Vegas::new(20, Bounds::new(1, 100)?, 42);
    /// let limiter = FairSemaphore::builder(0).max_waiting_each(50).build_adaptive(vegas);
    /// assert_eq!(limiter.limit(), 20);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn build_adaptive(self, controller: impl Controller + Send + 'static) -> AdaptiveLimiter {
        let semaphore = self.build();
        semaphore.set_slots(slots(controller.limit()));
        AdaptiveLimiter { semaphore, controller: Arc::new(Mutex::new(Box::new(controller))) }
    }
}

impl fmt::Debug for AdaptiveLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveLimiter").field("limit", &self.limit()).finish_non_exhaustive()
    }
}

/// A request in flight. It says how it ended; dropped without a word, it is [ignored](Self::ignore).
///
/// ```
/// use tollgate::AdaptiveLimiter;
/// use tollgate::adaptive::{Bounds, Vegas};
///
/// let limiter = AdaptiveLimiter::new(Vegas::new(20, Bounds::new(1, 100)?, 42));
/// let flight = limiter.try_acquire("acme", 1).unwrap();
/// let answer: Result<u16, ()> = Ok(200); // of the upstream
/// match answer {
///     Ok(503) | Err(()) => flight.dropped(),
///     Ok(400..500) => flight.ignore(), // refused for what it was, not for want of capacity
///     Ok(_) => flight.success(),
/// }
/// # Ok::<(), tollgate::RuleError>(())
/// ```
#[must_use = "a request that is not kept has ended at once, and nothing is learnt from it"]
pub struct Flight {
    limiter: AdaptiveLimiter,
    slot: Slot,
    began: Timestamp,
}

impl Flight {
    /// It was answered: how long that took is learnt.
    ///
    /// ```
    /// use tollgate::AdaptiveLimiter;
    /// use tollgate::adaptive::{Aimd, Bounds};
    /// use std::time::Duration;
    ///
    /// let limiter = AdaptiveLimiter::new(Aimd::new(1, Bounds::new(1, 100)?, 900, Duration::from_secs(5))?);
    /// limiter.try_acquire("acme", 1).unwrap().success();
    /// assert_eq!(limiter.limit(), 2); // it was as many as might be in flight, and went well
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn success(self) {
        self.limiter.observe(self.began, false);
    }

    /// It was refused, or timed out, for want of capacity: the limit goes down.
    ///
    /// ```
    /// use tollgate::AdaptiveLimiter;
    /// use tollgate::adaptive::{Aimd, Bounds};
    /// use std::time::Duration;
    ///
    /// let limiter = AdaptiveLimiter::new(Aimd::new(50, Bounds::new(1, 100)?, 900, Duration::from_secs(5))?);
    /// limiter.try_acquire("acme", 1).unwrap().dropped();
    /// assert_eq!(limiter.limit(), 45);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn dropped(self) {
        self.limiter.observe(self.began, true);
    }

    /// It was answered, and how long that took is learnt; or it was `dropped` for want of capacity. The slot is kept: the
    /// answer may still have to be read.
    ///
    /// ```
    /// use tollgate::AdaptiveLimiter;
    /// use tollgate::adaptive::{Aimd, Bounds};
    /// use std::time::Duration;
    ///
    /// let limiter = AdaptiveLimiter::new(Aimd::new(1, Bounds::new(1, 100)?, 900, Duration::from_secs(5))?);
    /// let slot = limiter.try_acquire("acme", 1).unwrap().answered(false);
    /// assert_eq!((limiter.limit(), limiter.semaphore().slots_in_use()), (2, 1));
    /// slot.finish(1);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn answered(self, dropped: bool) -> Slot {
        self.limiter.observe(self.began, dropped);
        self.slot
    }

    /// Nothing is learnt from it, and the slot is kept.
    ///
    /// ```
    /// use tollgate::AdaptiveLimiter;
    /// use tollgate::adaptive::{Bounds, Vegas};
    ///
    /// let limiter = AdaptiveLimiter::new(Vegas::new(20, Bounds::new(1, 100)?, 42));
    /// limiter.try_acquire("acme", 1).unwrap().into_slot().finish(3);
    /// assert_eq!(limiter.limit(), 20);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn into_slot(self) -> Slot {
        self.slot
    }

    /// It ended in a way that says nothing of the load, such as a client that left or a request that was wrong.
    ///
    /// ```
    /// use tollgate::AdaptiveLimiter;
    /// use tollgate::adaptive::{Bounds, Vegas};
    ///
    /// let limiter = AdaptiveLimiter::new(Vegas::new(20, Bounds::new(1, 100)?, 42));
    /// limiter.try_acquire("acme", 1).unwrap().ignore();
    /// assert_eq!(limiter.limit(), 20);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn ignore(self) {}
}

impl fmt::Debug for Flight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flight").field("began", &self.began).field("slot", &self.slot).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
