//! Keys that are asked too rarely for a lease.
//!
//! A lease takes about 700 bytes, and most keys never need one. So their requests are counted in 16 bytes first. A key whose count
//! is overwritten by another is decided exactly for longer, and nothing else.

use tollgate::{Nanos, Timestamp};

/// The time over which requests are counted: half a second.
const SPAN_MS: u32 = 500;

/// The units after which the rate of the last requests counts.
const FEW: u64 = 3;

/// The keys that one shard counts: sets of four, as in a processor's cache.
const SETS: usize = 256;
const WAYS: usize = 4;

/// The requests of keys without a lease.
#[derive(Debug, Default)]
pub(super) struct RareKeys {
    counts: Box<[[Count; WAYS]]>, // empty before the first request
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    key: u64,
    since_ms: u32,
    units: u32, // that came after the first request
}

impl RareKeys {
    /// Counts a request. Returns the units per second that requests ask for, once they are enough for a grant.
    pub(super) fn arrive(&mut self, key: u64, cost: u64, sync: Nanos, now: Timestamp) -> Option<u64> {
        if self.counts.is_empty() {
            self.counts = vec![[Count::default(); WAYS]; SETS].into();
        }
        let now_ms = (now.as_nanos() / 1_000_000) as u32; // wraps around after 49 days
        let set = &mut self.counts[(key >> 32) as usize % SETS];
        let age = |count: &Count| now_ms.wrapping_sub(count.since_ms);
        if let Some(count) = set.iter_mut().find(|count| count.key == key && age(count) < SPAN_MS) {
            count.units = count.units.saturating_add(u32::try_from(cost).unwrap_or(u32::MAX));
            // Below 2 per `sync`, a grant would not be used up before its end.
            let is_enough =
                |per_second: u64| u128::from(per_second) * u128::from(sync.get()) >= 2_000_000_000;
            let units = u64::from(count.units);
            let in_span = units * 1000 / u64::from(SPAN_MS);
            // A few requests that come twice as fast are enough: the draw takes the place of an exact check.
            let lately = if units >= FEW { units * 1000 / u64::from(age(count).max(1)) / 2 } else { 0 };
            return [in_span, lately].into_iter().find(|per_second| is_enough(*per_second));
        }
        let place = set.iter().position(|count| count.key == key);
        // A count whose time is over makes no difference. Otherwise the key with the fewest units begins again.
        let rank = |count: &Count| (age(count) < SPAN_MS, count.units, u32::MAX - age(count));
        let rarest = || (0..WAYS).min_by_key(|place| rank(&set[*place])).unwrap_or(0);
        set[place.unwrap_or_else(rarest)] = Count { key, since_ms: now_ms, units: 0 };
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Nanos = Nanos::new(100_000_000);

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_key_is_no_longer_rare_at_twenty_units_per_second() {
        let mut rare = RareKeys::default();
        let arrivals: Vec<_> = (0..=10).map(|n| rare.arrive(7, 1, SYNC, at(n * 45))).collect();
        assert_eq!((&arrivals[..10], arrivals[10]), (&[None; 10][..], Some(20)));
        let mut rare = RareKeys::default();
        let arrivals: Vec<_> = (0..=3).map(|n| rare.arrive(7, 1, SYNC, at(n * 12))).collect();
        assert_eq!(arrivals, [None, None, None, Some(41)], "83 per second");
        let mut rare = RareKeys::default();
        let arrivals = (0..1000).filter_map(|n| rare.arrive(7, 1, SYNC, at(n * 51)));
        assert_eq!(arrivals.count(), 0, "19.6 per second");
        let mut rare = RareKeys::default();
        assert_eq!(rare.arrive(7, 50, SYNC, at(0)), None, "one request says nothing about a rate");
        assert_eq!(rare.arrive(7, 50, SYNC, at(1)), Some(100));
    }

    #[test]
    fn many_rare_keys_take_no_more_memory_and_hide_no_busy_key() {
        let mut rare = RareKeys::default();
        let mut found = 0;
        for n in 0..100_000_u64 {
            let _ = rare.arrive(n.wrapping_mul(0x9E37_79B9_7F4A_7C15), 1, SYNC, at(n / 100));
            found += usize::from(n % 50 == 0 && rare.arrive(7, 1, SYNC, at(n / 100)).is_some());
        }
        assert_eq!(rare.counts.len() * WAYS * size_of::<Count>(), 16 << 10);
        assert!(found > 1500, "{found} of 2000");
    }
}
