//! What is counted of each limit. A limit that has decided nothing has no series, and a limit that is no longer in the policy in
//! force has none either.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tollgate::Clock;
use tollgate_policy::{LimitVerdict, PolicyInForce, Verdict};

use super::sharded::{Counter, OwnLines, own_shard, shard_count};
use super::{OUTCOMES, Outcome, PROTOCOLS, Protocol};
use crate::hot_keys::{Hit, HotBy, HotKeys};
use crate::retired::Retired;

/// The most tokens of one request that are added to a counter, so that a caller cannot make it overflow.
const MOST_TOKENS: u64 = u32::MAX as u64;

/// The limit of rules that come with requests. No limit of a policy can have this name.
const SENT: &str = "(sent)";

/// The bounds of what remains of a limit, as a part of it.
pub(crate) const RATIOS: [f64; 9] = [0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0];

/// What is counted of all limits.
#[derive(Default)]
pub(super) struct Limits {
    by_number: ArcSwap<Vec<Option<Arc<LimitMetrics>>>>,
    retired: Retired<Vec<Option<Arc<LimitMetrics>>>>,
    sent: [[Counter; 2]; PROTOCOLS.len()], // allowed and denied
}

/// What is counted of one limit.
pub(crate) struct LimitMetrics {
    name: Box<str>,
    is_shadow: AtomicBool,
    shards: Box<[OnceLock<Box<OwnLines<Counts>>>]>, // each allocated when its first thread counts
    pub(crate) hot_keys: HotKeys,
}

/// What one shard of the threads has counted.
#[derive(Debug, Default)]
struct Counts {
    decisions: [[AtomicU64; OUTCOMES.len()]; PROTOCOLS.len()],
    tokens: AtomicU64,
    delayed: AtomicU64,      // of the allowed requests
    newly_denied: AtomicU64, // by a shadow limit alone
    ratios: [AtomicU64; RATIOS.len() + 1],
    ratio_billionths: AtomicU64, // the sum of all ratios
}

/// What one limit has counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitTotals {
    /// Requests that it allowed, also after a delay.
    pub(crate) allowed: u64,
    /// Requests that it allowed after a delay.
    pub(crate) delayed: u64,
    /// Requests that it denied, or would have denied as a shadow limit.
    pub(crate) denied: u64,
    /// Requests that all other limits allowed and it would have denied as a shadow limit.
    pub(crate) newly_denied: u64,
    /// Tokens that it charged.
    pub(crate) tokens: u64,
    /// How often what remained of it was within each of [`RATIOS`], and above.
    pub(crate) remaining: [u64; RATIOS.len() + 1],
}

/// A decision of one limit, as it is counted.
struct CountedDecision {
    outcome: Outcome,
    ratio: f64, // what remained of the capacity
    tokens: u64,
    is_delayed: bool,
    is_newly_denied: bool,
}

impl Counts {
    fn add(&self, protocol: Protocol, decided: &CountedDecision) {
        let CountedDecision { outcome, ratio, tokens, is_delayed, is_newly_denied } = *decided;
        let add = |counter: &AtomicU64, count: u64| counter.fetch_add(count, Ordering::Relaxed);
        add(&self.decisions[protocol as usize][outcome as usize], 1);
        let place = RATIOS.iter().position(|&bound| ratio <= bound).unwrap_or(RATIOS.len());
        add(&self.ratios[place], 1);
        #[expect(clippy::cast_sign_loss, reason = "not below zero; what is too large is cut off")]
        add(&self.ratio_billionths, (ratio * 1e9) as u64);
        if tokens > 0 {
            add(&self.tokens, tokens);
        }
        if is_delayed {
            add(&self.delayed, 1);
        }
        if is_newly_denied {
            add(&self.newly_denied, 1);
        }
    }

