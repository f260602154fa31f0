//! One request to a limiter.

use std::fmt;
use std::sync::Arc;

use tollgate_core::{Action, Decision, Group, Nanos, Status, Timestamp};

use super::{KeyedLimiter, Tier};
use crate::table::{Ask, AskRule, KeptRule, Part, RequestRule, Table};
use crate::until_ready::until_ready;
use crate::{NotReady, Permit};

/// One request to a limiter: [`KeyedLimiter::ask`]. It does nothing by itself, and can be made again.
///
/// ```
/// use tollgate::{KeyedLimiter, Rate, TokenBucket};
///
/// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1)?, 10)?);
/// let request = limiter.ask("alice").cost(4);
/// assert_eq!(request.check().status.remaining, 6);
/// assert_eq!(request.check().status.remaining, 2);
/// assert!(!request.check().is_allowed());
/// # Ok::<(), tollgate::RuleError>(())
/// ```
#[derive(Clone, Copy)]
#[must_use = "a request is decided by `check`"]
pub struct Request<'a> {
    pub(super) limiter: &'a KeyedLimiter,
    pub(super) ask: Ask<'a>,
}

impl<'a> Request<'a> {
    /// What it costs: 1 unless told otherwise. Cost 0 always passes and charges nothing; a cost that the limit could
    /// never hold is denied with [`Retry::Never`](crate::Retry::Never).
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Outcome, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(5)?, 10)?);
    /// assert_eq!(limiter.ask("alice").cost(7).check().status.remaining, 3);
    /// assert_eq!(limiter.ask("alice").cost(11).check().outcome, Outcome::NEVER);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub const fn cost(mut self, cost: u64) -> Self {
        self.ask.cost = cost;
        self
    }

    /// What it does to its key. Default: [`Action::Charge`].
    ///
    /// [`Action::ChargeInFull`] is for work whose cost is known only afterwards. The debt is bounded: one burst for a bucket, one
    /// limit for a log. [`Action::Hold`] takes effect in [`KeyedLimiter::decide_at`], which returns the permits.
    ///
    /// ```
    /// use tollgate::{Action, KeyedLimiter, Rate, TokenBucket};
    ///
    /// let tokens = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1000)?, 1000)?);
    /// let usage = |cost| tokens.ask("acme").cost(cost).action(Action::ChargeInFull).check().is_allowed();
    /// assert_eq!([0, 900, 0, 300, 0].map(usage), [true, true, true, false, false]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn action(mut self, action: Action) -> Self {
        self.ask.action = action;
        self
    }

    /// Sets how the request counts among requests that are decided together ([`KeyedLimiter::check_all`]). Default:
    /// [`Group::All`].
    ///
    /// ```
    /// use tollgate::{Group, KeyedLimiter, Rate, TokenBucket};
    ///
    /// let own = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1)?, 1)?);
    /// let spare = own.another(TokenBucket::new(Rate::per_hour(1)?, 5)?);
    /// let request = || [own.ask("alice").group(Group::AnyOf), spare.ask("acme").group(Group::AnyOf)];
    /// for left in [4, 3] {
    ///     let (verdict, _) = KeyedLimiter::check_all(request());
    ///     assert!(verdict.is_allowed()); // the second time there is only the spare bucket
    ///     assert_eq!(spare.remaining("acme"), left);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn group(mut self, group: Group) -> Self {
        self.ask.group = group;
        self
    }

    /// Denies the request without asking its rule, and with no time to retry. Use it for a limit of 0, which no rule can have,
    /// and for a request that lacks an attribute of its key. Cost 0 passes. The key is charged only if the rule counts denied
    /// requests, or by [`Action::ChargeInFull`].
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Outcome, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(5)?, 10)?);
    /// assert_eq!(limiter.ask("banned").denied().check().outcome, Outcome::NEVER);
    /// assert_eq!(limiter.remaining("banned"), 10); // nothing was charged
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn denied(mut self) -> Self {
        self.ask.is_denied = true;
        self
    }

    /// The numbers it is decided by. A key that was last charged by others keeps its tokens.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1)?, 10)?);
    /// let pro = limiter.add_tier(TokenBucket::new(Rate::per_hour(60)?, 100)?);
    /// let _ = limiter.ask("alice").cost(8).check();
    /// assert_eq!(limiter.ask("alice").tier(&pro).peek().remaining, 2); // promoted, she has what she had
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// When the tier is another limiter's.
    #[inline]
    pub fn tier(mut self, tier: &'a Tier) -> Self {
        self.ask.rule = AskRule::Tier(self.limiter.own(tier));
        self
    }

    /// [`tier`](Self::tier), for a key that has one tier at a time. A key that was last charged under another tier has moved
    /// to this one: it keeps its tokens, and from its first denial on it refills by the numbers of this tier.
    ///
    /// Do not use it for a key that callers of several tiers share. Denied requests would move the key between them.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, KeyedLimiter, Rate, TokenBucket};
    ///
    /// let free = TokenBucket::new(Rate::per_hour(1)?, 1)?;
    /// let limiter = KeyedLimiter::builder(free).clock(Clock::manual()).build();
    /// let pro = limiter.add_tier(TokenBucket::new(Rate::per_second(1)?, 1)?);
    /// assert!(limiter.ask("acme").check().is_allowed());
    /// let denied = limiter.ask("acme").only_tier(&pro).check();
    /// assert_eq!(denied.retry_after().map(Duration::from), Some(Duration::from_secs(1))); // not an hour
    /// limiter.clock().advance(Duration::from_secs(1));
    /// assert!(limiter.ask("acme").only_tier(&pro).check().is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// When the tier is another limiter's.
    pub fn only_tier(mut self, tier: &'a Tier) -> Self {
        self.ask.has_one_tier = true;
        self.tier(tier)
    }

    /// Decides by a rule that came with the request, instead of the rule of the limiter. A key that was last charged by another rule
    /// is converted to this one, and keeps its tokens or its count.
    ///
    /// The table remembers a rule only as long as it is the rule that last charged some key. A table has up to 64
    /// shards. The hash of a key selects its shard. The keys of one shard can use 65 503 different rules at one time.
    /// If all are in use, a request with another rule charges no key: [`WhenFull::Allow`](crate::WhenFull::Allow)
    /// lets it pass, and the other variants deny it.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(1)?, 1)?);
    /// for burst in 1..=1000 {
    ///     let sent = limiter.request_rule(&burst, TokenBucket::new(Rate::per_hour(1)?, burst)?);
    ///     assert_eq!(limiter.ask(&burst).rule(&sent).check().status.remaining, burst - 1);
    /// }
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    #[inline]
    pub const fn rule(mut self, rule: &'a RequestRule) -> Self {
        self.ask.rule = AskRule::Sent(rule, &self.limiter.life);
        self
    }

    /// What its key is known by: a hash under the table's secret, of its own for every limiter. For those who count keys
    /// themselves, such as the hottest.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(5)?, 10)?);
    /// assert_eq!(limiter.ask("alice").key_hash(), limiter.ask("alice").cost(7).key_hash());
    /// assert_ne!(limiter.ask("alice").key_hash(), limiter.ask("bob").key_hash());
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub const fn key_hash(&self) -> u64 {
        self.ask.hash
    }

    /// Decides it, now. A concurrency limit is only looked at: to hold a place in it,
    /// [`acquire`](Self::acquire) a permit.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(5)?, 10)?);
    /// assert!(limiter.ask("alice").cost(10).check().is_allowed());
    /// assert!(!limiter.ask("alice").check().is_allowed());
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    #[inline]
    pub fn check(&self) -> Decision {
        let table = &self.limiter.table;
        table.prefetch_lock(&self.ask); // the lock is fetched while the clock is read
        self.check_at(table.clock.now())
    }

    /// Decides it at a given time.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, Timestamp, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(5)?, 10)?);
    /// let request = limiter.ask("alice").cost(10);
    /// assert!(request.check_at(Timestamp::from_nanos(0)).is_allowed());
    /// assert!(request.check_at(Timestamp::from_nanos(2_000_000_000)).is_allowed());
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    #[inline]
    pub fn check_at(&self, now: Timestamp) -> Decision {
        self.limiter.table.check(&self.ask, now)
    }

    /// Takes a permit of a concurrency limit, which is given back when it is dropped. Other rules are charged as by
    /// [`check`](Self::check), and keep what they charged; what they would hold back is denied for as long.
    ///
    /// ```
    /// use tollgate::{Concurrency, KeyedLimiter};
    ///
    /// let limiter = KeyedLimiter::new(Concurrency::new(1, None)?);
    /// let permit = limiter.ask("alice").acquire().unwrap();
    /// assert!(limiter.ask("alice").acquire().is_err());
    /// drop(permit);
    /// assert!(limiter.ask("alice").acquire().is_ok());
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The decision, when it is denied.
    pub fn acquire(mut self) -> Result<Permit, Decision> {
        let table = &self.limiter.table;
        self.ask.action = Action::Hold;
        self.ask.permit = Some(table.next_permit());
        let decision = table.check_at_once(&self.ask, table.clock.now());
        if decision.is_allowed() { Ok(self.permit()) } else { Err(decision) }
    }

    /// Waits until it passes, on any runtime or none, and tells how the key stands then.
    ///
    /// Those who wait for a key are served in the order they came; [`check`](Self::check), which does not wait,
    /// takes what is there, so that beside many of those one may wait for long. A future that is kept and not polled
    /// holds up those behind it. Dropping the future leaves the line; nothing has been charged then. A request that
    /// [`check`](Self::check) would let pass after a delay waits as long. A concurrency limit is only looked at:
    /// for a place in it there is [`until_acquired`](Self::until_acquired).
    ///
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(1000)?, 10)?);
    /// for _ in 0..3 {
    ///     limiter.ask("alice").cost(10).until_ready().await?; // every ten milliseconds
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Where waiting is of no use: [`NotReady`].
    pub async fn until_ready(&self) -> Result<Status, NotReady> {
        let (table, ask) = (&self.limiter.table, &self.ask);
        until_ready(&table.lines, &table.clock, ask.hash, |now| table.check_at_once(ask, now)).await
    }

    /// Waits until it has a permit of a concurrency limit, which is given back when it is dropped. In order and
    /// to be dropped while it waits, as [`until_ready`](Self::until_ready) is.
    ///
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use tollgate::{Concurrency, KeyedLimiter};
    ///
    /// let limiter = KeyedLimiter::new(Concurrency::new(1, None)?);
    /// let permit = limiter.ask("alice").until_acquired().await?;
    /// let next = async { limiter.ask("alice").until_acquired().await.is_ok() };
    /// assert!(futures_lite::future::zip(next, async { drop(permit) }).await.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Where waiting is of no use: [`NotReady`].
    pub async fn until_acquired(mut self) -> Result<Permit, NotReady> {
        let table = &self.limiter.table;
        self.ask.action = Action::Hold;
        self.ask.permit = Some(table.next_permit());
        let ask = &self.ask;
        until_ready(&table.lines, &table.clock, ask.hash, |now| table.check_at_once(ask, now)).await?;
        Ok(self.permit())
    }

    /// The permit of a request that holds a slot.
    pub(super) fn permit(&self) -> Permit {
        let slot = self.ask.held_slot().expect("a request that holds a slot has a permit");
        Permit::keyed(Arc::clone(&self.limiter.table), slot)
    }

    /// Gives back what it was charged at `charged`, or a part of that, as
    /// [`KeyedLimiter::refund`] does.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1)?, 10)?);
    /// let charged = limiter.clock().now();
    /// let _ = limiter.ask("alice").cost(8).check_at(charged);
    /// limiter.ask("alice").cost(3).refund(charged); // it took 5 only
    /// assert_eq!(limiter.remaining("alice"), 5);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn refund(&self, charged: Timestamp) -> u64 {
        self.refund_at(charged, self.limiter.clock().now())
    }

    /// [`refund`](Self::refund) at a time that the caller read from the limiter's [`clock`](KeyedLimiter::clock).
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, Timestamp, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1)?, 10)?);
    /// let now = Timestamp::from_nanos(0);
    /// let _ = limiter.ask("alice").cost(8).check_at(now);
    /// assert_eq!(limiter.ask("alice").cost(3).refund_at(now, now), 3);
    /// assert_eq!(limiter.ask("alice").peek_at(now).remaining, 5);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn refund_at(&self, charged: Timestamp, now: Timestamp) -> u64 {
        self.limiter.table.refund(&self.ask, charged, now)
    }

    /// Its place in the queue, for one that was let in and is held until its turn: to be given up should nobody wait for it any
    /// more.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, LeakyBucket, Rate, Timestamp};
    ///
    /// let limiter = KeyedLimiter::new(LeakyBucket::new(Rate::per_second(10)?, 9)?);
    /// let now = Timestamp::from_nanos(0);
    /// let delays = [(); 3].map(|()| limiter.ask("index").check_at(now).outcome.delay().get() / 1_000_000);
    /// assert_eq!(delays, [0, 100, 200]);
    /// // The second leaves. The third is moved forward, by whoever holds it, and the next gets its turn.
    /// assert_eq!(limiter.ask("index").turn().withdraw_at(now).get(), 100_000_000);
    /// assert_eq!(limiter.ask("index").check_at(now).outcome.delay().get(), 200_000_000);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn turn(&self) -> Turn {
        let Ask { hash, cost, rule, part, .. } = self.ask;
        Turn { table: Arc::clone(&self.limiter.table), rule: rule.keep(), part, hash, cost }
    }

    /// What remains of its key, and when that is as new. Charges nothing.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(1)?, 10)?);
    /// let pro = limiter.add_tier(TokenBucket::new(Rate::per_second(1)?, 50)?);
    /// assert_eq!(limiter.ask("alice").peek().remaining, 10);
    /// assert_eq!(limiter.ask("alice").tier(&pro).peek().remaining, 50);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn peek(&self) -> Status {
        self.peek_at(self.limiter.clock().now())
    }

    /// [`peek`](Self::peek) at a time that the caller read from the limiter's [`clock`](KeyedLimiter::clock).
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, Timestamp, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(1)?, 10)?);
    /// let at = |seconds: u64| Timestamp::from_nanos(seconds * 1_000_000_000);
    /// let _ = limiter.ask("alice").cost(8).check_at(at(0));
    /// assert_eq!([0, 3, 20].map(|s| limiter.ask("alice").peek_at(at(s)).remaining), [2, 5, 10]);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn peek_at(&self, now: Timestamp) -> Status {
        self.limiter.table.status(&self.ask, now)
    }

    /// What [`check_at`](Self::check_at) would answer, with nothing charged and nothing changed: the status is that
    /// of the key as it is. Whether a full table would have room for the key is not looked at.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1)?, 10)?);
    /// let (now, request) = (limiter.clock().now(), limiter.ask("alice").cost(8));
    /// assert!(request.preview_at(now).is_allowed());
    /// assert_eq!(request.preview_at(now).status.remaining, 10);
    /// let _ = request.check_at(now);
    /// assert!(!request.preview_at(now).is_allowed());
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn preview_at(&self, now: Timestamp) -> Decision {
        self.limiter.table.preview(&self.ask, now)
    }
}

