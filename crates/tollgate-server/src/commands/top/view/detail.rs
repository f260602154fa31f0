//! One limit: its numbers, its last 15 minutes, its hot keys.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::super::app::Detail;
use super::super::frame::{HotList, HotLists, Step};
use super::super::model::{Limit, Model, key_label};
use super::super::series::Steps;
use super::super::text::{clipped, count, percent, rate, shown, width};
use super::{Theme, joined, pulse};

/// The orders of hot keys, with their titles.
const ORDERS: [(&str, &str); 4] =
    [("hits", "REQUESTS"), ("denials", "DENIALS"), ("tokens", "TOKENS"), ("newly_denied", "NEWLY DENIED")];

/// The columns of a list of keys, and the space between two.
const LIST: usize = 38;
const GAP: usize = 3;

pub(super) fn lines<'a>(model: &Model, detail: &Detail, theme: Theme, columns: usize) -> Vec<Line<'a>> {
    let Some(limit) = model.limit(&detail.name) else {
        return vec![Line::raw(format!(
            "The policy no longer has the limit `{}`. Esc goes back.",
            shown(&detail.name)
        ))];
    };
    let mut lines = vec![title(limit, theme)];
    lines.extend(rule(limit, theme));
    lines.push(Line::styled(sentence(limit, model), theme.strong()));
    lines.extend(numbers(limit, model, theme, columns));
    lines.push(Line::default());
    lines.extend(history(detail.history.as_ref().unwrap_or(&limit.history), limit, model, theme, columns));
    lines.push(Line::default());
    if let Some(fault) = &detail.fault {
        lines.push(Line::styled(format!("Not up to date: {fault}"), theme.warning()));
    }
    lines.extend(hot_keys(detail.hot.as_ref().unwrap_or(&limit.hot), model, theme, columns));
    lines
}

fn title<'a>(limit: &Limit, theme: Theme) -> Line<'a> {
    let shadow = if limit.is_shadow { " (shadow: denies nothing)" } else { "" };
    Line::from(vec![
        Span::styled(limit.label.clone(), theme.strong()),
        Span::raw(format!("{shadow}  {} {}", limit.algorithm, limit.numbers)),
    ])
}

/// What the limit counts, and its tiers.
fn rule<'a>(limit: &Limit, theme: Theme) -> Vec<Line<'a>> {
    let matches = if limit.matches.is_empty() { "every request" } else { limit.matches.as_str() };
    let mut lines = vec![Line::styled(format!("key {}; match {matches}", limit.key), theme.muted())];
    if !limit.tiers.is_empty() {
        lines.push(Line::styled(format!("tiers {}", limit.tiers.join("; ")), theme.muted()));
    }
    lines
}

fn sentence(limit: &Limit, model: &Model) -> String {
    let would = if limit.is_shadow { "would be denied" } else { "denied" };
    match limit.recent.rates(model.now) {
        None => "Measuring: rates are known after two frames.".to_owned(),
        Some(rates) if rates.requests() <= 0.0 => "No requests in the last 5 seconds.".to_owned(),
        Some(rates) if rates.denied <= 0.0 => {
            format!("{} requests per second, none {would}.", rate(rates.requests()))
        }
        Some(rates) => {
            let share = percent(rates.denied_share().unwrap_or(0.0));
            format!(
                "{} of {} requests per second {would} ({share}).",
                rate(rates.denied),
                rate(rates.requests())
            )
        }
    }
}

