//! How much the requests at one node ask for.

use crate::{Nanos, Timestamp};

/// The time over which the demand is averaged.
const SPAN: u64 = 500_000_000;

/// With this many arrivals, what has arrived lately counts as much as the average before.
const HALF: u64 = 32;

/// After this many arrivals, they become part of the average.
const MOST_ARRIVALS: u64 = 64;

/// The shortest time that arrivals are divided by. Requests that come at one instant say little about a rate.
const SHORTEST: u64 = 1_000_000;

/// The units that requests ask for per second: an average over half a second, which follows many arrivals sooner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Demand {
    average: u64,             // units per second, up to `since`
    units: u64,               // that arrived after `since`
    arrivals: u64,            // requests that arrived after `since`
    since: Option<Timestamp>, // none before the first request
}

impl Demand {
    pub(crate) const NONE: Self = Self { average: 0, units: 0, arrivals: 0, since: None };

    /// A demand of this many units per second until now.
    pub(crate) const fn of(per_second: u64, now: Timestamp) -> Self {
        Self { average: per_second, since: Some(now), ..Self::NONE }
    }

    /// Notes a request. The first one begins the count and is not part of it: one request says nothing about a rate.
    pub(crate) fn arrive(&mut self, cost: u64, now: Timestamp) {
        let Some(since) = self.since else {
            self.since = Some(now);
            return;
        };
        self.units = self.units.saturating_add(cost);
        self.arrivals += 1;
        if self.arrivals >= MOST_ARRIVALS || now.since(since).get() >= SPAN {
            *self = Self { average: self.average_at(now), since: Some(now), ..Self::NONE };
        }
    }

    /// Units per second. Zero once no request has come for half a second or more.
    pub(crate) fn per_second(&self, now: Timestamp) -> u64 {
        // A request that came after `SPAN` would have begun the count again.
        let is_silent = self.since.is_some_and(|since| now.since(since).get() >= 2 * SPAN);
        if is_silent { 0 } else { self.average_at(now) }
    }

    /// The average, which a request that comes now continues.
    fn average_at(&self, now: Timestamp) -> u64 {
        let Some(since) = self.since else { return 0 };
        let elapsed = now.since(since).get();
        let rate = u128::from(self.units) * 1_000_000_000 / u128::from(elapsed.max(SHORTEST));
        // The weight of what has arrived lately, in parts of `SPAN`.
        let by_time = u128::from(elapsed.min(SPAN));
        let by_count = u128::from(SPAN) * u128::from(self.arrivals) / u128::from(self.arrivals + HALF);
        let weight = by_time.max(by_count);
        let sum = rate * weight + u128::from(self.average) * (u128::from(SPAN) - weight);
        u64::try_from(sum / u128::from(SPAN)).unwrap_or(u64::MAX)
    }

    /// How long `units` last at this demand.
    pub(crate) fn lasting(units: u64, per_second: u64) -> Nanos {
        let nanos = u128::from(units) * 1_000_000_000 / u128::from(per_second.max(1));
        Nanos::new(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}
