//! The policy in force: checks, explanations, and the status and reset of keys.

use std::sync::Arc;

use arc_swap::Guard;
use tollgate::{Action, Group, Rule, Status, Timestamp, Weight};

use super::answer::Answer;
use super::backend::{Call, Decided, decide_in_table};
use super::envoy::{Described, NotDecided};
use super::explain::Explanation;
use super::plan::{MOST_LIMITS, Plan};
use super::verdict::Verdict;
use super::{Engine, Hits, Request, TooManyLimits};
use crate::compiled::{CompiledLimit, CompiledPolicy};
use crate::policy::Policy;
use crate::request_attributes::header_table::HeaderTable;
use crate::store::Unavailable;

/// The policy in force when it was asked for.
#[derive(Debug)]
pub struct PolicyInForce<'e> {
    pub(super) engine: &'e Engine,
    pub(super) compiled: Guard<Arc<CompiledPolicy>>,
}

/// A request, as a plan.
struct CheckCall<'a> {
    engine: &'a Engine,
    compiled: &'a CompiledPolicy,
    request: Request<'a>,
    can_hold: bool,
}

impl<'a> Call<'a> for CheckCall<'a> {
    type Error = TooManyLimits;

    fn has_leases(&self) -> bool {
        self.compiled.has_leases
    }

    #[inline]
    fn plan<T>(&self, then: impl FnOnce(Plan<'a>) -> T) -> Result<T, TooManyLimits> {
        let Self { engine, compiled, request, can_hold } = self;
        let mut plan = Plan::new(engine);
        let hits = request.cost.map_or(Hits::Usual, Hits::Charge);
        let standing = plan.add_request(engine, compiled, request.attributes, hits, None);
        plan.add_by_attributes(compiled, &standing, *can_hold);
        plan.require_few()?;
        Ok(then(plan))
    }
}

/// The descriptors of an Envoy call, as a plan.
struct DescriptorCall<'a> {
    engine: &'a Engine,
    compiled: &'a CompiledPolicy,
    requests: &'a [Described<'a>],
}

impl<'a> Call<'a> for DescriptorCall<'a> {
    type Error = NotDecided;

    fn has_leases(&self) -> bool {
        self.compiled.has_leases
    }

    fn plan<T>(&self, then: impl FnOnce(Plan<'a>) -> T) -> Result<T, NotDecided> {
        let Self { engine, compiled, requests } = self;
        if engine.shared.is_some() && compiled.policy.is_on_cluster() {
            Plan::with_descriptors(engine, compiled, requests, |plan| plan.require_one_place(engine))??;
        }
        Plan::with_descriptors(engine, compiled, requests, then)
    }
}

