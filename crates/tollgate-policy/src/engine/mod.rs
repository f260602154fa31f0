//! Decides requests by a policy: attributes, plan, verdict.

mod attributes;
mod cells;
mod conditions;
mod descriptors;
mod explain;
mod in_force;
mod overrides;
mod plan;
mod pressure;
mod share;
mod shared;
mod throttle;
mod together;
mod verdict;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use arc_swap::{ArcSwap, Guard};
use parking_lot::{Mutex, RwLock};
use tollgate::{
    Clock, Decision, KeyedLimiter, Permit, Rate, Rule, Stats, Status, Timestamp, TokenBucket, TooManyRules,
};

use self::cells::Cells;
use self::in_force::{Here, InForce, Standing};
use self::overrides::Overrides;
use self::pressure::Pressure;
use self::shared::Shared;
use self::throttle::{Sent, Throttle};
use crate::policy::{Memory, OnError, Policy, StoreSettings};
use crate::store::{Does, Store, Unavailable};

pub use self::cells::{CellNumbers, CellRequest};
pub use self::explain::{Explained, Explanation};
pub use self::overrides::Override;
pub use self::plan::Plan;
pub(crate) use self::plan::{MOST_LIMITS, USUAL_LIMITS};
pub use self::shared::Permits;
pub use self::throttle::{ThrottleError, Throttled};
pub use self::together::{Answer, Described, Hits, NotDecided, Together};
pub use self::verdict::{Key, LimitVerdict, Reason, Summary, Verdict};

/// Decides requests by a policy, which can be changed while it is in use.
///
/// ```
/// use std::path::Path;
/// use tollgate_policy::{Engine, Policy, Request};
///
/// let file = "limits: [{ name: per-user, key: [user], token_bucket: { rate: 1/min, burst: 2 } }]";
/// let engine = Engine::new(Policy::read(Path::new("tollgate.yaml"), file)?)?;
/// let request = Request { attributes: &[("user", "alice")], cost: None };
/// let allowed = [(); 3].map(|()| engine.policy().check(&request, engine.clock().now()).unwrap().is_allowed());
/// assert_eq!(allowed, [true, true, false]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Engine {
    in_force: ArcSwap<InForce>,
    changing: Mutex<HashMap<String, usize>>, // one change at a time; the numbers of limits by name
    limiter: KeyedLimiter,                   // any of the policy's table
    throttle: Throttle,
    cells: Cells,                          // in the table of throttle
    overrides: Overrides,                  // in the policy's table
    live: RwLock<HashMap<String, String>>, // tiers of tenants, as they were told at run time
    has_live: AtomicBool,                  // whether there ever was one
    pressure: Pressure,
    shared: Option<Shared>, // where states are kept, if not in this process
    nodes: Arc<AtomicU32>,  // among how many the rates are divided when the store is gone
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What is known of the request, as names and values. Of a name that comes twice, the first counts.
    pub attributes: &'a [(&'a str, &'a str)],
    /// What it costs, where the caller says so. 0 peeks: nothing is charged.
    pub cost: Option<u64>,
}

/// More limits apply to a request than can be decided together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} limits apply to this request, and {MOST_LIMITS} is the most: {}", .limits.len(), .limits.join(", "))]
pub struct TooManyLimits {
    /// Those that apply.
    pub limits: Vec<String>,
}

/// Why a policy cannot be put in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// It asks for what is not built yet.
    #[error("not built yet: {}", .0.join("; "))]
    NotBuilt(Vec<String>),
    /// It has more sets of numbers than a table tells apart.
    #[error(
        "the policy has too many sets of numbers: 65535 are the most, over all limits, their tiers and their tenants"
    )]
    TooManyRules,
    /// It asks for a store that is not there.
    #[error("the policy keeps its states in Redis: the engine needs a store for that")]
    NoStore,
    /// The store cannot keep the states of some of its limits.
    #[error("the store cannot keep these limits: {}", .0.join("; "))]
    Store(Vec<String>),
}