    fn add_counts(&self, other: &Self) {
        let pairs = [
            (&self.tokens, &other.tokens),
            (&self.delayed, &other.delayed),
            (&self.newly_denied, &other.newly_denied),
            (&self.ratio_billionths, &other.ratio_billionths),
        ];
        let decisions = self.decisions.iter().flatten().zip(other.decisions.iter().flatten());
        for (sum, count) in decisions.chain(self.ratios.iter().zip(&other.ratios)).chain(pairs) {
            sum.fetch_add(count.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

impl LimitMetrics {
    fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            is_shadow: AtomicBool::new(false),
            shards: (0..shard_count()).map(|_| OnceLock::new()).collect(),
            hot_keys: HotKeys::default(),
        }
    }

    fn count(
        &self,
        limit: &LimitVerdict<'_, '_>,
        outcome: Outcome,
        protocol: Protocol,
        verdict: &Verdict<'_>,
    ) {
        let (decision, is_allowed) = (limit.decision(), limit.is_allowed());
        let tokens = if limit.is_charged() { limit.cost().min(MOST_TOKENS) } else { 0 };
        let is_newly_denied = outcome == Outcome::shadow_deny && verdict.is_allowed();
        let decided = CountedDecision {
            outcome,
            ratio: decision.status.remaining as f64 / limit.capacity().max(1) as f64,
            tokens,
            is_delayed: is_allowed && !decision.delay().is_zero(),
            is_newly_denied,
        };
        self.shards[own_shard()].get_or_init(Box::default).0.add(protocol, &decided);
        // A limit without a key has nothing to compare, and a peek uses nothing.
        if limit.limit().has_keys() && limit.cost() > 0 {
            let hit = Hit { tokens, is_denied: !is_allowed, is_newly_denied };
            self.hot_keys.count(limit.key_hash(), || limit.key(), hit, verdict.decided_at());
        }
    }

    /// Whether the limit only watches.
    pub(crate) fn is_shadow(&self) -> bool {
        self.is_shadow.load(Ordering::Relaxed)
    }

    /// The orders of its hot keys.
    pub(crate) fn orders(&self) -> &'static [HotBy] {
        HotBy::of(self.is_shadow())
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What it has counted. None if it has decided nothing.
    pub(crate) fn totals(&self) -> Option<LimitTotals> {
        let counts = self.total()?;
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let of =
            |outcome: Outcome| counts.decisions.iter().map(|of| value(&of[outcome as usize])).sum::<u64>();
        Some(LimitTotals {
            allowed: of(Outcome::allow),
            delayed: value(&counts.delayed),
            denied: of(Outcome::deny) + of(Outcome::shadow_deny),
            newly_denied: value(&counts.newly_denied),
            tokens: value(&counts.tokens),
            remaining: counts.ratios.each_ref().map(value),
        })
    }

    /// The counts of all threads. None if the limit has decided nothing.
    fn total(&self) -> Option<Counts> {
        let mut counted = self.shards.iter().filter_map(OnceLock::get).peekable();
        counted.peek()?;
        let total = Counts::default();
        counted.for_each(|shard| total.add_counts(&shard.0));
        Some(total)
    }
}

impl Limits {
    /// Counts the limits of the policy in force, and those only.
    pub(super) fn follow(&self, policy: &PolicyInForce<'_>) {
        let shadow: HashSet<&str> =
            policy.limits.iter().filter(|limit| limit.shadow).map(|limit| limit.name.as_str()).collect();
        self.replace(policy.limit_numbers().map(|(number, name)| (number, name, shadow.contains(name))));
    }

    /// Counts limits with these numbers and names, and whether each only watches. A limit keeps its counts by its name. A number
    /// that another limit had before starts with new counts.
    fn replace<'n>(&self, limits: impl Iterator<Item = (usize, &'n str, bool)>) {
        let before = self.by_number.load_full();
        let known: HashMap<&str, &Arc<LimitMetrics>> =
            before.iter().flatten().map(|limit| (&*limit.name, limit)).collect();
        let mut after: Vec<Option<Arc<LimitMetrics>>> = Vec::new();
        for (number, name, is_shadow) in limits {
            if after.len() <= number {
                after.resize(number + 1, None);
            }
            let limit =
                known.get(name).map_or_else(|| Arc::new(LimitMetrics::new(name)), |limit| Arc::clone(limit));
            limit.is_shadow.store(is_shadow, Ordering::Relaxed);
            after[number] = Some(limit);
        }
        drop(before);
        self.retired.push(self.by_number.swap(Arc::new(after)));
    }

