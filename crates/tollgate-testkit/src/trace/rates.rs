//! Rates from one a month to ten million a second, easy and awkward.

use crate::random::Random;

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const MONTH: u64 = 30 * DAY;

/// The ones people write, the ones whose interval is a fraction of a nanosecond, and both ends of
/// the range.
const KNOWN: [(u64, u64); 28] = [
    (1, SECOND),
    (5, SECOND),
    (10, SECOND),
    (100, SECOND),
    (1000, SECOND),
    (3000, SECOND),
    (10_000, SECOND),
    (10_000_000, SECOND),
    (3, SECOND),
    (7, SECOND),
    (60, SECOND),
    (64, SECOND),
    (7777, SECOND),
    (999_983, SECOND),
    (7_000_000, SECOND),
    (9_999_991, SECOND),
    (1, MINUTE),
    (100, MINUTE),
    (700, MINUTE),
    (6000, MINUTE),
    (1000, HOUR),
    (997, HOUR),
    (7919, HOUR),
    (104_729, HOUR),
    (5000, DAY),
    (86_399, DAY),
    (1, MONTH),
    (31, MONTH),
];

/// An endless sequence of rates as (tokens, period in ns): every second one from the known list,
/// the others drawn from the whole range, 1 per 30 days to 10 million a second.
pub fn rates(seed: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut random = Random::new(seed);
    std::iter::repeat_with(move || {
        if random.chance(1, 2) {
            return *random.pick(&KNOWN);
        }
        let period = *random.pick(&[SECOND, MINUTE, HOUR, DAY, MONTH]);
        (random.log_uniform(1, period / SECOND * 10_000_000), period)
    })
}
