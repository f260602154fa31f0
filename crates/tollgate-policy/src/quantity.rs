//! How people write numbers: `5/s`, `100/min burst 20`, `500ms`, `1GiB`, `10k`.
//!
//! Every reader takes all of the text or says what would be right. Whole numbers only: `1.5s` is 1 500 000 000 ns,
//! exactly, and what is no whole number of nanoseconds, or of bytes, is refused.

use std::time::Duration;

use tollgate::{Rate, RuleError};

/// A rate, and the burst that was written with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateAndBurst {
    /// The rate.
    pub rate: Rate,
    /// The burst, if one was written.
    pub burst: Option<u64>,
}

const RATES: &str = "write a rate as 5/s, 100/min, 1000/h, 5000/day, 1/30d, 10k/s or 6000/min burst 600";
const DURATIONS: &str = "write a time as 500ms, 60s, 5min, 1.5h or 30d";
const SIZES: &str = "write a size in bytes, or as 64KiB, 512MiB or 1GiB";
const COUNTS: &str = "write a whole number, or one such as 10k or 2M";

/// `5/s`, `6000/min burst 600`.
pub fn rate(text: &str) -> Result<RateAndBurst, String> {
    // Few rates have a space. The search for a string would take longer than the rest of this function.
    let parts = if text.contains(' ') { text.split_once(" burst ") } else { None };
    let (rate, burst) = match parts {
        Some((rate, burst)) => (rate.trim(), Some(count(burst.trim())?)),
        None => (text.trim(), None),
    };
    if burst == Some(0) {
        return Err("a burst is at least 1".into());
    }
    let (tokens, period) = rate.split_once('/').ok_or(RATES)?;
    let tokens = count(tokens.trim()).map_err(|_| RATES)?;
    let period = period.trim();
    // A unit alone is one of it.
    let period = match period.chars().next() {
        Some('0'..='9') => duration(period).map_err(|_| RATES)?,
        _ => Duration::from_nanos(unit(period).ok_or(RATES)?),
    };
    let rate = Rate::new(tokens, period).map_err(|error: RuleError| error.to_string())?;
    Ok(RateAndBurst { rate, burst })
}

/// `500ms`, `1.5h`, `1h30min`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    let mut nanos: u128 = 0;
    if rest.is_empty() {
        return Err(DURATIONS.into());
    }
    while !rest.is_empty() {
        let number = prefix(rest, |c| c.is_ascii_digit() || c == '.');
        let name = prefix(&rest[number.len()..], |c| c.is_ascii_alphabetic());
        let unit = unit(name).ok_or(DURATIONS)?;
        nanos += times(number, unit.into()).ok_or(DURATIONS)?;
        rest = rest[number.len() + name.len()..].trim_start();
    }
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| "the longest time is 584 years".into())
}

/// `1GiB`, `1048576`.
pub fn bytes(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let number = prefix(text, |c| c.is_ascii_digit() || c == '.');
    let unit: u128 = match text[number.len()..].trim() {
        "" | "B" => 1,
        "kB" | "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(SIZES.into()),
    };
    times(number, unit).and_then(|bytes| usize::try_from(bytes).ok()).ok_or_else(|| SIZES.into())
}

/// `10`, `10k`, `2M`.
pub fn count(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (number, unit) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1000),
        None => text.strip_suffix('M').map_or((text, 1), |number| (number, 1_000_000)),
    };
    times(number, unit).and_then(|count| u64::try_from(count).ok()).ok_or_else(|| COUNTS.into())
}

/// `10x`.
pub(crate) fn factor(text: &str) -> Result<u64, String> {
    let number = text.trim().strip_suffix('x').and_then(|number| number.trim().parse().ok());
    number.ok_or_else(|| "write a factor as 10x".into())
}

/// A rate as it is written: what [`rate`] reads.
pub fn rate_text(rate: Rate) -> String {
    let period = duration_text(rate.period());
    let unit = match period.as_str() {
        "1s" => "s",
        "1min" => "min",
        "1h" => "h",
        "1d" => "day",
        other => other,
    };
    format!("{}/{unit}", rate.tokens())
}

/// A time as it is written, in the largest unit that makes it a whole number: what [`duration`] reads.
pub fn duration_text(span: Duration) -> String {
    let nanos = span.as_nanos();
    let units =
        ["d", "h", "min", "s", "ms", "us", "ns"].map(|name| (name, u128::from(unit(name).unwrap_or(1))));
    let fits = |(_, unit): &&(&str, u128)| nanos >= *unit && nanos.is_multiple_of(*unit);
    // Nobody says 1440min for a day, but 90s rather than 1min30s, and 60s where it says so.
    let (name, unit) = units.iter().find(fits).copied().unwrap_or(("s", 1_000_000_000));
    format!("{}{name}", nanos / unit)
}

fn prefix(text: &str, belongs: impl Fn(char) -> bool) -> &str {
    text.find(|c| !belongs(c)).map_or(text, |end| &text[..end])
}

