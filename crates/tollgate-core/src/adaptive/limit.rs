//! What the three controllers share: the limit they move and what they see.

use std::time::Duration;

use crate::RuleError;

/// A request that has ended, or a window of them summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// How long it took. At least 1 ns is assumed.
    pub rtt: Duration,
    /// How many were in flight with it, itself included.
    pub in_flight: u64,
    /// It was refused or timed out by the upstream for want of capacity.
    pub dropped: bool,
}

/// Finds how many requests may be in flight.
pub trait Controller {
    /// Learns from a request that has ended.
    fn observe(&mut self, sample: Sample);

    /// How many may be in flight now. At least 1.
    fn limit(&self) -> u64;
}

/// Between what a controller may move its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    min: u64,
    max: u64,
}

impl Bounds {
    /// From `min` to `max`, both included. Refuses `min` 0, `min` above `max`, and a `max` above 2^32.
    pub fn new(min: u64, max: u64) -> Result<Self, RuleError> {
        if min == 0 || min > max {
            return Err(RuleError::Bounds { min, max });
        }
        if max > MOST {
            return Err(RuleError::TooLarge { what: "largest limit", found: max, most: MOST });
        }
        Ok(Self { min, max })
    }
}

const MOST: u64 = 1 << 32;

/// A limit in 1/1024: small steps add up, and a replay gives the same bits everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    units: u64,
    bounds: Bounds,
}

impl Limit {
    pub(super) const UNIT: u64 = 1024;

    pub(super) fn new(initial: u64, bounds: Bounds) -> Self {
        Self { units: initial.clamp(bounds.min, bounds.max) * Self::UNIT, bounds }
    }

    pub(super) const fn units(&self) -> u64 {
        self.units
    }

    pub(super) const fn whole(&self) -> u64 {
        self.units / Self::UNIT
    }

    pub(super) fn set_units(&mut self, units: u64) {
        self.units = units.clamp(self.bounds.min * Self::UNIT, self.bounds.max * Self::UNIT);
    }

    /// Whether so many in flight are enough to learn from: at less than half the limit, it was not
    /// the limit that made the request fast.
    pub(super) const fn is_tried_by(&self, in_flight: u64) -> bool {
        in_flight.saturating_mul(2 * Self::UNIT) >= self.units
    }
}
