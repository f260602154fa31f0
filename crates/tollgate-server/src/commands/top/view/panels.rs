//! The lines around the table: header, gateway, store, events and keys.

use std::time::Instant;

use ratatui::text::{Line, Span};

use super::super::app::{App, Connection};
use super::super::frame::{Event, Gateway, Store};
use super::super::model::Model;
use super::super::text::{count, rate, seconds, shown, span};
use super::{Theme, justified};

/// The instance and the store at the left, the connection at the right.
pub(super) fn header<'a>(app: &App, model: &Model, theme: Theme, now: Instant, columns: usize) -> Line<'a> {
    let (store, is_well) = store(&model.store, model.decisions_per_call);
    let right = match (&app.connection, app.paused_for()) {
        (Connection::Lost { since, .. }, _) => {
            let lost = span(now.saturating_duration_since(*since).as_secs());
            Line::styled(format!("× lost {lost} ago"), theme.warning())
        }
        (_, Some(seconds)) => Line::styled(format!("paused {} ago", span(seconds)), theme.warning()),
        (Connection::Connected { since }, None) => {
            let connected = span(now.saturating_duration_since(*since).as_secs());
            Line::styled(format!("connected {connected}"), theme.muted())
        }
    };
    let mut left = Line::from(Span::styled(model.instance.clone(), theme.strong()));
    let store = Span::styled(store, if is_well { theme.muted() } else { theme.warning() });
    left.push_span(Span::styled(" · ", theme.muted()));
    left.push_span(store);
    let more = format!(" · tollgate {} · {}", model.version, app.address);
    if left.width() + more.chars().count() + right.width() + 2 <= columns {
        left.push_span(Span::styled(more, theme.muted()));
    }
    justified(left, right, columns)
}

/// The store in words, and whether it answers.
fn store(store: &Store, decisions_per_call: Option<f64>) -> (String, bool) {
    if store.kind != "redis" {
        let kind = if store.kind.is_empty() { "unknown" } else { &store.kind };
        return (format!("store: {}", shown(kind)), true);
    }
    let down: Vec<_> = store.shards.iter().filter(|shard| !shard.is_up).collect();
    let since = down.iter().map(|shard| shard.since).fold(0.0, f64::max);
    if !down.is_empty() {
        #[expect(clippy::cast_sign_loss, reason = "it is at least 0")]
        let since = span(since as u64);
        let part = match store.shards.len() {
            1 => String::new(),
            all => format!(" on {} of {all} servers", down.len()),
        };
        return (format!("Redis: fallback{part} since {since}"), false);
    }
    match (store.mode.as_str(), decisions_per_call) {
        ("lease", Some(decisions)) => (format!("Redis: lease, {} decisions per call", rate(decisions)), true),
        (mode, _) => (format!("Redis: {}", shown(mode)), true),
    }
}

/// The lines of the gateway and of a shared store.
pub(super) fn count_lines(model: &Model) -> usize {
    usize::from(model.gateway.is_some()) * 2 + usize::from(model.store.kind == "redis")
}

/// The gateway and the store, if there are any.
pub(super) fn lines<'a>(model: &Model, theme: Theme) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    if let Some(gateway) = &model.gateway {
        lines.extend(gateway_lines(gateway, theme));
    }
    if model.store.kind == "redis" {
        lines.push(store_line(&model.store, theme));
    }
    lines
}

fn gateway_lines<'a>(gateway: &Gateway, theme: Theme) -> [Line<'a>; 2] {
    let mut slots = Line::from(Span::styled("GATEWAY   ", theme.muted()));
    if let Some(slots_now) = gateway.slots {
        let adaptive = if slots_now.is_adaptive { " (adaptive)" } else { "" };
        let (in_use, limit) = (count(slots_now.in_use), count(slots_now.limit));
        slots.push_span(Span::raw(format!("{in_use} of {limit} slots in use{adaptive}   ")));
        let waiting = format!("{} wait   ", count(slots_now.waiting));
        slots.push_span(Span::styled(
            waiting,
            if slots_now.waiting > 0 { theme.delayed() } else { theme.muted() },
        ));
    }
    let quantiles = |name: &str, low: (&str, Option<f64>), high: (&str, Option<f64>)| match (low.1, high.1) {
        (Some(a), Some(b)) => format!("{name} {} {}, {} {}   ", low.0, seconds(a), high.0, seconds(b)),
        _ => String::new(),
    };
    slots.push_span(Span::raw(quantiles(
        "upstream",
        ("p50", gateway.duration_p50),
        ("p99", gateway.duration_p99),
    )));
    slots.push_span(Span::raw(quantiles("wait", ("p50", gateway.wait_p50), ("p95", gateway.wait_p95))));
    let ended: Vec<String> = gateway
        .ended
        .iter()
        .filter(|(_, number)| **number > 0)
        .map(|(outcome, number)| format!("{} {}", outcome.replace('_', " "), count(*number)))
        .collect();
    slots.push_span(Span::styled(ended.join(", "), theme.muted()));
    let mut upstreams = Line::from(Span::styled("UPSTREAMS ", theme.muted()));
    let down = gateway.upstreams.iter().filter(|upstream| !upstream.is_up);
    let up = gateway.upstreams.iter().filter(|upstream| upstream.is_up);
    for upstream in down.chain(up).take(50) {
        let name = upstream.name.clone();
        upstreams.push_span(match upstream.is_up {
            true => Span::raw(format!("{name}: {} in flight   ", count(upstream.in_flight))),
            false => Span::styled(
                format!("× {name}: fails, {} in flight   ", count(upstream.in_flight)),
                theme.warning(),
            ),
        });
    }
    [slots, upstreams]
}

