//! Slots that tenants share by weight.

use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tollgate_core::{Dispatch, FairQueue, Full, Request, Running, Ticket, Timestamp, Weight};

use crate::line::MOST_WAITING;
use crate::sync::Mutex;
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
#[derive(Clone, Debug)]
pub struct FairSemaphore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    clock: Clock,
    secret: Secret,
    max_waiting: usize,
}

/// Tenants are known by their hash.
type Tenant = u64;

#[derive(Debug)]
struct State {
    slots: usize,
    queue: FairQueue<Tenant, u64>, // of waiters by number
    waiters: HashMap<u64, Waiter>,
    numbers: u64, // given so far
}

/// Somebody whose request is in the queue, or has just left it.
#[derive(Debug)]
enum Waiter {
    InLine(Option<Waker>),
    Given(Running<Tenant>),
    Expired,
}

/// Why there is no slot.
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
    slots: usize,
    max_waiting: usize,
    max_waiting_each: usize,
    clock: Clock,
}

impl FairSemaphoreBuilder {
    /// The most requests that wait at once: 100 000 unless told otherwise. With 0, nobody waits.
    pub fn max_waiting(mut self, max_waiting: usize) -> Self {
        self.max_waiting = max_waiting;
        self
    }

    /// The most requests of one tenant that wait at once: as many as wait in all, unless told otherwise.
    pub fn max_waiting_each(mut self, max_waiting_each: usize) -> Self {
        self.max_waiting_each = max_waiting_each;
        self
    }

    /// Where the time comes from that deadlines are told in.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Makes the semaphore.
    pub fn build(self) -> FairSemaphore {
        let Self { slots, max_waiting, max_waiting_each, clock } = self;
        // A request that is served at once passes through the queue, so there is a place for it.
        let queue = FairQueue::new(slots, max_waiting.max(1), max_waiting_each.max(1));
        let state = Mutex::new(State { slots, queue, waiters: HashMap::new(), numbers: 0 });
        FairSemaphore { shared: Arc::new(Shared { state, clock, secret: Secret::random(), max_waiting }) }
    }
}

impl FairSemaphore {
    /// A semaphore of so many slots. With 0, everybody waits until [`set_slots`](Self::set_slots) makes some.
    pub fn new(slots: usize) -> Self {
        Self::builder(slots).build()
    }

