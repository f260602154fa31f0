//! Policies, and the asks that a call comes to.

use super::call::{Attributes, Call, Descriptor, SentLimit};
use super::language::{Action, Ask, FixedDenial, Group, Key, OnError};
use super::rule::Rule;
use crate::conformance;

const SECOND: u64 = 1_000_000_000;

/// A policy: limits that apply by one attribute each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The limits, in the order of the file.
    pub limits: Vec<Limit>,
    /// Whether no descriptor is denied.
    pub shadow_mode: bool,
}

/// One limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Its name.
    pub name: String,
    /// The attribute that it counts by.
    pub attribute: String,
    /// Its rule.
    pub rule: Rule,
    /// How a request reaches it.
    pub scope: Scope,
    /// Whether it decides by itself and denies nothing.
    pub is_shadow: bool,
    /// Whether a request without the attribute is denied. Otherwise the limit does not apply to it.
    pub denies_missing: bool,
    /// Whether nothing passes.
    pub blocked: Blocked,
    /// What decides when the store gives no answer.
    pub on_error: OnError,
}

/// How a request reaches a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// By its attributes.
    Attribute,
    /// By a descriptor with the attribute as its only entry.
    Descriptor {
        /// Whether one of the quotas is enough.
        is_quota: bool,
        /// The limits that do not apply beside it.
        replaces: Vec<String>,
    },
}

/// For whom nothing passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// For nobody.
    No,
    /// For everybody.
    Always,
    /// For the tenant [`BANNED`](Policy::BANNED). The limit counts by `tenant`.
    Tenant,
}

impl Limit {
    /// An ordinary limit that counts by an attribute.
    pub fn new(name: &str, attribute: &str, rule: Rule) -> Self {
        Self {
            name: name.to_owned(),
            attribute: attribute.to_owned(),
            rule,
            scope: Scope::Attribute,
            is_shadow: false,
            denies_missing: false,
            blocked: Blocked::No,
            on_error: OnError::Allow,
        }
    }

    /// The same limit as a shadow.
    #[must_use]
    pub fn shadow(self) -> Self {
        Self { is_shadow: true, ..self }
    }

    /// The same limit, which denies requests without its attribute.
    #[must_use]
    pub fn denies_missing(self) -> Self {
        Self { denies_missing: true, ..self }
    }

    /// The same limit with `limit: 0`.
    #[must_use]
    pub fn blocked(self, blocked: Blocked) -> Self {
        Self { blocked, ..self }
    }

    /// The same limit for a descriptor.
    #[must_use]
    pub fn described(self, is_quota: bool) -> Self {
        Self { scope: Scope::Descriptor { is_quota, replaces: Vec::new() }, ..self }
    }

    /// The same limit with another `on_error`.
    #[must_use]
    pub fn on_error(self, on_error: OnError) -> Self {
        Self { on_error, ..self }
    }

    fn is_quota(&self) -> bool {
        matches!(self.scope, Scope::Descriptor { is_quota: true, .. })
    }

    fn is_described(&self) -> bool {
        self.scope != Scope::Attribute
    }

    fn yaml(&self) -> String {
        let Self { name, attribute, .. } = self;
        let on_error = format!("{:?}", self.on_error).to_lowercase();
        let reach = match &self.scope {
            Scope::Attribute if self.denies_missing => format!("key: [{attribute}], when_missing: deny"),
            Scope::Attribute => format!("key: [{attribute}], when_missing: skip"),
            Scope::Descriptor { is_quota, replaces } => format!(
                "descriptor: {{ domain: {}, name: {name}, entries: [{{ key: {attribute} }}], quota_mode: {is_quota}, replaces: {replaces:?} }}",
                Policy::DOMAIN
            ),
        };
        let rule = self.rule.yaml(self.blocked == Blocked::Always);
        format!("  - {{ name: {name}, {reach}, shadow: {}, on_error: {on_error}, {rule} }}\n", self.is_shadow)
    }

