//! All requests: a sentence, numbers and charts.

use std::time::Instant;

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::super::app::{App, Connection};
use super::super::frame::Step;
use super::super::model::{Limit, Model};
use super::super::series::{Steps, WINDOW};
use super::super::text::{bars, bytes, count, percent, rate, seconds, span};
use super::{Theme, joined};

impl Model {
    /// Whether requests were delayed since the start of the service.
    pub(super) fn delay_is_used(&self) -> bool {
        self.requests.totals().delayed > 0
    }
}

/// What matters most now.
pub(super) fn sentence<'a>(app: &App, model: &Model, theme: Theme, now: Instant) -> Line<'a> {
    if let Connection::Lost { since, why } = &app.connection {
        let seconds = now.saturating_duration_since(*since).as_secs();
        let text = format!("Connection lost {} ago, trying again. The numbers are old. {why}", span(seconds));
        return Line::styled(text, theme.warning());
    }
    Line::styled(denials(model), theme.strong())
}

/// What is denied now, in one sentence.
fn denials(model: &Model) -> String {
    if model.requests.totals().requests() == 0 {
        return "No requests yet: send one to POST /v1/check, or try `tollgate serve --demo`.".to_owned();
    }
    let Some(rates) = model.requests.rates(model.now) else {
        return "Measuring: rates are known after two frames.".to_owned();
    };
    let requests = rates.requests();
    if requests <= 0.0 {
        return format!("No requests in the last {WINDOW} seconds.");
    }
    if rates.denied <= 0.0 {
        return format!("{} requests per second, none denied.", rate(requests));
    }
    let denied = |limit: &Limit| limit.recent.rates(model.now).map_or(0.0, |rates| rates.denied);
    let counting = model.limits.iter().filter(|limit| !limit.is_shadow);
    let mut denying: Vec<(f64, &Limit)> =
        counting.map(|limit| (denied(limit), limit)).filter(|(denied, _)| *denied > 0.0).collect();
    denying.sort_by(|a, b| b.0.total_cmp(&a.0));
    let all: f64 = denying.iter().map(|(denied, _)| denied).sum();
    let by = match denying.as_slice() {
        [] => String::new(),
        [(_, only)] => format!(", all by `{}`", only.label),
        [(most, first), ..] if *most * 2.0 > all => format!(", most by `{}`", first.label),
        [(_, first), (_, second), ..] => format!(", the most by `{}` and `{}`", first.label, second.label),
    };
    format!("{} of {} requests per second denied{by}.", rate(rates.denied), rate(requests))
}

/// Two lines of numbers: requests; and decisions, keys and memory.
pub(super) fn numbers<'a>(model: &Model, theme: Theme, columns: usize) -> [Line<'a>; 2] {
    let rates = model.requests.rates(model.now).unwrap_or_default();
    let number = |mark: &'static str, style: Style, number: f64, word: &str| {
        let style = if number > 0.0 { style } else { theme.muted() };
        vec![Span::styled(format!("{mark} {}/s", rate(number)), style), Span::raw(format!(" {word}"))]
    };
    let mut requests = vec![
        number("●", theme.allowed(), rates.allowed, "allowed"),
        number("×", theme.denied(), rates.denied, "denied"),
        number("◔", theme.delayed(), rates.delayed, "delayed"),
        vec![Span::raw(format!("429: {}", percent(rates.denied_share().unwrap_or(0.0))))],
    ];
    if rates.errors > 0.0 {
        requests.push(number("!", theme.warning(), rates.errors, "refused as malformed"));
    }
    if model.sent_rules.requests() > 0 {
        let Model { sent_rules, .. } = model;
        let (allowed, denied) = (count(sent_rules.allowed), count(sent_rules.denied));
        requests.push(vec![Span::styled(
            format!("sent rules: {allowed} allowed, {denied} denied"),
            theme.muted(),
        )]);
    }
    [joined(requests, columns), joined(inside(model, theme), columns)]
}

