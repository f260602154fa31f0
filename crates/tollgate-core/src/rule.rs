//! Any rule, for those who choose it at run time.
#![deny(clippy::wildcard_enum_match_arm, reason = "a new algorithm must be handled in every match")]

mod pace;
mod state_view;

use std::collections::VecDeque;
use std::time::Duration;

pub use self::state_view::StateView;
use crate::bucket::Holds as _;
use crate::{
    Algorithm, BurstCredits, Concurrency, Counts, Credits, Decision, FixedWindow, LeakyBucket, Log, MaxWait,
    Nanos, Outcome, PermitId, Permits, RuleError, SlidingCounter, SlidingLog, Status, Tat, Timestamp,
    TokenBucket, Waiting, Window,
};

/// A rule of any algorithm.
///
/// ```
/// use tollgate_core::{PermitId, Rate, Rule, State, Timestamp, TokenBucket};
///
/// let rule = Rule::from(TokenBucket::new(Rate::per_second(5)?, 10)?);
/// let (mut key, at) = (State::default(), |ms: u64| Timestamp::from_nanos(ms * 1_000_000));
/// assert_eq!(rule.capacity(), 10);
/// rule.spend(&mut key, PermitId(0), 3, at(0));
/// assert_eq!(rule.status(&key, at(0)).remaining, 7);
/// assert_eq!([599, 600].map(|ms| rule.is_unused(&key, at(ms))), [false, true]);
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
///
/// A new algorithm adds a variant. That is a breaking change on purpose: the compiler then reports every `match` that does not
/// handle the new algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// See [`TokenBucket`].
    TokenBucket(TokenBucket),
    /// See [`LeakyBucket`].
    LeakyBucket(LeakyBucket),
    /// See [`MaxWait`].
    TokenBucketMaxWait(MaxWait<TokenBucket>),
    /// See [`MaxWait`].
    LeakyBucketMaxWait(MaxWait<LeakyBucket>),
    /// See [`FixedWindow`].
    FixedWindow(FixedWindow),
    /// See [`SlidingLog`].
    SlidingLog(SlidingLog),
    /// See [`SlidingCounter`].
    SlidingCounter(SlidingCounter),
    /// See [`BurstCredits`].
    BurstCredits(BurstCredits),
    /// See [`Concurrency`].
    Concurrency(Concurrency),
}

/// The state of a key under a rule of any algorithm: 48 bytes, and what it keeps on the heap. Where all keys
/// share an algorithm, its own kind of state is smaller.
///
/// Under a rule of another algorithm than the one that wrote it, a state counts as unused.
///
/// ```
/// use tollgate_core::{Concurrency, PermitId, Rate, Rule, State, Timestamp, TokenBucket};
///
/// let (mut key, now) = (State::default(), Timestamp::from_nanos(0));
/// Rule::from(TokenBucket::new(Rate::per_second(5)?, 10)?).spend(&mut key, PermitId(0), 10, now);
/// assert_eq!(Rule::from(Concurrency::new(3, None)?).status(&key, now).remaining, 3);
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Under any rule.
    #[default]
    Unused,
    /// Under a token bucket or a leaky bucket.
    Bucket(Tat),
    /// Under a bucket with a `max_wait`.
    Waiting(Waiting),
    /// Under a fixed window.
    Window(Window),
    /// Under a sliding log.
    Log(Log),
    /// Under a sliding counter.
    Counts(Counts),
    /// Under burst credits.
    Credits(Credits),
    /// Under a concurrency limit.
    Permits(Permits),
}

