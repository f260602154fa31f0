//! Division by a number known when the rule is built.
//!
//! A decision divides twice, to tell what remains and how long to wait, and a division takes longer than
//! all the rest of it. Multiplying by the reciprocal does the same in a few cycles (Granlund, Montgomery
//! 1994): with l = ceil(log2 d) and m = ceil(2^(63+l) / d), `floor(x / d) = (x * m) >> (63 + l)` for every
//! x below 2^63, because m is off by less than 2^l / 2^(63+l).

use std::num::NonZeroU64;

/// A divisor with its reciprocal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Divisor {
    divisor: NonZeroU64,
    reciprocal: u64, // m
    shift: u32,      // l
}

impl Divisor {
    /// For divisors up to 2^63.
    pub(crate) fn new(divisor: NonZeroU64) -> Self {
        let shift = u64::BITS - (divisor.get() - 1).leading_zeros();
        // Below 2^64, since d > 2^(l-1); or 2^63 itself where d is a power of two.
        let reciprocal = (1_u128 << (63 + shift)).div_ceil(divisor.get().into()) as u64;
        Self { divisor, reciprocal, shift }
    }

    #[inline]
    pub(crate) const fn get(&self) -> u64 {
        self.divisor.get()
    }

    /// `floor(x / divisor)`, for x below 2^63.
    #[inline]
    pub(crate) const fn floor(&self, x: u64) -> u64 {
        debug_assert!(x < 1 << 63);
        // (2x * m) >> 64 takes the first 63 places of the shift off in one instruction.
        let high = ((x << 1) as u128 * self.reciprocal as u128) >> 64;
        (high as u64) >> self.shift
    }

    /// `ceil(x / divisor)`, for x below 2^63.
    #[inline]
    pub(crate) const fn ceil(&self, x: u64) -> u64 {
        self.floor(x.saturating_sub(1)) + (x > 0) as u64
    }
}

#[cfg(test)]
mod tests {
    use tollgate_testkit::Random;

    use super::*;

    #[test]
    fn equals_division_for_all_that_fits() {
        let mut random = Random::new(1);
        let most = (1 << 63) - 1;
        for round in 0..1_000_000_u64 {
            let divisor = match round % 3 {
                0 => 1 + round % 200,
                1 => 1 << (round % 64),
                _ => random.log_uniform(1, 1 << 63),
            };
            let divided = Divisor::new(NonZeroU64::new(divisor).unwrap());
            let multiple = divisor.saturating_mul(random.between(0, most / divisor));
            let any = random.log_uniform(0, most);
            for x in [0, 1, any, multiple, multiple.saturating_sub(1), multiple + 1, most] {
                let x = x.min(most);
                assert_eq!(divided.floor(x), x / divisor, "{x} / {divisor}");
                assert_eq!(divided.ceil(x), x.div_ceil(divisor), "{x} / {divisor}");
            }
        }
    }
}
