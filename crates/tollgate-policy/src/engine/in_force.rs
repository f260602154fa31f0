//! A policy in force: its limits with their keys, and the numbers that each tenant has of them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tollgate::adaptive::Pace;
use tollgate::{KeyedLimiter, Numbers, Request, Rule, Shed, Status, Tier, TooManyRules};

use super::attributes::{NameId, Names, TENANT, TIER, Values};
use super::conditions::Conditions;
use super::descriptors::Descriptors;
use super::share::share;
use super::verdict::Key;
use crate::policy::{Limit, Pattern, Policy, WhenMissing};
use crate::request_attributes::header_table::HeaderTable;
use crate::store::{Ask, Does, Part};

/// A policy in force.
#[derive(Debug)]
pub(crate) struct InForce {
    pub(crate) policy: Policy,
    pub(super) names: Names,
    pub(super) headers: HeaderTable,
    tier_names: Vec<String>,
    default_tier: TierId,
    tenants: HashMap<String, TenantInForce>,
    costs: Vec<(Conditions, u64)>,
    pub(super) limits: Vec<LimitInForce>,
    pub(super) by_attributes: Vec<u32>, // those that are not found by an Envoy descriptor
    pub(super) descriptors: Descriptors,
}

/// What the table of this process decides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Here {
    /// The rules as they are.
    All,
    /// The share of one of so many, for when the store that they share is gone.
    ShareOf(u32),
}

impl Here {
    fn rule(self, rule: &Rule) -> Rule {
        match self {
            Self::All => *rule,
            Self::ShareOf(nodes) => share(rule, nodes),
        }
    }
}

/// One of the policy's tiers, by number. None for tenants that have none.
pub(crate) type TierId = Option<u16>;

/// One of the sets of numbers that a limit has.
pub(crate) type NumbersId = u32;

/// A tenant that differs from the rest.
#[derive(Debug)]
struct TenantInForce {
    tier: TierId,
    own: Vec<(u32, NumbersId)>, // by limit
}

/// What somebody is entitled to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing<'p> {
    pub(super) tier: TierId,
    own: &'p [(u32, NumbersId)], // by limit
}

/// A limit in force.
#[derive(Debug)]
pub(crate) struct LimitInForce {
    pub(crate) policy: Limit,
    pub(crate) number: usize,
    pub(crate) is_concurrency: bool,
    pub(super) conditions: Conditions,
    key: Vec<SmallVec<[NameId; 2]>>,
    counter: Arc<Counter>,
    numbers: Vec<NumbersInForce>,
    by_owner: HashMap<Owner, NumbersId>,
    by_tier: Vec<NumbersId>, // those without a tier first
    tag: Option<usize>,      // the part of its key that all keys of a request have in common
    has_one_tier: bool,      // each key has one set of numbers at a time: asked under another, it has moved
}

/// A set of numbers, and where the table has them.
#[derive(Debug)]
pub(crate) struct NumbersInForce {
    pub(crate) rule: Rule,
    is_blocked: bool, // nothing passes, and the rule is not asked
    owner: Owner,
    tier: Tier,
    place: Option<Arc<Place>>, // kept from others as long as these numbers are
}

/// Whose numbers they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Owner {
    All,
    Tier(String),
    Tenant(String),
}

/// The states of a limit's keys. They outlive a reload if neither the algorithm nor the key has changed.
pub(super) struct Counter {
    limiter: KeyedLimiter,
    spare: Mutex<Vec<Tier>>,
}

/// A place for numbers in the table. It can be taken by others once no request knows it any more.
#[derive(Debug)]
struct Place {
    tier: Tier,
    counter: Arc<Counter>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.counter.spare.lock().push(self.tier);
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counter(..)")
    }
}

