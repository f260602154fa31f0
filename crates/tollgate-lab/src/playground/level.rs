//! What a mechanism holds at a moment, read from the state that its rule has left.
//!
//! Nothing here decides. Amounts are whole numbers of millionths, so that sentences and columns show the same digits. They are rounded
//! against the caller, as the core rounds: tokens down, estimates up.
#![deny(clippy::wildcard_enum_match_arm, reason = "a new algorithm must be handled in every match")]

use tollgate_core::{BucketParts, Mode, Nanos, Rule, RuleParts, State, Status, Tat, Timestamp};

use super::reply::What;
use super::request::View;
use super::traffic::SECOND;

/// The pieces of one unit of cost in a [`Level`].
pub(super) const MILLION: u64 = 1_000_000;

/// What a mechanism holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Level {
    /// Millionths of a unit; nanoseconds where the theoretical arrival time is drawn.
    pub(super) value: u64,
    /// The tokens of the peak bucket of burst credits, in millionths.
    pub(super) second: u64,
    /// What a sliding counter counts.
    pub(super) counts: CountsView,
}

/// The counts of a sliding counter at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CountsView {
    pub(super) index: u64, // the number of the current sub-window
    pub(super) old: u64,   // in the sub-window that is leaving
    pub(super) full: u64,  // in the newest ones
    pub(super) left: u64, // pieces of the current sub-window that are still to come, by which `old` is weighed
}

/// Reads the states of one rule.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meter {
    Tokens(Schedule),
    ArrivalTime(Schedule),
    Queue(Schedule),
    Window { limit: u64 },
    Log { limit: u64, window: u64 },
    Counter(Counter),
    Credits { base: Schedule, peak: Schedule },
}

impl Meter {
    /// The meter of a rule whose clock shows 0 at `start`, in nanoseconds since the epoch.
    pub(super) fn new(rule: &Rule, view: Option<View>, start: u64) -> Self {
        match rule.parts() {
            RuleParts::TokenBucket { bucket, .. } => match view {
                Some(View::Gcra) => Self::ArrivalTime(Schedule(bucket)),
                None => Self::Tokens(Schedule(bucket)),
            },
            RuleParts::LeakyBucket { bucket, .. } => Self::Queue(Schedule(bucket)),
            // `rules.rs` has refused permits. They would be counted like a window.
            RuleParts::FixedWindow { limit, .. } | RuleParts::Concurrency { limit, .. } => {
                Self::Window { limit }
            }
            RuleParts::SlidingLog { limit, window } => Self::Log { limit, window: window.get() },
            RuleParts::SlidingCounter { limit, window, buckets, mode } => {
                let window = window.get();
                let buckets = u64::from(buckets);
                Self::Counter(Counter { limit, window, buckets, mode, phase: start % window })
            }
            RuleParts::BurstCredits { base, peak } => {
                Self::Credits { base: Schedule(base), peak: Schedule(peak) }
            }
        }
    }

    /// The level of a state. `status` is its status, which is taken only where it is needed.
    #[inline]
    pub(super) fn level(&self, state: &State, now: Timestamp, status: impl FnOnce() -> Status) -> Level {
        let plain = |value: u64| Level { value, ..Level::default() };
        match self {
            Self::Tokens(schedule) => plain(schedule.tokens(schedule.ahead(tat(state), now))),
            // The core's own distance to the arrival time: how long until the key is fully refilled.
            Self::ArrivalTime(_) => plain(status().reset_after.get()),
            Self::Queue(schedule) => plain(schedule.taken(schedule.ahead(tat(state), now))),
            Self::Window { limit } | Self::Log { limit, .. } => {
                plain((limit.saturating_sub(status().remaining)) * MILLION)
            }
            Self::Counter(counter) => counter.level(counter.view(state, now)),
            Self::Credits { base, peak } => {
                let [base_tat, peak_tat] = schedules(state);
                Level {
                    value: base.tokens(base.ahead(base_tat, now)),
                    second: peak.tokens(peak.ahead(peak_tat, now)),
                    ..Level::default()
                }
            }
        }
    }