impl State {
    /// The bytes it keeps on the heap, beside its own size: what is allocated, whether in use or not. What the
    /// allocator adds to each piece is not counted. Zero for an unused key, a bucket, a fixed window, burst
    /// credits, and a sliding counter of one sub-window.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{PermitId, Rule, SlidingLog, State, Timestamp};
    ///
    /// let rule = Rule::from(SlidingLog::new(100, Duration::from_secs(60))?);
    /// let mut key = State::default();
    /// assert_eq!(key.heap_bytes(), 0);
    /// rule.spend(&mut key, PermitId(0), 3, Timestamp::from_nanos(0));
    /// assert!(key.heap_bytes() >= 3 * 8); // a log keeps 8 bytes a unit
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Unused | Self::Bucket(_) | Self::Window(_) | Self::Credits(_) => 0,
            Self::Waiting(waiting) => waiting.heap_bytes(),
            Self::Log(log) => log.heap_bytes(),
            Self::Counts(counts) => counts.heap_bytes(),
            Self::Permits(permits) => permits.heap_bytes(),
        }
    }
}

/// The same expression for the rule inside each variant; for concurrency another, where it differs.
macro_rules! each {
    ($rule:expr, $r:ident => $body:expr) => { each!($rule, $r => $body, $r => $body) };
    ($rule:expr, $r:ident => $body:expr, $c:ident => $concurrency:expr) => {
        match $rule {
            Rule::TokenBucket($r) => $body,
            Rule::LeakyBucket($r) => $body,
            Rule::TokenBucketMaxWait($r) => $body,
            Rule::LeakyBucketMaxWait($r) => $body,
            Rule::FixedWindow($r) => $body,
            Rule::SlidingLog($r) => $body,
            Rule::SlidingCounter($r) => $body,
            Rule::BurstCredits($r) => $body,
            Rule::Concurrency($c) => $concurrency,
        }
    };
}

impl Rule {
    /// The most that can pass at once. Never 0. [`Rule`] has an example.
    #[inline]
    pub fn capacity(&self) -> u64 {
        each!(self, rule => rule.capacity())
    }

