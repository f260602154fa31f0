//! Slots that tenants share by weight.

mod builder;
mod waiting;

use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tollgate_core::{Nanos, Request, Timestamp, Weight};

pub use self::builder::FairSemaphoreBuilder;
pub use self::waiting::Slot;
use self::waiting::{Place, Shared, State, Tenant};
use crate::line::MOST_WAITING;
use crate::{Clock, Secret};

/// A number of slots, shared between tenants by weight while more is asked for than there is.
///
/// A semaphore serves whoever came first, so that one tenant with a thousand requests makes all others wait
/// for them. This one serves each tenant in turn, by what its requests cost and what its weight is: start-time
/// fair queuing, see [`FairQueue`](tollgate_core::FairQueue). A share that nobody asks for goes to the others,
/// and no slot is free while somebody waits.
///
/// Tenants are anything that can be hashed. Clones share everything.
///
/// ```
/// # futures_lite::future::block_on(async {
/// use tollgate::FairSemaphore;
///
/// let semaphore = FairSemaphore::new(16);
/// let slot = semaphore.acquire("acme", 1).await?;
/// // the work
/// drop(slot);
/// # Ok::<(), tollgate::NoSlot>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct FairSemaphore {
    shared: Arc<Shared>,
    secret: Secret,
}

/// Why there is no slot.
///
/// ```
/// # futures_lite::future::block_on(async {
/// use tollgate::{FairSemaphore, NoSlot};
///
/// let semaphore = FairSemaphore::builder(1).max_waiting(0).build();
/// let slot = semaphore.acquire("acme", 1).await?;
/// assert_eq!(semaphore.acquire("globex", 1).await.unwrap_err(), NoSlot::TooManyWaiting);
/// # drop(slot);
/// # Ok::<(), tollgate::NoSlot>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoSlot {
    /// As many wait as may.
    TooManyWaiting,
    /// The tenant has as many waiting as one may.
    TooManyOfTenant,
    /// Its turn did not come in time.
    Expired,
}

impl fmt::Display for NoSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooManyWaiting => "as many wait for a slot as may; come back later, or raise `max_waiting`",
            Self::TooManyOfTenant => {
                "the tenant has as many waiting for a slot as one may; come back later, or raise `max_waiting_each`"
            }
            Self::Expired => "no slot came free before the deadline; come back later",
        })
    }
}

impl std::error::Error for NoSlot {}

impl FairSemaphore {
    /// A semaphore of so many slots. With 0, everybody waits until [`set_slots`](Self::set_slots) makes some.
    ///
    /// ```
    /// use tollgate::FairSemaphore;
    ///
    /// let semaphore = FairSemaphore::new(2);
    /// let slots = (semaphore.try_acquire("acme", 1), semaphore.try_acquire("acme", 1));
    /// assert!(semaphore.try_acquire("globex", 1).is_none());
    /// # drop(slots);
    /// ```
    pub fn new(slots: usize) -> Self {
        Self::builder(slots).build()
    }

    /// A semaphore to be told more.
    ///
    /// ```
    /// use tollgate::FairSemaphore;
    ///
    /// let semaphore = FairSemaphore::builder(16).max_waiting(1000).build();
    /// assert_eq!(semaphore.slots_in_use(), 0);
    /// ```
    pub fn builder(slots: usize) -> FairSemaphoreBuilder {
        FairSemaphoreBuilder {
            slots,
            max_waiting: MOST_WAITING,
            max_waiting_each: usize::MAX,
            clock: Clock::new(),
        }
    }

    /// Waits for a slot, on any runtime or none. `cost` is the work it is expected to be, of which each tenant
    /// gets its share; 0 counts as 1.
    ///
    /// Dropping the future leaves the queue, and passes a slot on that has just come.
    ///
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use futures_lite::future::zip;
    /// use tollgate::FairSemaphore;
    ///
    /// let semaphore = FairSemaphore::new(1);
    /// let slot = semaphore.acquire("acme", 1).await?;
    /// let (next, ()) = zip(semaphore.acquire("globex", 1), async { drop(slot) }).await;
    /// assert!(next.is_ok());
    /// # Ok::<(), tollgate::NoSlot>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// When too many wait already.
    pub async fn acquire<K: Hash + ?Sized>(&self, tenant: &K, cost: u64) -> Result<Slot, NoSlot> {
        let request = self.ask(tenant).cost(cost);
        request.acquire().await
    }

