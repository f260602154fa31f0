//! What the screen shows and what keys change in it.

use std::time::Instant;

use super::frame::{Frame, HotLists};
use super::keys::Key;
use super::model::{Limit, Model};
use super::series::{Rates, Steps};
use super::text::shown;

/// The longest filter.
const MOST_FILTER: usize = 64;

/// The screen.
#[derive(Debug)]
pub(super) struct App {
    pub(super) address: String,
    pub(super) connection: Connection,
    pub(super) has_color: bool,
    pub(super) sort: Sort,
    pub(super) is_reversed: bool,
    pub(super) filter: String,
    pub(super) is_typing: bool,
    pub(super) is_helping: bool,
    pub(super) detail: Option<Detail>,
    /// The selected limit. None: the first one.
    pub(super) selected: Option<String>,
    pub(super) top: usize, // the first row of the table that is shown
    page: usize,           // rows of the table that are shown
    model: Option<Model>,
    paused: Option<Box<Model>>,
    is_another_stream: bool, // and its first frame has not come yet
}

/// Whether the service answers.
#[derive(Clone, Debug)]
pub(super) enum Connection {
    Connected { since: Instant },
    Lost { since: Instant, why: String },
}

/// One limit.
#[derive(Debug, Default)]
pub(super) struct Detail {
    pub(super) name: String,
    pub(super) history: Option<Steps>,
    pub(super) hot: Option<HotLists>,
    /// Why there are no newer keys and steps.
    pub(super) fault: Option<String>,
    pub(super) scroll: usize,
}

/// A row of the table. It has no rates while only one frame is known.
pub(super) type Row<'a> = (&'a Limit, Option<Rates>);

/// What the rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Sort {
    Name,
    AllowedRate,
    DelayedRate,
    DeniedRate,
    Share,
    Allowed,
    Delayed,
    Denied,
    Remaining,
}

impl Sort {
    /// In the order of the columns.
    pub(super) const ALL: [Self; 9] = [
        Self::Name,
        Self::AllowedRate,
        Self::DelayedRate,
        Self::DeniedRate,
        Self::Share,
        Self::Allowed,
        Self::Delayed,
        Self::Denied,
        Self::Remaining,
    ];

    fn moved(self, by: isize) -> Self {
        let place = Self::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        let count = Self::ALL.len();
        Self::ALL[(place + count).saturating_add_signed(by) % count]
    }
}

/// What a key asks for, beyond the screen itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    Quit,
    Suspend,
    /// Draw everything again.
    Redraw,
    /// Get the keys and the history of the limit.
    LoadDetail,
}

impl App {
    pub(super) fn new(address: &str, now: Instant, has_color: bool) -> Self {
        Self {
            address: address.to_owned(),
            connection: Connection::Connected { since: now },
            has_color,
            sort: Sort::DeniedRate,
            is_reversed: false,
            filter: String::new(),
            is_typing: false,
            is_helping: false,
            detail: None,
            selected: None,
            top: 0,
            page: 1,
            model: None,
            paused: None,
            is_another_stream: false,
        }
    }

    /// Adds a frame.
    pub(super) fn add(&mut self, frame: Frame) {
        let known = self.model.take();
        // Rates do not continue across a gap: another service may answer.
        let known = if std::mem::take(&mut self.is_another_stream) { None } else { known };
        self.model = Model::follow(known, frame);
    }

    /// The connection was opened again. `start` follows.
    pub(super) fn connected(&mut self, now: Instant) {
        self.connection = Connection::Connected { since: now };
        self.is_another_stream = true;
    }

    /// The connection was lost.
    pub(super) fn lost(&mut self, now: Instant, why: &str) {
        let since = match &self.connection {
            Connection::Lost { since, .. } => *since,
            Connection::Connected { .. } => now,
        };
        self.connection = Connection::Lost { since, why: first_line(why) };
    }

