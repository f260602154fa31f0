//! One rule: its decisions, what the mechanism holds, and what the backend receives.

use std::fmt::Write as _;

use tollgate_core::AlgorithmKind;

use super::clock::{Clock, rounded};
use super::{ALLOWED, DELAYED, DENIED, INK, LEFT, MARGIN, RADIUS, RIGHT, WIDTH};
use crate::playground::reply::{Numbers, What};
use crate::playground::request::By;
use crate::playground::words::time;
use crate::playground::{PlaygroundReply, RuleReply};
use crate::plot::{short, text};

const NAME: f64 = 16.0; // the height of the line with the name
const CURVE: f64 = 36.0;
const LOAD: f64 = 40.0;
const GAP: f64 = 8.0;
const BETWEEN: f64 = 20.0;

/// The width of a column of symbols, and the distance of those above each other.
const COLUMN: f64 = 5.2;
const PITCH: f64 = 5.0;

/// The distance of the rows of clients, where there are few enough clients for a row each.
const ROW: f64 = 7.0;
const ROWS: std::ops::RangeInclusive<usize> = 3..=6;

/// A rule to be drawn.
#[derive(Debug)]
pub(super) struct Lane<'d> {
    pub(super) reply: &'d PlaygroundReply,
    pub(super) rule: &'d RuleReply,
    pub(super) clock: Clock,
    pub(super) busiest: f64, // the highest load of all rules
}

/// How an arrival went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Symbol {
    Allowed,
    Denied,
    Delayed,
}

impl Symbol {
    /// Draws the symbol at each of these places.
    pub(super) fn draw(self, svg: &mut String, places: &[(f64, f64)], r: f64) {
        if places.is_empty() {
            return;
        }
        let r2 = rounded(r, 1);
        let mut path = String::new();
        for (x, y) in places {
            let [x, left, top] = [*x, x - 0.8 * r, y - 0.8 * r].map(|number| rounded(number, 1));
            let (y, side) = (rounded(*y, 1), rounded(1.6 * r, 1));
            let _ = match self {
                Self::Allowed => write!(path, "M{x} {y}h0"),
                Self::Denied => write!(path, "M{left} {top}l{side} {side}m0-{side}l-{side} {side}"),
                // A ring, and the quarter of a disc in it.
                Self::Delayed => write!(
                    path,
                    "M{x} {y}v-{r2}a{r2} {r2} 0 1 1-.01 0M{x} {y}v-{r2}a{r2} {r2} 0 0 1 {r2} {r2}z"
                ),
            };
        }
        let _ = match self {
            Self::Allowed => writeln!(
                svg,
                "<path d=\"{path}\" stroke=\"{ALLOWED}\" stroke-width=\"{}\" stroke-linecap=\"round\"/>",
                rounded(2.0 * r, 1)
            ),
            Self::Denied => {
                writeln!(svg, "<path d=\"{path}\" stroke=\"{DENIED}\" stroke-width=\"1.4\" fill=\"none\"/>")
            }
            Self::Delayed => {
                writeln!(
                    svg,
                    "<path d=\"{path}\" stroke=\"{DELAYED}\" stroke-width=\".9\" fill=\"{DELAYED}\" fill-opacity=\".35\"/>"
                )
            }
        };
    }
}

/// What the rate lets through in the span in which the most is counted. None where each client has a state of its own.
pub(super) fn rate_line(reply: &PlaygroundReply, rule: &RuleReply) -> Option<f64> {
    let has_one_state = rule.by == By::Global || reply.clients.len() == 1;
    has_one_state.then_some(rule.rate * rule.window_for_most)
}

/// The limit that the backend load is measured by. None for buckets, which may pass their burst on top of the rate.
fn limit(reply: &PlaygroundReply, rule: &RuleReply) -> Option<f64> {
    let with_burst = [AlgorithmKind::TokenBucket, AlgorithmKind::BurstCredits];
    let has_burst = with_burst.iter().any(|kind| kind.name() == rule.algorithm);
    if has_burst { None } else { rate_line(reply, rule) }
}