    /// Drops limits that are gone and that no request counts any more.
    pub(super) fn drop_retired(&self) {
        self.retired.drop_unused();
    }

    /// What is counted of the limit of this number.
    pub(super) fn get(&self, number: usize) -> Option<Arc<LimitMetrics>> {
        self.by_number.load().get(number).cloned().flatten()
    }

    /// All limits that have decided something, with their counts.
    pub(super) fn totals(&self) -> Vec<(Arc<LimitMetrics>, LimitTotals)> {
        let limits = self.by_number.load_full();
        limits.iter().flatten().filter_map(|limit| Some((Arc::clone(limit), limit.totals()?))).collect()
    }

    /// What rules that came with requests have allowed and denied.
    pub(super) fn sent_totals(&self) -> [u64; 2] {
        let sum = |outcome: usize| self.sent.iter().map(|of| of[outcome].get()).sum();
        [sum(0), sum(1)]
    }

    /// Counts the decisions of the limits of a call.
    pub(super) fn observe(&self, verdict: &Verdict<'_>, protocol: Protocol) {
        let limits = self.by_number.load();
        let count = |limit: &LimitVerdict<'_, '_>, denied: Outcome| {
            // A request that is decided just before or after a reload may have a limit that is not counted.
            let Some(Some(metrics)) = limits.get(limit.number()) else { return };
            let outcome = if limit.is_allowed() { Outcome::allow } else { denied };
            metrics.count(limit, outcome, protocol, verdict);
        };
        verdict.limits().for_each(|limit| count(&limit, Outcome::deny));
        verdict.shadow().for_each(|limit| count(&limit, Outcome::shadow_deny));
    }

    /// Counts decisions by rules that came with requests: how many allowed, and how many denied.
    pub(super) fn count_sent(&self, protocol: Protocol, counts: [u64; 2]) {
        for (counter, count) in self.sent[protocol as usize].iter().zip(counts) {
            if count > 0 {
                counter.inc_by(count);
            }
        }
    }

    /// Frees the memory of hot keys that are too old to be shown.
    pub(super) fn forget_old_hot_keys(&self, now: tollgate::Timestamp) {
        self.by_number.load().iter().flatten().for_each(|limit| limit.hot_keys.forget_old(now));
    }
}

/// Writes what is counted of limits.
pub(super) struct LimitSeries {
    pub(super) limits: Arc<Limits>,
    pub(super) clock: Clock,
}

impl std::fmt::Debug for LimitSeries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LimitSeries(..)")
    }
}

