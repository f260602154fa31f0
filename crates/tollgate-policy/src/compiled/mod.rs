//! A policy, ready to plan by: its limits with their keys, and the numbers that each tenant has of them.

mod attributes;
mod conditions;
mod descriptors;
mod limit;

use std::collections::HashMap;
use std::sync::Arc;

use tollgate::{KeyedLimiter, Rule, Shed, TooManyRules};

use self::attributes::{Names, TIER};
use self::conditions::Conditions;
use self::descriptors::Descriptors;
use self::limit::{Counter, Owner};
use crate::policy::{Limit, Policy};
use crate::request_attributes::header_table::HeaderTable;

pub(crate) use self::attributes::{TENANT, Values};
pub(crate) use self::descriptors::Leaf;
pub(crate) use self::limit::{CompiledLimit, NumbersId, Parts};

/// A policy, ready to plan by.
#[derive(Debug)]
pub(crate) struct CompiledPolicy {
    pub(crate) policy: Policy,
    pub(crate) names: Names,
    pub(crate) headers: HeaderTable,
    pub(super) tier_names: Vec<String>,
    default_tier: TierId,
    tenants: HashMap<String, CompiledTenant>,
    costs: Vec<(Conditions, u64)>,
    pub(crate) limits: Vec<CompiledLimit>,
    pub(crate) by_attributes: Vec<u32>, // those that are not found by an Envoy descriptor
    pub(crate) descriptors: Descriptors,
}

/// Which rules the table of this process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableRules {
    /// The rules of the policy.
    Whole,
    /// The share of one of several processes, during an outage of the store that they share.
    ShareOf(u32),
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
    own: Vec<(usize, NumbersId)>, // by number of the limit
}

/// The tier of a tenant, and the numbers that it has of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TenantNumbers<'p> {
    pub(crate) tier: TierId,
    own: &'p [(usize, NumbersId)], // by number of the limit
}

impl CompiledPolicy {
    /// Compiles a policy, and writes its numbers to the table of `limiter`. Limits that are in `before` keep their keys. On an
    /// error, nothing changes for the policy in force.
    pub(crate) fn new(
        policy: Policy,
        before: Option<&Self>,
        limiter: &KeyedLimiter,
        numbers: &mut HashMap<String, usize>,
        local: TableRules,
    ) -> Result<Self, TooManyRules> {
        let names = Names::new(attributes_of(&policy));
        let mut tier_names: Vec<String> = policy.tiers.keys().cloned().collect();
        tier_names.sort_unstable();
        let mut compiled = Self {
            costs: policy
                .costs
                .iter()
                .map(|cost| (Conditions::new(&cost.applies_to, &names), cost.cost))
                .collect(),
            default_tier: None,
            tenants: HashMap::new(),
            limits: Vec::new(),
            by_attributes: (0..)
                .zip(&policy.limits)
                .filter_map(|(place, limit)| limit.descriptor.is_none().then_some(place))
                .collect(),
            descriptors: Descriptors::new(&policy),
            headers: headers_of(&policy, &names),
            names,
            tier_names,
            policy,
        };
        compiled.default_tier = compiled.policy.default_tier.as_deref().and_then(|tier| compiled.tier(tier));
        let old = before.iter().flat_map(|before| &before.limits);
        let old: HashMap<&str, &CompiledLimit> = old.map(|old| (old.policy.name.as_str(), old)).collect();
        let same = |limit: &Limit| {
            old.get(limit.name.as_str()).copied().filter(|old| old.policy.continues_as(limit))
        };
        // There may be thousands of limits, so all new ones are added to the table in one call.
        let new: Vec<Rule> = compiled
            .policy
            .limits
            .iter()
            .filter(|limit| same(limit).is_none())
            .map(|limit| local.rule(&limit.rule))
            .collect();
        let mut new = limiter.another_each(&new)?.into_iter();
        for limit in &compiled.policy.limits {
            let next = numbers.len();
            let number = *numbers.entry(limit.name.clone()).or_insert(next);
            let before = same(limit);
            let counter = match before {
                Some(before) => Arc::clone(&before.counter),
                None => Counter::new(new.next().expect("one for each that is new")),
            };
            let limit = CompiledLimit::new(limit.clone(), number, &compiled, before, counter, local)?;
            compiled.limits.push(limit);
        }
        compiled.tenants = compiled.tenants();
        let changes: Vec<_> = compiled.limits.iter().flat_map(|limit| limit.changes(local)).collect();
        KeyedLimiter::set_tiers(&changes)?;
        Ok(compiled)
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
        self.limits.iter().find(|limit| limit.policy.name == name)
    }

    /// What a request costs that does not say so itself.
    pub(crate) fn cost(&self, values: &Values<'_>) -> u64 {
        self.costs.iter().find(|(conditions, _)| conditions.hold(values)).map_or(1, |(_, cost)| *cost)
    }

    /// What a tenant is entitled to, as the policy has it.
    pub(crate) fn standing(&self, tenant: Option<&str>) -> TenantNumbers<'_> {
        match tenant.and_then(|tenant| self.tenants.get(tenant)) {
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
        match standing.own.iter().find(|(number, _)| *number == limit.number) {
            Some((_, numbers)) => *numbers,
            None => limit.by_tier[standing.tier.map_or(0, |tier| usize::from(tier) + 1)],
        }
    }

    fn tenants(&self) -> HashMap<String, CompiledTenant> {
        let tenant = |(name, tenant): (&String, &crate::policy::Tenant)| {
            let own = self.limits.iter().filter_map(|limit| {
                let numbers = limit.numbers_for(&Owner::Tenant(name.clone()))?;
                tenant.limits.contains_key(&limit.policy.name).then_some((limit.number, numbers))
            });
            let tier = tenant.tier.as_deref().and_then(|tier| self.tier(tier));
            (name.clone(), CompiledTenant { tier, own: own.collect() })
        };
        self.policy.tenants.iter().map(tenant).collect()
    }

    /// Whether nothing passes for the owner of some numbers of a limit.
    fn is_blocked_for(&self, limit: &Limit, owner: &Owner) -> bool {
        match owner {
            Owner::All => limit.is_blocked(None),
            Owner::Tier(tier) => limit.is_blocked(Some(tier)),
            Owner::Tenant(tenant) => {
                let own = self.policy.tenants.get(tenant);
                limit.has_blocked_descriptor() || own.is_some_and(|own| own.is_blocked(&limit.name))
            }
        }
    }

    /// How hard adaptive rates press the owner of some numbers.
    fn shed_of(&self, owner: &Owner) -> Shed {
        if self.policy.adaptive_rates.is_none() {
            return Shed::Exempt;
        }
        let tier = match owner {
            Owner::All => None,
            Owner::Tier(tier) => Some(tier.as_str()),
            Owner::Tenant(tenant) => {
                let own = self.policy.tenants.get(tenant).and_then(|tenant| tenant.tier.as_deref());
                own.or(self.policy.default_tier.as_deref())
            }
        };
        match tier.and_then(|tier| self.policy.tiers.get(tier)).map_or(1, |tier| tier.shed) {
            0 => Shed::Exempt,
            1 => Shed::Normal,
            _ => Shed::First,
        }
    }
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
