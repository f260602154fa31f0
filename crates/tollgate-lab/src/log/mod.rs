//! Recorded traffic: access logs, tables, and what the service itself records.

mod client_fields;
mod columns;
mod combined;
mod lines;
mod record;
mod time;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_policy::ClientIp;

pub use self::client_fields::ClientField;
use self::client_fields::{ClientFields, Identity, IdentityFault};
use self::columns::{Columns, Ends, header, is_time, whole};
use self::combined::{AccessLine, LastTime};
use self::lines::{Line, Lines};
pub(crate) use self::record::{Recorded, RecordedDescriptor};
use crate::LabError;

/// As many lines may a row of a table go over, and have as many bytes. What is longer is a quote that nobody closed.
const ROW_LINES: usize = 100;
const ROW_BYTES: usize = 64 << 10;

/// Attributes of a record that may tell clients apart, the best first.
const CLIENT_ATTRIBUTES: [&str; 5] = ["client", "user", "ip", "tenant", "key"];

/// So many bytes at the beginning say what kind of file it is.
const LOOKED_AT: usize = 256 << 10;

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
    /// The field of an access-log line that is the client. Default: decided by the lines of the file.
    pub client_field: Option<ClientField>,
    /// The client in a list of addresses is this many places from its right end, as `trusted_hops` of a policy. Default: `client_ip`.
    pub trusted_hops: Option<usize>,
    /// The rule of a policy for lists of addresses. Default: no proxy is trusted, and a log with such lists is refused.
    pub client_ip: ClientIp,
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
    Access(AccessLine<'l>, Identity<'l>),
    Row(&'l Columns, &'l [u8]),
    Recorded(Box<Recorded<'l>>, &'l str), // and the attribute that tells clients apart
}

impl Entry<'_> {
    /// Who asked; empty where clients are not told apart.
    pub fn client(&self) -> &[u8] {
        if self.options.client == Wanted::Nothing {
            return b"";
        }
        match &self.fields {
            Fields::Access(_, identity) if self.client_name() == "user" => identity.user.unwrap_or_default(),
            Fields::Access(_, identity) => identity.client.as_deref().unwrap_or_default(),
            Fields::Row(columns, line) => columns.client(line).unwrap_or_default(),
            Fields::Recorded(recorded, name) => recorded.attribute(name).unwrap_or_default().as_bytes(),
        }
    }

    /// The attribute of a policy that tells clients apart as [`client`](Self::client) does.
    pub fn client_name(&self) -> &str {
        match &self.fields {
            Fields::Access(..) => match self.options.client_column.as_deref() {
                Some("user") => "user",
                _ => "ip",
            },
            Fields::Row(columns, _) => columns.client_name().unwrap_or("ip"),
            Fields::Recorded(_, name) => name,
        }
    }

    /// What is known of the request, by names that a policy file uses: `ip`, `user`, `method`, `path`, `status`, `header.referer` and
    /// `header.user-agent` of an access log; columns of a table by their names, and `ip` for its client; attributes of a record.
    pub fn attributes(&self, mut each: impl FnMut(&str, &[u8])) {
        match &self.fields {
            Fields::Access(line, identity) => {
                let request = line.method_and_target();
                let known = [
                    ("ip", identity.client.as_deref()),
                    ("user", identity.user),
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
            Fields::Recorded(recorded, _) => {
                for (name, value) in &recorded.attributes.0 {
                    each(name, value.as_bytes());
                }
            }
        }
    }

    /// What was decided, if it was recorded by the service.
    pub(crate) fn recorded(&self) -> Option<&Recorded<'_>> {
        match &self.fields {
            Fields::Recorded(recorded, _) => Some(recorded),
            _ => None,
        }
    }
}

/// What was read so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests.
    pub requests: u64,
    /// Lines that are not requests.
    pub malformed: u64,
    /// Requests of access logs whose client is the second field of the line.
    pub second_field: u64,
    /// Requests of access logs whose client was taken from a list of addresses.
    pub from_lists: u64,
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
    /// The same logs, with lists of addresses read by this rule.
    pub(crate) fn with_client_ip(&self, client_ip: &ClientIp) -> Self {
        let options = LogOptions { client_ip: client_ip.clone(), ..self.options.clone() };
        Self { files: self.files.clone(), options }
    }

    /// Whether they can be read twice, which what comes through a pipe cannot.
    pub(crate) fn can_be_read_again(&self) -> bool {
        self.files.iter().all(|file| std::fs::metadata(file).is_ok_and(|file| file.is_file()))
    }

    /// Reads all requests, in the order they stand there, until `each` has enough. Lines that are none are passed over and counted;
    /// blank lines are neither.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, is of an unknown kind, lacks a column that was named, has no request, or has a line whose client can be
    /// read in two ways.
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
            let mut progress = |line: u64| {
                if line.is_multiple_of(TOLD_EVERY) {
                    progress(Progress { read: read.load(Ordering::Relaxed), of });
                }
                ControlFlow::Continue(())
            };
            let mut reading = Reading::new(file, Lines::open(file, &read)?, &self.options)?;
            if reading.all(&mut counts, &mut progress, each)?.is_break() {
                break;
            }
            let _ = progress(0);
            if counts.requests == before {
                return Err(reading.nothing());
            }
        }
        Ok(counts)
    }
}