impl Collector for LimitSeries {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let limits = self.limits.by_number.load_full();
        let used: Vec<(&LimitMetrics, Counts)> =
            limits.iter().flatten().filter_map(|limit| Some((&**limit, limit.total()?))).collect();
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);

        let mut decisions =
            encoder.encode_descriptor("decisions", "Decisions of each limit", None, MetricType::Counter)?;
        let mut write = |limit: &str, outcome: Outcome, protocol: Protocol, count: u64| {
            let labels = [("limit", limit), ("outcome", outcome.as_str()), ("protocol", protocol.as_str())];
            ConstCounter::new(count).encode(decisions.encode_family(&labels)?)
        };
        for (limit, counts) in &used {
            let denied = match limit.is_shadow() {
                true => Outcome::shadow_deny,
                false => Outcome::deny,
            };
            for protocol in PROTOCOLS {
                let counts = counts.decisions[protocol as usize].each_ref().map(value);
                for outcome in OUTCOMES {
                    // Every usual series is written from the limit's first request on, so that `increase()` sees the first
                    // denial as an increase from 0.
                    let is_usual = outcome == Outcome::allow || outcome == denied;
                    if counts[outcome as usize] > 0 || is_usual {
                        write(&limit.name, outcome, protocol, counts[outcome as usize])?;
                    }
                }
            }
        }
        for protocol in PROTOCOLS {
            let [allowed, denied] = self.limits.sent[protocol as usize].each_ref().map(Counter::get);
            if allowed + denied > 0 {
                write(SENT, Outcome::allow, protocol, allowed)?;
                write(SENT, Outcome::deny, protocol, denied)?;
            }
        }

        let mut cost = encoder.encode_descriptor(
            "cost",
            "Tokens that each limit has charged",
            None,
            MetricType::Counter,
        )?;
        for (limit, counts) in &used {
            let labels = [("limit", &*limit.name)];
            ConstCounter::new(value(&counts.tokens)).encode(cost.encode_family(&labels)?)?;
        }

        let mut delayed = encoder.encode_descriptor(
            "delayed",
            "Requests that each limit allowed after a delay",
            None,
            MetricType::Counter,
        )?;
        for (limit, counts) in &used {
            let labels = [("limit", &*limit.name)];
            ConstCounter::new(value(&counts.delayed)).encode(delayed.encode_family(&labels)?)?;
        }

        let mut newly_denied = encoder.encode_descriptor(
            "newly_denied",
            "Requests that all other limits allowed and this shadow limit would have denied",
            None,
            MetricType::Counter,
        )?;
        for (limit, counts) in &used {
            if limit.is_shadow() || value(&counts.newly_denied) > 0 {
                let labels = [("limit", &*limit.name)];
                ConstCounter::new(value(&counts.newly_denied))
                    .encode(newly_denied.encode_family(&labels)?)?;
            }
        }

        let mut ratios = encoder.encode_descriptor(
            "remaining_ratio",
            "What remained of each limit, as a part of it",
            None,
            MetricType::Histogram,
        )?;
        for (limit, counts) in &used {
            let bounds = RATIOS.into_iter().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(counts.ratios.iter().map(value)).collect();
            let count = buckets.iter().map(|(_, count)| count).sum();
            let sum = value(&counts.ratio_billionths) as f64 / 1e9;
            let labels = [("limit", &*limit.name)];
            ratios.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }

        let mut hottest = encoder.encode_descriptor(
            "hottest_key_ratio",
            "Share of the requests to each limit in the last five to ten minutes that its busiest key certainly made",
            None,
            MetricType::Gauge,
        )?;
        let now = self.clock.now();
        for (limit, _) in &used {
            if let Some(share) = limit.hot_keys.hottest_share(now) {
                ConstGauge::new(share).encode(hottest.encode_family(&[("limit", &*limit.name)])?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;

    use super::*;

    fn replace(limits: &Limits, names: &[(usize, &str)]) {
        limits.replace(names.iter().map(|&(number, name)| (number, name, name.starts_with("shadow"))));
    }

    fn count(limits: &Limits, number: usize, outcome: Outcome) {
        let limit = limits.get(number).unwrap();
        let decided =
            CountedDecision { outcome, ratio: 0.5, tokens: 2, is_delayed: false, is_newly_denied: false };
        limit.shards[own_shard()].get_or_init(Box::default).0.add(Protocol::http, &decided);
    }

    /// The lines with values, without those of buckets and of other protocols than `http`.
    fn series(limits: &Arc<Limits>) -> Vec<String> {
        let mut registry = Registry::default();
        registry
            .register_collector(Box::new(LimitSeries { limits: Arc::clone(limits), clock: Clock::manual() }));
        let mut written = String::new();
        text::encode(&mut written, &registry).unwrap();
        let is_value = |line: &&str| !line.starts_with('#') && !line.contains("_bucket");
        let is_http = |line: &&str| !line.contains("protocol") || line.contains("\"http\"");
        written.lines().filter(is_value).filter(is_http).map(str::to_owned).collect()
    }

    #[test]
    fn a_limit_that_has_decided_nothing_has_no_series() {
        let limits = Arc::new(Limits::default());
        replace(&limits, &[(0, "a"), (1, "b")]);
        assert_eq!(series(&limits), [""; 0]);
        count(&limits, 1, Outcome::allow);
        assert_eq!(
            series(&limits),
            [
                r#"decisions_total{limit="b",outcome="allow",protocol="http"} 1"#,
                r#"decisions_total{limit="b",outcome="deny",protocol="http"} 0"#,
                r#"cost_total{limit="b"} 2"#,
                r#"delayed_total{limit="b"} 0"#,
                r#"remaining_ratio_sum{limit="b"} 0.5"#,
                r#"remaining_ratio_count{limit="b"} 1"#,
            ]
        );
    }

    #[test]
    fn a_shadow_limit_has_shadow_denials_and_no_denials() {
        let limits = Arc::new(Limits::default());
        replace(&limits, &[(0, "shadow")]);
        count(&limits, 0, Outcome::allow);
        let decisions = &series(&limits)[..2];
        assert_eq!(
            decisions,
            [
                r#"decisions_total{limit="shadow",outcome="allow",protocol="http"} 1"#,
                r#"decisions_total{limit="shadow",outcome="shadow_deny",protocol="http"} 0"#,
            ]
        );
    }

    #[test]
    fn a_number_that_another_limit_gets_starts_with_new_counts() {
        let limits = Arc::new(Limits::default());
        replace(&limits, &[(0, "old"), (1, "kept")]);
        (0..3).for_each(|_| count(&limits, 0, Outcome::deny));
        count(&limits, 1, Outcome::deny);
        // `kept` has another number, and `new` the number of `old`.
        replace(&limits, &[(0, "new"), (2, "kept")]);
        assert!(limits.get(1).is_none());
        count(&limits, 0, Outcome::deny);
        count(&limits, 2, Outcome::deny);
        let denied: Vec<String> =
            series(&limits).into_iter().filter(|line| line.contains("\"deny\"")).collect();
        assert_eq!(
            denied,
            [
                r#"decisions_total{limit="new",outcome="deny",protocol="http"} 1"#,
                r#"decisions_total{limit="kept",outcome="deny",protocol="http"} 2"#,
            ]
        );
    }

    #[test]
    fn limits_that_are_gone_are_dropped() {
        let limits = Limits::default();
        let names: Vec<String> = (0..2000).map(|number| format!("limit {number}")).collect();
        let generation = |first: usize| -> Vec<(usize, &str)> {
            (0..1000).map(|number| (number, names[first + number].as_str())).collect()
        };
        replace(&limits, &generation(0));
        count(&limits, 7, Outcome::allow);
        let gone = Arc::downgrade(&limits.get(7).unwrap());
        replace(&limits, &generation(1000));
        assert_eq!(limits.by_number.load().iter().flatten().count(), 1000);
        limits.drop_retired();
        assert!(gone.upgrade().is_none());
    }

    /// 28 series with their labels took about 4 KB per limit, and hot keys as much again.
    #[test]
    fn an_unused_limit_takes_little_memory() {
        let limit = LimitMetrics::new("a limit");
        assert!(size_of::<LimitMetrics>() <= 128, "{}", size_of::<LimitMetrics>());
        assert!(limit.shards.iter().all(|shard| shard.get().is_none()));
        assert_eq!(limit.shards.len(), shard_count());
        assert!(size_of::<OnceLock<Box<OwnLines<Counts>>>>() <= 16);
        assert!(size_of::<OwnLines<Counts>>() <= 256);
    }
}
