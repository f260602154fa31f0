//! Decides requests by a policy: attributes, plan, verdict.

mod answer;
mod backend;
mod envoy;
mod explain;
mod leases;
mod permits;
mod plan;
mod policy_in_force;
mod pressure;
mod sent_rules;
mod throttle;
mod verdict;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use arc_swap::ArcSwap;
use indexmap::IndexMap;
use parking_lot::{Mutex, RwLock};
use tollgate::{AlgorithmKind, Clock, KeyedLimiter, Rate, Rule, Stats, TokenBucket};

use self::backend::Shared;
use self::envoy::SentLimit;
pub use self::leases::LeaseStats;
use self::leases::Leases;
use self::pressure::Pressure;
use self::sent_rules::SentRules;
use crate::compiled::{Backing, CompiledPolicy, LimitNumbers, TableRules, TenantNumbers};
use crate::policy::{Memory, OnError, Policy, StoreSettings};
use crate::store::{Later, Store};

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
    changing: Mutex<Changing>,                             // one change at a time
    limiter: KeyedLimiter,                                 // any of the policy's part of the table
    throttle: HashMap<AlgorithmKind, SentRules<Box<str>>>, // by algorithm, then by the numbers as they were sent
    cells: SentRules<CellNumbers>,
    overrides: SentRules<SentLimit>, // of Envoy calls; as all that callers send, in the second part of the table
    live: RwLock<IndexMap<String, String>>, // tiers that were set at run time, by tenant
    has_live: AtomicBool,            // whether there ever was one
    pressure: Pressure,
    shared: Option<Shared>, // where states are kept, if not in this process
    nodes: Arc<AtomicU32>,  // among how many the rates are divided when the store is gone
    max_bytes: Option<usize>,
}

/// What a change of the policy needs.
#[derive(Debug, Default)]
struct Changing {
    numbers: LimitNumbers,
    replaced: VecDeque<ReplacedPolicy>,
}

/// A policy that is no longer in force. It is kept here until no request is decided by it, so that no request has to drop it.
#[derive(Debug)]
struct ReplacedPolicy {
    compiled: Arc<CompiledPolicy>,
    gone: Vec<usize>, // the numbers of limits that the next policy did not have
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
    /// It asks for a store that is not there.
    #[error("the policy keeps its states in Redis: the engine needs a store for that")]
    NoStore,
    /// The store cannot keep the states of some of its limits.
    #[error("the store cannot keep these limits: {}", .0.join("; "))]
    Store(Vec<String>),
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
    /// The most tenants have a tier already that was set at run time.
    #[error(
        "{MOST_LIVE_TENANTS} tenants have a tier that was set at run time, and that is the most: write more tiers into the `tenants_file`"
    )]
    TooMany,
}

/// The most slots of the table that are looked at per second for keys that are no longer used.
const MOST_SWEPT: usize = 1 << 20;

/// The most tenants with a tier that was set at run time.
const MOST_LIVE_TENANTS: usize = 100_000;

/// The most tenants that a reload looks at while requests wait for the lock.
const LIVE_TENANTS_AT_ONCE: usize = 500;

