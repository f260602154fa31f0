//! The table of limits.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::super::app::{App, Row, Sort};
use super::super::model::{Limit, Model};
use super::super::series::Rates;
use super::super::text::{bars, clipped, percent, rate, shown, total, width};
use super::Theme;

/// A column. Those that come first in [`Column::ALL`] are the last to be dropped where there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Name,
    Sorted(Sort),
    Algorithm,
    Hottest,
    Chart,
}

impl Column {
    const ALL: [Self; 12] = [
        Self::Name,
        Self::Sorted(Sort::DeniedRate),
        Self::Sorted(Sort::AllowedRate),
        Self::Sorted(Sort::Share),
        Self::Sorted(Sort::Denied),
        Self::Sorted(Sort::Allowed),
        Self::Sorted(Sort::Remaining),
        Self::Sorted(Sort::DelayedRate),
        Self::Hottest,
        Self::Algorithm,
        Self::Chart,
        Self::Sorted(Sort::Delayed),
    ];

    /// In the order in which they are shown.
    const ORDER: [Self; 12] = [
        Self::Name,
        Self::Algorithm,
        Self::Sorted(Sort::AllowedRate),
        Self::Sorted(Sort::DelayedRate),
        Self::Sorted(Sort::DeniedRate),
        Self::Sorted(Sort::Share),
        Self::Sorted(Sort::Allowed),
        Self::Sorted(Sort::Delayed),
        Self::Sorted(Sort::Denied),
        Self::Sorted(Sort::Remaining),
        Self::Hottest,
        Self::Chart,
    ];

    /// A key may be shown as a hash.
    const fn title(self, has_clear_names: bool) -> &'static str {
        match self {
            Self::Hottest if !has_clear_names => "HOTTEST (HASH)",
            Self::Name | Self::Sorted(Sort::Name) => "LIMIT",
            Self::Algorithm => "ALGORITHM",
            Self::Sorted(Sort::AllowedRate) => "● /s",
            Self::Sorted(Sort::DelayedRate) => "◔ /s",
            Self::Sorted(Sort::DeniedRate) => "× /s",
            Self::Sorted(Sort::Share) => "× %",
            Self::Sorted(Sort::Allowed) => "ALLOWED",
            Self::Sorted(Sort::Delayed) => "DELAYED",
            Self::Sorted(Sort::Denied) => "DENIED",
            Self::Sorted(Sort::Remaining) => "LEFT",
            Self::Hottest => "HOTTEST KEY",
            Self::Chart => "LAST MINUTES",
        }
    }

    /// Texts begin at the left, and numbers end at the right.
    const fn is_text(self) -> bool {
        matches!(self, Self::Name | Self::Algorithm | Self::Hottest | Self::Chart)
    }

    /// The narrowest and the widest that it can be.
    const fn bounds(self) -> (usize, usize) {
        match self {
            Self::Name => (10, 32),
            Self::Algorithm => (14, 40),
            Self::Hottest => (14, 32),
            Self::Chart => (12, 60),
            Self::Sorted(_) => (4, 14),
        }
    }

    fn cell(self, limit: &Limit, rates: Option<Rates>, theme: Theme) -> (String, Style) {
        let totals = limit.recent.totals();
        let of_rate = |number: fn(&Rates) -> f64, style: Style| match rates.as_ref().map(number) {
            Some(number) if number > 0.0 => (rate(number), style),
            Some(_) => ("0".to_owned(), theme.muted()),
            None => ("–".to_owned(), theme.muted()),
        };
        let of_total = |number: u64| (total(number), if number > 0 { Style::new() } else { theme.muted() });
        let denied = if limit.is_shadow { theme.muted() } else { theme.denied() };
        match self {
            Self::Name | Self::Sorted(Sort::Name) => (name(limit), Style::new()),
            Self::Algorithm => (format!("{} {}", limit.algorithm, limit.numbers), theme.muted()),
            Self::Sorted(Sort::AllowedRate) => of_rate(|rates| rates.allowed, theme.allowed()),
            Self::Sorted(Sort::DelayedRate) => of_rate(|rates| rates.delayed, theme.delayed()),
            Self::Sorted(Sort::DeniedRate) => of_rate(|rates| rates.denied, denied),
            Self::Sorted(Sort::Share) => match rates.and_then(|rates| rates.denied_share()) {
                Some(share) => (percent(share), if share > 0.0 { denied } else { theme.muted() }),
                None => ("–".to_owned(), theme.muted()),
            },
            Self::Sorted(Sort::Allowed) => of_total(totals.allowed),
            Self::Sorted(Sort::Delayed) => of_total(totals.delayed),
            Self::Sorted(Sort::Denied) => of_total(totals.denied),
            Self::Sorted(Sort::Remaining) => match limit.remaining_p50 {
                Some(part) => (percent(part), Style::new()),
                None => ("–".to_owned(), theme.muted()),
            },
            // Of a limit that denies, the key that it denies matters, and not one that has enough.
            Self::Hottest => {
                let is_denying = rates.is_some_and(|rates| rates.denied > 0.0);
                let hottest = is_denying.then(|| limit.hottest("denials")).flatten();
                match hottest.map(|key| ("× ", key)).or_else(|| Some(("", limit.hottest("hits")?))) {
                    Some((mark, (key, share))) => (format!("{mark}{key} {}", percent(share)), Style::new()),
                    None => ("–".to_owned(), theme.muted()),
                }
            }
            Self::Chart => (String::new(), theme.muted()),
        }
    }
}

/// The name, as `tollgate check` shows it.
fn name(limit: &Limit) -> String {
    if limit.is_shadow { format!("{} (shadow)", limit.label) } else { limit.label.clone() }
}