/// Reads a log that is in memory, as [`Logs::read`] reads a file. Errors name `name` as the file. Calls `go_on` with the number of the
/// line before each line. A break from `go_on` or from `each` ends the reading. Such a log may be without a request.
///
/// # Errors
///
/// When the text is of an unknown kind, has no request, or has a line whose client can be read in two ways.
pub(crate) fn read_text(
    name: &Path,
    text: String,
    options: &LogOptions,
    go_on: &mut dyn FnMut(u64) -> ControlFlow<()>,
    each: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
) -> Result<Counts, LabError> {
    let mut counts = Counts::default();
    let mut reading = Reading::new(name, Lines::of_text(name, text), options)?;
    let ended = reading.all(&mut counts, go_on, each)?;
    if counts.requests == 0 && ended.is_continue() {
        return Err(reading.nothing());
    }
    Ok(counts)
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
    Access(LastTime, ClientFields),
    Table(Columns),
    Record(String), // the attribute that tells clients apart
}

const NO_LINE: &str = "it is no line of an access log: host, [time] and \"request\" make one";
const NO_ROW: &str = "the row lacks a field that is needed, or its time or cost cannot be read";
const NO_RECORD: &str = "it is no decision that the service has recorded";
const TOO_LONG: &str = "the line has more than a mebibyte";

impl<'f> Reading<'f> {
    fn new(file: &'f Path, mut lines: Lines, options: &'f LogOptions) -> Result<Self, LabError> {
        let kind = Kind::of(lines.peek(LOOKED_AT)?, options);
        let refused = |(line, why)| LabError::Refused { file: file.to_owned(), line, why };
        let kind = kind.map_err(refused)?;
        let mut reading = Self { file, lines, kind, options, first_fault: None };
        if let Kind::Table(_) = reading.kind {
            while matches!(reading.lines.next()?, Some((_, Line::Text(line))) if is_blank(line)) {} // up to the header
        }
        reading.require_columns()?;
        Ok(reading)
    }

    /// Only tables have columns; of an access log and of a record some things can be named as if they were.
    fn require_columns(&self) -> Result<(), LabError> {
        let LogOptions { client_column, time_column, cost_columns, .. } = self.options;
        let is_cost = |known: &str| cost_columns.iter().all(|name| name.eq_ignore_ascii_case(known));
        let is_client = |known: &[&str]| client_column.as_deref().is_none_or(|name| known.contains(&name));
        let is_access = matches!(self.kind, Kind::Access(..));
        let why = match self.kind {
            _ if self.options.client_field.is_some() && !is_access => {
                Some("--client-field is for access logs only")
            }
            _ if self.options.trusted_hops.is_some() && !is_access => {
                Some("--trusted-hops is for access logs only")
            }
            Kind::Table(_) => None,
            _ if !time_column.is_empty() => Some("only a table has columns of times"),
            Kind::Access(..) if !is_cost("bytes") => Some("an access log has one column of costs: `bytes`"),
            Kind::Access(..) if !is_client(&["ip", "host", "user"]) => {
                Some("an access log tells clients apart by `ip` or by `user`")
            }
            Kind::Record(_) if !is_cost("cost") => Some("a record has one column of costs: `cost`"),
            _ => None,
        };
        let refused =
            |why: &str| LabError::Refused { file: self.file.to_owned(), line: 1, why: why.to_owned() };
        why.map_or(Ok(()), |why| Err(refused(why)))
    }

