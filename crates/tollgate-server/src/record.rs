//! Writes every decision to a file, in a form that can be decided again.
//!
//! One JSON object a line: the time in Unix seconds with all its nanoseconds, the attributes that the policy looks at,
//! the cost, and what was decided.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tollgate::{Clock, Timestamp};
use tollgate_policy::{DescriptorVerdict, Hits, PolicyInForce, Record, Request, Seconds, Verdict};

use crate::metrics::RecordMetrics;

/// As many lines wait for the disk before some are lost.
const MOST_WAITING: usize = 65_536;

/// Writes decisions to a file.
pub(crate) struct Recorder {
    order: Mutex<()>,
    lines: SyncSender<Line>,
    writer: Mutex<Option<JoinHandle<()>>>,
    started: Duration, // the clock's zero, in Unix time
}

enum Line {
    Write(Vec<u8>),
    Flush,
    End,
}

#[derive(Serialize)]
struct Recorded<'a> {
    time: String,
    #[serde(flatten)]
    asked: Asked<'a>,
    allowed: bool,
    retry_after: Option<Seconds>,
    delay: Seconds,
    denied_by: Vec<&'a str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Asked<'a> {
    One { attributes: Attributes<'a>, cost: u64 },
    Together { descriptors: Vec<RecordedDescriptor<'a>> },
}

/// A descriptor of Envoy's, of which the order matters: `domain`, then its entries.
#[derive(Serialize)]
struct RecordedDescriptor<'a> {
    entries: &'a [(&'a str, &'a str)],
    cost: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    refund: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    in_full: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<(u32, u64)>, // so many in so many seconds
}

impl<'a> RecordedDescriptor<'a> {
    fn new(verdict: &DescriptorVerdict<'a, '_>) -> Self {
        let hits = verdict.hits();
        Self {
            entries: verdict.attributes(),
            cost: verdict.cost(),
            refund: if let Hits::Refund(refund) = hits { Some(refund) } else { None },
            in_full: matches!(hits, Hits::ChargeInFull(_)),
            limit: verdict.sent().and_then(|sent| {
                let window = sent.rule.period()?;
                Some((u32::try_from(sent.limit).ok()?, window.as_secs_ceil()))
            }),
        }
    }
}

/// In the order they came.
struct Attributes<'a>(Vec<(&'a str, &'a str)>);

impl Serialize for Attributes<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

impl Recorder {
    /// Begins to write, at the end of the file if there is one.
    pub(crate) fn start(record: &Record, clock: &Clock, metrics: RecordMetrics) -> Result<Self, String> {
        let refused = |error: io::Error| format!("record {}: {error}", record.path);
        let file = RecordFile::open(record.clone()).map_err(refused)?;
        let (lines, to_write) = sync_channel(MOST_WAITING);
        metrics.active.set(1);
        let writer = thread::Builder::new()
            .name("record".to_owned())
            .spawn(move || write(file, &metrics, &to_write))
            .map_err(refused)?;
        // That of the clock and no other: windows begin by it, and a decision at their edge is to come out the same again.
        let started = clock.started().unwrap_or_default();
        Ok(Self { order: Mutex::default(), lines, writer: Mutex::new(Some(writer)), started })
    }

    /// Decides and writes with nobody else in between.
    pub(crate) fn in_order<T>(&self, decide: impl FnOnce() -> T) -> T {
        let _order = self.order.lock();
        decide()
    }

    /// Writes a decision. False if it is lost, because the disk is too slow or as much as may be was written.
    pub(crate) fn write(
        &self,
        policy: &PolicyInForce<'_>,
        request: &Request<'_>,
        verdict: &Verdict<'_>,
    ) -> bool {
        let known = |(name, _): &&(&str, &str)| policy.looks_at(name);
        let attributes = Attributes(request.attributes.iter().filter(known).copied().collect());
        let asked = Asked::One { attributes, cost: verdict.cost() };
        self.write_asked(asked, verdict)
    }

    /// Writes the decision of several descriptors, as one line. False if there is no room for it.
    pub(crate) fn write_descriptors(&self, verdict: &Verdict<'_>) -> bool {
        let descriptors: Vec<_> = verdict.descriptors().map(|one| RecordedDescriptor::new(&one)).collect();
        descriptors.is_empty() || self.write_asked(Asked::Together { descriptors }, verdict)
    }

    fn write_asked(&self, asked: Asked<'_>, verdict: &Verdict<'_>) -> bool {
        let time = self.started + verdict.decided_at().since(Timestamp::default()).into();
        let denying = verdict.limits().filter(|limit| !limit.is_allowed());
        let recorded = Recorded {
            time: format!("{}.{:09}", time.as_secs(), time.subsec_nanos()),
            asked,
            allowed: verdict.is_allowed(),
            retry_after: verdict.retry_after().map(Seconds),
            delay: Seconds(verdict.delay()),
            denied_by: denying.map(|limit| limit.name()).collect(),
        };
        let mut line = serde_json::to_vec(&recorded).expect("made of what JSON has");
        line.push(b'\n');
        self.lines.try_send(Line::Write(line)).is_ok()
    }

    /// Brings what was written to the file.
    pub(crate) fn flush(&self) {
        let _ = self.lines.try_send(Line::Flush); // a full line of lines is flushed soon enough
    }

    /// Waits until all that was written is in the file. Nothing is written afterwards.
    pub(crate) fn finish(&self) {
        // Where there is no room for more, what has come is written none the less.
        let _ = self.lines.send(Line::End);
        if let Some(writer) = self.writer.lock().take() {
            let _ = writer.join();
        }
    }
}

/// The file that lines go to, and what becomes of it when it is full.
struct RecordFile {
    file: BufWriter<File>,
    room: u64, // bytes that fit into it
    record: Record,
}

/// What became of a line.
enum WriteOutcome {
    Yes,
    /// It is longer than a file may be.
    TooLong,
    /// The file is full, and there may be no other.
    Full,
}

impl RecordFile {
    fn open(record: Record) -> io::Result<Self> {
        // It has attributes of requests, such as API keys: only this user may read it.
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&record.path)?;
        let room = (record.max_bytes as u64).saturating_sub(file.metadata()?.len());
        Ok(Self { file: BufWriter::with_capacity(1 << 16, file), room, record })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<WriteOutcome> {
        let length = line.len() as u64;
        if length > self.room {
            if self.record.max_files == 1 {
                return Ok(WriteOutcome::Full);
            }
            if line.len() > self.record.max_bytes {
                return Ok(WriteOutcome::TooLong);
            }
            self.rotate()?;
        }
        self.room -= length;
        self.file.write_all(line)?;
        Ok(WriteOutcome::Yes)
    }

    /// Makes `path` `path.1`, `path.1` `path.2` and so on, up to the number of files, and begins `path` again.
    fn rotate(&mut self) -> io::Result<()> {
        self.file.flush()?;
        let path = &self.record.path;
        for number in (1..self.record.max_files).rev() {
            let newer = if number == 1 { path.clone() } else { format!("{path}.{}", number - 1) };
            match std::fs::rename(newer, format!("{path}.{number}")) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {} // there are not yet as many
            }
        }
        *self = Self::open(self.record.clone())?;
        Ok(())
    }
}

/// Writes lines until it is told to end, or there is no more room.
fn write(mut file: RecordFile, metrics: &RecordMetrics, lines: &Receiver<Line>) {
    let path = file.record.path.clone();
    for line in lines {
        let written = match &line {
            Line::Write(line) => file.write(line),
            Line::Flush => file.file.flush().map(|()| WriteOutcome::Yes),
            Line::End => break,
        };
        match written {
            Ok(WriteOutcome::Yes) => {}
            Ok(WriteOutcome::TooLong) => {
                metrics.lost.inc();
            }
            Ok(WriteOutcome::Full) => {
                metrics.lost.inc();
                tracing::warn!(
                    path,
                    "recording ends: the file has reached `max_bytes`; set `max_files` above 1 to continue in another file"
                );
                break;
            }
            Err(error) => {
                metrics.lost.inc();
                metrics.active.set(0);
                tracing::error!(path, %error, "recording ends: the file cannot be written");
                return;
            }
        }
    }
    metrics.active.set(0);
    if let Err(error) = file.file.flush() {
        tracing::error!(path, %error, "the end of the record is lost");
    }
}
