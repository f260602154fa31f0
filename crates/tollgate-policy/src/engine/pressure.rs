//! One multiplier on every rate while the upstream is overloaded.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tollgate::adaptive::{Load, Pace, RateMultiplier};
use tollgate::{KeyedLimiter, Nanos, Shed, Timestamp};

use super::Engine;
use crate::policy::AdaptiveRates;

/// How long a report on the load is valid. After that, the rates of its source recover.
const VALID: Nanos = Nanos::new(5_000_000_000);

/// Who reports how loaded the upstream is.
///
/// Each source has a multiplier of its own, and the lowest of them holds: a source that sees no load does not cancel what
/// another one reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadSource {
    /// The gateway, by the waits and errors of its own requests.
    Gateway,
    /// Callers of `PUT /v1/pressure`.
    Api,
}

const SOURCES: usize = 2;

/// What the upstream's load makes of rates.
#[derive(Debug)]
pub(super) struct Pressure {
    state: Mutex<Option<State>>,
    pace: AtomicU64, // in billionths; read with every request
}

#[derive(Debug)]
struct State {
    settings: AdaptiveRates,
    sources: [Source; SOURCES], // by `LoadSource`
}

#[derive(Clone, Copy, Debug)]
struct Source {
    multiplier: RateMultiplier,
    reported_at: Timestamp,
}

impl Pressure {
    pub(super) fn new(settings: Option<AdaptiveRates>) -> Self {
        let state = settings.map(State::new);
        Self { state: Mutex::new(state), pace: AtomicU64::new(Pace::FULL.billionths()) }
    }

    /// Whether rates are below what the policy says.
    pub(super) fn is_reduced(&self) -> bool {
        self.pace.load(Ordering::Relaxed) < Pace::FULL.billionths()
    }

    /// The pace of the rates of a shed class.
    pub(super) fn pace_of(&self, shed: Shed) -> Pace {
        let class = match shed {
            Shed::Exempt => 0,
            Shed::Normal => 1,
            Shed::First => 2,
        };
        self.state.lock().as_ref().map_or(Pace::FULL, |state| state.multiplier().pace_of(class))
    }

    /// Goes by other settings. Where they have changed, rates are full again.
    pub(super) fn reload(&self, settings: Option<AdaptiveRates>, limiter: &KeyedLimiter) {
        let mut state = self.state.lock();
        if state.as_ref().map(|state| state.settings) == settings {
            return;
        }
        *state = settings.map(State::new);
        let full = RateMultiplier::new(1000).expect("a floor of 1");
        self.set(&state.as_ref().map_or(full, State::multiplier), limiter);
    }

    fn set(&self, multiplier: &RateMultiplier, limiter: &KeyedLimiter) {
        if self.pace.swap(multiplier.pace().billionths(), Ordering::Relaxed) != multiplier.pace().billionths()
        {
            limiter.set_paces(multiplier);
        }
    }
}

impl State {
    fn new(settings: AdaptiveRates) -> Self {
        let multiplier = RateMultiplier::new(settings.floor).expect("a floor that was checked");
        Self { settings, sources: [Source { multiplier, reported_at: Timestamp::default() }; SOURCES] }
    }

    /// The multiplier of the source with the highest pressure.
    fn multiplier(&self) -> RateMultiplier {
        let multipliers = self.sources.iter().map(|source| source.multiplier);
        multipliers.min_by_key(|multiplier| multiplier.pace().billionths()).expect("there are sources")
    }
}

impl Engine {
    /// Reports how loaded the upstream is, for one interval of control. The report is valid for five seconds. Returns the
    /// multiplier that holds then: the lowest of all sources. None where the policy has no `adaptive_rates`.
    pub fn press(&self, source: LoadSource, load: Load, now: Timestamp) -> Option<Pace> {
        let mut state = self.pressure.state.lock();
        let state = state.as_mut()?;
        let source = &mut state.sources[source as usize];
        source.reported_at = now;
        source.multiplier.observe(load);
        let multiplier = state.multiplier();
        self.pressure.set(&multiplier, &self.limiter);
        Some(multiplier.pace())
    }

    /// To be called every second. The multiplier of a source that has not reported for five seconds recovers by one step.
    pub fn relax(&self, now: Timestamp) {
        let mut state = self.pressure.state.lock();
        let Some(state) = state.as_mut() else { return };
        if !self.pressure.is_reduced() {
            return;
        }
        for source in state.sources.iter_mut().filter(|source| now.since(source.reported_at) >= VALID) {
            source.multiplier.observe(Load::Low);
        }
        self.pressure.set(&state.multiplier(), &self.limiter);
    }

    /// The multiplier on rates: None where the policy has no `adaptive_rates`.
    pub fn pace(&self) -> Option<Pace> {
        self.pressure.state.lock().as_ref().map(|state| state.multiplier().pace())
    }
}
