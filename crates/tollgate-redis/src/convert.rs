//! States that were written by other numbers: a limit was changed, or its tenant has another tier.
//!
//! The rules know how a key is carried over, so it is done here and not in a script. The script tells what it found, and is
//! asked again with what that is to be read as. It holds as long as nobody has changed the key in between, and is written
//! with a charge and not before, as in memory: who is denied, or only looks, changes nothing.
//!
//! A log may be too long to be sent, so sliding_log.lua converts it by itself. So do bucket.lua and burst_credits.lua with a key
//! that only has another pace: processes whose paces differ may charge one key in turns for as long as the load lasts, and the
//! state would often have changed before the second call.
#![deny(clippy::wildcard_enum_match_arm, reason = "a new algorithm must be handled in every match")]

use tollgate_core::{Counts, Credits, Rule, RuleParts, State, Tat, Timestamp, Waiting, Window};

use crate::numbers::{MICRO, Schedule, Span, rules_of};
use crate::request::Limit;

/// A state that was written by other numbers, and what it is to be read as: no numbers for a key that is as new.
#[derive(Debug)]
pub(crate) struct Replaced {
    /// Which key of the request.
    pub(crate) key: usize,
    pub(crate) held: Vec<u8>,
    pub(crate) numbers: String,
}

impl Replaced {
    /// A state that nobody can read is that of a key that is as new.
    pub(crate) fn new(limit: &Limit, held: Vec<u8>, now: u64) -> Self {
        let numbers = converted(limit, &held, Timestamp::from_nanos(now * MICRO)).unwrap_or_default();
        Self { key: limit.key, held, numbers }
    }
}

fn converted(limit: &Limit, held: &[u8], now: Timestamp) -> Option<String> {
    // As in memory, other numbers are converted at full pace.
    let full_parts = limit.full.parts();
    let full = Rule::from_parts(&full_parts).ok()?;
    let (numbers, tag) = std::str::from_utf8(held).ok()?.rsplit_once(' ')?;
    let (old_full, old) = rules_of(tag, &full_parts)?;
    let mut state = read(numbers, &old)?;
    if old_full == full {
        limit.rule.change_rate(&old, &mut state, now);
    } else {
        old_full.change_rate(&old, &mut state, now);
        full.convert(&old_full, &mut state, now);
        limit.rule.change_rate(&full, &mut state, now);
    }
    write(&state, &limit.parts, now)
}

/// The state that a rule wrote as these numbers.
fn read(numbers: &str, old: &Rule) -> Option<State> {
    let old_parts = old.parts();
    let is_bucket = matches!(old_parts, RuleParts::TokenBucket { .. } | RuleParts::LeakyBucket { .. });
    // A bucket's first number may have pieces, which are not written where there are none.
    let (part, numbers) = match numbers.split_once('+') {
        Some((whole, rest)) if is_bucket => {
            let (part, turns) = rest.split_once(',').unwrap_or((rest, ""));
            (part.parse().ok()?, format!("{whole},{turns}"))
        }
        _ => (0, numbers.to_owned()),
    };
    let numbers: Vec<u64> = numbers
        .split([' ', ','])
        .filter(|text| !text.is_empty())
        .map(|text| text.parse().ok())
        .collect::<Option<_>>()?;
    let time = |micros: &u64| Timestamp::from_nanos(micros.saturating_mul(MICRO));
    Some(match (old_parts, &numbers[..]) {
        (
            RuleParts::TokenBucket { bucket, waits, .. } | RuleParts::LeakyBucket { bucket, waits },
            [whole, turns @ ..],
        ) => {
            let tat = Schedule::new(bucket).tat(*whole, part);
            if waits.is_some() {
                State::Waiting(Waiting::new(tat, turns.iter().map(time)))
            } else {
                State::Bucket(tat)
            }
        }
        (RuleParts::BurstCredits { base, peak }, [base_whole, base_part, peak_whole, peak_part]) => {
            State::Credits(Credits::new(
                Schedule::new(base).tat(*base_whole, *base_part),
                Schedule::new(peak).tat(*peak_whole, *peak_part),
            ))
        }
        (RuleParts::FixedWindow { .. }, [end, used]) => State::Window(Window::new(time(end), *used)),
        (RuleParts::SlidingCounter { buckets, .. }, [newest, ring @ ..])
            if ring.len() == buckets as usize + 1 =>
        {
            State::Counts(Counts::of_ring(*newest, ring))
        }
        // sliding_log.lua converts a log by itself, and permits need no conversion.
        (RuleParts::SlidingLog { .. } | RuleParts::Concurrency { .. }, _) => return None,
        // The state does not have as many numbers as the rule writes.
        (
            RuleParts::TokenBucket { .. }
            | RuleParts::LeakyBucket { .. }
            | RuleParts::FixedWindow { .. }
            | RuleParts::SlidingCounter { .. }
            | RuleParts::BurstCredits { .. },
            _,
        ) => return None,
    })
}