    /// The time in which as much as its capacity can be had: a window, or what it takes to get from an empty bucket to a
    /// full one, rounded up. None for a concurrency limit, where it depends on the holders.
    ///
    /// ```
    /// use tollgate_core::{Concurrency, Rate, Rule, TokenBucket};
    ///
    /// let bucket = Rule::from(TokenBucket::new(Rate::per_second(3)?, 10)?);
    /// assert_eq!(bucket.period().map(|period| period.as_secs_ceil()), Some(4)); // 10 tokens at 3 a second
    /// assert_eq!(Rule::from(Concurrency::new(10, None)?).period(), None);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn period(&self) -> Option<Nanos> {
        match self {
            Self::FixedWindow(rule) => Some(rule.window()),
            Self::SlidingLog(rule) => Some(rule.window()),
            Self::SlidingCounter(rule) => Some(rule.window()),
            Self::Concurrency(_) => None,
            Self::TokenBucket(_)
            | Self::LeakyBucket(_)
            | Self::TokenBucketMaxWait(_)
            | Self::LeakyBucketMaxWait(_)
            | Self::BurstCredits(_) => {
                let (mut key, start) = (State::default(), Timestamp::default());
                self.spend(&mut key, PermitId(0), self.capacity(), start);
                Some(self.status(&key, start).reset_after)
            }
        }
    }

    /// Tells windows that begin on the minute, the hour, the day what time it is at the clock's zero, since the Unix
    /// epoch. Other rules are as they were.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Align, FixedWindow, PermitId, Rule, State, Timestamp};
    ///
    /// let a_minute = Rule::from(FixedWindow::new(10, Duration::from_secs(60), Align::Epoch)?);
    /// let rule = a_minute.started_at(Duration::from_secs(1_000_000_015)); // 55 seconds into a minute
    /// let decision = rule.decide(&mut State::default(), PermitId(0), 1, Timestamp::from_nanos(0));
    /// assert_eq!(decision.status.reset_after.get(), 5_000_000_000);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[must_use]
    pub fn started_at(self, since_epoch: Duration) -> Self {
        match self {
            Self::FixedWindow(rule) => rule.started_at(since_epoch).into(),
            Self::SlidingCounter(rule) => rule.started_at(since_epoch).into(),
            Self::TokenBucket(_)
            | Self::LeakyBucket(_)
            | Self::TokenBucketMaxWait(_)
            | Self::LeakyBucketMaxWait(_)
            | Self::SlidingLog(_)
            | Self::BurstCredits(_)
            | Self::Concurrency(_) => self,
        }
    }

    /// As [`Algorithm::require`], also for a concurrency limit.
    ///
    /// ```
    /// use tollgate_core::{Concurrency, Rule};
    ///
    /// let rule = Rule::from(Concurrency::new(3, None)?);
    /// assert!(rule.require(3).is_ok() && rule.require(4).is_err());
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn require(&self, cost: u64) -> Result<(), RuleError> {
        each!(self, rule => rule.require(cost))
    }

    /// As [`Algorithm::test`].
    ///
    /// ```
    /// use tollgate_core::{Outcome, Rate, Rule, State, Timestamp, TokenBucket};
    ///
    /// let rule = Rule::from(TokenBucket::new(Rate::per_second(5)?, 10)?);
    /// let outcomes = [0, 10, 11].map(|cost| rule.test(&State::Unused, cost, Timestamp::from_nanos(0)));
    /// assert_eq!(outcomes, [Outcome::ALLOW, Outcome::ALLOW, Outcome::NEVER]);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[inline]
    pub fn test(&self, state: &State, cost: u64, now: Timestamp) -> Outcome {
        each!(self, rule => read(state, |state| rule.test(state, cost, now)))
    }

    /// As [`Algorithm::spend`]. A concurrency limit gives the permit `id`; the others ignore it.
    ///
    /// ```
    /// use tollgate_core::{Concurrency, PermitId, Rule, State, Timestamp};
    ///
    /// let (limit, now) = (Concurrency::new(3, None)?, Timestamp::from_nanos(0));
    /// let mut key = State::default();
    /// Rule::from(limit).spend(&mut key, PermitId(7), 1, now);
    /// let State::Permits(permits) = &mut key else { panic!("of another kind") };
    /// assert!(limit.release(permits, PermitId(7), now));
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[inline]
    pub fn spend(&self, state: &mut State, id: PermitId, cost: u64, now: Timestamp) {
        each!(self,
            rule => rule.spend(own(state), cost, now),
            concurrency => concurrency.acquire(own(state), id, cost, now))
    }

    /// [`Algorithm::test_in_full`]. For a concurrency limit, this is the same as [`test`](Self::test).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Align, FixedWindow, Rule, State, Timestamp};
    ///
    /// let rule = Rule::from(FixedWindow::new(1000, Duration::from_secs(3600), Align::Epoch)?);
    /// let (mut key, now) = (State::default(), Timestamp::from_nanos(0));
    /// let passes = [0, 900, 0, 300, 0].map(|cost| {
    ///     let outcome = rule.test_in_full(&key, cost, now);
    ///     rule.spend_in_full(&mut key, cost, now);
    ///     outcome.is_allowed()
    /// });
    /// assert_eq!(passes, [true, true, true, false, false]);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn test_in_full(&self, state: &State, cost: u64, now: Timestamp) -> Outcome {
        each!(self,
            rule => read(state, |state| rule.test_in_full(state, cost, now)),
            concurrency => read(state, |state| concurrency.test(state, cost, now)))
    }

    /// [`Algorithm::spend_in_full`]. A concurrency limit is charged nothing. [`test_in_full`](Self::test_in_full) has an
    /// example.
    pub fn spend_in_full(&self, state: &mut State, cost: u64, now: Timestamp) {
        each!(self, rule => rule.spend_in_full(own(state), cost, now), _concurrency => ())
    }

    /// The most bytes on the heap that charging `cost` may add to what the state has there
    /// ([`State::heap_bytes`]): for stores that must know before they let a request pass. 0 where all
    /// is kept in place, and where there is room already.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Rule, SlidingLog, State};
    ///
    /// let rule = Rule::from(SlidingLog::new(100, Duration::from_secs(60))?);
    /// assert_eq!([0, 3, 100].map(|cost| rule.heap_growth(&State::Unused, cost)), [0, 24, 800]);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn heap_growth(&self, state: &State, cost: u64) -> usize {
        match self {
            Self::SlidingLog(rule) => read(state, |log: &Log| rule.heap_growth(log, cost)),
            Self::SlidingCounter(rule) => read(state, |counts| rule.heap_growth(counts)),
            Self::TokenBucketMaxWait(_) | Self::LeakyBucketMaxWait(_) => read(state, Waiting::heap_growth),
            Self::Concurrency(_) => read(state, Permits::heap_growth),
            Self::TokenBucket(_) | Self::LeakyBucket(_) | Self::FixedWindow(_) | Self::BurstCredits(_) => 0,
        }
    }

    /// [`heap_growth`](Self::heap_growth) of a charge in full, which may take a log beyond its limit.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Rule, SlidingLog, State};
    ///
    /// let rule = Rule::from(SlidingLog::new(10, Duration::from_secs(60))?);
    /// assert_eq!(rule.heap_growth_in_full(&State::default(), 99), 2 * 10 * 8);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn heap_growth_in_full(&self, state: &State, cost: u64) -> usize {
        match self {
            Self::SlidingLog(rule) => read(state, |log: &Log| rule.heap_growth_in_full(log, cost)),
            Self::TokenBucketMaxWait(_) | Self::LeakyBucketMaxWait(_) | Self::Concurrency(_) => 0,
            Self::TokenBucket(_)
            | Self::LeakyBucket(_)
            | Self::FixedWindow(_)
            | Self::SlidingCounter(_)
            | Self::BurstCredits(_) => self.heap_growth(state, cost),
        }
    }

    /// As [`Algorithm::decide`]. A concurrency limit gives the permit `id`; the others ignore it.
    ///
    /// ```
    /// use tollgate_core::{Concurrency, Outcome, PermitId, Retry, Rule, State, Timestamp};
    ///
    /// let (rule, now) = (Rule::from(Concurrency::new(1, None)?), Timestamp::from_nanos(0));
    /// let mut key = State::default();
    /// let outcomes = [7, 8].map(|id| rule.decide(&mut key, PermitId(id), 1, now).outcome);
    /// assert_eq!(outcomes, [Outcome::ALLOW, Outcome::Deny { retry: Retry::Unknown }]);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn decide(&self, state: &mut State, id: PermitId, cost: u64, now: Timestamp) -> Decision {
        let outcome = self.test(state, cost, now);
        if outcome.is_allowed() || self.counts_denied() {
            self.spend(state, id, cost, now);
        }
        Decision { outcome, status: self.status(state, now) }
    }

    /// As [`Algorithm::counts_denied`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Align, FixedWindow, Rule};
    ///
    /// let window = FixedWindow::new(10, Duration::from_secs(60), Align::Epoch)?;
    /// let counts = [window, window.counting_denied()].map(|window| Rule::from(window).counts_denied());
    /// assert_eq!(counts, [false, true]);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[inline]
    pub fn counts_denied(&self) -> bool {
        each!(self, rule => rule.counts_denied(), _concurrency => false)
    }

    /// As [`Algorithm::refund`]. A concurrency limit gives nothing back: a permit is released by its id
    /// ([`Concurrency::release`]). Nor does a key whose state another algorithm has written.
    ///
    /// ```
    /// use tollgate_core::{Concurrency, PermitId, Rate, Rule, State, Timestamp, TokenBucket};
    ///
    /// let (bucket, now) = (TokenBucket::new(Rate::per_second(5)?, 10)?, Timestamp::from_nanos(0));
    /// for (rule, given) in [(Rule::from(bucket), 2), (Rule::from(Concurrency::new(3, None)?), 0)] {
    ///     let mut key = State::default();
    ///     rule.spend(&mut key, PermitId(7), 2, now);
    ///     assert_eq!(rule.refund(&mut key, 2, now, now), given);
    /// }
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn refund(&self, state: &mut State, cost: u64, charged: Timestamp, now: Timestamp) -> u64 {
        each!(self,
            rule => Kind::find_mut(state).map_or(0, |state| rule.refund(state, cost, charged, now)),
            _concurrency => 0)
    }

    /// Gives up a place in a queue whose turn has not come: of a leaky bucket, or of a bucket with a
    /// [`MaxWait`](crate::MaxWait). Returns the time by which all who wait behind it go sooner. To move them is the caller's part:
    /// where that cannot be done, a place is not given up, for a newcomer would get a turn that somebody has already.
    ///
    /// ```
    /// use tollgate_core::{LeakyBucket, PermitId, Rate, Rule, State, Timestamp};
    ///
    /// let rule = Rule::from(LeakyBucket::new(Rate::per_second(10)?, 9)?);
    /// let (mut key, now) = (State::default(), Timestamp::from_nanos(0));
    /// let mut delay = || rule.decide(&mut key, PermitId(0), 1, now).outcome.delay().get() / 1_000_000;
    /// assert_eq!([delay(), delay(), delay()], [0, 100, 200]);
    /// assert_eq!(rule.withdraw(&mut key, 1, now).get(), 100_000_000); // the second leaves; the third goes after 100 ms
    /// assert_eq!(rule.decide(&mut key, PermitId(0), 1, now).outcome.delay().get(), 200_000_000);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn withdraw(&self, state: &mut State, cost: u64, now: Timestamp) -> Nanos {
        match (self, state) {
            (Self::LeakyBucket(rule), State::Bucket(tat)) => rule.withdraw(tat, cost, now),
            (Self::TokenBucketMaxWait(rule), State::Waiting(state)) => rule.withdraw(state, cost, now),
            (Self::LeakyBucketMaxWait(rule), State::Waiting(state)) => rule.withdraw(state, cost, now),
            // The state of an unused key, or that of another algorithm.
            (Self::LeakyBucket(_) | Self::TokenBucketMaxWait(_) | Self::LeakyBucketMaxWait(_), _) => {
                Nanos::ZERO
            }
            // These have no queue.
            (
                Self::TokenBucket(_)
                | Self::FixedWindow(_)
                | Self::SlidingLog(_)
                | Self::SlidingCounter(_)
                | Self::BurstCredits(_)
                | Self::Concurrency(_),
                _,
            ) => Nanos::ZERO,
        }
    }

    /// All who wait in a queue go later by a time than they were told, since it was not let go in time: the last of them now goes
    /// at `last_turn`. Whoever comes next comes behind them, and the queue is as full as they make it.
    ///
    /// ```
    /// use tollgate_core::{LeakyBucket, Nanos, PermitId, Rate, Rule, State, Timestamp};
    ///
    /// let rule = Rule::from(LeakyBucket::new(Rate::per_second(10)?, 4)?);
    /// let (mut key, at) = (State::default(), |ms: u64| Timestamp::from_nanos(ms * 1_000_000));
    /// let mut decide = |ms| rule.decide(&mut key, PermitId(0), 1, at(ms)).is_allowed();
    /// assert_eq!([0, 0, 0, 0, 0].map(&mut decide), [true, true, true, true, false]); // until 300 ms
    /// rule.postpone(&mut key, Nanos::new(200_000_000), at(500), at(200)); // nobody has gone since
    /// let allowed = [200, 299, 300].map(|ms| rule.decide(&mut key, PermitId(0), 1, at(ms)).is_allowed());
    /// assert_eq!(allowed, [false, false, true]); // three wait, and one place is that of whoever goes
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn postpone(&self, state: &mut State, by: Nanos, last_turn: Timestamp, now: Timestamp) {
        match (self, state) {
            (Self::LeakyBucket(rule), State::Bucket(tat)) => rule.keep_behind(tat, last_turn, now),
            (Self::TokenBucketMaxWait(rule), State::Waiting(state)) => {
                rule.postpone(state, by, last_turn, now);
            }
            (Self::LeakyBucketMaxWait(rule), State::Waiting(state)) => {
                rule.postpone(state, by, last_turn, now);
            }
            // The state of an unused key, or that of another algorithm.
            (Self::LeakyBucket(_) | Self::TokenBucketMaxWait(_) | Self::LeakyBucketMaxWait(_), _) => {}
            // These have no queue.
            (
                Self::TokenBucket(_)
                | Self::FixedWindow(_)
                | Self::SlidingLog(_)
                | Self::SlidingCounter(_)
                | Self::BurstCredits(_)
                | Self::Concurrency(_),
                _,
            ) => {}
        }
    }

    /// As [`Algorithm::status`]. [`Rule`] has an example.
    #[inline]
    pub fn status(&self, state: &State, now: Timestamp) -> Status {
        each!(self, rule => read(state, |state| rule.status(state, now)))
    }

    /// As [`Algorithm::is_unused`]. [`Rule`] has an example.
    #[inline]
    pub fn is_unused(&self, state: &State, now: Timestamp) -> bool {
        each!(self, rule => read(state, |state| rule.is_unused(state, now)))
    }

    /// As [`Algorithm::convert`], between rules of any algorithm. A key starts afresh where the
    /// algorithm changed; a `max_wait` given to a bucket, or taken from it, is no such change, and a sliding log and a sliding
    /// counter take over each other's counts.
    ///
    /// ```
    /// use tollgate_core::{LeakyBucket, PermitId, Rate, Rule, State, Timestamp, TokenBucket};
    ///
    /// let (rate, now) = (Rate::per_second(5)?, Timestamp::from_nanos(0));
    /// let old = Rule::from(TokenBucket::new(rate, 10)?);
    /// let (bucket, queue) = (TokenBucket::new(rate, 20)?, LeakyBucket::new(rate, 20)?);
    /// for (new, left) in [(Rule::from(bucket), 6), (Rule::from(queue), 20)] {
    ///     let mut key = State::default();
    ///     old.spend(&mut key, PermitId(0), 4, now);
    ///     new.convert(&old, &mut key, now);
    ///     assert_eq!(new.status(&key, now).remaining, left);
    /// }
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn convert(&self, old: &Self, state: &mut State, now: Timestamp) {
        match (self, old) {
            (Self::TokenBucket(new), Self::TokenBucket(old)) => new.convert(old, own(state), now),
            (Self::LeakyBucket(new), Self::LeakyBucket(old)) => new.convert(old, own(state), now),
            (Self::TokenBucketMaxWait(new), Self::TokenBucketMaxWait(old)) => {
                new.convert(old, own(state), now)
            }
            (Self::LeakyBucketMaxWait(new), Self::LeakyBucketMaxWait(old)) => {
                new.convert(old, own(state), now)
            }
            (Self::TokenBucketMaxWait(new), Self::TokenBucket(old)) => {
                *state = State::Waiting(new.begin(old, *own(state), now));
            }
            (Self::LeakyBucketMaxWait(new), Self::LeakyBucket(old)) => {
                *state = State::Waiting(new.begin(old, *own(state), now));
            }
            (Self::TokenBucket(new), Self::TokenBucketMaxWait(old)) => {
                *state = State::Bucket(old.end(new, own(state), now));
            }
            (Self::LeakyBucket(new), Self::LeakyBucketMaxWait(old)) => {
                *state = State::Bucket(old.end(new, own(state), now));
            }
            (Self::FixedWindow(new), Self::FixedWindow(old)) => new.convert(old, own(state), now),
            (Self::SlidingLog(new), Self::SlidingLog(old)) => new.convert(old, own(state), now),
            (Self::SlidingCounter(new), Self::SlidingCounter(old)) => new.convert(old, own(state), now),
            (Self::BurstCredits(new), Self::BurstCredits(old)) => new.convert(old, own(state), now),
            // Permits stay with their holders, whatever the new limit; new leases are for new permits.
            (Self::Concurrency(_), Self::Concurrency(_)) => {}
            // Both count what passed in a window. What was counted counts as made now: later than it was, never earlier.
            (Self::SlidingLog(_), Self::SlidingCounter(_))
            | (Self::SlidingCounter(_), Self::SlidingLog(_)) => {
                *state = self.with_units_of(old, state, now);
            }
            (
                Self::TokenBucket(_)
                | Self::LeakyBucket(_)
                | Self::TokenBucketMaxWait(_)
                | Self::LeakyBucketMaxWait(_)
                | Self::FixedWindow(_)
                | Self::SlidingLog(_)
                | Self::SlidingCounter(_)
                | Self::BurstCredits(_)
                | Self::Concurrency(_),
                _,
            ) => *state = State::Unused,
        }
    }

    /// The units that count under `old`, at most the capacity of this rule.
    fn units_to_take_over(&self, old: &Self, state: &State, now: Timestamp) -> u64 {
        let used = old.capacity() - old.status(state, now).remaining.min(old.capacity());
        used.min(self.capacity())
    }

    /// A state of this rule to which the units that count under `old` are charged now.
    fn with_units_of(&self, old: &Self, state: &State, now: Timestamp) -> State {
        let mut new = State::Unused;
        self.spend(&mut new, PermitId(0), self.units_to_take_over(old, state, now), now);
        new
    }
}