fn numbers<'a>(limit: &Limit, model: &Model, theme: Theme, columns: usize) -> Vec<Line<'a>> {
    let (rates, totals) = (limit.recent.rates(model.now).unwrap_or_default(), limit.recent.totals());
    let part = |mark: &str, style, now: f64, all: u64, word: &str| {
        let style = if now > 0.0 { style } else { theme.muted() };
        vec![
            Span::styled(format!("{mark} {}/s", rate(now)), style),
            Span::raw(format!(" {word}, {} in all", count(all))),
        ]
    };
    let denied = if limit.is_shadow { "would be denied" } else { "denied" };
    let requests = vec![
        part("●", theme.allowed(), rates.allowed, totals.allowed, "allowed"),
        part("×", theme.denied(), rates.denied, totals.denied, denied),
        part("◔", theme.delayed(), rates.delayed, totals.delayed, "delayed"),
    ];
    let mut inside = Vec::new();
    if limit.is_shadow {
        inside.push(part("×", theme.denied(), rates.newly_denied, totals.newly_denied, "newly denied"));
    }
    inside.push(vec![Span::raw(format!("{} tokens, {}/s", count(totals.tokens), rate(rates.tokens)))]);
    inside.push(vec![Span::raw(match (limit.remaining_p50, limit.remaining_p95) {
        (Some(p50), Some(p95)) => format!("left: median {}, p95 {}", percent(p50), percent(p95)),
        _ => "left: not known yet".to_owned(),
    })]);
    let mut lines = vec![joined(requests, columns), joined(inside, columns)];
    if limit.is_shadow {
        let text = "Newly denied requests are those that every other limit allowed.";
        lines.push(Line::styled(text, theme.muted()));
    }
    lines
}

fn history<'a>(steps: &Steps, limit: &Limit, model: &Model, theme: Theme, columns: usize) -> Vec<Line<'a>> {
    let has_delays = limit.recent.totals().delayed > 0;
    let chart = |height: usize, mark, number: fn(&Step) -> u64| {
        pulse::chart(steps, model.step, columns, height, mark, theme, number)
    };
    let mut lines = chart(3, ("●", theme.allowed()), |step| step.allowed);
    if has_delays {
        lines.extend(chart(1, ("◔", theme.delayed()), |step| step.delayed));
    }
    lines.extend(chart(2, ("×", theme.denied()), |step| step.denied));
    if limit.is_shadow {
        lines.extend(chart(1, ("n", theme.denied()), |step| step.newly_denied));
    }
    lines
}

/// The lists of hot keys, side by side where there is room.
fn hot_keys<'a>(lists: &HotLists, model: &Model, theme: Theme, columns: usize) -> Vec<Line<'a>> {
    let known: Vec<(&str, &HotList)> = ORDERS
        .iter()
        .filter_map(|(order, title)| Some((*title, lists.get(*order)?)))
        .filter(|(_, list)| !list.keys.is_empty())
        .collect();
    if known.is_empty() {
        return vec![Line::styled("No hot keys: no requests in the last 5 to 10 minutes.", theme.muted())];
    }
    let note = "Hot keys of the last 5 to 10 minutes. ≤ marks the largest error of a count.";
    let mut lines = vec![Line::styled(note, theme.muted())];
    if !model.has_clear_names {
        lines.push(Line::styled("Key names are hashes: pass --token-file to see the names.", theme.muted()));
    }
    let side_by_side = ((columns + GAP) / (LIST + GAP)).clamp(1, known.len());
    let each = (columns + GAP) / side_by_side - GAP;
    for lists in known.chunks(side_by_side) {
        let rows = lists.iter().map(|(_, list)| list.keys.len()).max().unwrap_or(0);
        let line = |cells: Vec<String>, style: Style| Line::styled(cells.join(&" ".repeat(GAP)), style);
        let head = |(title, list): &(&str, &HotList)| {
            cell(&format!("BY {title}"), &format!("{} in all", count(list.total)), each)
        };
        lines.push(line(lists.iter().map(head).collect(), theme.strong()));
        for row in 0..rows {
            let cells = lists.iter().map(|(_, list)| key_cell(list, row, each)).collect();
            lines.push(line(cells, Style::new()));
        }
        lines.push(Line::default());
    }
    lines
}

fn key_cell(list: &HotList, row: usize, columns: usize) -> String {
    let Some(key) = list.keys.get(row) else { return " ".repeat(columns) };
    let error = if key.error > 0 { format!(" ≤{}", count(key.error)) } else { String::new() };
    let share = percent(key.count as f64 / list.total.max(1) as f64);
    cell(&key_label(&key.key), &format!("{}{error} {share:>5}", count(key.count)), columns)
}

/// A text at the left and a number at the right of a cell.
fn cell(text: &str, number: &str, columns: usize) -> String {
    let text = clipped(text, columns.saturating_sub(width(number) + 1));
    let pad = columns.saturating_sub(width(&text) + width(number));
    format!("{text}{}{number}", " ".repeat(pad))
}
