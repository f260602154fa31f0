//! Nodes that share one limit through a store, on a simulated network: leases beside four other schemes, on the same arrivals.
//!
//! A discrete-event simulation in whole nanoseconds. It reads no clock, and its random numbers come from a seed. So the same settings
//! give the same result. Every decision is made by the rules of the core: leases are [`tollgate_core::lease::Lease`] at the nodes and
//! [`tollgate_core::Rule::grant`] at the store.
//!
//! The network has a constant delay in each direction. It loses messages at random, and all messages while a fault cuts a node off.
//! The store decides each call when it arrives, and takes no time for it.

mod arrivals;
mod event_queue;
mod exact;
mod fault;
mod leases;
mod outcome;
mod plot;
mod refuse_and_wait;
mod report_after_spend;
mod settings;
mod static_split;
mod tally;
mod world;

use tollgate_core::{Rate, Rule, TokenBucket};

use crate::error::LabError;
use crate::log::Progress;

pub use self::fault::{Fault, FaultKind};
pub use self::outcome::{Calls, ClusterOutcome, SchemeOutcome, Shares, Waits, WorstSpan};
pub use self::plot::{growth_plot, run_plot};
pub use self::settings::{ClusterSettings, MOST_FAULTS, MOST_NODES};

/// How nodes share a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scheme {
    /// A node draws units from the store before it spends them.
    Lease,
    /// The store decides each request.
    Exact,
    /// Each node has an equal part of the limit. There is no store.
    StaticSplit,
    /// Each node decides by its own copy of the bucket, and reports what it has spent.
    ReportAfterSpend,
    /// A node draws units when it has none. If the store has none either, the node waits until it has, and asks again.
    RefuseAndWait,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Lease, Self::Exact, Self::StaticSplit, Self::ReportAfterSpend, Self::RefuseAndWait];

    /// Its name in results.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::Exact => "exact",
            Self::StaticSplit => "static_split",
            Self::ReportAfterSpend => "report_after_spend",
            Self::RefuseAndWait => "refuse_and_wait",
        }
    }

    /// The scheme of a name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scheme| scheme.as_str() == name)
    }
}

/// Simulates each of the schemes on the same arrivals. `progress` gets the time that has passed, of all schemes together.
///
/// # Errors
///
/// If the settings are out of bounds, or the rule cannot be leased.
pub fn simulate(
    settings: &ClusterSettings,
    schemes: &[Scheme],
    progress: &mut dyn FnMut(Progress),
) -> Result<ClusterOutcome, LabError> {
    settings.check().map_err(LabError::Asked)?;
    let rule = Rule::from(TokenBucket::new(Rate::per_second(settings.rate)?, settings.burst)?);
    let terms = settings.terms(&rule).map_err(LabError::Asked)?;
    let all = settings.duration * schemes.len() as u64;
    let run = |(place, scheme): (usize, &Scheme)| {
        let before = settings.duration * place as u64;
        let mut progress = |now| progress(Progress { read: before + now, of: all });
        let progress = &mut progress;
        let tally = match scheme {
            Scheme::Lease => world::run(settings, rule, leases::Leases::new(settings, terms), progress),
            Scheme::Exact => world::run(settings, rule, exact::Exact, progress),
            Scheme::StaticSplit => {
                world::run(settings, rule, static_split::StaticSplit::new(settings, &rule), progress)
            }
            Scheme::ReportAfterSpend => {
                world::run(settings, rule, report_after_spend::ReportAfterSpend::new(settings), progress)
            }
            Scheme::RefuseAndWait => {
                world::run(settings, rule, refuse_and_wait::RefuseAndWait::new(settings, terms), progress)
            }
        };
        tally.outcome(*scheme, settings)
    };
    let schemes = schemes.iter().enumerate().map(run).collect();
    Ok(ClusterOutcome { most_excess: terms.most_excess(u64::from(settings.nodes)), schemes })
}
