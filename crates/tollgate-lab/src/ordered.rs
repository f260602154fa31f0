//! Requests of logs in the order of their times, in memory that grows with clients where the logs are in order.

use std::ops::ControlFlow;

use crate::LabError;
use crate::algorithms::Event;
use crate::clients::Clients;
use crate::log::{Counts, Entry, Logs, Progress};

/// Requests are handed on in batches of so many: enough that an algorithm stays in the processor's cache for a while.
pub(crate) const BATCH: usize = 256;

/// What is done with requests.
pub(crate) trait Consumer<X> {
    /// The next requests, with what else is known of each.
    fn take(&mut self, events: &[Event], known: &[X]) -> Result<(), LabError>;
}

/// What is taken of each entry of a log, beside its time.
pub(crate) trait Keep<X> {
    /// What its client is known by, and what else is known of it.
    fn keep(&mut self, entry: &Entry<'_>, client: &mut Vec<u8>) -> X;
}

/// What was seen of logs on the way.
#[derive(Debug)]
pub struct Seen {
    /// Requests, and lines that are none.
    pub counts: Counts,
    /// Who asked.
    pub clients: Clients,
    /// Whether requests had to be brought in order.
    pub is_sorted: bool,
    /// The first time and the last, in nanoseconds since the Unix epoch.
    pub span: (u64, u64),
    /// How finely times are written, in nanoseconds: all are multiples of it.
    pub resolution: u64,
}

/// Reads logs, and hands requests on in the order of their times; those of the same time, and those that the service has recorded, in the
/// order of the log. `fresh` makes a
/// consumer, given the first time. It may be made twice: a log that turns out to be unordered is begun anew, and sorted. Where a
/// consumer cannot be made twice, because others see what it does, the log is read as a whole before.
pub(crate) fn in_order<X: Copy, C: Consumer<X>>(
    logs: &Logs,
    can_restart: bool,
    keep: &mut dyn Keep<X>,
    progress: &mut dyn FnMut(Progress),
    fresh: &mut dyn FnMut(u64) -> Result<C, LabError>,
) -> Result<(C, Seen), LabError> {
    let (clients, times) = (Clients::default(), Times::default());
    let mut reader = Reader { keep, clients, client: Vec::new(), times, is_recorded: true, back: 0 };
    let mut stream: Option<C> = None;
    if !can_restart || !logs.can_be_read_again() {
        return all_sorted(logs, reader, progress, fresh);
    }
    let (mut events, mut known) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    let mut failed = None;
    let mut is_ordered = true;
    let counts = logs.read(progress, &mut |entry| {
        let (event, more) = reader.read(&entry);
        is_ordered = reader.is_ordered();
        if !is_ordered {
            return ControlFlow::Break(());
        }
        events.push(event);
        known.push(more);
        if events.len() < BATCH {
            return ControlFlow::Continue(());
        }
        let taken = hand_on(&mut stream, &mut events, &mut known, &mut |first| fresh(reader.start(first)));
        failed = taken.err();
        if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    if is_ordered {
        hand_on(&mut stream, &mut events, &mut known, &mut |first| fresh(reader.start(first)))?;
        let consumer = stream.expect("logs without a request are refused");
        return Ok((consumer, reader.seen(counts, false)));
    }
    drop(stream);
    let Reader { keep, clients, .. } = reader;
    let (client, times) = (Vec::new(), Times::default());
    all_sorted(logs, Reader { keep, clients, client, times, is_recorded: true, back: 0 }, progress, fresh)
}

fn all_sorted<X: Copy, C: Consumer<X>>(
    logs: &Logs,
    mut reader: Reader<'_, X>,
    progress: &mut dyn FnMut(Progress),
    fresh: &mut dyn FnMut(u64) -> Result<C, LabError>,
) -> Result<(C, Seen), LabError> {
    let mut all: Vec<(Event, X)> = Vec::new();
    let counts = logs.read(progress, &mut |entry| {
        all.push(reader.read(&entry));
        ControlFlow::Continue(())
    })?;
    let is_sorted = !reader.is_ordered();
    if is_sorted {
        all.sort_by_key(|(event, _)| event.at); // a stable sort
    }
    let mut consumer = fresh(reader.start(all.first().map_or(0, |(event, _)| event.at)))?;
    for batch in all.chunks(BATCH) {
        let (events, known): (Vec<Event>, Vec<X>) = batch.iter().copied().unzip();
        consumer.take(&events, &known)?;
    }
    Ok((consumer, reader.seen(counts, is_sorted)))
}

fn hand_on<X, C: Consumer<X>>(
    stream: &mut Option<C>,
    events: &mut Vec<Event>,
    known: &mut Vec<X>,
    fresh: &mut dyn FnMut(u64) -> Result<C, LabError>,
) -> Result<(), LabError> {
    let consumer = match stream {
        Some(consumer) => consumer,
        None => stream.insert(fresh(events.first().map_or(0, |event| event.at))?),
    };
    consumer.take(events, known)?;
    events.clear();
    known.clear();
    Ok(())
}

struct Reader<'k, X> {
    keep: &'k mut dyn Keep<X>,
    clients: Clients,
    client: Vec<u8>,
    times: Times,
    is_recorded: bool, // all of it, by the service
    back: u64,         // the furthest that a time was before the latest, so far
}

/// What the service has recorded stands in the order in which it was decided. Requests that came at about the same moment may have
/// been decided by times the other way round, so that the first is not quite the earliest. Times that are further apart are of
/// records that were put together in the wrong order.
const RECORDED_BEFORE: u64 = 60_000_000_000;

impl<X> Reader<'_, X> {
    /// Whether requests stand in the order in which they are to be decided.
    const fn is_ordered(&self) -> bool {
        self.back <= if self.is_recorded { RECORDED_BEFORE } else { 0 }
    }

    /// The time from which on times are counted.
    const fn start(&self, first: u64) -> u64 {
        if self.is_recorded { first.saturating_sub(RECORDED_BEFORE) } else { first }
    }

    fn read(&mut self, entry: &Entry<'_>) -> (Event, X) {
        self.client.clear();
        let known = self.keep.keep(entry, &mut self.client);
        self.back = self.back.max(self.times.last.saturating_sub(entry.at));
        self.times.add(entry.at);
        self.is_recorded &= entry.recorded().is_some();
        let client = self.clients.number(&self.client);
        (Event { at: entry.at, cost: entry.cost.unwrap_or(1), client }, known)
    }

    fn seen(self, counts: Counts, is_sorted: bool) -> Seen {
        let Times { first, last, resolution } = self.times;
        // A few times may all be full minutes by chance.
        let resolution = resolution.filter(|_| counts.requests >= TOLD_BY).unwrap_or(1);
        Seen { counts, clients: self.clients, is_sorted, span: (first, last), resolution }
    }
}

/// How finely times are written.
#[derive(Debug)]
struct Times {
    first: u64,
    last: u64,
    resolution: Option<u64>, // the largest of these of which all were multiples
}

const RESOLUTIONS: [u64; 11] =
    [60_000_000_000, 1_000_000_000, 100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1000, 100, 10, 1];

/// So many requests tell how finely times are written.
const TOLD_BY: u64 = 10;

impl Default for Times {
    fn default() -> Self {
        Self { first: u64::MAX, last: 0, resolution: None }
    }
}

impl Times {
    fn add(&mut self, at: u64) {
        self.first = self.first.min(at);
        self.last = self.last.max(at);
        let is_of = |resolution: u64| at.is_multiple_of(resolution);
        if !self.resolution.is_some_and(is_of) {
            let most = self.resolution.unwrap_or(u64::MAX);
            self.resolution =
                RESOLUTIONS.into_iter().find(|resolution| *resolution <= most && is_of(*resolution));
        }
    }
}
