//! Frames as JSON: `start` with everything, and `tick` with what has changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use tollgate_policy::{PolicyInForce, StoreSettings};

use super::history::{History, STEP};
use super::log::Event;
use super::{State, now};
use crate::gateway::{GatewayView, SlotTime};
use crate::hot_keys::HotKey;
use crate::http;
use crate::metrics::{LimitMetrics, LimitTotals, RequestTotals};
use crate::service::{Service, json_seconds};

/// The most limits in a tick. Those with the most new requests come first, the others with a later tick.
const MOST_IN_TICK: usize = 200;

/// The most limits whose history is in `start`: the limits with the most denials, then the most requests.
const MOST_HISTORIES: usize = 100;

/// The most limits whose hot keys are sent: the limits with the most new requests.
const MOST_HOT: usize = 50;

/// The most tenants whose share of the application is sent.
const MOST_TENANTS: usize = 12;

/// The hot keys of each order that are sent.
const MOST_KEYS: usize = 5;

/// How a follower sees key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyNames {
    Clear,
    Hashed,
}

impl KeyNames {
    const ALL: [Self; 2] = [Self::Clear, Self::Hashed];
}

/// What every frame has.
#[derive(Serialize)]
struct Common<'a> {
    now: f64,
    requests: RequestTotals,
    sent_rules: SentRules,
    decision: Option<Decision>,
    delay: Delay,
    keys: usize,
    bytes: usize,
    max_bytes: Option<usize>,
    evictions: u64,
    refused: u64,
    multiplier: Option<f64>,
    sources: BTreeMap<&'static str, u64>,
    store: StoreView,
    gateway: Option<GatewayView>,
    recording: Option<bool>,
    limits: Vec<LimitView<'a>>,
}

/// Requests that came with a rule, by `/v1/throttle` or `CL.THROTTLE`.
#[derive(Serialize)]
struct SentRules {
    allowed: u64,
    denied: u64,
}

/// How long decisions took in the last 10 to 15 seconds, in seconds.
#[derive(Serialize)]
struct Decision {
    p50: f64,
    p99: f64,
}

/// Requests that were allowed after a delay.
#[derive(Serialize)]
struct Delay {
    waiting: usize,
    p50: Option<f64>, // in seconds, of the last 10 to 15 seconds
    p95: Option<f64>,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum StoreView {
    Memory,
    Redis { mode: &'static str, calls: u64, errors: u64, shards: Vec<ShardView> },
}

#[derive(Serialize)]
struct ShardView {
    name: String,
    state: &'static str,
    is_up: bool,
    since: f64, // seconds
}

/// The totals of a limit.
#[derive(Serialize)]
struct LimitView<'a> {
    name: &'a str,
    allowed: u64,
    delayed: u64,
    denied: u64,
    newly_denied: u64,
    tokens: u64,
    remaining_p50: Option<f64>,
    remaining_p95: Option<f64>,
}

#[derive(Serialize)]
struct Tick<'a> {
    #[serde(flatten)]
    common: &'a Common<'a>,
    events: &'a [Event],
    #[serde(skip_serializing_if = "Option::is_none")]
    hot: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slot_time: Option<SlotTimeView>, // with hot keys
}

/// The tenants that had slots of the application for the longest time in the last five to ten minutes.
#[derive(Serialize)]
struct SlotTimeView {
    by: String,     // the attribute that identifies a tenant
    seconds: f64,   // of all tenants
    max_error: f64, // by how much the seconds of a tenant may be too high
    tenants: Vec<TenantView>,
}

#[derive(Serialize)]
struct TenantView {
    tenant: String,
    seconds: f64,
    weight: Option<u32>, // None if `by` is another attribute than `tenant`: only tenants have weights
}

#[derive(Serialize)]
struct Start<'a> {
    instance: String,
    version: &'static str,
    started: f64, // Unix time at which the service started
    key_names: KeyNames,
    step: u64,
    policy: &'a RawValue,
    history: Value,
    histories: BTreeMap<&'a str, Value>,
    #[serde(flatten)]
    tick: Tick<'a>,
}