    /// A slot, if one is free and nobody waits.
    ///
    /// ```
    /// use tollgate::FairSemaphore;
    ///
    /// let semaphore = FairSemaphore::new(1);
    /// let slot = semaphore.try_acquire("acme", 1).unwrap();
    /// assert!(semaphore.try_acquire("globex", 1).is_none());
    /// drop(slot);
    /// assert!(semaphore.try_acquire("globex", 1).is_some());
    /// ```
    #[must_use = "the slot is given back at once unless it is kept"]
    pub fn try_acquire<K: Hash + ?Sized>(&self, tenant: &K, cost: u64) -> Option<Slot> {
        if !self.shared.look(State::is_free) {
            return None;
        }
        // Should somebody else come in between, the place that was taken in the queue is left again.
        let place = self.ask(tenant).cost(cost).enter().ok()?;
        match place.poll(&Context::from_waker(Waker::noop())) {
            Poll::Ready(slot) => slot.ok(),
            Poll::Pending => None,
        }
    }

    /// A request to be told more: its cost, its tenant's weight, until when it is of use.
    ///
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use tollgate::{FairSemaphore, Weight};
    ///
    /// let semaphore = FairSemaphore::new(16);
    /// let weight = Weight::new(8).unwrap();
    /// let slot = semaphore.ask("acme").weight(weight).cost(3).acquire().await?;
    /// # drop(slot);
    /// # Ok::<(), tollgate::NoSlot>(()) }).unwrap();
    /// ```
    pub fn ask<K: Hash + ?Sized>(&self, tenant: &K) -> SlotRequest<'_> {
        let tenant = self.secret.hash(0, tenant);
        SlotRequest { semaphore: self, tenant, weight: Weight::ONE, cost: 1, deadline: None }
    }

    /// Changes the number of slots. Those in use beyond it are not cut off, and not given again.
    ///
    /// ```
    /// use tollgate::FairSemaphore;
    ///
    /// let semaphore = FairSemaphore::new(0);
    /// assert!(semaphore.try_acquire("acme", 1).is_none());
    /// semaphore.set_slots(1);
    /// assert!(semaphore.try_acquire("acme", 1).is_some());
    /// ```
    pub fn set_slots(&self, slots: usize) {
        self.set_slots_by(|_| slots);
    }

    /// Changes how many of one tenant may wait. Those who wait already stay.
    ///
    /// ```
    /// use std::task::{Context, Waker};
    /// use tollgate::{FairSemaphore, NoSlot};
    ///
    /// let semaphore = FairSemaphore::new(0);
    /// semaphore.set_max_waiting_each(0);
    /// let asking = std::pin::pin!(semaphore.acquire("acme", 1));
    /// let told = asking.poll(&mut Context::from_waker(Waker::noop()));
    /// assert!(matches!(told, std::task::Poll::Ready(Err(NoSlot::TooManyOfTenant))));
    /// ```
    pub fn set_max_waiting_each(&self, max_waiting_each: usize) {
        self.shared.change(|state| state.set_max_waiting_each(max_waiting_each));
    }

    /// Whether the slot is one of these.
    pub(crate) fn has_given(&self, slot: &Slot) -> bool {
        slot.is_of(&self.shared)
    }

    /// Changes the number of slots, given how many are in use.
    pub(crate) fn set_slots_by(&self, slots: impl FnOnce(usize) -> usize) {
        self.shared.change(|state| state.set_slots(slots(state.queue.running())));
    }

    /// How many slots there are.
    ///
    /// ```
    /// use tollgate::FairSemaphore;
    ///
    /// assert_eq!(FairSemaphore::new(2).slots(), 2);
    /// ```
    pub fn slots(&self) -> usize {
        self.shared.look(|state| state.slots)
    }

    /// How many slots are in use.
    ///
    /// ```
    /// use tollgate::FairSemaphore;
    ///
    /// let semaphore = FairSemaphore::new(2);
    /// let slot = semaphore.try_acquire("acme", 1);
    /// assert_eq!(semaphore.slots_in_use(), 1);
    /// # drop(slot);
    /// ```
    pub fn slots_in_use(&self) -> usize {
        self.shared.look(|state| state.queue.running())
    }

    /// How many requests wait.
    ///
    /// ```
    /// use tollgate::FairSemaphore;
    ///
    /// assert_eq!(FairSemaphore::new(1).waiting(), 0);
    /// ```
    pub fn waiting(&self) -> usize {
        self.shared.look(|state| state.queue.waiting())
    }

    /// Where the time comes from that deadlines are told in.
    ///
    /// ```
    /// use tollgate::{FairSemaphore, Nanos};
    ///
    /// let semaphore = FairSemaphore::new(1);
    /// let in_two_seconds = semaphore.clock().now().after(Nanos::new(2_000_000_000));
    /// let request = semaphore.ask("acme").deadline(in_two_seconds);
    /// # drop(request);
    /// ```
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }
}

