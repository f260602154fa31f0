//! Times as logs write them, to the nanosecond.
//!
//! By hand, because a time is read for every line: it is most of what reading a log takes.

/// The most digits behind the point of a second.
const MOST_DIGITS: usize = 9;

const SECOND: u64 = 1_000_000_000;

/// A time since the Unix epoch in nanoseconds: `804571201`, `1700158546.680590`, `2023-11-16 18:15:46.6805900`,
/// `2023-11-16T18:15:46Z`, `17/May/2015:10:05:03 +0000`. UTC where no zone is given. None for what is no such time, and for what is
/// before 1970 or after 2554.
pub(crate) fn unix_nanos(text: &[u8]) -> Option<u64> {
    match text.get(2..5) {
        Some([b'/', ..]) => of_common_log(text),
        Some(_) if text.get(4) == Some(&b'-') => of_date(text),
        _ => of_seconds(text),
    }
}

/// `1700158546.680590`.
fn of_seconds(text: &[u8]) -> Option<u64> {
    let (seconds, rest) = digits(text)?;
    let nanos = fraction(rest)?;
    if !nanos.1.is_empty() {
        return None;
    }
    seconds.checked_mul(SECOND)?.checked_add(nanos.0)
}

/// `2023-11-16 18:15:46.6805900+01:00`.
fn of_date(text: &[u8]) -> Option<u64> {
    let [y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1, b' ' | b'T' | b't', rest @ ..] = text else {
        return None;
    };
    let year = number(&[*y0, *y1, *y2, *y3])?;
    of_parts((year, number(&[*m0, *m1])?, number(&[*d0, *d1])?), rest)
}

/// `17/May/2015:10:05:03 +0000`.
fn of_common_log(text: &[u8]) -> Option<u64> {
    let [d0, d1, b'/', m0, m1, m2, b'/', y0, y1, y2, y3, b':', rest @ ..] = text else { return None };
    const MONTHS: [&[u8; 3]; 12] =
        [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
    let month = MONTHS.iter().position(|month| month.eq_ignore_ascii_case(&[*m0, *m1, *m2]))? as u64 + 1;
    of_parts((number(&[*y0, *y1, *y2, *y3])?, month, number(&[*d0, *d1])?), rest)
}

/// A date, and what stands behind it: `10:05:03.25 +0000`.
fn of_parts((year, month, day): (u64, u64, u64), rest: &[u8]) -> Option<u64> {
    let [h0, h1, b':', m0, m1, b':', s0, s1, rest @ ..] = rest else { return None };
    let (hour, minute, second) = (number(&[*h0, *h1])?, number(&[*m0, *m1])?, number(&[*s0, *s1])?);
    let is_time = hour < 24 && minute < 60 && second <= 60; // a leap second counts as the next one
    if !is_time || !(1..=days_of(year, month)?).contains(&day) {
        return None;
    }
    let (nanos, zone) = fraction(rest)?;
    let days = days_before(year, month)?.checked_add(i64::try_from(day).ok()? - 1)?;
    let of_day = i64::try_from(hour * 3600 + minute * 60 + second).ok()?;
    let seconds = days * 86_400 + of_day - offset(zone)?;
    u64::try_from(seconds).ok()?.checked_mul(SECOND)?.checked_add(nanos)
}

fn days_of(year: u64, month: u64) -> Option<u64> {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    Some(match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        _ => return None,
    })
}

/// Days from the Unix epoch to the first of a month.
fn days_before(year: u64, month: u64) -> Option<i64> {
    // Years that begin in March have the odd day at their end.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    let days = year * 365 + leap_days + (153 * month + 2) / 5;
    Some(i64::try_from(days).ok()? - 719_468)
}