impl Engine {
    /// An engine in memory.
    ///
    /// # Errors
    ///
    /// When the policy asks for what is not built yet or for a store.
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
    /// When the policy asks for what is not built yet, or has limits that the store cannot keep.
    pub fn with_store(policy: Policy, clock: Clock, store: Arc<dyn Store>) -> Result<Self, EngineError> {
        let on_error = match &policy.store {
            StoreSettings::Redis(redis) => redis.on_error,
            StoreSettings::Memory(_) => OnError::default(),
        };
        let leases = Arc::clone(&store).leases().map(|store| Leases::new(store, clock.clone()));
        let is_cluster = policy.is_on_cluster();
        Self::build(policy, clock, Some(Shared { store, leases, is_cluster, on_error }))
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
        // Rules that callers send have a part of the table of their own, and a part of the bytes: however many they are, the policy's
        // limits have the rest.
        let sent_bytes = max_bytes.map(|bytes| bytes / 4);
        let mut builder =
            KeyedLimiter::builder(rule).clock(clock).when_full(memory.when_full).second_part(sent_bytes);
        if let Some(max_keys) = memory.max_keys {
            builder = builder.max_keys(usize::try_from(max_keys).unwrap_or(usize::MAX));
        }
        if let Some((max_bytes, sent_bytes)) = max_bytes.zip(sent_bytes) {
            builder = builder.max_bytes(max_bytes - sent_bytes);
        }
        let limiter = builder.build();
        let nodes = shared.as_ref().map_or(1, |shared| shared.store.nodes());
        let table = shared.as_ref().map_or(TableRules::Whole, |_| TableRules::ShareOf(nodes));
        let backing = Backing { table, leases: shared.as_ref().and_then(Shared::lease_store) };
        let nodes = Arc::new(AtomicU32::new(nodes));
        let shares = shared.as_ref().map(|_| Arc::clone(&nodes));
        let sent = || limiter.another_in_second_part(rule);
        let throttle =
            AlgorithmKind::ALL.iter().map(|kind| (*kind, SentRules::new(sent(), shares.clone()))).collect();
        let cells = SentRules::new(sent(), shares.clone());
        let overrides = SentRules::new(sent(), shares);
        let mut changing = Changing::default();
        let pressure = Pressure::new(policy.adaptive_rates);
        let compiled = CompiledPolicy::new(policy.into(), None, &limiter, &mut changing.numbers, backing);
        Ok(Self {
            compiled: ArcSwap::from_pointee(compiled),
            changing: Mutex::new(changing),
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
        self.put_in_force(&mut self.changing.lock(), policy.into());
        Ok(())
    }

    /// Puts a policy in force. Requests go on by the old one until the new one is ready, and never wait.
    fn put_in_force(&self, changing: &mut Changing, policy: Arc<Policy>) {
        let (before, adaptive_rates) = (self.compiled.load_full(), policy.adaptive_rates);
        let compiled =
            CompiledPolicy::new(policy, Some(&before), &self.limiter, &mut changing.numbers, self.backing());
        // A line of the tenants file that has changed wins over a tier that was set before.
        self.retain_live(|tenant, tier| {
            let (now, before) = (&compiled.policy.tenants, &before.policy.tenants);
            compiled.tier(tier).is_some() && !now.has_other_line(tenant, before)
        });
        let gone = changing.numbers.remove_gone(&compiled);
        let compiled = Arc::new(compiled);
        self.compiled.store(Arc::clone(&compiled));
        if let Some(leases) = self.shared.as_ref().and_then(|shared| shared.leases.as_ref()) {
            leases.change_policy(|limit| compiled.find(limit).is_some());
        }
        changing.replaced.push_back(ReplacedPolicy { compiled: before, gone });
        self.pressure.reload(adaptive_rates, &self.limiter);
        changing.drop_unused();
    }

    /// Does what is due: drops policies that no request is decided by any more, adapts the shares of the policy's limits to the
    /// number of processes on the store, and forgets some of the keys that are no longer used. Call it every second, off the
    /// threads that decide requests: a policy with thousands of limits takes a while to drop.
    pub fn maintain(&self) {
        self.changing.lock().drop_unused();
        self.share();
        self.limiter.sweep(MOST_SWEPT);
    }

    /// Adapts the shares of the policy's limits to the number of processes on the store. Call it every second.
    pub fn share(&self) {
        let Some(shared) = &self.shared else { return };
        let nodes = shared.store.nodes();
        if self.nodes.swap(nodes, Ordering::Relaxed) != nodes {
            let policy = Arc::clone(&self.compiled.load().policy);
            self.put_in_force(&mut self.changing.lock(), policy);
        }
    }

    /// What decides the limits of a policy.
    fn backing(&self) -> Backing<'_> {
        let table = match self.shared {
            None => TableRules::Whole,
            Some(_) => TableRules::ShareOf(self.nodes.load(Ordering::Relaxed)),
        };
        Backing { table, leases: self.shared.as_ref().and_then(Shared::lease_store) }
    }

    /// Draws no more grants, and returns what this process has left of them to the store. Call it when no more requests come, and
    /// wait for it. Units that are not returned are lost for as long as they would have lasted.
    pub fn return_leases(&self) -> Later<'static, ()> {
        match self.shared.as_ref().and_then(|shared| shared.leases.as_ref()) {
            Some(leases) => leases.close(),
            None => Box::pin(std::future::ready(())),
        }
    }

    /// What became of the units of each limit that was leased, in this process.
    pub fn lease_stats(&self) -> Vec<LeaseStats> {
        let Some(shared) = &self.shared else { return Vec::new() };
        let mut stats = shared.leases.as_ref().map_or_else(Vec::new, |leases| leases.stats());
        let (compiled, nodes) = (self.compiled.load(), u64::from(shared.store.nodes()));
        for stats in &mut stats {
            let limit = compiled.find(&stats.limit);
            stats.most_excess = limit.map_or(0, |limit| limit.most_excess(nodes));
        }
        stats.sort_unstable_by(|one, other| one.limit.cmp(&other.limit));
        stats
    }

    /// Sets the tier of a tenant. It applies until it is set again, until a reload removes the tier from the policy
    /// or finds another line for the tenant in the tenants file, or until the process ends. If the tenant has numbers
    /// of its own for a limit, these numbers stay in force.
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

    /// How many tenants have a tier that was set at run time.
    pub fn tiers_set(&self) -> usize {
        self.live.read().len()
    }

    /// Keeps the tiers set at run time for which `keep` holds. Requests wait for the lock, so it is taken for a few tenants at a
    /// time.
    fn retain_live(&self, keep: impl Fn(&str, &str) -> bool) {
        let mut end = self.live.read().len();
        while end > 0 {
            let start = end.saturating_sub(LIVE_TENANTS_AT_ONCE);
            let mut live = self.live.write();
            // From the end, because the last tenant takes the place of one that is removed.
            for place in (start..end).rev() {
                if live.get_index(place).is_some_and(|(tenant, tier)| !keep(tenant, tier)) {
                    live.swap_remove_index(place);
                }
            }
            end = start;
        }
    }

    /// The keys and bytes of the policy's limits and of rules that callers sent, together, and what was done to stay within
    /// the bounds. `max_keys` bounds each of the two, `max_bytes` their sum.
    pub fn stats(&self) -> Stats {
        self.limiter.stats()
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

impl Changing {
    /// Drops policies that no request is decided by, the oldest first.
    fn drop_unused(&mut self) {
        while let Some(oldest) = self.replaced.front()
            && Arc::strong_count(&oldest.compiled) == 1
        {
            self.numbers.free(self.replaced.pop_front().map(|replaced| replaced.gone).unwrap_or_default());
        }
    }
}

/// Refuses limits that the store cannot keep.
fn require_kept(policy: &Policy, shared: Option<&Shared>) -> Result<(), EngineError> {
    let Some(Shared { store, .. }) = shared else { return Ok(()) };
    let require_lease = |rule: &Rule| match shared.and_then(Shared::lease_store) {
        Some(leases) => leases.require_lease(rule),
        None => Err("the store has no grants".to_owned()),
    };
    let faults = policy.store_faults(|rule| store.require(rule), require_lease);
    if faults.is_empty() { Ok(()) } else { Err(EngineError::Store(faults)) }
}

#[cfg(test)]
mod tests;
