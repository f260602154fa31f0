//! Grants of buckets.

use super::grant::{Draw, Offer, OfferParts};
use crate::bucket::Bucket;
use crate::{Nanos, Tat, Timestamp};

/// The longest time until a grant may be spent. A draw that would get a later one gets nothing.
const LATEST: Nanos = Nanos::new(1_000_000_000);

impl Bucket {
    /// The most units that come in a span, one begun counted as one.
    pub(crate) fn gained_in(&self, span: Nanos) -> u64 {
        let parts = self.parts();
        let ticks = u128::from(span.get()) * u128::from(parts.per_nano);
        u64::try_from(ticks.div_ceil(u128::from(parts.interval))).unwrap_or(u64::MAX)
    }

    /// What a draw gets of a schedule that reaches `ahead`. None if that could not be spent within a second.
    ///
    /// A part of the burst, as much as comes in `sync`, is kept for requests that nodes have decided one by one. If the rest has
    /// enough, a node gets half of it at most, at once. Otherwise it gets units that are still to come. Its share of them grows
    /// with its demand, and shrinks with the number of units that others have already been promised.
    pub(crate) fn offer(&self, ahead: u64, draw: &Draw) -> Option<Offer> {
        let OfferParts { wanted, least, most, reserve, kept } = self.offer_parts(draw);
        let [wanted, least, most, kept] = [wanted, least, most, kept].map(i128::from);
        let interval = i128::from(self.parts().interval);
        // Negative if units to come have been promised.
        let room = i128::from(self.tolerance() - reserve) - i128::from(ahead);
        let free = room.div_euclid(interval);
        if free >= least {
            let units = wanted.min(free / 2).min(most).max(least); // at most `free`
            return Some(Offer { units: u64::try_from(units).ok()?, start: Nanos::ZERO });
        }
        // `kept + free` is what is left to promise: `R * (H - D)` of the contract. Both are whole units, which scripts count exactly.
        let share = (kept + free).max(0) * wanted / (wanted + kept).max(1);
        let units = share.clamp(least, most);
        let start = self.nanos(u64::try_from(units * interval - room).ok()?);
        if start > LATEST {
            return None;
        }
        Some(Offer { units: u64::try_from(units).ok()?, start })
    }

    /// What an offer depends on besides the state.
    pub(crate) fn offer_parts(&self, draw: &Draw) -> OfferParts {
        let parts = self.parts();
        let reserve = draw.sync.get().saturating_mul(parts.per_nano).min(self.tolerance() / 4);
        let kept = reserve / parts.interval;
        let per_ms = self.gained_in(Nanos::new(1_000_000));
        OfferParts { reserve, kept, ..draw.offer_parts(self.capacity(), per_ms) }
    }

    /// Has the schedule reach at least as far as another one.
    pub(crate) fn present(&self, tat: &mut Tat, other: Tat, now: Timestamp) {
        if self.ahead(other, now) > self.ahead(*tat, now) {
            *tat = other;
        }
    }
}