/// Seconds that a zone is ahead of UTC.
fn offset(zone: &[u8]) -> Option<i64> {
    let zone = zone.trim_ascii_start();
    let (sign, rest) = match zone {
        b"" | b"Z" | b"z" | b"UTC" | b"GMT" => return Some(0),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = match rest {
        [h0, h1] => (number(&[*h0, *h1])?, 0),
        [h0, h1, m0, m1] | [h0, h1, b':', m0, m1] => (number(&[*h0, *h1])?, number(&[*m0, *m1])?),
        _ => return None,
    };
    let is_offset = hours < 24 && minutes < 60;
    is_offset.then_some(sign * i64::try_from(hours * 3600 + minutes * 60).ok()?)
}

/// Nanoseconds of what stands behind the point, if there is one, and what follows.
fn fraction(text: &[u8]) -> Option<(u64, &[u8])> {
    let Some(rest) = text.strip_prefix(b".") else { return Some((0, text)) };
    let (number, after) = digits(rest)?;
    let count = rest.len() - after.len();
    let scale = 10_u64.pow(u32::try_from(MOST_DIGITS.checked_sub(count)?).ok()?);
    Some((number * scale, after))
}

/// The number that a text begins with, and what follows.
fn digits(text: &[u8]) -> Option<(u64, &[u8])> {
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(count);
    Some((number(digits)?, rest))
}

/// A number of digits only, of which there is one at least.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    let digit = |number: u64, byte: &u8| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    };
    if text.is_empty() { None } else { text.iter().try_fold(0, digit) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_time_is_one_time() {
        const AT: u64 = 1_700_158_546;
        for (text, nanos) in [
            ("804571201", 804_571_201 * SECOND),
            ("1700158546.5", AT * SECOND + 500_000_000),
            ("1700158546.123456789", AT * SECOND + 123_456_789),
            ("0", 0),
            ("2023-11-16 18:15:46", AT * SECOND),
            ("2023-11-16T18:15:46", AT * SECOND),
            ("2023-11-16T18:15:46Z", AT * SECOND),
            ("2023-11-16 18:15:46.6805900", AT * SECOND + 680_590_000),
            ("2023-11-16 19:45:46.25+01:30", AT * SECOND + 250_000_000),
            ("2023-11-16 18:15:46 UTC", AT * SECOND),
            ("16/Nov/2023:18:15:46 +0000", AT * SECOND),
            ("16/Nov/2023:10:15:46 -0800", AT * SECOND),
            ("16/Nov/2023:18:15:46.125 +0000", AT * SECOND + 125_000_000),
            ("1970-01-01 00:00:00", 0),
            ("1970-01-01 01:00:00+01:00", 0),
            ("2000-02-29 00:00:00", 951_782_400 * SECOND),
            ("2100-03-01 00:00:00", 4_107_542_400 * SECOND),
            ("2016-12-31 23:59:60", 1_483_228_800 * SECOND),
        ] {
            assert_eq!(unix_nanos(text.as_bytes()), Some(nanos), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "-",
            "-1",
            "1.",
            "1.1234567890",
            "1e9",
            "1700158546 ",
            "99999999999999",
            "0000-01-01 00:00:00",
            "0000-00-00 00:00:00",
            "1969-12-31 23:59:59",
            "1970-01-01 00:00:00+01:00",
            "9999-01-01 00:00:00",
            "2023-11-16",
            "2023-11-16 18:15",
            "2023-13-16 18:15:46",
            "2023-02-29 18:15:46",
            "2023-11-31 18:15:46",
            "2023-11-00 18:15:46",
            "2023-11-16 24:00:00",
            "2023-11-16 18:15:61",
            "2023-11-16 18:15:46 CET",
            "2023-11-16 18:15:46+1",
            "2023-11-16 18:15:46.",
            "16/Now/2023:18:15:46 +0000",
            "16/Nov/0000:18:15:46 +0000",
            "16/Nov/2023 18:15:46 +0000",
            "not a time at all",
        ] {
            assert_eq!(unix_nanos(text.as_bytes()), None, "{text}");
        }
    }

    /// By counting days, for four hundred years and more: by then the calendar repeats.
    #[test]
    fn days_follow_each_other() {
        let mut expected = 0;
        for year in 1970..2400 {
            for month in 1..=12 {
                assert_eq!(days_before(year, month), Some(expected), "{year}-{month}");
                expected += i64::try_from(days_of(year, month).unwrap()).unwrap();
            }
        }
    }
}