    /// What is drawn.
    pub(super) const fn what(&self) -> What {
        match self {
            Self::Tokens(_) => What::Tokens,
            Self::ArrivalTime(_) => What::Tat,
            Self::Queue(_) => What::Queue,
            Self::Window { .. } => What::Used,
            Self::Log { .. } => What::InWindow,
            Self::Counter(_) => What::Estimate,
            Self::Credits { .. } => What::Credits,
        }
    }

    /// The pieces of a [`Level`] that make one unit of what is drawn.
    pub(super) const fn per_unit(&self) -> u64 {
        match self {
            Self::ArrivalTime(_) => SECOND,
            Self::Tokens(_)
            | Self::Queue(_)
            | Self::Window { .. }
            | Self::Log { .. }
            | Self::Counter(_)
            | Self::Credits { .. } => MILLION,
        }
    }

    /// The highest level, and that of the second mechanism.
    pub(super) fn most(&self) -> (f64, Option<f64>) {
        match self {
            Self::Tokens(schedule) | Self::Queue(schedule) => (schedule.capacity() as f64, None),
            Self::ArrivalTime(schedule) => (schedule.reach().get() as f64 / 1e9, None),
            Self::Window { limit } | Self::Log { limit, .. } => (*limit as f64, None),
            Self::Counter(counter) => (counter.limit as f64, None),
            Self::Credits { base, peak } => (base.capacity() as f64, Some(peak.capacity() as f64)),
        }
    }
}

/// The schedule of a bucket.
pub(super) fn tat(state: &State) -> Tat {
    match state {
        State::Bucket(tat) => *tat,
        State::Waiting(waiting) => waiting.schedule(),
        State::Unused
        | State::Window(_)
        | State::Log(_)
        | State::Counts(_)
        | State::Credits(_)
        | State::Permits(_) => Tat::default(),
    }
}

/// The schedules of burst credits.
pub(super) fn schedules(state: &State) -> [Tat; 2] {
    if let State::Credits(credits) = state { credits.schedules() } else { [Tat::default(); 2] }
}

/// A bucket, as the core describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule(BucketParts);

impl Schedule {
    pub(super) const fn capacity(&self) -> u64 {
        self.0.capacity
    }

    /// How far a schedule reaches ahead of `now`, in pieces of a nanosecond. The word of a [`Tat`] is compared by distance.
    pub(super) const fn ahead(&self, tat: Tat, now: Timestamp) -> u64 {
        let bits = tat.to_bits();
        if bits == 0 {
            return 0;
        }
        let distance = bits.wrapping_sub(now.as_nanos().wrapping_mul(self.0.per_nano));
        if distance > u64::MAX / 2 { 0 } else { distance }
    }

    /// How far a schedule reaches ahead of `now`, in nanoseconds, rounded up.
    pub(super) const fn ahead_nanos(&self, tat: Tat, now: Timestamp) -> u64 {
        self.nanos(self.ahead(tat, now)).get()
    }

    /// The tokens that a schedule leaves, in millionths.
    pub(super) fn tokens(&self, ahead: u64) -> u64 {
        let BucketParts { interval, capacity, .. } = self.0;
        let left = (capacity * interval).saturating_sub(ahead);
        let (whole, part) = (left / interval, left % interval);
        whole * MILLION + scaled(part, interval)
    }

    /// The places that a schedule takes up, in millionths.
    pub(super) fn taken(&self, ahead: u64) -> u64 {
        self.0.capacity * MILLION - self.tokens(ahead)
    }

    /// Pieces as nanoseconds, rounded up.
    pub(super) const fn nanos(&self, pieces: u64) -> Nanos {
        Nanos::new(pieces.div_ceil(self.0.per_nano))
    }

    /// The schedule time of `cost` units, at most the longest that a word holds.
    pub(super) const fn span(&self, cost: u64) -> Nanos {
        self.nanos(self.0.interval.saturating_mul(cost))
    }

    /// How far the schedule may reach ahead.
    pub(super) const fn reach(&self) -> Nanos {
        self.span(self.0.capacity)
    }
}

