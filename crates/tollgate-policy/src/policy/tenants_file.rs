//! The tenants file: one `tenant,tier` per line, for more tenants than a policy file should hold.
//!
//! A line is CSV (RFC 4180) within one line. The numbers after the tier mean what they mean under `tenants:` of the policy file, and
//! the same code reads them.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::Path;

use indexmap::IndexMap;
use indexmap::map::Entry;

use super::files::UnusableFile;
use super::tenants::{KnownTier, OwnLimits, TenantReader, add_number};
use super::{Policy, Tenant, Tenants};
use crate::fault::{Fault, Faults, MOST_SHOWN};
use crate::reader::Reader;
use crate::yaml::{Node, Value};

/// The most bytes of a tenants file: about 20 million short lines.
pub(super) const MAX_FILE_BYTES: u64 = 512 << 20;

/// The most tenants of a tenants file.
pub(super) const MAX_TENANTS: usize = 10_000_000;

/// The most bytes of a line.
pub(super) const MAX_LINE_BYTES: usize = 64 << 10;

/// The most bytes of a tenant. A check with a longer attribute is refused, so that a longer tenant could not be found.
pub(super) const MAX_TENANT_BYTES: usize = 4 << 10;

/// The key of the policy file that names the file.
const KEY: &str = "tenants_file";

/// Why a tenants file is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TenantsFileError {
    /// It cannot be read at all.
    Unusable(UnusableFile),
    /// Some of its lines are wrong.
    Faults(Faults),
}

impl fmt::Display for TenantsFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable(file) => file.fmt(f),
            Self::Faults(faults) => faults.fmt(f),
        }
    }
}

impl std::error::Error for TenantsFileError {}

impl Policy {
    /// Reads the tenants file that the policy names, if it names one. [`read`](Self::read) has done so.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or a line is wrong. Then the tenants of the policy stay as they were.
    pub fn read_tenants_file(&mut self) -> Result<(), TenantsFileError> {
        let Some(path) = &self.tenants_file else { return Ok(()) };
        let shown = self.environment_values.hide(path).into_owned();
        let unusable =
            |error| TenantsFileError::Unusable(UnusableFile { key: KEY, path: shown.clone(), error });
        let content = read_content(Path::new(path)).map_err(unusable)?;
        let text = std::str::from_utf8(&content).map_err(|error| {
            let before = &content[..error.valid_up_to()];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            unusable(format!("line {line} is not UTF-8 text; save the file as UTF-8"))
        })?;
        let tenants = self
            .tenants_of(text, MAX_TENANTS)
            .map_err(|faults| TenantsFileError::Faults(Faults::of_lines(shown.clone(), text, faults)))?;
        self.tenants = tenants;
        Ok(())
    }

    /// The tenants of the policy file, and those of the text of a tenants file.
    fn tenants_of(&self, text: &str, max_tenants: usize) -> Result<Tenants, Vec<Fault>> {
        let mut tier_names: Vec<String> = self.tiers.keys().cloned().collect();
        tier_names.sort_unstable();
        let limits = self.limits.iter().map(|limit| (limit.name.as_str(), Some(&limit.template)));
        let reader = Reader::new(&|_| None);
        let mut file = TenantsFile {
            reader: &reader,
            tenants: TenantReader::new(&tier_names, self.default_tier.as_deref(), limits),
            by_name: self.tenants.without_file(),
            lines: Vec::new(),
            max_tenants,
            scratch: String::new(),
        };
        file.read(text);
        let by_name = file.by_name;
        let faults = reader.into_faults();
        if faults.is_empty() { Ok(by_name.into()) } else { Err(faults) }
    }
}

