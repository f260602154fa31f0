//! A policy, ready to plan by: its limits with their keys, and the numbers that each tenant has of them.

mod attributes;
mod conditions;
mod descriptors;
mod index;
mod limit;

use std::collections::HashMap;
use std::sync::Arc;

use tollgate::{KeyedLimiter, Rule, Shed};

use self::attributes::{Names, TIER};
use self::conditions::Conditions;
use self::descriptors::Descriptors;
use self::limit::OwnNumbers;
use crate::policy::{Limit, Policy};
use crate::request_attributes::header_table::HeaderTable;
use crate::store::LeaseStore;

pub(crate) use self::attributes::{NameId, TENANT, Values};
pub(crate) use self::descriptors::Leaf;
pub(crate) use self::index::{AttributeValues, Candidates, IndexEntry, MatchIndex};
pub(crate) use self::limit::{CompiledLimit, NumbersId, Parts};

/// A policy, ready to plan by.
#[derive(Debug)]
pub(crate) struct CompiledPolicy {
    pub(crate) policy: Arc<Policy>,
    pub(crate) names: Names,
    pub(crate) headers: HeaderTable,
    pub(super) tier_names: Vec<String>,
    default_tier: TierId,
    tenants: Vec<CompiledTenant>, // as in the policy
    costs: CompiledCosts,
    pub(crate) limits: Vec<CompiledLimit>,
    by_name: HashMap<String, u32>,
    pub(crate) by_attributes: MatchIndex, // limits without an Envoy descriptor
    pub(crate) descriptors: Descriptors,
    pub(crate) has_leases: bool, // whether nodes draw grants of any limit
}

/// Which rules the table of this process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableRules {
    /// The rules of the policy.
    Whole,
    /// The share of one of several processes, during an outage of the store that they share.
    ShareOf(u32),
}

/// What decides the limits of a policy.
#[derive(Clone, Copy)]
pub(crate) struct Backing<'s> {
    pub(crate) table: TableRules,
    pub(crate) leases: Option<&'s dyn LeaseStore>, // that nodes draw grants from
}

impl TableRules {
    fn rule(self, rule: &Rule) -> Rule {
        match self {
            Self::Whole => *rule,
            Self::ShareOf(nodes) => rule.share_of(nodes),
        }
    }
}

/// One of the policy's tiers, by number. None for tenants that have none.
pub(crate) type TierId = Option<u16>;

/// A tenant that differs from the rest.
#[derive(Debug)]
struct CompiledTenant {
    tier: TierId,
    own: Box<[(usize, NumbersId)]>, // by number of the limit, in order
}

/// The tier of a tenant, and the numbers that it has of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TenantNumbers<'p> {
    pub(crate) tier: TierId,
    own: &'p [(usize, NumbersId)], // by number of the limit, in order
}

/// The costs of a policy, ready to look up.
#[derive(Debug)]
struct CompiledCosts {
    costs: Vec<(Conditions, u64)>,
    index: MatchIndex,
}

impl CompiledCosts {
    fn new(policy: &Policy, names: &Names) -> Self {
        let costs = policy.costs.iter().map(|cost| (Conditions::new(&cost.applies_to, names), cost.cost));
        let costs: Vec<(Conditions, u64)> = costs.collect();
        let entries = (0..).zip(&costs).map(|(place, (conditions, _))| conditions.index_entry(place));
        Self { index: MatchIndex::new(entries), costs }
    }

    /// The first cost that matches. Default: 1.
    fn cost(&self, values: &Values<'_>) -> u64 {
        if self.costs.is_empty() {
            return 1;
        }
        let first = |places: &[u32]| {
            let mut costs = places.iter().map(|&place| &self.costs[place as usize]);
            costs.find(|(conditions, _)| conditions.hold(values)).map_or(1, |(_, cost)| *cost)
        };
        match self.index.all() {
            Some(places) => first(places),
            None => first(&self.index.candidates(values)),
        }
    }
}