/// Whether the backend gets more than the limit.
pub(super) fn is_over(reply: &PlaygroundReply, rule: &RuleReply) -> bool {
    limit(reply, rule).is_some_and(|limit| rule.most as f64 > limit)
}

impl Lane<'_> {
    /// Draws the lane from a height on, and returns where the next one begins.
    pub(super) fn draw(&self, svg: &mut String, top: f64) -> f64 {
        self.name(svg, top + 11.0);
        let calls = self.calls(svg, top + NAME + 2.0);
        let curve = self.curve(svg, calls + GAP);
        let load = self.load(svg, curve + GAP);
        self.cursor(svg, top + NAME, load);
        load + BETWEEN
    }

    fn name(&self, svg: &mut String, y: f64) {
        let rule = self.rule;
        let settings =
            rule.policy.split_once('{').map_or("", |(_, settings)| settings.trim_end_matches('}')).trim();
        let words = rule.name.replace('_', " ");
        let _ = writeln!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{y:.1}\"><tspan font-weight=\"600\" font-size=\"13\">{words}</tspan><tspan dx=\"8\">{settings}</tspan></text>"
        );
        let counts = format!(
            "{} allowed, {} denied, at most {} in {}",
            rule.allowed,
            rule.denied,
            rule.most,
            time((rule.window_for_most * 1e9) as u64)
        );
        text(svg, (WIDTH - RIGHT, y), "class=\"n\" text-anchor=\"end\"", &counts);
    }

    fn label(svg: &mut String, y: f64, words: &str) {
        text(svg, (LEFT - 8.0, y), "font-size=\"11\" text-anchor=\"end\"", words);
    }

    /// The arrivals, as symbols above each other where they come at the same time. Few clients have a row each.
    fn calls(&self, svg: &mut String, top: f64) -> f64 {
        let rows = self.rows();
        let mut drawn: Vec<(Symbol, f64, f64)> = Vec::new();
        let (mut column, mut height) = (f64::MIN, 0.0);
        let arrivals = self.reply.arrivals.at.iter().zip(&self.reply.arrivals.client);
        let decisions = self.rule.decisions.allowed.iter().zip(self.rule.decisions.delay.iter());
        for ((at, client), (allowed, delay)) in arrivals.zip(decisions) {
            let x = self.clock.x(at.unwrap_or(0.0));
            let symbol = match (allowed, delay) {
                (false, _) => Symbol::Denied,
                (true, Some(delay)) if delay > 0.0 => Symbol::Delayed,
                (true, _) => Symbol::Allowed,
            };
            if let Some(row) = rows.iter().position(|row| row == client) {
                drawn.push((symbol, x, ROW * row as f64));
                continue;
            }
            (column, height) = if x < column + COLUMN { (column, height + PITCH) } else { (x, 0.0) };
            drawn.push((symbol, column, height));
        }
        let highest = drawn.iter().map(|(_, _, height)| *height).fold(0.0, f64::max);
        let bottom = top + highest + 2.0 * RADIUS;
        drawn.iter_mut().for_each(|(_, _, height)| *height = bottom - RADIUS - *height);
        // What is still to come.
        let ghosts = drawn.iter().fold(String::new(), |mut path, (_, x, y)| {
            let _ = write!(path, "M{} {}h0", rounded(*x, 1), rounded(*y, 1));
            path
        });
        let _ = writeln!(
            svg,
            "<path d=\"{ghosts}\" class=\"moves\" stroke=\"{INK}\" stroke-opacity=\".45\" stroke-width=\"1.6\" stroke-linecap=\"round\"/>\n<g class=\"run\">"
        );
        for symbol in [Symbol::Allowed, Symbol::Denied, Symbol::Delayed] {
            let places: Vec<(f64, f64)> =
                drawn.iter().filter(|(drawn, ..)| *drawn == symbol).map(|(_, x, y)| (*x, *y)).collect();
            symbol.draw(svg, &places, RADIUS);
        }
        svg.push_str("</g>\n");
        match rows.last() {
            Some(busiest) => {
                Self::label(svg, top + RADIUS + 4.0, &self.reply.clients[*busiest as usize]);
                Self::label(svg, (top + ROW + bottom) / 2.0 + 4.0, "others");
            }
            None => Self::label(svg, (top + bottom) / 2.0 + 4.0, "calls"),
        }
        bottom
    }

    /// The clients that have a row, from the bottom: the one with the most calls last. None where there are few clients or many.
    fn rows(&self) -> Vec<u32> {
        let arrivals = &self.reply.arrivals.client;
        let mut clients: Vec<u32> = (0..self.reply.clients.len() as u32).collect();
        if !ROWS.contains(&clients.len()) {
            return Vec::new();
        }
        clients.sort_by_key(|client| arrivals.iter().filter(|of| *of == client).count());
        clients
    }

    /// The line that shows how far the run is.
    fn cursor(&self, svg: &mut String, top: f64, bottom: f64) {
        let duration = self.reply.duration;
        let (from, to) = (self.clock.x(0.0), self.clock.x(duration));
        let moves = ["x1", "x2"].map(|name| self.clock.sweep(name, &[(0.0, from), (duration, to)])).concat();
        let _ = writeln!(
            svg,
            "<line class=\"moves\" x1=\"{to}\" x2=\"{to}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\" stroke=\"{INK}\">{moves}</line>"
        );
    }

    /// What the mechanism holds.
    fn curve(&self, svg: &mut String, top: f64) -> f64 {
        let curve = &self.rule.curve;
        let bottom = top + CURVE;
        let y = |level: f64| bottom - CURVE * level / curve.max;
        let values =
            |numbers: &Numbers| numbers.iter().map(|number| number.unwrap_or(0.0)).collect::<Vec<f64>>();
        let points: Vec<(f64, f64)> =
            values(&curve.t).into_iter().zip(values(&curve.y).into_iter().map(y)).collect();
        let mut line = String::new();
        let mut last = String::new();
        for (at, y) in &points {
            let point = format!("{} {}", rounded(self.clock.x(*at), 1), rounded(*y, 1));
            if point != last {
                let _ = write!(line, "{}{point}", if line.is_empty() { 'M' } else { 'L' });
                last = point;
            }
        }
        let (from, to) = (LEFT, WIDTH - RIGHT);
        let _ = writeln!(
            svg,
            "<path d=\"M{from} {top}H{to}\" stroke=\"{INK}\" stroke-opacity=\".5\" stroke-dasharray=\"3 3\"/>\n\
             <path d=\"M{from} {bottom}H{to}\" stroke=\"{INK}\" stroke-opacity=\".5\"/>\n\
             <g class=\"run\"><path d=\"{line}L{to} {bottom}H{from}z\" fill=\"{INK}\" fill-opacity=\".18\"/>\
             <path d=\"{line}\" fill=\"none\" stroke=\"{INK}\" stroke-width=\"1.5\" stroke-linejoin=\"round\"/></g>"
        );
        let _ = writeln!(
            svg,
            "<circle class=\"moves\" r=\"3\" cx=\"{}\" cy=\"{:.1}\">{}{}</circle>",
            to,
            points.last().map_or(bottom, |(_, y)| *y),
            self.clock.sweep("cx", &[(0.0, from), (self.reply.duration, to)]),
            self.clock.sweep("cy", &points)
        );
        let what = match curve.what {
            What::Tokens => "tokens",
            What::Tat => "TAT ahead",
            What::Queue => "queue",
            What::Used => "used",
            What::InWindow => "in the log",
            What::Estimate => "estimate",
            What::Credits => "credits",
        };
        Self::label(svg, top + 4.0, &short(curve.max));
        Self::label(svg, top + CURVE / 2.0 + 4.0, what);
        bottom
    }

    /// What reached the backend in the last window, with the part above the limit of a window, a log or a queue marked.
    fn load(&self, svg: &mut String, top: f64) -> f64 {
        let bottom = top + LOAD;
        let y = |load: f64| bottom - LOAD * load / self.busiest;
        let (from, to) = (LEFT, WIDTH - RIGHT);
        let mut steps = Steps::new(self.clock, from);
        let loads = self.passed();
        loads.iter().for_each(|(at, load)| steps.step(*at, y(*load)));
        let _ = write!(
            svg,
            "<g class=\"run\"><path d=\"{}\" fill=\"{ALLOWED}\" fill-opacity=\".45\"/>",
            steps.area(to, bottom, y(0.0))
        );
        let limit = limit(self.reply, self.rule);
        if let Some(limit) = limit.filter(|_| is_over(self.reply, self.rule)) {
            let mut over = Steps::new(self.clock, from);
            loads.iter().for_each(|(at, load)| over.step(*at, y(load.max(limit))));
            let _ = write!(svg, "<path d=\"{}\" fill=\"url(#over)\"/>", over.area(to, y(limit), y(limit)));
        }
        let _ =
            writeln!(svg, "</g>\n<path d=\"M{from} {bottom}H{to}\" stroke=\"{INK}\" stroke-opacity=\".5\"/>");
        let line = rate_line(self.reply, self.rule);
        if let Some(line) = line {
            let (word, style) = match limit {
                Some(_) => ("limit", "stroke-dasharray=\"6 2\""),
                None => ("rate", "stroke-opacity=\".6\" stroke-dasharray=\"1 3\""),
            };
            let _ = writeln!(svg, "<path d=\"M{from} {:.1}H{to}\" stroke=\"{INK}\" {style}/>", y(line));
            Self::label(svg, y(line) + 4.0, &format!("{word} {}", short(line)));
        }
        let is_free = line.is_none_or(|line| y(line) < bottom - 14.0);
        Self::label(svg, bottom + 1.0, if is_free { "backend" } else { "" });
        bottom
    }

    /// The cost that reached the backend in the last window, at each time at which it changes.
    fn passed(&self) -> Vec<(f64, f64)> {
        let arrivals = self.reply.arrivals.at.iter().zip(&self.reply.arrivals.cost);
        let decisions = self.rule.decisions.allowed.iter().zip(self.rule.decisions.delay.iter());
        let mut changes: Vec<(f64, f64)> = Vec::new();
        for ((at, cost), (allowed, delay)) in arrivals.zip(decisions) {
            let (Some(at), Some(delay), true) = (at, delay, *allowed) else { continue };
            changes.push((at + delay, *cost as f64));
            changes.push((at + delay + self.rule.window_for_most, -(*cost as f64)));
        }
        changes.sort_by(|(at, cost), (other, more)| at.total_cmp(other).then(cost.total_cmp(more)));
        let mut load = 0.0;
        let sums = changes.iter().map(|(at, change)| {
            load += change;
            (*at, load)
        });
        sums.filter(|(at, _)| *at <= self.reply.duration).collect()
    }
}

/// A path of steps, with equal ones left out.
struct Steps {
    clock: Clock,
    path: String,
    from: f64,
    last: Option<String>,
}

impl Steps {
    const fn new(clock: Clock, from: f64) -> Self {
        Self { clock, path: String::new(), from, last: None }
    }

    fn step(&mut self, at: f64, y: f64) {
        let y = rounded(y, 1);
        if self.last.as_ref() != Some(&y) {
            let _ = write!(self.path, "H{}V{y}", rounded(self.clock.x(at), 1));
            self.last = Some(y);
        }
    }

    /// The area between the steps and a base line.
    fn area(&self, to: f64, base: f64, begin: f64) -> String {
        format!(
            "M{} {}V{}{}H{to}V{}z",
            self.from,
            rounded(base, 1),
            rounded(begin, 1),
            self.path,
            rounded(base, 1)
        )
    }
}
