//! A store for tests: its decisions are real, come late and out of order, or not at all.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tollgate::{KeyedLimiter, Permit, Rate, Request, Rule, Timestamp, TokenBucket};
use tollgate_policy::{
    Ask, Decisions, KeyState, Later, LimitDecision, LimitDecisions, Source, Store, StoredPermit, Unavailable,
};

use super::{Breaker, Health, ShardHealth};

/// A store whose clock stands still.
#[derive(Debug)]
pub(super) struct Slow {
    takes: Duration, // the longest that an answer takes
    table: KeyedLimiter,
    limiters: Mutex<HashMap<String, KeyedLimiter>>, // by limit and rule
    held: Mutex<HashMap<usize, Permit>>,
    is_gone: AtomicBool,
    calls: AtomicUsize,
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
}

const NOW: Timestamp = Timestamp::from_nanos(1_000_000_000);

impl Slow {
    pub(super) fn new(takes: Duration) -> Arc<Self> {
        let rule = TokenBucket::new(Rate::per_second(1).unwrap(), 1).unwrap();
        Arc::new(Self {
            takes,
            table: KeyedLimiter::new(rule),
            limiters: Mutex::default(),
            held: Mutex::default(),
            is_gone: AtomicBool::new(false),
            calls: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            most_under_way: AtomicUsize::new(0),
        })
    }

    /// From now on it gives no answer.
    pub(super) fn go(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
    }

    /// How many permits it keeps.
    pub(super) fn held(&self) -> usize {
        self.held.lock().len()
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    /// As many calls were under way at once.
    pub(super) fn most_under_way(&self) -> usize {
        self.most_under_way.load(Ordering::Relaxed)
    }

    /// What is decided is decided as soon as it is asked, and told later: of eight calls the first last.
    fn answer<'a, T: Send + 'a>(
        &'a self,
        what: impl FnOnce() -> T + Send + 'a,
    ) -> Later<'a, Result<T, Unavailable>> {
        Box::pin(async move {
            let call = self.calls.fetch_add(1, Ordering::Relaxed);
            let _under_way = UnderWay::new(self);
            let answer = match self.is_gone.load(Ordering::Relaxed) {
                true => Err(Unavailable {
                    why: "it is gone".to_owned(),
                    out_for: Duration::ZERO,
                    retry_after: Duration::from_millis(300),
                }),
                false => Ok(what()),
            };
            tokio::time::sleep(self.takes * (8 - (call % 8) as u32) / 8).await;
            answer
        })
    }

    fn decide_now(&self, asks: &[Ask<'_>]) -> Decisions {
        let mut limiters = self.limiters.lock();
        let name = |ask: &Ask<'_>| format!("{} {:?}", ask.limit, ask.rule);
        for ask in asks {
            limiters.entry(name(ask)).or_insert_with(|| self.table.another(ask.rule));
        }
        let request = |ask: &Ask<'_>| -> Request<'_> {
            let request = limiters[&name(ask)].ask(&ask.key[..]).cost(ask.cost);
            let request = request.action(ask.action).group(ask.group);
            if ask.is_denied { request.denied() } else { request }
        };
        let mut each: LimitDecisions = smallvec::smallvec![LimitDecision::default(); asks.len()];
        each.iter_mut().for_each(|each| each.key_state = KeyState::Stored { more_after: None });
        let requests: Vec<Request<'_>> = asks.iter().map(request).collect();
        let held =
            KeyedLimiter::decide_at(requests.into_iter(), NOW, |i, decision| each[i].decision = decision);
        let mut permits = Vec::new();
        for permit in held {
            let id = self.calls.fetch_add(1, Ordering::Relaxed);
            permits.push(StoredPermit { key: Vec::new(), id: id.to_string().into_bytes() });
            self.held.lock().insert(id, permit);
        }
        Decisions { source: Source::Store, each, permits }
    }

    fn release_now(&self, permits: &[StoredPermit]) -> bool {
        permits.iter().fold(true, |all, permit| {
            let id = std::str::from_utf8(&permit.id).unwrap().parse().unwrap();
            let taken = self.held.lock().remove(&id);
            all & taken.is_some_and(Permit::release)
        })
    }
}

/// Decisions on their way to the caller. If it leaves, its permits are released.
struct Unheard<'s> {
    decisions: Option<Decisions>,
    store: &'s Slow,
}

impl Drop for Unheard<'_> {
    fn drop(&mut self) {
        if let Some(decisions) = self.decisions.take() {
            self.store.release_now(&decisions.permits);
        }
    }
}

impl Store for Slow {
    fn decide<'a>(&'a self, asks: &'a [Ask<'_>]) -> Later<'a, Result<Decisions, Unavailable>> {
        Box::pin(async move {
            let unheard =
                self.answer(|| Unheard { decisions: Some(self.decide_now(asks)), store: self }).await;
            unheard.map(|mut unheard| unheard.decisions.take().expect("it is taken once"))
        })
    }

    fn release<'a>(&'a self, permits: &'a [StoredPermit]) -> Later<'a, Result<bool, Unavailable>> {
        self.answer(|| self.release_now(permits))
    }

    fn release_later(&self, permits: Vec<StoredPermit>) {
        self.release_now(&permits);
    }

    fn forget<'a>(&'a self, ask: &'a Ask<'_>) -> Later<'a, Result<bool, Unavailable>> {
        let of_limit = format!("{} ", ask.limit);
        self.answer(move || {
            let limiters = self.limiters.lock();
            let limiters = limiters.iter().filter(|(name, _)| name.starts_with(&of_limit));
            limiters.fold(false, |was_known, (_, limiter)| limiter.reset(&ask.key[..]) | was_known)
        })
    }

    fn require(&self, _: &Rule) -> Result<(), String> {
        Ok(())
    }

    fn nodes(&self) -> u32 {
        1
    }
}

impl Health for Slow {
    fn shards(&self) -> Vec<ShardHealth> {
        let is_gone = self.is_gone.load(Ordering::Relaxed);
        let shard = |address: &str, breaker| ShardHealth {
            name: address.to_owned(),
            address: address.to_owned(),
            breaker,
            since: Duration::from_secs(7),
            reason: (breaker == Breaker::Open).then(|| format!("{address}: it is gone")),
            calls: 40,
            errors: vec![("timeout", 2), ("refused", 1)],
            reconnects: 3,
        };
        let [first, second] = match is_gone {
            true => [Breaker::Open, Breaker::HalfOpen],
            false => [Breaker::Closed; 2],
        };
        let third = Breaker::Closed;
        vec![shard("10.0.0.1:6379", first), shard("10.0.0.2:6379", second), shard("10.0.0.3:6379", third)]
    }

    fn may_have_given(&self, permit: &StoredPermit) -> bool {
        std::str::from_utf8(&permit.id).is_ok_and(|id| id.parse::<usize>().is_ok())
    }
}

/// A call that is under way, until it is dropped.
struct UnderWay<'a>(&'a Slow);

impl<'a> UnderWay<'a> {
    fn new(store: &'a Slow) -> Self {
        let now = store.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        store.most_under_way.fetch_max(now, Ordering::Relaxed);
        Self(store)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}
