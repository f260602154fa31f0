//! Pictures: a lane for each algorithm, with what came, what passed and how full the limit was, over time.
//!
//! SVG by hand. A chart library draws axes and leaves these lanes to us; and an SVG of one path for each area stays small enough for
//! a README.

use std::fmt::Write as _;

use crate::algorithms::Name;
use crate::replay::Replayed;
use crate::scenario::Scenario;
use crate::simulate::{BINS, Simulated};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 232.0; // where the time begins
const RIGHT: f64 = 24.0;
const HEAD: f64 = 96.0;
const LANE: f64 = 76.0;
const GAP: f64 = 26.0;
const FOOT: f64 = 24.0;

/// A lane to be drawn.
struct LaneDrawn<'d> {
    name: &'static str,
    colour: &'static str,
    notes: [String; 2],
    passed: &'d [u64],
    level: &'d [f64],
}

/// All of it.
struct Drawing<'d> {
    title: String,
    about: String,
    duration: u64,
    bin: u64,
    arrivals: &'d [u64],
    lanes: Vec<LaneDrawn<'d>>,
    whose: &'static str, // the level that is drawn
}

const fn colour(name: Name) -> &'static str {
    match name {
        Name::TokenBucket => "#2563eb",
        Name::LeakyBucket => "#0d9488",
        Name::FixedWindow => "#dc2626",
        Name::SlidingLog => "#7c3aed",
        Name::SlidingCounter => "#d97706",
        Name::StrictCounter => "#64748b",
    }
}

const fn title(name: Name) -> &'static str {
    match name {
        Name::TokenBucket => "token bucket",
        Name::LeakyBucket => "leaky bucket (queue)",
        Name::FixedWindow => "fixed window",
        Name::SlidingLog => "sliding log",
        Name::SlidingCounter => "sliding counter",
        Name::StrictCounter => "sliding counter, strict",
    }
}

/// A scenario as an SVG.
pub fn simulated(scenario: &Scenario, simulated: &Simulated) -> String {
    let window = tollgate_policy::quantity::duration_text(scenario.limit.window);
    let lanes = simulated.lanes.iter().map(|lane| LaneDrawn {
        name: title(lane.name),
        colour: colour(lane.name),
        notes: [
            format!("{} passed, {} denied", lane.tally.allowed, lane.tally.denied),
            format!("at most {} in any {window}", lane.most_in_window),
        ],
        passed: &lane.passed,
        level: &lane.level,
    });
    let by = if scenario.is_global { "all together" } else { "each client" };
    Drawing {
        title: format!("{}: {} in {window} for {by}", scenario.name, scenario.limit.limit),
        about: scenario.about.clone(),
        duration: scenario.duration,
        bin: scenario.duration.div_ceil(BINS as u64).max(1),
        arrivals: &simulated.arrivals,
        lanes: lanes.collect(),
        whose: if scenario.is_global { "" } else { " (first client)" },
    }
    .draw()
}

/// A replay as an SVG.
pub fn replayed(replayed: &Replayed, heading: &str) -> String {
    let seen = &replayed.seen;
    let lanes = replayed.lanes.iter().map(|lane| LaneDrawn {
        name: title(lane.name),
        colour: colour(lane.name),
        notes: [
            format!("{} passed, {} denied", lane.tally.allowed, lane.tally.denied),
            format!("{} clients denied", lane.tally.clients_denied()),
        ],
        passed: &lane.passed.bins,
        level: &[],
    });
    Drawing {
        title: heading.to_owned(),
        about: format!("{} requests of {} clients", seen.counts.requests, seen.clients.len()),
        duration: (seen.span.1 - seen.span.0).max(1),
        bin: replayed.arrivals.width,
        arrivals: &replayed.arrivals.bins,
        lanes: lanes.collect(),
        whose: "",
    }
    .draw()
}