    /// The ask of a request with these attributes. `None` where the limit does not apply.
    fn ask(&self, attributes: &Attributes, action: Action, cost: u64, permit: u64) -> Option<Ask> {
        let found = attributes.iter().find(|(name, _)| *name == self.attribute).map(|(_, value)| value);
        let is_banned = found.is_some_and(|value| value == Policy::BANNED);
        let is_blocked = self.blocked == Blocked::Always || self.blocked == Blocked::Tenant && is_banned;
        let denial = match found {
            None if self.denies_missing => Some(FixedDenial::MissingAttribute),
            None => return None,
            Some(_) => is_blocked.then_some(FixedDenial::Blocked),
        };
        let group = match () {
            () if self.is_shadow => Group::Independent,
            () if self.is_quota() => Group::AnyOf,
            () => Group::All,
        };
        Some(Ask {
            key: Key { limit: self.name.clone(), value: found.cloned().unwrap_or_default() },
            rule: if is_blocked { self.rule.blocked() } else { self.rule },
            action,
            cost,
            group,
            denial,
            permit,
            on_error: self.on_error,
            is_listed: true,
        })
    }
}

impl Policy {
    /// The domain of all descriptors.
    pub const DOMAIN: &str = "d";
    /// The tenant for whom limits are blocked.
    pub const BANNED: &str = "banned";

    /// A policy of these limits.
    pub fn new(limits: Vec<Limit>) -> Self {
        Self { limits, shadow_mode: false }
    }

    /// As the policy file has it.
    pub fn yaml(&self) -> String {
        let mut text = String::new();
        if self.shadow_mode {
            text += "envoy: { shadow_mode: true }\n";
        }
        let tenant = |limit: &&Limit| limit.blocked == Blocked::Tenant;
        let blocked: Vec<String> = self
            .limits
            .iter()
            .filter(tenant)
            .map(|limit| format!("{}: {{ limit: 0 }}", limit.name))
            .collect();
        if !blocked.is_empty() {
            text += &format!("tenants: {{ {}: {{ limits: {{ {} }} }} }}\n", Self::BANNED, blocked.join(", "));
        }
        text += "limits:\n";
        self.limits.iter().for_each(|limit| text += &limit.yaml());
        text
    }

    /// The asks that a call comes to: those that are decided together first, then the others.
    pub fn asks(&self, call: &Call) -> Vec<Ask> {
        match call {
            Call::Check { attributes, cost } => {
                sorted(self.by_attributes(attributes, Action::Charge, *cost, 0, false))
            }
            Call::Hold { attributes, cost, permit } => {
                sorted(self.by_attributes(attributes, Action::Hold, *cost, *permit, true))
            }
            Call::Explain { attributes, cost } => {
                let asks = self.by_attributes(attributes, Action::Peek, *cost, 0, true);
                asks.into_iter().map(|ask| Ask { group: Group::Independent, ..ask }).collect()
            }
            Call::Release { .. } => Vec::new(),
            Call::Sent { key, rule, cost } => vec![sent("throttle", key, *rule, *cost)],
            Call::Cell { key, max_burst, count, period_seconds, cost } => {
                let (burst, period) = (max_burst + 1, period_seconds * SECOND);
                let rule = conformance::Rule::TokenBucket { tokens: *count, period, burst };
                vec![sent("cell", key, Rule::Rate(rule), *cost)]
            }
            Call::Describe(descriptors) => self.described(descriptors),
        }
    }

    fn by_attributes(
        &self,
        attributes: &Attributes,
        action: Action,
        cost: u64,
        permit: u64,
        with_slots: bool,
    ) -> Vec<Ask> {
        let limits = self.limits.iter().filter(|limit| !limit.is_described());
        let limits = limits.filter(|limit| with_slots || !limit.rule.is_concurrency());
        limits.filter_map(|limit| limit.ask(attributes, action, cost, permit)).collect()
    }

