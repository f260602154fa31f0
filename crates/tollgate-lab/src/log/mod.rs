//! Recorded traffic: access logs, tables, and what the service itself records.

mod columns;
mod combined;
mod lines;
mod record;
mod time;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use self::columns::{Columns, Ends, header, is_time, whole};
use self::combined::{AccessLine, LastTime};
use self::lines::{Line, Lines};
pub(crate) use self::record::{Recorded, RecordedDescriptor};
use crate::LabError;

/// As many bytes may a row of a table have that goes over several lines.
const LONGEST_ROW: usize = 64 << 10;

/// Attributes of a record that may tell clients apart, the best first.
const CLIENT_ATTRIBUTES: [&str; 5] = ["client", "user", "ip", "tenant", "key"];

/// How many lines at the beginning say what kind of file it is.
const LOOKED_AT: usize = 50;

/// In so many bytes.
const LOOKED_AT_BYTES: usize = 64 << 10;

/// Progress is told every so many lines.
const TOLD_EVERY: u64 = 4096;

/// How a log is read.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// The column of a table that tells clients apart; guessed where none is given.
    pub client_column: Option<String>,
    /// The columns of a table that together tell the time; guessed where none is given.
    pub time_column: Vec<String>,
    /// Columns whose sum is the cost of a request; 1 where none is given.
    pub cost_columns: Vec<String>,
    /// Whether clients are told apart.
    pub client: Wanted,
}

/// Whether a log has to tell clients apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// It does.
    #[default]
    Needed,
    /// It may.
    IfThere,
    /// All are counted as one.
    Nothing,
}

/// A request of a log.
#[derive(Debug)]
pub struct Entry<'l> {
    /// When it came, in nanoseconds since the Unix epoch.
    pub at: u64,
    /// What it cost, where the log says so.
    pub cost: Option<u64>,
    fields: Fields<'l>,
    options: &'l LogOptions,
}

#[derive(Debug)]
enum Fields<'l> {
    Access(AccessLine<'l>),
    Row(&'l Columns, &'l [u8]),
    Recorded(Box<Recorded<'l>>),
}

impl Entry<'_> {
    /// Who asked; empty where clients are not told apart.
    pub fn client(&self) -> &[u8] {
        if self.options.client == Wanted::Nothing {
            return b"";
        }
        match &self.fields {
            Fields::Access(line) => line.host,
            Fields::Row(columns, line) => columns.client(line).unwrap_or_default(),
            Fields::Recorded(recorded) => {
                let named = self.options.client_column.as_deref();
                let guessed = CLIENT_ATTRIBUTES.into_iter().filter(|_| named.is_none());
                let client = named.into_iter().chain(guessed).find_map(|name| recorded.attribute(name));
                client.unwrap_or_default().as_bytes()
            }
        }
    }

    /// What is known of the request, by names that a policy file uses: `ip`, `user`, `method`, `path`, `status`, `header.referer` and
    /// `header.user-agent` of an access log; columns of a table by their names, and `ip` for its client; attributes of a record.
    pub fn attributes(&self, mut each: impl FnMut(&str, &[u8])) {
        match &self.fields {
            Fields::Access(line) => {
                each("ip", line.host);
                let request = line.method_and_target();
                let known = [
                    ("user", line.user),
                    ("method", request.map(|(method, _)| method)),
                    ("path", request.map(|(_, target)| target)),
                    ("status", line.status()),
                    ("header.referer", line.referer()),
                    ("header.user-agent", line.agent()),
                ];
                for (name, value) in known {
                    if let Some(value) = value {
                        each(name, value);
                    }
                }
            }
            Fields::Row(columns, line) => {
                let mut has_ip = false;
                for (name, value) in columns.each(line) {
                    has_ip |= name == "ip";
                    each(name, value);
                }
                let client = self.client();
                if !has_ip && !client.is_empty() {
                    each("ip", client);
                }
            }
            Fields::Recorded(recorded) => {
                for (name, value) in &recorded.attributes.0 {
                    each(name, value.as_bytes());
                }
            }
        }
    }

    /// What was decided, if it was recorded by the service.
    pub(crate) fn recorded(&self) -> Option<&Recorded<'_>> {
        match &self.fields {
            Fields::Recorded(recorded) => Some(recorded),
            _ => None,
        }
    }
}

