//! Draws the screen from its state only.

mod detail;
mod help;
mod panels;
mod pulse;
mod table;
#[cfg(test)]
mod tests;

use std::time::Instant;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::app::{App, Row};
use super::model::Model;
use super::text::{clipped, width};

/// The smallest terminal in which something can be read.
const LEAST: (u16, u16) = (24, 5);

/// Styles. Without colour, everything can still be read.
#[derive(Clone, Copy, Debug)]
struct Theme {
    has_color: bool,
}

impl Theme {
    fn colored(self, color: Color) -> Style {
        if self.has_color { Style::new().fg(color) } else { Style::new() }
    }

    fn allowed(self) -> Style {
        self.colored(Color::Blue)
    }

    fn delayed(self) -> Style {
        self.colored(Color::Magenta)
    }

    fn denied(self) -> Style {
        self.colored(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn warning(self) -> Style {
        self.colored(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    fn muted(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App, now: Instant) {
    let area = frame.area();
    let theme = Theme { has_color: app.has_color };
    let buffer = frame.buffer_mut();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let (width, height) = LEAST;
        put(buffer, area, 0, &Line::raw(format!("needs {width} x {height}")));
        return;
    }
    if app.model().is_none() {
        return put(buffer, area, 0, &Line::raw("Waiting for the first frame of the service."));
    }
    if !app.is_helping && app.detail.is_none() {
        let rows = app.model().map_or(0, |model| Plan::new(area.height, model).rows);
        app.scroll(rows);
    }
    let app = &*app;
    let Some(model) = app.model() else { return };
    put(buffer, area, 0, &panels::header(app, model, theme, now, usize::from(area.width)));
    let last = area.height - 1;
    let rows = app.rows();
    put(buffer, area, last, &panels::footer(app, model, rows.len(), theme, usize::from(area.width)));
    let body = Rect { y: area.y + 1, height: area.height - 2, ..area };
    if app.is_helping {
        return put_all(buffer, body, &help::lines(theme));
    }
    match &app.detail {
        Some(detail) => {
            let lines = detail::lines(model, detail, theme, usize::from(body.width));
            // The last line can be scrolled to the last row, and not beyond.
            let skipped = detail.scroll.min(lines.len().saturating_sub(usize::from(body.height)));
            put_all(buffer, body, &lines[skipped..]);
        }
        None => draw_overview(buffer, body, app, model, &rows, theme, now),
    }
}

/// How the lines of the overview are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    has_second_line: bool, // of the pulse
    chart: usize,          // lines of the chart of allowed requests
    small_charts: bool,    // of delayed and denied ones
    has_space: bool,       // between the parts
    rows: usize,
    panels: usize,
    events: usize,
}

impl Plan {
    /// `height` is that of the terminal.
    fn new(height: u16, model: &Model) -> Self {
        let height = usize::from(height);
        // Header, sentence, first line of the pulse, head of the table, footer.
        let mut free = height.saturating_sub(5);
        let wanted = model.limits.len().max(1);
        let mut take = |lines: usize, rows_left: usize| {
            let fits = free >= lines + wanted.min(rows_left);
            if fits {
                free -= lines;
            }
            fits
        };
        let has_second_line = take(1, 4);
        let small_charts = take(if model.delay_is_used() { 3 } else { 2 }, 6);
        let has_space = take(2, 8);
        let panels = panels::count_lines(model);
        let panels = if take(panels, 6) { panels } else { 0 };
        let events = model.events.len();
        let events = [4, 2, 1].into_iter().find(|most| events > 0 && take(events.min(*most), 8));
        let taller = small_charts && take(2, 12);
        let chart = usize::from(small_charts) + if taller { 2 } else { 0 };
        let events = events.map_or(0, |most| model.events.len().min(most));
        // Lines that no limit needs make the chart taller.
        let spare = if taller { free.saturating_sub(wanted).min(4) } else { 0 };
        free -= spare;
        Self { has_second_line, chart: chart + spare, small_charts, has_space, rows: free, panels, events }
    }
}

fn draw_overview(
    buffer: &mut Buffer,
    area: Rect,
    app: &App,
    model: &Model,
    rows: &[Row<'_>],
    theme: Theme,
    now: Instant,
) {
    let plan = Plan::new(area.height + 2, model);
    let columns = usize::from(area.width);
    let mut lines = vec![pulse::sentence(app, model, theme, now)];
    let numbers = pulse::numbers(model, theme, columns);
    lines.extend(numbers.into_iter().take(1 + usize::from(plan.has_second_line)));
    if plan.small_charts {
        lines.extend(pulse::charts(model, theme, columns, plan.chart));
    }
    if plan.has_space {
        lines.push(Line::default());
    }
    lines.extend(table::lines(app, model, rows, theme, columns, plan.rows));
    if plan.has_space {
        lines.push(Line::default());
    }
    lines.extend(panels::lines(model, theme).into_iter().take(plan.panels));
    lines.extend(panels::events(model, theme, plan.events));
    put_all(buffer, area, &lines);
}

/// Writes a line of the area.
fn put(buffer: &mut Buffer, area: Rect, row: u16, line: &Line<'_>) {
    if row >= area.height {
        return;
    }
    let line = cut(line, usize::from(area.width));
    buffer.set_line(area.x, area.y + row, &line, area.width);
}

fn put_all(buffer: &mut Buffer, area: Rect, lines: &[Line<'_>]) {
    for (row, line) in (0..area.height).zip(lines) {
        put(buffer, area, row, line);
    }
}

/// A line that ends with `…` where it is too long.
fn cut<'a>(line: &Line<'a>, most: usize) -> Line<'a> {
    if line.width() <= most {
        return line.clone();
    }
    let mut left = most;
    let mut spans: Vec<Span<'a>> = Vec::new();
    for span in &line.spans {
        let columns = span.width();
        // The last column is for the ellipsis.
        if columns < left {
            left -= columns;
            spans.push(span.clone());
            continue;
        }
        let text = if columns == left {
            format!("{}…", clipped_hard(&span.content, left - 1))
        } else {
            clipped(&span.content, left)
        };
        spans.push(Span::styled(text, span.style));
        break;
    }
    Line { spans, ..line.clone() }
}

/// At most `most` columns of a text, without a sign that it was cut.
fn clipped_hard(text: &str, most: usize) -> String {
    let mut taken = 0;
    let fits = |letter: &char| {
        taken += width(letter.encode_utf8(&mut [0; 4]));
        taken <= most
    };
    text.chars().take_while(fits).collect()
}

/// Parts side by side, as many as fit.
fn joined<'a>(parts: Vec<Vec<Span<'a>>>, columns: usize) -> Line<'a> {
    let mut line = Line::default();
    for part in parts {
        let gap = if line.spans.is_empty() { 0 } else { 3 };
        let needed: usize = part.iter().map(Span::width).sum();
        if line.width() + gap + needed > columns && gap > 0 {
            break;
        }
        if gap > 0 {
            line.push_span(Span::raw(" ".repeat(gap)));
        }
        line.extend(part);
    }
    line
}

/// Texts at both ends of a line. The right one is kept where there is no room for both.
fn justified<'a>(left: Line<'a>, right: Line<'a>, columns: usize) -> Line<'a> {
    let right = cut(&right, columns);
    let room = columns.saturating_sub(right.width() + 2);
    let mut line = if right.width() == 0 { cut(&left, columns) } else { cut(&left, room) };
    let gap = columns.saturating_sub(line.width() + right.width());
    line.push_span(Span::raw(" ".repeat(gap)));
    line.extend(right.spans);
    line
}
