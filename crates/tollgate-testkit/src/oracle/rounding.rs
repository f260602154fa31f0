//! Rounding against the caller: waits up, what remains down.

/// `dividend / divisor` rounded up; the divisor is positive.
pub(super) fn up(dividend: i128, divisor: i128) -> i128 {
    -((-dividend).div_euclid(divisor))
}

/// `dividend / divisor` rounded down; the divisor is positive.
pub(super) fn down(dividend: i128, divisor: i128) -> i128 {
    dividend.div_euclid(divisor)
}

/// A count or a wait as it is reported: nothing below 0, and the largest number where it does not
/// fit.
pub(super) fn reported(number: i128) -> u64 {
    u64::try_from(number.max(0)).unwrap_or(u64::MAX)
}
