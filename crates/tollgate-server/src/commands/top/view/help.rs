//! The help.

use ratatui::text::{Line, Span};

use super::Theme;

const KEYS: [(&str, &str); 10] = [
    ("↑ ↓ j k", "select a limit; PgUp, PgDn, Home and End move further"),
    ("Enter", "open the limit: its history and its hot keys; Esc closes it"),
    ("s  < >", "sort by the next or another column"),
    ("r", "reverse the order"),
    ("/", "show only limits whose names contain a text; Esc shows all"),
    ("p", "pause the screen, or continue"),
    ("Ctrl-L", "draw the screen again"),
    ("Ctrl-Z", "suspend"),
    ("?", "this help"),
    ("q", "quit"),
];

const WORDS: [(&str, &str); 8] = [
    ("● ◔ ×", "allowed, delayed, denied. Allowed includes delayed"),
    ("/s", "requests per second, the mean of the last 5 seconds"),
    ("× %", "share of denied requests in these 5 seconds"),
    ("ALLOWED…", "totals since the service started, as in /metrics"),
    ("LEFT", "median of what remained of the limit, last 10 to 15 seconds"),
    ("HOTTEST", "key with the most requests in 5 to 10 minutes, and its share"),
    ("× KEY", "of a limit that denies now: the key with the most denials"),
    ("(shadow)", "the limit denies nothing: × is what it would deny"),
];

pub(super) fn lines<'a>(theme: Theme) -> Vec<Line<'a>> {
    let line = |(what, means): &(&'static str, &'static str)| {
        let pad = " ".repeat(10_usize.saturating_sub(what.chars().count()));
        Line::from(vec![Span::styled(format!("{what}{pad}"), theme.strong()), Span::raw(*means)])
    };
    KEYS.iter().map(line).chain([Line::default()]).chain(WORDS.iter().map(line)).collect()
}