impl CompiledPolicy {
    /// Compiles a policy, with its states in the table of `limiter`. Limits that are in `before` keep their keys. Nothing changes
    /// for requests that are decided by `before`.
    pub(crate) fn new(
        policy: Arc<Policy>,
        before: Option<&Self>,
        limiter: &KeyedLimiter,
        numbers: &mut LimitNumbers,
        backing: Backing<'_>,
    ) -> Self {
        let names = Names::new(attributes_of(&policy));
        let mut tier_names: Vec<String> = policy.tiers.keys().cloned().collect();
        tier_names.sort_unstable();
        let mut compiled = Self {
            costs: CompiledCosts::new(&policy, &names),
            default_tier: None,
            tenants: Vec::new(),
            limits: Vec::new(),
            by_name: places_by_name(&policy.limits),
            by_attributes: MatchIndex::default(),
            descriptors: Descriptors::new(&policy),
            has_leases: false,
            headers: headers_of(&policy, &names),
            names,
            tier_names,
            policy,
        };
        compiled.default_tier = compiled.policy.default_tier.as_deref().and_then(|tier| compiled.tier(tier));
        let old = before.iter().flat_map(|before| &before.limits);
        let old: HashMap<&str, &CompiledLimit> = old.map(|old| (old.policy.name.as_str(), old)).collect();
        let same = |limit: &Limit| {
            let old = old.get(limit.name.as_str()).copied().filter(|old| old.policy.continues_as(limit));
            before.zip(old)
        };
        for limit in &compiled.policy.limits {
            let number = numbers.number_of(&limit.name);
            let limit = CompiledLimit::new(limit.clone(), number, &compiled, same(limit), limiter, backing);
            compiled.limits.push(limit);
        }
        let by_attributes =
            (0..).zip(&compiled.limits).filter(|(_, limit)| limit.policy.descriptor.is_none());
        compiled.by_attributes =
            MatchIndex::new(by_attributes.map(|(place, limit)| limit.conditions.index_entry(place)));
        compiled.add_tenants(same, backing);
        compiled.has_leases = compiled.limits.iter().any(CompiledLimit::has_leases);
        compiled
    }

    pub(crate) fn limit(&self, place: u32) -> &CompiledLimit {
        &self.limits[place as usize]
    }

    /// Whether the limit is a quota: of all quotas that apply to a request, one must allow it.
    pub(crate) fn is_quota(&self, limit: &CompiledLimit) -> bool {
        let descriptor = limit.policy.descriptor.as_ref();
        self.policy.envoy.quota_mode || descriptor.is_some_and(|descriptor| descriptor.quota_mode)
    }

    /// The limit of this name.
    pub(crate) fn find(&self, name: &str) -> Option<&CompiledLimit> {
        self.by_name.get(name).map(|&place| self.limit(place))
    }

    /// The cost of a request that does not set its own.
    pub(crate) fn cost(&self, values: &Values<'_>) -> u64 {
        self.costs.cost(values)
    }

    /// What a tenant is entitled to, as the policy has it.
    #[inline]
    pub(crate) fn standing(&self, tenant: Option<&str>) -> TenantNumbers<'_> {
        match tenant.and_then(|tenant| self.policy.tenants.place(tenant)).map(|place| &self.tenants[place]) {
            Some(tenant) => TenantNumbers { tier: tenant.tier.or(self.default_tier), own: &tenant.own },
            None => TenantNumbers { tier: self.default_tier, own: &[] },
        }
    }

    /// The number of a tier, if there is one of this name.
    pub(crate) fn tier(&self, name: &str) -> TierId {
        let place = self.tier_names.binary_search_by(|tier| tier.as_str().cmp(name)).ok()?;
        u16::try_from(place).ok()
    }

    pub(crate) fn tier_name(&self, tier: TierId) -> Option<&str> {
        tier.map(|tier| self.tier_names[usize::from(tier)].as_str())
    }

    /// The numbers that somebody has of a limit: their own, their tier's, or those of all.
    pub(crate) fn numbers_of(&self, limit: &CompiledLimit, standing: &TenantNumbers<'_>) -> NumbersId {
        match standing.own.binary_search_by_key(&limit.number, |(number, _)| *number) {
            Ok(place) => standing.own[place].1,
            Err(_) => limit.by_tier[standing.tier.map_or(0, |tier| usize::from(tier) + 1)],
        }
    }

    /// Compiles the tenants, each in a time that depends only on the numbers that it has of its own.
    fn add_tenants<'b>(
        &mut self,
        before: impl Fn(&Limit) -> Option<(&'b Self, &'b CompiledLimit)>,
        backing: Backing<'_>,
    ) {
        let policy = Arc::clone(&self.policy);
        self.tenants.reserve_exact(policy.tenants.len());
        for tenant in policy.tenants.values() {
            let shed = self.shed_of(tenant.tier.as_deref().or(policy.default_tier.as_deref()));
            let tier = tenant.tier.as_deref().and_then(|tier| self.tier(tier));
            let mut own: Vec<(usize, NumbersId)> = Vec::new();
            for (name, rule) in tenant.limits.iter() {
                let Some(limit) = self.by_name.get(name).map(|&place| &mut self.limits[place as usize])
                else {
                    continue;
                };
                let is_blocked = limit.policy.has_blocked_descriptor() || tenant.is_blocked(name);
                let numbers = OwnNumbers { rule: *rule, is_blocked, shed };
                let had = before(&limit.policy).map(|(_, limit)| limit);
                own.push((limit.number, limit.add_own(numbers, &policy, had, backing)));
            }
            own.sort_unstable();
            self.tenants.push(CompiledTenant { tier, own: own.into() });
        }
    }

    /// How hard adaptive rates press the tenants of a tier, or those without one.
    fn shed_of(&self, tier: Option<&str>) -> Shed {
        if self.policy.adaptive_rates.is_none() {
            return Shed::Exempt;
        }
        match tier.and_then(|tier| self.policy.tiers.get(tier)).map_or(1, |tier| tier.shed) {
            0 => Shed::Exempt,
            1 => Shed::Normal,
            _ => Shed::First,
        }
    }
}

