//! A limiter with a state for each key.

mod builder;
mod paces;
mod request;
mod tiers;
mod together;

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use tollgate_core::{Decision, Rule, Status, Timestamp};

pub use self::builder::Builder;
pub use self::request::{Request, Turn};
pub use self::tiers::{Numbers, Shed, Tier};
use crate::table::{Ask, AskRule, LimiterLife, Part, RequestRule, Settings, Stats, Table, TierCell};
use crate::{Clock, NotReady};

/// Limits each key by a rule, or by one of several.
///
/// Keys are anything that can be hashed, of one kind or many. A key in use takes about 20 bytes under a bucket; one
/// that is no longer used makes room as others come. Clones share everything.
///
/// ```
/// use tollgate::{KeyedLimiter, Rate, TokenBucket};
///
/// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(5)?, 10)?);
/// let decision = limiter.check("alice");
/// assert!(decision.is_allowed());
/// assert_eq!(decision.status.remaining, 9);
/// # Ok::<(), tollgate::RuleError>(())
/// ```
#[derive(Clone)]
pub struct KeyedLimiter {
    table: Arc<Table>,
    limit: u64, // no other limiter of the table has or had it
    part: Part,
    tier: Tier,
    life: Arc<LimiterLife>,
}

impl KeyedLimiter {
    /// A limiter with a table of its own.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(5)?, 10)?);
    /// assert_eq!(limiter.remaining("alice"), 10);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn new(rule: impl Into<Rule>) -> Self {
        Self::builder(rule).build()
    }

    /// A limiter with a table of its own, to be told more.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let rule = TokenBucket::new(Rate::per_second(5)?, 10)?;
    /// let limiter = KeyedLimiter::builder(rule).max_keys(1_000_000).build();
    /// assert!(limiter.check("alice").is_allowed());
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn builder(rule: impl Into<Rule>) -> Builder {
        Builder { rule: rule.into(), settings: Settings::default() }
    }

    /// Another limiter in the same table: its keys are its own, the bound on them is shared, and both can be
    /// asked at once with [`check_all`](Self::check_all). After its last
    /// clone is dropped, later requests and [`sweep`](Self::sweep) forget its keys.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let users = KeyedLimiter::new(TokenBucket::new(Rate::per_second(5)?, 10)?);
    /// let tenants = users.another(TokenBucket::new(Rate::per_second(50)?, 100)?);
    /// let _ = users.check("acme");
    /// assert_eq!(tenants.remaining("acme"), 100); // a key of its own, of the same name
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    #[must_use]
    pub fn another(&self, rule: impl Into<Rule>) -> Self {
        Self::within(&self.table, self.part, rule.into())
    }

    /// [`another`](Self::another) limiter, with its keys in the [second part](Builder::second_part) of the table.
    ///
    /// # Panics
    ///
    /// When the table has no second part.
    #[must_use]
    pub fn another_in_second_part(&self, rule: impl Into<Rule>) -> Self {
        assert!(self.table.has_second_part(), "the table has one part: make it with `Builder::second_part`");
        Self::within(&self.table, Part::Second, rule.into())
    }

    fn within(table: &Arc<Table>, part: Part, rule: Rule) -> Self {
        let (limit, life) = (table.next_limit(), Arc::default());
        let tier = Tier::new(TierCell::new(table.align(rule.into()), &life), limit, table.number);
        Self { table: Arc::clone(table), limit, part, tier, life }
    }

    /// Decides a request of cost 1, now.
    ///
    /// A concurrency limit is only looked at: to hold a place in it, [`acquire`](Request::acquire) a permit.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_minute(1)?, 1)?);
    /// assert!(limiter.check("alice").is_allowed());
    /// let wait = limiter.check("alice").outcome.retry_after().unwrap();
    /// assert_eq!(wait.as_secs_ceil(), 60); // what a Retry-After header would say
    /// assert!(limiter.check("bob").is_allowed());
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    #[inline]
    pub fn check<K: Hash + ?Sized>(&self, key: &K) -> Decision {
        self.ask(key).check()
    }

    /// Decides a request of cost 1 at a time that the caller read from this limiter's [`clock`](Self::clock). Whoever
    /// keeps the time himself moves a [manual clock](Clock::manual).
    ///
    /// A time before that of an earlier request of the key is taken for late, never for early: it may deny what
    /// would have passed, and gains nothing then or later.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, Timestamp, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(1)?, 1)?);
    /// assert!(limiter.check_at("alice", Timestamp::from_nanos(0)).is_allowed());
    /// assert!(!limiter.check_at("alice", Timestamp::from_nanos(999_999_999)).is_allowed());
    /// assert!(limiter.check_at("alice", Timestamp::from_nanos(1_000_000_000)).is_allowed());
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    #[inline]
    pub fn check_at<K: Hash + ?Sized>(&self, key: &K, now: Timestamp) -> Decision {
        self.ask(key).check_at(now)
    }

    /// Waits until a request of cost 1 passes, and tells how the key stands then. See [`Request::until_ready`].
    ///
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(100)?, 1)?);
    /// limiter.until_ready("alice").await?;
    /// limiter.until_ready("alice").await?; // ten milliseconds later
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// Where waiting is of no use: [`NotReady`].
    pub async fn until_ready<K: Hash + ?Sized>(&self, key: &K) -> Result<Status, NotReady> {
        let request = self.ask(key);
        request.until_ready().await
    }

    /// A request to be told more: its cost, its tier.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(5)?, 10)?);
    /// assert_eq!(limiter.ask("alice").cost(7).check().status.remaining, 3);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    #[inline]
    pub fn ask<K: Hash + ?Sized>(&self, key: &K) -> Request<'_> {
        let hash = self.table.secret.hash(self.limit, key);
        self.ask_by_hash(hash)
    }

    /// [`ask`](Self::ask) by the hash that [`Request::key_hash`] returned, so that a key is hashed once for several requests.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(5)?, 10)?);
    /// let hash = limiter.ask("alice").key_hash();
    /// assert!(limiter.ask_by_hash(hash).check().is_allowed());
    /// assert_eq!(limiter.remaining("alice"), 9);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    #[inline]
    pub fn ask_by_hash(&self, hash: u64) -> Request<'_> {
        let rule = AskRule::Tier(&self.tier.cell);
        Request { limiter: self, ask: Ask { hash, rule, part: self.part, cost: 1, ..Ask::NOTHING } }
    }

    /// Prepares a rule for requests that bring their own. [`Request::rule`](crate::Request::rule) has an example.
    /// `name` identifies the rule, for example by the numbers that the caller sent. Two rules of one name must be
    /// equal.
    pub fn request_rule<N: Hash + ?Sized>(&self, name: &N, rule: impl Into<Rule>) -> RequestRule {
        let rule = self.table.align(rule.into().into()).rule;
        RequestRule::new(self.table.secret.hash(self.limit, name), rule)
    }

    /// What remains of a key, and when it is as new. Charges nothing.
    ///
    /// ```
    /// use tollgate::{Clock, KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::builder(TokenBucket::new(Rate::per_second(5)?, 10)?).clock(Clock::manual()).build();
    /// let _ = limiter.check("alice");
    /// assert_eq!(limiter.peek("alice").remaining, 9);
    /// assert_eq!(limiter.peek("alice").reset_after.get(), 200_000_000);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn peek<K: Hash + ?Sized>(&self, key: &K) -> Status {
        self.ask(key).peek()
    }

    /// How many requests of cost 1 would pass now. Rounded down; charges nothing.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1)?, 10)?);
    /// let _ = limiter.check("alice");
    /// assert_eq!(limiter.remaining("alice"), 9);
    /// assert_eq!(limiter.remaining("bob"), 10);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn remaining<K: Hash + ?Sized>(&self, key: &K) -> u64 {
        self.peek(key).remaining
    }

    /// Gives back what a request of cost 1 was charged at `charged`, because the work failed or was not done
    /// after all. Returns how much that is: 0 where time has made good for it already.
    ///
    /// The caller promises that the key was charged so, and gives a charge back once only. See
    /// [`Algorithm::refund`](crate::Algorithm::refund) for what each algorithm does: a leaky bucket, whose
    /// places have their times, gives nothing back.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1)?, 10)?);
    /// let charged = limiter.clock().now();
    /// assert_eq!(limiter.check_at("alice", charged).status.remaining, 9);
    /// assert_eq!(limiter.refund("alice", charged), 1);
    /// assert_eq!(limiter.remaining("alice"), 10);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn refund<K: Hash + ?Sized>(&self, key: &K, charged: Timestamp) -> u64 {
        self.ask(key).refund(charged)
    }

    /// Forgets a key, which is then as if it had never been used. False if it was not remembered. Permits that are
    /// held stay usable and no longer count.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1)?, 1)?);
    /// assert!(limiter.check("alice").is_allowed());
    /// assert!(limiter.reset("alice"));
    /// assert!(limiter.check("alice").is_allowed());
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn reset<K: Hash + ?Sized>(&self, key: &K) -> bool {
        self.reset_by_hash(self.ask(key).ask.hash)
    }

    /// [`reset`](Self::reset) by the hash that [`Request::key_hash`] returned.
    pub fn reset_by_hash(&self, hash: u64) -> bool {
        self.table.reset(self.part, hash)
    }

    /// Forgets keys of the table that are no longer used, and frees their memory. Looks at `most` slots, or a few
    /// hundred more. The next call continues where this call ends. A key takes about 1.4 slots.
    ///
    /// Calling it is optional, because requests also forget unused keys. Call it every second with a million slots,
    /// for example, if memory should be freed soon after a spike even when few requests come.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, KeyedLimiter, Rate, TokenBucket};
    ///
    /// let rule = TokenBucket::new(Rate::per_second(1)?, 5)?;
    /// let limiter = KeyedLimiter::builder(rule).clock(Clock::manual()).build();
    /// (0..1000).for_each(|user| drop(limiter.check(&user)));
    /// limiter.clock().advance(Duration::from_secs(1)); // their buckets are full again
    /// limiter.sweep(1_000_000);
    /// assert_eq!(limiter.stats().keys, 0);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn sweep(&self, most: usize) {
        self.table.sweep(most);
    }

    /// Where the time comes from.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(5)?, 10)?);
    /// let now = limiter.clock().now(); // read once for several requests
    /// assert!(["alice", "bob"].iter().all(|user| limiter.check_at(*user, now).is_allowed()));
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn clock(&self) -> &Clock {
        &self.table.clock
    }

    /// What the table holds, and what it had to do to stay within its bounds.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1)?, 10)?);
    /// let _ = limiter.check("alice");
    /// let stats = limiter.stats();
    /// assert_eq!((stats.keys, stats.evictions, stats.refused), (1, 0, 0));
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn stats(&self) -> Stats {
        self.table.stats(None)
    }

    #[cfg(shuttle_model)]
    pub(crate) fn mark_busy_at_random(&self, is_busy: impl FnMut() -> bool) {
        self.table.mark_busy_at_random(is_busy);
    }

    /// [`stats`](Self::stats) of the [part](Builder::second_part) of the table that the keys of this limiter are in.
    pub fn part_stats(&self) -> Stats {
        self.table.stats(Some(self.part))
    }
}

impl fmt::Debug for KeyedLimiter {
    /// The rule and what the table holds, not the table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = self.rule_of(&self.tier);
        f.debug_struct("KeyedLimiter")
            .field("rule", &rule)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
