//! What is known of the service: made from its frames, without a clock of its own.
//!
//! Its texts are escaped for a terminal, except fields called `name`: requests to the service need the names as they are.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use super::frame::{
    Decision, Delay, Event, Frame, Gateway, HotLists, LimitTotals, PolicyLimit, Start, Step, Store, Tick,
    Totals,
};
use super::series::{Recent, Steps};
use super::text::shown;

/// The most limits whose steps are kept, as the service does.
const MOST_HISTORIES: usize = 1000;

/// The most events that are kept.
const MOST_EVENTS: usize = 50;

/// A tick has at most this many limits. A full tick may leave out others: a later tick has their counts.
const FULL_TICK: usize = 200;

/// What is known of the service.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) instance: String,
    pub(super) version: String,
    started: f64, // Unix time
    pub(super) has_clear_names: bool,
    pub(super) now: f64, // of the last frame, by the clock of the service
    pub(super) requests: Recent,
    pub(super) history: Steps,
    pub(super) step: f64,
    pub(super) sent_rules: Totals,
    pub(super) decision: Option<Decision>,
    pub(super) delay: Delay,
    pub(super) keys: u64,
    pub(super) bytes: u64,
    pub(super) max_bytes: Option<u64>,
    pub(super) evictions: u64,
    pub(super) refused: u64,
    pub(super) multiplier: Option<f64>,
    pub(super) store: Store,
    pub(super) decisions_per_call: Option<f64>,
    pub(super) gateway: Option<Gateway>,
    pub(super) recording: Option<bool>,
    pub(super) limits: Vec<Limit>,
    pub(super) events: VecDeque<Event>,
    numbers: HashMap<String, usize>, // of limits, by name
    step_began: f64,
}

/// What is known of a limit.
#[derive(Clone, Debug, Default)]
pub(super) struct Limit {
    /// As requests to the service need it.
    pub(super) name: String,
    pub(super) label: String,
    pub(super) algorithm: String,
    /// Such as `rate 5/s, burst 10`.
    pub(super) numbers: String,
    pub(super) key: String,
    pub(super) matches: String,
    pub(super) tiers: Vec<String>,
    pub(super) is_shadow: bool,
    pub(super) recent: Recent,
    pub(super) remaining_p50: Option<f64>,
    pub(super) remaining_p95: Option<f64>,
    pub(super) history: Steps,
    pub(super) hot: HotLists,
}

impl Model {
    /// Begins with everything. `before` is what was known on the same connection: the rates go on from it.
    pub(super) fn start(start: Start, tick: Tick, before: Option<&Self>) -> Self {
        // After a restart of the service, rates and histories begin again.
        let before = before.filter(|before| {
            before.started == start.started && !tick.requests.are_below(&before.requests.totals())
        });
        let Start { instance, version, started, key_names, step, policy, history, mut histories } = start;
        let mut model = Self {
            instance: shown(&instance),
            version: shown(&version),
            started,
            has_clear_names: key_names == "clear",
            now: tick.now,
            requests: before
                .map_or_else(|| Recent::starting(tick.now, tick.requests), |before| before.requests.clone()),
            history: Steps::starting(history, tick.requests),
            step: if step >= 1.0 { step } else { 5.0 },
            sent_rules: Totals::default(),
            decision: None,
            delay: Delay::default(),
            keys: 0,
            bytes: 0,
            max_bytes: None,
            evictions: 0,
            refused: 0,
            multiplier: None,
            store: Store::default(),
            decisions_per_call: None,
            gateway: None,
            recording: None,
            limits: policy.limits.iter().map(Limit::of_policy).collect(),
            events: VecDeque::new(),
            numbers: HashMap::new(),
            step_began: tick.now,
        };
        model.numbers =
            model.limits.iter().enumerate().map(|(number, limit)| (limit.name.clone(), number)).collect();
        let totals: HashMap<&str, Totals> =
            tick.limits.iter().map(|limit| (limit.name.as_str(), limit.totals())).collect();
        for limit in &mut model.limits {
            let totals = totals.get(limit.name.as_str()).copied().unwrap_or_default();
            let known = before.and_then(|before| before.limit(&limit.name)).map(|before| &before.recent);
            limit.recent = known.cloned().unwrap_or_else(|| Recent::starting(tick.now, totals));
            limit.recent.add(tick.now, totals);
            limit.history = Steps::starting(histories.remove(&limit.name).unwrap_or_default(), totals);
        }
        model.add(tick);
        model
    }

