//! Adaptive limits: one step of each controller, and the shared rate multiplier, in exact
//! fractions.
//!
//! The steps do not clamp to a configured minimum and maximum; that is the caller's.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::One;

mod multiplier;
#[cfg(test)]
mod tests;

pub use multiplier::{Load, RateMultiplier};

/// `numerator / denominator`, exactly.
pub fn fraction(numerator: u64, denominator: u64) -> BigRational {
    BigRational::new(BigInt::from(numerator), BigInt::from(denominator))
}

/// AIMD with ratio 0.9: one more after a success with the limit at least half used, a tenth less,
/// but at least one less, after a drop.
pub fn aimd(limit: &BigRational, in_flight: u64, dropped: bool) -> BigRational {
    let one = BigRational::one();
    if dropped {
        let tenth_less = (limit * fraction(9, 10)).floor();
        return tenth_less.min(limit - &one).max(one);
    }
    if half_used(limit, in_flight) { limit + one } else { limit.clone() }
}

/// Vegas: steers by the requests that seem to queue, L * (1 - noload/rtt) of them.
pub fn vegas(limit: &BigRational, noload: u64, rtt: u64, in_flight: u64, dropped: bool) -> BigRational {
    let step = whole(floor_log10(limit).max(1));
    if dropped {
        return limit - step;
    }
    if !half_used(limit, in_flight) {
        return limit.clone();
    }
    let queue = (limit * (BigRational::one() - fraction(noload, rtt))).ceil();
    if queue <= step {
        limit + step * whole(6)
    } else if queue < &step * whole(3) {
        limit + step
    } else if queue > &step * whole(6) {
        limit - step
    } else {
        limit.clone()
    }
}

/// Gradient2 with smoothing 0.2, queue 4 and tolerance 1; `long` and `short` are the averages after
/// this sample.
pub fn gradient2(
    limit: &BigRational,
    long: &BigRational,
    short: &BigRational,
    in_flight: u64,
) -> BigRational {
    if !half_used(limit, in_flight) {
        return limit.clone();
    }
    let gradient = (long / short).clamp(fraction(1, 2), BigRational::one());
    limit * fraction(4, 5) + (limit * gradient + whole(4)) * fraction(1, 5)
}

fn half_used(limit: &BigRational, in_flight: u64) -> bool {
    whole(in_flight) * whole(2) >= *limit
}

fn whole(number: u64) -> BigRational {
    BigRational::from_integer(BigInt::from(number))
}

/// Counted, not computed: how often 1 can be multiplied by 10 before it passes the number.
fn floor_log10(number: &BigRational) -> u64 {
    let mut exponent = 0;
    let mut next = whole(10);
    while next <= *number {
        next *= whole(10);
        exponent += 1;
    }
    exponent
}
