//! Plots of runs: what each scheme admits and how often it calls the store, over time or by the number of nodes.

use std::fmt::Write as _;

use super::{ClusterOutcome, ClusterSettings, Scheme, SchemeOutcome};
use crate::plot::{short, text};
use crate::series::Series;

const WIDTH: f64 = 960.0;
const MARGIN: f64 = 24.0;
const INK: &str = "#0f172a";
const MUTED: &str = "#475569";
const LINE: &str = "#94a3b8";
const WARNING: &str = "#c2410c";

const fn colour(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Lease => "#1d4ed8",
        Scheme::Exact => "#475569",
        Scheme::StaticSplit => "#0f766e",
        Scheme::ReportAfterSpend => "#c2410c",
        Scheme::RefuseAndWait => "#7e22ce",
    }
}

const fn title(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Lease => "leases",
        Scheme::Exact => "exact checks",
        Scheme::StaticSplit => "static split",
        Scheme::ReportAfterSpend => "report after spend",
        Scheme::RefuseAndWait => "refuse and wait",
    }
}

fn per_second(outcome: &SchemeOutcome, settings: &ClusterSettings) -> f64 {
    outcome.calls.total() as f64 * 1e9 / settings.duration as f64
}

/// A number with a space between thousands, without fractions from 10 on.
fn number(value: f64) -> String {
    if value < 10.0 && value.fract() > 0.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let place = |(place, digit): (usize, char)| {
        let gap = place > 0 && (digits.len() - place).is_multiple_of(3);
        if gap { format!(" {digit}") } else { digit.to_string() }
    };
    digits.chars().enumerate().map(place).collect()
}

/// What was found, in a sentence.
fn finding(settings: &ClusterSettings, outcome: &ClusterOutcome) -> String {
    let of = |scheme| outcome.schemes.iter().find(|outcome| outcome.scheme == scheme);
    let nodes = if settings.nodes == 1 {
        "1 node".to_owned()
    } else {
        format!("{} nodes", number(settings.nodes.into()))
    };
    match (of(Scheme::Lease), of(Scheme::Exact)) {
        (Some(lease), exact) => {
            let beside = exact.map_or(String::new(), |exact| {
                format!("; exact checks need {}", number(per_second(exact, settings)))
            });
            format!(
                "{nodes}: leases use {:.1} % of the limit with {} calls per second{beside}",
                100.0 * lease.limit_use,
                number(per_second(lease, settings))
            )
        }
        (None, _) => format!("{nodes} share {} units per second", number(settings.rate as f64)),
    }
}

fn set_up(settings: &ClusterSettings) -> String {
    let mut words = format!(
        "One key of {}/s, burst {}; {} requests per second ({} x); round trip {} ms, sync {} ms",
        number(settings.rate as f64),
        number(settings.burst as f64),
        number(settings.demand()),
        settings.overload,
        settings.rtt as f64 / 1e6,
        settings.sync as f64 / 1e6,
    );
    if let Some(skew) = settings.skew {
        let _ = write!(words, "; {:.0} % of the demand at one node", 100.0 * skew);
    }
    if settings.loss > 0.0 {
        let _ = write!(words, "; {} % of messages lost", 100.0 * settings.loss);
    }
    match &settings.faults[..] {
        faults @ ([] | [_] | [_, _]) => faults.iter().for_each(|fault| {
            let _ = write!(words, "; {fault}");
        }),
        faults => {
            let _ = write!(words, "; {} faults", faults.len());
        }
    }
    words
}

fn begin(height: f64, title: &str, about: &str) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#ffffff\"/>\n"
    );
    let style = format!("font-size=\"16\" font-weight=\"600\" fill=\"{INK}\"");
    text(&mut svg, (MARGIN, 34.0), &style, title);
    text(&mut svg, (MARGIN, 56.0), &format!("font-size=\"13\" fill=\"{MUTED}\""), about);
    svg
}

/// A chart in a lane: where it is, and what its axes show.
struct Chart {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    duration: u64,
}

impl Chart {
    fn x(&self, nanos: u64) -> f64 {
        self.left + (self.right - self.left) * (nanos as f64 / self.duration as f64).min(1.0)
    }

