//! Weighted fair queuing over a number of slots: SFQ(D).

mod line;

use std::collections::{BTreeMap, BTreeSet};

use self::line::{Line, Waiting};
use crate::Timestamp;

/// A tenant's share in proportion to the others'. Never zero.
///
/// ```
/// assert!(tollgate_core::Weight::new(3) > Some(tollgate_core::Weight::ONE));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(u32);

impl Weight {
    /// The share of those who have not been given another.
    ///
    /// ```
    /// assert_eq!(tollgate_core::Weight::new(1), Some(tollgate_core::Weight::ONE));
    /// ```
    pub const ONE: Self = Self(1);

    /// A weight; none for 0, which would wait for ever.
    ///
    /// ```
    /// assert_eq!(tollgate_core::Weight::new(0), None);
    /// ```
    pub const fn new(weight: u32) -> Option<Self> {
        if weight == 0 { None } else { Some(Self(weight)) }
    }

    /// The number.
    ///
    /// ```
    /// assert_eq!(tollgate_core::Weight::ONE.get(), 1);
    /// ```
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// A request that wants a slot. [`FairQueue`] has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<T> {
    /// The tenant's weight, as of this request.
    pub weight: Weight,
    /// The work it is expected to be; 0 counts as 1. [`FairQueue::finish`] corrects it.
    pub cost: u64,
    /// After this moment it is no longer worth starting; at it, it still is.
    pub deadline: Option<Timestamp>,
    /// What the caller wants back when its turn comes.
    pub item: T,
}

/// A place in the queue, to leave it with. [`FairQueue::cancel`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

/// A request turned away at the door, with what it carried. [`FairQueue::push`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full<T> {
    /// Its tenant has as many waiting as one may have.
    Tenant(T),
    /// As many wait in all as may wait.
    Queue(T),
}

/// What [`FairQueue::dispatch`] took from the queue. The example is there.
#[derive(Debug)]
#[must_use = "a request taken from the queue must be answered"]
pub enum Dispatch<K, T> {
    /// A slot is its own until [`FairQueue::finish`].
    Run(Running<K>, T),
    /// Its deadline has passed. It has cost its tenant nothing.
    Expired(T),
}

/// A slot in use, given back once by [`FairQueue::finish`], which has an example.
#[derive(Debug)]
#[must_use = "the slot stays taken until the request is finished"]
pub struct Running<K> {
    tenant: K,
    weight: Weight,
    cost: u64,
}

impl<K> Running<K> {
    /// Whose slot it is. [`FairQueue::finish`] has an example.
    pub const fn tenant(&self) -> &K {
        &self.tenant
    }
}

/// Work per weight. In 128 bits it does not overflow: 2^44 requests of the largest cost fit.
type Tag = u128;

/// Tags count in 2^-20 of a unit of work, so that weights up to a million divide a cost finely.
const UNIT: u128 = 1 << 20;

/// A request counts for one unit of work at least: what is free would be served for ever.
fn share(cost: u64, weight: Weight) -> Tag {
    (u128::from(cost.max(1)) * UNIT).div_ceil(weight.0.into())
}