impl Drawing<'_> {
    fn draw(&self) -> String {
        let height = HEAD + self.lanes.len() as f64 * (LANE + GAP) + FOOT;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
             font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\">\n\
             <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#ffffff\"/>\n"
        );
        text(&mut svg, (24.0, 34.0), "font-size=\"18\" font-weight=\"600\" fill=\"#0f172a\"", &self.title);
        text(&mut svg, (24.0, 55.0), "font-size=\"12.5\" fill=\"#475569\"", &self.about);
        self.legend(&mut svg);
        // The same in every lane, so that it stands here once.
        let _ = writeln!(svg, "<defs><path id=\"came\" d=\"{}\"/></defs>", self.area(self.arrivals, 0.0));
        for (place, lane) in self.lanes.iter().enumerate() {
            self.lane(&mut svg, HEAD + place as f64 * (LANE + GAP), lane);
        }
        self.times(&mut svg, height - FOOT - GAP + 7.0);
        svg.push_str("</svg>\n");
        svg
    }

    fn legend(&self, svg: &mut String) {
        let mut x = LEFT;
        let y = 78.0;
        let _ =
            writeln!(svg, "<rect x=\"{x}\" y=\"{}\" width=\"12\" height=\"10\" fill=\"#cbd5e1\"/>", y - 9.0);
        text(svg, (x + 18.0, y), "font-size=\"11.5\" fill=\"#475569\"", "came");
        x += 70.0;
        let _ =
            writeln!(svg, "<rect x=\"{x}\" y=\"{}\" width=\"12\" height=\"10\" fill=\"#2563eb\"/>", y - 9.0);
        text(svg, (x + 18.0, y), "font-size=\"11.5\" fill=\"#475569\"", "passed");
        if self.lanes.iter().any(|lane| !lane.level.is_empty()) {
            x += 84.0;
            let _ = writeln!(
                svg,
                "<line x1=\"{x}\" x2=\"{}\" y1=\"{y1}\" y2=\"{y1}\" stroke=\"#0f172a\" stroke-width=\"1.4\"/>",
                x + 14.0,
                y1 = y - 4.0
            );
            let words = format!("how much of the limit is used up{}", self.whose);
            text(svg, (x + 20.0, y), "font-size=\"11.5\" fill=\"#475569\"", &words);
            x += 232.0;
        }
        text(svg, (x + 84.0, y), "font-size=\"11.5\" fill=\"#94a3b8\"", "heights go by the square root");
    }

    fn lane(&self, svg: &mut String, top: f64, lane: &LaneDrawn<'_>) {
        let bottom = top + LANE;
        text(svg, (24.0, top + 18.0), "font-size=\"13.5\" font-weight=\"600\" fill=\"#0f172a\"", lane.name);
        for (place, note) in lane.notes.iter().enumerate() {
            text(svg, (24.0, top + 37.0 + 17.0 * place as f64), "font-size=\"11.5\" fill=\"#475569\"", note);
        }
        let rate = self.most() as f64 * 1e9 / self.bin as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{}\" height=\"{LANE}\" fill=\"#f8fafc\"/>",
            WIDTH - LEFT - RIGHT
        );
        let _ = writeln!(svg, "<use href=\"#came\" transform=\"translate(0 {bottom})\" fill=\"#cbd5e1\"/>");
        let _ = writeln!(
            svg,
            "<path d=\"{}\" fill=\"{}\" fill-opacity=\"0.85\"/>",
            self.area(lane.passed, bottom),
            lane.colour
        );
        if !lane.level.is_empty() {
            let _ = writeln!(
                svg,
                "<path d=\"{}\" fill=\"none\" stroke=\"#0f172a\" stroke-width=\"1.4\" stroke-linejoin=\"round\"/>",
                self.line(lane.level, bottom)
            );
        }
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{bottom}\" y2=\"{bottom}\" stroke=\"#94a3b8\"/>",
            WIDTH - RIGHT
        );
        let end = "font-size=\"10\" fill=\"#64748b\" text-anchor=\"end\"";
        text(svg, (LEFT - 6.0, top + 9.0), end, &format!("{}/s", short(rate)));
        text(svg, (LEFT - 6.0, bottom), end, "0");
    }

    /// The most in any bin, of anything.
    fn most(&self) -> u64 {
        let passed = self.lanes.iter().flat_map(|lane| lane.passed);
        self.arrivals.iter().chain(passed).copied().max().unwrap_or(0).max(1)
    }

    fn x(&self, nanos: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (nanos / self.duration as f64).min(1.0)
    }

    /// Steps from bin to bin, down to the base line at both ends. Equal bins make one step.
    fn area(&self, values: &[u64], bottom: f64) -> String {
        let most = self.most();
        // By the square root, lest ten a second vanish beside a thousand.
        let y = |value: u64| bottom - LANE * (value as f64 / most as f64).sqrt();
        let mut path = format!("M{LEFT} {bottom:.1}");
        let mut before = 0;
        for (place, value) in values.iter().copied().chain([0]).enumerate() {
            if value != before {
                let x = self.x(place as f64 * self.bin as f64);
                let _ = write!(path, "L{x:.1} {:.1}L{x:.1} {:.1}", y(before), y(value));
                before = value;
            }
        }
        path.push('Z');
        path
    }

    fn line(&self, levels: &[f64], bottom: f64) -> String {
        let mut path = String::new();
        let y = |level: f64| bottom - LANE * level.clamp(0.0, 1.0);
        for (place, level) in levels.iter().enumerate() {
            // What is the same as before and after needs no point.
            let is_flat = place > 0 && levels[place - 1] == *level && levels.get(place + 1) == Some(level);
            if !is_flat {
                let command = if path.is_empty() { 'M' } else { 'L' };
                let x = self.x((place + 1) as f64 * self.bin as f64);
                let _ = write!(path, "{command}{x:.1} {:.1}", y(*level));
            }
        }
        path
    }

    fn times(&self, svg: &mut String, y: f64) {
        const STEPS: [(f64, f64, &str); 22] = [
            (0.001, 0.001, "ms"),
            (0.01, 0.001, "ms"),
            (0.1, 0.001, "ms"),
            (0.5, 1.0, "s"),
            (1.0, 1.0, "s"),
            (2.0, 1.0, "s"),
            (5.0, 1.0, "s"),
            (10.0, 1.0, "s"),
            (20.0, 1.0, "s"),
            (30.0, 1.0, "s"),
            (60.0, 60.0, "min"),
            (120.0, 60.0, "min"),
            (300.0, 60.0, "min"),
            (600.0, 60.0, "min"),
            (1800.0, 60.0, "min"),
            (3600.0, 3600.0, "h"),
            (7200.0, 3600.0, "h"),
            (21_600.0, 3600.0, "h"),
            (43_200.0, 3600.0, "h"),
            (86_400.0, 86_400.0, "d"),
            (172_800.0, 86_400.0, "d"),
            (604_800.0, 86_400.0, "d"),
        ];
        let seconds = self.duration as f64 / 1e9;
        let fits = |step: &&(f64, f64, &str)| seconds / step.0 <= 9.0;
        let (mut step, unit, name) = STEPS.iter().find(fits).copied().unwrap_or(STEPS[STEPS.len() - 1]);
        while seconds / step > 9.0 {
            step *= 2.0;
        }
        let mut at = 0.0;
        while at <= seconds * 1.0001 {
            let x = self.x(at * 1e9);
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"#94a3b8\"/>",
                y - 6.0,
                y - 1.0
            );
            let label = if at == 0.0 { "0".to_owned() } else { format!("{} {name}", short(at / unit)) };
            text(svg, (x, y + 12.0), "font-size=\"11\" fill=\"#475569\" text-anchor=\"middle\"", &label);
            at += step;
        }
    }
}