    /// The height of each bin of a series, as an area. `height` is a part of the whole height, of a rate per second.
    fn area(&self, svg: &mut String, series: &Series, colour: &str, height: &dyn Fn(f64) -> f64) {
        let y = |count: u64| {
            let rate = count as f64 * 1e9 / series.width as f64;
            self.bottom - (self.bottom - self.top) * height(rate).clamp(0.0, 1.0)
        };
        let mut path = format!("M{:.1} {:.1}", self.left, self.bottom);
        for (place, count) in series.bins.iter().enumerate() {
            let (from, to) = (place as u64 * series.width, (place as u64 + 1) * series.width);
            let _ = write!(path, "L{:.1} {y:.1}L{:.1} {y:.1}", self.x(from), self.x(to), y = y(*count));
        }
        let end = self.x(series.bins.len() as u64 * series.width);
        let _ = writeln!(
            svg,
            "<path d=\"{path}L{end:.1} {:.1}Z\" fill=\"{colour}\" fill-opacity=\"0.8\"/>",
            self.bottom
        );
    }

    fn frame(&self, svg: &mut String, settings: &ClusterSettings) {
        let (width, height) = (self.right - self.left, self.bottom - self.top);
        let _ = writeln!(
            svg,
            "<rect x=\"{}\" y=\"{}\" width=\"{width}\" height=\"{height}\" fill=\"#f8fafc\"/>",
            self.left, self.top
        );
        for fault in &settings.faults {
            let x = self.x(fault.start);
            let width = (self.x(fault.end()) - x).max(1.5);
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{}\" width=\"{width:.1}\" height=\"{height}\" fill=\"#fde68a\"/>",
                self.top
            );
        }
    }

    fn level(&self, svg: &mut String, part: f64, style: &str, label: &str) {
        let y = self.bottom - (self.bottom - self.top) * part;
        let _ = writeln!(
            svg,
            "<line x1=\"{}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" {style}/>",
            self.left, self.right
        );
        let muted = format!("font-size=\"11\" fill=\"{MUTED}\" text-anchor=\"end\"");
        text(svg, (self.left - 6.0, y + 4.0), &muted, label);
    }
}