/// Decisions, keys, memory and warnings of the process.
fn inside<'a>(model: &Model, theme: Theme) -> Vec<Vec<Span<'a>>> {
    let plain = |text: String| vec![Span::raw(text)];
    let warning = |text: String| vec![Span::styled(text, theme.warning())];
    let mut parts = Vec::new();
    if let Some(part) = model.multiplier.filter(|part| *part < 1.0) {
        parts.push(warning(format!("rates reduced to {}", percent(part))));
    }
    match model.decision {
        Some(decision) => {
            let (p50, p99) = (seconds(decision.p50), seconds(decision.p99));
            parts.push(plain(format!("decision p50 {p50}, p99 {p99}")));
        }
        None => parts.push(plain("decision –".to_owned())),
    }
    parts.push(plain(format!("{} keys", count(model.keys))));
    parts.push(plain(match model.max_bytes {
        Some(most) => format!("{} of {}", bytes(model.bytes), bytes(most)),
        None => bytes(model.bytes),
    }));
    if model.delay.waiting > 0 {
        let wait = model.delay.p95.map(|p95| format!(", p95 {}", seconds(p95))).unwrap_or_default();
        parts.push(plain(format!("{} wait now{wait}", count(model.delay.waiting))));
    }
    if model.evictions > 0 {
        parts.push(warning(format!("{} keys evicted", count(model.evictions))));
    }
    if model.refused > 0 {
        parts.push(warning(format!("{} requests found no room for a key", count(model.refused))));
    }
    match model.recording {
        Some(true) => parts.push(plain("recording".to_owned())),
        Some(false) => parts.push(warning("recording has ended".to_owned())),
        None => {}
    }
    parts
}

/// Bars of the last minutes: allowed in `height` lines, delayed and denied in one each.
pub(super) fn charts<'a>(model: &Model, theme: Theme, columns: usize, height: usize) -> Vec<Line<'a>> {
    let mut lines =
        chart(&model.history, model.step, columns, height, ("●", theme.allowed()), theme, |step| {
            step.allowed
        });
    if model.delay_is_used() {
        lines.extend(chart(&model.history, model.step, columns, 1, ("◔", theme.delayed()), theme, |step| {
            step.delayed
        }));
    }
    lines.extend(chart(&model.history, model.step, columns, 1, ("×", theme.denied()), theme, |step| {
        step.denied
    }));
    lines
}

/// One chart: its mark, its bars with the newest step at the right, and what the highest bar is.
pub(super) fn chart<'a>(
    steps: &Steps,
    step_seconds: f64,
    columns: usize,
    height: usize,
    (mark, style): (&'static str, Style),
    theme: Theme,
    number: impl Fn(&Step) -> u64,
) -> Vec<Line<'a>> {
    let label_columns = if columns < 70 { 15 } else { 24 };
    let room = columns.saturating_sub(2 + label_columns).max(1);
    // Bars of several steps, where that shows all of them; the last bar ends with the last step.
    let group = steps.all.len().div_ceil(room).max(1);
    let lead = (group - steps.all.len() % group) % group;
    let all: Vec<Option<u64>> = std::iter::repeat_n(None, lead)
        .chain(steps.all.iter().map(|step| step.as_ref().map(&number)))
        .collect();
    let values: Vec<Option<u64>> =
        all.chunks(group).map(|part| part.iter().flatten().copied().reduce(|a, b| a + b)).collect();
    let most = values.iter().flatten().copied().max().unwrap_or(0);
    #[expect(clippy::cast_sign_loss, reason = "histories have at least no steps")]
    let time = (steps.all.len() as f64 * step_seconds) as u64;
    let label = match steps.all.len() {
        0 => "no steps yet".to_owned(),
        _ => {
            let most = rate(most as f64 / (group as f64 * step_seconds));
            let time = if time < 120 { time } else { time / 60 * 60 };
            if columns < 70 { format!("max {most}/s") } else { format!("max {most}/s in {}", span(time)) }
        }
    };
    let style = if most > 0 { style } else { theme.muted() };
    let rows = bars(&values, height);
    let last = rows.len().saturating_sub(1);
    rows.into_iter()
        .enumerate()
        .map(|(row, bars)| {
            let pad = " ".repeat(room.saturating_sub(values.len()));
            let (mark, label) = if row == last { (mark, label.as_str()) } else { (" ", "") };
            Line::from(vec![
                Span::styled(format!("{mark} "), style),
                Span::styled(format!("{pad}{bars}"), style),
                Span::styled(format!(" {label}"), theme.muted()),
            ])
        })
        .collect()
}
