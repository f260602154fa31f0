//! The plan of a call: a list of asks, one for each limit that applies.
//!
//! A check of one request, the descriptors of an Envoy call and a rule sent with a call all become such a list. Back ends decide the
//! list, and know nothing of where it comes from.

use std::borrow::Cow;

use smallvec::SmallVec;
use tollgate::adaptive::Pace;
use tollgate::{Action, Group, KeyedLimiter, RequestRule, Rule};

use super::verdict::Key;
use super::{Engine, Hits, TooManyLimits};
use crate::compiled::{
    Candidates, CompiledLimit, CompiledPolicy, Leaf, NumbersId, TENANT, TenantNumbers, Values,
};
use crate::policy::{Descriptor, OnError, Uncounted};
use crate::store;

/// The most limits that can be decided together.
pub(crate) const MOST_LIMITS: usize = KeyedLimiter::MOST_TOGETHER;
/// Most requests have at most as many.
pub(crate) const USUAL_LIMITS: usize = KeyedLimiter::USUAL_TOGETHER;
/// The most asks of a plan without an allocation: eight limits and one shadow limit.
pub(crate) const USUAL_ASKS: usize = USUAL_LIMITS + 1;

/// The asks of one call. It is moved into the verdict, so it is kept small.
pub(super) struct Plan<'a> {
    pub(super) requests: SmallVec<[PlannedRequest<'a>; 1]>,
    pub(super) asks: SmallVec<[PlannedAsk<'a>; USUAL_ASKS]>,
    pub(super) sent: Vec<SentAsk<'a>>,
    pub(super) is_reduced: bool, // whether `adaptive_rates` reduces rates now
}

/// One request of a call: a check has one, an Envoy call one for each descriptor.
pub(super) struct PlannedRequest<'a> {
    pub(super) values: Values<'a>,
    pub(super) hits: Hits,
    pub(super) cost: u64, // that is charged, or would be
    pub(super) found: Option<Found<'a>>,
}

/// What the policy has for an Envoy descriptor.
#[derive(Clone, Copy)]
pub(super) enum Found<'a> {
    Limit(&'a CompiledLimit),
    Uncounted(&'a Uncounted),
}

/// What a request asks of one limit. Its key is made of the values of the request.
pub(super) struct PlannedAsk<'a> {
    limit: Option<&'a CompiledLimit>, // none for a rule that was sent
    pub(super) hash: u64,             // of the key
    pub(super) cost: u64,
    numbers: NumbersId, // of the limit; or which of the plan's rules that were sent
    request: u16,       // which of the plan's
    pub(super) action: Action,
    pub(super) group: Group,
    pub(super) denial: Option<Denial>,
}

/// The limit of an ask.
#[derive(Clone, Copy)]
pub(super) enum AskedLimit<'p, 'a> {
    Policy(&'a CompiledLimit, NumbersId),
    Sent(&'p SentAsk<'a>),
}

/// Why a limit denies every request, whatever its state is. Cost 0 and refunds pass: see `Action::test_denied`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denial {
    /// The limit is 0, or the descriptor is blocked.
    Blocked,
    /// The request lacks an attribute of the key, and the limit denies such requests.
    MissingAttribute,
}

/// A rule that came with the call, and its key.
pub(super) struct SentAsk<'a> {
    pub(super) name: Cow<'static, str>, // in a store
    pub(super) key: SmallVec<[&'a [u8]; 2]>,
    pub(super) tag: &'a [u8],
    pub(super) rule: Rule,
    pub(super) limiter: &'a KeyedLimiter,
    pub(super) local: RequestRule, // what the table of this process decides by
}

/// The tenant of a request.
pub(super) fn tenant<'a>(attributes: &[(&'a str, &'a str)]) -> Option<&'a str> {
    attributes.iter().find(|(name, _)| *name == TENANT).map(|(_, value)| *value)
}

