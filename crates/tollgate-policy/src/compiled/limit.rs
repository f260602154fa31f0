//! A limit of a policy, ready to plan by: its conditions, its key, its states in the table, and its numbers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use smallvec::SmallVec;
use tollgate::adaptive::Pace;
use tollgate::lease::Terms;
use tollgate::{Action, Group, KeyedLimiter, Numbers, Request, Rule, Shed, Tier};

use super::attributes::{NameId, Values};
use super::conditions::Conditions;
use super::{Backing, CompiledPolicy};
use crate::engine::Key;
use crate::policy::{Limit, Pattern, Policy, WhenMissing};
use crate::store::Ask;

/// One of the sets of numbers that a limit has.
pub(crate) type NumbersId = u32;

/// A limit, ready to plan by.
#[derive(Debug)]
pub(crate) struct CompiledLimit {
    pub(crate) policy: Limit,
    pub(crate) number: usize,
    pub(crate) is_concurrency: bool,
    pub(crate) conditions: Conditions,
    key: Vec<SmallVec<[NameId; 2]>>,
    limiter: KeyedLimiter, // the states of its keys; they outlive a reload if neither the algorithm nor the key has changed
    numbers: Vec<CompiledNumbers>, // those of all first, then those of tiers
    pub(super) by_tier: Vec<NumbersId>, // those without a tier first
    of_tenants: HashMap<OwnNumbers, NumbersId>, // tenants with equal numbers share them
    tag: Option<usize>,    // the part of its key that all keys of a request have in common
    has_one_tier: bool,    // each key has one set of numbers at a time: asked under another, it has moved
}

/// A set of numbers.
#[derive(Debug)]
pub(crate) struct CompiledNumbers {
    pub(crate) rule: Rule,
    is_blocked: bool, // the limit is 0: every request is denied without asking the rule
    pub(crate) shed: Shed,
    local: Rule, // what the table of this process has: the rule, or a share of it
    tier: Tier,  // of the table
    pub(crate) terms: Option<Terms>, // on which grants are drawn, if the limit is leased
}

/// Numbers that a tenant has of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct OwnNumbers {
    pub(super) rule: Rule,
    pub(super) is_blocked: bool,
    pub(super) shed: Shed,
}

impl CompiledLimit {
    /// Compiles a limit. If it continues the limit `before`, it keeps the states and the numbers that have not changed.
    pub(super) fn new(
        policy: Limit,
        number: usize,
        compiled: &CompiledPolicy,
        before: Option<(&CompiledPolicy, &Self)>,
        table: &KeyedLimiter,
        backing: Backing<'_>,
    ) -> Self {
        let limiter = match before {
            Some((_, before)) => before.limiter.clone(),
            None => table.another(backing.table.rule(&policy.rule)),
        };
        let place =
            |name: &String| compiled.names.place(name).expect("every attribute of the policy has a place");
        let mut limit = Self {
            number,
            is_concurrency: matches!(policy.rule, Rule::Concurrency(_)),
            has_one_tier: false,
            conditions: Conditions::new(&policy.applies_to, &compiled.names),
            key: policy.key.iter().map(|part| part.0.iter().map(place).collect()).collect(),
            limiter,
            numbers: Vec::new(),
            by_tier: Vec::with_capacity(1 + compiled.tier_names.len()),
            of_tenants: HashMap::new(),
            tag: policy.tag(),
            policy,
        };
        let base = limit.own_numbers(compiled, None);
        let id =
            limit.add_numbers(base, &compiled.policy, before.map(|(_, before)| before.numbers(0)), backing);
        limit.by_tier.push(id);
        for name in &compiled.tier_names {
            let own = limit.own_numbers(compiled, Some(name));
            let had = before.and_then(|(policy, before)| before.numbers_of_tier(policy.tier(name)?));
            let id = if own == base { 0 } else { limit.add_numbers(own, &compiled.policy, had, backing) };
            limit.by_tier.push(id);
        }
        limit.has_one_tier = limit.numbers.len() == 1 || limit.policy.counts_by_tenant();
        limit
    }

    #[cfg(test)]
    pub(crate) fn sets_of_numbers(&self) -> usize {
        self.numbers.len()
    }

    /// The numbers that a tier has of its own. None if it has those of all.
    fn numbers_of_tier(&self, tier: u16) -> Option<&CompiledNumbers> {
        let id = self.by_tier[usize::from(tier) + 1];
        (id != 0).then(|| self.numbers(id))
    }

    /// The numbers of a tier, or of those without one.
    fn own_numbers(&self, compiled: &CompiledPolicy, tier: Option<&str>) -> OwnNumbers {
        OwnNumbers {
            rule: *self.policy.rule_for(tier),
            is_blocked: self.policy.is_blocked(tier),
            shed: compiled.shed_of(tier),
        }
    }

    /// Adds the numbers that a tenant has of its own. Tenants with equal numbers share them.
    pub(super) fn add_own(
        &mut self,
        own: OwnNumbers,
        policy: &Policy,
        before: Option<&Self>,
        backing: Backing<'_>,
    ) -> NumbersId {
        if let Some(id) = self.of_tenants.get(&own) {
            return *id;
        }
        let had = before.and_then(|before| before.of_tenants.get(&own).map(|id| before.numbers(*id)));
        let id = self.add_numbers(own, policy, had, backing);
        self.of_tenants.insert(own, id);
        self.has_one_tier = self.policy.counts_by_tenant();
        id
    }