fn common<'a>(service: &Service, state: &State, limits: Vec<LimitView<'a>>) -> Common<'a> {
    let (metrics, engine) = (&service.metrics, &service.engine);
    let decision = state.history.durations(metrics.decision_duration());
    let delays = state.delays.quantiles(metrics.delay(), [0.5, 0.95]);
    let stats = engine.stats();
    let [allowed, denied] = metrics.sent_totals();
    let policy = engine.policy();
    Common {
        now: now(),
        requests: metrics.request_totals(),
        sent_rules: SentRules { allowed, denied },
        decision: decision.map(|[p50, p99]| Decision { p50: rounded(p50), p99: rounded(p99) }),
        delay: Delay {
            waiting: service.delay_queue.waiting(),
            p50: delays.map(|[p50, _]| rounded(p50)),
            p95: delays.map(|[_, p95]| rounded(p95)),
        },
        keys: stats.keys,
        bytes: stats.bytes,
        max_bytes: engine.max_bytes(),
        evictions: stats.evictions,
        refused: stats.refused,
        multiplier: policy
            .adaptive_rates
            .is_some()
            .then(|| engine.pace().map_or(1.0, tollgate::adaptive::Pace::as_f64)),
        sources: metrics.source_totals().map(|(source, count)| (source.as_str(), count)).collect(),
        store: store(service, &policy),
        gateway: metrics
            .gateway
            .as_ref()
            .and_then(|gateway| gateway.view(&state.upstream_durations, &state.queue_waits)),
        recording: service.recorder.is_some().then(|| metrics.is_recording()),
        limits,
    }
}

fn store(service: &Service, policy: &PolicyInForce<'_>) -> StoreView {
    let Some(store) = &service.store else { return StoreView::Memory };
    let shards = store.shards();
    let shard = |shard: &crate::store::ShardHealth| ShardView {
        name: policy.environment_values.hide(&shard.name).into_owned(),
        state: shard.breaker.as_str(),
        is_up: shard.breaker.is_up(),
        since: json_seconds(shard.since),
    };
    StoreView::Redis {
        mode: match &policy.store {
            StoreSettings::Redis(redis) if redis.lease.is_some() => "lease",
            _ => "exact",
        },
        calls: shards.iter().map(|shard| shard.calls).sum(),
        errors: shards.iter().flat_map(|shard| &shard.errors).map(|(_, count)| count).sum(),
        shards: shards.iter().map(shard).collect(),
    }
}

fn limit_view<'a>(history: &History, name: &'a str, totals: &LimitTotals) -> LimitView<'a> {
    let remaining = history.remaining(name, totals);
    let LimitTotals { allowed, delayed, denied, newly_denied, tokens, .. } = *totals;
    LimitView {
        name,
        allowed,
        delayed,
        denied,
        newly_denied,
        tokens,
        remaining_p50: remaining.map(|remaining| rounded(remaining.p50)),
        remaining_p95: remaining.map(|remaining| rounded(remaining.p95)),
    }
}

/// A tick for each kind of key names that is wanted.
pub(super) fn tick(
    service: &Service,
    state: &mut State,
    wanted: [bool; 2],
    with_hot_keys: bool,
    events: &[Event],
) -> [Option<Bytes>; 2] {
    let all = service.metrics.limit_totals();
    let requests = |totals: &LimitTotals| totals.allowed + totals.denied;
    let mut changed: Vec<(u64, &(Arc<LimitMetrics>, LimitTotals))> = all
        .iter()
        .filter_map(|limit| {
            let before = state.sent.get(limit.0.name());
            let new = requests(&limit.1) - before.map_or(0, requests).min(requests(&limit.1));
            (before != Some(&limit.1)).then_some((new, limit))
        })
        .collect();
    if changed.len() > MOST_IN_TICK {
        changed.select_nth_unstable_by_key(MOST_IN_TICK, |(new, _)| std::cmp::Reverse(*new));
        changed.truncate(MOST_IN_TICK);
    }
    let limits =
        changed.iter().map(|(_, (limit, totals))| limit_view(&state.history, limit.name(), totals)).collect();
    let common = common(service, state, limits);
    for (_, (limit, totals)) in &changed {
        match state.sent.get_mut(limit.name()) {
            Some(sent) => *sent = *totals,
            None => _ = state.sent.insert(limit.name().into(), *totals),
        }
    }
    let hot = with_hot_keys.then(|| hot_limits(state, &all));
    KeyNames::ALL.map(|names| {
        let hot = || hot.as_ref().map(|limits| hot_keys(service, limits, names));
        let slot_time = || if with_hot_keys { slot_time(service, names) } else { None };
        wanted[names as usize]
            .then(|| event("tick", &Tick { common: &common, events, hot: hot(), slot_time: slot_time() }))
    })
}

/// The limits whose hot keys are sent: those with the most requests since their last hot keys.
fn hot_limits(state: &mut State, all: &[(Arc<LimitMetrics>, LimitTotals)]) -> Vec<Arc<LimitMetrics>> {
    let requests = |totals: &LimitTotals| totals.allowed + totals.denied;
    let mut used: Vec<(u64, &(Arc<LimitMetrics>, LimitTotals))> = all
        .iter()
        .map(|limit| {
            let before = state.hot_counts.get(limit.0.name()).copied().unwrap_or(0);
            (requests(&limit.1).saturating_sub(before), limit)
        })
        .filter(|(new, _)| *new > 0)
        .collect();
    used.sort_by_key(|(new, _)| std::cmp::Reverse(*new));
    used.truncate(MOST_HOT);
    for (_, (limit, totals)) in &used {
        state.hot_counts.insert(limit.name().into(), requests(totals));
    }
    used.into_iter().map(|(_, (limit, _))| Arc::clone(limit)).collect()
}

