//! Several requests at once: all or nothing, or each on its own.

use std::hash::Hash;
use std::sync::Arc;

use tollgate_core::{Action, Decision, Timestamp, Verdict};

use super::{KeyedLimiter, Request};
use crate::Permit;
use crate::table::{BATCH, MOST_LIMITS, Prefetcher, Table, USUAL_LIMITS};

impl KeyedLimiter {
    /// The most requests that can be decided together.
    ///
    /// ```
    /// assert_eq!(tollgate::KeyedLimiter::MOST_TOGETHER, 32);
    /// ```
    pub const MOST_TOGETHER: usize = MOST_LIMITS;

    /// As many are usual, and cost least to make ready.
    ///
    /// ```
    /// assert_eq!(tollgate::KeyedLimiter::USUAL_TOGETHER, 8);
    /// ```
    pub const USUAL_TOGETHER: usize = USUAL_LIMITS;

    /// Decides several requests of limiters in one table at one instant: all are charged, or none.
    ///
    /// The same key of the same limiter may be named more than once, and pays for all of them. A concurrency limit
    /// is only looked at: to hold a place in it, [`acquire_all`](Self::acquire_all).
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let users = KeyedLimiter::new(TokenBucket::new(Rate::per_second(1)?, 1)?);
    /// let tenants = users.another(TokenBucket::new(Rate::per_second(10)?, 10)?);
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
    /// When the limiters are not of one table ([`another`](Self::another)), there is none or more than 32.
    pub fn check_all<const N: usize>(requests: [Request<'_>; N]) -> (Verdict, [Decision; N]) {
        let now = requests[0].limiter.clock().now();
        let mut decisions = [Decision::default(); N];
        let verdict = Self::check_all_at(&requests, now, &mut decisions);
        (verdict, decisions)
    }

    /// [`check_all`](Self::check_all) with a permit for each request: concurrency limits are not only looked at but
    /// hold a place until their permits are dropped. What rates were charged stays charged.
    ///
    /// ```
    /// use tollgate::{Concurrency, KeyedLimiter, Rate, TokenBucket};
    ///
    /// let rates = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1)?, 10)?);
    /// let flights = rates.another(Concurrency::new(1, None)?);
    /// let request = || [rates.ask("alice"), flights.ask("alice")];
    ///
    /// let permits = KeyedLimiter::acquire_all(request()).unwrap();
    /// let denied = KeyedLimiter::acquire_all(request()).unwrap_err();
    /// assert_eq!(denied.reported, Some(1));
    /// assert_eq!(rates.remaining("alice"), 9); // the second request cost nothing
    /// drop(permits);
    /// assert!(KeyedLimiter::acquire_all(request()).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The verdict, when it is denied.
    ///
    /// # Panics
    ///
    /// When the limiters are not of one table ([`another`](Self::another)), there is none or more than 32.
    pub fn acquire_all<const N: usize>(requests: [Request<'_>; N]) -> Result<[Permit; N], Verdict> {
        let requests = requests.map(|mut request| {
            request.ask.action = Action::Hold;
            request.ask.permit = Some(request.limiter.table.next_permit());
            request
        });
        let (verdict, _) = Self::check_all(requests);
        if !verdict.is_allowed() {
            return Err(verdict);
        }
        Ok(requests.map(|request| request.permit()))
    }

    /// [`check_all`](Self::check_all) of any number up to 32, at a given time, with the answer of each request
    /// written to `decisions`.
    ///
    /// ```
    /// use tollgate::{Decision, KeyedLimiter, Rate, TokenBucket};
    ///
    /// let users = KeyedLimiter::new(TokenBucket::new(Rate::per_second(1)?, 1)?);
    /// let tenants = users.another(TokenBucket::new(Rate::per_second(10)?, 10)?);
    /// let requests = vec![users.ask("alice"), tenants.ask("acme").cost(3)];
    /// let mut decisions = vec![Decision::default(); requests.len()];
    /// let verdict = KeyedLimiter::check_all_at(&requests, users.clock().now(), &mut decisions);
    /// assert!(verdict.is_allowed());
    /// assert_eq!(decisions[1].status.remaining, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// When the limiters are not of one table ([`another`](Self::another)), there is none or more than 32, or
    /// `decisions` is of another length.
    pub fn check_all_at(requests: &[Request<'_>], now: Timestamp, decisions: &mut [Decision]) -> Verdict {
        assert_eq!(requests.len(), decisions.len(), "one decision for each request");
        let table = Self::table_of(requests).expect("at least one request");
        let asks = requests.iter().map(|request| request.ask);
        table.decide(asks, now, |i, decision| decisions[i] = decision);
        let groups = requests.iter().map(|request| request.ask.group);
        Verdict::of(groups.zip(decisions.iter().copied()))
    }

    /// Decides requests to limiters of one table at one instant, by the [group](Request::group) and the [action](Request::action)
    /// of each. Calls `each` with the index of each request and its decision. Returns one permit for each slot that the requests
    /// now hold.
    ///
    /// The requests of [`Group::All`](crate::Group::All) and [`Group::AnyOf`](crate::Group::AnyOf) decide together: if they are
    /// denied, none of them is charged, except in full or by a rule that counts denied requests. Each request of
    /// [`Group::Independent`](crate::Group::Independent) is decided by itself.
    ///
    /// ```
    /// use tollgate::{Action, Concurrency, Decision, Group, KeyedLimiter, Rate, TokenBucket};
    ///
    /// let rates = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1)?, 10)?);
    /// let flights = rates.another(Concurrency::new(1, None)?);
    /// let planned = rates.another(TokenBucket::new(Rate::per_hour(1)?, 1)?); // not yet in force
    /// let requests = [
    ///     rates.ask("alice"),
    ///     flights.ask("alice").action(Action::Hold),
    ///     planned.ask("alice").group(Group::Independent),
    /// ];
    /// let now = rates.clock().now();
    /// let mut allowed = [false; 3];
    /// let permits = KeyedLimiter::decide_at(requests.into_iter(), now, |i, decision| allowed[i] = decision.is_allowed());
    /// assert_eq!((allowed, permits.len()), ([true; 3], 1));
    /// let none = KeyedLimiter::decide_at(requests.into_iter(), now, |i, decision| allowed[i] = decision.is_allowed());
    /// assert_eq!((allowed, none.len()), ([true, false, false], 0));
    /// assert_eq!(rates.remaining("alice"), 9); // the second request cost nothing
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// When the limiters are not of one table ([`another`](Self::another)), or more than 32 requests decide together.
    #[inline]
    pub fn decide_at<'r>(
        requests: impl Iterator<Item = Request<'r>> + Clone,
        now: Timestamp,
        each: impl FnMut(usize, Decision),
    ) -> Vec<Permit> {
        let Some(Request { limiter: KeyedLimiter { table, .. }, .. }) = requests.clone().next() else {
            return Vec::new();
        };
        let asks = requests.map(|request| {
            assert!(Arc::ptr_eq(&request.limiter.table, table), "{ONE_TABLE}");
            request.ask
        });
        let holding = table.decide(asks, now, each);
        holding.into_iter().map(|slot| Permit::keyed(Arc::clone(table), slot)).collect()
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
            requests.iter().for_each(|request| table.prefetch(&request.ask));
            for (request, decision) in requests.iter().zip(decisions) {
                *decision = table.check(&request.ask, now);
            }
        }
    }

    /// The table of all these limiters.
    fn table_of<'a>(requests: &[Request<'a>]) -> Option<&'a Arc<Table>> {
        let table = &requests.first()?.limiter.table;
        let same = requests.iter().all(|request| Arc::ptr_eq(&request.limiter.table, table));
        assert!(same, "{ONE_TABLE}");
        Some(table)
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
}

const ONE_TABLE: &str = "limiters that are asked together must be of one table: make them with `another`";