/// A number in few digits.
pub(crate) fn short(number: f64) -> String {
    match number {
        n if n >= 1e6 => format!("{}M", short(n / 1e6)),
        n if n >= 1e4 => format!("{}k", short(n / 1e3)),
        n if n >= 100.0 || n.fract() == 0.0 => format!("{n:.0}"),
        n if n >= 1.0 => format!("{n:.1}"),
        n => format!("{n:.2}"),
    }
}

pub(crate) fn text(svg: &mut String, (x, y): (f64, f64), style: &str, words: &str) {
    // Some letters cannot stand in XML, however they are written.
    let is_odd = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    let words = words.replace(is_odd, "?");
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{words}</text>");
}

/// A line of blocks, as high as values are in proportion to the most of others, by the square root: for terminals.
pub fn blocks(values: &[u64], beside: &[u64], columns: usize) -> String {
    const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let each = values.len().div_ceil(columns.max(1)).max(1);
    let sums = |values: &[u64]| -> Vec<u64> { values.chunks(each).map(|chunk| chunk.iter().sum()).collect() };
    let most = sums(beside).into_iter().max().unwrap_or(0).max(1);
    let block = |sum: u64| match 8.0 * (sum as f64 / most as f64).sqrt() {
        0.0 => BLOCKS[0],
        eighths => BLOCKS[(eighths.ceil() as usize).clamp(1, 8)],
    };
    sums(values).into_iter().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_high_as_values() {
        assert_eq!(blocks(&[0, 1, 16, 64], &[64], 4), " ▁▄█");
        assert_eq!(blocks(&[8, 8, 0, 0], &[8, 8], 2), "█ ");
        assert_eq!(blocks(&[], &[8], 2), "");
    }

    #[test]
    fn numbers_are_short() {
        let numbers = [0.25, 1.0, 1.5, 150.0, 12_345.0, 2_500_000.0].map(short);
        assert_eq!(numbers, ["0.25", "1", "1.5", "150", "12.3k", "2.5M"]);
    }
}
