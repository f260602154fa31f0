//! Tables of requests: CSV and TSV with a header.

use super::time::{number, unix_nanos};
use super::{LogOptions, Wanted};

/// Names that a client's column may have, the best first.
const CLIENTS: [&str; 5] = ["client", "client_ip", "ip", "host", "remote_addr"];

/// And that of the time, where there is no `date` beside a `time`.
const TIMES: [&str; 3] = ["timestamp", "time", "ts"];

/// Where in a row everything stands.
#[derive(Debug)]
pub(crate) struct Columns {
    separator: u8,
    names: Vec<String>,
    client: Option<usize>,
    is_client_named: bool,
    time: Vec<usize>, // joined by a space
    cost: Vec<usize>, // added up
    row: Row,
    time_text: Vec<u8>,
}

/// The fields of a row.
#[derive(Debug, Default)]
struct Row {
    unquoted: Vec<u8>, // where fields were quoted: all fields, without their quotes
    fields: Vec<(usize, usize)>,
    is_unquoted: bool, // whether fields stand there, or in the line itself
}

/// Whether a row ends with its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    Here,
    /// A field in quotes goes on in the next line.
    Later,
}

impl Row {
    fn read(&mut self, line: &[u8], separator: u8) -> Ends {
        self.fields.clear();
        self.is_unquoted = separator == b',' && memchr::memchr(b'"', line).is_some();
        if self.is_unquoted {
            return self.unquote(line, separator);
        }
        let mut from = 0;
        for place in memchr::memchr_iter(separator, line) {
            self.fields.push((from, place));
            from = place + 1;
        }
        self.fields.push((from, line.len()));
        Ends::Here
    }

    /// A field that begins with a quote ends with one; two in it are one (RFC 4180).
    fn unquote(&mut self, line: &[u8], separator: u8) -> Ends {
        self.unquoted.clear();
        let mut rest = line;
        loop {
            let from = self.unquoted.len();
            if let Some(mut quoted) = rest.strip_prefix(b"\"") {
                loop {
                    let Some(place) = memchr::memchr(b'"', quoted) else { return Ends::Later };
                    self.unquoted.extend_from_slice(&quoted[..place]);
                    quoted = &quoted[place + 1..];
                    match quoted.strip_prefix(b"\"") {
                        Some(after) => quoted = after,
                        None => break,
                    }
                    self.unquoted.push(b'"');
                }
                rest = quoted;
            }
            let end = memchr::memchr(separator, rest);
            self.unquoted.extend_from_slice(&rest[..end.unwrap_or(rest.len())]);
            self.fields.push((from, self.unquoted.len()));
            match end {
                Some(place) => rest = &rest[place + 1..],
                None => return Ends::Here,
            }
        }
    }

    fn field<'r>(&'r self, line: &'r [u8], place: usize) -> Option<&'r [u8]> {
        let (from, to) = *self.fields.get(place)?;
        Some(&(if self.is_unquoted { &self.unquoted } else { line })[from..to])
    }
}

/// The names in a header, if a line is one: several words with tabs or commas between them.
pub(crate) fn header(line: &[u8]) -> Option<(u8, Vec<String>)> {
    let separator = if line.contains(&b'\t') { b'\t' } else { b',' };
    let text = std::str::from_utf8(line)
        .ok()
        .filter(|text| !text.contains(|c: char| c.is_control() && c != '\t'))?;
    let mut row = Row::default();
    if row.read(text.as_bytes(), separator) == Ends::Later {
        return None;
    }
    let names = (0..row.fields.len()).filter_map(|place| row.field(text.as_bytes(), place));
    let names: Vec<String> = names.map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect();
    (names.iter().any(|name| !name.is_empty())).then_some((separator, names))
}

/// Whether a name is that of a time: then it can stand alone.
pub(crate) fn is_time(name: &str, options: &LogOptions) -> bool {
    let named = options.time_column.iter().map(String::as_str);
    named.chain(TIMES).any(|time| time.eq_ignore_ascii_case(name))
}

impl Columns {
    /// Finds the columns that are wanted. What is missing, in a sentence.
    pub(crate) fn new((separator, names): (u8, Vec<String>), options: &LogOptions) -> Result<Self, String> {
        let find = |wanted: &str| names.iter().position(|name| name.eq_ignore_ascii_case(wanted));
        let known = || {
            names.iter().filter(|name| !name.is_empty()).map(String::as_str).collect::<Vec<_>>().join(", ")
        };
        let all = |wanted: &[String]| {
            let column = |name: &String| {
                find(name).ok_or_else(|| format!("there is no column `{name}`: the columns are {}", known()))
            };
            wanted.iter().map(column).collect::<Result<Vec<usize>, String>>()
        };
        let time = if !options.time_column.is_empty() {
            all(&options.time_column)?
        } else if let (Some(date), Some(time)) = (find("date"), find("time")) {
            vec![date, time]
        } else {
            let guess = TIMES.into_iter().find_map(find);
            vec![guess.ok_or_else(|| {
                format!("no column looks like a time: name one by --time-column, of {}", known())
            })?]
        };
        let client = match (&options.client, options.client_column.as_ref()) {
            (Wanted::Nothing, _) => None,
            (Wanted::Needed, Some(name)) => Some(all(std::slice::from_ref(name))?[0]),
            (Wanted::Needed, None) => Some(CLIENTS.into_iter().find_map(find).ok_or_else(|| {
                format!(
                    "no column looks like a client: name one by --client-column, of {}, or count all by --by global",
                    known()
                )
            })?),
            (Wanted::IfThere, name) => match name {
                Some(name) => Some(all(std::slice::from_ref(name))?[0]),
                None => CLIENTS.into_iter().find_map(find),
            },
        };
        let cost = all(&options.cost_columns)?;
        let is_client_named = options.client_column.is_some();
        let (row, time_text) = (Row::default(), Vec::new());
        Ok(Self { separator, client, is_client_named, time, cost, row, time_text, names })
    }