/// The hot keys of limits, in every order.
fn hot_keys(service: &Service, limits: &[Arc<LimitMetrics>], names: KeyNames) -> Map<String, Value> {
    let (policy, now) = (service.engine.policy(), service.engine.clock().now());
    let lists = |limit: &Arc<LimitMetrics>| {
        let list = |by: &crate::hot_keys::HotBy| {
            let mut hottest = limit.hot_keys.hottest(*by, MOST_KEYS, now);
            if names == KeyNames::Hashed {
                service.key_mask.mask(&mut hottest);
            }
            (by.as_str().to_owned(), http::hot_list(&hottest, &policy))
        };
        (limit.name().to_owned(), limit.orders().iter().map(list).collect::<Map<_, _>>().into())
    };
    limits.iter().map(lists).collect()
}

fn slot_time(service: &Service, names: KeyNames) -> Option<SlotTimeView> {
    let SlotTime { by, tenants } = service.metrics.gateway.as_ref()?.slot_time(MOST_TENANTS)?;
    let policy = service.engine.policy();
    let seconds = |micros: u64| micros as f64 / 1e6;
    let view = |used: &HotKey| {
        let name = used.key.concat();
        TenantView {
            weight: (by == "tenant").then(|| policy.weight(Some(&name)).get()),
            tenant: if names == KeyNames::Clear { name } else { service.key_mask.hash(&used.key) },
            seconds: seconds(used.count),
        }
    };
    let mut views: Vec<TenantView> = tenants.keys.iter().map(view).collect();
    // Tenants with equal counts were sorted by their names. Hashes must not show that order.
    views.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then_with(|| a.tenant.cmp(&b.tenant)));
    let (all, max_error) = (seconds(tenants.total), seconds(tenants.error_bound));
    Some(SlotTimeView { by, seconds: all, max_error, tenants: views })
}

/// Everything.
pub(super) fn start(
    service: &Service,
    state: &State,
    policy: &RawValue,
    names: KeyNames,
    events: &[Event],
    started: f64,
) -> Bytes {
    let all = service.metrics.limit_totals();
    let mut busiest: Vec<&(Arc<LimitMetrics>, LimitTotals)> = all.iter().collect();
    busiest.sort_by_key(|(_, totals)| std::cmp::Reverse((totals.denied, totals.allowed)));
    busiest.truncate(MOST_HISTORIES);
    let histories = busiest
        .iter()
        .filter_map(|(limit, _)| Some((limit.name(), json!(state.history.limit(limit.name())?))))
        .collect();
    let hot: Vec<_> = busiest.iter().take(MOST_HOT).map(|(limit, _)| Arc::clone(limit)).collect();
    let limits = all.iter().map(|(limit, totals)| limit_view(&state.history, limit.name(), totals)).collect();
    let common = common(service, state, limits);
    let hot = Some(hot_keys(service, &hot, names));
    let start = Start {
        instance: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        version: env!("CARGO_PKG_VERSION"),
        started: (started * 1e3).round() / 1e3,
        key_names: names,
        step: STEP,
        policy,
        history: json!(state.history.requests()),
        histories,
        tick: Tick { common: &common, events, hot, slot_time: slot_time(service, names) },
    };
    event("start", &start)
}

/// The policy in force.
pub(super) fn policy(service: &Service) -> Arc<RawValue> {
    let policy = service.engine.policy();
    let mut json = http::policy_json(&policy);
    // Totals and hot keys have the names of limits as metrics have them, with values of the environment.
    for (shown, limit) in json["limits"].as_array_mut().into_iter().flatten().zip(&policy.limits) {
        shown["name"] = limit.name.clone().into();
    }
    to_raw_value(&json).expect("its values are valid in JSON").into()
}

/// The last 15 minutes of a limit.
pub(crate) fn history_of(service: &Service, limit: &str) -> Value {
    service.dashboard.with_history(
        |history| json!({ "limit": limit, "now": now(), "step": STEP, "steps": history.limit(limit) }),
    )
}

/// A tenth of a microsecond is enough for times, and more than enough for parts. Shorter numbers make smaller frames.
fn rounded(value: f64) -> f64 {
    (value * 1e7).round() / 1e7
}

/// A server-sent event. JSON escapes line breaks, so its data is one line.
fn event(name: &str, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).expect("its values are valid in JSON");
    format!("event: {name}\ndata: {data}\n\n").into()
}