    /// The limit of a descriptor itself.
    fn found(&self, descriptor: &Descriptor) -> Option<&Limit> {
        let [(name, _)] = &descriptor.attributes[..] else { return None };
        let limit = self.limits.iter().find(|limit| limit.is_described() && limit.attribute == *name);
        limit.filter(|_| descriptor.sent.is_none())
    }

    fn described(&self, descriptors: &[Descriptor]) -> Vec<Ask> {
        let found = descriptors.iter().filter_map(|descriptor| self.found(descriptor));
        let replaced: Vec<&String> = found
            .flat_map(|limit| match &limit.scope {
                Scope::Descriptor { replaces, .. } => &replaces[..],
                Scope::Attribute => &[],
            })
            .collect();
        let (mut asks, mut quotas) = (Vec::new(), Vec::new());
        for descriptor in descriptors {
            let Descriptor { attributes, action, cost, sent } = descriptor;
            if let Some(sent) = sent {
                // For one key and window, the strictest limit of the call holds.
                let same = descriptors.iter().filter(|other| other.attributes == *attributes);
                let same = same.filter_map(|other| other.sent).filter(|other| other.seconds == sent.seconds);
                let limit = same.map(|other| other.limit).fold(sent.limit, u32::min);
                asks.push(self.sent_limit(SentLimit { limit, ..*sent }, descriptor));
                continue;
            }
            asks.extend(self.by_attributes(attributes, *action, *cost, 0, false));
            let own = self.found(descriptor).filter(|limit| !replaced.contains(&&limit.name));
            asks.extend(own.and_then(|limit| limit.ask(attributes, *action, *cost, 0)));
            // A shadow quota counts as one that allows the request.
            let watching = own.filter(|limit| limit.is_shadow && limit.is_quota());
            let passed = watching.and_then(|limit| limit.ask(attributes, Action::Peek, 0, 0));
            quotas.extend(passed.map(|ask| Ask {
                group: Group::AnyOf,
                on_error: OnError::Local,
                is_listed: false,
                ..ask
            }));
        }
        if self.shadow_mode {
            // The shadows of the policy are still listed last.
            let (shadows, live): (Vec<Ask>, Vec<Ask>) =
                asks.into_iter().partition(|ask| ask.group == Group::Independent);
            return live
                .into_iter()
                .chain(shadows)
                .map(|ask| Ask { group: Group::Independent, ..ask })
                .collect();
        }
        asks.extend(quotas);
        sorted(asks)
    }

    fn sent_limit(&self, sent: SentLimit, descriptor: &Descriptor) -> Ask {
        let SentLimit { limit, seconds } = sent;
        let (limit, window, is_blocked) = (u64::from(limit).max(1), seconds * SECOND, limit == 0);
        let counts_denied =
            self.limits.iter().any(|other| other.is_described() && other.rule.counts_denied());
        let rule = match counts_denied {
            true => conformance::Rule::CountingWindow { limit, window },
            false => conformance::Rule::FixedWindow { limit, window },
        };
        Ask {
            key: Key { limit: format!("sent {seconds}s"), value: format!("{:?}", descriptor.attributes) },
            rule: Rule::Rate(rule),
            action: descriptor.action,
            cost: descriptor.cost,
            group: Group::All,
            denial: is_blocked.then_some(FixedDenial::Blocked),
            permit: 0,
            on_error: OnError::Allow,
            is_listed: true,
        }
    }
}

fn sent(name: &str, key: &str, rule: Rule, cost: u64) -> Ask {
    Ask {
        key: Key { limit: name.to_owned(), value: format!("{key} {rule:?}") },
        rule,
        action: Action::Charge,
        cost,
        group: Group::All,
        denial: None,
        permit: 0,
        on_error: OnError::Allow,
        is_listed: true,
    }
}

/// The asks that are decided together first, then the others.
fn sorted(mut asks: Vec<Ask>) -> Vec<Ask> {
    asks.sort_by_key(|ask| ask.group == Group::Independent);
    asks
}