fn store_line<'a>(store: &Store, theme: Theme) -> Line<'a> {
    let mut line = Line::from(Span::styled("STORE     ", theme.muted()));
    line.push_span(Span::raw(format!("{} calls, ", count(store.calls))));
    let errors = format!("{} errors   ", count(store.errors));
    line.push_span(Span::styled(errors, if store.errors > 0 { theme.warning() } else { theme.muted() }));
    let down = store.shards.iter().filter(|shard| !shard.is_up);
    let up = store.shards.iter().filter(|shard| shard.is_up);
    for shard in down.chain(up).take(50) {
        #[expect(clippy::cast_sign_loss, reason = "it is at least 0")]
        let since = span(shard.since.max(0.0) as u64);
        line.push_span(match shard.is_up {
            true => Span::raw(format!("{}: answers   ", shard.name)),
            false => Span::styled(
                format!("× {}: no answer since {since} ({})   ", shard.name, shard.state),
                theme.warning(),
            ),
        });
    }
    line
}

/// The last events, the newest first.
pub(super) fn events<'a>(model: &Model, theme: Theme, most: usize) -> Vec<Line<'a>> {
    let line = |(number, event): (usize, &Event)| {
        let title = if number == 0 { "EVENTS    " } else { "          " };
        Line::from(vec![
            Span::styled(title, theme.muted()),
            Span::raw(format!("{} ago  ", span(model.since(event.at)))),
            Span::styled(format!("{}  ", event.kind), theme.muted()),
            Span::raw(event.text.clone()),
        ])
    };
    model.events.iter().rev().take(most).enumerate().map(line).collect()
}

/// The keys that can be pressed, or the filter that is being typed.
pub(super) fn footer<'a>(app: &App, model: &Model, rows: usize, theme: Theme, columns: usize) -> Line<'a> {
    if app.is_typing {
        return Line::from(vec![
            Span::styled("Filter by name: ", theme.strong()),
            Span::raw(shown(&app.filter)),
            Span::styled(" ", theme.selected()),
            Span::styled("  Enter keeps it, Esc clears it", theme.muted()),
        ]);
    }
    if app.is_helping {
        return Line::styled("any key closes the help", theme.muted());
    }
    if app.detail.is_some() {
        return hints(
            &[("Esc", "back"), ("↑↓", "scroll"), ("p", "pause"), ("?", "help"), ("q", "quit")],
            theme,
            columns,
        );
    }
    let right = match (rows, model.limits.len()) {
        (rows, all) if rows < all => {
            format!("{} of {} limits: `{}`", count(rows as u64), count(all as u64), shown(&app.filter))
        }
        (_, 1) => "1 limit".to_owned(),
        (_, all) => format!("{} limits", count(all as u64)),
    };
    let keys = [
        ("q", "quit"),
        ("?", "help"),
        ("↵", "open"),
        ("/", "filter"),
        ("s", "sort"),
        ("r", "reverse"),
        ("p", "pause"),
    ];
    let room = columns.saturating_sub(right.chars().count() + 2);
    justified(hints(&keys, theme, room), Line::styled(right, theme.muted()), columns)
}

fn hints<'a>(keys: &[(&'static str, &'static str)], theme: Theme, columns: usize) -> Line<'a> {
    let part = |(key, does): &(&'static str, &'static str)| {
        vec![Span::styled(*key, theme.strong()), Span::styled(format!(" {does}"), theme.muted())]
    };
    super::joined(keys.iter().map(part).collect(), columns)
}
