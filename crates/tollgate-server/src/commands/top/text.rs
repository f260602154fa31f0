//! Texts and numbers as they are shown.

use std::fmt::Write as _;

use ratatui::text::Span;

/// `12 345`.
pub(super) use super::super::lab::grouped as count;

/// The most characters that are kept of a text of the service.
const MOST: usize = 200;

/// A text of the service, as it can be written to a terminal. Names of limits and keys come from policies and from clients: control
/// characters, and those that change the direction or the look of others, are shown as escapes.
pub(super) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len().min(MOST));
    for (number, letter) in text.chars().enumerate() {
        if number == MOST {
            shown.push('…');
            break;
        }
        match letter {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            '\0'..'\u{80}' if letter.is_control() => _ = write!(shown, "\\x{:02x}", u32::from(letter)),
            _ if letter.is_control() || is_invisible(letter) => {
                _ = write!(shown, "\\u{{{:x}}}", u32::from(letter));
            }
            _ => shown.push(letter),
        }
    }
    shown
}

/// Characters without a look of their own: marks of direction, joiners, fillers, tags, selectors of variants, private use.
const fn is_invisible(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{e000}'..='\u{f8ff}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{10ffff}')
}

/// The columns that a text takes.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// At most `most` columns of a text. What is cut ends with `…`.
pub(super) fn clipped(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let (mut clipped, mut taken) = (String::new(), 1); // the ellipsis
    for letter in text.chars() {
        let columns = width(letter.encode_utf8(&mut [0; 4]));
        if taken + columns > most {
            break;
        }
        taken += columns;
        clipped.push(letter);
    }
    if most > 0 {
        clipped.push('…');
    }
    clipped
}

/// A count for a column: exact below ten thousand million.
pub(super) fn total(number: u64) -> String {
    match number {
        0..10_000_000_000 => count(number),
        _ => format!("{} M", count(number / 1_000_000)),
    }
}

/// A count per second: `0`, `<0.1`, `3.4`, `12 345`.
pub(super) fn rate(rate: f64) -> String {
    match rate {
        _ if rate <= 0.0 || !rate.is_finite() => "0".to_owned(),
        _ if rate < 0.05 => "<0.1".to_owned(),
        _ if rate < 9.95 => format!("{rate:.1}").trim_end_matches(".0").to_owned(),
        #[expect(clippy::cast_sign_loss, reason = "it is above zero")]
        _ => total(rate.round() as u64),
    }
}

/// A part of one: `0%`, `<0.1%`, `3.4%`, `34%`. Only what is all is `100%`.
pub(super) fn percent(part: f64) -> String {
    let percent = part * 100.0;
    match percent {
        _ if percent <= 0.0 || !percent.is_finite() => "0%".to_owned(),
        _ if percent < 0.05 => "<0.1%".to_owned(),
        _ if percent < 9.95 => format!("{}%", format!("{percent:.1}").trim_end_matches(".0")),
        _ if percent < 100.0 => format!("{:.0}%", percent.min(99.0)),
        _ => format!("{percent:.0}%"),
    }
}

/// A short time: `850 ns`, `1.2 µs`, `34 ms`, `2.5 s`.
pub(super) fn seconds(seconds: f64) -> String {
    let (number, unit) = match seconds {
        _ if seconds < 1e-6 => (seconds * 1e9, "ns"),
        _ if seconds < 1e-3 => (seconds * 1e6, "µs"),
        _ if seconds < 1.0 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    match number {
        _ if number < 9.95 => format!("{} {unit}", format!("{number:.1}").trim_end_matches(".0")),
        _ => format!("{number:.0} {unit}"),
    }
}

/// A long time: `12 s`, `3 min`, `2 h 5 min`, `3 d`.
pub(super) fn span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..600 if !seconds.is_multiple_of(60) => format!("{minutes} min {} s", seconds % 60),
        60..3600 => format!("{minutes} min"),
        3600..86_400 if !minutes.is_multiple_of(60) => format!("{hours} h {} min", minutes % 60),
        3600..86_400 => format!("{hours} h"),
        _ if !hours.is_multiple_of(24) => format!("{days} d {} h", hours % 24),
        _ => format!("{days} d"),
    }
}

