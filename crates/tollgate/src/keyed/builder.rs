//! How a limiter is made.

use std::sync::Arc;

use tollgate_core::Rule;

use super::KeyedLimiter;
use crate::table::{Part, Settings, Table, WhenFull};
use crate::{Clock, Secret};

/// How a [`KeyedLimiter`] is made.
///
/// ```
/// use tollgate::{KeyedLimiter, Rate, TokenBucket};
///
/// let rule = TokenBucket::new(Rate::per_second(5)?, 10)?;
/// let limiter = KeyedLimiter::builder(rule).max_keys(1_000_000).max_bytes(64 << 20).build();
/// assert!(limiter.check("alice").is_allowed());
/// # Ok::<(), tollgate::RuleError>(())
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until it builds"]
pub struct Builder {
    pub(super) rule: Rule,
    pub(super) settings: Settings,
}

impl Builder {
    /// The most keys remembered at once: ten million unless told otherwise, and one at least. See [`WhenFull`].
    /// A table is cut into parts that each have their share of the bound, so that the last few places may stay empty.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let rule = TokenBucket::new(Rate::per_hour(1)?, 10)?;
    /// let limiter = KeyedLimiter::builder(rule).max_keys(1000).build();
    /// for user in 0..5000 {
    ///     let _ = limiter.check(&user);
    /// }
    /// assert!(limiter.stats().keys <= 1000);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
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

    /// Gives the table a second part of at most `max_bytes`, or without a bound on bytes. It can have as many keys as
    /// the first part. Limiters of both parts can be asked together. Keys and rules in one part take no room from the
    /// other part. So keys of callers that send their own rules ([`Request::rule`](crate::Request::rule)) cannot
    /// evict other keys.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let rule = TokenBucket::new(Rate::per_second(5)?, 10)?;
    /// let limiter = KeyedLimiter::builder(rule).max_bytes(3 << 20).second_part(Some(1 << 20)).build();
    /// let guests = limiter.another_in_second_part(rule);
    /// assert!(KeyedLimiter::check_all([limiter.ask("alice"), guests.ask("bob")]).0.is_allowed());
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn second_part(mut self, max_bytes: Option<usize>) -> Self {
        self.settings.second_part = Some(max_bytes);
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
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket, WhenFull};
    ///
    /// let rule = TokenBucket::new(Rate::per_hour(1)?, 10)?;
    /// let limiter = KeyedLimiter::builder(rule).max_keys(1).when_full(WhenFull::Allow).build();
    /// assert!(limiter.check("alice").is_allowed());
    /// assert!((0..100).all(|_| limiter.check("bob").is_allowed())); // whom nobody remembers
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.settings.when_full = when_full;
        self
    }

    /// Where the time comes from.
    ///
    /// ```
    /// use tollgate::{Clock, KeyedLimiter, Nanos, Rate, TokenBucket};
    ///
    /// let clock = Clock::manual();
    /// let rule = TokenBucket::new(Rate::per_second(1)?, 1)?;
    /// let limiter = KeyedLimiter::builder(rule).clock(clock.clone()).build();
    /// clock.advance(Nanos::new(5));
    /// assert_eq!(limiter.clock().now(), clock.now());
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn clock(mut self, clock: Clock) -> Self {
        self.settings.clock = clock;
        self
    }

    /// What keys are hashed under, for those who must know: random unless told otherwise.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, Secret, TokenBucket};
    ///
    /// let rule = TokenBucket::new(Rate::per_second(5)?, 10)?;
    /// let limiter = KeyedLimiter::builder(rule).secret(Secret::from_words([1, 2])).build(); // for a test
    /// assert!(limiter.check("alice").is_allowed());
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn secret(mut self, secret: Secret) -> Self {
        self.settings.secret = secret;
        self
    }

    /// Makes the limiter.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::builder(TokenBucket::new(Rate::per_second(5)?, 10)?).build();
    /// assert_eq!(limiter.stats().keys, 0);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn build(self) -> KeyedLimiter {
        let table = Arc::new(Table::new(self.settings));
        KeyedLimiter::within(&table, Part::First, self.rule)
    }
}