impl InForce {
    /// Puts a policy in force, in place of another or as the first: `limiter` is any of the table's. All of it
    /// or nothing.
    pub(super) fn new(
        policy: Policy,
        before: Option<&Self>,
        limiter: &KeyedLimiter,
        numbers: &mut HashMap<String, usize>,
        here: Here,
    ) -> Result<Self, TooManyRules> {
        let names = Names::new(attributes_of(&policy));
        let mut tier_names: Vec<String> = policy.tiers.keys().cloned().collect();
        tier_names.sort_unstable();
        let mut in_force = Self {
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
        in_force.default_tier = in_force.policy.default_tier.as_deref().and_then(|tier| in_force.tier(tier));
        let old = before.iter().flat_map(|before| &before.limits);
        let old: HashMap<&str, &LimitInForce> = old.map(|old| (old.policy.name.as_str(), old)).collect();
        let same = |limit: &Limit| {
            old.get(limit.name.as_str()).copied().filter(|old| old.policy.continues_as(limit))
        };
        // Limits may be thousands, and the table is told of new ones once.
        let new: Vec<Rule> = in_force
            .policy
            .limits
            .iter()
            .filter(|limit| same(limit).is_none())
            .map(|limit| here.rule(&limit.rule))
            .collect();
        let mut new = limiter.another_each(&new)?.into_iter();
        for limit in &in_force.policy.limits {
            let next = numbers.len();
            let number = *numbers.entry(limit.name.clone()).or_insert(next);
            let before = same(limit);
            let counter = match before {
                Some(before) => Arc::clone(&before.counter),
                None => Counter::new(new.next().expect("one for each that is new")),
            };
            let limit = LimitInForce::new(limit.clone(), number, &in_force, before, counter, here)?;
            in_force.limits.push(limit);
        }
        in_force.tenants = in_force.tenants();
        let mut changes = Vec::new();
        for limit in &in_force.limits {
            for numbers in &limit.numbers {
                let shed = in_force.shed_of(&numbers.owner);
                changes.push((
                    &limit.counter.limiter,
                    numbers.tier,
                    Numbers { rule: here.rule(&numbers.rule), shed },
                ));
            }
        }
        KeyedLimiter::set_tiers(&changes)?;
        Ok(in_force)
    }

    pub(crate) fn limit(&self, place: u32) -> &LimitInForce {
        &self.limits[place as usize]
    }

    /// Whether of all limits like this that apply to a request one is enough.
    pub(super) fn is_quota(&self, limit: u32) -> bool {
        let of = self.limit(limit).policy.descriptor.as_ref();
        self.policy.envoy.quota_mode || of.is_some_and(|of| of.quota_mode)
    }

    /// The limit of this name.
    pub(crate) fn find(&self, name: &str) -> Option<(u32, &LimitInForce)> {
        let place = self.limits.iter().position(|limit| limit.policy.name == name)?;
        Some((u32::try_from(place).ok()?, &self.limits[place]))
    }

    /// What a request costs that does not say so itself.
    pub(super) fn cost(&self, values: &Values<'_>) -> u64 {
        self.costs.iter().find(|(conditions, _)| conditions.hold(values)).map_or(1, |(_, cost)| *cost)
    }

    /// What a tenant is entitled to, as the policy has it.
    pub(super) fn standing(&self, tenant: Option<&str>) -> Standing<'_> {
        match tenant.and_then(|tenant| self.tenants.get(tenant)) {
            Some(tenant) => Standing { tier: tenant.tier.or(self.default_tier), own: &tenant.own },
            None => Standing { tier: self.default_tier, own: &[] },
        }
    }

    /// The number of a tier, if there is one of this name.
    pub(super) fn tier(&self, name: &str) -> TierId {
        let place = self.tier_names.binary_search_by(|tier| tier.as_str().cmp(name)).ok()?;
        u16::try_from(place).ok()
    }

    pub(super) fn tier_name(&self, tier: TierId) -> Option<&str> {
        tier.map(|tier| self.tier_names[usize::from(tier)].as_str())
    }

    /// The numbers that somebody has of a limit: their own, their tier's, or those of all.
    pub(super) fn numbers_of(&self, limit: u32, standing: &Standing<'_>) -> NumbersId {
        match standing.own.iter().find(|(of, _)| *of == limit) {
            Some((_, numbers)) => *numbers,
            None => self.limit(limit).by_tier[standing.tier.map_or(0, |tier| usize::from(tier) + 1)],
        }
    }