/// A queue that shares a number of slots between tenants by weight.
///
/// It holds no clock and wakes nobody: the caller asks for the next request when one arrives and when
/// one finishes.
///
/// Start-time fair queuing (Goyal, Vin, Cheng 1996) with D requests in service at once (Jin, Chase, Kaur
/// 2004). Every tenant has a line of its own. The request at its head has a start tag
/// `S = max(v, F)`, where F is the finish tag of the tenant's last dispatched request and v the start
/// tag of the last dispatched request of anybody; dispatching it sets `F = S + cost / weight`. The
/// smallest S goes first, ties by arrival.
///
/// - Promise: while two tenants both wait, the costs dispatched for them, divided by their weights, are
///   apart by at most the sum of their largest `cost / weight`; with D slots, completed costs by D + 1
///   times that. No slot is free while somebody waits.
/// - Tags are a quantity of work, never of time: capacity a tenant used while nobody else wanted it is
///   no debt later, and idleness is no credit. (Tags compared with a clock get both wrong.)
/// - Time: O(log tenants + log waiting) per call, also for a request that leaves from the middle of its line.
/// - Memory: one record per tenant with work, and one per tenant that was served beyond v. At most as many of the
///   latter are remembered as may wait. (Where new tenants come without end, each with the right to be served at
///   once, tenants that come again wait: bound the number of tenants.)
///
/// ```
/// use tollgate_core::{Dispatch, FairQueue, Request, Timestamp, Weight};
///
/// let mut queue = FairQueue::new(1, 10, 5);
/// for (tenant, weight) in [("small", Weight::ONE), ("large", Weight::new(2).unwrap())] {
///     for cost in [1; 3] {
///         queue.push(tenant, Request { weight, cost, deadline: None, item: tenant }).unwrap();
///     }
/// }
/// assert_eq!((queue.waiting(), queue.running(), queue.tenants()), (6, 0, 2));
/// let mut order = vec![];
/// while let Some(Dispatch::Run(running, item)) = queue.dispatch(Timestamp::from_nanos(0)) {
///     order.push(item);
///     queue.finish(running, 1);
/// }
/// assert_eq!(order, ["small", "large", "large", "small", "large", "small"]);
/// ```
#[derive(Debug)]
pub struct FairQueue<K, T> {
    slots: usize,
    max_waiting: usize,
    max_waiting_each: usize,
    running: usize,
    waiting: usize,
    arrivals: u64,
    virtual_time: Tag, // v
    tenants: BTreeMap<K, Tenant<T>>,
    heads: BTreeSet<(Tag, u64, K)>, // start tag, arrival and tenant of each request at the head of its line
    ahead: BTreeSet<(Tag, K)>,      // tenants without work that were served beyond v, by finish tag
}

#[derive(Debug)]
struct Tenant<T> {
    line: Line<T>,
    start: Tag,  // S of the request at the head; without meaning when none waits
    finish: Tag, // F
    running: usize,
}

impl<K: Ord + Clone, T> FairQueue<K, T> {
    /// A queue before `slots` slots, in which `max_waiting` may wait, `max_waiting_each` of any tenant.
    /// Every request goes through the line: where none may wait, none is served.
    ///
    /// ```
    /// use tollgate_core::{FairQueue, Full, Request, Weight};
    ///
    /// let mut queue = FairQueue::new(1, 0, 1); // a slot is free, but nobody may wait for it
    /// let request = Request { weight: Weight::ONE, cost: 1, deadline: None, item: 'a' };
    /// assert_eq!(queue.push("alice", request), Err(Full::Queue('a')));
    /// ```
    pub fn new(slots: usize, max_waiting: usize, max_waiting_each: usize) -> Self {
        Self {
            slots,
            max_waiting,
            max_waiting_each,
            running: 0,
            waiting: 0,
            arrivals: 0,
            virtual_time: 0,
            tenants: BTreeMap::new(),
            heads: BTreeSet::new(),
            ahead: BTreeSet::new(),
        }
    }

    /// Requests in line. [`FairQueue`] has an example.
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Slots in use. [`FairQueue`] has an example.
    pub const fn running(&self) -> usize {
        self.running
    }

    /// Tenants remembered: with work, or served beyond their share. [`FairQueue`] has an example.
    pub fn tenants(&self) -> usize {
        self.tenants.len()
    }

    /// Changes the number of slots. Those in use beyond it are not cut off. With 0 nothing is dispatched.
    ///
    /// ```
    /// use tollgate_core::{FairQueue, Request, Timestamp, Weight};
    ///
    /// let (mut queue, now) = (FairQueue::new(0, 10, 5), Timestamp::from_nanos(0));
    /// queue.push("alice", Request { weight: Weight::ONE, cost: 1, deadline: None, item: 'a' }).unwrap();
    /// assert!(queue.dispatch(now).is_none());
    /// queue.set_slots(1);
    /// assert!(queue.dispatch(now).is_some());
    /// ```
    pub const fn set_slots(&mut self, slots: usize) {
        self.slots = slots;
    }

