//! What is simulated, and its bounds.

use tollgate_core::lease::{NoLease, Terms};
use tollgate_core::{Nanos, Rule};

use super::fault::{Fault, FaultKind};

/// The most nodes.
pub const MOST_NODES: u32 = 10_000;

/// The most faults.
pub const MOST_FAULTS: usize = 64;

/// The most requests of a run.
const MOST_REQUESTS: f64 = 100e6;

/// The most reports of a run of the scheme that reports after it has spent.
const MOST_REPORTS: u64 = 100_000_000;

/// The most requests and messages that wait at one moment, on the network or for a node that stands still. They take about 1 GB.
const MOST_WAITING: f64 = 10e6;

/// The longest run.
const LONGEST: u64 = 3600 * SECOND;

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;

/// What is simulated. Times are in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterSettings {
    /// How many nodes share the limit.
    pub nodes: u32,
    /// The units that come per second.
    pub rate: u64,
    /// The units that a rested key has.
    pub burst: u64,
    /// The demand of all nodes together, as a multiple of the rate.
    pub overload: f64,
    /// The share of the demand at the first node. Without it, all nodes have the same demand.
    pub skew: Option<f64>,
    /// The time from a node to the store and back.
    pub rtt: u64,
    /// The probability that a message is lost.
    pub loss: f64,
    /// How long a grant should last, and the time between two reports.
    pub sync: u64,
    /// How long a request waits for an answer of the store.
    pub deadline: u64,
    /// How long the run takes.
    pub duration: u64,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// Another seed gives other random moments.
    pub seed: u64,
}

impl Default for ClusterSettings {
    /// Four nodes with 20 times as much demand as the limit allows, for 30 seconds.
    fn default() -> Self {
        let rtt = 500_000;
        Self {
            nodes: 4,
            rate: 1000,
            burst: 1000,
            overload: 20.0,
            skew: None,
            rtt,
            loss: 0.0,
            sync: 100 * MILLISECOND,
            deadline: 5 * MILLISECOND + rtt,
            duration: 30 * SECOND,
            faults: Vec::new(),
            seed: 1,
        }
    }
}

impl ClusterSettings {
    /// The requests per second of all nodes together.
    pub fn demand(&self) -> f64 {
        self.rate as f64 * self.overload
    }

    /// The requests per second of one node.
    pub(super) fn demand_of(&self, node: usize) -> f64 {
        let others = f64::from(self.nodes - 1);
        match self.skew {
            Some(share) if node == 0 => self.demand() * share,
            Some(share) => self.demand() * (1.0 - share) / others,
            None => self.demand() / f64::from(self.nodes),
        }
    }

    /// The terms of leases.
    pub(super) fn terms(&self, rule: &Rule) -> Result<Terms, String> {
        rule.lease_terms(Nanos::new(self.sync)).map_err(|reason| match reason {
            NoLease::Burst { found, least } => {
                format!("a burst of {found} cannot be leased: it is at least {least}")
            }
            reason => format!("the rule cannot be leased: {reason:?}"),
        })
    }

    /// Refuses settings that are out of bounds. The error names the setting and the bound.
    ///
    /// # Errors
    ///
    /// A sentence.
    pub fn check(&self) -> Result<(), String> {
        let within = |name: &str, found: u64, least: u64, most: u64, unit: (u64, &str)| {
            if (least..=most).contains(&found) {
                return Ok(());
            }
            let (size, unit) = unit;
            Err(format!("{name} is {} to {}{unit}", least.div_ceil(size), most / size))
        };
        within("the number of nodes", self.nodes.into(), 1, MOST_NODES.into(), (1, ""))?;
        within("the rate", self.rate, 1, 1_000_000_000, (1, " per second"))?;
        within("the burst", self.burst, 1, 1_000_000_000, (1, " units"))?;
        within("the round trip", self.rtt, 0, SECOND, (MILLISECOND, " ms"))?;
        within("sync", self.sync, 10 * MILLISECOND, 5 * SECOND, (MILLISECOND, " ms"))?;
        within("the deadline", self.deadline, 1, 10 * SECOND, (MILLISECOND, " ms"))?;
        within("the duration", self.duration, 1, LONGEST, (SECOND, " s"))?;
        if !(self.overload > 0.0 && self.overload <= 1e6) {
            return Err("the overload is above 0 and at most 1 000 000".to_owned());
        }
        if !(0.0..=1.0).contains(&self.loss) {
            return Err("the loss is a probability: 0 to 1".to_owned());
        }
        if let Some(skew) = self.skew {
            if !(skew > 0.0 && skew <= 1.0) {
                return Err("the skew is the share of one node: above 0 and at most 1".to_owned());
            }
            if self.nodes == 1 && skew < 1.0 {
                return Err("one node has all of the demand: leave out the skew, or add nodes".to_owned());
            }
        }
        self.check_amounts()?;
        self.check_faults()
    }

    /// Refuses runs that would take too long or too much memory.
    fn check_amounts(&self) -> Result<(), String> {
        let requests = self.demand() * self.duration as f64 / SECOND as f64;
        if requests > MOST_REQUESTS {
            return Err(format!(
                "the run would have about {requests:.0} requests, and {MOST_REQUESTS:.0} is the most: take a lower rate or \
                 overload, or a shorter duration"
            ));
        }
        let reports = u64::from(self.nodes) * (self.duration / self.sync);
        if reports > MOST_REPORTS {
            return Err(format!(
                "the run would have about {reports} reports, and {MOST_REPORTS} is the most: take a longer sync, fewer nodes, or \
                 a shorter duration"
            ));
        }
        let stalls = self.faults.iter().filter(|fault| fault.kind.is_stall());
        let longest = stalls.map(|fault| fault.length).sum::<u64>().max(self.rtt);
        let waiting = self.demand() * longest as f64 / SECOND as f64;
        if waiting > MOST_WAITING {
            return Err(format!(
                "about {waiting:.0} requests would wait at one moment, and {MOST_WAITING:.0} is the most: take a shorter pause or \
                 round trip, or a lower rate"
            ));
        }
        Ok(())
    }

    fn check_faults(&self) -> Result<(), String> {
        if self.faults.len() > MOST_FAULTS {
            return Err(format!("there are {} faults, and {MOST_FAULTS} is the most", self.faults.len()));
        }
        for (place, fault) in self.faults.iter().enumerate() {
            if fault.start >= self.duration {
                return Err(format!("fault `{fault}`: it starts before the run ends"));
            }
            if let Some(node) = fault.node
                && node >= self.nodes
            {
                return Err(format!("fault `{fault}`: nodes are 0 to {}", self.nodes - 1));
            }
            let overlaps = |other: &&Fault| {
                other.kind.is_stall()
                    && (other.node.is_none() || fault.node.is_none() || other.node == fault.node)
                    && other.start < fault.end()
                    && fault.start < other.end()
            };
            if fault.kind.is_stall()
                && let Some(other) = self.faults[..place].iter().find(overlaps)
            {
                return Err(format!(
                    "faults `{other}` and `{fault}`: a node stands still for one of them at a time"
                ));
            }
            if fault.kind == FaultKind::Failover && fault.length > fault.start {
                return Err(format!(
                    "fault `{fault}`: the store can forget at most the time since the start"
                ));
            }
        }
        Ok(())
    }
}
