//! What can be said of a policy before it is put in force.

use std::collections::HashMap;

use tollgate::Rule;

use super::match_groups::MatchGroups;
use super::numbers::strict_counter;
use super::{Limit, OnError, Policy, StoreSettings, Trust};
use crate::engine::{MOST_LIMITS, USUAL_LIMITS};
use crate::reader::{nearest, quoted};

/// What a new policy makes of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// It is new.
    Added,
    /// It is gone, with the state of its keys.
    Removed,
    /// Its keys start afresh, for this reason.
    Afresh(&'static str),
    /// Its numbers changed; each key keeps its tokens, or its count.
    Numbers,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Added => f.write_str("is new"),
            Self::Removed => f.write_str("is gone, with the state of its keys"),
            Self::Afresh(why) => write!(f, "starts afresh for every key: {why}"),
            Self::Numbers => f.write_str("has other numbers; every key keeps its tokens, or its count"),
        }
    }
}

impl Limit {
    /// The least that passes at once, for any tier. None if nothing passes for all of them.
    fn least_capacity(&self) -> Option<u64> {
        let own = (!self.is_blocked(None)).then(|| self.rule.capacity());
        let tiers = self.tiers.iter().filter(|(tier, _)| !self.is_blocked(Some(tier.as_str())));
        own.into_iter().chain(tiers.map(|(_, rule)| rule.capacity())).min()
    }
}

/// Attributes that requests usually have.
const USUAL: [&str; 8] = ["tenant", "user", "ip", "method", "path", "host", "tier", "key"];

impl Policy {
    /// Settings that are not built yet. A policy that was read from a file has none, because reading reports them as faults;
    /// a policy that was made in code may have some.
    pub fn not_built(&self) -> Vec<String> {
        let mut missing = Vec::new();
        let mut need = |asked: bool, what: &str| {
            if asked {
                missing.push(what.to_owned());
            }
        };
        match &self.store {
            StoreSettings::Redis(_) => {}
            StoreSettings::Memory(memory) => {
                need(memory.persist.is_some(), "`store: { memory: { persist } }`")
            }
        }
        missing
    }