    fn all(
        &mut self,
        counts: &mut Counts,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
        each: &mut dyn FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, LabError> {
        let mut again = Again::new();
        loop {
            if progress(self.lines.number()).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let taken = again.pop_front();
            let (number, line) = match &taken {
                Some((number, line)) => (*number, line.as_deref()),
                None => match self.lines.next()? {
                    None => break,
                    Some((number, Line::Text(line))) => (number, Some(line)),
                    Some((number, Line::TooLong)) => (number, None),
                },
            };
            let read = match line {
                Some(line) if is_blank(line) => continue,
                Some(line) => self.kind.entry(line, self.options),
                None => Read::Malformed(TOO_LONG),
            };
            let joined; // of several lines
            let read = match read {
                Read::GoesOn => {
                    let row = line.unwrap_or_default().to_vec();
                    joined = self.join(row, &mut again)?;
                    joined.as_ref().map_or(Read::Malformed(NO_ROW), |row| self.kind.entry(row, self.options))
                }
                read => read,
            };
            match read {
                Read::Entry(entry) => {
                    counts.requests += 1;
                    if let Fields::Access(_, identity) = &entry.fields {
                        counts.second_field += u64::from(identity.is_second);
                        counts.from_lists += u64::from(identity.is_from_list);
                    }
                    if each(entry).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                Read::Malformed(why) => {
                    counts.malformed += 1;
                    self.first_fault.get_or_insert((number, why));
                }
                Read::Refused(why) => {
                    return Err(LabError::Refused { file: self.file.to_owned(), line: number, why });
                }
                Read::GoesOn => unreachable!("a row that was joined ends"),
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Reads on until a row ends that has begun. None if it does not: then the lines that were read are read again, each by itself.
    fn join(&mut self, mut row: Vec<u8>, again: &mut Again) -> Result<Option<Vec<u8>>, LabError> {
        let mut read = Vec::new();
        while read.len() < ROW_LINES && row.len() <= ROW_BYTES {
            let next = match again.pop_front() {
                Some(next) => next,
                None => match self.lines.next()? {
                    None => break,
                    Some((number, Line::Text(line))) => (number, Some(line.to_vec())),
                    Some((number, Line::TooLong)) => (number, None),
                },
            };
            let may_end = next.1.as_ref().is_some_and(|line| line.contains(&b'"'));
            let is_too_long = next.1.is_none();
            row.push(b'\n');
            row.extend_from_slice(next.1.as_deref().unwrap_or_default());
            read.push(next);
            if may_end && self.kind.ends(&row) {
                return Ok(Some(row));
            }
            if is_too_long {
                break;
            }
        }
        read.into_iter().rev().for_each(|line| again.push_front(line));
        Ok(None)
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

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

/// Lines, by number, that are to be read once more; none for one that is too long.
type Again = VecDeque<(u64, Option<Vec<u8>>)>;

/// What a line is.
enum Read<'l> {
    Entry(Entry<'l>),
    Malformed(&'static str),
    /// The line can be read in several ways, and so the file is refused.
    Refused(String),
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
        let looked_at = || begin.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let mut last = LastTime::default();
        let record = |line: &[u8]| {
            let (_, recorded) = Recorded::read(line)?;
            let mut guessed = CLIENT_ATTRIBUTES.into_iter();
            let guessed = guessed.find(|name| recorded.attribute(name).is_some()).unwrap_or("user");
            Some(options.client_column.clone().unwrap_or_else(|| guessed.to_owned()))
        };
        let names = header(line).filter(|(_, names)| names.len() > 1 || is_time(&names[0], options));
        let is_header = names.as_ref().is_some_and(|(_, names)| names.iter().all(|name| !name.contains('"')));
        // A comma may stand in a malformed line, too.
        let columns =
            names.filter(|_| is_header && !line.starts_with(b"{")).map(|names| Columns::new(names, options));
        if let Some(Ok(columns)) = columns {
            return Ok(Self::Table(columns));
        }
        let mut lines = begin.split(|byte| *byte == b'\n').zip(1..);
        let mut access = std::iter::from_fn(|| {
            lines.find_map(|(line, number)| Some((number, AccessLine::read(line, &mut last)?.prefix)))
        })
        .peekable();
        if access.peek().is_some() {
            return Ok(Self::Access(LastTime::default(), ClientFields::decide(access, options)?));
        }
        if let Some(client) = looked_at().find_map(record) {
            return Ok(Self::Record(client));
        }
        let why = match columns {
            Some(Err(why)) => why,
            _ => "it is neither an access log (host - - [time] \"request\" …), nor CSV or TSV with a header, nor what `record:` in a \
                  policy writes, plain or by gzip"
                .to_owned(),
        };
        Err((first as u64 + 1, why))
    }

    /// Whether a row of a table ends with this.
    fn ends(&mut self, row: &[u8]) -> bool {
        match self {
            Self::Table(columns) => columns.take(row) == Ends::Here,
            Self::Access(..) | Self::Record(_) => true,
        }
    }

    fn fault(&self) -> &'static str {
        match self {
            Self::Access(..) => NO_LINE,
            Self::Table(_) => NO_ROW,
            Self::Record(_) => NO_RECORD,
        }
    }

    fn entry<'l>(&'l mut self, line: &'l [u8], options: &'l LogOptions) -> Read<'l> {
        let fault = self.fault();
        let read = match self {
            Self::Access(last, clients) => {
                let line = AccessLine::read(line, last);
                let identity = match line.map(|line| clients.read(line.prefix)) {
                    Some(Err(IdentityFault::Malformed(why))) => return Read::Malformed(why),
                    Some(Err(IdentityFault::Refused(why))) => return Read::Refused(why),
                    Some(Ok(identity)) => Some(identity),
                    None => None,
                };
                line.zip(identity).and_then(|(line, identity)| {
                    let cost = if options.cost_columns.is_empty() { None } else { Some(bytes_of(&line)?) };
                    Some((line.at, cost, Fields::Access(line, identity)))
                })
            }
            Self::Table(columns) => {
                if columns.take(line) == Ends::Later {
                    return Read::GoesOn;
                }
                let read = columns.time_and_cost(line);
                let columns = &*columns;
                read.filter(|_| columns.client(line).is_some())
                    .map(|(at, cost)| (at, cost, Fields::Row(columns, line)))
            }
            Self::Record(client) => Recorded::read(line)
                .map(|(at, recorded)| (at, recorded.cost, Fields::Recorded(Box::new(recorded), client))),
        };
        match read {
            Some((at, cost, fields)) => Read::Entry(Entry { at, cost, fields, options }),
            None => Read::Malformed(fault),
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
