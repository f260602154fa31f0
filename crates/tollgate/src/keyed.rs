//! A limiter with a state for each key.

use std::hash::Hash;
use std::sync::Arc;

use tollgate_core::{Decision, Rule, Status, Timestamp, Verdict};

use crate::table::{Ask, MOST_LIMITS, Prefetcher, Settings, Stats, Table, TierId, WhenFull};
use crate::until_ready::until_ready;
use crate::{Clock, NotReady, Permit, Secret};

/// Limits each key by a rule, or by one of several.
///
/// Keys are anything that can be hashed, of one kind or many. A key that is not in use takes no memory; one
/// that is takes about 20 bytes under a bucket. Clones share everything.
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
#[derive(Clone, Debug)]
pub struct KeyedLimiter {
    table: Arc<Table>,
    limit: u32,
    tier: Tier,
}

/// One of several sets of numbers that a limiter decides by, such as those of a price plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier(TierId);

/// How a [`KeyedLimiter`] is made.
#[derive(Debug)]
#[must_use = "a builder does nothing until it builds"]
pub struct Builder {
    rule: Rule,
    settings: Settings,
}

impl Builder {
    /// The most keys remembered at once: ten million unless told otherwise. See [`WhenFull`].
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.settings.max_keys = max_keys.max(1);
        self
    }

    /// The most bytes in use at once: no bound unless told, and 64 KiB at least. See [`WhenFull`].
    ///
    /// Bytes are counted as they are asked for, the table's spare room included; what the system's allocator
    /// adds is not. A change of numbers may need more for the keys there are, and is not refused for it: nothing
    /// new is remembered then, until enough has expired.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{KeyedLimiter, SlidingLog};
    ///
    /// let hour = Duration::from_secs(3600);
    /// let limiter = KeyedLimiter::builder(SlidingLog::new(100_000, hour)?).max_bytes(1 << 20).build();
    /// for user in 0..10_000 {
    ///     let _ = limiter.ask(&user).cost(100).check(); // each would keep 800 bytes and more
    /// }
    /// let stats = limiter.stats();
    /// assert!(stats.bytes <= 1 << 20);
    /// assert!(stats.evictions > 0); // every user could spend more, so those soonest as new made room
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn max_bytes(mut self, max_bytes: usize) -> Self {
        self.settings.max_bytes = Some(max_bytes);
        self
    }

    /// The most requests that [wait](KeyedLimiter::until_ready) at once, for all keys together: 100 000 unless
    /// told otherwise.
    ///
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use tollgate::{KeyedLimiter, NotReady, Rate, TokenBucket};
    ///
    /// let rule = TokenBucket::new(Rate::per_hour(1)?, 1)?;
    /// let limiter = KeyedLimiter::builder(rule).max_waiting(0).build();
    /// assert!(limiter.until_ready("alice").await.is_ok()); // nobody had to wait
    /// assert_eq!(limiter.until_ready("alice").await, Err(NotReady::TooManyWaiting));
    /// # Ok::<(), tollgate::RuleError>(()) }).unwrap();
    /// ```
    pub fn max_waiting(mut self, max_waiting: usize) -> Self {
        self.settings.max_waiting = max_waiting;
        self
    }

    /// What becomes of a new key when the most are remembered and all of them are in use.
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.settings.when_full = when_full;
        self
    }

    /// Where the time comes from.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.settings.clock = clock;
        self
    }

    /// What keys are hashed under, for those who must know: random unless told otherwise.
    pub fn secret(mut self, secret: Secret) -> Self {
        self.settings.secret = secret;
        self
    }

    /// Makes the limiter.
    pub fn build(self) -> KeyedLimiter {
        let table = Arc::new(Table::new(self.settings));
        KeyedLimiter::within(table, self.rule).expect("the first rule of a table")
    }
}

impl KeyedLimiter {
    /// A limiter with a table of its own.
    pub fn new(rule: impl Into<Rule>) -> Self {
        Self::builder(rule).build()
    }

    /// A limiter with a table of its own, to be told more.
    pub fn builder(rule: impl Into<Rule>) -> Builder {
        Builder { rule: rule.into(), settings: Settings::default() }
    }

    /// Another limiter in the same table: its keys are its own, the bound on them is shared, and both can be
    /// asked at once with [`check_all`](Self::check_all).
    ///
    /// # Errors
    ///
    /// When the table has 65535 rules in use, of all its limiters and tiers.
    pub fn another(&self, rule: impl Into<Rule>) -> Result<Self, TooManyRules> {
        Self::within(Arc::clone(&self.table), rule.into())
    }

    fn within(table: Arc<Table>, rule: Rule) -> Result<Self, TooManyRules> {
        let tier = table.add_tier(rule).ok_or(TooManyRules)?;
        // The first tier of a limiter is nobody else's, so its number tells limiters apart.
        Ok(Self { table, limit: tier.0, tier: Tier(tier) })
    }