impl<'a> Plan<'a> {
    pub(super) fn new(engine: &Engine) -> Self {
        Self {
            requests: SmallVec::new(),
            asks: SmallVec::new(),
            sent: Vec::new(),
            is_reduced: engine.pressure.is_reduced(),
        }
    }

    /// Adds a request. Its asks follow.
    pub(super) fn add_request(
        &mut self,
        engine: &Engine,
        compiled: &'a CompiledPolicy,
        attributes: &'a [(&'a str, &'a str)],
        hits: Hits,
        found: Option<Found<'a>>,
    ) -> TenantNumbers<'a> {
        let standing = engine.standing(compiled, tenant(attributes));
        let values = compiled.names.values(attributes, compiled.tier_name(standing.tier));
        let cost = match hits {
            Hits::Usual => compiled.cost(&values),
            Hits::Charge(cost) | Hits::ChargeInFull(cost) | Hits::Refund(cost) => cost,
        };
        self.requests.push(PlannedRequest { values, hits, cost, found });
        standing
    }

    /// Adds an ask for each limit that applies to the last request by its attributes.
    #[inline]
    pub(super) fn add_by_attributes(
        &mut self,
        compiled: &'a CompiledPolicy,
        standing: &TenantNumbers<'_>,
        can_hold: bool,
    ) {
        match compiled.by_attributes.all() {
            Some(places) => self.add_candidates(compiled, standing, can_hold, places),
            None => {
                let places = self.candidates(compiled);
                self.add_candidates(compiled, standing, can_hold, &places);
            }
        }
    }

    /// The limits that may apply to the last request by its attributes.
    pub(super) fn candidates(&self, compiled: &CompiledPolicy) -> Candidates {
        compiled.by_attributes.candidates(&self.requests.last().expect("a request was added").values)
    }

    /// Adds an ask for each of these limits that applies to the last request by its attributes.
    fn add_candidates(
        &mut self,
        compiled: &'a CompiledPolicy,
        standing: &TenantNumbers<'_>,
        can_hold: bool,
        places: &[u32],
    ) {
        for &place in places {
            let limit = compiled.limit(place);
            let values = &self.requests.last().expect("a request was added").values;
            if (limit.is_concurrency && !can_hold) || !limit.conditions.hold(values) {
                continue;
            }
            let Some(is_missing) = limit.applies(values) else { continue };
            let group = if limit.policy.shadow { Group::Independent } else { Group::All };
            self.add(limit, compiled.numbers_of(limit, standing), is_missing, group);
        }
    }

    /// Adds an ask for a limit to the last request.
    pub(super) fn add(
        &mut self,
        limit: &'a CompiledLimit,
        numbers: NumbersId,
        is_missing: bool,
        group: Group,
    ) {
        let PlannedRequest { values, hits, cost, .. } = self.requests.last().expect("a request was added");
        let is_refund = matches!(hits, Hits::Refund(_));
        let denial = match (is_missing, limit.is_blocked(numbers)) {
            (true, _) if *cost > 0 && !is_refund => Some(Denial::MissingAttribute),
            (_, true) => Some(Denial::Blocked),
            _ => None,
        };
        let action = if limit.is_concurrency { Action::Hold } else { hits.action() };
        let (hash, cost, request) = (limit.key_hash(values), *cost, (self.requests.len() - 1) as u16);
        self.asks.push(PlannedAsk {
            limit: Some(limit),
            hash,
            cost,
            numbers,
            request,
            action,
            group,
            denial,
        });
    }

    /// Adds an ask for a rule that came with the call.
    pub(super) fn add_sent(&mut self, sent: SentAsk<'a>, hash: u64, group: Group, is_blocked: bool) {
        let PlannedRequest { hits, cost, .. } = self.requests.last().expect("a request was added");
        // No caller of these holds a permit.
        let action = if matches!(sent.rule, Rule::Concurrency(_)) { Action::Peek } else { hits.action() };
        let (numbers, request) = (self.sent.len() as NumbersId, (self.requests.len() - 1) as u16);
        let denial = is_blocked.then_some(Denial::Blocked);
        self.asks.push(PlannedAsk {
            limit: None,
            hash,
            cost: *cost,
            numbers,
            request,
            action,
            group,
            denial,
        });
        self.sent.push(sent);
    }

    /// Refuses a plan with more limits than can be decided together.
    pub(super) fn require_few(&self) -> Result<(), TooManyLimits> {
        let deciding = || self.asks.iter().filter(|ask| ask.group != Group::Independent);
        if self.asks.len() <= MOST_LIMITS || deciding().count() <= MOST_LIMITS {
            return Ok(());
        }
        let name = |ask: &PlannedAsk<'_>| ask.limit.map_or("(sent)", |limit| &limit.policy.name).to_owned();
        Err(TooManyLimits { limits: deciding().map(name).collect() })
    }

    /// The limit of an ask.
    #[inline]
    pub(super) fn limit<'p>(&'p self, ask: &PlannedAsk<'a>) -> AskedLimit<'p, 'a> {
        match ask.limit {
            Some(limit) => AskedLimit::Policy(limit, ask.numbers),
            None => AskedLimit::Sent(&self.sent[ask.numbers as usize]),
        }
    }

    /// A request of cost 1 to the key of an ask, in the table of this process.
    #[inline]
    pub(super) fn key_request<'p>(&'p self, ask: &PlannedAsk<'a>) -> tollgate::Request<'p> {
        match self.limit(ask) {
            AskedLimit::Policy(limit, numbers) => limit.table_request(numbers, ask.hash),
            AskedLimit::Sent(sent) => sent.limiter.ask_by_hash(ask.hash).rule(&sent.local),
        }
    }

    /// The ask as the table of this process decides it.
    #[inline]
    pub(super) fn table_request<'p>(&'p self, ask: &PlannedAsk<'a>) -> tollgate::Request<'p> {
        let request = self.key_request(ask).cost(ask.cost).action(ask.action).group(ask.group);
        if ask.denial.is_some() { request.denied() } else { request }
    }

    /// An ask as a store decides it.
    pub(super) fn store_ask<'p>(&'p self, engine: &Engine, ask: &'p PlannedAsk<'a>) -> store::Ask<'p> {
        let mut asked = match self.limit(ask) {
            AskedLimit::Policy(limit, numbers) => {
                let mut asked = limit.store_ask(numbers, &self.key(ask));
                asked.pace = self.pace(engine, ask);
                asked
            }
            AskedLimit::Sent(sent) => sent.store_ask(),
        };
        (asked.cost, asked.action, asked.group) = (ask.cost, ask.action, ask.group);
        asked.is_denied = ask.denial.is_some();
        asked
    }

    /// The multiplier of the rate of an ask.
    pub(super) fn pace(&self, engine: &Engine, ask: &PlannedAsk<'a>) -> Pace {
        match self.limit(ask) {
            AskedLimit::Policy(limit, numbers) if self.is_reduced => {
                engine.pressure.pace_of(limit.numbers(numbers).shed)
            }
            AskedLimit::Policy(..) | AskedLimit::Sent(_) => Pace::FULL,
        }
    }

    /// Whether a cluster keeps the keys of its asks on different servers.
    pub(super) fn spans_servers(&self, engine: &Engine) -> bool {
        let Some((first, others)) = self.asks.split_first() else { return false };
        let first = self.store_ask(engine, first);
        others.iter().any(|other| self.store_ask(engine, other).tag != first.tag)
    }

    /// Whether it is denied whatever the state of its keys is.
    pub(super) fn is_denied(&self) -> bool {
        self.asks.iter().any(|ask| ask.group == Group::All && ask.denial.is_some())
    }

    /// Whether each ask can be decided by itself: none is charged only if others pass.
    pub(super) fn can_be_split(&self) -> bool {
        let is_alone = |ask: &PlannedAsk<'_>| {
            ask.cost == 0
                || ask.group == Group::Independent
                || matches!(ask.action, Action::Peek | Action::Refund | Action::ChargeInFull)
        };
        self.asks.iter().all(is_alone)
    }

    /// The key of an ask of the policy, part by part.
    pub(super) fn key(&self, ask: &PlannedAsk<'a>) -> Key<'a> {
        ask.limit.map_or_else(Key::new, |limit| limit.shared_key(&self.requests[ask.request()].values))
    }

    /// The most that can pass an ask at once.
    pub(super) fn capacity(&self, ask: &PlannedAsk<'a>) -> u64 {
        if ask.denial == Some(Denial::Blocked) { 0 } else { self.rule(ask).capacity() }
    }

    /// The rule that an ask is decided by.
    pub(super) fn rule<'p>(&'p self, ask: &PlannedAsk<'a>) -> &'p Rule {
        match self.limit(ask) {
            AskedLimit::Policy(limit, numbers) => &limit.numbers(numbers).rule,
            AskedLimit::Sent(sent) => &sent.rule,
        }
    }
}