    /// Changes how many of any tenant may wait. Those who wait already stay.
    ///
    /// ```
    /// use tollgate_core::{FairQueue, Full, Request, Weight};
    ///
    /// let mut queue = FairQueue::new(0, 10, 5);
    /// queue.set_max_waiting_each(1);
    /// let request = |item| Request { weight: Weight::ONE, cost: 1, deadline: None, item };
    /// assert!(queue.push("alice", request('a')).is_ok());
    /// assert_eq!(queue.push("alice", request('b')), Err(Full::Tenant('b')));
    /// ```
    pub const fn set_max_waiting_each(&mut self, max_waiting_each: usize) {
        self.max_waiting_each = max_waiting_each;
    }

    /// Puts a request at the end of its tenant's line, also one whose deadline has passed. Where both are
    /// full, the queue is named.
    ///
    /// ```
    /// use tollgate_core::{FairQueue, Full, Request, Weight};
    ///
    /// let mut queue = FairQueue::new(1, 2, 1);
    /// let request = |item| Request { weight: Weight::ONE, cost: 1, deadline: None, item };
    /// assert!(queue.push("alice", request('a')).is_ok());
    /// assert_eq!(queue.push("alice", request('b')), Err(Full::Tenant('b')));
    /// assert!(queue.push("bob", request('c')).is_ok());
    /// assert_eq!(queue.push("carol", request('d')), Err(Full::Queue('d')));
    /// ```
    pub fn push(&mut self, tenant: K, request: Request<T>) -> Result<Ticket, Full<T>> {
        if self.waiting >= self.max_waiting {
            return Err(Full::Queue(request.item));
        }
        if self.tenants.get(&tenant).map_or(0, |tenant| tenant.line.len()) >= self.max_waiting_each {
            return Err(Full::Tenant(request.item));
        }
        let arrival = self.arrivals;
        self.arrivals += 1;
        self.waiting += 1;
        self.edit(&tenant, |record, _| record.line.push_back(Waiting { arrival, request }));
        Ok(Ticket(arrival))
    }

    /// Takes a request out of its tenant's line. None if it is no longer there. It costs its tenant nothing.
    ///
    /// ```
    /// use tollgate_core::{FairQueue, Request, Weight};
    ///
    /// let mut queue = FairQueue::new(1, 10, 5);
    /// let request = Request { weight: Weight::ONE, cost: 1, deadline: None, item: 'a' };
    /// let ticket = queue.push("alice", request).unwrap();
    /// assert_eq!(queue.cancel(&"alice", ticket), Some('a'));
    /// assert_eq!(queue.cancel(&"alice", ticket), None);
    /// ```
    pub fn cancel(&mut self, tenant: &K, ticket: Ticket) -> Option<T> {
        let record = self.tenants.get_mut(tenant)?;
        let cancelled = match record.line.front().is_some_and(|head| head.arrival == ticket.0) {
            true => self.edit(tenant, |record, _| record.line.pop_front())?,
            // The head stays, so the tenant's place among the heads does too.
            false => record.line.remove(ticket.0)?,
        };
        self.waiting -= 1;
        self.rest();
        Some(cancelled.request.item)
    }

    /// Takes the next request that may run, or one whose deadline passed before its turn came. None
    /// when no slot is free or nobody waits; call it until it says so. While no slot is
    /// free, those whose deadline has passed stay in line.
    ///
    /// ```
    /// use tollgate_core::{Dispatch, FairQueue, Request, Timestamp, Weight};
    ///
    /// let (mut queue, at, weight) = (FairQueue::new(1, 10, 5), Timestamp::from_nanos, Weight::ONE);
    /// for (nanos, item) in [(4, 'a'), (5, 'b'), (4, 'c')] {
    ///     queue.push("alice", Request { weight, cost: 1, deadline: Some(at(nanos)), item }).unwrap();
    /// }
    /// assert!(matches!(queue.dispatch(at(5)), Some(Dispatch::Expired('a'))));
    /// assert!(matches!(queue.dispatch(at(5)), Some(Dispatch::Run(_, 'b'))));
    /// assert!(queue.dispatch(at(5)).is_none()); // the slot is taken
    /// ```
    pub fn dispatch(&mut self, now: Timestamp) -> Option<Dispatch<K, T>> {
        if self.running >= self.slots {
            return None;
        }
        let (start, _, tenant) = self.heads.first()?.clone();
        let (expired, request) = self.edit(&tenant, |record, virtual_time| {
            let request = record.line.pop_front().expect("a tenant with a head has a line").request;
            let expired = request.deadline.is_some_and(|deadline| deadline < now);
            if !expired {
                *virtual_time = start;
                record.finish = start + share(request.cost, request.weight);
                record.running += 1;
            }
            (expired, request)
        });
        self.waiting -= 1;
        if expired {
            self.rest();
            return Some(Dispatch::Expired(request.item));
        }
        self.running += 1;
        self.forget_caught_up();
        Some(Dispatch::Run(Running { tenant, weight: request.weight, cost: request.cost }, request.item))
    }