    /// Adds a set of numbers for some of the keys.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(1)?, 1)?);
    /// let pro = limiter.add_tier(TokenBucket::new(Rate::per_second(100)?, 50)?)?;
    /// assert_eq!(limiter.ask("alice").tier(pro).check().status.remaining, 49);
    /// assert_eq!(limiter.check("bob").status.remaining, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the table has 65535 rules in use, of all its limiters and tiers.
    pub fn add_tier(&self, rule: impl Into<Rule>) -> Result<Tier, TooManyRules> {
        self.table.add_tier(rule.into()).map(Tier).ok_or(TooManyRules)
    }

    /// Changes the numbers of the limiter. Each key keeps its tokens, or its count; nobody gets a fresh burst.
    ///
    /// # Errors
    ///
    /// When the table has 65535 rules in use, of all its limiters and tiers.
    pub fn set_rule(&self, rule: impl Into<Rule>) -> Result<(), TooManyRules> {
        self.set_tier(self.tier, rule)
    }

    /// Changes the numbers of a tier.
    ///
    /// # Errors
    ///
    /// When the table has 65535 rules in use, of all its limiters and tiers.
    pub fn set_tier(&self, tier: Tier, rule: impl Into<Rule>) -> Result<(), TooManyRules> {
        self.table.replace(tier.0, rule.into()).ok_or(TooManyRules)
    }

    /// Decides a request of cost 1, now.
    #[inline]
    pub fn check<K: Hash + ?Sized>(&self, key: &K) -> Decision {
        self.ask(key).check()
    }

    /// Decides a request of cost 1 at a time that the caller read from this limiter's [`clock`](Self::clock),
    /// or keeps itself.
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
    #[inline]
    pub fn ask<K: Hash + ?Sized>(&self, key: &K) -> Request<'_> {
        let hash = self.table.secret.hash(self.limit, key);
        Request { limiter: self, ask: Ask { hash, tier: self.tier.0, cost: 1, permit: None } }
    }

    /// [`ask`](Self::ask) for each of several keys, whose texts are fetched from memory side by side: for
    /// [`check_each`](Self::check_each), where they are many and seldom used.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1)?, 1)?);
    /// let decisions = KeyedLimiter::check_each(limiter.ask_each(["alice", "bob", "alice"]));
    /// assert_eq!(decisions.map(|decision| decision.is_allowed()), [true, true, false]);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn ask_each<K: Hash + ?Sized, const N: usize>(&self, keys: [&K; N]) -> [Request<'_>; N] {
        keys.iter().for_each(|key| key.hash(&mut Prefetcher));
        keys.map(|key| self.ask(key))
    }

    /// What remains of a key, and when it is as new. Charges nothing.
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

    /// Forgets a key: it is as if never used. False if it was.
    pub fn reset<K: Hash + ?Sized>(&self, key: &K) -> bool {
        self.table.reset(self.ask(key).ask.hash)
    }

    /// Decides several requests of limiters in one table at one instant: all are charged, or none.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let users = KeyedLimiter::new(TokenBucket::new(Rate::per_second(1)?, 1)?);
    /// let tenants = users.another(TokenBucket::new(Rate::per_second(10)?, 10)?)?;
    /// let request = || [users.ask("alice"), tenants.ask("acme")];
    ///
    /// assert!(KeyedLimiter::check_all(request()).0.is_allowed());
    /// let (verdict, [_, tenant]) = KeyedLimiter::check_all(request());
    /// assert!(!verdict.is_allowed());
    /// assert_eq!(tenant.status.remaining, 9); // the second request cost the tenant nothing
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// When the limiters are not of one table ([`another`](Self::another)), or there is none.
    pub fn check_all<const N: usize>(requests: [Request<'_>; N]) -> (Verdict, [Decision; N]) {
        let now = requests[0].limiter.clock().now();
        let mut decisions = [Decision::default(); N];
        let verdict = Self::check_all_at(&requests, now, &mut decisions);
        (verdict, decisions)
    }

    /// [`check_all`](Self::check_all) of any number up to 32, at a given time, with the answer of each request
    /// written to `decisions`.
    ///
    /// # Panics
    ///
    /// When the limiters are not of one table ([`another`](Self::another)), there is none or more than 32, or
    /// `decisions` is of another length.
    pub fn check_all_at(requests: &[Request<'_>], now: Timestamp, decisions: &mut [Decision]) -> Verdict {
        assert!(requests.len() <= MOST_LIMITS, "at most {MOST_LIMITS} requests can be decided together");
        let table = Self::table_of(requests).expect("at least one request");
        let mut asks = [Ask::NOTHING; MOST_LIMITS];
        asks.iter_mut().zip(requests).for_each(|(ask, request)| *ask = request.ask);
        table.check_all(&asks[..requests.len()], now, decisions)
    }

    /// Decides many requests of limiters in one table at one instant, each on its own and in order: with one
    /// look at the clock, and with their keys fetched from memory side by side.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1)?, 1)?);
    /// let decisions = KeyedLimiter::check_each(["alice", "bob", "alice"].map(|user| limiter.ask(user)));
    /// assert_eq!(decisions.map(|decision| decision.is_allowed()), [true, true, false]);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// When the limiters are not of one table ([`another`](Self::another)).
    pub fn check_each<const N: usize>(requests: [Request<'_>; N]) -> [Decision; N] {
        let mut decisions = [Decision::default(); N];
        if let Some(first) = requests.first() {
            Self::check_each_at(&requests, first.limiter.clock().now(), &mut decisions);
        }
        decisions
    }

    /// [`check_each`](Self::check_each) of any number, at a given time, with the answer of each request written
    /// to `decisions`. None is decided where there is none.
    ///
    /// ```
    /// use tollgate::{Decision, KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1)?, 1)?);
    /// let requests: Vec<_> = (0..1000).map(|user| limiter.ask(&user)).collect();
    /// let mut decisions = vec![Decision::default(); requests.len()];
    /// KeyedLimiter::check_each_at(&requests, limiter.clock().now(), &mut decisions);
    /// assert!(decisions.iter().all(Decision::is_allowed));
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// When the limiters are not of one table ([`another`](Self::another)), or `decisions` is of another length.
    pub fn check_each_at(requests: &[Request<'_>], now: Timestamp, decisions: &mut [Decision]) {
        assert_eq!(requests.len(), decisions.len(), "one decision for each request");
        let Some(table) = Self::table_of(requests) else { return };
        for (requests, decisions) in requests.chunks(BATCH).zip(decisions.chunks_mut(BATCH)) {
            requests.iter().for_each(|request| table.prefetch(request.ask.hash));
            for (request, decision) in requests.iter().zip(decisions) {
                *decision = table.check(&request.ask, now);
            }
        }
    }

    /// The table of all these limiters.
    fn table_of<'a>(requests: &[Request<'a>]) -> Option<&'a Table> {
        let table = &requests.first()?.limiter.table;
        let same = requests.iter().all(|request| Arc::ptr_eq(&request.limiter.table, table));
        assert!(same, "limiters that are asked together must be of one table: make them with `another`");
        Some(table)
    }

    /// Where the time comes from.
    pub fn clock(&self) -> &Clock {
        &self.table.clock
    }

    /// What the table holds, and what it had to do to stay within its bounds.
    pub fn stats(&self) -> Stats {
        self.table.stats()
    }
}

