//! What was told in the log lately: nothing is kept from it, and nothing fills it.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// An error is told so often while it goes on.
const EVERY: Duration = Duration::from_secs(60);

/// As many are told apart in that time. Of those that come then, none is told until the first are forgotten.
const MOST: usize = 16;

/// Errors that begin alike are the same: what follows are hashes and lines of scripts.
const BEGINNING: usize = 48;

/// The errors that were told lately.
#[derive(Debug, Default)]
pub(super) struct Lately(Mutex<Vec<(Box<str>, Instant)>>);

impl Lately {
    /// Whether this one is to be told now.
    pub(super) fn is_news(&self, error: &str, now: Instant) -> bool {
        let beginning = &error[..error.floor_char_boundary(BEGINNING)];
        let mut told = self.0.lock();
        told.retain(|(_, at)| now < *at + EVERY);
        if told.len() >= MOST || told.iter().any(|(known, _)| **known == *beginning) {
            return false;
        }
        told.push((beginning.into(), now));
        true
    }
}

/// Another reason for the same outage is told after so long; after twice as long each time, up to `EVERY`: two reasons may
/// take turns at every attempt.
const ANOTHER: Duration = Duration::from_secs(1);

/// Why something cannot be used, as it was told last.
#[derive(Debug, Default)]
pub(super) struct Reason(Option<Told>);

#[derive(Debug)]
struct Told {
    reason: Option<Box<str>>, // while the outage lasts
    at: Instant,
    wait: Duration,
}

impl Reason {
    /// Notes that this one was told, whatever was before: an outage begins.
    pub(super) fn begins(&mut self, reason: &str, now: Instant) {
        self.0 = Some(Told { reason: Some(reason.into()), at: now, wait: ANOTHER });
    }

    /// Whether this one is to be told now: it is not the one that was.
    pub(super) fn is_news(&mut self, reason: &str, now: Instant) -> bool {
        let Some(told) = &mut self.0 else {
            self.begins(reason, now);
            return true;
        };
        if told.reason.as_deref() == Some(reason) || now < told.at + told.wait {
            return false;
        }
        *told = Told { reason: Some(reason.into()), at: now, wait: (2 * told.wait).min(EVERY) };
        true
    }

    /// It can be used again. The next outage is told, but not sooner than another reason would have been.
    pub(super) fn is_over(&mut self) {
        if let Some(told) = &mut self.0 {
            (told.reason, told.wait) = (None, ANOTHER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_once_a_minute_and_few_are_told_apart() {
        let (lately, start) = (Lately::default(), Instant::now());
        let wrong_type = "WRONGTYPE Operation against a key holding the wrong kind of value";
        for (seconds, error, expected) in [
            (0, format!("{wrong_type} script: 1f"), true),
            (1, format!("{wrong_type} script: 2f"), false),
            (1, "OOM command not allowed".to_owned(), true),
            (59, wrong_type.to_owned(), false),
            (60, wrong_type.to_owned(), true),
            (60, "OOM command not allowed".to_owned(), false),
            (60, "é".repeat(50), true),
        ] {
            let is_news = lately.is_news(&error, start + Duration::from_secs(seconds));
            assert_eq!(is_news, expected, "{error} after {seconds} s");
        }
        let told = (0..100).filter(|number| lately.is_news(&format!("{number}"), start + EVERY)).count();
        assert_eq!(told, MOST - 3);
    }

    #[test]
    fn another_reason_is_told_and_those_that_take_turns_ever_less_often() {
        let (mut reason, start) = (Reason::default(), Instant::now());
        for (millis, words, expected) in [
            (0, "closed", true),
            (250, "closed", false),
            (500, "refused", false),
            (1000, "refused", true),
            (9000, "refused", false),
            (9001, "closed", true),
            (12_000, "refused", false),
            (13_001, "refused", true),
        ] {
            let is_news = reason.is_news(words, start + Duration::from_millis(millis));
            assert_eq!(is_news, expected, "{words} after {millis} ms");
        }
        let mut told = 0;
        for turn in 0..14_400 {
            let words = if turn % 2 == 0 { "closed" } else { "refused" };
            told += usize::from(reason.is_news(words, start + EVERY + turn * Duration::from_millis(250)));
        }
        assert!((60..=65).contains(&told), "{told} in an hour");
        let later = start + Duration::from_secs(7200);
        reason.begins("closed", later);
        reason.is_over();
        assert!(!reason.is_news("closed", later + Duration::from_millis(999)));
        assert!(reason.is_news("closed", later + Duration::from_secs(1)));
    }
}