    fn tenants(&self) -> HashMap<String, TenantInForce> {
        let tenant = |(name, tenant): (&String, &crate::policy::Tenant)| {
            let own = (0..).zip(&self.limits).filter_map(|(place, limit)| {
                let numbers = limit.numbers_for(&Owner::Tenant(name.clone()))?;
                tenant.limits.contains_key(&limit.policy.name).then_some((place, numbers))
            });
            let tier = tenant.tier.as_deref().and_then(|tier| self.tier(tier));
            (name.clone(), TenantInForce { tier, own: own.collect() })
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

    /// How hard adaptive rates press those who have some numbers.
    pub(super) fn shed(&self, limit: &LimitInForce, numbers: NumbersId) -> u8 {
        match self.shed_of(&limit.numbers(numbers).owner) {
            Shed::Exempt => 0,
            Shed::Normal => 1,
            Shed::First => 2,
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
            Owner::Tenant(tenant) => self.tier_name(self.standing(Some(tenant)).tier),
        };
        match tier.and_then(|tier| self.policy.tiers.get(tier)).map_or(1, |tier| tier.shed) {
            0 => Shed::Exempt,
            1 => Shed::Normal,
            _ => Shed::First,
        }
    }
}

impl LimitInForce {
    fn new(
        policy: Limit,
        number: usize,
        in_force: &InForce,
        before: Option<&Self>,
        counter: Arc<Counter>,
        here: Here,
    ) -> Result<Self, TooManyRules> {
        let mut numbers = Counter::places(&counter, owners(&policy, in_force), before, here)?;
        numbers.iter_mut().for_each(|of| of.is_blocked = in_force.is_blocked_for(&policy, &of.owner));
        let place =
            |name: &String| in_force.names.place(name).expect("every attribute of the policy has a place");
        let mut limit = Self {
            number,
            is_concurrency: matches!(policy.rule, Rule::Concurrency(_)),
            has_one_tier: numbers.len() == 1 || policy.counts_by_tenant(),
            conditions: Conditions::new(&policy.applies_to, &in_force.names),
            key: policy.key.iter().map(|part| part.0.iter().map(place).collect()).collect(),
            by_owner: (0..).zip(&numbers).map(|(id, numbers)| (numbers.owner.clone(), id)).collect(),
            counter,
            numbers,
            by_tier: Vec::new(),
            tag: policy.tag(),
            policy,
        };
        let of_tier = |tier: &String| limit.numbers_for(&Owner::Tier(tier.clone())).unwrap_or(0);
        limit.by_tier = std::iter::once(0).chain(in_force.tier_names.iter().map(of_tier)).collect();
        Ok(limit)
    }

    pub(crate) fn numbers(&self, id: NumbersId) -> &NumbersInForce {
        &self.numbers[id as usize]
    }

    fn numbers_for(&self, owner: &Owner) -> Option<NumbersId> {
        self.by_owner.get(owner).copied()
    }

    /// Whether the limit denies a request because an attribute of its key is missing. None where it does not apply then.
    pub(super) fn applies(&self, values: &Values<'_>) -> Option<bool> {
        match self.policy.when_missing {
            WhenMissing::Share => Some(false),
            WhenMissing::Skip => self.missing(values).is_none().then_some(false),
            WhenMissing::Deny => Some(self.missing(values).is_some()),
        }
    }

    /// The key that a request counts under, with the empty value for what is missing.
    pub(super) fn shared_key<'a>(&self, values: &Values<'a>) -> Key<'a> {
        if let Some(descriptor) = &self.policy.descriptor {
            return values.of_entries(&descriptor.entries).collect();
        }
        self.key.iter().map(|names| Self::value(names, values).unwrap_or_default()).collect()
    }

    /// What all keys of a request have in common: the tenant, else the first part of the key, and of Envoy's descriptors
    /// the domain. Empty where there is nothing.
    pub(super) fn tag<'a>(&'a self, key: &Key<'a>) -> &'a [u8] {
        if let Some(descriptor) = &self.policy.descriptor {
            return descriptor.domain.as_bytes();
        }
        self.tag.and_then(|part| key.get(part)).map_or(&[], |part| part.as_bytes())
    }

    /// The attributes of a request of Envoy's to a key of this limit, from the values of those entries that have many. None
    /// where it is found by attributes.
    pub(super) fn described<'x>(
        &'x self,
        attributes: &[(&'x str, &'x str)],
    ) -> Option<Vec<(&'x str, &'x str)>> {
        let descriptor = self.policy.descriptor.as_ref()?;
        let mut given = attributes.to_vec();
        let mut entries = vec![("domain", descriptor.domain.as_str())];
        for entry in &descriptor.entries {
            // Of a key that comes again, the next value.
            let is_key = |name: &str| match entry.has_key_star() {
                true => Pattern::exact(entry.key.clone()).matches(name),
                false => name == entry.key,
            };
            let place = given.iter().position(|(name, _)| is_key(name));
            let (key, value) = match place.map(|place| given.remove(place)) {
                Some((key, value)) => (key, Some(value)),
                None => (entry.key.as_str(), entry.value.as_deref()),
            };
            entries.push((key, value.unwrap_or_default()));
        }
        Some(entries)
    }

    /// Whether nothing passes with some numbers, whatever their rule says.
    pub(super) fn is_blocked(&self, numbers: NumbersId) -> bool {
        self.numbers(numbers).is_blocked
    }

    /// The most that can pass at once.
    pub(super) fn capacity(&self, numbers: NumbersId) -> u64 {
        if self.is_blocked(numbers) { 0 } else { self.numbers(numbers).rule.capacity() }
    }

    /// How a key stands, by what its rule says: where nothing passes, nothing remains.
    pub(super) fn status(&self, numbers: NumbersId, status: Status) -> Status {
        if self.is_blocked(numbers) { Status { remaining: 0, ..status } } else { status }
    }

    /// The first part of the key that a request has no attribute for.
    pub(super) fn missing(&self, values: &Values<'_>) -> Option<usize> {
        self.key.iter().position(|names| Self::value(names, values).is_none())
    }

    fn value<'a>(names: &[NameId], values: &Values<'a>) -> Option<&'a str> {
        names.iter().find_map(|&name| values.get(name))
    }

    /// What is asked of a store for a key, on its own.
    pub(super) fn stored_ask<'a>(&'a self, rule: Rule, key: &Key<'a>, cost: u64, does: Does) -> Ask<'a> {
        Ask {
            limit: Cow::Borrowed(&self.policy.name),
            tag: self.tag(key),
            key: key.iter().map(|part| part.as_bytes()).collect(),
            rule,
            pace: Pace::FULL,
            cost,
            does,
            part: Part::Alone,
            has_one_tier: self.has_one_tier,
            is_blocked: false,
        }
    }

    /// A request of cost 1 to a key.
    pub(crate) fn ask<'l>(&'l self, numbers: NumbersId, key: &[&str]) -> Request<'l> {
        let (ask, tier) = (self.counter.limiter.ask(&Parts(key)), self.numbers(numbers).tier);
        let ask = if self.has_one_tier { ask.only_tier(tier) } else { ask.tier(tier) };
        if self.is_blocked(numbers) { ask.blocked() } else { ask }
    }

    /// Forgets a key. False if it was not remembered.
    pub(crate) fn reset(&self, key: &[&str]) -> bool {
        self.counter.limiter.reset(&Parts(key))
    }
}