/// Requests whose slots are fetched side by side: about as many as a processor waits for at once.
const BATCH: usize = 16;

/// One request to a limiter.
#[derive(Clone, Copy, Debug)]
#[must_use = "a request is decided by `check`"]
pub struct Request<'a> {
    limiter: &'a KeyedLimiter,
    ask: Ask,
}

impl Request<'_> {
    /// What it costs: 1 unless told otherwise. Cost 0 peeks.
    pub const fn cost(mut self, cost: u64) -> Self {
        self.ask.cost = cost;
        self
    }

    /// The numbers it is decided by. A key that was last charged by others keeps its tokens.
    pub const fn tier(mut self, tier: Tier) -> Self {
        self.ask.tier = tier.0;
        self
    }

    /// Decides it, now. A concurrency limit is only looked at: to hold a place in it,
    /// [`acquire`](Self::acquire) a permit.
    #[inline]
    pub fn check(&self) -> Decision {
        self.check_at(self.limiter.clock().now())
    }

    /// Decides it at a given time.
    #[inline]
    pub fn check_at(&self, now: Timestamp) -> Decision {
        self.limiter.table.check(&self.ask, now)
    }

    /// Takes a permit of a concurrency limit, which is given back when it is dropped.
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
        self.ask.permit = Some(table.next_permit());
        let decision = self.check();
        if decision.is_allowed() { Ok(Permit::keyed(Arc::clone(table), self.ask)) } else { Err(decision) }
    }

    /// Waits until it passes, on any runtime or none, and tells how the key stands then.
    ///
    /// Those who wait for a key are served in the order they came; [`check`](Self::check), which does not wait,
    /// takes what is there. Dropping the future leaves the line; nothing has been charged then. A request that
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
        self.ask.permit = Some(table.next_permit());
        let ask = &self.ask;
        until_ready(&table.lines, &table.clock, ask.hash, |now| table.check_at_once(ask, now)).await?;
        Ok(Permit::keyed(Arc::clone(table), self.ask))
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
        self.limiter.table.refund(&self.ask, charged, self.limiter.clock().now())
    }

    /// What remains of its key, and when that is as new. Charges nothing.
    pub fn peek(&self) -> Status {
        self.limiter.table.status(&self.ask, self.limiter.clock().now())
    }
}

/// A table cannot tell more rules apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyRules;

impl std::fmt::Display for TooManyRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "the table has 65535 rules in use, which is the most; share rules between limiters or tiers",
        )
    }
}

impl std::error::Error for TooManyRules {}

#[cfg(test)]
mod tests;