    fn add_numbers(
        &mut self,
        own: OwnNumbers,
        policy: &Policy,
        had: Option<&CompiledNumbers>,
        backing: Backing<'_>,
    ) -> NumbersId {
        let OwnNumbers { rule, is_blocked, shed } = own;
        let local = backing.table.rule(&rule);
        let terms = backing.leases.and_then(|store| {
            policy.lease_terms(&self.policy, &rule, |rule| store.require_lease(rule))?.ok()
        });
        let numbers = Numbers { rule: local, shed };
        let tier = match had {
            Some(had) if (had.local, had.shed) == (local, shed) => had.tier.clone(),
            Some(had) => self.limiter.with_numbers(&had.tier, numbers),
            None => self.limiter.add_tier(numbers),
        };
        self.numbers.push(CompiledNumbers { rule, is_blocked, shed, local, tier, terms });
        (self.numbers.len() - 1) as NumbersId
    }

    pub(crate) fn numbers(&self, id: NumbersId) -> &CompiledNumbers {
        &self.numbers[id as usize]
    }

    /// Whether nodes draw grants of this limit under any of its numbers.
    pub(super) fn has_leases(&self) -> bool {
        self.numbers.iter().any(|numbers| numbers.terms.is_some())
    }

    /// The most units by which several processes with grants exceed the limit in any span of time, under the numbers with the most.
    pub(crate) fn most_excess(&self, nodes: u64) -> u64 {
        let terms = self.numbers.iter().filter_map(|numbers| numbers.terms);
        terms.map(|terms| terms.most_excess(nodes)).max().unwrap_or(0)
    }

    /// Whether the limit denies a request because an attribute of its key is missing. None where it does not apply then.
    pub(crate) fn applies(&self, values: &Values<'_>) -> Option<bool> {
        match self.policy.when_missing {
            WhenMissing::Share => Some(false),
            WhenMissing::Skip => self.missing(values).is_none().then_some(false),
            WhenMissing::Deny => Some(self.missing(values).is_some()),
        }
    }

    /// The key that a request counts under, with the empty value for what is missing.
    pub(crate) fn shared_key<'a>(&self, values: &Values<'a>) -> Key<'a> {
        if let Some(descriptor) = &self.policy.descriptor {
            return values.of_entries(&descriptor.entries).collect();
        }
        self.key.iter().map(|names| Self::value(names, values).unwrap_or_default()).collect()
    }

    /// What all keys of a request have in common: the tenant, else the first part of the key, and of Envoy's descriptors
    /// the domain. Empty where there is nothing.
    fn tag<'k>(&'k self, key: &[&'k str]) -> &'k [u8] {
        if let Some(descriptor) = &self.policy.descriptor {
            return descriptor.domain.as_bytes();
        }
        self.tag.and_then(|part| key.get(part)).map_or(&[], |part| part.as_bytes())
    }

    /// The attributes of a request of Envoy's to a key of this limit, from the values of those entries that have many. None
    /// where it is found by attributes.
    pub(crate) fn described<'x>(
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
    pub(crate) fn is_blocked(&self, numbers: NumbersId) -> bool {
        self.numbers(numbers).is_blocked
    }

    /// The most that can pass at once.
    pub(crate) fn capacity(&self, numbers: NumbersId) -> u64 {
        if self.is_blocked(numbers) { 0 } else { self.numbers(numbers).rule.capacity() }
    }

    /// The first part of the key that a request has no attribute for.
    pub(crate) fn missing(&self, values: &Values<'_>) -> Option<usize> {
        self.key.iter().position(|names| Self::value(names, values).is_none())
    }

    fn value<'a>(names: &[NameId], values: &Values<'a>) -> Option<&'a str> {
        names.iter().find_map(|&name| values.get(name))
    }

    /// An ask of cost 0 for a key, as a store decides it.
    pub(crate) fn store_ask<'k>(&'k self, numbers: NumbersId, key: &[&'k str]) -> Ask<'k> {
        Ask {
            limit: Cow::Borrowed(&self.policy.name),
            tag: self.tag(key),
            key: key.iter().map(|part| part.as_bytes()).collect(),
            rule: self.numbers(numbers).rule,
            pace: Pace::FULL,
            cost: 0,
            action: Action::Peek,
            group: Group::Independent,
            is_denied: false,
            has_one_tier: self.has_one_tier,
        }
    }

    /// A request of cost 1 to a key, as the table of this process decides it.
    #[inline]
    pub(crate) fn table_request(&self, numbers: NumbersId, hash: u64) -> Request<'_> {
        let (request, tier) = (self.limiter.ask_by_hash(hash), &self.numbers(numbers).tier);
        if self.has_one_tier { request.only_tier(tier) } else { request.tier(tier) }
    }

    /// The hash of the key that a request counts under, in this limit and no other.
    #[inline]
    pub(crate) fn key_hash(&self, values: &Values<'_>) -> u64 {
        let limiter = &self.limiter;
        match &self.policy.descriptor {
            Some(descriptor) => limiter.ask(&Parts(values.of_entries(&descriptor.entries))),
            None => limiter.ask(&Parts(self.key_values(values))),
        }
        .key_hash()
    }

    fn key_values<'v>(&'v self, values: &'v Values<'_>) -> impl Iterator<Item = &'v str> + Clone {
        self.key.iter().map(|names| Self::value(names, values).unwrap_or_default())
    }

    /// Forgets a key. False if it was not remembered.
    pub(crate) fn reset(&self, hash: u64) -> bool {
        self.limiter.reset_by_hash(hash)
    }
}

/// The parts of a key. Each is hashed with its length, so that no two keys look alike.
pub(crate) struct Parts<I>(pub(crate) I);

impl<'k, I: Iterator<Item = &'k str> + Clone> Hash for Parts<I> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for part in self.0.clone() {
            state.write_usize(part.len());
            state.write(part.as_bytes());
        }
    }
}