impl From<TooManyRules> for EngineError {
    fn from(_: TooManyRules) -> Self {
        Self::TooManyRules
    }
}

/// Why a tenant could not be given a tier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TenantError {
    /// There is no such tier.
    #[error("unknown tier `{tier}`: the tiers are {}", .known.join(", "))]
    UnknownTier {
        /// The one that was named.
        tier: String,
        /// Those there are.
        known: Vec<String>,
    },
    /// As many tenants as may be have been told already.
    #[error(
        "{MOST_LIVE_TENANTS} tenants have been given a tier at run time, and that is the most: write them in the policy file"
    )]
    TooMany,
}

/// As many tenants can be given a tier at run time.
const MOST_LIVE_TENANTS: usize = 100_000;

/// What a limit has of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyStatus {
    /// The key, part by part.
    pub key: Vec<String>,
    /// The rule it is decided by.
    pub rule: Rule,
    /// The most that can pass at once.
    pub capacity: u64,
    /// What remains, and when it is as new.
    pub status: Status,
}

impl Engine {
    /// An engine in memory.
    ///
    /// # Errors
    ///
    /// When the policy asks for what is not built yet or for a store, or has too many sets of numbers.
    pub fn new(policy: Policy) -> Result<Self, EngineError> {
        Self::with_clock(policy, Clock::new())
    }