/// A place in the queue of a key: [`Request::turn`], which has an example.
#[derive(Clone)]
pub struct Turn {
    table: Arc<Table>,
    rule: KeptRule,
    part: Part,
    hash: u64,
    cost: u64,
}

impl Turn {
    /// What its key is known by, in this limit and no other. [`withdraw_at`](Self::withdraw_at) concerns all who wait for the same.
    pub const fn key_hash(&self) -> u64 {
        self.hash
    }

    fn ask(&self) -> Ask<'_> {
        let Self { rule, part, hash, cost, .. } = self;
        Ask { hash: *hash, cost: *cost, part: *part, rule: rule.as_ask(), ..Ask::NOTHING }
    }

    /// Gives the place up before its turn has come, and returns the time by which all who wait behind it go sooner. To move them
    /// is the caller's part; where that cannot be done, a place is not given up.
    pub fn withdraw_at(&self, now: Timestamp) -> Nanos {
        self.table.withdraw(&self.ask(), now)
    }

    /// All who wait go later by this than they were told, since it was not let go in time: the last of them goes at `last_turn`.
    /// Whoever comes next comes behind them.
    pub fn postpone_at(&self, by: Nanos, last_turn: Timestamp, now: Timestamp) {
        self.table.postpone(&self.ask(), by, last_turn, now);
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("cost", &self.cost).finish_non_exhaustive()
    }
}

impl fmt::Debug for Request<'_> {
    /// What is asked, not of whom: keys are known by their hash only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("cost", &self.ask.cost).finish_non_exhaustive()
    }
}