    /// Adds a frame. `start` replaces everything except the rates, which continue.
    pub(super) fn follow(known: Option<Self>, frame: Frame) -> Option<Self> {
        match (frame, known) {
            (Frame::Start(frames), known) => {
                let (start, tick) = *frames;
                Some(Self::start(start, tick, known.as_ref()))
            }
            (Frame::Tick(tick), Some(mut model)) => {
                model.add(*tick);
                Some(model)
            }
            (Frame::Tick(_), None) => None, // a stream starts with `start`
        }
    }

    /// Adds what has changed.
    fn add(&mut self, tick: Tick) {
        let is_full = tick.limits.len() >= FULL_TICK;
        self.now = tick.now;
        self.requests.add(tick.now, tick.requests);
        for limit in tick.limits {
            self.add_limit(limit);
        }
        if !is_full {
            for limit in &mut self.limits {
                let totals = limit.recent.totals();
                limit.recent.add(tick.now, totals);
            }
        }
        self.end_step();
        for (name, mut lists) in tick.hot {
            if let Some(limit) = self.numbers.get(&name).and_then(|number| self.limits.get_mut(*number)) {
                make_shown(&mut lists);
                limit.hot = lists;
            }
        }
        // What happened just before a stream began is in `start` and in the first tick.
        let last = self.events.back().map(|event| event.number);
        for mut event in tick.events.into_iter().filter(|event| last < Some(event.number)) {
            (event.kind, event.text) = (shown(&event.kind), shown(&event.text));
            if self.events.len() >= MOST_EVENTS {
                self.events.pop_front();
            }
            self.events.push_back(event);
        }
        (self.sent_rules, self.decision, self.delay) = (tick.sent_rules, tick.decision, tick.delay);
        (self.keys, self.bytes, self.max_bytes) = (tick.keys, tick.bytes, tick.max_bytes);
        (self.evictions, self.refused) = (tick.evictions, tick.refused);
        (self.multiplier, self.recording) = (tick.multiplier, tick.recording);
        let leased = tick.sources.get("lease").copied().unwrap_or(0);
        self.decisions_per_call =
            (tick.store.calls > 0 && leased > 0).then(|| leased as f64 / tick.store.calls as f64);
        self.store = tick.store;
        for shard in &mut self.store.shards {
            (shard.name, shard.state) = (shown(&shard.name), shown(&shard.state));
        }
        self.gateway = tick.gateway;
        if let Some(gateway) = &mut self.gateway {
            gateway.upstreams.iter_mut().for_each(|upstream| upstream.name = shown(&upstream.name));
            let ended = std::mem::take(&mut gateway.ended);
            gateway.ended = ended.into_iter().map(|(outcome, count)| (shown(&outcome), count)).collect();
        }
    }

    fn add_limit(&mut self, totals: LimitTotals) {
        let number = *self.numbers.entry(totals.name.clone()).or_insert_with(|| {
            let label = shown(&totals.name);
            let recent = Recent::starting(self.now, Totals::default());
            self.limits.push(Limit { name: totals.name.clone(), label, recent, ..Limit::default() });
            self.limits.len() - 1
        });
        let limit = &mut self.limits[number];
        limit.recent.add(self.now, totals.totals());
        (limit.remaining_p50, limit.remaining_p95) = (totals.remaining_p50, totals.remaining_p95);
    }