    /// What is allowed and still worth a second look.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let at_once = self.most_at_once();
        if at_once > USUAL_LIMITS {
            warnings.push(format!(
                "{at_once} limits may apply to one request: up to {USUAL_LIMITS} are decided without allocation, \
                 and more than {MOST_LIMITS} are refused"
            ));
        }
        self.warn_of_replaced_logs(&mut warnings);
        self.warn_of_costs(&mut warnings);
        self.warn_of_patterns(&mut warnings);
        self.warn_of_strangers(&mut warnings);
        if let Some(resp) = self.listen.and_then(|listen| listen.resp)
            && !resp.ip().to_canonical().is_loopback()
            && self.resp_password_file.is_none()
        {
            warnings.push(format!(
                "`listen.resp` {resp} is open to other machines, and there is no `resp_password_file`: anybody may ask"
            ));
        }
        self.warn_of_gateway(&mut warnings);
        if self.limits.is_empty() {
            warnings.push("there are no limits: every request passes".to_owned());
        }
        for limit in self.limits.iter().filter(|limit| limit.has_no_lease()) {
            let name = &limit.name;
            warnings.push(format!(
                "limit `{name}` has no `lease`: a permit whose holder dies is never free again"
            ));
        }
        warnings
    }

    /// Hints about settings that are valid but may not be intended.
    pub fn notes(&self) -> Vec<String> {
        const SHOWN: usize = 5;
        let is_literal = |limit: &&Limit| {
            let is_wide = limit.applies_to.ignores_case() && limit.applies_to.ignores_trailing_slash();
            let mut paths = limit.applies_to.patterns().filter(|(name, _)| *name == "path" && !is_wide);
            paths.any(|(_, mut patterns)| patterns.any(|path| path.len() > 1 && !path.contains('*')))
        };
        let is_zero = |limit: &&Limit| limit.is_blocked(None) && limit.descriptor.is_none();
        let blocked = self.limits.iter().filter(is_zero).map(|limit| {
            format!(
                "limit `{}` has `limit: 0`: it denies every request that it applies to, except where a tier or a tenant has \
                 another limit",
                limit.name
            )
        });
        let mut notes: Vec<String> = blocked.collect();
        let literal: Vec<&Limit> = self.limits.iter().filter(is_literal).collect();
        if literal.is_empty() {
            return notes;
        }
        let shown = literal.iter().take(SHOWN).map(|limit| limit.name.as_str());
        let (names, more) = (quoted(shown), literal.len().saturating_sub(SHOWN));
        let more = if more > 0 { format!(" and {more} more limits") } else { String::new() };
        // The example is always the same: a path of the policy may come from the environment.
        notes.push(format!(
            "{names}{more}: `path` is compared as written. For example, `/login/` and `/LOGIN` do not match `/login`. If your \
             application serves such paths alike, write `match: {{ path: /login, ignore_case: true, trailing_slash: any }}`"
        ));
        notes
    }

    /// Logs that are too large to be kept exactly.
    fn warn_of_replaced_logs(&self, warnings: &mut Vec<String>) {
        for limit in &self.limits {
            let exact_up_to = |rule: &Rule| limit.exact_up_to_of(rule);
            let in_tiers = limit.tiers.iter().filter(|(_, rule)| exact_up_to(rule).is_some());
            let mut large: Vec<String> =
                in_tiers.map(|(tier, rule)| format!("{} in tier {tier}", rule.capacity())).collect();
            large.sort_unstable();
            if exact_up_to(&limit.rule).is_some() {
                large.insert(0, limit.rule.capacity().to_string());
            }
            let own = self.tenants.rules_of(&limit.name);
            match own.clone().filter(|rule| exact_up_to(rule).is_some()).count() {
                0 => {}
                1 => large.push("that of 1 tenant".to_owned()),
                tenants => large.push(format!("those of {tenants} tenants")),
            }
            let rules = std::iter::once(&limit.rule).chain(limit.tiers.values()).chain(own);
            if let Some(exact_up_to) = rules.filter_map(exact_up_to).next() {
                warnings.push(format!(
                    "limit `{}` uses {} in place of {} where the limit is above `exact_up_to` \
                     {exact_up_to}: {}. The counter acts as a window that is longer by 1/32",
                    limit.name,
                    strict_counter(),
                    limit.algorithm_name(),
                    large.join(", "),
                ));
            }
        }
    }

    fn warn_of_costs(&self, warnings: &mut Vec<String>) {
        let most = self.costs.iter().map(|cost| cost.cost).max().unwrap_or(0);
        // Only limits that hold less than a request may cost are of interest: in order of what they hold, so that most are skipped.
        let mut small: Vec<(u64, usize)> = (0..)
            .zip(&self.limits)
            .filter(|(_, limit)| !limit.shadow && limit.descriptor.is_none())
            .filter_map(|(place, limit)| Some((limit.least_capacity()?, place)))
            .filter(|(capacity, _)| *capacity < most)
            .collect();
        small.sort_unstable();
        let mut groups = MatchGroups::new(small.iter().map(|(_, place)| &self.limits[*place].applies_to));
        for cost in &self.costs {
            let is_too_small = |place: u32| small[place as usize].0 < cost.cost;
            let held = groups.may_hold(&cost.applies_to.sample());
            let mut places: Vec<usize> =
                held.places_while(is_too_small).map(|place| small[place as usize].1).collect();
            places.sort_unstable();
            for limit in places.into_iter().map(|place| &self.limits[place]) {
                let small = limit.tiers.iter().filter(|(tier, rule)| {
                    rule.capacity() < cost.cost && !limit.is_blocked(Some(tier.as_str()))
                });
                let mut small: Vec<String> =
                    small.map(|(tier, rule)| format!("{} in tier {tier}", rule.capacity())).collect();
                small.sort_unstable();
                if limit.rule.capacity() < cost.cost && !limit.is_blocked(None) {
                    small.insert(0, limit.rule.capacity().to_string());
                }
                warnings.push(format!(
                    "limit `{}` holds {} and a request may cost {}: where both apply, it never passes",
                    limit.name,
                    small.join(", "),
                    cost.cost
                ));
            }
        }
    }

    /// Patterns that match nothing real, and keys that were probably meant to be others.
    fn warn_of_patterns(&self, warnings: &mut Vec<String>) {
        let limits = self.limits.iter().map(|limit| (format!("limit `{}`", limit.name), &limit.applies_to));
        let costs = self.costs.iter().map(|cost| (format!("the cost of {}", cost.cost), &cost.applies_to));
        for (whose, applies_to) in limits.chain(costs) {
            for (attribute, patterns) in applies_to.patterns() {
                for pattern in patterns {
                    let wrong = match attribute {
                        "path" if !pattern.starts_with(['/', '*']) => "paths begin with a slash",
                        "method" if pattern.chars().any(char::is_lowercase) => "methods are sent in capitals",
                        _ => continue,
                    };
                    warnings.push(format!(
                        "{whose} matches `{attribute}: {pattern}`, which nothing does: {wrong}"
                    ));
                }
            }
        }
        let mut meant: HashMap<&str, Option<&str>> = HashMap::new();
        for limit in &self.limits {
            for name in limit.key.iter().flat_map(|part| &part.0) {
                let meant = meant.entry(name).or_insert_with(|| nearest(name, USUAL.into_iter()));
                if let Some(meant) = meant.filter(|meant| meant != name) {
                    warnings
                        .push(format!("limit `{}` counts by `{name}`: did you mean `{meant}`?", limit.name));
                }
            }
        }
    }

    /// A queue that tells nobody apart.
    fn warn_of_gateway(&self, warnings: &mut Vec<String>) {
        let Some(queue) = self.gateway.as_ref().and_then(|gateway| gateway.fair_queue.as_ref()) else {
            return;
        };
        let source = match &*queue.by {
            "tenant" => &self.identity.tenant,
            "user" => &self.identity.user,
            _ => return,
        };
        if source.is_none() {
            let by = &queue.by;
            warnings.push(format!(
                "`gateway.fair_queue` tells requests apart by `{by}`, and `identity` does not say what the {by} is: \
                 all share one line"
            ));
        }
    }

    /// Limits by what only a proxy can tell, where no proxy is believed.
    fn warn_of_strangers(&self, warnings: &mut Vec<String>) {
        let looks_at = |limit: &Limit, attribute: &str| {
            let matched = limit.applies_to.patterns().any(|(name, _)| name == attribute);
            matched || limit.key.iter().any(|part| part.0.iter().any(|name| name == attribute))
        };
        let told = ["path", "method", "ip"];
        let is_told = |limit: &Limit| told.iter().any(|attribute| looks_at(limit, attribute));
        // A gateway sees path, method and client for itself.
        if self.gateway.is_none()
            && self.identity.client_ip.trust == Trust::default()
            && self.limits.iter().any(is_told)
        {
            warnings.push(
                "no `identity.client_ip.trusted_proxies`: nobody is believed on the original path, method and client, so \
                 that limits by them do not work for forward-auth (a check brings its own attributes)"
                    .to_owned(),
            );
        }
    }

    /// The change of each limit that is not as it was in the policy before, in order of name.
    pub fn changes_from(&self, before: &Self) -> Vec<(String, Change)> {
        let (old, new) = (by_name(&before.limits), by_name(&self.limits));
        let mut changes = Vec::new();
        for limit in &self.limits {
            let change = match old.get(limit.name.as_str()) {
                None => Change::Added,
                Some(old) => match old.starts_afresh_as(limit) {
                    Some(why) => Change::Afresh(why),
                    None if !old.decides_like(limit) => Change::Numbers,
                    None => continue,
                },
            };
            changes.push((limit.name.clone(), change));
        }
        let gone = before.limits.iter().filter(|limit| !new.contains_key(limit.name.as_str()));
        changes.extend(gone.map(|limit| (limit.name.clone(), Change::Removed)));
        changes.sort_by(|(a, _), (b, _)| a.cmp(b));
        changes
    }

    /// Other sections of the file, such as `gateway`, that are not as they were in the policy before.
    pub fn sections_changed_from(&self, before: &Self) -> Vec<&'static str> {
        let changed = [
            ("listen.hosts", self.hosts != before.hosts),
            ("dashboard", self.dashboard != before.dashboard),
            ("headers", self.headers != before.headers),
            ("identity", self.identity != before.identity),
            ("tiers", (&self.tiers, &self.default_tier) != (&before.tiers, &before.default_tier)),
            ("tenants", self.tenants != before.tenants),
            ("costs", self.costs != before.costs),
            ("gateway", self.gateway != before.gateway),
            ("adaptive_rates", self.adaptive_rates != before.adaptive_rates),
        ];
        changed.into_iter().filter(|(_, changed)| *changed).map(|(name, _)| name).collect()
    }

    /// Whether a limit denies while the store gives no answer.
    pub fn fails_closed(&self) -> bool {
        let StoreSettings::Redis(redis) = &self.store else { return false };
        let denies = |limit: &&Limit| limit.on_error.unwrap_or(redis.on_error) == OnError::Deny;
        self.limits.iter().filter(|limit| !limit.shadow).any(|limit| denies(&limit))
    }

    /// What a store cannot keep of this policy. `require` returns an error for rules whose states it cannot keep, and `require_lease`
    /// for rules whose grants it cannot compute.
    pub fn store_faults(
        &self,
        require: impl Fn(&Rule) -> Result<(), String>,
        require_lease: impl Fn(&Rule) -> Result<(), String>,
    ) -> Vec<String> {
        let mut faults = self.cluster_faults(require_lease);
        for limit in &self.limits {
            let own = self.tenants.rules_of(&limit.name);
            let rules = std::iter::once(&limit.rule).chain(limit.tiers.values()).chain(own);
            let refused = rules.filter_map(|rule| require(rule).err()).next();
            faults.extend(refused.map(|why| format!("`{}`: {why}", limit.name)));
        }
        faults
    }

    /// The most live limits that may apply to one request. Limits with descriptors do not count: Envoy decides how many of them
    /// apply, one for each descriptor that it sends.
    fn most_at_once(&self) -> usize {
        let live: Vec<&Limit> = self.live_limits().collect();
        let without_match = live.iter().filter(|limit| limit.applies_to.conditions().is_empty()).count();
        let mut groups = MatchGroups::new(live.iter().map(|limit| &limit.applies_to));
        let by_attributes = self.limits.iter().filter(|limit| limit.descriptor.is_none());
        let together = by_attributes.map(|limit| match limit.applies_to.sample() {
            // Anything may be true of a request of which nothing is known, but not everything at once.
            sample if sample.is_empty() => without_match,
            sample => groups.may_hold(&sample).count(),
        });
        together.max().unwrap_or(0)
    }

    /// The limits that apply by attributes and can deny.
    fn live_limits(&self) -> impl Iterator<Item = &Limit> {
        self.limits.iter().filter(|limit| !limit.shadow && limit.descriptor.is_none())
    }
}

/// Limits by name. If a name comes twice, the first limit counts.
fn by_name(limits: &[Limit]) -> HashMap<&str, &Limit> {
    limits.iter().rev().map(|limit| (limit.name.as_str(), limit)).collect()
}