/// `part / of` in millionths, rounded down; `part` is below `of`.
fn scaled(part: u64, of: u64) -> u64 {
    match part.checked_mul(MILLION) {
        Some(product) => product / of,
        None => (u128::from(part) * u128::from(MILLION) / u128::from(of)) as u64, // below a million
    }
}

/// The numbers of a sliding counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counter {
    pub(super) limit: u64,
    pub(super) window: u64, // nanoseconds; also the pieces of a sub-window, each the `buckets`-th part of a nanosecond
    pub(super) buckets: u64,
    pub(super) mode: Mode,
    pub(super) phase: u64, // how far into a window the clock's zero lies
}

impl Counter {
    /// The sub-window of a moment, and how many pieces of it have passed.
    pub(super) fn locate(&self, now: Timestamp) -> (u64, u64) {
        let pieces = (u128::from(now.as_nanos()) + u128::from(self.phase)) * u128::from(self.buckets);
        match u64::try_from(pieces) {
            Ok(pieces) => (pieces / self.window, pieces % self.window),
            Err(_) => {
                let window = u128::from(self.window);
                ((pieces / window) as u64, (pieces % window) as u64)
            }
        }
    }

    /// When a sub-window begins, in nanoseconds of the timeline; zero if it began before.
    pub(super) fn begin(&self, index: u64) -> u64 {
        let pieces = u128::from(index) * u128::from(self.window);
        let nanos = pieces.div_ceil(u128::from(self.buckets)).saturating_sub(u128::from(self.phase));
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    /// What a sub-window holds.
    pub(super) fn held(&self, state: &State, index: u64) -> u64 {
        let State::Counts(counts) = state else { return 0 };
        if index > counts.newest() || counts.newest() - index > self.buckets {
            return 0;
        }
        let ring = counts.ring();
        ring[(index % ring.len() as u64) as usize]
    }

    /// The number of the newest sub-window that was charged.
    pub(super) fn newest(state: &State) -> Option<u64> {
        if let State::Counts(counts) = state { Some(counts.newest()) } else { None }
    }

    /// The counts at a moment.
    pub(super) fn view(&self, state: &State, now: Timestamp) -> CountsView {
        let (index, into) = self.locate(now);
        let empty = CountsView { index, old: 0, full: 0, left: self.window - into };
        let State::Counts(counts) = state else { return empty };
        let passed = index.saturating_sub(counts.newest());
        if passed > self.buckets {
            return empty;
        }
        let back = |by: u64| index.checked_sub(self.buckets + by).map_or(0, |index| self.held(state, index));
        let gone: u64 = (1..=passed).map(back).sum();
        let old = back(0);
        CountsView { old, full: counts.ring().iter().sum::<u64>() - old - gone, ..empty }
    }

    /// The level of counts, as the mode weighs them.
    pub(super) fn level(&self, counts: CountsView) -> Level {
        let CountsView { old, full, left, .. } = counts;
        let old = match self.mode {
            Mode::Strict => old * MILLION,
            Mode::Lenient => 0,
            Mode::Interpolate => weighed(old, left, self.window),
        };
        Level { value: full * MILLION + old, second: 0, counts }
    }

    /// The weight of the sub-window that is leaving, in pieces of a whole: all at the start of a sub-window, none at its end.
    pub(super) fn weight(&self, counts: CountsView, whole: u64) -> u64 {
        (u128::from(counts.left) * u128::from(whole) / u128::from(self.window)) as u64 // at most the whole
    }
}

/// `count * left / window` in millionths, rounded up: a request that does not fit must not be shown to fit.
fn weighed(count: u64, left: u64, window: u64) -> u64 {
    let (whole, part) = match count.checked_mul(left) {
        Some(product) => (product / window, product % window),
        None => {
            let (product, window) = (u128::from(count) * u128::from(left), u128::from(window));
            ((product / window) as u64, (product % window) as u64)
        }
    };
    let part = match part.checked_mul(MILLION) {
        Some(product) => product.div_ceil(window),
        None => (u128::from(part) * u128::from(MILLION)).div_ceil(u128::from(window)) as u64,
    };
    whole * MILLION + part
}