    /// Ends the step of all histories when it is over.
    fn end_step(&mut self) {
        let steps = (self.now - self.step_began) / self.step;
        if steps < 0.0 {
            self.step_began = self.now; // the clock was set back
        }
        if steps < 1.0 {
            return;
        }
        self.step_began += steps.floor() * self.step;
        #[expect(clippy::cast_sign_loss, reason = "it is at least 1")]
        let missed = steps as usize - 1;
        self.history.end(missed, self.requests.totals(), None);
        let mut kept = self.limits.iter().filter(|limit| !limit.history.all.is_empty()).count();
        for limit in &mut self.limits {
            let totals = limit.recent.totals();
            if limit.history.all.is_empty() {
                if limit.history.is_unused(totals) || kept >= MOST_HISTORIES {
                    continue;
                }
                kept += 1;
            }
            limit.history.end(missed, totals, limit.remaining_p50);
        }
    }

    /// A limit by its name.
    pub(super) fn limit(&self, name: &str) -> Option<&Limit> {
        self.numbers.get(name).and_then(|number| self.limits.get(*number))
    }

    /// The seconds since a time of the service.
    pub(super) fn since(&self, at: f64) -> u64 {
        #[expect(clippy::cast_sign_loss, reason = "it is at least 0")]
        let seconds = (self.now - at).max(0.0) as u64;
        seconds
    }
}

impl Limit {
    fn of_policy(limit: &PolicyLimit) -> Self {
        let algorithm = match limit.algorithm_in_use.as_str() {
            in_use if in_use.is_empty() || in_use == limit.algorithm => limit.algorithm.clone(),
            in_use => format!("{} (as {in_use})", limit.algorithm),
        };
        let key = match limit.key.as_slice() {
            [] => "one for everybody".to_owned(),
            parts => parts.join(", "),
        };
        let mut matches: Vec<String> =
            limit.matches.iter().map(|(name, values)| format!("{name} {}", joined(values, " or "))).collect();
        matches.extend(limit.descriptor.as_ref().map(|descriptor| format!("descriptor {descriptor}")));
        let tiers = limit
            .tiers
            .iter()
            .take(32)
            .map(|(tier, numbers)| shown(&format!("{tier}: {}", joined(numbers, ", "))));
        Self {
            name: limit.name.clone(),
            label: shown(&limit.name),
            algorithm: shown(&algorithm),
            numbers: shown(&limit.numbers.iter().map(named).collect::<Vec<_>>().join(", ")),
            key: shown(&key),
            matches: shown(&matches.join(", ")),
            tiers: tiers.collect(),
            is_shadow: limit.shadow,
            ..Self::default()
        }
    }

    /// The first key of a list such as `hits` or `denials`, and its share of all keys.
    pub(super) fn hottest(&self, by: &str) -> Option<(String, f64)> {
        let list = self.hot.get(by)?;
        let first = list.keys.first()?;
        Some((key_label(&first.key), first.count as f64 / list.total.max(1) as f64))
    }
}

/// The values of a key as one text.
pub(super) fn key_label(key: &[String]) -> String {
    match key {
        [] => "(everybody)".to_owned(),
        [value] if value.is_empty() => "(empty)".to_owned(),
        values => values.join(" / "),
    }
}

/// Makes the keys of lists fit for a terminal.
pub(super) fn make_shown(lists: &mut HotLists) {
    for list in lists.values_mut() {
        list.keys.truncate(50);
        for value in list.keys.iter_mut().flat_map(|key| &mut key.key) {
            *value = shown(value);
        }
    }
}

fn named((name, value): (&String, &Value)) -> String {
    format!("{name} {}", joined(value, " or "))
}

/// A value as the policy file has it.
fn joined(value: &Value, between: &str) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => {
            values.iter().map(|value| joined(value, between)).collect::<Vec<_>>().join(between)
        }
        Value::Object(fields) => fields.iter().map(named).collect::<Vec<_>>().join(between),
        other => other.to_string(),
    }
}

/// The steps that a service has sent for one limit.
pub(super) fn sent_steps(steps: Option<Vec<Option<Step>>>) -> Steps {
    Steps::starting(steps.unwrap_or_default(), Totals::default())
}

#[cfg(test)]
mod tests;
