//! The policy in force, to decide by: what callers ask of it.

use std::sync::Arc;

use arc_swap::Guard;
use tollgate::{Permit, Rule, Status, Timestamp, Weight};

use super::explain::Explanation;
use super::in_force::InForce;
use super::plan::{self, MOST_LIMITS, Plan};
use super::shared;
use super::together::{Described, NotDecided, Together};
use super::verdict::{Key, Verdict};
use super::{Engine, Request, TooManyLimits};
use crate::policy::Policy;
use crate::request_attributes::header_table::HeaderTable;
use crate::store::{Does, Unavailable};

/// The policy in force when it was asked for.
#[derive(Debug)]
pub struct PolicyInForce<'e> {
    pub(super) engine: &'e Engine,
    pub(super) in_force: Guard<Arc<InForce>>,
}

impl PolicyInForce<'_> {
    /// The Unix time of a moment of the engine's clock. Windows that are aligned to the epoch go by it.
    pub fn unix_time_at(&self, at: Timestamp) -> std::time::Duration {
        let started = self.engine.clock().started().unwrap_or_default();
        started + std::time::Duration::from_nanos(at.as_nanos())
    }

    /// Which limits apply to a request where nobody can hold a permit, so that concurrency limits do not act. Nothing is
    /// decided yet: whoever has several requests knows of all that they can be decided before one is.
    ///
    /// # Errors
    ///
    /// When more than 32 limits apply.
    pub fn plan<'a>(&'a self, request: &Request<'a>) -> Result<Plan<'a>, TooManyLimits> {
        Plan::new(self.engine, &self.in_force, request, plan::Permits::Cannot, None)
    }

    /// [`plan`](Self::plan) where permits can be held, with the concurrency limits that apply: to
    /// [`acquire`](Plan::acquire).
    ///
    /// # Errors
    ///
    /// When more than 32 limits apply.
    pub fn plan_with_permits<'a>(&'a self, request: &Request<'a>) -> Result<Plan<'a>, TooManyLimits> {
        Plan::new(self.engine, &self.in_force, request, plan::Permits::Can, None)
    }

    /// Whether every one of several requests can be decided.
    ///
    /// # Errors
    ///
    /// When more than 32 limits apply to one.
    pub fn require_few(&self, requests: &[Request<'_>]) -> Result<(), TooManyLimits> {
        // Of so few limits, more cannot apply.
        if self.in_force.limits.len() <= MOST_LIMITS {
            return Ok(());
        }
        requests.iter().try_for_each(|request| self.plan(request).map(drop))
    }

    /// Decides a request: all limits that apply are charged, or none. Concurrency limits do not act here, where nobody
    /// can hold a permit.
    ///
    /// # Errors
    ///
    /// When more than 32 limits apply. Nothing is charged.
    pub fn check<'a>(&'a self, request: &Request<'a>, now: Timestamp) -> Result<Verdict<'a>, TooManyLimits> {
        Ok(self.plan(request)?.check(now))
    }

    /// [`check`](Self::check), with permits for the concurrency limits that apply. Dropping them gives them back.
    ///
    /// # Errors
    ///
    /// When more than 32 limits apply. Nothing is charged.
    pub fn acquire<'a>(
        &'a self,
        request: &Request<'a>,
        now: Timestamp,
    ) -> Result<(Verdict<'a>, Vec<Permit>), TooManyLimits> {
        Ok(self.plan_with_permits(request)?.acquire(now))
    }

    /// [`check_together`](Self::check_together), wherever states are kept.
    ///
    /// # Errors
    ///
    /// As [`check_together`](Self::check_together), and when a cluster keeps their keys in different places.
    pub async fn decide_together<'a>(
        &'a self,
        requests: &[Described<'a>],
        now: Timestamp,
    ) -> Result<Together<'a>, NotDecided> {
        Together::decide(self.engine, &self.in_force, requests, now).await
    }

    /// Decides the descriptors of one request of Envoy: what is given back is given back first; then all limits that
    /// apply to any of them are charged, or none. Limits apply by the entries, which are attributes, and by what the
    /// policy has of the descriptors themselves.
    ///
    /// # Errors
    ///
    /// When more than 32 limits apply, or too many different limits were sent. Nothing is charged.
    pub fn check_together<'a>(
        &'a self,
        requests: &[Described<'a>],
        now: Timestamp,
    ) -> Result<Together<'a>, NotDecided> {
        Together::check(self.engine, &self.in_force, requests, now)
    }

    /// Every limit of the policy: whether it applies to a request and why, and what it would decide. Charges nothing.
    pub fn explain<'a>(&'a self, request: &Request<'a>, now: Timestamp) -> Explanation<'a> {
        let standing = self.engine.standing(&self.in_force, plan::tenant(request.attributes));
        Explanation::new(&self.in_force, request, &standing, now, self.engine.pressure.is_reduced())
    }

    /// [`explain`](Self::explain), wherever states are kept.
    ///
    /// # Errors
    ///
    /// When the store gives no answer.
    pub async fn look_into<'a>(
        &'a self,
        request: &Request<'a>,
        now: Timestamp,
    ) -> Result<Explanation<'a>, Unavailable> {
        let mut explanation = self.explain(request, now);
        if let Some(shared) = &self.engine.shared {
            explanation.ask_store(self.engine, &self.in_force, request, &*shared.store).await?;
        }
        Ok(explanation)
    }

    /// [`key`](Self::key), wherever states are kept.
    ///
    /// # Errors
    ///
    /// When the store gives no answer.
    pub async fn look_at_key(
        &self,
        limit: &str,
        attributes: &[(&str, &str)],
        now: Timestamp,
    ) -> Result<Option<KeyStatus>, Unavailable> {
        let Some(mut found) = self.key(limit, attributes, now) else { return Ok(None) };
        if let (Some(shared), Some((_, limit))) = (&self.engine.shared, self.in_force.find(limit)) {
            let key: Key<'_> = found.key.iter().map(String::as_str).collect();
            let ask = limit.stored_ask(found.rule, &key, 0, Does::Preview);
            let decided = shared.store.decide(&[ask], false).await?;
            found.status = shared::only(&decided).status;
            found.status.remaining = found.status.remaining.min(found.capacity);
        }
        Ok(Some(found))
    }

    /// [`reset`](Self::reset), wherever states are kept.
    ///
    /// # Errors
    ///
    /// When the store gives no answer.
    pub async fn forget_key(
        &self,
        limit: &str,
        attributes: &[(&str, &str)],
        now: Timestamp,
    ) -> Result<Option<bool>, Unavailable> {
        let Some(was_known) = self.reset(limit, attributes) else { return Ok(None) };
        let found = self.key(limit, attributes, now);
        if let (Some(shared), Some((_, limit)), Some(found)) =
            (&self.engine.shared, self.in_force.find(limit), found)
        {
            let key: Key<'_> = found.key.iter().map(String::as_str).collect();
            return shared
                .store
                .forget(&limit.stored_ask(found.rule, &key, 0, Does::Preview))
                .await
                .map(Some);
        }
        Ok(Some(was_known))
    }

    /// How a key of a limit stands. None where there is no such limit.
    pub fn key(&self, limit: &str, attributes: &[(&str, &str)], now: Timestamp) -> Option<KeyStatus> {
        let (place, limit) = self.in_force.find(limit)?;
        let described = limit.described(attributes);
        let attributes = described.as_deref().unwrap_or(attributes);
        let standing = self.engine.standing(&self.in_force, plan::tenant(attributes));
        let values = self.in_force.names.values(attributes, self.in_force.tier_name(standing.tier));
        let numbers = self.in_force.numbers_of(place, &standing);
        let key = limit.shared_key(&values);
        Some(KeyStatus {
            rule: limit.numbers(numbers).rule,
            capacity: limit.capacity(numbers),
            status: limit.status(numbers, limit.ask(numbers, &key).peek_at(now)),
            key: key.iter().map(|&part| part.to_owned()).collect(),
        })
    }

    /// Forgets a key of a limit: whether it was remembered. None where there is no such limit.
    pub fn reset(&self, limit: &str, attributes: &[(&str, &str)]) -> Option<bool> {
        let (_, limit) = self.in_force.find(limit)?;
        let described = limit.described(attributes);
        let attributes = described.as_deref().unwrap_or(attributes);
        let standing = self.engine.standing(&self.in_force, plan::tenant(attributes));
        let values = self.in_force.names.values(attributes, self.in_force.tier_name(standing.tier));
        Some(limit.reset(&limit.shared_key(&values)))
    }

    /// The share of a tenant in the gateway's fair queue: its own, else its tier's, else one.
    pub fn weight(&self, tenant: Option<&str>) -> Weight {
        let policy = &self.in_force.policy;
        if let Some(own) = tenant.and_then(|tenant| policy.tenants.get(tenant)?.weight) {
            return own;
        }
        let tier = self.in_force.tier_name(self.engine.standing(&self.in_force, tenant).tier);
        tier.and_then(|tier| policy.tiers.get(tier)).map_or(Weight::ONE, |tier| tier.weight)
    }

    /// Whether the policy looks at an attribute of this name.
    pub fn looks_at(&self, attribute: &str) -> bool {
        self.in_force.names.place(attribute).is_some()
    }

    /// The header that the policy reads, if a name is read as it: in any case, and with `_` for `-`.
    pub fn reads_header(&self, name: &[u8]) -> Option<&str> {
        self.in_force.headers.find(name).map(|(_, header)| header.name())
    }

    pub(crate) fn header_table(&self) -> &HeaderTable {
        &self.in_force.headers
    }

    /// The numbers of its limits, in order: as long as an engine lives, one for each name.
    pub fn limit_numbers(&self) -> impl Iterator<Item = (usize, &str)> {
        self.in_force.limits.iter().map(|limit| (limit.number, limit.policy.name.as_str()))
    }
}

impl std::ops::Deref for PolicyInForce<'_> {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        &self.in_force.policy
    }
}

/// What a limit has of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyStatus {
    /// The key, part by part.
    pub key: Vec<String>,
    /// The rule it is decided by.
    pub rule: Rule,
    /// The most that can pass at once: that of the rule, or 0 where nothing passes.
    pub capacity: u64,
    /// What remains, and when it is fully refilled.
    pub status: Status,
}