/// The numbers of limits, by which callers count them: each limit in force has one of its own.
#[derive(Debug, Default)]
pub(crate) struct LimitNumbers {
    by_name: HashMap<String, usize>,
    free: Vec<usize>,
    given: usize,
}

impl LimitNumbers {
    /// The number of the limit of this name, which gets one if it has none.
    fn number_of(&mut self, name: &str) -> usize {
        if let Some(number) = self.by_name.get(name) {
            return *number;
        }
        let number = self.free.pop().unwrap_or(self.given);
        self.given = self.given.max(number + 1);
        self.by_name.insert(name.to_owned(), number);
        number
    }

    /// Removes the names that a policy does not have. Returns their numbers: to be [freed](Self::free) when no request knows them.
    pub(crate) fn remove_gone(&mut self, policy: &CompiledPolicy) -> Vec<usize> {
        let mut is_there = vec![false; self.given];
        policy.limits.iter().for_each(|limit| is_there[limit.number] = true);
        let gone = self.by_name.extract_if(|_, number| !is_there[*number]);
        gone.map(|(_, number)| number).collect()
    }

    /// Makes numbers available to other limits.
    pub(crate) fn free(&mut self, numbers: Vec<usize>) {
        self.free.extend(numbers);
    }
}

/// The places of limits by name. If a name comes twice, the first place counts.
fn places_by_name(limits: &[Limit]) -> HashMap<String, u32> {
    let mut places = HashMap::with_capacity(limits.len());
    for (place, limit) in (0..).zip(limits) {
        places.entry(limit.name.clone()).or_insert(place);
    }
    places
}

/// Every attribute that a policy looks at.
fn attributes_of(policy: &Policy) -> impl Iterator<Item = String> {
    let matches = policy.limits.iter().map(|limit| &limit.applies_to);
    let matches = matches.chain(policy.costs.iter().map(|cost| &cost.applies_to));
    let matched =
        matches.flat_map(|applies_to| applies_to.conditions()).map(|condition| &condition.attribute);
    let keys = policy.limits.iter().flat_map(|limit| &limit.key).flat_map(|part| &part.0);
    let always = [TENANT, TIER].map(str::to_owned);
    matched.chain(keys).cloned().chain(always).collect::<Vec<_>>().into_iter()
}

/// Every header that a policy reads, with the attribute that it becomes.
fn headers_of(policy: &Policy, names: &Names) -> HeaderTable {
    let named = |attribute: &'_ str| attribute.strip_prefix("header.").map(str::to_owned);
    let identity = [("tenant", &policy.identity.tenant), ("user", &policy.identity.user)];
    let identity = identity.into_iter().filter_map(|(name, source)| Some((name, named(source.as_deref()?)?)));
    let queue = policy.gateway.as_ref().and_then(|gateway| gateway.fair_queue.as_ref());
    let looked_at = names.iter().chain(queue.map(|queue| queue.by.as_str()));
    let looked_at = looked_at.filter_map(|attribute| match attribute {
        "host" => Some(("host", "host".to_owned())),
        _ => Some((attribute, named(attribute)?)),
    });
    let all: Vec<(&str, String)> = identity.chain(looked_at).collect();
    HeaderTable::new(all.iter().map(|(attribute, name)| (*attribute, name.as_str())))
}