    /// [`new`](Self::new), with a clock that a test can move.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_clock(policy: Policy, clock: Clock) -> Result<Self, EngineError> {
        if matches!(policy.store, StoreSettings::Redis(_)) {
            return Err(EngineError::NoStore);
        }
        Self::build(policy, clock, None)
    }

    /// An engine whose states are in a store that several processes share. Its clock is only for what this process
    /// decides by itself while the store is gone.
    ///
    /// # Errors
    ///
    /// When the policy asks for what is not built yet, has too many sets of numbers, or limits that the store cannot keep.
    pub fn with_store(policy: Policy, clock: Clock, store: Arc<dyn Store>) -> Result<Self, EngineError> {
        let on_error = match &policy.store {
            StoreSettings::Redis(redis) => redis.on_error,
            StoreSettings::Memory(_) => OnError::default(),
        };
        Self::build(policy, clock, Some(Shared { store, on_error }))
    }

    fn build(policy: Policy, clock: Clock, shared: Option<Shared>) -> Result<Self, EngineError> {
        let not_built = policy.not_built();
        if !not_built.is_empty() {
            return Err(EngineError::NotBuilt(not_built));
        }
        require_kept(&policy, shared.as_ref())?;
        let memory = match &policy.store {
            StoreSettings::Memory(memory) => memory.clone(),
            StoreSettings::Redis(_) => Memory::default(),
        };
        // A table begins with a limiter; nobody is ever asked of this one.
        let rule = TokenBucket::new(Rate::per_second(1).expect("a rate"), 1).expect("a bucket");
        let table = || {
            let mut builder = KeyedLimiter::builder(rule).clock(clock.clone()).when_full(memory.when_full);
            if let Some(max_keys) = memory.max_keys {
                builder = builder.max_keys(usize::try_from(max_keys).unwrap_or(usize::MAX));
            }
            if let Some(max_bytes) = memory.max_bytes {
                builder = builder.max_bytes(max_bytes);
            }
            builder.build()
        };
        // Rules that callers send have a table of their own: however many they are, the policy's have their numbers.
        let nodes = shared.as_ref().map_or(1, |shared| shared.store.nodes());
        let here = shared.as_ref().map_or(Here::All, |_| Here::ShareOf(nodes));
        let nodes = Arc::new(AtomicU32::new(nodes));
        let shares = shared.as_ref().map(|_| Arc::clone(&nodes));
        let (limiter, throttle) = (table(), Throttle::new(table(), shares.clone()));
        let cells = Cells::new(throttle.limiter().another(rule)?, shares.clone());
        let overrides = Overrides::new(limiter.another(rule)?, shares);
        let mut numbers = HashMap::new();
        let pressure = Pressure::new(policy.adaptive_rates);
        let in_force = InForce::new(policy, None, &limiter, &mut numbers, here)?;
        Ok(Self {
            in_force: ArcSwap::from_pointee(in_force),
            changing: Mutex::new(numbers),
            limiter,
            throttle,
            cells,
            overrides,
            live: RwLock::default(),
            has_live: AtomicBool::new(false),
            pressure,
            shared,
            nodes,
        })
    }

    /// Whether states are in a store that several processes share, which has to be waited for.
    pub const fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Where the time comes from. Read it once for a request, or for a batch of them.
    pub fn clock(&self) -> &Clock {
        self.limiter.clock()
    }

    /// The policy in force, to decide by. It stays as it is while it is held, so hold it for a request, or for a batch of
    /// them.
    pub fn policy(&self) -> PolicyInForce<'_> {
        PolicyInForce { engine: self, in_force: self.in_force.load() }
    }

    /// Decides a request by a rule that comes with it: an algorithm, as the policy file names it, and its numbers as a JSON
    /// object.
    ///
    /// ```
    /// use tollgate_policy::{Engine, Policy};
    ///
    /// let engine = Engine::new(Policy::default())?;
    /// let throttle = || engine.throttle("alice", "token_bucket", r#"{"rate":"5/s","burst":2}"#, 1, engine.clock().now());
    /// assert_eq!(throttle()?.decision.status.remaining, 1);
    /// assert_eq!(throttle()?.rule.capacity(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the rule makes no sense, or too many different rules are in use.
    pub fn throttle(
        &self,
        key: &str,
        algorithm: &str,
        numbers: &str,
        cost: u64,
        now: Timestamp,
    ) -> Result<Throttled, ThrottleError> {
        self.throttle.check(&Sent { key, algorithm, numbers, cost }, now)
    }

    /// Decides requests by rules that come with them as whole numbers, each on its own and in order, and tells `each` what
    /// was decided. Their keys are fetched from memory side by side; nothing is allocated but for a rule that is new.
    ///
    /// An error means that the rule makes no sense, or that too many different ones are in use.
    ///
    /// ```
    /// use tollgate_policy::{CellNumbers, CellRequest, Engine, Policy};
    ///
    /// let engine = Engine::new(Policy::default())?;
    /// let numbers = CellNumbers { max_burst: 1, count: 30, period: 60 };
    /// let request = CellRequest { key: b"alice", numbers, quantity: 1 };
    /// let mut allowed = Vec::new();
    /// engine.throttle_cells(&[request; 3], engine.clock().now(), |decision| allowed.push(decision.unwrap().is_allowed()));
    /// assert_eq!(allowed, [true, true, false]);
    /// # Ok::<(), tollgate_policy::EngineError>(())
    /// ```
    pub fn throttle_cells(
        &self,
        requests: &[CellRequest<'_>],
        now: Timestamp,
        each: impl FnMut(Result<Decision, ThrottleError>),
    ) {
        self.cells.check_each(requests, now, each);
    }

    /// Forgets a key of [`throttle_cells`](Self::throttle_cells): whether it was remembered.
    pub fn reset_cell(&self, key: &[u8]) -> bool {
        self.cells.reset(key)
    }

    /// Puts another policy in force. Limits are known by their names: changed numbers convert each key by its tokens, and
    /// a changed algorithm or key starts afresh. On an error the old policy stays as it is.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn reload(&self, policy: Policy) -> Result<(), EngineError> {
        let not_built = policy.not_built();
        if !not_built.is_empty() {
            return Err(EngineError::NotBuilt(not_built));
        }
        require_kept(&policy, self.shared.as_ref())?;
        let mut numbers = self.changing.lock();
        let before = self.in_force.load_full();
        let adaptive_rates = policy.adaptive_rates;
        let in_force = InForce::new(policy, Some(&before), &self.limiter, &mut numbers, self.here())?;
        self.live.write().retain(|_, tier| in_force.tier(tier).is_some());
        self.in_force.store(Arc::new(in_force));
        self.pressure.reload(adaptive_rates, &self.limiter);
        Ok(())
    }

    /// To be called every second: where the number of processes that share the store has changed, so has the share of each.
    pub fn share(&self) {
        let Some(shared) = &self.shared else { return };
        let nodes = shared.store.nodes();
        if self.nodes.swap(nodes, Ordering::Relaxed) == nodes {
            return;
        }
        let mut numbers = self.changing.lock();
        let before = self.in_force.load_full();
        // With as many rules as before, there is room for them.
        if let Ok(same) =
            InForce::new(before.policy.clone(), Some(&before), &self.limiter, &mut numbers, self.here())
        {
            self.in_force.store(Arc::new(same));
        }
    }

    /// What the table of this process decides by.
    fn here(&self) -> Here {
        match self.shared {
            None => Here::All,
            Some(_) => Here::ShareOf(self.nodes.load(Ordering::Relaxed)),
        }
    }

    /// Gives a tenant a tier, until it is given another or the process ends. Limits that the tenant has numbers of its
    /// own for stay as they are.
    ///
    /// # Errors
    ///
    /// When there is no such tier, or too many tenants have been given one.
    pub fn set_tier(&self, tenant: &str, tier: &str) -> Result<(), TenantError> {
        let in_force = self.in_force.load();
        if in_force.tier(tier).is_none() {
            let mut known: Vec<String> = in_force.policy.tiers.keys().cloned().collect();
            known.sort_unstable();
            return Err(TenantError::UnknownTier { tier: tier.to_owned(), known });
        }
        let mut live = self.live.write();
        if live.len() >= MOST_LIVE_TENANTS && !live.contains_key(tenant) {
            return Err(TenantError::TooMany);
        }
        live.insert(tenant.to_owned(), tier.to_owned());
        self.has_live.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// What is held, by the policy's limits and by rules that callers sent, and what had to be done to stay within the bounds,
    /// which each of the two has.
    pub fn stats(&self) -> Stats {
        let (mut stats, sent) = (self.limiter.stats(), self.throttle.limiter().stats());
        stats.keys += sent.keys;
        stats.bytes += sent.bytes;
        stats.evictions += sent.evictions;
        stats.refused += sent.refused;
        stats.most_touched = stats.most_touched.max(sent.most_touched);
        stats
    }

    /// What a tenant is entitled to: the tier it was given at run time, and what the policy has for it.
    fn standing<'p>(&self, in_force: &'p InForce, tenant: Option<&str>) -> Standing<'p> {
        let mut standing = in_force.standing(tenant);
        // Few are given a tier at run time, and whoever does not do it pays nothing for it.
        if let Some(tenant) = tenant
            && self.has_live.load(Ordering::Relaxed)
            && let Some(tier) = self.live.read().get(tenant).and_then(|tier| in_force.tier(tier))
        {
            standing.tier = Some(tier);
        }
        standing
    }
}

