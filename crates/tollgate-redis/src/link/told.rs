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
}
