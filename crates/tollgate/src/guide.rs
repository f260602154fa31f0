//! From one limiter to a hierarchy, step by step. There is nothing to call here.
//!
//! 1. [One limit](#1-one-limit)
//! 2. [A limit for each key](#2-a-limit-for-each-key)
//! 3. [What a request costs](#3-what-a-request-costs)
//! 4. [Other numbers for some](#4-other-numbers-for-some)
//! 5. [Other numbers from now on](#5-other-numbers-from-now-on)
//! 6. [Several limits on one request](#6-several-limits-on-one-request)
//! 7. [Waiting instead of refusing](#7-waiting-instead-of-refusing)
//! 8. [How many at once](#8-how-many-at-once)
//! 9. [Sharing fairly, and following the load](#9-sharing-fairly-and-following-the-load)
//! 10. [Bounds](#10-bounds)
//! 11. [Testing what you built](#11-testing-what-you-built)
//! 12. [Which algorithm](#12-which-algorithm)
//! 13. [Zero, full, late, never](#13-zero-full-late-never)
//!
//! # 1. One limit
//!
//! A rule is an algorithm with its numbers. This one lets ten requests pass at once, and five a second in the long
//! run. A [`Limiter`] applies it to everybody together:
//!
//! ```
//! use tollgate::{Limiter, Rate, TokenBucket};
//!
//! let limiter = Limiter::new(TokenBucket::new(Rate::per_second(5)?, 10)?);
//! let decision = limiter.check();
//! if decision.is_allowed() {
//!     println!("200, {} remaining", decision.status.remaining);
//! }
//! # Ok::<(), tollgate::RuleError>(())
//! ```
//!
//! A rule is checked when it is built, so that a decision has no error: it is allowed or denied. A denial says how
//! long to wait, exactly: a nanosecond earlier it would still be denied. It has changed nothing, so asking in vain
//! costs nobody anything.
//!
//! # 2. A limit for each key
//!
//! A [`KeyedLimiter`] has a state for each key. A key is anything that can be hashed: a user, an address, a pair of
//! both. Only the hash is kept, under a [`Secret`] that nobody outside knows, so that nobody can make a key that
//! is taken for another's.
//!
//! ```
//! use std::net::IpAddr;
//! use tollgate::{KeyedLimiter, Rate, TokenBucket};
//!
//! let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(5)?, 10)?);
//! let address: IpAddr = "192.0.2.7".parse().unwrap();
//! assert!(limiter.check(&address).is_allowed());
//! assert!(limiter.check(&(address, "POST", "/login")).is_allowed());
//! # Ok::<(), tollgate::RuleError>(())
//! ```
//!
//! Keys are the same if they hash the same: `str` and `String` do, `u32` and `u64` do not. A key that has refilled is
//! as one that was never used, and makes room as new keys come. There is no sweep to remember, and no thread in the
//! background until somebody waits (7).
//!
//! # 3. What a request costs
//!
//! A request that does ten times the work can cost ten times as much. What turns out not to have been done can be
//! given back, by whoever knows when it was charged:
//!
//! ```
//! use tollgate::{KeyedLimiter, Rate, TokenBucket};
//!
//! let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(60)?, 100)?);
//! let charged = limiter.clock().now();
//! assert!(limiter.ask("alice").cost(50).check_at(charged).is_allowed());
//! limiter.ask("alice").cost(20).refund(charged); // 30 rows were exported, not 50
//! assert_eq!(limiter.remaining("alice"), 70);
//! # Ok::<(), tollgate::RuleError>(())
//! ```
//!
//! # 4. Other numbers for some
//!
//! Tiers are further sets of numbers of the same limiter. A key is asked under the tier it has at that moment, and
//! keeps its tokens when it moves to another:
//!
//! ```
//! use tollgate::{KeyedLimiter, Rate, TokenBucket};
//!
//! let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_minute(100)?, 20)?);
//! let pro = limiter.add_tier(TokenBucket::new(Rate::per_minute(1000)?, 200)?);
//! let tier_of = |tenant: &str| if tenant == "acme" { &pro } else { limiter.base_tier() };
//!
//! let check = |tenant: &str| limiter.ask(tenant).tier(tier_of(tenant)).check();
//! assert_eq!(check("acme").status.remaining, 199);
//! assert_eq!(check("globex").status.remaining, 19);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # 5. Other numbers from now on
//!
//! [`set_rule`](KeyedLimiter::set_rule) changes numbers while everything runs. A bucket keeps its tokens, a window its
//! count; nobody gets a fresh burst, however often the numbers change. No key is touched: each is carried over
//! when it is next asked for.
//!
//! ```
//! use tollgate::{KeyedLimiter, Rate, TokenBucket};
//!
//! let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(60)?, 100)?);
//! let _ = limiter.ask("alice").cost(95).check();
//! limiter.set_rule(TokenBucket::new(Rate::per_hour(60)?, 1000)?);
//! assert_eq!(limiter.remaining("alice"), 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # 6. Several limits on one request
//!
//! Limiters made with [`another`](KeyedLimiter::another) share one table, and can be asked in one step that nobody
//! else can come between. Either all of them are charged, or none: a user who is refused spends nothing of what
//! the tenant, or the whole service, has left.
//!
//! ```
//! use tollgate::{KeyedLimiter, Rate, SlidingCounter, Mode, TokenBucket};
//! use std::time::Duration;
//!
//! let service = KeyedLimiter::new(TokenBucket::new(Rate::per_second(3000)?, 3000)?);
//! let tenants = service.another(TokenBucket::new(Rate::per_minute(1000)?, 200)?);
//! let users = service.another(SlidingCounter::new(50, Duration::from_secs(60), 1, Mode::Interpolate)?);
//! let logins = service.another(TokenBucket::new(Rate::per_minute(10)?, 5)?);
//!
//! // The hierarchy of one request: everybody, the tenant, the user in it, and this route of the user.
//! let check = |tenant: &str, user: &str| {
//!     KeyedLimiter::check_all([
//!         service.ask(&()),
//!         tenants.ask(tenant),
//!         users.ask(&(tenant, user)),
//!         logins.ask(&(tenant, user)).cost(2),
//!     ])
//! };
//! assert!(check("acme", "alice").0.is_allowed());
//! assert!(check("acme", "alice").0.is_allowed());
//! let (verdict, decisions) = check("acme", "alice");
//! assert_eq!(verdict.reported, Some(3)); // her logins: the limit to tell her of
//! assert_eq!(decisions[1].status.remaining, 198); // acme paid for two requests, not for the third
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Requests that have nothing to do with each other, such as those of a pipeline, are decided faster together:
//! [`check_each`](KeyedLimiter::check_each).
//!
//! # 7. Waiting instead of refusing
//!
//! [`until_ready`](KeyedLimiter::until_ready) waits for its turn, in the order of arrival, on any runtime or none. A
//! future that is dropped has been charged nothing and holds nobody up, so a timeout of your runtime is all it
//! takes to give up:
//!
//! ```
//! # futures_lite::future::block_on(async {
//! use tollgate::{Limiter, Rate, TokenBucket};
//!
//! let upstream = Limiter::new(TokenBucket::new(Rate::per_second(200)?, 1)?);
//! for _ in 0..3 {
//!     upstream.until_ready().await?; // every five milliseconds
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! It waits by its own [`Clock`](crate::Clock), not by a runtime's: a test that stops the runtime's time should give the
//! limiter a [manual clock](crate::Clock::manual).
//!
//! A [`LeakyBucket`], or a [`MaxWait`] around a bucket, allows requests with a [delay](crate::Decision::delay). A
//! [`DelayQueue`](crate::DelayQueue) makes them wait for it. If one of them leaves, those behind it go sooner.
//!
//! # 8. How many at once
//!
//! A [`Concurrency`] limit counts what is in flight. A place is held by a [`Permit`] and given back when that is
//! dropped; with a lease it frees itself, should the holder vanish:
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{Concurrency, KeyedLimiter};
//!
//! let searches = KeyedLimiter::new(Concurrency::new(20, Some(Duration::from_secs(30)))?);
//! let permit = searches.ask("acme").acquire().expect("the first of twenty");
//! // the search
//! drop(permit);
//! # Ok::<(), tollgate::RuleError>(())
//! ```
//!
//! Together with rates, all or nothing: [`acquire_all`](KeyedLimiter::acquire_all). To wait for a place:
//! [`until_acquired`](crate::Request::until_acquired).
//!
//! # 9. Sharing fairly, and following the load
//!
//! A [`FairSemaphore`] has slots that tenants share by weight while there are not enough, whoever asks most; an
//! [`AdaptiveLimiter`] finds out how many slots there should be:
//!
//! ```
//! # futures_lite::future::block_on(async {
//! use tollgate::adaptive::{Bounds, Gradient2};
//! use tollgate::{AdaptiveLimiter, Weight};
//!
//! let backend = AdaptiveLimiter::new(Gradient2::new(20, Bounds::new(5, 200)?));
//! let weight = Weight::new(8).expect("not 0");
//! let slot = backend.semaphore().ask("globex").weight(weight).acquire().await?;
//! let flight = backend.begin(slot);
//! // the request
//! flight.success(); // or dropped(), or ignore()
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! Rates follow the load where tiers have a [`Shed`] class: told what a control interval saw, a
//! [`RateMultiplier`](crate::adaptive::RateMultiplier) says how much is left of them, and
//! [`set_paces`](KeyedLimiter::set_paces) slows all limiters of a table by it. Nobody is handed anything by a change;
//! tokens only come back more slowly, and windows let fewer pass:
//!
//! ```
//! use tollgate::adaptive::{Load, RateMultiplier};
//! use tollgate::{Clock, KeyedLimiter, Numbers, Rate, Shed, TokenBucket};
//!
//! let rule = TokenBucket::new(Rate::per_second(100)?, 10)?;
//! let limiter = KeyedLimiter::builder(rule).clock(Clock::manual()).build();
//! let free = limiter.add_tier(Numbers { rule: rule.into(), shed: Shed::Normal });
//! let _ = limiter.ask("acme").tier(&free).cost(10).check();
//!
//! let mut multiplier = RateMultiplier::new(100)?; // not below a tenth
//! multiplier.observe(Load::High);
//! limiter.set_paces(&multiplier); // 80 a second from now on
//! let wait = limiter.ask("acme").tier(&free).check().retry_after().unwrap();
//! assert_eq!(wait.to_string(), "12.5ms");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # 10. Bounds
//!
//! A table remembers ten million keys at most, or as many as [`max_keys`](crate::Builder::max_keys) says, in as many
//! bytes as [`max_bytes`](crate::Builder::max_bytes) says. Keys that are no longer used make room first. Where all are
//! in use, [`WhenFull`] says what becomes of a newcomer; a key that is being limited is never forgotten for one.
//! [`Stats`](crate::Stats) tell what had to be done:
//!
//! ```
//! use tollgate::{KeyedLimiter, Rate, TokenBucket, WhenFull};
//!
//! let rule = TokenBucket::new(Rate::per_second(5)?, 10)?;
//! let limiter = KeyedLimiter::builder(rule)
//!     .max_keys(1_000_000)
//!     .max_bytes(64 << 20)
//!     .when_full(WhenFull::Deny)
//!     .build();
//! let stats = limiter.stats();
//! println!("{} keys, {} bytes, {} turned away", stats.keys, stats.bytes, stats.refused);
//! # Ok::<(), tollgate::RuleError>(())
//! ```
//!
//! # 11. Testing what you built
//!
//! A [manual clock](crate::Clock::manual) stands still until it is moved, which also wakes whoever waits:
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{Clock, KeyedLimiter, Rate, TokenBucket};
//!
//! let rule = TokenBucket::new(Rate::per_second(5)?, 1)?;
//! let limiter = KeyedLimiter::builder(rule).clock(Clock::manual()).build();
//! assert!(limiter.check("alice").is_allowed());
//! limiter.clock().advance(Duration::from_nanos(199_999_999));
//! assert!(!limiter.check("alice").is_allowed());
//! limiter.clock().advance(Duration::from_nanos(1));
//! assert!(limiter.check("alice").is_allowed());
//! # Ok::<(), tollgate::RuleError>(())
//! ```
//!
//! # 12. Which algorithm
//!
//! | to limit | take |
//! |---|---|
//! | a rate, with bursts: the usual choice | [`TokenBucket`] |
//! | a rate, at an even pace downstream | [`LeakyBucket`] |
//! | a rate, letting short waits through | [`MaxWait`] around either |
//! | a rate, with bursts that are saved up | [`BurstCredits`] |
//! | a count per calendar window, such as a daily quota | [`FixedWindow`] |
//! | a count in any minute, promised to somebody | [`SlidingLog`] |
//! | the same, nearly, for many keys or large counts | [`SlidingCounter`] |
//! | how many at once | [`Concurrency`] |
//!
//! Each says on its own page what it promises, what a key takes, and when to take another.
//!
//! # 13. Zero, full, late, never
//!
//! | | what happens |
//! |---|---|
//! | a cost of 0 | passes, charges nothing, tells what remains |
//! | a limit, burst, rate or window of 0 | is refused when the rule is built |
//! | a limit that is full | denies, says how long to wait, and is left as it was |
//! | a cost above the burst or limit | denied, [`Retry::Never`](crate::Retry::Never): no wait would help |
//! | a concurrency limit without a lease | denied, [`Retry::Unknown`](crate::Retry::Unknown): somebody must give a permit back |
//! | a table that is full of keys in use | [`WhenFull`]; denied with [`Retry::Unknown`](crate::Retry::Unknown) |
//! | a line that is full | [`NotReady::TooManyWaiting`](crate::NotReady::TooManyWaiting), [`NoSlot`](crate::NoSlot) |
//! | a time before that of an earlier request | late, never early: it may deny more, and gains nothing then or later |
//! | a refund that comes late | gives back what still counts, which may be nothing |
//! | a permit that is dropped after its lease | frees nobody else's place |

use crate::{
    AdaptiveLimiter, BurstCredits, Concurrency, FairSemaphore, FixedWindow, KeyedLimiter, LeakyBucket,
    Limiter, MaxWait, Permit, Secret, Shed, SlidingCounter, SlidingLog, TokenBucket, WhenFull,
};