/// `2.1 MiB`.
pub(super) fn bytes(bytes: u64) -> String {
    let (mut number, mut unit) = (bytes as f64, "B");
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if number < 1024.0 {
            break;
        }
        (number, unit) = (number / 1024.0, larger);
    }
    match number {
        _ if number < 9.95 && unit != "B" => {
            format!("{} {unit}", format!("{number:.1}").trim_end_matches(".0"))
        }
        _ => format!("{number:.0} {unit}"),
    }
}

/// Bars of blocks, `height` lines from the top to the bottom. Zero is the lowest block, and a gap in the data is a gap.
pub(super) fn bars(values: &[Option<u64>], height: usize) -> Vec<String> {
    const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.iter().flatten().copied().max().unwrap_or(0).max(1);
    // Zero takes the lowest eighth, so that what is not zero takes at least two.
    let eighths = |value: u64| match value {
        0 => 1,
        _ => {
            let steps = (height * 8 - 2) as u128;
            2 + usize::try_from(u128::from(value) * steps / u128::from(most)).unwrap_or(0)
        }
    };
    (0..height)
        .rev()
        .map(|line| {
            let block = |value: &Option<u64>| match value {
                None => ' ',
                Some(value) => BLOCKS[eighths(*value).saturating_sub(line * 8).min(8)],
            };
            values.iter().map(block).collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_texts_are_escaped_and_cut() {
        assert_eq!(shown("a\x1b[31mb\x07\n\r\t\x7f\u{9b}"), "a\\x1b[31mb\\x07\\n\\r\\t\\x7f\\u{9b}");
        assert_eq!(shown("x\u{202e}y\u{200d}\u{feff}"), "x\\u{202e}y\\u{200d}\\u{feff}");
        assert_eq!(shown("Zürich 東京 🚕"), "Zürich 東京 🚕");
        let long = shown(&"é".repeat(5000));
        assert_eq!(long.chars().count(), MOST + 1);
        assert!(long.ends_with('…'));
    }

    #[test]
    fn texts_are_cut_to_columns() {
        assert_eq!(clipped("per-user", 8), "per-user");
        assert_eq!(clipped("per-user", 7), "per-us…");
        assert_eq!(clipped("東京都庁", 6), "東京…");
        assert_eq!(clipped("per-user", 1), "…");
        assert_eq!(clipped("per-user", 0), "");
    }

    #[test]
    fn numbers_are_short_and_honest() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1 000", "1 234 567"]);
        assert_eq!(total(9_999_999_999), "9 999 999 999");
        assert_eq!(total(12_345_678_901), "12 345 M");
        let rates = [0.0, 0.01, 0.2, 3.0, 3.44, 9.96, 12_345.4];
        assert_eq!(rates.map(rate), ["0", "<0.1", "0.2", "3", "3.4", "10", "12 345"]);
        let parts = [0.0, 0.0001, 0.034, 0.5, 0.999, 1.0];
        assert_eq!(parts.map(percent), ["0%", "<0.1%", "3.4%", "50%", "99%", "100%"]);
        let times = [0.0, 8.5e-7, 1.2e-6, 0.034, 2.5, 30.0];
        assert_eq!(times.map(seconds), ["0 ns", "850 ns", "1.2 µs", "34 ms", "2.5 s", "30 s"]);
        let spans = [0, 59, 60, 185, 600, 7500, 7200, 90_000, 172_800];
        let texts = ["0 s", "59 s", "1 min", "3 min 5 s", "10 min", "2 h 5 min", "2 h", "1 d 1 h", "2 d"];
        assert_eq!(spans.map(span), texts);
        let sizes = [0, 1023, 2048, 2_202_010, 1 << 30];
        assert_eq!(sizes.map(bytes), ["0 B", "1023 B", "2 KiB", "2.1 MiB", "1 GiB"]);
    }

    #[test]
    fn bars_show_zero_and_gaps_apart() {
        assert_eq!(bars(&[Some(0), None, Some(1), Some(50), Some(100)], 1), ["▁ ▂▅█"]);
        assert_eq!(bars(&[Some(0), Some(100)], 2), [" █", "▁█"]);
        assert_eq!(bars(&[Some(0), Some(0)], 1), ["▁▁"]);
        assert_eq!(bars(&[Some(u64::MAX)], 3), ["█", "█", "█"]);
        assert_eq!(bars(&[], 1), [""]);
    }
}