impl fmt::Debug for FairSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (in_use, waiting) = self.shared.look(|state| (state.queue.running(), state.queue.waiting()));
        f.debug_struct("FairSemaphore")
            .field("in_use", &in_use)
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}

/// One request for a slot: [`FairSemaphore::ask`].
///
/// ```
/// # futures_lite::future::block_on(async {
/// use tollgate::{FairSemaphore, Weight};
///
/// let semaphore = FairSemaphore::new(16);
/// let slot = semaphore.ask("acme").weight(Weight::new(2).unwrap()).acquire().await?;
/// # drop(slot);
/// # Ok::<(), tollgate::NoSlot>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a request is made by `acquire`"]
pub struct SlotRequest<'a> {
    semaphore: &'a FairSemaphore,
    tenant: Tenant,
    weight: Weight,
    cost: u64,
    deadline: Option<Timestamp>,
}

impl<'a> SlotRequest<'a> {
    /// The work it is expected to be: 1 unless told otherwise. 0 counts as 1.
    ///
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use tollgate::FairSemaphore;
    ///
    /// let semaphore = FairSemaphore::new(16);
    /// let slot = semaphore.ask("acme").cost(30).acquire().await?; // for acme's share as much as thirty of cost 1
    /// # drop(slot);
    /// # Ok::<(), tollgate::NoSlot>(()) }).unwrap();
    /// ```
    pub const fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// The share of its tenant in proportion to the others': 1 unless told otherwise.
    ///
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use tollgate::{FairSemaphore, Weight};
    ///
    /// let semaphore = FairSemaphore::new(16);
    /// let slot = semaphore.ask("globex").weight(Weight::new(8).unwrap()).acquire().await?;
    /// # drop(slot);
    /// # Ok::<(), tollgate::NoSlot>(()) }).unwrap();
    /// ```
    pub const fn weight(mut self, weight: Weight) -> Self {
        self.weight = weight;
        self
    }

    /// When it is no longer worth serving. It is then given up and has cost its tenant nothing.
    ///
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use tollgate::{FairSemaphore, Nanos, NoSlot};
    ///
    /// let semaphore = FairSemaphore::new(1);
    /// let slot = semaphore.acquire("acme", 1).await?;
    /// let soon = semaphore.clock().now().after(Nanos::new(1_000_000));
    /// assert_eq!(semaphore.ask("globex").deadline(soon).acquire().await.unwrap_err(), NoSlot::Expired);
    /// # drop(slot);
    /// # Ok::<(), tollgate::NoSlot>(()) }).unwrap();
    /// ```
    pub const fn deadline(mut self, deadline: Timestamp) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Waits for the slot, as [`FairSemaphore::acquire`] does.
    ///
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use tollgate::FairSemaphore;
    ///
    /// let semaphore = FairSemaphore::new(16);
    /// let slot = semaphore.ask("acme").cost(3).acquire().await?;
    /// assert_eq!(semaphore.slots_in_use(), 1);
    /// # drop(slot);
    /// # Ok::<(), tollgate::NoSlot>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// When too many wait already, or the deadline has passed.
    pub async fn acquire(self) -> Result<Slot, NoSlot> {
        let place = self.enter()?;
        let Some(deadline) = self.deadline else {
            return poll_fn(|context| place.poll(context)).await;
        };
        // At the deadline it is still worth starting.
        let mut too_late = pin!(self.semaphore.clock().sleep_until(deadline.after(Nanos::new(1))));
        poll_fn(|context| match place.poll(context) {
            Poll::Pending => too_late.as_mut().poll(context).map(|()| Err(NoSlot::Expired)),
            ready => ready,
        })
        .await
    }

    fn enter(&self) -> Result<Place<'a>, NoSlot> {
        let Self { tenant, weight, cost, deadline, .. } = *self;
        self.semaphore.shared.enter(tenant, Request { weight, cost, deadline, item: () })
    }
}

#[cfg(test)]
mod tests;
