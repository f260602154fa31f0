//! One multiplier on every rate while the upstream is overloaded.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tollgate::adaptive::{Load, Pace, RateMultiplier};
use tollgate::{KeyedLimiter, Nanos, Timestamp};

use super::Engine;
use crate::policy::AdaptiveRates;

/// How long a word on the load holds: without another, the upstream is taken to have recovered.
const VALID: Nanos = Nanos::new(5_000_000_000);

/// What the upstream's load makes of rates.
#[derive(Debug)]
pub(super) struct Pressure {
    state: Mutex<Option<State>>,
    pace: AtomicU64, // in billionths; read with every request
}

#[derive(Debug)]
struct State {
    settings: AdaptiveRates,
    multiplier: RateMultiplier,
    told: Timestamp, // when the load was last told
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

    /// How fast the rates of a shed class go.
    pub(super) fn pace_of(&self, shed: u8) -> Pace {
        self.state.lock().as_ref().map_or(Pace::FULL, |state| state.multiplier.pace_of(shed))
    }

    /// Goes by other settings. Where they have changed, rates are full again.
    pub(super) fn reload(&self, settings: Option<AdaptiveRates>, limiter: &KeyedLimiter) {
        let mut state = self.state.lock();
        if state.as_ref().map(|state| state.settings) == settings {
            return;
        }
        *state = settings.map(State::new);
        let full = RateMultiplier::new(1000).expect("a floor of 1");
        self.set(&state.as_ref().map_or(full, |state| state.multiplier), limiter);
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
        Self { settings, multiplier, told: Timestamp::default() }
    }
}

impl Engine {
    /// Tells how loaded the upstream is, for one interval of control. Holds for five seconds. The multiplier after it;
    /// None where the policy has no `adaptive_rates`.
    pub fn press(&self, load: Load, now: Timestamp) -> Option<Pace> {
        let mut state = self.pressure.state.lock();
        let state = state.as_mut()?;
        state.told = now;
        state.multiplier.observe(load);
        self.pressure.set(&state.multiplier, &self.limiter);
        Some(state.multiplier.pace())
    }

    /// To be called every second: where nobody has told a load for five seconds, rates recover a step.
    pub fn relax(&self, now: Timestamp) {
        let mut state = self.pressure.state.lock();
        let Some(state) = state.as_mut() else { return };
        if self.pressure.is_reduced() && now.since(state.told) >= VALID {
            state.multiplier.observe(Load::Low);
            self.pressure.set(&state.multiplier, &self.limiter);
        }
    }

    /// The multiplier on rates: None where the policy has no `adaptive_rates`.
    pub fn pace(&self) -> Option<Pace> {
        self.pressure.state.lock().as_ref().map(|state| state.multiplier.pace())
    }
}