/// Opens a tenants file, and returns how many bytes it has.
pub(super) fn open(path: &Path) -> Result<(File, u64), String> {
    let refused = |error: io::Error| error.to_string();
    let metadata = std::fs::metadata(path).map_err(refused)?;
    if metadata.is_dir() {
        return Err("this is a directory; name a file".to_owned());
    }
    // Opening a pipe may wait for its other end.
    if !metadata.is_file() {
        return Err("not a regular file".to_owned());
    }
    require_size(metadata.len())?;
    Ok((File::open(path).map_err(refused)?, metadata.len()))
}

fn read_content(path: &Path) -> Result<Vec<u8>, String> {
    let (file, bytes) = open(path)?;
    let mut content = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0) + 1);
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content).map_err(|error| error.to_string())?;
    require_size(content.len() as u64)?; // it may have grown
    Ok(content)
}

fn require_size(bytes: u64) -> Result<(), String> {
    if bytes > MAX_FILE_BYTES {
        return Err(format!("the file has {bytes} bytes; a tenants file has at most {MAX_FILE_BYTES}"));
    }
    Ok(())
}

/// A tenants file that is being read.
struct TenantsFile<'p> {
    reader: &'p Reader<'p>,
    tenants: TenantReader<'p>,
    by_name: IndexMap<String, Tenant>, // first those of the policy file
    lines: Vec<u32>,                   // the line of each tenant that is in this file, in their order
    max_tenants: usize,
    scratch: String,
}

/// A field of a line, and where it is in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field<'t> {
    text: Cow<'t, str>,
    span: Range<usize>,
}

/// A number of a tenant's own: `limit:key=value`.
#[derive(Clone, Debug)]
struct OwnNumber<'l> {
    limit: &'l str,
    key: &'l str,
    value: &'l str,
    span: Range<usize>,
}

