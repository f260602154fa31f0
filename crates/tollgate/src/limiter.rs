//! A limiter with one state for everybody.

mod cell;

use std::fmt;
use std::sync::Arc;

use tollgate_core::{Decision, PermitId, Rule, State, Status, Timestamp};

use self::cell::Cell;
use crate::line::{Lines, MOST_WAITING};
use crate::sync::{AtomicU64, Ordering};
use crate::until_ready::until_ready;
use crate::{Clock, NotReady, Permit};

/// Limits everybody together by one rule.
///
/// Clones share everything. A token or leaky bucket is decided without a lock: whoever is denied only reads a
/// word, whoever passes swaps it. Once its numbers have been changed, and with other algorithms, a decision
/// takes a lock for some ten nanoseconds.
///
/// ```
/// use tollgate::{Limiter, Rate, TokenBucket};
///
/// let limiter = Limiter::new(TokenBucket::new(Rate::per_second(5)?, 10)?);
/// let decision = limiter.check();
/// assert!(decision.is_allowed());
/// assert_eq!(decision.status.remaining, 9);
/// # Ok::<(), tollgate::RuleError>(())
/// ```
///
/// For a limit on each of many keys there is [`KeyedLimiter`](crate::KeyedLimiter).
#[derive(Clone)]
pub struct Limiter {
    sole: Arc<Sole>,
}

/// What the clones of a limiter share.
#[derive(Debug)]
pub(crate) struct Sole {
    cell: Cell,
    clock: Clock,
    line: Lines,
    permits: AtomicU64, // given so far
}

/// The one key.
const SOLE: u64 = 0;

