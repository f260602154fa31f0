//! The frames of `GET /v1/events`, as far as the screen shows them. Unknown fields are ignored, and missing ones have defaults, so
//! that this reads the frames of older and newer services.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::Value;

/// One event of the stream.
#[derive(Debug)]
pub(super) enum Frame {
    /// Everything.
    Start(Box<(Start, Tick)>),
    /// What has changed.
    Tick(Box<Tick>),
}

impl Frame {
    /// Reads an event. None if it is not of a known kind.
    pub(super) fn read(name: &str, data: &str) -> Result<Option<Self>, String> {
        let refused = |error: serde_json::Error| {
            format!("the service sent an event `{name}` that cannot be read: {error}")
        };
        Ok(match name {
            "start" => Some(Self::Start(Box::new((
                serde_json::from_str(data).map_err(refused)?,
                serde_json::from_str(data).map_err(refused)?,
            )))),
            "tick" => Some(Self::Tick(serde_json::from_str(data).map_err(refused)?)),
            _ => None,
        })
    }
}

/// What only `start` has.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Start {
    pub(super) instance: String,
    pub(super) version: String,
    pub(super) started: f64, // Unix time
    pub(super) key_names: String,
    pub(super) step: f64, // seconds of a step of the histories
    pub(super) policy: Policy,
    pub(super) history: Vec<Option<Step>>,
    pub(super) histories: HashMap<String, Vec<Option<Step>>>,
}

/// The policy in force.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Policy {
    pub(super) limits: Vec<PolicyLimit>,
}

/// A limit of the policy.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PolicyLimit {
    pub(super) name: String,
    pub(super) algorithm: String,
    pub(super) algorithm_in_use: String,
    pub(super) numbers: serde_json::Map<String, Value>,
    pub(super) key: Vec<String>,
    #[serde(rename = "match")]
    pub(super) matches: serde_json::Map<String, Value>,
    pub(super) descriptor: Option<String>,
    pub(super) shadow: bool,
    pub(super) tiers: serde_json::Map<String, Value>,
}

/// The requests in one step of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Step {
    pub(super) allowed: u64,
    pub(super) delayed: u64,
    pub(super) denied: u64,
    pub(super) errors: u64,
    pub(super) newly_denied: u64,
    pub(super) remaining_p50: Option<f64>, // as a part of the limit
}

/// What every frame has.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Tick {
    pub(super) now: f64, // Unix time in seconds
    pub(super) requests: Totals,
    pub(super) sent_rules: Totals,
    pub(super) decision: Option<Decision>,
    pub(super) delay: Delay,
    pub(super) keys: u64,
    pub(super) bytes: u64,
    pub(super) max_bytes: Option<u64>,
    pub(super) evictions: u64,
    pub(super) refused: u64,
    pub(super) multiplier: Option<f64>,
    pub(super) sources: BTreeMap<String, u64>,
    pub(super) store: Store,
    pub(super) gateway: Option<Gateway>,
    pub(super) recording: Option<bool>,
    pub(super) limits: Vec<LimitTotals>,
    pub(super) events: Vec<Event>,
    pub(super) hot: HashMap<String, HotLists>,
}

/// What was counted since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Totals {
    pub(super) allowed: u64, // also after a delay
    pub(super) delayed: u64,
    pub(super) denied: u64,
    pub(super) errors: u64,
    pub(super) newly_denied: u64,
    pub(super) tokens: u64,
}

/// The totals of a limit.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LimitTotals {
    pub(super) name: String,
    pub(super) allowed: u64,
    pub(super) delayed: u64,
    pub(super) denied: u64,
    pub(super) newly_denied: u64,
    pub(super) tokens: u64,
    pub(super) remaining_p50: Option<f64>,
    pub(super) remaining_p95: Option<f64>,
}

/// How long decisions took lately, in seconds.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Decision {
    pub(super) p50: f64,
    pub(super) p99: f64,
}

/// Requests that were allowed after a delay.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Delay {
    pub(super) waiting: u64,
    pub(super) p50: Option<f64>,
    pub(super) p95: Option<f64>,
}

/// Where states are kept.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Store {
    pub(super) kind: String,
    pub(super) mode: String,
    pub(super) calls: u64,
    pub(super) errors: u64,
    pub(super) shards: Vec<Shard>,
}

/// A server of the store.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Shard {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) is_up: bool,
    pub(super) since: f64, // seconds
}

/// The gateway.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Gateway {
    pub(super) slots: Option<Slots>,
    pub(super) upstreams: Vec<Upstream>,
    pub(super) ended: BTreeMap<String, u64>,
    pub(super) duration_p50: Option<f64>,
    pub(super) duration_p99: Option<f64>,
    pub(super) wait_p50: Option<f64>,
    pub(super) wait_p95: Option<f64>,
}

/// The slots of the gateway.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Slots {
    pub(super) in_use: u64,
    pub(super) limit: u64,
    pub(super) waiting: u64,
    pub(super) is_adaptive: bool,
}

/// An upstream of the gateway.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Upstream {
    pub(super) name: String,
    pub(super) in_flight: u64,
    pub(super) is_up: bool,
}

/// Something that happened.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event {
    pub(super) number: u64,
    pub(super) at: f64,
    pub(super) kind: String,
    pub(super) text: String,
}

/// The hot keys of a limit, by order: `hits`, `tokens`, `denials`, `newly_denied`.
pub(super) type HotLists = BTreeMap<String, HotList>;

/// The hot keys of a limit in one order.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct HotList {
    pub(super) keys: Vec<HotKey>,
    pub(super) total: u64,
    pub(super) error_bound: u64,
}

/// A hot key.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct HotKey {
    pub(super) key: Vec<String>,
    pub(super) count: u64,
    pub(super) error: u64,
}

/// The answer of `GET /v1/history`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LimitHistory {
    pub(super) steps: Option<Vec<Option<Step>>>,
}

/// The answer of `GET /v1/hot`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Hot {
    pub(super) limits: HashMap<String, HotLists>,
}

impl Totals {
    /// All requests.
    pub(super) const fn requests(&self) -> u64 {
        self.allowed + self.denied + self.errors
    }

    /// Whether a number is smaller than before, as after a restart of the service.
    pub(super) const fn are_below(&self, before: &Self) -> bool {
        self.allowed < before.allowed || self.denied < before.denied || self.errors < before.errors
    }
}

impl LimitTotals {
    pub(super) const fn totals(&self) -> Totals {
        let Self { allowed, delayed, denied, newly_denied, tokens, .. } = *self;
        Totals { allowed, delayed, denied, errors: 0, newly_denied, tokens }
    }
}