/// What was read so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests.
    pub requests: u64,
    /// Lines that are none.
    pub malformed: u64,
}

/// How far it is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// So much is done: bytes of files, where files are read.
    pub read: u64,
    /// Of so many.
    pub of: u64,
}

/// Log files, one after another.
#[derive(Clone, Debug)]
pub struct Logs {
    /// The files.
    pub files: Vec<PathBuf>,
    /// How they are read.
    pub options: LogOptions,
}

impl Logs {
    /// Reads all requests, in the order they stand there, until `each` has enough. Lines that are none are passed over and counted;
    /// blank lines are neither.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, is of no kind that is known, lacks a column that was asked for, or has no request in it.
    pub fn read(
        &self,
        progress: &mut dyn FnMut(Progress),
        each: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<Counts, LabError> {
        let of = self.files.iter().map(|file| std::fs::metadata(file).map_or(0, |file| file.len())).sum();
        let read = Arc::new(AtomicU64::new(0));
        let mut counts = Counts::default();
        for file in &self.files {
            let before = counts.requests;
            let mut progress = || progress(Progress { read: read.load(Ordering::Relaxed), of });
            let mut reading = Reading::new(file, Lines::open(file, &read)?, &self.options)?;
            if reading.all(&mut counts, &mut progress, each)?.is_break() {
                break;
            }
            if counts.requests == before {
                return Err(reading.nothing());
            }
        }
        Ok(counts)
    }
}

/// A file on its way through.
struct Reading<'f> {
    file: &'f Path,
    lines: Lines,
    kind: Kind,
    options: &'f LogOptions,
    first_fault: Option<(u64, &'static str)>, // the line that was malformed first, and why
}

enum Kind {
    Access(LastTime),
    Table(Columns),
    Record,
}

const NO_LINE: &str = "it is no line of an access log: host, [time] and \"request\" make one";
const NO_ROW: &str = "the row lacks a field that is needed, or its time or cost cannot be read";
const NO_RECORD: &str = "it is no decision that the service has recorded";
const TOO_LONG: &str = "the line has more than a mebibyte";

impl<'f> Reading<'f> {
    fn new(file: &'f Path, mut lines: Lines, options: &'f LogOptions) -> Result<Self, LabError> {
        let kind = Kind::of(lines.peek(LOOKED_AT_BYTES)?, options);
        let refused = |(line, why)| LabError::Refused { file: file.to_owned(), line, why };
        let kind = kind.map_err(refused)?;
        let mut reading = Self { file, lines, kind, options, first_fault: None };
        if let Kind::Table(_) = reading.kind {
            while let Some(Line::Text(b"")) = reading.lines.next()? {} // up to the header
        }
        if !reading.options.cost_columns.is_empty() {
            reading.require_costs()?;
        }
        Ok(reading)
    }

    /// Costs come from columns, or from the bytes of an answer.
    fn require_costs(&self) -> Result<(), LabError> {
        let is_known = match self.kind {
            Kind::Access(_) => self.options.cost_columns == ["bytes"],
            Kind::Table(_) => true,
            Kind::Record => self.options.cost_columns == ["cost"],
        };
        let why = "an access log has one column of costs, `bytes`, and a record one, `cost`".to_owned();
        if is_known { Ok(()) } else { Err(LabError::Refused { file: self.file.to_owned(), line: 1, why }) }
    }

