//! Which limits a Redis Cluster cannot decide together.

use std::collections::HashMap;

use tollgate::Rule;

use super::{Condition, Descriptor, Entry, Limit, Policy, StoreSettings};

impl Policy {
    /// Whether its states are in a cluster, which must have all keys of a request in one place.
    pub(crate) fn is_on_cluster(&self) -> bool {
        matches!(&self.store, StoreSettings::Redis(redis) if redis.cluster)
    }

    /// Limits that a cluster cannot decide together. All keys of a request must be on one server. The tenant chooses the server, else
    /// the first part of the key, and for Envoy descriptors the domain. Shadow limits are decided with the others. Empty if the store
    /// is not a cluster.
    ///
    /// Leased limits may be anywhere, except beside quotas and limits with `count_denied`. `require_lease` returns an error for rules
    /// whose grants the store cannot compute.
    pub fn cluster_faults(&self, require_lease: impl Fn(&Rule) -> Result<(), String>) -> Vec<String> {
        if !self.is_on_cluster() {
            return Vec::new();
        }
        let described = |limit: &Limit| {
            let (name, shadow) = (&limit.name, if limit.shadow { " (shadow)" } else { "" });
            match limit.kept_by() {
                Some(_) if limit.descriptor.is_some() => format!("`{name}`{shadow} by its domain"),
                Some(part) => format!("`{name}`{shadow} by `{part}`"),
                None => format!("`{name}`{shadow} by nothing, since it has one key for all"),
            }
        };
        let needs = |limit: &Limit| {
            let descriptor = limit.descriptor.as_ref();
            let is_quota = descriptor.is_some_and(|of| of.quota_mode || self.envoy.quota_mode);
            if is_quota || limit.rule.counts_denied() {
                Needs::AllLimits
            } else if self.is_leased(limit, &require_lease) {
                Needs::Nothing
            } else {
                Needs::ExactLimits
            }
        };
        let mut earlier = EarlierLimits::new(&self.limits, self.limits.iter().map(needs).collect());
        let mut faults = Vec::new();
        for (place, one) in self.limits.iter().enumerate() {
            faults.extend(earlier.first_kept_apart(place).0.map(|other| {
                let other = &self.limits[other];
                let help = match one.descriptor.is_some() || other.descriptor.is_some() {
                    true => "give the one without a descriptor a key that begins with `domain` and has no `tenant`",
                    false => "give both a key with `tenant`, or the same first part",
                };
                format!(
                    "a request may need keys of {} and of {}, which a cluster keeps in different places, so that they \
                     cannot be charged together: {help}, let them `match` different requests, or use a single server or \
                     Sentinel{}",
                    described(other),
                    described(one),
                    if self.has_leases() { "" } else { ", or `mode: lease`, in which a cluster decides most limits apart" }
                )
            }));
            earlier.add(place);
        }
        faults
    }
}

/// Which limits must be on the same server as a limit, so that a request can be decided by both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Needs {
    /// None: nodes decide it by grants, which they can put back.
    Nothing,
    /// Those that the store decides.
    ExactLimits,
    /// All: what is charged to it depends on what the others decide, also if they deny.
    AllLimits,
}

impl Needs {
    fn must_be_together(self, other: Self) -> bool {
        let (least, most) = (self.min(other), self.max(other));
        most == Self::AllLimits || least == Self::ExactLimits
    }
}

/// The limits before the present one, filed by the values that they require of an attribute.
struct EarlierLimits<'p> {
    limits: &'p [Limit],
    kept_by: Vec<usize>, // for each limit, equal numbers where the server is chosen by the same part of the key
    needs: Vec<Needs>,   // of each limit
    counts: HashMap<(&'p str, String), usize>, // limits that require a value of an attribute
    filed: HashMap<&'p str, FiledLimits>, // by attribute
    open: Vec<usize>,    // limits that require no value without a star
    descriptors: Vec<usize>,
}

/// Limits that are filed under one attribute.
#[derive(Default)]
struct FiledLimits {
    all: Vec<usize>,
    by_value: HashMap<String, Vec<usize>>,
}

