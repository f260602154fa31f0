//! The descriptors of an Envoy call, as one plan.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate::{Align, FixedWindow, Group, Rule};

use super::leases::lease_terms;
use super::plan::{Denial, Found, Plan, PlannedAsk, SentAsk};
use super::sent_rules::ThrottleError;
use super::{Engine, TooManyLimits};
use crate::compiled::{CompiledPolicy, Parts, TenantNumbers};

/// What is asked of one descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Described<'a> {
    /// `domain` first, then the entries of the descriptor, in order.
    pub attributes: &'a [(&'a str, &'a str)],
    /// What to do.
    pub hits: Hits,
    /// A limit that replaces all limits of the policy for this descriptor.
    pub limit: Option<Override>,
}

/// What to do with a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hits {
    /// Charge the cost in the policy. Default: 1.
    Usual,
    /// Charge this many, if the request passes. 0 peeks.
    Charge(u64),
    /// Charge this many in any case, also beyond the limit: usage that is reported after the work was done. 0 charges
    /// nothing, and is denied while a limit is exceeded.
    ChargeInFull(u64),
    /// Give this many back.
    Refund(u64),
}

/// A limit that Envoy sends with a descriptor: at most `limit` in each window. Windows begin with the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Override {
    /// The limit. 0 denies every request.
    pub limit: u32,
    /// The length of a window.
    pub window: Duration,
}

/// Why descriptors were not decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotDecided {
    /// Too many limits apply.
    #[error(transparent)]
    TooManyLimits(#[from] TooManyLimits),
    /// A limit that was sent is invalid, or too many were sent.
    #[error(transparent)]
    Override(#[from] ThrottleError),
    /// A cluster keeps the keys of its descriptors in different places.
    #[error(
        "this request needs keys of {one} and of {other}, which the cluster keeps in different places, so that they cannot be \
         charged together: ask about these descriptors in requests of their own, or use a single server or Sentinel"
    )]
    KeptApart {
        /// A limit, and the value that its key is kept by.
        one: String,
        /// Another, with another value.
        other: String,
    },
}

/// An override, with the way its domain counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SentLimit {
    of: Override,
    counts_denied: bool,
}

impl SentLimit {
    /// Its rule. A rule has a limit of at least 1: requests to a limit of 0 are blocked.
    fn rule(self) -> Result<Rule, ThrottleError> {
        let rule = FixedWindow::new(u64::from(self.of.limit).max(1), self.of.window, Align::Epoch)
            .map_err(|error| ThrottleError::Rule(error.to_string()))?;
        Ok(if self.counts_denied { rule.counting_denied().into() } else { rule.into() })
    }
}

/// The source of the limits for a descriptor.
enum LimitSource<'a> {
    Policy(Option<Found<'a>>),
    Sent(SentLimit),
    /// A limit was sent for a domain that the policy does not have.
    UnknownDomain,
}

