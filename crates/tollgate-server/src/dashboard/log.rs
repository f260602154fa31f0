//! The last events of the service: reloads, store servers that failed or recovered, evictions, and stops of the record.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use serde::Serialize;

use crate::service::Service;

/// The events that are kept.
const MOST_EVENTS: usize = 50;

/// The shortest time between two events about evictions.
const EVICTIONS_EVERY: f64 = 60.0;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Event {
    pub(crate) number: u64, // counted from the start of the process
    pub(crate) at: f64,
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

/// The last events.
#[derive(Default)]
pub(crate) struct EventLog(Mutex<Events>);

#[derive(Default)]
struct Events {
    all: VecDeque<Event>,
    next: u64, // number
    sent: u64, // events with a smaller number were returned by `take_new`
    stores: HashMap<String, bool>,
    evictions: u64,
    refused: u64,
    evicted_at: Option<f64>,
    is_recording: Option<bool>,
}

impl EventLog {
    /// Adds an event.
    pub(crate) fn add(&self, kind: &'static str, text: String) {
        self.0.lock().add(kind, text);
    }

    /// Compares the service with its state at the last call, and adds an event for each change.
    pub(super) fn look(&self, service: &Service) {
        let mut events = self.0.lock();
        for shard in service.store.as_ref().map_or_else(Vec::new, |store| store.shards()) {
            let is_up = shard.breaker.is_up();
            // A store that answers from the start is no event.
            if events.stores.insert(shard.name.clone(), is_up).unwrap_or(true) != is_up {
                let policy = service.engine.policy();
                let name = policy.environment_values.hide(&shard.name);
                let text = match is_up {
                    true => format!("the store {name} answers again"),
                    false => format!("the store {name} does not answer: `on_error` decides"),
                };
                events.add("store", text);
            }
        }
        let stats = service.engine.stats();
        let now = super::now();
        let is_due = events.evicted_at.is_none_or(|at| at + EVICTIONS_EVERY <= now);
        if (stats.evictions, stats.refused) > (events.evictions, events.refused) && is_due {
            let evicted = stats.evictions - events.evictions;
            let refused = stats.refused.saturating_sub(events.refused);
            events.evicted_at = Some(now);
            (events.evictions, events.refused) = (stats.evictions, stats.refused);
            events.add(
                "memory",
                match evicted {
                    0 => format!("{refused} requests found no room for their key in the table"),
                    _ => format!("{evicted} keys in use were evicted: the table is full"),
                },
            );
        }
        if service.recorder.is_some() {
            let is_recording = service.metrics.is_recording();
            if events.is_recording.replace(is_recording).is_some_and(|before| before != is_recording) {
                let text =
                    if is_recording { "decisions are recorded again" } else { "recording has stopped" };
                events.add("record", text.to_owned());
            }
        }
    }

    /// The events since the last call of this function.
    pub(super) fn take_new(&self) -> Vec<Event> {
        let mut events = self.0.lock();
        let next = events.next;
        let sent = std::mem::replace(&mut events.sent, next);
        events.all.iter().filter(|event| event.number >= sent).cloned().collect()
    }

    /// All events, the oldest first.
    pub(super) fn all(&self) -> Vec<Event> {
        self.0.lock().all.iter().cloned().collect()
    }
}

impl Events {
    fn add(&mut self, kind: &'static str, text: String) {
        if self.all.len() >= MOST_EVENTS {
            self.all.pop_front();
        }
        self.all.push_back(Event { number: self.next, at: super::now(), kind, text });
        self.next += 1;
    }
}