impl<'p> EarlierLimits<'p> {
    fn new(limits: &'p [Limit], needs: Vec<Needs>) -> Self {
        let mut numbers: HashMap<Option<String>, usize> = HashMap::new();
        let kept_by = limits.iter().map(|limit| {
            let next = numbers.len();
            *numbers.entry(limit.kept_by()).or_insert(next)
        });
        let kept_by: Vec<usize> = kept_by.collect();
        let mut counts = HashMap::new();
        if numbers.len() > 1 {
            for (attribute, values) in limits.iter().flat_map(required_values) {
                values.into_iter().for_each(|value| *counts.entry((attribute, value)).or_default() += 1);
            }
        }
        Self {
            limits,
            kept_by,
            needs,
            counts,
            filed: HashMap::new(),
            open: Vec::new(),
            descriptors: Vec::new(),
        }
    }

    /// Files a limit. Those before it have been filed.
    fn add(&mut self, place: usize) {
        let limit = &self.limits[place];
        if limit.descriptor.is_some() {
            self.descriptors.push(place);
            return;
        }
        let count = |attribute, value: &String| self.counts.get(&(attribute, value.clone())).copied();
        let largest = |(attribute, values): &(&'p str, Vec<String>)| {
            values.iter().filter_map(|value| count(attribute, value)).max()
        };
        let Some((attribute, values)) = required_values(limit).min_by_key(largest) else {
            self.open.push(place);
            return;
        };
        let filed = self.filed.entry(attribute).or_default();
        filed.all.push(place);
        for value in values {
            let places = filed.by_value.entry(value).or_default();
            if places.last() != Some(&place) {
                places.push(place);
            }
        }
    }

    /// The first limit before this one that may apply to the same request and is kept on another server, and how many limits were
    /// compared with this one.
    fn first_kept_apart(&self, place: usize) -> (Option<usize>, usize) {
        let (limits, kept_by) = (self.limits, &self.kept_by);
        let one = &limits[place];
        let (mut first, mut compared) = (None, 0);
        let mut look = |places: &[usize]| {
            let before = places.iter().take_while(|other| first.is_none_or(|first| **other < first));
            let apart = before.filter(|other| {
                kept_by[**other] != kept_by[place] && self.needs[**other].must_be_together(self.needs[place])
            });
            let found = apart.copied().find(|other| {
                compared += 1;
                can_meet(&limits[*other], one) && limits[*other].may_apply_with(one)
            });
            first = found.or(first);
        };
        look(&self.open);
        if one.descriptor.is_none() {
            look(&self.descriptors);
        }
        let required: HashMap<&str, Vec<String>> = match one.descriptor {
            None => required_values(one).collect(),
            Some(_) => HashMap::new(),
        };
        for (attribute, filed) in &self.filed {
            match required.get(attribute) {
                Some(values) => values
                    .iter()
                    .filter_map(|value| filed.by_value.get(value))
                    .for_each(|places| look(places)),
                None => look(&filed.all),
            }
        }
        (first, compared)
    }
}

/// The attributes of which a limit requires one of several values without stars, each with the values. Two values that a request
/// may have at once are equal here.
fn required_values(limit: &Limit) -> impl Iterator<Item = (&str, Vec<String>)> {
    let values = |condition: &'_ Condition| {
        let values: Option<Vec<String>> =
            condition.patterns.iter().map(|pattern| pattern.rough_value()).collect();
        values
    };
    limit
        .applies_to
        .conditions()
        .iter()
        .filter_map(move |condition| Some((condition.attribute.as_str(), values(condition)?)))
}

/// Whether a limit and a descriptor may apply to one request, as far as the names of attributes show. True for all other limits.
fn can_meet(one: &Limit, other: &Limit) -> bool {
    let has = |descriptor: &Descriptor, name: &str| {
        let is_key = |entry: &Entry| entry.has_key_star() || entry.key == name;
        matches!(name, "tier" | "domain") || descriptor.entries.iter().any(is_key)
    };
    let has_all = |descriptor: &Descriptor, limit: &Limit| {
        limit.applies_to.conditions().iter().all(|condition| has(descriptor, &condition.attribute))
    };
    match (&one.descriptor, &other.descriptor) {
        (Some(descriptor), None) => has_all(descriptor, other),
        (None, Some(descriptor)) => has_all(descriptor, one),
        _ => true,
    }
}

#[cfg(test)]
mod tests;