impl Limiter {
    /// A limiter that nobody has used yet.
    ///
    /// ```
    /// use tollgate::{Limiter, Rate, TokenBucket};
    ///
    /// let limiter = Limiter::new(TokenBucket::new(Rate::per_second(5)?, 10)?);
    /// assert_eq!(limiter.remaining(), 10);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn new(rule: impl Into<Rule>) -> Self {
        Self::with_clock(rule, Clock::new())
    }

    /// A limiter that reads the time from `clock`.
    ///
    /// ```
    /// use tollgate::{Clock, Limiter, Nanos, Rate, TokenBucket};
    ///
    /// let clock = Clock::manual();
    /// let limiter = Limiter::with_clock(TokenBucket::new(Rate::per_second(1)?, 1)?, clock.clone());
    /// assert!(limiter.check().is_allowed());
    /// assert!(!limiter.check().is_allowed());
    /// clock.advance(Nanos::new(1_000_000_000));
    /// assert!(limiter.check().is_allowed());
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn with_clock(rule: impl Into<Rule>, clock: Clock) -> Self {
        let cell = Cell::new(clock.align(rule.into()));
        let line = Lines::new(MOST_WAITING);
        Self { sole: Arc::new(Sole { cell, clock, line, permits: AtomicU64::new(0) }) }
    }

    /// Decides a request of cost 1, now.
    ///
    /// A concurrency limit is only looked at: to hold a place in it, [`acquire`](Self::acquire) a permit.
    ///
    /// ```
    /// use tollgate::{Limiter, Rate, TokenBucket};
    ///
    /// let limiter = Limiter::new(TokenBucket::new(Rate::per_minute(1)?, 1)?);
    /// assert!(limiter.check().is_allowed());
    /// let wait = limiter.check().outcome.retry_after().unwrap();
    /// assert_eq!(wait.as_secs_ceil(), 60); // what a Retry-After header would say
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    #[inline]
    pub fn check(&self) -> Decision {
        self.check_n(1)
    }

    /// Decides a request of cost 1 at a time that the caller read from this limiter's [`clock`](Self::clock). Whoever
    /// keeps the time himself moves a [manual clock](Clock::manual).
    ///
    /// A time before that of an earlier request is taken for late, never for early: it may deny what would
    /// have passed, and gains nothing then or later.
    ///
    /// ```
    /// use tollgate::{Limiter, Rate, Timestamp, TokenBucket};
    ///
    /// let limiter = Limiter::new(TokenBucket::new(Rate::per_second(1)?, 1)?);
    /// assert!(limiter.check_at(Timestamp::from_nanos(0)).is_allowed());
    /// assert!(!limiter.check_at(Timestamp::from_nanos(999_999_999)).is_allowed());
    /// assert!(limiter.check_at(Timestamp::from_nanos(1_000_000_000)).is_allowed());
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    #[inline]
    pub fn check_at(&self, now: Timestamp) -> Decision {
        self.check_n_at(1, now)
    }

    /// Decides a request of any cost, now: all of it passes or none.
    ///
    /// Cost 0 always passes and charges nothing. A cost that the limit could never hold is denied with
    /// [`Retry::Never`](crate::Retry::Never).
    ///
    /// ```
    /// use tollgate::{Limiter, Outcome, Rate, TokenBucket};
    ///
    /// let limiter = Limiter::new(TokenBucket::new(Rate::per_second(5)?, 10)?);
    /// assert_eq!(limiter.check_n(7).status.remaining, 3);
    /// assert!(!limiter.check_n(4).is_allowed());
    /// assert_eq!(limiter.check_n(0).status.remaining, 3); // the denied request cost nothing
    /// assert_eq!(limiter.check_n(11).outcome, Outcome::NEVER);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    #[inline]
    pub fn check_n(&self, cost: u64) -> Decision {
        self.check_n_at(cost, self.sole.clock.now())
    }

    /// Decides a request of any cost at a given time: [`check_n`](Self::check_n) and
    /// [`check_at`](Self::check_at) in one.
    ///
    /// ```
    /// use tollgate::{Limiter, Rate, Timestamp, TokenBucket};
    ///
    /// let limiter = Limiter::new(TokenBucket::new(Rate::per_second(5)?, 10)?);
    /// assert_eq!(limiter.check_n_at(10, Timestamp::from_nanos(0)).status.remaining, 0);
    /// assert_eq!(limiter.check_n_at(1, Timestamp::from_nanos(400_000_000)).status.remaining, 1);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    #[inline]
    pub fn check_n_at(&self, cost: u64, now: Timestamp) -> Decision {
        self.sole.cell.check(cost, None, now)
    }

    /// Takes a permit of a concurrency limit, which is given back when it is dropped. Other rules are charged
    /// as by [`check`](Self::check), and keep what they charged; what they would hold back is denied for as long.
    ///
    /// ```
    /// use tollgate::{Concurrency, Limiter};
    ///
    /// let limiter = Limiter::new(Concurrency::new(1, None)?);
    /// let permit = limiter.acquire().unwrap();
    /// assert!(limiter.acquire().is_err());
    /// drop(permit);
    /// assert!(limiter.acquire().is_ok());
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The decision, when it is denied.
    pub fn acquire(&self) -> Result<Permit, Decision> {
        self.acquire_n(1)
    }

    /// Takes a permit that stands for several places. One for 0 places is always given.
    ///
    /// ```
    /// use tollgate::{Concurrency, Limiter};
    ///
    /// let limiter = Limiter::new(Concurrency::new(10, None)?);
    /// let permit = limiter.acquire_n(7).unwrap();
    /// assert!(limiter.acquire_n(4).is_err());
    /// assert_eq!(limiter.remaining(), 3);
    /// # drop(permit);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The decision, when it is denied.
    pub fn acquire_n(&self, cost: u64) -> Result<Permit, Decision> {
        let id = self.sole.next_permit();
        let decision = self.sole.cell.check_at_once(cost, Some(id), self.sole.clock.now());
        if decision.is_allowed() { Ok(Permit::sole(Arc::clone(&self.sole), id)) } else { Err(decision) }
    }

    /// Waits until a request of cost 1 passes, on any runtime or none, and tells how the limiter stands then.
    ///
    /// Those who wait are served in the order they came, up to 100 000 at once; [`check`](Self::check), which does
    /// not wait, takes what is there, so that beside many of those one may wait for long. A future that is kept and
    /// not polled holds up those behind it. Dropping the future leaves the line; nothing has been charged then. A request
    /// that [`check`](Self::check) would let pass after a delay waits as long. A concurrency limit is only looked
    /// at: for a place in it there is [`until_acquired`](Self::until_acquired).
    ///
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use tollgate::{Limiter, Rate, TokenBucket};
    ///
    /// let limiter = Limiter::new(TokenBucket::new(Rate::per_second(100)?, 1)?);
    /// limiter.until_ready().await?;
    /// limiter.until_ready().await?; // ten milliseconds later
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Where waiting is of no use: [`NotReady`].
    pub async fn until_ready(&self) -> Result<Status, NotReady> {
        self.until_n_ready(1).await
    }

    /// Waits until a request of any cost passes, as [`until_ready`](Self::until_ready) does. Cost 0 passes when
    /// it has become first in line.
    ///
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use tollgate::{Limiter, NotReady, Rate, TokenBucket};
    ///
    /// let limiter = Limiter::new(TokenBucket::new(Rate::per_second(1000)?, 10)?);
    /// limiter.until_n_ready(10).await?;
    /// limiter.until_n_ready(10).await?; // ten milliseconds later
    /// assert_eq!(limiter.until_n_ready(11).await, Err(NotReady::Never));
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Where waiting is of no use: [`NotReady`].
    pub async fn until_n_ready(&self, cost: u64) -> Result<Status, NotReady> {
        self.sole.until_ready(cost, None).await
    }

    /// Waits until it has a permit of a concurrency limit, which is given back when it is dropped. In order and to
    /// be dropped while it waits, as [`until_ready`](Self::until_ready) is.
    ///
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use tollgate::{Concurrency, Limiter};
    ///
    /// let limiter = Limiter::new(Concurrency::new(1, None)?);
    /// let permit = limiter.until_acquired().await?;
    /// let next = async { limiter.until_acquired().await.is_ok() };
    /// assert!(futures_lite::future::zip(next, async { drop(permit) }).await.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Where waiting is of no use: [`NotReady`].
    pub async fn until_acquired(&self) -> Result<Permit, NotReady> {
        let id = self.sole.next_permit();
        self.sole.until_ready(1, Some(id)).await?;
        Ok(Permit::sole(Arc::clone(&self.sole), id))
    }

    /// What remains, and when the limiter is as new. Charges nothing.
    ///
    /// ```
    /// use tollgate::{Clock, Limiter, Rate, TokenBucket};
    ///
    /// let limiter = Limiter::with_clock(TokenBucket::new(Rate::per_second(5)?, 10)?, Clock::manual());
    /// let _ = limiter.check();
    /// assert_eq!(limiter.peek().remaining, 9);
    /// assert_eq!(limiter.peek().reset_after.get(), 200_000_000);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn peek(&self) -> Status {
        let now = self.sole.clock.now();
        self.sole.cell.edit(|rule, state| rule.status(state, now))
    }

    /// How many requests of cost 1 would pass now. Rounded down; charges nothing.
    ///
    /// ```
    /// use tollgate::{FixedWindow, Align, Limiter};
    /// use std::time::Duration;
    ///
    /// let limiter = Limiter::new(FixedWindow::new(100, Duration::from_secs(60), Align::First)?);
    /// let _ = limiter.check_n(30);
    /// assert_eq!(limiter.remaining(), 70);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn remaining(&self) -> u64 {
        self.peek().remaining
    }

    /// Gives back `cost` of what was charged at `charged`, because the work failed or took less. Returns how
    /// much that is: 0 where time has made good for it already.
    ///
    /// The caller promises that there was such a charge, and gives it back once only. See
    /// [`Algorithm::refund`](crate::Algorithm::refund) for what each algorithm does: a leaky bucket, whose
    /// places have their times, gives nothing back.
    ///
    /// ```
    /// use tollgate::{Limiter, Rate, TokenBucket};
    ///
    /// let limiter = Limiter::new(TokenBucket::new(Rate::per_hour(1)?, 10)?);
    /// let charged = limiter.clock().now();
    /// assert_eq!(limiter.check_n_at(8, charged).status.remaining, 2);
    /// assert_eq!(limiter.refund(3, charged), 3);
    /// assert_eq!(limiter.remaining(), 5);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn refund(&self, cost: u64, charged: Timestamp) -> u64 {
        let now = self.sole.clock.now();
        let given = self.sole.cell.edit(|rule, state| rule.refund(state, cost, charged, now));
        self.sole.line.call(SOLE);
        given
    }

    /// Makes the limiter as new. Permits that are held stay usable and no longer count.
    ///
    /// ```
    /// use tollgate::{Limiter, Rate, TokenBucket};
    ///
    /// let limiter = Limiter::new(TokenBucket::new(Rate::per_hour(1)?, 1)?);
    /// assert!(limiter.check().is_allowed());
    /// limiter.reset();
    /// assert!(limiter.check().is_allowed());
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn reset(&self) {
        self.sole.cell.edit(|_, state| *state = State::Unused);
        self.sole.line.call(SOLE);
    }

    /// Changes the rule for all clones. The limiter keeps its tokens, or its count: nobody gets a fresh burst.
    /// Under another algorithm it starts afresh.
    ///
    /// ```
    /// use tollgate::{Limiter, Rate, TokenBucket};
    ///
    /// let limiter = Limiter::new(TokenBucket::new(Rate::per_hour(1)?, 10)?);
    /// let _ = limiter.check_n(8);
    /// limiter.set_rule(TokenBucket::new(Rate::per_hour(60)?, 100)?);
    /// assert_eq!(limiter.remaining(), 2); // of 100 now, which it gets to at 60 an hour
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn set_rule(&self, rule: impl Into<Rule>) {
        let Sole { cell, clock, .. } = &*self.sole;
        cell.set_rule(clock.align(rule.into()), clock.now());
        self.sole.line.call(SOLE);
    }

    /// The rule in force.
    ///
    /// ```
    /// use tollgate::{Limiter, Rate, TokenBucket};
    ///
    /// let limiter = Limiter::new(TokenBucket::new(Rate::per_second(5)?, 10)?);
    /// assert_eq!(limiter.rule().capacity(), 10);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn rule(&self) -> Rule {
        self.sole.cell.edit(|rule, _| *rule)
    }

    /// Where the time comes from.
    ///
    /// ```
    /// use tollgate::{Limiter, Rate, TokenBucket};
    ///
    /// let limiter = Limiter::new(TokenBucket::new(Rate::per_second(5)?, 10)?);
    /// let now = limiter.clock().now(); // read once for several requests
    /// assert!((0..10).all(|_| limiter.check_at(now).is_allowed()));
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn clock(&self) -> &Clock {
        &self.sole.clock
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("rule", &self.rule())
            .field("status", &self.peek())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
impl Limiter {
    pub(crate) fn waiting(&self) -> usize {
        self.sole.line.waiting()
    }
}

impl Sole {
    /// Takes a permit back. False if it was not held any more.
    pub(crate) fn release(&self, id: PermitId) -> bool {
        let now = self.clock.now();
        let was_held = self.cell.edit(|rule, state| match (rule, state) {
            (Rule::Concurrency(rule), State::Permits(permits)) => rule.release(permits, id, now),
            _ => false, // it has another algorithm by now
        });
        self.line.call(SOLE);
        was_held
    }

    /// An id that no permit has had.
    fn next_permit(&self) -> PermitId {
        PermitId(self.permits.fetch_add(1, Ordering::Relaxed))
    }

    async fn until_ready(&self, cost: u64, permit: Option<PermitId>) -> Result<Status, NotReady> {
        let check = |now| self.cell.check_at_once(cost, permit, now);
        until_ready(&self.line, &self.clock, SOLE, check).await
    }
}

#[cfg(test)]
mod tests;
