//! Several requests at once: all or nothing, or each on its own.

use std::hash::Hash;
use std::sync::Arc;

use tollgate_core::{Decision, PermitId, Timestamp, Verdict};

use super::{KeyedLimiter, Request};
use crate::Permit;
use crate::table::{Ask, MOST_LIMITS, Prefetcher, Table, USUAL_LIMITS};

/// Requests whose slots are fetched side by side: about as many as a processor waits for at once.
const BATCH: usize = 16;

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
    /// let flights = rates.another(Concurrency::new(1, None)?)?;
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
            request.ask.permit = Some(request.limiter.table.next_permit());
            request
        });
        let (verdict, _) = Self::check_all(requests);
        if !verdict.is_allowed() {
            return Err(verdict);
        }
        Ok(requests.map(|request| Permit::keyed(Arc::clone(&request.limiter.table), request.ask)))
    }

    /// [`check_all`](Self::check_all) of any number up to 32, at a given time, with the answer of each request
    /// written to `decisions`.
    ///
    /// ```
    /// use tollgate::{Decision, KeyedLimiter, Rate, TokenBucket};
    ///
    /// let users = KeyedLimiter::new(TokenBucket::new(Rate::per_second(1)?, 1)?);
    /// let tenants = users.another(TokenBucket::new(Rate::per_second(10)?, 10)?)?;
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
        if requests.len() <= USUAL_LIMITS {
            let (table, asks) = Self::plan::<USUAL_LIMITS>(requests);
            return table.check_all(&asks[..requests.len()], now, decisions);
        }
        let (table, asks) = Self::plan::<MOST_LIMITS>(requests);
        table.check_all(&asks[..requests.len()], now, decisions)
    }

    /// [`check_all_at`](Self::check_all_at) that holds a place in each concurrency limit, with a permit for each
    /// request to one, in their order. A request of cost 0 holds none, nor do rates, which keep what they charged.
    /// Where the verdict is a denial there are no permits.
    ///
    /// ```
    /// use tollgate::{Concurrency, Decision, KeyedLimiter, Rate, TokenBucket};
    ///
    /// let rates = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1)?, 10)?);
    /// let flights = rates.another(Concurrency::new(1, None)?)?;
    /// let requests = vec![rates.ask("alice"), flights.ask("alice")];
    /// let (now, mut decisions) = (rates.clock().now(), vec![Decision::default(); 2]);
    ///
    /// let (verdict, permits) = KeyedLimiter::acquire_all_at(&requests, now, &mut decisions);
    /// assert!(verdict.is_allowed());
    /// assert_eq!((permits.len(), flights.remaining("alice")), (1, 0));
    /// let (verdict, none) = KeyedLimiter::acquire_all_at(&requests, now, &mut decisions);
    /// assert_eq!((verdict.reported, none.len()), (Some(1), 0));
    /// drop(permits);
    /// assert_eq!(flights.remaining("alice"), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// As [`check_all_at`](Self::check_all_at).
    pub fn acquire_all_at(
        requests: &[Request<'_>],
        now: Timestamp,
        decisions: &mut [Decision],
    ) -> (Verdict, Vec<Permit>) {
        let (table, mut asks) = Self::plan::<MOST_LIMITS>(requests);
        let asks = &mut asks[..requests.len()];
        // Which of them need one is known only once their shards are locked.
        let PermitId(first) = table.next_permits(asks.len());
        asks.iter_mut().zip(first..).for_each(|(ask, id)| ask.permit = Some(PermitId(id)));
        let (verdict, has_place) = table.acquire_all(asks, now, decisions);
        let holding = asks.iter().zip(has_place).filter(|(_, has_place)| *has_place);
        (verdict, holding.map(|(ask, _)| Permit::keyed(Arc::clone(table), *ask)).collect())
    }

    /// What is asked of which table.
    fn plan<'a, const N: usize>(requests: &[Request<'a>]) -> (&'a Arc<Table>, [Ask; N]) {
        assert!(requests.len() <= MOST_LIMITS, "at most {MOST_LIMITS} requests can be decided together");
        let table = Self::table_of(requests).expect("at least one request");
        let mut asks = [Ask::NOTHING; N];
        asks.iter_mut().zip(requests).for_each(|(ask, request)| *ask = request.ask);
        (table, asks)
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
    fn table_of<'a>(requests: &[Request<'a>]) -> Option<&'a Arc<Table>> {
        let table = &requests.first()?.limiter.table;
        let same = requests.iter().all(|request| Arc::ptr_eq(&request.limiter.table, table));
        assert!(same, "limiters that are asked together must be of one table: make them with `another`");
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
