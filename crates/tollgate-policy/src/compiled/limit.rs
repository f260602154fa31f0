//! A limit of a policy, ready to plan by: its conditions, its key, its states in the table, and whose numbers are whose.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tollgate::adaptive::Pace;
use tollgate::{Action, Group, KeyedLimiter, Numbers, Request, Rule, Shed, Tier, TooManyRules};

use super::attributes::{NameId, Values};
use super::conditions::Conditions;
use super::{CompiledPolicy, TableRules};
use crate::engine::Key;
use crate::policy::{Limit, Pattern, WhenMissing};
use crate::store::Ask;

/// One of the sets of numbers that a limit has. A table tells at most 65535 apart.
pub(crate) type NumbersId = u16;

/// A limit, ready to plan by.
#[derive(Debug)]
pub(crate) struct CompiledLimit {
    pub(crate) policy: Limit,
    pub(crate) number: usize,
    pub(crate) is_concurrency: bool,
    pub(crate) conditions: Conditions,
    key: Vec<SmallVec<[NameId; 2]>>,
    pub(super) counter: Arc<Counter>,
    numbers: Vec<CompiledNumbers>,
    by_owner: HashMap<Owner, NumbersId>,
    pub(super) by_tier: Vec<NumbersId>, // those without a tier first
    tag: Option<usize>,                 // the part of its key that all keys of a request have in common
    has_one_tier: bool, // each key has one set of numbers at a time: asked under another, it has moved
}

/// A set of numbers, and where the table has them.
#[derive(Debug)]
pub(crate) struct CompiledNumbers {
    pub(crate) rule: Rule,
    is_blocked: bool, // the limit is 0: every request is denied without asking the rule
    pub(crate) shed: Shed,
    owner: Owner,
    tier: Tier,
    place: Option<Arc<Place>>, // kept from others as long as these numbers are
}

/// Whose numbers they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    All,
    Tier(String),
    Tenant(String),
}

/// The states of a limit's keys. They outlive a reload if neither the algorithm nor the key has changed.
pub(crate) struct Counter {
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

impl CompiledLimit {
    pub(super) fn new(
        policy: Limit,
        number: usize,
        compiled: &CompiledPolicy,
        before: Option<&Self>,
        counter: Arc<Counter>,
        local: TableRules,
    ) -> Result<Self, TooManyRules> {
        let mut numbers = Counter::places(&counter, owners(&policy, compiled), before, local)?;
        for numbers in &mut numbers {
            numbers.is_blocked = compiled.is_blocked_for(&policy, &numbers.owner);
            numbers.shed = compiled.shed_of(&numbers.owner);
        }
        let place =
            |name: &String| compiled.names.place(name).expect("every attribute of the policy has a place");
        let mut limit = Self {
            number,
            is_concurrency: matches!(policy.rule, Rule::Concurrency(_)),
            has_one_tier: numbers.len() == 1 || policy.counts_by_tenant(),
            conditions: Conditions::new(&policy.applies_to, &compiled.names),
            key: policy.key.iter().map(|part| part.0.iter().map(place).collect()).collect(),
            by_owner: (0..).zip(&numbers).map(|(id, numbers)| (numbers.owner.clone(), id)).collect(),
            counter,
            numbers,
            by_tier: Vec::new(),
            tag: policy.tag(),
            policy,
        };
        let of_tier = |tier: &String| limit.numbers_for(&Owner::Tier(tier.clone())).unwrap_or(0);
        limit.by_tier = std::iter::once(0).chain(compiled.tier_names.iter().map(of_tier)).collect();
        Ok(limit)
    }

    pub(crate) fn numbers(&self, id: NumbersId) -> &CompiledNumbers {
        &self.numbers[usize::from(id)]
    }

    pub(super) fn numbers_for(&self, owner: &Owner) -> Option<NumbersId> {
        self.by_owner.get(owner).copied()
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
        let (request, tier) = (self.counter.limiter.ask_by_hash(hash), self.numbers(numbers).tier);
        if self.has_one_tier { request.only_tier(tier) } else { request.tier(tier) }
    }

    /// The hash of the key that a request counts under, in this limit and no other.
    #[inline]
    pub(crate) fn key_hash(&self, values: &Values<'_>) -> u64 {
        let limiter = &self.counter.limiter;
        match &self.policy.descriptor {
            Some(descriptor) => limiter.ask(&Parts(values.of_entries(&descriptor.entries))),
            None => limiter.ask(&Parts(self.key_values(values))),
        }
        .key_hash()
    }

    fn key_values<'v>(&'v self, values: &'v Values<'_>) -> impl Iterator<Item = &'v str> + Clone {
        self.key.iter().map(|names| Self::value(names, values).unwrap_or_default())
    }

    /// What the table of this process has to know of its numbers.
    pub(super) fn changes(&self, local: TableRules) -> impl Iterator<Item = (&KeyedLimiter, Tier, Numbers)> {
        self.numbers.iter().map(move |numbers| {
            let Self { counter, .. } = self;
            let rule = local.rule(&numbers.rule);
            (&counter.limiter, numbers.tier, Numbers { rule, shed: numbers.shed })
        })
    }

    /// Forgets a key. False if it was not remembered.
    pub(crate) fn reset(&self, hash: u64) -> bool {
        self.counter.limiter.reset_by_hash(hash)
    }
}

impl Counter {
    pub(super) fn new(limiter: KeyedLimiter) -> Arc<Self> {
        Arc::new(Self { limiter, spare: Mutex::default() })
    }

    /// A place for the numbers of each owner: where the owner had one, the same; else one that is free, or a new one.
    fn places(
        counter: &Arc<Self>,
        owners: Vec<(Owner, Rule)>,
        before: Option<&CompiledLimit>,
        local: TableRules,
    ) -> Result<Vec<CompiledNumbers>, TooManyRules> {
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
            let numbers = |(_, rule): &&(Owner, Rule)| Numbers { rule: local.rule(rule), shed: Shed::Exempt };
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
            CompiledNumbers { rule, is_blocked: false, shed: Shed::Exempt, owner, tier, place }
        };
        Ok(owners.into_iter().map(place).collect())
    }
}

/// Everybody with numbers of their own of a limit, those of all first.
fn owners(limit: &Limit, compiled: &CompiledPolicy) -> Vec<(Owner, Rule)> {
    let mut owners = vec![(Owner::All, limit.rule)];
    let base_shed = compiled.shed_of(&Owner::All);
    for name in &compiled.tier_names {
        let (owner, rule) = (Owner::Tier(name.clone()), *limit.rule_for(Some(name)));
        let is_blocked = limit.is_blocked(Some(name)) != limit.is_blocked(None);
        if rule != limit.rule || is_blocked || compiled.shed_of(&owner) != base_shed {
            owners.push((owner, rule));
        }
    }
    let mut own: Vec<_> = compiled.policy.tenants.iter().collect();
    own.sort_unstable_by_key(|(name, _)| *name);
    for (name, tenant) in own {
        owners.extend(tenant.limits.get(&limit.name).map(|rule| (Owner::Tenant(name.clone()), *rule)));
    }
    owners
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