impl TenantsFile<'_> {
    /// Reads all lines. Ends early when there are as many faults as are shown.
    fn read(&mut self, text: &str) {
        let in_policy = self.by_name.len();
        let line_breaks = text.bytes().filter(|byte| *byte == b'\n').count();
        self.by_name.reserve(line_breaks.saturating_add(1).min(self.max_tenants));
        let mut fields = Vec::new();
        let (mut at, mut number) = (0, 0_u32);
        for whole in text.split_inclusive('\n') {
            let line = whole.strip_suffix('\n').unwrap_or(whole);
            let line = line.strip_suffix('\r').unwrap_or(line);
            // Some editors begin a file with a byte order mark.
            let (line, start) = match line.strip_prefix('\u{feff}').filter(|_| at == 0) {
                Some(line) => (line, '\u{feff}'.len_utf8()),
                None => (line, at),
            };
            at += whole.len();
            number += 1;
            let content = line.trim_matches(BLANKS);
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let span = start..start + line.len();
            if self.lines.len() >= self.max_tenants {
                let fault = Fault::new(span, format!("more than {} tenants", self.max_tenants));
                self.reader.fault(fault.help(format!("a tenants file has at most {}", self.max_tenants)));
                return;
            }
            fields.clear();
            let read = split(line, start, &mut fields).and_then(|()| self.line(&fields, span, in_policy));
            match read {
                Ok(()) => self.lines.push(number),
                Err(BadLine(fault)) => fault.into_iter().for_each(|fault| self.reader.fault(fault)),
            }
            if self.reader.fault_count() >= MOST_SHOWN {
                return;
            }
        }
    }

    /// Adds the tenant of a line.
    fn line(&mut self, fields: &[Field<'_>], span: Range<usize>, in_policy: usize) -> Result<(), BadLine> {
        let [tenant, tier, own @ ..] = fields else {
            let fault = Fault::new(span, "a line without a tier");
            return Err(fault
                .help("write `tenant,tier`; an empty tier, as in `tenant,`, is the default tier")
                .into());
        };
        self.require_tenant(tenant)?;
        let known_tier = match &*tier.text {
            "" => None,
            name => Some(self.tenants.tier(name, tier.span.clone()).map_err(|fault| {
                let is_header = self.lines.is_empty() && (&*tenant.text, name) == ("tenant", "tier");
                if is_header { fault.help("begin the line of headings with `#`") } else { fault }
            })?),
        };
        let limits = if own.is_empty() { OwnLimits::default() } else { self.own(own, known_tier.as_ref())? };
        let tier = known_tier.map(|tier| tier.name);
        match self.by_name.entry(tenant.text.clone().into_owned()) {
            Entry::Vacant(entry) => {
                entry.insert(Tenant { tier, weight: None, limits, is_in_file: true });
                Ok(())
            }
            Entry::Occupied(entry) => {
                let earlier = entry.index().checked_sub(in_policy).and_then(|place| self.lines.get(place));
                let fault =
                    Fault::new(tenant.span.clone(), format!("tenant `{}` a second time", tenant.text));
                Err(fault
                    .help(match earlier {
                        Some(line) => format!("line {line} has this tenant; keep one of the lines"),
                        None => {
                            "`tenants:` of the policy file has this tenant; keep it in one place".to_owned()
                        }
                    })
                    .into())
            }
        }
    }

    fn require_tenant(&self, tenant: &Field<'_>) -> Result<(), Fault> {
        let fault = |message: String| Fault::new(tenant.span.clone(), message);
        if tenant.text.is_empty() {
            return Err(fault("a line without a tenant".to_owned()).help("write `tenant,tier`"));
        }
        if tenant.text.len() > MAX_TENANT_BYTES {
            let message = format!("a tenant of {} bytes", tenant.text.len());
            return Err(fault(message).help(format!("a tenant has at most {MAX_TENANT_BYTES} bytes")));
        }
        Ok(())
    }

    /// The numbers of a tenant's own.
    fn own(&mut self, fields: &[Field<'_>], tier: Option<&KnownTier>) -> Result<OwnLimits, BadLine> {
        let mut numbers = Vec::with_capacity(fields.len());
        for field in fields {
            numbers.push(own_number(field)?);
        }
        // Puts the numbers of one limit together, in the order of the line.
        numbers.sort_by_key(|number| number.limit);
        let by_limit = || numbers.chunk_by(|a, b| a.limit == b.limit);
        let mut own = Vec::with_capacity(by_limit().count());
        for of_limit in by_limit() {
            self.scratch.clear();
            for number in of_limit {
                add_number(&mut self.scratch, number.key, number.value);
            }
            let (limit, span) = (of_limit[0].limit, of_limit[0].span.clone());
            let node = || Cow::Owned(self::node(self.reader, of_limit));
            match self.tenants.own(self.reader, (limit, span), tier, Some(&self.scratch), node) {
                Some(numbers) => own.push(numbers),
                None => return Err(BadLine(None)), // the reader has the fault
            }
        }
        Ok(OwnLimits::new(own))
    }
}

/// A line that is not a tenant. `None`: the reader has already recorded the fault.
struct BadLine(Option<Fault>);

impl From<Fault> for BadLine {
    fn from(fault: Fault) -> Self {
        Self(Some(fault))
    }
}

/// The blanks that may stand around a field.
const BLANKS: [char; 2] = [' ', '\t'];

/// Splits a line into its fields. `at` is where the line is in the file.
fn split<'t>(line: &'t str, at: usize, fields: &mut Vec<Field<'t>>) -> Result<(), BadLine> {
    let fault = |start: usize, message: String| Fault::new(at + start..at + line.len(), message);
    if line.len() > MAX_LINE_BYTES {
        let start = Fault::new(at..at, format!("a line of {} bytes", line.len()));
        return Err(start
            .help(format!("a line of a tenants file has at most {MAX_LINE_BYTES} bytes"))
            .into());
    }
    if let Some(place) = line.find('\r') {
        let fault = fault(place, "a carriage return inside of a line".to_owned());
        return Err(fault.help("end each line with LF or with CRLF").into());
    }
    let mut start = 0;
    loop {
        let rest = &line[start..];
        let blanks = rest.len() - rest.trim_start_matches(BLANKS).len();
        if rest[blanks..].starts_with('"') {
            let open = start + blanks;
            let Some((text, end)) = unquoted(line, open) else {
                let fault = fault(open, "a quote that is not closed on its line".to_owned());
                return Err(fault.help("close it with `\"`; a quote inside of quotes is `\"\"`").into());
            };
            fields.push(Field { text, span: at + open..at + end });
            let after = line[end..].trim_start_matches(BLANKS);
            let next = line.len() - after.len();
            match after.as_bytes().first() {
                None => return Ok(()),
                Some(b',') => start = next + 1,
                Some(_) => {
                    let fault = fault(next, "text after a closing quote".to_owned());
                    return Err(fault
                        .help("quote the whole field; a quote inside of quotes is `\"\"`")
                        .into());
                }
            }
        } else {
            let end = rest.find(',').map_or(line.len(), |comma| start + comma);
            let text = line[start..end].trim_matches(BLANKS);
            let begin = if text.is_empty() { start } else { start + blanks };
            fields.push(Field { text: Cow::Borrowed(text), span: at + begin..at + begin + text.len() });
            if end == line.len() {
                return Ok(());
            }
            start = end + 1;
        }
    }
}