/// One run, over time: a lane for each scheme.
pub fn run_plot(settings: &ClusterSettings, outcome: &ClusterOutcome) -> String {
    const LANE: f64 = 78.0;
    const GAP: f64 = 24.0;
    const HEAD: f64 = 98.0;
    let height = HEAD + outcome.schemes.len() as f64 * (LANE + GAP) + 18.0;
    let mut svg = begin(height, &finding(settings, outcome), &set_up(settings));
    let rates = |series: &Series| series.most() as f64 * 1e9 / series.width as f64;
    let schemes = || outcome.schemes.iter();
    let most = schemes().map(|scheme| rates(&scheme.admitted_over_time)).fold(settings.rate as f64, f64::max);
    let most_calls = schemes().map(|scheme| rates(&scheme.calls_over_time)).fold(10.0, f64::max);
    let decades = most_calls.log10().ceil().max(1.0);
    let small = format!("font-size=\"12\" fill=\"{MUTED}\"");
    text(&mut svg, (290.0, HEAD - 14.0), &small, "admitted per second (square root scale; dashed: the rate)");
    text(&mut svg, (686.0, HEAD - 14.0), &small, "store calls per second (logarithmic)");
    for (place, scheme) in schemes().enumerate() {
        let top = HEAD + place as f64 * (LANE + GAP);
        notes(&mut svg, top, settings, outcome, scheme);
        let chart = |left, right| Chart { left, right, top, bottom: top + LANE, duration: settings.duration };
        let admitted = chart(290.0, 610.0);
        admitted.frame(&mut svg, settings);
        let root = |rate: f64| (rate / most).sqrt();
        admitted.area(&mut svg, &scheme.admitted_over_time, colour(scheme.scheme), &root);
        let dashed = format!("stroke=\"{INK}\" stroke-width=\"1.2\" stroke-dasharray=\"5 4\"");
        admitted.level(&mut svg, root(settings.rate as f64), &dashed, &short(settings.rate as f64));
        admitted.level(&mut svg, 0.0, &format!("stroke=\"{LINE}\""), "0");
        let calls = chart(686.0, WIDTH - MARGIN);
        calls.frame(&mut svg, settings);
        let log = |rate: f64| rate.max(1.0).log10() / decades;
        calls.area(&mut svg, &scheme.calls_over_time, colour(scheme.scheme), &log);
        calls.level(&mut svg, 0.0, &format!("stroke=\"{LINE}\""), "1");
        let faint = "stroke=\"#cbd5e1\" stroke-width=\"0.8\"";
        calls.level(&mut svg, 1.0, faint, &short(10_f64.powf(decades)));
        if place + 1 == outcome.schemes.len() {
            times(&mut svg, &admitted);
            times(&mut svg, &calls);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// The name of a scheme and its figures, beside its charts.
fn notes(
    svg: &mut String,
    top: f64,
    settings: &ClusterSettings,
    outcome: &ClusterOutcome,
    scheme: &SchemeOutcome,
) {
    let name = format!("font-size=\"15\" font-weight=\"600\" fill=\"{}\"", colour(scheme.scheme));
    text(svg, (MARGIN, top + 16.0), &name, title(scheme.scheme));
    let over = match (scheme.over, scheme.worst_span.over) {
        (0, 0) => "never above the limit".to_owned(),
        (0, span) => format!("0 above in total, {} in a span", number(span as f64)),
        (total, _) => format!("× {} above the limit", number(total as f64)),
    };
    let allowed = if scheme.scheme == Scheme::Lease { outcome.most_excess } else { 0 };
    let is_over = scheme.over > 0 || scheme.worst_span.over > allowed.max(1);
    let lines = [
        (format!("{:.1} % used, Jain {:.3}", 100.0 * scheme.limit_use, scheme.shares.jain), MUTED),
        (over, if is_over { WARNING } else { MUTED }),
        (format!("{} calls/s", number(per_second(scheme, settings))), MUTED),
    ];
    for (place, (line, fill)) in lines.iter().enumerate() {
        let style = format!("font-size=\"12.5\" fill=\"{fill}\"");
        text(svg, (MARGIN, top + 36.0 + 18.0 * place as f64), &style, line);
    }
}

/// The times below a chart.
fn times(svg: &mut String, chart: &Chart) {
    let seconds = chart.duration as f64 / 1e9;
    let raw = seconds / 5.0;
    let unit = 10_f64.powf(raw.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|part| part * unit).find(|step| *step >= raw).unwrap_or(raw);
    let style = format!("font-size=\"11\" fill=\"{MUTED}\" text-anchor=\"middle\"");
    for place in 0..=(seconds / step * 1.0001) as u32 {
        let at = f64::from(place) * step;
        let x = chart.left + (chart.right - chart.left) * at / seconds;
        text(svg, (x, chart.bottom + 16.0), &style, &format!("{} s", short(at)));
    }
}

/// Several runs, by their number of nodes.
pub fn growth_plot(runs: &[(ClusterSettings, ClusterOutcome)]) -> String {
    const TOP: f64 = 116.0;
    const BOTTOM: f64 = 400.0;
    let about = runs.first().map_or(String::new(), |(settings, _)| set_up(settings));
    let most = runs.iter().max_by_key(|(settings, _)| settings.nodes);
    let title = most.map_or(String::new(), |(settings, outcome)| finding(settings, outcome));
    let mut svg = begin(460.0, &title, &about);
    let mut schemes: Vec<Scheme> = Vec::new();
    for scheme in runs.iter().flat_map(|(_, outcome)| &outcome.schemes) {
        if !schemes.contains(&scheme.scheme) {
            schemes.push(scheme.scheme);
        }
    }
    legend(&mut svg, &schemes);
    let nodes = |place: usize| f64::from(runs[place].0.nodes);
    let widest = (0..runs.len()).map(nodes).fold(10.0, f64::max).log10();
    let calls = |place: usize, scheme: &SchemeOutcome| per_second(scheme, &runs[place].0);
    let all =
        || runs.iter().enumerate().flat_map(|(place, run)| run.1.schemes.iter().map(move |s| (place, s)));
    let decades = all().map(|(place, scheme)| calls(place, scheme)).fold(10.0, f64::max).log10().ceil();
    let most_used = all().map(|(_, scheme)| scheme.limit_use).fold(1.0, f64::max);
    let most_used = (most_used * 5.0).ceil() / 5.0;
    let panels: [(f64, f64, &str); 2] = [
        (84.0, 464.0, "store calls per second, by the number of nodes"),
        (556.0, 936.0, "part of the limit that was used, by the number of nodes"),
    ];
    for (panel, (left, right, name)) in panels.into_iter().enumerate() {
        let chart = Chart { left, right, top: TOP, bottom: BOTTOM, duration: 1 };
        text(&mut svg, (left, TOP - 12.0), &format!("font-size=\"12.5\" fill=\"{MUTED}\""), name);
        let x = |place: usize| left + 14.0 + (right - left - 28.0) * nodes(place).log10() / widest;
        let faint = "stroke=\"#e2e8f0\"";
        if panel == 0 {
            for decade in 0..=decades as u32 {
                let label = short(10_f64.powf(f64::from(decade)));
                chart.level(&mut svg, f64::from(decade) / decades, faint, &label);
            }
        } else {
            for part in 0..=(most_used * 5.0).round() as u32 {
                let label = format!("{} %", part * 20);
                chart.level(&mut svg, f64::from(part) / 5.0 / most_used, faint, &label);
            }
            let dashed = format!("stroke=\"{INK}\" stroke-width=\"1.2\" stroke-dasharray=\"5 4\"");
            chart.level(&mut svg, 1.0 / most_used, &dashed, "");
        }
        for scheme in schemes.iter().rev() {
            let mut points = Vec::new();
            for (place, found) in all().filter(|(_, found)| found.scheme == *scheme) {
                let part = match panel {
                    0 if found.calls.total() == 0 => continue, // there is no place for 0 on this scale
                    0 => calls(place, found).max(1.0).log10() / decades,
                    _ => found.limit_use / most_used,
                };
                points.push((x(place), BOTTOM - (BOTTOM - TOP) * part));
            }
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            draw_line(&mut svg, *scheme, &points);
        }
        let style = format!("font-size=\"11.5\" fill=\"{MUTED}\" text-anchor=\"middle\"");
        for place in 0..runs.len() {
            text(&mut svg, (x(place), BOTTOM + 20.0), &style, &number(nodes(place)));
        }
        text(&mut svg, (f64::midpoint(left, right), BOTTOM + 40.0), &style, "nodes");
    }
    svg.push_str("</svg>\n");
    svg
}

fn legend(svg: &mut String, schemes: &[Scheme]) {
    let mut x = MARGIN;
    for scheme in schemes {
        mark(svg, *scheme, (x + 6.0, 76.0));
        text(svg, (x + 18.0, 80.0), &format!("font-size=\"12.5\" fill=\"{INK}\""), title(*scheme));
        x += 36.0 + 7.2 * title(*scheme).len() as f64;
    }
}

fn draw_line(svg: &mut String, scheme: Scheme, points: &[(f64, f64)]) {
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let width = if scheme == Scheme::Lease { 2.6 } else { 1.5 };
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\"/>",
        path.join(" "),
        colour(scheme)
    );
    points.iter().for_each(|point| mark(svg, scheme, *point));
}

/// Each scheme has a shape, so that colours are not needed.
fn mark(svg: &mut String, scheme: Scheme, (x, y): (f64, f64)) {
    let path = match scheme {
        Scheme::Lease => format!("M{:.1} {y:.1}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0Z", x - 5.0),
        Scheme::Exact => format!("M{:.1} {:.1}h8v8h-8Z", x - 4.0, y - 4.0),
        Scheme::StaticSplit => format!("M{x:.1} {:.1}l5 9h-10Z", y - 5.0),
        Scheme::ReportAfterSpend => format!("M{x:.1} {:.1}l5 5l-5 5l-5 -5Z", y - 5.0),
        Scheme::RefuseAndWait => format!("M{x:.1} {:.1}l5 -9h-10Z", y + 5.0),
    };
    let _ = writeln!(svg, "<path d=\"{path}\" fill=\"{}\"/>", colour(scheme));
}
