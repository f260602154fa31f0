//! Decides requests by a policy: attributes, plan, verdict.

mod answer;
mod backend;
mod envoy;
mod explain;
mod permits;
mod plan;
mod policy_in_force;
mod pressure;
mod sent_rules;
mod throttle;
mod verdict;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use tollgate::{AlgorithmKind, Clock, KeyedLimiter, Rate, Stats, TokenBucket, TooManyRules};

use self::backend::Shared;
use self::envoy::SentLimit;
use self::pressure::Pressure;
use self::sent_rules::SentRules;
use crate::compiled::{CompiledPolicy, TableRules, TenantNumbers};
use crate::policy::{Memory, OnError, Policy, StoreSettings};
use crate::store::Store;

pub use self::answer::Answer;
pub use self::envoy::{Described, Hits, NotDecided, Override};
pub use self::explain::{Explained, Explanation};
pub use self::permits::Permits;
pub(crate) use self::plan::{MOST_LIMITS, USUAL_ASKS, USUAL_LIMITS};
pub use self::policy_in_force::{KeyStatus, PolicyInForce};
pub use self::pressure::LoadSource;
pub use self::sent_rules::ThrottleError;
pub use self::throttle::{CellNumbers, CellRequest, SentRule, Throttled};
pub use self::verdict::{DescriptorVerdict, Key, LimitVerdict, Reason, SentLimitVerdict, Verdict};

/// Decides requests by a policy, which can be changed while it is in use.
///
/// ```
/// use std::path::Path;
/// use tollgate_policy::{Engine, Policy, Request};
///
/// let file = "limits: [{ name: per-user, key: [user], token_bucket: { rate: 1/min, burst: 2 } }]";
/// let engine = Engine::new(Policy::read(Path::new("tollgate.yaml"), file)?)?;
/// let request = Request { attributes: &[("user", "alice")], cost: None };
/// let policy = engine.policy();
/// let check = || policy.check(&request, engine.clock().now()).now().expect("the states are in memory");
/// let allowed = [check()?, check()?, check()?].map(|verdict| verdict.is_allowed());
/// assert_eq!(allowed, [true, true, false]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Engine {
    compiled: ArcSwap<CompiledPolicy>,
    changing: Mutex<HashMap<String, usize>>, // one change at a time; the numbers of limits by name
    limiter: KeyedLimiter,                   // any of the policy's table
    throttle: HashMap<AlgorithmKind, SentRules<Box<str>>>, // by algorithm, then by the numbers as they were sent
    cells: SentRules<CellNumbers>,                         // in the table of throttle
    overrides: SentRules<SentLimit>, // in the policy's table, because they are decided together with its limits
    live: RwLock<HashMap<String, String>>, // tiers of tenants, as they were told at run time
    has_live: AtomicBool,            // whether there ever was one
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
    /// The most tenants have already been given a tier at run time.
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
        let local = shared.as_ref().map_or(TableRules::Whole, |_| TableRules::ShareOf(nodes));
        let nodes = Arc::new(AtomicU32::new(nodes));
        let shares = shared.as_ref().map(|_| Arc::clone(&nodes));
        let (limiter, sent) = (table(own_bytes), table(sent_bytes));
        let mut throttle = HashMap::new();
        for kind in AlgorithmKind::ALL {
            throttle.insert(*kind, SentRules::new(sent.another(rule)?, shares.clone()));
        }
        let cells = SentRules::new(sent, shares.clone());
        let overrides = SentRules::new(limiter.another(rule)?, shares);
        let mut numbers = HashMap::new();
        let pressure = Pressure::new(policy.adaptive_rates);
        let compiled = CompiledPolicy::new(policy, None, &limiter, &mut numbers, local)?;
        Ok(Self {
            compiled: ArcSwap::from_pointee(compiled),
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
        PolicyInForce { engine: self, compiled: self.compiled.load() }
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
        let before = self.compiled.load_full();
        let adaptive_rates = policy.adaptive_rates;
        let compiled = CompiledPolicy::new(policy, Some(&before), &self.limiter, &mut numbers, self.local())?;
        self.live.write().retain(|_, tier| compiled.tier(tier).is_some());
        self.compiled.store(Arc::new(compiled));
        self.pressure.reload(adaptive_rates, &self.limiter);
        Ok(())
    }

    /// Adapts the shares of the policy's limits to the number of processes on the store. Call it every second. A rule that came
    /// with a call keeps the share it had when it was first used.
    pub fn share(&self) {
        let Some(shared) = &self.shared else { return };
        let nodes = shared.store.nodes();
        if self.nodes.swap(nodes, Ordering::Relaxed) == nodes {
            return;
        }
        let mut numbers = self.changing.lock();
        let before = self.compiled.load_full();
        // With as many rules as before, there is room for them.
        if let Ok(same) = CompiledPolicy::new(
            before.policy.clone(),
            Some(&before),
            &self.limiter,
            &mut numbers,
            self.local(),
        ) {
            self.compiled.store(Arc::new(same));
        }
    }

    /// What the table of this process decides by.
    fn local(&self) -> TableRules {
        match self.shared {
            None => TableRules::Whole,
            Some(_) => TableRules::ShareOf(self.nodes.load(Ordering::Relaxed)),
        }
    }

    /// Gives a tenant a tier, until it is given another or the process ends. Limits that the tenant has numbers of its
    /// own for stay as they are.
    ///
    /// # Errors
    ///
    /// When there is no such tier, or too many tenants have been given one.
    pub fn set_tier(&self, tenant: &str, tier: &str) -> Result<(), TenantError> {
        let compiled = self.compiled.load();
        if compiled.tier(tier).is_none() {
            let mut known: Vec<String> = compiled.policy.tiers.keys().cloned().collect();
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
        let (mut stats, sent) = (self.limiter.stats(), self.cells.limiter.stats());
        stats.keys += sent.keys;
        stats.bytes += sent.bytes;
        stats.evictions += sent.evictions;
        stats.refused += sent.refused;
        stats.most_touched = stats.most_touched.max(sent.most_touched);
        stats
    }

    /// What a tenant is entitled to: the tier it was given at run time, and what the policy has for it.
    fn standing<'p>(&self, compiled: &'p CompiledPolicy, tenant: Option<&str>) -> TenantNumbers<'p> {
        let mut standing = compiled.standing(tenant);
        // Skips the lock in a process where no tenant was ever given a tier at run time.
        if let Some(tenant) = tenant
            && self.has_live.load(Ordering::Relaxed)
            && let Some(tier) = self.live.read().get(tenant).and_then(|tier| compiled.tier(tier))
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