/// The nanoseconds of a unit of time.
fn unit(name: &str) -> Option<u64> {
    const SECOND: u64 = 1_000_000_000;
    Some(match name {
        "ns" => 1,
        "us" => 1000,
        "ms" => 1_000_000,
        "s" | "sec" | "second" | "seconds" => SECOND,
        "m" | "min" | "minute" | "minutes" => 60 * SECOND,
        "h" | "hour" | "hours" => 3600 * SECOND,
        "d" | "day" | "days" => 86_400 * SECOND,
        "week" | "weeks" => 7 * 86_400 * SECOND,
        _ => return None,
    })
}

/// `number` of `unit`, if that is a whole number: `1.5` of 1000 is 1500.
fn times(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || whole.len() > 20 || fraction.len() > 20 || number.ends_with('.') {
        return None;
    }
    let digits = |before: u128, text: &str| {
        text.bytes().try_fold(before, |value, digit| {
            let digit = digit.is_ascii_digit().then(|| u128::from(digit - b'0'))?;
            value.checked_mul(10)?.checked_add(digit)
        })
    };
    let whole = digits(0, whole)?;
    if fraction.is_empty() {
        return whole.checked_mul(unit); // needs no division of 128 bits
    }
    let scale = 10_u128.checked_pow(fraction.len() as u32)?;
    let scaled = digits(whole, fraction)?.checked_mul(unit)?;
    scaled.is_multiple_of(scale).then(|| scaled / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn per(tokens: u64, seconds: u64) -> Rate {
        Rate::new(tokens, Duration::from_secs(seconds)).unwrap()
    }

    #[test]
    fn rates_are_read_as_they_are_written() {
        for (text, expected, burst) in [
            ("5/s", per(5, 1), None),
            (" 100/min ", per(100, 60), None),
            ("1000/h", per(1000, 3600), None),
            ("5000/day", per(5000, 86_400), None),
            ("1/30d", per(1, 30 * 86_400), None),
            ("6000/min burst 600", per(6000, 60), Some(600)),
            ("10k/s", per(10_000, 1), None),
            ("50k/min", per(50_000, 60), None),
            ("1.5k/s", per(1500, 1), None),
            ("3 / 500ms", Rate::new(3, Duration::from_millis(500)).unwrap(), None),
        ] {
            assert_eq!(rate(text), Ok(RateAndBurst { rate: expected, burst }), "{text}");
        }
    }

    #[test]
    fn times_sizes_and_counts_are_read_as_they_are_written() {
        for (text, nanos) in [
            ("60s", 60_000_000_000),
            ("500ms", 500_000_000),
            ("1.5h", 5_400_000_000_000),
            ("1h30min", 5_400_000_000_000),
            ("30d", 2_592_000_000_000_000),
            ("0s", 0),
            ("0.000001ms", 1),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
        for (text, expected) in [("1GiB", 1 << 30), ("1.5KiB", 1536), ("4096", 4096), ("2MB", 2_000_000)] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for (text, expected) in [("10", 10), ("10k", 10_000), ("2M", 2_000_000), ("2.5k", 2500)] {
            assert_eq!(count(text), Ok(expected), "{text}");
        }
        assert_eq!(factor("10x"), Ok(10));
    }

    #[test]
    fn what_is_written_is_read_as_it_was() {
        for text in ["5/s", "100/min", "1000/h", "5000/day", "1/30d", "3/500ms", "7/90s"] {
            assert_eq!(rate_text(rate(text).unwrap().rate), text);
        }
        for text in ["1min", "90s", "36h", "30d", "250us", "1ns", "0s"] {
            assert_eq!(duration_text(duration(text).unwrap()), text);
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_what_would_be_right() {
        let rates = [
            "",
            "5",
            "/s",
            "5/",
            "5/x",
            "five/s",
            "-5/s",
            "5/s burst",
            "5/s burst x",
            "1.5/s",
            "5//s",
            "5/s/s",
        ];
        for text in rates {
            let error = rate(text).unwrap_err();
            assert!(error.contains("10k"), "{text}: {error}");
        }
        for text in ["", "60", "s", "60 apples", "1.s", ".5s", "1..5s", "-1s", "1e3s", "0.1ns", "60s60"] {
            assert!(duration(text).unwrap_err().contains("500ms"), "{text}");
        }
        assert!(duration("99999999999999999999d").unwrap_err().contains("584 years"));
        assert!(rate("0/s").unwrap_err().contains('0') || !rate("0/s").unwrap_err().is_empty());
        for text in ["", "1XB", "0.5", "-1", "1 GiB GiB", "99999999999999999999GiB"] {
            assert!(bytes(text).unwrap_err().contains("GiB"), "{text}");
        }
        for text in ["", "k", "1.5", "-1", "10kk", "1_000", "99999999999999999999"] {
            assert!(count(text).unwrap_err().contains("10k"), "{text}");
        }
        for text in ["", "x", "10", "1.5x", "-1x"] {
            assert!(factor(text).unwrap_err().contains("10x"), "{text}");
        }
    }
}