impl Hits {
    /// What a request with these hits does to a limit.
    const fn action(self) -> Action {
        match self {
            Self::Usual | Self::Charge(_) => Action::Charge,
            Self::ChargeInFull(_) => Action::ChargeInFull,
            Self::Refund(_) => Action::Refund,
        }
    }
}

impl<'a> PlannedAsk<'a> {
    /// The limit of the policy, and which of its numbers. None for a rule that was sent.
    pub(super) fn policy_limit(&self) -> Option<(&'a CompiledLimit, NumbersId)> {
        self.limit.map(|limit| (limit, self.numbers))
    }

    /// Which request of the plan it is for.
    pub(super) fn request(&self) -> usize {
        usize::from(self.request)
    }

    /// Whether the limit only watches.
    pub(super) fn is_shadow(&self) -> bool {
        self.limit.is_some_and(|limit| limit.policy.shadow)
    }

    /// An ask for the same key that always passes. It stands for a shadow quota.
    pub(super) const fn passed_quota(&self) -> Self {
        Self { cost: 0, action: Action::Peek, group: Group::AnyOf, denial: None, ..*self }
    }

    /// Whether it is the ask that stands for a shadow quota. With such an ask, no other quota denies. It is never reported.
    pub(super) fn is_passed_quota(&self) -> bool {
        self.is_shadow() && self.group == Group::AnyOf
    }

