//! Who waits for a slot, who has one, and who is next.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tollgate_core::{Dispatch, FairQueue, Full, Request, Running, Ticket};

use super::NoSlot;
use crate::Clock;
use crate::sync::Mutex;

/// What the clones of a semaphore share.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) clock: Clock,
    max_waiting: usize,
}

/// Tenants are known by their hash.
pub(super) type Tenant = u64;

#[derive(Debug)]
pub(super) struct State {
    pub(super) slots: usize,
    max_waiting_each: usize,
    pub(super) queue: FairQueue<Tenant, u64>, // of waiters by number
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

impl Shared {
    pub(super) fn new(slots: usize, max_waiting: usize, max_waiting_each: usize, clock: Clock) -> Self {
        // A request that is served at once passes through the queue, so there is a place for it.
        let queue = FairQueue::new(slots, max_waiting.max(1), max_waiting_each.max(1));
        let state = State { slots, max_waiting_each, queue, waiters: HashMap::new(), numbers: 0 };
        Self { state: Mutex::new(state), clock, max_waiting }
    }

    /// Looks at the queue.
    pub(super) fn look<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.lock())
    }

    /// Changes the queue, and gives slots to those whose turn it is then.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
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

    /// Takes a place in the queue, and from there a slot if it is its turn at once.
    pub(super) fn enter(self: &Arc<Self>, tenant: Tenant, request: Request<()>) -> Result<Place<'_>, NoSlot> {
        self.change(|state| {
            if !state.is_free() && state.queue.waiting() >= self.max_waiting {
                return Err(NoSlot::TooManyWaiting);
            }
            if !state.is_free() && state.max_waiting_each == 0 {
                return Err(NoSlot::TooManyOfTenant);
            }
            let number = state.numbers;
            state.numbers += 1;
            let Request { weight, cost, deadline, item: () } = request;
            let ticket = state.queue.push(tenant, Request { weight, cost, deadline, item: number });
            let ticket = ticket.map_err(|full| match full {
                Full::Tenant(_) => NoSlot::TooManyOfTenant,
                Full::Queue(_) => NoSlot::TooManyWaiting,
            })?;
            state.waiters.insert(number, Waiter::InLine(None));
            Ok(Place { shared: self, number, tenant, ticket, cost })
        })
    }
}

impl State {
    /// Whether a newcomer would be served at once.
    pub(super) fn is_free(&self) -> bool {
        self.queue.waiting() == 0 && self.queue.running() < self.slots
    }

    pub(super) fn set_slots(&mut self, slots: usize) {
        self.slots = slots;
        self.queue.set_slots(slots);
    }

    pub(super) fn set_max_waiting_each(&mut self, max_waiting_each: usize) {
        self.max_waiting_each = max_waiting_each;
        self.queue.set_max_waiting_each(max_waiting_each.max(1));
    }
}

/// A place in the queue, left when it is dropped.
pub(super) struct Place<'a> {
    shared: &'a Arc<Shared>,
    number: u64,
    tenant: Tenant,
    ticket: Ticket,
    cost: u64,
}

impl Place<'_> {
    /// Ready when it has a slot, or can have none. Wakers are made and dropped outside the lock, as they are woken:
    /// they are the caller's, and may do anything.
    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<Result<Slot, NoSlot>> {
        let waker = context.waker().clone();
        let mut state = self.shared.state.lock();
        if let Some(Waiter::InLine(place)) = state.waiters.get_mut(&self.number) {
            let before = place.replace(waker);
            drop(state);
            drop(before);
            return Poll::Pending;
        }
        let waiter = state.waiters.remove(&self.number);
        drop(state);
        Poll::Ready(match waiter {
            Some(Waiter::Given(running)) => {
                let shared = Arc::clone(self.shared);
                Ok(Slot { shared, running: Some(running), cost: self.cost })
            }
            _ => Err(NoSlot::Expired),
        })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let waker = self.shared.change(|state| {
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
        drop(waker);
    }
}

/// A slot of a [`FairSemaphore`](crate::FairSemaphore), given back when it is dropped.
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
    ///
    /// ```
    /// use tollgate::FairSemaphore;
    ///
    /// let semaphore = FairSemaphore::new(1);
    /// semaphore.try_acquire("acme", 100).unwrap().finish(3); // of a hundred units that were thought, three were done
    /// ```
    pub fn finish(mut self, cost: u64) {
        self.cost = cost;
    }

    pub(super) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
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