impl Counter {
    fn new(limiter: KeyedLimiter) -> Arc<Self> {
        Arc::new(Self { limiter, spare: Mutex::default() })
    }

    /// A place for the numbers of each owner: where the owner had one, the same; else one that is free, or a new one.
    fn places(
        counter: &Arc<Self>,
        owners: Vec<(Owner, Rule)>,
        before: Option<&LimitInForce>,
        here: Here,
    ) -> Result<Vec<NumbersInForce>, TooManyRules> {
        let had = |owner: &Owner| {
            let before = before?;
            before.numbers_for(owner).map(|id| before.numbers(id))
        };
        let mut free = {
            let new: Vec<_> =
                owners.iter().filter(|(owner, _)| *owner != Owner::All && had(owner).is_none()).collect();
            let mut spare = counter.spare.lock();
            let taken = spare.len().min(new.len());
            let first = spare.len() - taken;
            let mut free: Vec<Tier> = spare.drain(first..).collect();
            let numbers = |(_, rule): &&(Owner, Rule)| Numbers { rule: here.rule(rule), shed: Shed::Exempt };
            let missing: Vec<_> = new[taken..].iter().map(numbers).collect();
            match counter.limiter.add_tiers(&missing) {
                Ok(added) => free.extend(added),
                Err(too_many) => {
                    spare.extend(free);
                    return Err(too_many);
                }
            }
            free.into_iter()
        };
        let place = |(owner, rule): (Owner, Rule)| {
            let (tier, place) = match had(&owner) {
                _ if owner == Owner::All => (counter.limiter.base_tier(), None),
                Some(had) => (had.tier, had.place.clone()),
                None => {
                    let tier = free.next().expect("as many as are new");
                    (tier, Some(Arc::new(Place { tier, counter: Arc::clone(counter) })))
                }
            };
            NumbersInForce { rule, is_blocked: false, owner, tier, place }
        };
        Ok(owners.into_iter().map(place).collect())
    }
}

/// Everybody with numbers of their own of a limit, those of all first.
fn owners(limit: &Limit, in_force: &InForce) -> Vec<(Owner, Rule)> {
    let mut owners = vec![(Owner::All, limit.rule)];
    let base_shed = in_force.shed_of(&Owner::All);
    for name in &in_force.tier_names {
        let (owner, rule) = (Owner::Tier(name.clone()), *limit.rule_for(Some(name)));
        let is_blocked = limit.is_blocked(Some(name)) != limit.is_blocked(None);
        if rule != limit.rule || is_blocked || in_force.shed_of(&owner) != base_shed {
            owners.push((owner, rule));
        }
    }
    let mut own: Vec<_> = in_force.policy.tenants.iter().collect();
    own.sort_unstable_by_key(|(name, _)| *name);
    for (name, tenant) in own {
        owners.extend(tenant.limits.get(&limit.name).map(|rule| (Owner::Tenant(name.clone()), *rule)));
    }
    owners
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

/// The parts of a key, each with its length before it, so that no two keys look alike.
pub(super) struct Parts<'k>(pub(super) &'k [&'k str]);

impl Hash for Parts<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for part in self.0 {
            state.write_usize(part.len());
            state.write(part.as_bytes());
        }
    }
}
