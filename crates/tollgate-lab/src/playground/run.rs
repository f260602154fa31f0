//! One rule on all arrivals.

use std::ops::Range;

use tollgate_core::{Decision, Nanos, PermitId, Retry, Rule, RuleParts, State, Timestamp};

use super::curve::{CurveBuilder, line};
use super::level::{Level, Meter};
use super::load::{Most, Timeline, most, received};
use super::reply::{DecisionColumns, Numbers, RuleReply, seconds};
use super::request::By;
use super::rules::PlayedRule;
use super::sentence::Explanation;
use super::traffic::{SECOND, Traffic};
use super::{BUDGET_EVERY, MOST_STATE_BYTES, PlaygroundError};
use crate::algorithms::Event;

/// What a rule decided, before the length of the timeline is known.
#[derive(Debug)]
pub(super) struct Run {
    rule: PlayedRule,
    counts: Tally,
    columns: DecisionColumns,
    releases: Numbers, // when each arrival reaches the backend
    curve: CurveBuilder,
    watched: State, // that the curve is of
    sentences: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    allowed: u64,
    denied: u64,
    delayed: u64,
    allowed_cost: u64,
}

impl Run {
    /// Decides all arrivals.
    pub(super) fn decide(
        rule: PlayedRule,
        traffic: &Traffic,
        watched: u32,
        sentences: Range<usize>,
        budget: &mut dyn FnMut() -> bool,
    ) -> Result<Self, PlaygroundError> {
        let is_by_client = rule.by == By::Client;
        let keys = if is_by_client { traffic.clients.len() } else { 1 };
        require_memory(&rule, &traffic.events, keys)?;
        let in_force = rule.rule.started_at(std::time::Duration::from_nanos(traffic.start));
        let meter = Meter::new(&in_force, rule.view, traffic.start);
        let watched = if is_by_client { watched as usize } else { 0 };
        let mut states: Vec<State> = vec![State::default(); keys.max(1)];
        let mut run =
            Self::new(rule, CurveBuilder::new(in_force, meter), meter.per_unit(), traffic.events.len());
        for (number, event) in traffic.events.iter().enumerate() {
            if number % BUDGET_EVERY == 0 && !budget() {
                return Err(PlaygroundError::Budget);
            }
            let key = if is_by_client { event.client as usize } else { 0 };
            let (state, now) = (&mut states[key], Timestamp::from_nanos(event.at));
            let before = meter.level(state, now, || in_force.status(state, now));
            if key == watched {
                run.curve.advance(state, now);
            }
            let explained = sentences
                .contains(&number)
                .then(|| Explanation::new(&meter, before, in_force.status(state, now), event.cost));
            let decision = in_force.decide(state, PermitId(0), event.cost, now);
            let after = match decision.is_allowed() && event.cost > 0 {
                true => meter.level(state, now, || decision.status),
                false => before,
            };
            if key == watched {
                run.curve.jump(before, after, state, now);
            }
            if let Some(explained) = explained {
                run.sentences.push(explained.sentence(&decision, after));
            }
            run.add(event, &decision, before, after);
        }
        run.watched = states.swap_remove(watched);
        Ok(run)
    }

    fn new(rule: PlayedRule, curve: CurveBuilder, per_unit: u64, arrivals: usize) -> Self {
        let times = || Numbers::with_capacity(SECOND, arrivals);
        let levels = || Numbers::with_capacity(per_unit, arrivals);
        let columns = DecisionColumns {
            allowed: Vec::with_capacity(arrivals),
            remaining: Vec::with_capacity(arrivals),
            retry_after: times(),
            never: Vec::new(),
            reset_after: times(),
            delay: times(),
            before: levels(),
            after: levels(),
        };
        let (counts, watched) = (Tally::default(), State::default());
        Self { rule, counts, columns, releases: times(), curve, watched, sentences: Vec::new() }
    }