/// The numbers of a state, as scripts keep them. None for a key that is unused.
fn write(state: &State, parts: &RuleParts, now: Timestamp) -> Option<String> {
    let micros = |time: Timestamp| time.as_nanos().div_ceil(MICRO);
    match (state, *parts) {
        (
            State::Bucket(tat),
            RuleParts::TokenBucket { bucket, .. } | RuleParts::LeakyBucket { bucket, .. },
        ) => reach(*tat, &Schedule::new(bucket), now).map(Span::text),
        (
            State::Waiting(waiting),
            RuleParts::TokenBucket { bucket, .. } | RuleParts::LeakyBucket { bucket, .. },
        ) => {
            let schedule = reach(waiting.schedule(), &Schedule::new(bucket), now)?.text();
            Some(waiting.turns().fold(schedule, |text, turn| format!("{text},{}", micros(turn))))
        }
        (State::Credits(credits), RuleParts::BurstCredits { base, peak }) => {
            let [of_base, of_peak] = credits.schedules();
            let (base, peak) =
                (reach(of_base, &Schedule::new(base), now), reach(of_peak, &Schedule::new(peak), now));
            if base.is_none() && peak.is_none() {
                return None;
            }
            let [base, peak] = [base, peak].map(|span| span.map_or((0, 0), |span| (span.whole, span.part)));
            Some(format!("{} {} {} {}", base.0, base.1, peak.0, peak.1))
        }
        (State::Window(window), _) => {
            (window.end() > now).then(|| format!("{} {}", micros(window.end()), window.spent()))
        }
        (State::Counts(counts), _) => {
            let counted = counts.ring().iter().any(|count| *count > 0);
            counted.then(|| {
                counts
                    .ring()
                    .iter()
                    .fold(counts.newest().to_string(), |text, count| format!("{text} {count}"))
            })
        }
        // A state of another algorithm than that of the rule.
        (State::Bucket(_) | State::Waiting(_) | State::Credits(_), _) => None,
        // `read` makes none of these.
        (State::Unused | State::Log(_) | State::Permits(_), _) => None,
    }
}

impl Span {
    /// As bucket.lua keeps it.
    fn text(self) -> String {
        if self.part == 0 { self.whole.to_string() } else { format!("{}+{}", self.whole, self.part) }
    }
}

/// A schedule as its whole microseconds and pieces. None if it does not reach beyond `now`.
fn reach(tat: Tat, schedule: &Schedule, now: Timestamp) -> Option<Span> {
    if tat == Tat::default() {
        return None;
    }
    let now = now.as_nanos() / MICRO;
    let ahead = tat.to_bits().wrapping_sub(now.wrapping_mul(schedule.per)).cast_signed();
    let span = schedule.of_pieces(u64::try_from(ahead).ok().filter(|ahead| *ahead > 0)?);
    Some(Span { whole: now + span.whole, ..span })
}