    /// What decides it while the store gives no answer. A limit of 0 needs no store.
    pub(super) fn on_error(&self, default: OnError) -> OnError {
        let own = self.limit.and_then(|limit| limit.policy.on_error);
        match self.denial {
            Some(Denial::Blocked) => OnError::Local,
            _ if self.is_passed_quota() => OnError::Allow,
            _ => own.unwrap_or(default),
        }
    }
}

impl<'a> SentAsk<'a> {
    pub(super) fn store_ask<'s>(&'s self) -> store::Ask<'s> {
        store::Ask {
            limit: Cow::Borrowed(&self.name),
            key: self.key.iter().copied().collect(),
            tag: self.tag,
            rule: self.rule,
            pace: Pace::FULL,
            cost: 0,
            action: Action::Charge,
            group: Group::All,
            is_denied: false,
            has_one_tier: false,
        }
    }
}

impl<'a> Found<'a> {
    pub(super) fn new(compiled: &'a CompiledPolicy, leaf: Leaf) -> Self {
        match leaf {
            Leaf::Limit(place) => Self::Limit(compiled.limit(place)),
            Leaf::Uncounted(place) => Self::Uncounted(&compiled.policy.descriptors[place as usize]),
        }
    }

    pub(super) fn descriptor(self) -> Option<&'a Descriptor> {
        match self {
            Self::Limit(limit) => limit.policy.descriptor.as_ref(),
            Self::Uncounted(uncounted) => Some(&uncounted.descriptor),
        }
    }
}