impl PolicyInForce<'_> {
    /// The Unix time of a moment of the engine's clock. Windows that are aligned to the epoch go by it.
    pub fn unix_time_at(&self, at: Timestamp) -> std::time::Duration {
        let started = self.engine.clock().started().unwrap_or_default();
        started + std::time::Duration::from_nanos(at.as_nanos())
    }

    /// Decides a request: all limits that apply are charged, or none. Concurrency limits do not apply, because the caller cannot
    /// hold a permit.
    ///
    /// Returns an error if more than 32 limits apply. Then nothing is charged.
    pub fn check<'a>(
        &'a self,
        request: &Request<'a>,
        now: Timestamp,
    ) -> Answer<'a, Result<Verdict<'a>, TooManyLimits>> {
        self.check_with(request, now, |verdict| verdict)
    }

    /// [`check`](Self::check) that passes the verdict to `then`. This is faster, because a verdict is a kilobyte and is not
    /// moved.
    #[inline]
    pub fn check_with<'a, T: Send + 'a>(
        &'a self,
        request: &Request<'a>,
        now: Timestamp,
        then: impl FnOnce(Verdict<'a>) -> T + Send + 'a,
    ) -> Answer<'a, Result<T, TooManyLimits>> {
        let Self { engine, compiled } = self;
        engine.decide(CheckCall { engine, compiled, request: *request, can_hold: false }, now, then)
    }

    /// [`check`](Self::check) for a caller that can hold permits: concurrency limits apply, too. [`Verdict::take_permits`] has the
    /// permits.
    pub fn acquire<'a>(
        &'a self,
        request: &Request<'a>,
        now: Timestamp,
    ) -> Answer<'a, Result<Verdict<'a>, TooManyLimits>> {
        self.acquire_with(request, now, |verdict| verdict)
    }

    /// [`acquire`](Self::acquire) that passes the verdict to `then`, as [`check_with`](Self::check_with) does.
    #[inline]
    pub fn acquire_with<'a, T: Send + 'a>(
        &'a self,
        request: &Request<'a>,
        now: Timestamp,
        then: impl FnOnce(Verdict<'a>) -> T + Send + 'a,
    ) -> Answer<'a, Result<T, TooManyLimits>> {
        let Self { engine, compiled } = self;
        engine.decide(CheckCall { engine, compiled, request: *request, can_hold: true }, now, then)
    }

    /// Decides the descriptors of one Envoy call: all limits that apply to any of them are charged, or none. Limits apply by the
    /// entries, which are attributes, and by what the policy has for the descriptors themselves.
    ///
    /// Returns an error if more than 32 limits apply, if a limit that was sent is invalid, if too many were sent, or if a cluster
    /// keeps the keys on different servers. Then nothing is charged.
    pub fn check_descriptors<'a>(
        &'a self,
        requests: &'a [Described<'a>],
        now: Timestamp,
    ) -> Answer<'a, Result<Verdict<'a>, NotDecided>> {
        self.check_descriptors_with(requests, now, |verdict| verdict)
    }

    /// [`check_descriptors`](Self::check_descriptors) that passes the verdict to `then`.
    pub fn check_descriptors_with<'a, T: Send + 'a>(
        &'a self,
        requests: &'a [Described<'a>],
        now: Timestamp,
        then: impl FnOnce(Verdict<'a>) -> T + Send + 'a,
    ) -> Answer<'a, Result<T, NotDecided>> {
        let Self { engine, compiled } = self;
        engine.decide(DescriptorCall { engine, compiled, requests }, now, then)
    }

    /// Whether every one of several requests can be decided.
    ///
    /// # Errors
    ///
    /// When more than 32 limits apply to one.
    pub fn require_few(&self, requests: &[Request<'_>]) -> Result<(), TooManyLimits> {
        let (engine, compiled) = (self.engine, &*self.compiled);
        // In most policies, no request can have more than 32 candidates.
        if compiled.by_attributes.most() <= MOST_LIMITS {
            return Ok(());
        }
        requests.iter().try_for_each(|request| {
            let mut plan = Plan::new(engine);
            plan.add_request(engine, compiled, request.attributes, Hits::Charge(0), None);
            if plan.candidates(compiled).len() <= MOST_LIMITS {
                return Ok(());
            }
            CheckCall { engine, compiled, request: *request, can_hold: false }.plan(drop)
        })
    }

    /// Every limit of the policy: whether it applies to a request and why, and what it would decide. Charges nothing.
    pub fn explain<'a>(
        &'a self,
        request: &Request<'a>,
        now: Timestamp,
    ) -> Answer<'a, Result<Explanation<'a>, Unavailable>> {
        Explanation::of(self.engine, &self.compiled, request, now)
    }

    /// The status of a key of a limit. None if the policy has no such limit.
    pub fn key<'a>(
        &'a self,
        limit: &str,
        attributes: &'a [(&'a str, &'a str)],
        now: Timestamp,
    ) -> Answer<'a, Result<Option<KeyStatus>, Unavailable>> {
        let Some(limit) = self.compiled.find(limit) else { return Answer::Now(Ok(None)) };
        let status = move |plan: &Plan<'_>, decided: &Decided| {
            let (rule, key) = (*plan.rule(&plan.asks[0]), plan.key(&plan.asks[0]));
            let capacity = plan.capacity(&plan.asks[0]);
            let mut status = decided.each[0].decision.status;
            status.remaining = status.remaining.min(capacity);
            Some(KeyStatus { key: key.iter().map(|&part| part.to_owned()).collect(), rule, capacity, status })
        };
        let described = limit.described(attributes);
        let Some(shared) = &self.engine.shared else {
            let plan = self.plan_key(limit, described.as_deref().unwrap_or(attributes));
            return Answer::Now(Ok(status(&plan, &decide_in_table(&plan, now))));
        };
        Answer::Later(Box::pin(async move {
            let plan = self.plan_key(limit, described.as_deref().unwrap_or(attributes));
            let decided = shared.decide(self.engine, &plan).await?;
            Ok(status(&plan, &decided))
        }))
    }

    /// Forgets a key of a limit. Returns whether it was remembered. None if the policy has no such limit.
    pub fn reset<'a>(
        &'a self,
        limit: &str,
        attributes: &'a [(&'a str, &'a str)],
    ) -> Answer<'a, Result<Option<bool>, Unavailable>> {
        let Some(limit) = self.compiled.find(limit) else { return Answer::Now(Ok(None)) };
        let described = limit.described(attributes);
        let Some(shared) = &self.engine.shared else {
            let plan = self.plan_key(limit, described.as_deref().unwrap_or(attributes));
            return Answer::Now(Ok(Some(limit.reset(plan.asks[0].hash))));
        };
        Answer::Later(Box::pin(async move {
            let plan = self.plan_key(limit, described.as_deref().unwrap_or(attributes));
            limit.reset(plan.asks[0].hash); // this process may have a share of it
            let ask = plan.store_ask(self.engine, &plan.asks[0]);
            let was_known = shared.store.forget(&ask).await?;
            // Afterwards, so that no grant is left that was drawn before.
            if let Some(leases) = &shared.leases {
                leases.reset(plan.asks[0].hash);
            }
            Ok(Some(was_known))
        }))
    }

    /// A plan that peeks at one key of a limit. `attributes` are the values of the key.
    fn plan_key<'a>(&'a self, limit: &'a CompiledLimit, attributes: &'a [(&'a str, &'a str)]) -> Plan<'a> {
        let Self { engine, compiled } = self;
        let mut plan = Plan::new(engine);
        let standing = plan.add_request(engine, compiled, attributes, Hits::Charge(0), None);
        plan.add(limit, compiled.numbers_of(limit, &standing), false, Group::Independent);
        plan.asks[0].action = Action::Peek;
        plan
    }

    /// The share of a tenant in the gateway's fair queue: its own, else its tier's, else one.
    pub fn weight(&self, tenant: Option<&str>) -> Weight {
        let policy = &self.compiled.policy;
        if let Some(own) = tenant.and_then(|tenant| policy.tenants.get(tenant)?.weight) {
            return own;
        }
        let tier = self.compiled.tier_name(self.engine.standing(&self.compiled, tenant).tier);
        tier.and_then(|tier| policy.tiers.get(tier)).map_or(Weight::ONE, |tier| tier.weight)
    }

    /// Whether the policy looks at an attribute of this name.
    pub fn looks_at(&self, attribute: &str) -> bool {
        self.compiled.names.place(attribute).is_some()
    }

    /// The header that the policy reads, if a name is read as it: in any case, and with `_` for `-`.
    pub fn reads_header(&self, name: &[u8]) -> Option<&str> {
        self.compiled.headers.find(name).map(|(_, header)| header.name())
    }

    pub(crate) fn header_table(&self) -> &HeaderTable {
        &self.compiled.headers
    }

    /// The numbers of its limits, in order: as long as an engine lives, one for each name.
    pub fn limit_numbers(&self) -> impl Iterator<Item = (usize, &str)> {
        self.compiled.limits.iter().map(|limit| (limit.number, limit.policy.name.as_str()))
    }
}

impl std::ops::Deref for PolicyInForce<'_> {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        &self.compiled.policy
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
