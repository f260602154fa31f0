//! When of the animation each second of the timeline is shown.

use std::fmt::Write as _;

use super::{LEFT, RIGHT, WIDTH};

/// How long the animation stops where there is most to see, and at the end, in seconds.
const STOP: f64 = 2.5;
const END: f64 = 3.5;

/// The longest and the shortest time that the timeline may take in the animation, in seconds.
const LONGEST: f64 = 14.0;
const SHORTEST: f64 = 8.0;

/// Maps the timeline to the animation, and to the width of the picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    duration: f64,
    moment: f64,
    play: f64, // how long the timeline takes in the animation
}

impl Clock {
    pub(super) fn new(duration: f64, moment: f64) -> Self {
        Self { duration, moment, play: duration.clamp(SHORTEST, LONGEST) }
    }

    /// Where a second of the timeline is drawn.
    pub(super) fn x(&self, at: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (at / self.duration).clamp(0.0, 1.0)
    }

    /// An attribute that follows the timeline: values at seconds in their order, joined by lines. Where the animation stops, the value
    /// stands still.
    pub(super) fn sweep(&self, attribute: &str, values: &[(f64, f64)]) -> String {
        let total = self.play + STOP + END;
        let place = |at: f64| {
            let stop = if at > self.moment { STOP } else { 0.0 };
            (at / self.duration * self.play + stop) / total
        };
        let (mut list, mut times) = (String::new(), String::new());
        let mut add = |time: f64, value: f64| {
            let separator = if list.is_empty() { "" } else { ";" };
            let _ = write!(list, "{separator}{}", rounded(value, 1));
            let _ = write!(times, "{separator}{}", rounded(time, 4));
        };
        let mut before: Option<(f64, f64)> = None;
        for (at, value) in values.iter().copied() {
            if let Some((from, start)) = before.filter(|(from, _)| *from <= self.moment && at > self.moment) {
                let value = start + (value - start) * (self.moment - from) / (at - from);
                add(place(self.moment), value);
                add(place(self.moment) + STOP / total, value);
            }
            add(place(at), value);
            before = Some((at, value));
        }
        if let Some((_, value)) = before {
            add(1.0, value);
        }
        format!(
            "<animate attributeName=\"{attribute}\" dur=\"{total}s\" repeatCount=\"indefinite\" values=\"{list}\" keyTimes=\"{times}\"/>"
        )
    }
}

/// A number with at most `decimals` decimals.
pub(super) fn rounded(number: f64, decimals: usize) -> String {
    let text = format!("{number:.decimals$}");
    let short = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if short == "-0" { "0".to_owned() } else { short.to_owned() }
}