    /// Gives a slot back and charges the tenant what the work really was instead of what it was
    /// expected to be; never so little that it would be owed for time gone by, and 0 counts as 1. A slot
    /// of another queue is ignored where the tenant has none in this one.
    ///
    /// ```
    /// use tollgate_core::{Dispatch, FairQueue, Request, Timestamp, Weight};
    ///
    /// let mut queue = FairQueue::new(1, 10, 5);
    /// queue.push("alice", Request { weight: Weight::ONE, cost: 1, deadline: None, item: 'a' }).unwrap();
    /// let Some(Dispatch::Run(running, 'a')) = queue.dispatch(Timestamp::from_nanos(0)) else { panic!() };
    /// assert_eq!((running.tenant(), queue.running()), (&"alice", 1));
    /// queue.finish(running, 3); // it was more work than expected
    /// assert_eq!(queue.running(), 0);
    /// ```
    pub fn finish(&mut self, running: Running<K>, actual: u64) {
        let Running { tenant, weight, cost } = running;
        if self.tenants.get(&tenant).is_none_or(|record| record.running == 0) {
            return; // of another queue
        }
        self.edit(&tenant, |record, virtual_time| {
            let charged = record.finish + share(actual, weight);
            record.finish = charged.saturating_sub(share(cost, weight)).max(*virtual_time);
            record.running -= 1;
        });
        self.running -= 1;
        self.rest();
        // v may stand still for long, while newcomers come and go. Those least ahead are forgotten first,
        // and with them less than one request each.
        while self.ahead.len() > self.max_waiting {
            let (_, tenant) = self.ahead.pop_first().expect("more than none");
            self.tenants.remove(&tenant);
        }
    }

    /// Changes a tenant's record, and puts it where it then belongs: among the heads if it has work
    /// waiting, among those ahead if it was served beyond v, nowhere otherwise.
    fn edit<R>(&mut self, tenant: &K, change: impl FnOnce(&mut Tenant<T>, &mut Tag) -> R) -> R {
        let record = self.tenants.entry(tenant.clone()).or_default();
        match record.line.front() {
            Some(head) => self.heads.remove(&(record.start, head.arrival, tenant.clone())),
            None => self.ahead.remove(&(record.finish, tenant.clone())),
        };
        let result = change(record, &mut self.virtual_time);
        if let Some(head) = record.line.front() {
            // v never passes the tag of a head, so one that is already tagged keeps its tag here,
            // unless F has been corrected.
            record.start = record.finish.max(self.virtual_time);
            self.heads.insert((record.start, head.arrival, tenant.clone()));
        } else if record.running == 0 {
            if record.finish <= self.virtual_time {
                self.tenants.remove(tenant);
            } else {
                self.ahead.insert((record.finish, tenant.clone()));
            }
        }
        result
    }

    /// Forgets tenants without work whose finish tag v has reached: a newcomer has the same.
    fn forget_caught_up(&mut self) {
        while self.ahead.first().is_some_and(|(finish, _)| *finish <= self.virtual_time) {
            let (_, tenant) = self.ahead.pop_first().expect("just seen");
            self.tenants.remove(&tenant);
        }
    }

    /// When nothing waits and nothing runs, nobody is ahead of anybody.
    fn rest(&mut self) {
        if self.waiting == 0 && self.running == 0 {
            self.virtual_time = 0;
            self.tenants.clear();
            self.ahead.clear();
        }
    }
}

impl<T> Default for Tenant<T> {
    fn default() -> Self {
        Self { line: Line::default(), start: 0, finish: 0, running: 0 }
    }
}

#[cfg(test)]
mod tests;