/// The head and the rows, at most `most` of them.
pub(super) fn lines<'a>(
    app: &App,
    model: &Model,
    rows: &[Row<'_>],
    theme: Theme,
    columns: usize,
    most: usize,
) -> Vec<Line<'a>> {
    let selected = app.selected_row(rows);
    let visible: Vec<_> = rows.iter().skip(app.top).take(most).collect();
    let widths = widths(app, model, &visible, columns, theme);
    let mut lines = vec![head(app, model, &widths, theme)];
    for (row, (limit, rates)) in visible.iter().enumerate() {
        let is_selected = app.top + row == selected;
        let mark = if is_selected { "›" } else { " " };
        let mut line = Line::from(Span::raw(mark));
        for (column, width) in &widths {
            let (text, style) = match column {
                Column::Chart => (chart(limit, *width), theme.muted()),
                _ => column.cell(limit, *rates, theme),
            };
            // A reversed row of one style: dimmed cells would be patches in it.
            let style = if is_selected { Style::new() } else { style };
            line.push_span(Span::raw(if line.spans.len() > 1 { "  " } else { "" }));
            line.push_span(Span::styled(padded(&text, *width, column.is_text()), style));
        }
        if is_selected {
            line.push_span(Span::raw(" ".repeat(columns.saturating_sub(line.width()))));
            line = line.patch_style(theme.selected());
        }
        lines.push(line);
    }
    if rows.is_empty() {
        let text = if model.limits.is_empty() {
            "The policy has no limits.".to_owned()
        } else {
            format!("No name of a limit contains `{}`. Esc clears the filter.", shown(&app.filter))
        };
        lines.push(Line::raw(format!(" {text}")));
    }
    lines.resize(most + 1, Line::default());
    lines
}

fn head<'a>(app: &App, model: &Model, widths: &[(Column, usize)], theme: Theme) -> Line<'a> {
    let mut line = Line::from(Span::raw(" "));
    for (column, width) in widths {
        let is_sorted = is_sorted_by(app, *column);
        let mark = match (is_sorted, app.is_reversed != is_ascending(app.sort)) {
            (false, _) => "",
            (true, false) => "▼",
            (true, true) => "▲",
        };
        let text = format!("{}{mark}", column.title(model.has_clear_names));
        line.push_span(Span::raw(if line.spans.len() > 1 { "  " } else { "" }));
        let style = if is_sorted { theme.strong() } else { theme.muted() };
        line.push_span(Span::styled(padded(&text, *width, column.is_text()), style));
    }
    line
}

fn is_sorted_by(app: &App, column: Column) -> bool {
    column == Column::Sorted(app.sort) || (column == Column::Name && app.sort == Sort::Name)
}

/// Whether the smallest is first unless reversed.
const fn is_ascending(sort: Sort) -> bool {
    matches!(sort, Sort::Name | Sort::Remaining)
}

/// The columns that fit, with their widths.
fn widths(app: &App, model: &Model, rows: &[&Row<'_>], columns: usize, theme: Theme) -> Vec<(Column, usize)> {
    let has_delays = model.limits.iter().any(|limit| limit.recent.totals().delayed > 0);
    let is_sorted = |column: &Column| is_sorted_by(app, *column);
    let mut by_priority = Column::ALL;
    by_priority.sort_by_key(|column| *column != Column::Name && !is_sorted(column));
    let (mut chosen, mut taken) = (Vec::new(), 1);
    for column in by_priority {
        let of_delays = matches!(column, Column::Sorted(Sort::DelayedRate | Sort::Delayed));
        if of_delays && !has_delays && !is_sorted(&column) {
            continue;
        }
        let (least, most) = column.bounds();
        let title = width(column.title(model.has_clear_names)) + usize::from(is_sorted(&column));
        let wanted = match column {
            Column::Chart => most,
            _ => rows
                .iter()
                .map(|(limit, rates)| width(&column.cell(limit, *rates, theme).0))
                .max()
                .unwrap_or(0),
        };
        let wanted = wanted.max(title).clamp(least, most.max(title));
        // A long name leaves room for the numbers that matter most.
        let wanted = if column == Column::Name { wanted.min((columns * 2 / 5).max(least)) } else { wanted };
        let gap = if chosen.is_empty() { 0 } else { 2 };
        let room = columns.saturating_sub(taken + gap);
        // Numbers are shown whole or not at all. Texts may be cut.
        let width = if column.is_text() { wanted.min(room) } else { wanted };
        if width < least.min(wanted) || width > room {
            continue;
        }
        chosen.push((column, width));
        taken += gap + width;
    }
    let longest = rows.iter().map(|(limit, _)| width(&name(limit))).max().unwrap_or(0);
    if let Some((_, name)) = chosen.first_mut() {
        *name += columns.saturating_sub(taken).min(longest.saturating_sub(*name));
    }
    Column::ORDER.iter().filter_map(|column| chosen.iter().find(|(of, _)| of == column).copied()).collect()
}

/// Requests and denials in the last steps, as many as fit.
fn chart(limit: &Limit, width: usize) -> String {
    let steps = &limit.history.all;
    let last = steps.iter().skip(steps.len().saturating_sub(width));
    let values: Vec<Option<u64>> = last.map(|step| step.map(|step| step.allowed + step.denied)).collect();
    let bars = bars(&values, 1).remove(0);
    format!("{}{bars}", " ".repeat(width - values.len()))
}

fn padded(text: &str, columns: usize, is_text: bool) -> String {
    let text = clipped(text, columns);
    let pad = " ".repeat(columns.saturating_sub(width(&text)));
    if is_text { text + &pad } else { pad + &text }
}