macro_rules! from_rule {
    ($($variant:ident($rule:ty)),+) => {$(
        impl From<$rule> for Rule {
            fn from(rule: $rule) -> Self {
                Self::$variant(rule)
            }
        }
    )+};
}
from_rule!(
    TokenBucket(TokenBucket),
    LeakyBucket(LeakyBucket),
    TokenBucketMaxWait(MaxWait<TokenBucket>),
    LeakyBucketMaxWait(MaxWait<LeakyBucket>),
    FixedWindow(FixedWindow),
    SlidingLog(SlidingLog),
    SlidingCounter(SlidingCounter),
    BurstCredits(BurstCredits),
    Concurrency(Concurrency)
);

/// Bytes that one more entry may add: a full queue doubles, to four entries at least.
pub(crate) fn growth_of<T>(queue: &VecDeque<T>) -> usize {
    if queue.len() < queue.capacity() { 0 } else { queue.capacity().max(4) * size_of::<T>() }
}

/// What one algorithm remembers, as a kind of [`State`].
pub(crate) trait Kind: Default {
    fn find(state: &State) -> Option<&Self>;
    fn find_mut(state: &mut State) -> Option<&mut Self>;
    fn wrap(self) -> State;
}

macro_rules! kind {
    ($($variant:ident($state:ty)),+) => {$(
        impl Kind for $state {
            #[inline]
            fn find(state: &State) -> Option<&Self> {
                if let State::$variant(state) = state { Some(state) } else { None }
            }
            #[inline]
            fn find_mut(state: &mut State) -> Option<&mut Self> {
                if let State::$variant(state) = state { Some(state) } else { None }
            }
            fn wrap(self) -> State {
                State::$variant(self)
            }
        }
    )+};
}
kind!(
    Bucket(Tat),
    Waiting(Waiting),
    Window(Window),
    Log(Log),
    Counts(Counts),
    Credits(Credits),
    Permits(Permits)
);

/// Reads a state; one of another kind counts as unused.
#[inline]
fn read<S: Kind, T>(state: &State, reader: impl FnOnce(&S) -> T) -> T {
    match S::find(state) {
        Some(state) => reader(state),
        None => reader(&S::default()),
    }
}

/// The state as the kind a rule writes; one of another kind starts afresh.
#[inline]
pub(crate) fn own<S: Kind>(state: &mut State) -> &mut S {
    if S::find(state).is_none() {
        *state = S::default().wrap();
    }
    S::find_mut(state).expect("just made of this kind")
}

#[cfg(test)]
mod tests;
