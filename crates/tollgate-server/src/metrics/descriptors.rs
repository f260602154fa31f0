//! Decisions of Envoy descriptors by their values, where their limit asks for it.

use std::collections::{BTreeMap, HashSet};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use std::sync::Arc;
use tollgate_policy::{DescriptorVerdict, Policy};

use super::Outcome;

/// The most descriptors that are counted by their values. All others are counted as one.
const MOST_DESCRIPTORS: usize = 1000;

/// The name of all others.
const OTHER: &str = "(other)";

/// What is counted of descriptors.
#[derive(Debug, Default)]
pub(super) struct Descriptors(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    by_name: BTreeMap<String, Counted>,
    other: [u64; 2],
}

#[derive(Debug)]
struct Counted {
    descriptor: String, // of the policy
    counts: [u64; 2],   // allowed, denied
}

impl Descriptors {
    /// Counts a descriptor by its values, if its limit asks for that.
    pub(super) fn observe(&self, verdict: &DescriptorVerdict<'_, '_>) {
        let Some(descriptor) = verdict.descriptor() else { return };
        let entries = verdict.attributes().get(1..).unwrap_or_default();
        let Some(name) = descriptor.metric(entries) else { return };
        let mut counts = self.0.lock();
        let is_full = counts.by_name.len() >= MOST_DESCRIPTORS;
        let Counts { by_name, other } = &mut *counts;
        let count = match by_name.get_mut(&name) {
            Some(counted) => &mut counted.counts,
            None if is_full => other,
            None => {
                let counted = Counted { descriptor: descriptor.to_string(), counts: [0; 2] };
                &mut by_name.entry(name).or_insert(counted).counts
            }
        };
        count[usize::from(!verdict.is_allowed())] += 1;
    }

    /// Drops the counts of descriptors that are not in a policy.
    pub(super) fn follow(&self, policy: &Policy) {
        if self.0.lock().by_name.is_empty() {
            return;
        }
        let limited = policy.limits.iter().filter_map(|limit| limit.descriptor.as_ref());
        let uncounted = policy.descriptors.iter().map(|uncounted| &uncounted.descriptor);
        let known: HashSet<String> = limited.chain(uncounted).map(ToString::to_string).collect();
        self.0.lock().by_name.retain(|_, counted| known.contains(&counted.descriptor));
    }
}

/// Writes what is counted of descriptors.
#[derive(Debug)]
pub(super) struct DescriptorSeries(pub(super) Arc<Descriptors>);

impl Collector for DescriptorSeries {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut decisions = encoder.encode_descriptor(
            "descriptor_decisions",
            "Decisions of Envoy descriptors whose limit asks for it, by their values",
            None,
            MetricType::Counter,
        )?;
        let (mut series, other) = {
            let counts = self.0.0.lock();
            let series = counts.by_name.iter().map(|(name, counted)| (name.clone(), counted.counts));
            (series.collect::<Vec<_>>(), counts.other)
        };
        if other != [0; 2] {
            series.push((OTHER.to_owned(), other));
        }
        for (name, counts) in series {
            for (outcome, count) in [Outcome::allow, Outcome::deny].into_iter().zip(counts) {
                let labels = [("descriptor", name.as_str()), ("outcome", outcome.as_str())];
                ConstCounter::new(count).encode(decisions.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
