//! Numbers and times as sentences write them.

use super::level::MILLION;

/// An amount in millionths, rounded down to thousandths: `3.5`.
pub(super) fn amount(millionths: u64) -> String {
    thousandths(millionths / 1000)
}

/// An amount in millionths, rounded up to thousandths.
pub(super) fn amount_up(millionths: u64) -> String {
    thousandths(millionths.div_ceil(1000))
}

fn thousandths(count: u64) -> String {
    decimal(count / 1000, count % 1000, 3)
}

/// A whole part and a fraction of `digits` digits, without zeros at its end.
fn decimal(whole: u64, part: u64, digits: usize) -> String {
    let text = format!("{whole}.{part:0digits$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The word in the singular for exactly one unit.
pub(super) fn plural(millionths: u64, one: &'static str, many: &'static str) -> &'static str {
    if millionths == MILLION { one } else { many }
}

/// The units of time, the largest first: name, nanoseconds, and the nanoseconds from which on the unit is used.
const UNITS: [(&str, u64, u64); 7] = [
    ("days", 86_400_000_000_000, 172_800_000_000_000),
    ("h", 3_600_000_000_000, 7_200_000_000_000),
    ("min", 60_000_000_000, 600_000_000_000),
    ("s", 1_000_000_000, 1_000_000_000),
    ("ms", 1_000_000, 1_000_000),
    ("us", 1000, 1000),
    ("ns", 1, 0),
];

/// A time with at least three digits, rounded up: `100 ms`, `1.35 s`, `715 ms`.
pub(super) fn time(nanos: u64) -> String {
    let (name, unit, _) = UNITS.into_iter().find(|(_, _, from)| nanos >= *from).unwrap_or(UNITS[6]);
    format!("{} {name}", in_unit(nanos, unit))
}

/// A time in the unit of another one, so that readers can compare them: `0.2 s` beside `2 s`.
pub(super) fn time_beside(nanos: u64, other: u64) -> String {
    let (name, unit, _) = UNITS.into_iter().find(|(_, _, from)| other >= *from).unwrap_or(UNITS[6]);
    format!("{} {name}", in_unit(nanos, unit))
}

/// With as many decimals as three digits take, rounded up.
fn in_unit(nanos: u64, unit: u64) -> String {
    let whole = nanos / unit;
    let mut digits = match whole {
        100.. => 0,
        10.. => 1,
        1.. => 3,
        0 => 3,
    };
    let mut power = 10_u64.pow(digits as u32);
    // Below a thousandth of the unit, more decimals distinguish the number from zero.
    while nanos > 0
        && digits < 9
        && u128::from(nanos) * u128::from(power) < 100 * u128::from(unit)
        && whole == 0
    {
        digits += 1;
        power *= 10;
    }
    let scaled = (u128::from(nanos) * u128::from(power)).div_ceil(u128::from(unit)) as u64;
    decimal(scaled / power, scaled % power, digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_are_rounded_up() {
        for (nanos, expected) in [
            (0, "0 ns"),
            (1, "1 ns"),
            (999, "999 ns"),
            (1500, "1.5 us"),
            (333_334, "334 us"),
            (100_000_000, "100 ms"),
            (714_285_715, "715 ms"),
            (1_000_000_000, "1 s"),
            (1_300_000_000, "1.3 s"),
            (1_333_333_334, "1.334 s"),
            (46_000_000_000, "46 s"),
            (65_432_000_000, "65.5 s"),
            (599_000_000_000, "599 s"),
            (600_000_000_000, "10 min"),
            (7_200_000_000_000, "2 h"),
            (2_592_000_000_000_000, "30 days"),
        ] {
            assert_eq!(time(nanos), expected, "{nanos}");
        }
        assert_eq!(time_beside(200_000_000, 2_000_000_000), "0.2 s");
        assert_eq!(time_beside(333_334, 2_000_000_000), "0.000334 s");
        assert_eq!(time_beside(0, 2_000_000_000), "0 s");
    }

    #[test]
    fn amounts_are_rounded_to_thousandths() {
        assert_eq!([3_500_000, 10_000_000, 999_999, 0].map(amount), ["3.5", "10", "0.999", "0"]);
        assert_eq!([500_000, 1, 999_999].map(amount_up), ["0.5", "0.001", "1"]);
    }
}