    /// Adds the history and the keys of a limit, or why they are missing.
    pub(super) fn add_detail(&mut self, name: &str, result: Result<(Steps, HotLists), String>) {
        let Some(detail) = self.detail.as_mut().filter(|detail| detail.name == name) else { return };
        match result {
            Ok((history, hot)) => {
                (detail.history, detail.hot, detail.fault) = (Some(history), Some(hot), None);
            }
            Err(fault) => detail.fault = Some(first_line(&fault)),
        }
    }

    /// What is shown: the present, or the moment of the pause.
    pub(super) fn model(&self) -> Option<&Model> {
        self.paused.as_deref().or(self.model.as_ref())
    }

    /// The seconds since the pause.
    pub(super) fn paused_for(&self) -> Option<u64> {
        let now = self.model.as_ref().map_or(0.0, |model| model.now);
        self.paused.as_ref().map(|paused| {
            #[expect(clippy::cast_sign_loss, reason = "it is at least 0")]
            let seconds = (now - paused.now).max(0.0) as u64;
            seconds
        })
    }

    /// The rows of the table: limits that the filter lets through, sorted.
    pub(super) fn rows(&self) -> Vec<Row<'_>> {
        let Some(model) = self.model() else { return Vec::new() };
        let filter = self.filter.to_lowercase();
        let mut rows: Vec<Row<'_>> = model
            .limits
            .iter()
            .filter(|limit| filter.is_empty() || limit.label.to_lowercase().contains(&filter))
            .map(|limit| (limit, limit.recent.rates(model.now)))
            .collect();
        // The last columns decide between equal rows, and then the order of the policy.
        let by_use = |(limit, rates): &Row<'_>| {
            let (rates, totals) = (rates.unwrap_or_default(), limit.recent.totals());
            [rates.denied, totals.denied as f64, rates.allowed, totals.allowed as f64].map(|number| -number)
        };
        rows.sort_by(|a, b| {
            let order = match self.sort {
                Sort::Name => a.0.label.cmp(&b.0.label),
                _ => {
                    let value = |row| sort_value(self.sort, row);
                    value(b).total_cmp(&value(a))
                }
            };
            let order = if self.is_reversed { order.reverse() } else { order };
            // What a shadow limit would deny is no denial.
            let is_by_denials = matches!(self.sort, Sort::DeniedRate | Sort::Share | Sort::Denied);
            let order = match is_by_denials {
                true => a.0.is_shadow.cmp(&b.0.is_shadow).then(order),
                false => order,
            };
            let others = || by_use(a).iter().zip(by_use(b)).map(|(a, b)| a.total_cmp(&b)).find(|o| o.is_ne());
            order.then_with(|| others().unwrap_or(std::cmp::Ordering::Equal))
        });
        rows
    }

    /// The number of the selected row.
    pub(super) fn selected_row(&self, rows: &[Row<'_>]) -> usize {
        let selected = self.selected.as_ref();
        selected.and_then(|name| rows.iter().position(|(limit, _)| limit.name == *name)).unwrap_or(0)
    }

    /// Moves the window over the rows, so that the selected one is in it. Call it before drawing.
    pub(super) fn scroll(&mut self, page: usize) {
        let (row, count) = {
            let rows = self.rows();
            (self.selected_row(&rows), rows.len())
        };
        self.page = page.max(1);
        self.top = self.top.min(row).max((row + 1).saturating_sub(self.page));
        self.top = self.top.min(count.saturating_sub(self.page));
    }

    /// Changes what a key changes.
    pub(super) fn press(&mut self, key: Key) -> Effect {
        match key {
            Key::Interrupt => return Effect::Quit,
            Key::Suspend => return Effect::Suspend,
            Key::Redraw => return Effect::Redraw,
            _ => {}
        }
        if self.is_typing {
            self.press_in_filter(key);
            return Effect::Nothing;
        }
        match key {
            Key::Char('q') => return Effect::Quit,
            Key::Char('?') => self.is_helping = !self.is_helping,
            _ if self.is_helping => self.is_helping = false,
            Key::Char('p' | ' ') => {
                self.paused = match self.paused {
                    Some(_) => None,
                    None => self.model.clone().map(Box::new),
                }
            }
            _ if self.detail.is_some() => self.press_in_detail(key),
            _ => return self.press_in_table(key),
        }
        Effect::Nothing
    }

    fn press_in_filter(&mut self, key: Key) {
        match key {
            Key::Char(letter) if self.filter.chars().count() < MOST_FILTER => self.filter.push(letter),
            Key::Backspace if self.filter.is_empty() => self.is_typing = false,
            Key::Backspace => _ = self.filter.pop(),
            Key::Clear => self.filter.clear(),
            Key::Enter => self.is_typing = false,
            Key::Escape => {
                self.filter.clear();
                self.is_typing = false;
            }
            Key::Up => self.select(-1),
            Key::Down => self.select(1),
            _ => {}
        }
    }

    fn press_in_detail(&mut self, key: Key) {
        let Some(detail) = &mut self.detail else { return };
        match key {
            Key::Escape | Key::Left | Key::Backspace | Key::Char('h') => self.detail = None,
            Key::Up | Key::Char('k') => detail.scroll = detail.scroll.saturating_sub(1),
            Key::Down | Key::Char('j') => detail.scroll += 1,
            Key::PageUp => detail.scroll = detail.scroll.saturating_sub(10),
            Key::PageDown => detail.scroll += 10,
            Key::Home => detail.scroll = 0,
            _ => {}
        }
    }

    fn press_in_table(&mut self, key: Key) -> Effect {
        let page = isize::try_from(self.page).unwrap_or(1);
        match key {
            Key::Char('s' | '>') => self.sort = self.sort.moved(1),
            Key::Char('<') => self.sort = self.sort.moved(-1),
            Key::Char('r') => self.is_reversed = !self.is_reversed,
            Key::Char('/') => self.is_typing = true,
            Key::Escape => self.filter.clear(),
            Key::Up | Key::Char('k') => self.select(-1),
            Key::Down | Key::Char('j') => self.select(1),
            Key::PageUp => self.select(-page),
            Key::PageDown => self.select(page),
            Key::Home | Key::Char('g') => self.select(isize::MIN),
            Key::End | Key::Char('G') => self.select(isize::MAX),
            Key::Enter | Key::Right | Key::Char('l') => {
                let rows = self.rows();
                let name = rows.get(self.selected_row(&rows)).map(|(limit, _)| limit.name.clone());
                let Some(name) = name else { return Effect::Nothing };
                self.selected = Some(name.clone());
                self.detail = Some(Detail { name, ..Detail::default() });
                return Effect::LoadDetail;
            }
            _ => {}
        }
        Effect::Nothing
    }

    /// Selects another row. Home returns to the first row, whichever that is.
    fn select(&mut self, by: isize) {
        let rows = self.rows();
        let row = self.selected_row(&rows).saturating_add_signed(by).min(rows.len().saturating_sub(1));
        self.selected = if row == 0 { None } else { rows.get(row).map(|(limit, _)| limit.name.clone()) };
    }
}

/// The first line of an error. The other lines are help for the command line.
fn first_line(error: &str) -> String {
    shown(error.lines().next().unwrap_or(""))
}

/// What a row is sorted by. Unknown values come last.
pub(super) fn sort_value(sort: Sort, (limit, rates): &Row<'_>) -> f64 {
    let (rates, totals) = (rates.unwrap_or_default(), limit.recent.totals());
    match sort {
        Sort::Name => 0.0,
        Sort::AllowedRate => rates.allowed,
        Sort::DelayedRate => rates.delayed,
        Sort::DeniedRate => rates.denied,
        Sort::Share => rates.denied_share().unwrap_or(-1.0),
        Sort::Allowed => totals.allowed as f64,
        Sort::Delayed => totals.delayed as f64,
        Sort::Denied => totals.denied as f64,
        // The limit with the least left comes first.
        Sort::Remaining => -limit.remaining_p50.unwrap_or(2.0),
    }
}