    /// A semaphore to be told more.
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
    pub fn try_acquire<K: Hash + ?Sized>(&self, tenant: &K, cost: u64) -> Option<Slot> {
        if !self.shared.state.lock().is_free() {
            return None;
        }
        // Should somebody else come in between, the place that was taken in the queue is left again.
        let place = self.ask(tenant).cost(cost).enter().ok()?;
        match place.poll(&mut Context::from_waker(Waker::noop())) {
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
        let tenant = self.shared.secret.hash(0, tenant);
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

    /// Changes the number of slots, given how many are in use.
    pub(crate) fn set_slots_by(&self, slots: impl FnOnce(usize) -> usize) {
        self.shared.change(|state| {
            state.slots = slots(state.queue.running());
            state.queue.set_slots(state.slots);
        });
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
        self.shared.state.lock().queue.running()
    }

    /// How many requests wait.
    ///
    /// ```
    /// use tollgate::FairSemaphore;
    ///
    /// assert_eq!(FairSemaphore::new(1).waiting(), 0);
    /// ```
    pub fn waiting(&self) -> usize {
        self.shared.state.lock().queue.waiting()
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

/// One request for a slot: [`FairSemaphore::ask`].
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
    pub const fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// The share of its tenant in proportion to the others': 1 unless told otherwise.
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
    /// # Errors
    ///
    /// When too many wait already, or the deadline has passed.
    pub async fn acquire(self) -> Result<Slot, NoSlot> {
        let place = self.enter()?;
        let Some(deadline) = self.deadline else {
            return poll_fn(|context| place.poll(context)).await;
        };
        // At the deadline it is still worth starting.
        let mut too_late =
            pin!(self.semaphore.clock().sleep_until(deadline.after(tollgate_core::Nanos::new(1))));
        poll_fn(|context| match place.poll(context) {
            Poll::Pending => too_late.as_mut().poll(context).map(|()| Err(NoSlot::Expired)),
            ready => ready,
        })
        .await
    }

    /// Takes a place in the queue, and from there a slot if it is its turn at once.
    fn enter(&self) -> Result<Place<'a>, NoSlot> {
        let shared = &self.semaphore.shared;
        shared.change(|state| {
            if !state.is_free() && state.queue.waiting() >= shared.max_waiting {
                return Err(NoSlot::TooManyWaiting);
            }
            let number = state.numbers;
            state.numbers += 1;
            let Self { tenant, weight, cost, deadline, .. } = *self;
            let ticket = state.queue.push(tenant, Request { weight, cost, deadline, item: number });
            let ticket = ticket.map_err(|full| match full {
                Full::Tenant(_) => NoSlot::TooManyOfTenant,
                Full::Queue(_) => NoSlot::TooManyWaiting,
            })?;
            state.waiters.insert(number, Waiter::InLine(None));
            Ok(Place { shared, number, tenant, ticket, cost })
        })
    }
}

/// A place in the queue, left when it is dropped.
struct Place<'a> {
    shared: &'a Arc<Shared>,
    number: u64,
    tenant: Tenant,
    ticket: Ticket,
    cost: u64,
}

impl Place<'_> {
    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<Slot, NoSlot>> {
        let mut state = self.shared.state.lock();
        match state.waiters.remove(&self.number) {
            Some(Waiter::Given(running)) => {
                let shared = Arc::clone(self.shared);
                Poll::Ready(Ok(Slot { shared, running: Some(running), cost: self.cost }))
            }
            Some(Waiter::InLine(_)) => {
                let waker = context.waker().clone();
                state.waiters.insert(self.number, Waiter::InLine(Some(waker)));
                Poll::Pending
            }
            Some(Waiter::Expired) | None => Poll::Ready(Err(NoSlot::Expired)),
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let waiter = self.shared.change(|state| {
            let waiter = state.waiters.remove(&self.number)?;
            match waiter {
                Waiter::InLine(waker) => {
                    state.queue.cancel(&self.tenant, self.ticket);
                    waker
                }
                Waiter::Given(running) => {
                    state.queue.finish(running, 0);
                    None
                }
                Waiter::Expired => None,
            }
        });
        drop(waiter); // it may run the caller's code, so not under the lock
    }
}

impl State {
    /// Whether a newcomer would be served at once.
    fn is_free(&self) -> bool {
        self.queue.waiting() == 0 && self.queue.running() < self.slots
    }
}

impl Shared {
    /// Changes the queue, and gives slots to those whose turn it is then.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut woken = Vec::new();
        let result = {
            let state = &mut *self.state.lock();
            let result = change(state);
            while let Some(dispatch) = state.queue.dispatch(self.clock.now()) {
                let (number, outcome) = match dispatch {
                    Dispatch::Run(running, number) => (number, Waiter::Given(running)),
                    Dispatch::Expired(number) => (number, Waiter::Expired),
                };
                if let Some(Waiter::InLine(waker)) = state.waiters.insert(number, outcome) {
                    woken.extend(waker);
                }
            }
            result
        };
        woken.into_iter().for_each(Waker::wake);
        result
    }
}

/// A slot of a [`FairSemaphore`], given back when it is dropped.
///
/// ```
/// use tollgate::FairSemaphore;
///
/// let semaphore = FairSemaphore::new(1);
/// let slot = semaphore.try_acquire("acme", 5).unwrap();
/// slot.finish(20); // it was more work than was thought: acme's next turn comes later
/// assert_eq!(semaphore.slots_in_use(), 0);
/// ```
#[must_use = "the slot is given back at once unless it is kept"]
pub struct Slot {
    shared: Arc<Shared>,
    running: Option<Running<Tenant>>, // until it is given back
    cost: u64,
}

impl Slot {
    /// Gives the slot back, and charges its tenant what the work really was instead of what was expected.
    pub fn finish(mut self, cost: u64) {
        self.cost = cost;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            self.shared.change(|state| state.queue.finish(running, self.cost));
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slot(..)")
    }
}

#[cfg(test)]
mod tests;