    /// Takes a row apart.
    pub(crate) fn take(&mut self, line: &[u8]) -> Ends {
        self.row.read(line, self.separator)
    }

    /// The attribute that the client is: `ip`, unless the column was named, or another one is called so.
    pub(crate) fn client_name(&self) -> Option<&str> {
        let name = self.names[self.client?].as_str();
        let has_ip = self.names.iter().any(|name| name == "ip");
        Some(if self.is_client_named || has_ip { name } else { "ip" })
    }

    /// The client of the row that was taken apart; none where the row is malformed.
    pub(crate) fn client<'r>(&'r self, line: &'r [u8]) -> Option<&'r [u8]> {
        self.client.map_or(Some(b""), |place| self.row.field(line, place))
    }

    /// Its time and its cost; likewise.
    pub(crate) fn time_and_cost(&mut self, line: &[u8]) -> Option<(u64, Option<u64>)> {
        let at = match self.time[..] {
            [place] => unix_nanos(self.row.field(line, place)?.trim_ascii())?,
            ref places => {
                self.time_text.clear();
                for place in places {
                    if !self.time_text.is_empty() {
                        self.time_text.push(b' ');
                    }
                    self.time_text.extend_from_slice(self.row.field(line, *place)?.trim_ascii());
                }
                unix_nanos(&self.time_text)?
            }
        };
        let mut cost = None;
        for place in &self.cost {
            let more = whole(self.row.field(line, *place)?.trim_ascii())?;
            cost = Some(cost.unwrap_or(0_u64).checked_add(more)?);
        }
        Some((at, cost))
    }

    /// The names and the values of the row.
    pub(crate) fn each<'r>(&'r self, line: &'r [u8]) -> impl Iterator<Item = (&'r str, &'r [u8])> {
        let value =
            move |(place, name): (usize, &'r String)| Some((name.as_str(), self.row.field(line, place)?));
        self.names.iter().enumerate().filter_map(value).filter(|(name, _)| !name.is_empty())
    }
}

/// A whole number, also one that a program has written as `12.0`.
pub(crate) fn whole(text: &[u8]) -> Option<u64> {
    match text.iter().position(|byte| *byte == b'.') {
        Some(point) => {
            number(&text[..point]).filter(|_| text[point + 1..].iter().all(|digit| *digit == b'0'))
        }
        None => number(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(line: &str, separator: u8) -> Option<Vec<String>> {
        let mut row = Row::default();
        if row.read(line.as_bytes(), separator) == Ends::Later {
            return None;
        }
        let field = |place| String::from_utf8_lossy(row.field(line.as_bytes(), place).unwrap()).into_owned();
        Some((0..row.fields.len()).map(field).collect())
    }

    #[test]
    fn fields_may_be_quoted_in_csv_and_not_in_tsv() {
        for (line, expected) in [
            ("a,b,,c", Some(&["a", "b", "", "c"][..])),
            ("", Some(&[""])),
            (r#""a,b",c"#, Some(&["a,b", "c"])),
            (r#""say ""x""",c"#, Some(&[r#"say "x""#, "c"])),
            (r#"a"b,"c"d,"""#, Some(&[r#"a"b"#, "cd", ""])),
            (r#"a"b,"c"d"#, Some(&[r#"a"b"#, "cd"])),
            ("\"two\nlines\",c", Some(&["two\nlines", "c"])),
            (r#""open,c"#, None),
        ] {
            assert_eq!(
                fields(line, b','),
                expected.map(|all| all.iter().map(ToString::to_string).collect()),
                "{line}"
            );
        }
        assert_eq!(fields("\"a\tb\"\t", b'\t').unwrap(), ["\"a", "b\"", ""]);
    }

    #[test]
    fn costs_are_whole() {
        for (text, cost) in [("12", Some(12)), ("12.0", Some(12)), ("12.", Some(12)), ("0", Some(0))] {
            assert_eq!(whole(text.as_bytes()), cost, "{text}");
        }
        for text in ["", ".0", "1.5", "-1", "1e3", "a", "99999999999999999999"] {
            assert_eq!(whole(text.as_bytes()), None, "{text}");
        }
    }
}