    fn add(&mut self, event: &Event, decision: &Decision, before: Level, after: Level) {
        let delay = decision.delay().get();
        if decision.is_allowed() {
            self.counts.allowed += 1;
            self.counts.delayed += u64::from(delay > 0);
            self.counts.allowed_cost += event.cost;
        } else {
            self.counts.denied += 1;
        }
        if let tollgate_core::Outcome::Deny { retry: Retry::Never | Retry::Unknown } = decision.outcome {
            self.columns.never.push(self.columns.allowed.len() as u32);
        }
        self.releases.push_optional(decision.is_allowed().then_some(event.at.saturating_add(delay)));
        let columns = &mut self.columns;
        columns.allowed.push(decision.is_allowed());
        columns.remaining.push(decision.status.remaining);
        columns.retry_after.push_optional(decision.retry_after().map(Nanos::get));
        columns.reset_after.push(decision.status.reset_after.get());
        columns.delay.push(delay);
        columns.before.push(before.value);
        columns.after.push(after.value);
    }

    /// When the last arrival reaches the backend; 0 if none does.
    pub(super) fn last_release(&self) -> u64 {
        self.releases.pieces().flatten().max().unwrap_or(0)
    }

    pub(super) const fn window_for_most(&self) -> u64 {
        self.rule.window_for_most
    }

    /// The answer, on a timeline that is long enough.
    pub(super) fn reply(self, traffic: &Traffic, timeline: Timeline) -> RuleReply {
        let Self { rule, counts, columns, releases, curve, watched, sentences } = self;
        let (curve, counter, edges) = curve.end(&watched, timeline.duration, traffic.start);
        let costs = traffic.events.iter().map(|event| event.cost);
        let mut reached: Vec<(u64, u64)> =
            releases.pieces().zip(costs).filter_map(|(at, cost)| Some((at?, cost))).collect();
        reached.retain(|(_, cost)| *cost > 0);
        let mut load = timeline.bins();
        reached.iter().for_each(|(at, cost)| load[timeline.place(*at)] += cost);
        if !reached.is_sorted() {
            reached.sort_unstable(); // queues of several clients
        }
        let Most { cost: most, span } = most(&reached, rule.window_for_most);
        RuleReply {
            algorithm: rule.rule.kind().name(),
            capacity: rule.rule.capacity(),
            name: rule.name,
            view: rule.view,
            by: rule.by,
            policy: rule.policy,
            rate: rule.rate,
            window: rule.window.map(seconds),
            window_for_most: seconds(rule.window_for_most),
            allowed: counts.allowed,
            denied: counts.denied,
            delayed: counts.delayed,
            allowed_cost: counts.allowed_cost,
            most,
            most_from: span.map(|(from, _)| seconds(from)),
            most_to: span.map(|(_, to)| seconds(to)),
            decisions: columns,
            curve,
            edges,
            counter,
            load,
            received: line(received(&reached, rule.window_for_most, timeline.duration), timeline.duration),
            releases: may_delay(&rule.rule).then_some(releases),
            sentences,
        }
    }
}

/// Whether an allowed arrival may have to wait.
fn may_delay(rule: &Rule) -> bool {
    match rule.parts() {
        RuleParts::LeakyBucket { .. } => true,
        RuleParts::TokenBucket { waits, .. } => waits.is_some(),
        RuleParts::FixedWindow { .. }
        | RuleParts::SlidingLog { .. }
        | RuleParts::SlidingCounter { .. }
        | RuleParts::BurstCredits { .. }
        | RuleParts::Concurrency { .. } => false,
    }
}

/// Refuses a rule whose states would take too much memory. A log keeps 8 bytes per unit that it lets pass, a counter 8 bytes per
/// sub-window, for each client.
fn require_memory(rule: &PlayedRule, events: &[Event], keys: usize) -> Result<(), PlaygroundError> {
    let units = match rule.rule.parts() {
        RuleParts::SlidingLog { limit, .. } => {
            let charged = events.iter().map(|event| event.cost).filter(|cost| *cost <= limit).sum();
            // A log doubles its memory when it grows.
            (2_u64.saturating_mul(charged)).min(limit.saturating_mul(keys as u64))
        }
        RuleParts::SlidingCounter { buckets, .. } => (u64::from(buckets) + 1).saturating_mul(keys as u64),
        RuleParts::TokenBucket { .. }
        | RuleParts::LeakyBucket { .. }
        | RuleParts::FixedWindow { .. }
        | RuleParts::BurstCredits { .. }
        | RuleParts::Concurrency { .. } => 0,
    };
    let found = usize::try_from(units.saturating_mul(8)).unwrap_or(usize::MAX);
    if found > MOST_STATE_BYTES {
        return Err(PlaygroundError::Memory { number: rule.number, found });
    }
    Ok(())
}