/// The text between the quote at `open` and the one that closes it, and where the line goes on after that.
fn unquoted(line: &str, open: usize) -> Option<(Cow<'_, str>, usize)> {
    let (start, mut at) = (open + 1, open + 1);
    loop {
        let quote = at + line[at..].find('"')?;
        if line[quote + 1..].starts_with('"') {
            at = quote + 2;
            continue;
        }
        let text = &line[start..quote];
        let text =
            if text.contains('"') { Cow::Owned(text.replace("\"\"", "\"")) } else { Cow::Borrowed(text) };
        return Some((text, quote + 1));
    }
}

/// Reads `limit:key=value`. Names of limits may have colons, so the last one counts.
fn own_number<'l>(field: &'l Field<'_>) -> Result<OwnNumber<'l>, Fault> {
    let fault = |message: String| Fault::new(field.span.clone(), message);
    let parts = field.text.split_once('=').and_then(|(name, value)| Some((name.rsplit_once(':')?, value)));
    let Some(((limit, key), value)) = parts else {
        let message = if field.text.is_empty() {
            "an empty field".to_owned()
        } else {
            format!("`{}` is not a number of a limit", field.text)
        };
        return Err(fault(message).help("write `limit:field=value`, such as `per-user:burst=200`"));
    };
    if value.contains("${") {
        let fault = fault(format!("`{value}` in a tenants file"));
        return Err(
            fault.help("only the policy file is expanded from the environment: write the value itself")
        );
    }
    let [limit, key, value] = [limit, key, value].map(|part| part.trim_matches(BLANKS));
    Ok(OwnNumber { limit, key, value, span: field.span.clone() })
}

/// The numbers of one limit, as they would stand in the policy file.
fn node(reader: &Reader<'_>, numbers: &[OwnNumber<'_>]) -> Node {
    let mut entries: Vec<(Node, Node)> = Vec::with_capacity(numbers.len());
    let mut keys = std::collections::HashSet::new();
    for OwnNumber { limit, key, value, span } in numbers {
        if !keys.insert(*key) {
            let fault = Fault::new(span.clone(), format!("`{limit}:{key}` a second time"));
            reader.fault(fault.help("keep one of them"));
        }
        let value = match value.parse() {
            Ok(number) => Value::Integer(number),
            Err(_) => Value::Text((*value).to_owned()),
        };
        let key = Node { value: Value::Text((*key).to_owned()), span: span.clone() };
        entries.push((key, Node { value, span: span.clone() }));
    }
    let span = match (numbers.first(), numbers.last()) {
        (Some(first), Some(last)) => first.span.start..last.span.end,
        _ => 0..0,
    };
    Node { value: Value::Map(entries), span }
}

#[cfg(test)]
mod tests;
