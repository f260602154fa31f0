//! Decides requests by a policy: attributes, plan, verdict.

mod asked;
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

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use tollgate::{Clock, Decision, KeyedLimiter, Rate, Stats, Timestamp, TokenBucket, TooManyRules};

use self::cells::Cells;
use self::in_force::{Here, InForce, Standing};
use self::overrides::Overrides;
use self::pressure::Pressure;
use self::shared::Shared;
use self::throttle::Throttle;
use crate::policy::{Memory, OnError, Policy, StoreSettings};
use crate::store::Store;

pub use self::asked::{KeyStatus, PolicyInForce};
pub use self::cells::{CellNumbers, CellRequest};
pub use self::explain::{Explained, Explanation};
pub use self::overrides::Override;
pub use self::plan::Plan;
pub(crate) use self::plan::{MOST_LIMITS, USUAL_LIMITS};
pub use self::pressure::LoadSource;
pub use self::shared::Permits;
pub use self::throttle::{SentRule, ThrottleError, Throttled};
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
    max_bytes: Option<usize>,
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
        let max_bytes = memory.max_bytes.bytes();
        let table = |max_bytes: Option<usize>| {
            let mut builder = KeyedLimiter::builder(rule).clock(clock.clone()).when_full(memory.when_full);
            if let Some(max_keys) = memory.max_keys {
                builder = builder.max_keys(usize::try_from(max_keys).unwrap_or(usize::MAX));
            }
            if let Some(max_bytes) = max_bytes {
                builder = builder.max_bytes(max_bytes);
            }
            builder.build()
        };
        // Rules that callers send have a table of their own, and a part of the bytes: however many they are, the policy's
        // limits have their numbers and the rest of the bytes.
        let sent_bytes = max_bytes.map(|bytes| bytes / 4);
        let own_bytes = max_bytes.zip(sent_bytes).map(|(bytes, sent)| bytes - sent);
        let nodes = shared.as_ref().map_or(1, |shared| shared.store.nodes());
        let here = shared.as_ref().map_or(Here::All, |_| Here::ShareOf(nodes));
        let nodes = Arc::new(AtomicU32::new(nodes));
        let shares = shared.as_ref().map(|_| Arc::clone(&nodes));
        let (limiter, throttle) = (table(own_bytes), Throttle::new(table(sent_bytes), shares.clone()));
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
            max_bytes,
        })
    }

    /// Whether states are in a store that several processes share, which has to be waited for.
    pub const fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// The most bytes that keys may take in this process. None where there is no bound.
    pub const fn max_bytes(&self) -> Option<usize> {
        self.max_bytes
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

    /// Decides a request by the rule that comes with it.
    ///
    /// ```
    /// use tollgate_policy::{Engine, Policy, SentRule};
    ///
    /// let engine = Engine::new(Policy::default())?;
    /// let numbers = r#"{"rate":"5/s","burst":2}"#;
    /// let sent = SentRule { key: "alice", algorithm: "token_bucket", numbers, cost: 1 };
    /// let throttle = || engine.throttle(&sent, engine.clock().now());
    /// assert_eq!(throttle()?.decision.status.remaining, 1);
    /// assert_eq!(throttle()?.rule.capacity(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the rule makes no sense, or too many different rules are in use.
    pub fn throttle(&self, sent: &SentRule<'_>, now: Timestamp) -> Result<Throttled, ThrottleError> {
        self.throttle.check(sent, now)
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

    /// The keys and bytes of the policy's limits and of rules that callers sent, together, and what was done to stay within
    /// the bounds. `max_keys` bounds each of the two, `max_bytes` their sum.
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

#[cfg(test)]
mod tests;