impl<'a> Plan<'a> {
    /// Makes the plan of a call's descriptors, and hands it to `then`.
    ///
    /// Limits apply by the entries, which are attributes, and by what the policy has for the descriptors themselves. With Envoy's
    /// shadow mode all of them are independent, so that the call passes.
    pub(super) fn with_descriptors<T>(
        engine: &'a Engine,
        compiled: &'a CompiledPolicy,
        requests: &[Described<'a>],
        then: impl FnOnce(Self) -> T,
    ) -> Result<T, NotDecided> {
        let decided_by: SmallVec<[LimitSource<'a>; 4]> =
            requests.iter().map(|request| LimitSource::new(compiled, request, requests)).collect();
        let is_replaced = |found: Found<'a>| {
            let name = found.descriptor().and_then(|descriptor| descriptor.name.as_ref());
            name.is_some_and(|name| decided_by.iter().any(|by| by.replaces(name)))
        };
        let mut plan = Self::new(engine);
        for (request, by) in requests.iter().zip(&decided_by) {
            let found = match by {
                LimitSource::Policy(found) => found.filter(|found| {
                    // One that is unlimited has no limit that another could replace.
                    matches!(found, Found::Uncounted(_)) || !is_replaced(*found)
                }),
                LimitSource::Sent(_) | LimitSource::UnknownDomain => None,
            };
            let standing = plan.add_request(engine, compiled, request.attributes, request.hits, found);
            match by {
                LimitSource::Policy(_) => {
                    plan.add_by_attributes(compiled, &standing, false);
                    plan.add_found(compiled, &standing, found);
                }
                LimitSource::Sent(limit) => {
                    let known = engine.overrides.get(limit, |limit| *limit, || limit.rule())?;
                    let limiter = &engine.overrides.limiter;
                    let sent = SentAsk {
                        // Another limit has the same count, another window has its own.
                        name: format!("*sent-{}s", limit.of.window.as_secs()).into(),
                        key: request
                            .attributes
                            .iter()
                            .flat_map(|(key, value)| [key.as_bytes(), value.as_bytes()])
                            .collect(),
                        tag: request.attributes.first().map_or(&[], |(_, domain)| domain.as_bytes()),
                        rule: known.rule,
                        limiter,
                        local: known.local,
                    };
                    let parts = request.attributes.iter().flat_map(|(key, value)| [*key, *value]);
                    let hash = limiter.ask(&(limit.of.window, Parts(parts))).key_hash();
                    plan.add_sent(sent, hash, Group::All, limit.of.limit == 0);
                }
                LimitSource::UnknownDomain => {}
            }
        }
        if compiled.policy.envoy.shadow_mode {
            plan.asks.iter_mut().for_each(|ask| ask.group = Group::Independent);
        } else {
            plan.add_passed_quotas(compiled);
        }
        plan.require_few()?;
        Ok(then(plan))
    }

    /// Adds the limit that the policy has for the descriptor of the last request.
    fn add_found(
        &mut self,
        compiled: &'a CompiledPolicy,
        standing: &TenantNumbers<'_>,
        found: Option<Found<'a>>,
    ) {
        let Some(Found::Limit(limit)) = found else { return };
        let group = match limit.policy.shadow {
            true => Group::Independent,
            false if compiled.is_quota(limit) => Group::AnyOf,
            false => Group::All,
        };
        self.add(limit, compiled.numbers_of(limit, standing), false, group);
    }

    /// Adds an ask that always passes for each shadow quota. So no other quota denies the request, as in envoyproxy/ratelimit.
    fn add_passed_quotas(&mut self, compiled: &CompiledPolicy) {
        let watches = |ask: &PlannedAsk<'a>| {
            let limit = ask.policy_limit().filter(|(limit, _)| limit.policy.shadow);
            limit.is_some_and(|(limit, _)| compiled.is_quota(limit))
        };
        let quotas = self.asks.iter().filter(|ask| watches(ask)).map(PlannedAsk::passed_quota);
        let quotas: SmallVec<[PlannedAsk<'a>; 1]> = quotas.collect();
        self.asks.extend(quotas);
    }

    /// Refuses asks whose keys a cluster keeps on different servers, if they have to be charged together. Does not refuse a request
    /// that has only independent asks, or that lacks an attribute and is denied. Leased limits may be anywhere, except beside quotas
    /// and limits with `count_denied`.
    pub(super) fn require_one_place(&self, engine: &Engine) -> Result<(), NotDecided> {
        let is_open = self.asks.iter().any(|ask| ask.group != Group::Independent)
            && !self.asks.iter().any(|ask| ask.denial == Some(Denial::MissingAttribute));
        let needs_all = |ask: &PlannedAsk<'a>| ask.group == Group::AnyOf || self.rule(ask).counts_denied();
        let needs_all = self.asks.iter().any(needs_all);
        let bound = self.asks.iter().filter(|ask| needs_all || lease_terms(self, ask).is_none());
        let mut bound = bound.map(|ask| self.store_ask(engine, ask));
        let (Some(one), true) = (bound.next(), is_open) else { return Ok(()) };
        let Some(other) = bound.find(|other| other.tag != one.tag) else { return Ok(()) };
        let shown = |ask: &crate::store::Ask<'_>| {
            let tag: String = String::from_utf8_lossy(ask.tag).chars().take(TAG_SHOWN).collect();
            format!("limit `{}` by `{tag}`", ask.limit)
        };
        Err(NotDecided::KeptApart { one: shown(&one), other: shown(&other) })
    }
}

/// As many characters of a tag are shown in an error.
const TAG_SHOWN: usize = 64;

impl<'a> LimitSource<'a> {
    fn new(compiled: &'a CompiledPolicy, request: &Described<'a>, all: &[Described<'a>]) -> Self {
        let (domain, entries) = match request.attributes {
            [(_, domain), entries @ ..] => (*domain, entries),
            [] => ("", &[][..]),
        };
        let descriptors = &compiled.descriptors;
        let Some(of) = request.limit else {
            let leaf = descriptors.find(domain, entries);
            return Self::Policy(leaf.map(|leaf| Found::new(compiled, leaf)));
        };
        // A policy with descriptors decides nothing for a domain that it does not have, not even by a limit that was sent.
        if !descriptors.may_have(domain) {
            return Self::UnknownDomain;
        }
        // Of limits that were sent for one key and window, the strictest holds for all.
        let same = all.iter().filter(|other| other.attributes == request.attributes);
        let limits = same.filter_map(|other| other.limit).filter(|other| other.window == of.window);
        let of = limits.min_by_key(|of| of.limit).unwrap_or(of);
        Self::Sent(SentLimit { of, counts_denied: descriptors.counts_denied(domain) })
    }

    /// Whether it replaces the descriptors of this name.
    fn replaces(&self, name: &String) -> bool {
        let Self::Policy(Some(found)) = self else { return false };
        found.descriptor().is_some_and(|descriptor| descriptor.replaces.contains(name))
    }
}