    fn all(
        &mut self,
        counts: &mut Counts,
        progress: &mut dyn FnMut(),
        each: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, LabError> {
        let mut row = Vec::new(); // one that goes over several lines
        loop {
            if self.lines.number().is_multiple_of(TOLD_EVERY) {
                progress();
            }
            let fault = match self.lines.next()? {
                None if row.is_empty() => break,
                None => {
                    row.clear();
                    Some(NO_ROW)
                }
                Some(Line::TooLong) => Some(TOO_LONG),
                Some(Line::Text(line)) if row.is_empty() && line.iter().all(u8::is_ascii_whitespace) => None,
                Some(Line::Text(line)) => {
                    let line = if row.is_empty() {
                        line
                    } else {
                        row.push(b'\n');
                        row.extend_from_slice(line);
                        &row
                    };
                    match self.kind.entry(line, self.options) {
                        Read::Entry(entry) => {
                            counts.requests += 1;
                            let goes_on = each(entry);
                            row.clear();
                            if goes_on.is_break() {
                                return Ok(goes_on);
                            }
                            None
                        }
                        Read::GoesOn if line.len() <= LONGEST_ROW => {
                            if row.is_empty() {
                                row = line.to_vec();
                            }
                            None
                        }
                        Read::GoesOn | Read::Malformed => {
                            row.clear();
                            Some(self.kind.fault())
                        }
                    }
                }
            };
            if let Some(why) = fault {
                counts.malformed += 1;
                self.first_fault.get_or_insert((self.lines.number(), why));
            }
        }
        progress();
        Ok(ControlFlow::Continue(()))
    }

    /// There was no request in the file.
    fn nothing(&self) -> LabError {
        let (line, why) = match self.first_fault {
            Some((line, why)) => (line, format!("{why}. There is no request in the whole file")),
            None => (self.lines.number().max(1), "there is no request in this file".to_owned()),
        };
        LabError::Refused { file: self.file.to_owned(), line, why }
    }
}

/// What a line is.
enum Read<'l> {
    Entry(Entry<'l>),
    Malformed,
    /// Its row ends in a later one.
    GoesOn,
}

impl Kind {
    /// Of what kind a file is that begins so. Or the line that says nothing, and what would be right.
    fn of(begin: &[u8], options: &LogOptions) -> Result<Self, (u64, String)> {
        let mut lines = begin.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).enumerate();
        let Some((first, line)) = lines.find(|(_, line)| !line.is_empty()) else {
            return Err((1, "there is no request in this file".to_owned()));
        };
        let mut looked_at = std::iter::once(line).chain(lines.map(|(_, line)| line)).take(LOOKED_AT);
        let header = header(line).filter(|(_, names)| names.len() > 1 || is_time(&names[0], options));
        let is_table = header.as_ref().is_some_and(|(_, names)| names.iter().all(|name| !name.contains('"')));
        let mut last = LastTime::default();
        let is_access = |line: &[u8]| AccessLine::read(line, &mut last).is_some();
        if line.starts_with(b"{") && Recorded::read(line).is_some() {
            return Ok(Self::Record);
        }
        // A comma may stand in a malformed line, too.
        let no_kind = (
            first as u64 + 1,
            "it is of no kind that is known: an access log (host - - [time] \"request\" …), CSV or TSV with a header, or what `record:` \
             in a policy writes, each plain or by gzip"
                .to_owned(),
        );
        match header {
            Some(names) if is_table => {
                let columns = Columns::new(names, options);
                if columns.is_err() && looked_at.any(is_access) {
                    return Ok(Self::Access(LastTime::default()));
                }
                columns.map(Self::Table).map_err(|why| (first as u64 + 1, why))
            }
            _ if looked_at.any(is_access) => Ok(Self::Access(LastTime::default())),
            _ => Err(no_kind),
        }
    }

    fn fault(&self) -> &'static str {
        match self {
            Self::Access(_) => NO_LINE,
            Self::Table(_) => NO_ROW,
            Self::Record => NO_RECORD,
        }
    }

    fn entry<'l>(&'l mut self, line: &'l [u8], options: &'l LogOptions) -> Read<'l> {
        let read = match self {
            Self::Access(last) => AccessLine::read(line, last).and_then(|line| {
                let cost = if options.cost_columns.is_empty() { None } else { Some(bytes_of(&line)?) };
                Some((line.at, cost, Fields::Access(line)))
            }),
            Self::Table(columns) => {
                if columns.take(line) == Ends::Later {
                    return Read::GoesOn;
                }
                let read = columns.time_and_cost(line);
                let columns = &*columns;
                read.filter(|_| columns.client(line).is_some())
                    .map(|(at, cost)| (at, cost, Fields::Row(columns, line)))
            }
            Self::Record => Recorded::read(line)
                .map(|(at, recorded)| (at, recorded.cost, Fields::Recorded(Box::new(recorded)))),
        };
        match read {
            Some((at, cost, fields)) => Read::Entry(Entry { at, cost, fields, options }),
            None => Read::Malformed,
        }
    }
}

/// The bytes that were answered.
fn bytes_of(line: &AccessLine<'_>) -> Option<u64> {
    match line.bytes()? {
        b"-" => Some(0),
        bytes => whole(bytes),
    }
}