/// Refuses limits that the store cannot keep.
fn require_kept(policy: &Policy, shared: Option<&Shared>) -> Result<(), EngineError> {
    let Some(Shared { store, .. }) = shared else { return Ok(()) };
    let faults = policy.store_faults(|rule| store.require(rule));
    if faults.is_empty() { Ok(()) } else { Err(EngineError::Store(faults)) }
}

/// The policy in force when it was asked for.
#[derive(Debug)]
pub struct PolicyInForce<'e> {
    engine: &'e Engine,
    in_force: Guard<Arc<InForce>>,
}

impl PolicyInForce<'_> {
    /// Which limits apply to a request where nobody can hold a permit, so that concurrency limits do not act. Nothing is
    /// decided yet: whoever has several requests knows of all that they can be decided before one is.
    ///
    /// # Errors
    ///
    /// When more than 32 limits apply.
    pub fn plan<'a>(&'a self, request: &Request<'a>) -> Result<Plan<'a>, TooManyLimits> {
        Plan::new(self.engine, &self.in_force, request, plan::Permits::Cannot, None)
    }

    /// [`plan`](Self::plan) where permits can be held, with the concurrency limits that apply: to
    /// [`acquire`](Plan::acquire).
    ///
    /// # Errors
    ///
    /// When more than 32 limits apply.
    pub fn plan_with_permits<'a>(&'a self, request: &Request<'a>) -> Result<Plan<'a>, TooManyLimits> {
        Plan::new(self.engine, &self.in_force, request, plan::Permits::Can, None)
    }

    /// Whether every one of several requests can be decided.
    ///
    /// # Errors
    ///
    /// When more than 32 limits apply to one.
    pub fn require_few(&self, requests: &[Request<'_>]) -> Result<(), TooManyLimits> {
        // Of so few limits, more cannot apply.
        if self.in_force.limits.len() <= MOST_LIMITS {
            return Ok(());
        }
        requests.iter().try_for_each(|request| self.plan(request).map(drop))
    }

    /// Decides a request: all limits that apply are charged, or none. Concurrency limits do not act here, where nobody
    /// can hold a permit.
    ///
    /// # Errors
    ///
    /// When more than 32 limits apply. Nothing is charged.
    pub fn check<'a>(&'a self, request: &Request<'a>, now: Timestamp) -> Result<Verdict<'a>, TooManyLimits> {
        Ok(self.plan(request)?.check(now))
    }

    /// [`check`](Self::check), with permits for the concurrency limits that apply. Dropping them gives them back.
    ///
    /// # Errors
    ///
    /// When more than 32 limits apply. Nothing is charged.
    pub fn acquire<'a>(
        &'a self,
        request: &Request<'a>,
        now: Timestamp,
    ) -> Result<(Verdict<'a>, Vec<Permit>), TooManyLimits> {
        Ok(self.plan_with_permits(request)?.acquire(now))
    }

    /// [`check_together`](Self::check_together), wherever states are kept.
    ///
    /// # Errors
    ///
    /// As [`check_together`](Self::check_together).
    pub async fn decide_together<'a>(
        &'a self,
        requests: &[Described<'a>],
        now: Timestamp,
    ) -> Result<Together<'a>, NotDecided> {
        Together::decide(self.engine, &self.in_force, requests, now).await
    }

    /// Decides the descriptors of one request of Envoy: what is given back is given back first; then all limits that
    /// apply to any of them are charged, or none. Limits apply by the entries, which are attributes, and by what the
    /// policy has of the descriptors themselves.
    ///
    /// # Errors
    ///
    /// When more than 32 limits apply, or too many different limits were sent. Nothing is charged.
    pub fn check_together<'a>(
        &'a self,
        requests: &[Described<'a>],
        now: Timestamp,
    ) -> Result<Together<'a>, NotDecided> {
        Together::check(self.engine, &self.in_force, requests, now)
    }

    /// Every limit of the policy: whether it applies to a request and why, and what it would decide. Charges nothing.
    pub fn explain<'a>(&'a self, request: &Request<'a>, now: Timestamp) -> Explanation<'a> {
        let standing = self.engine.standing(&self.in_force, plan::tenant(request.attributes));
        Explanation::new(&self.in_force, request, &standing, now, self.engine.pressure.is_reduced())
    }

    /// [`explain`](Self::explain), wherever states are kept.
    ///
    /// # Errors
    ///
    /// When the store gives no answer.
    pub async fn look_into<'a>(
        &'a self,
        request: &Request<'a>,
        now: Timestamp,
    ) -> Result<Explanation<'a>, Unavailable> {
        let mut explanation = self.explain(request, now);
        if let Some(shared) = &self.engine.shared {
            explanation.ask_store(self.engine, &self.in_force, request, &*shared.store).await?;
        }
        Ok(explanation)
    }

    /// [`key`](Self::key), wherever states are kept.
    ///
    /// # Errors
    ///
    /// When the store gives no answer.
    pub async fn look_at_key(
        &self,
        limit: &str,
        attributes: &[(&str, &str)],
        now: Timestamp,
    ) -> Result<Option<KeyStatus>, Unavailable> {
        let Some(mut found) = self.key(limit, attributes, now) else { return Ok(None) };
        if let (Some(shared), Some((_, limit))) = (&self.engine.shared, self.in_force.find(limit)) {
            let key: Key<'_> = found.key.iter().map(String::as_str).collect();
            let ask = limit.stored_ask(found.rule, &key, 0, Does::Preview);
            let decided = shared.store.decide(&[ask], false).await?;
            found.status = shared::only(&decided).status;
        }
        Ok(Some(found))
    }

    /// [`reset`](Self::reset), wherever states are kept.
    ///
    /// # Errors
    ///
    /// When the store gives no answer.
    pub async fn forget_key(
        &self,
        limit: &str,
        attributes: &[(&str, &str)],
        now: Timestamp,
    ) -> Result<Option<bool>, Unavailable> {
        let Some(was_known) = self.reset(limit, attributes) else { return Ok(None) };
        let found = self.key(limit, attributes, now);
        if let (Some(shared), Some((_, limit)), Some(found)) =
            (&self.engine.shared, self.in_force.find(limit), found)
        {
            let key: Key<'_> = found.key.iter().map(String::as_str).collect();
            return shared
                .store
                .forget(&limit.stored_ask(found.rule, &key, 0, Does::Preview))
                .await
                .map(Some);
        }
        Ok(Some(was_known))
    }

    /// How a key of a limit stands. None where there is no such limit.
    pub fn key(&self, limit: &str, attributes: &[(&str, &str)], now: Timestamp) -> Option<KeyStatus> {
        let (place, limit) = self.in_force.find(limit)?;
        let described = limit.described(attributes);
        let attributes = described.as_deref().unwrap_or(attributes);
        let standing = self.engine.standing(&self.in_force, plan::tenant(attributes));
        let values = self.in_force.names.values(attributes, self.in_force.tier_name(standing.tier));
        let numbers = self.in_force.numbers_of(place, &standing);
        let key = limit.shared_key(&values);
        Some(KeyStatus {
            rule: limit.numbers(numbers).rule,
            capacity: limit.numbers(numbers).rule.capacity(),
            status: limit.ask(numbers, &key).peek_at(now),
            key: key.iter().map(|&part| part.to_owned()).collect(),
        })
    }

    /// Forgets a key of a limit: whether it was remembered. None where there is no such limit.
    pub fn reset(&self, limit: &str, attributes: &[(&str, &str)]) -> Option<bool> {
        let (_, limit) = self.in_force.find(limit)?;
        let described = limit.described(attributes);
        let attributes = described.as_deref().unwrap_or(attributes);
        let standing = self.engine.standing(&self.in_force, plan::tenant(attributes));
        let values = self.in_force.names.values(attributes, self.in_force.tier_name(standing.tier));
        Some(limit.reset(&limit.shared_key(&values)))
    }

    /// Whether the policy looks at an attribute of this name.
    pub fn looks_at(&self, attribute: &str) -> bool {
        self.in_force.names.place(attribute).is_some()
    }

    /// The attributes that the policy looks at.
    pub fn attributes(&self) -> impl Iterator<Item = &str> {
        self.in_force.names.iter()
    }

    /// The numbers of its limits, in order: as long as an engine lives, one for each name.
    pub fn limit_numbers(&self) -> impl Iterator<Item = (usize, &str)> {
        self.in_force.limits.iter().map(|limit| (limit.number, limit.policy.name.as_str()))
    }
}

impl std::ops::Deref for PolicyInForce<'_> {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        &self.in_force.policy
    }
}

#[cfg(test)]
mod tests;
