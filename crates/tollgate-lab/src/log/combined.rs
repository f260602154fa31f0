//! Lines of web servers: the common and the combined log format. [`client_fields`](super::client_fields) reads the fields before the time.

use super::time::unix_nanos;

/// The most opening brackets of a line that are tried as the beginning of its time.
const MOST_BRACKETS: usize = 40;

/// The most bytes between the brackets of a time.
const LONGEST_TIME: usize = 256;

/// A line of an access log, such as
/// `10.0.0.1 - alice [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 12 "referer" "agent"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccessLine<'l> {
    /// The fields before the time.
    pub(crate) prefix: &'l [u8],
    pub(crate) at: u64,
    /// From behind the opening quote on. Any bytes may stand there.
    pub(crate) request: &'l [u8],
}

/// The time that was read last. Most lines have that of the one before.
#[derive(Debug, Default)]
pub(crate) struct LastTime {
    text: Vec<u8>,
    at: u64,
}

impl LastTime {
    fn read(&mut self, text: &[u8]) -> Option<u64> {
        if self.text != text {
            self.at = unix_nanos(text)?;
            self.text.clear();
            self.text.extend_from_slice(text);
        }
        Some(self.at)
    }
}

impl<'l> AccessLine<'l> {
    /// Reads a line: a field, a time in brackets, and the quote that opens the request make one.
    pub(crate) fn read(line: &'l [u8], last: &mut LastTime) -> Option<Self> {
        // A first field may be an address in brackets.
        let first = memchr::memchr(b' ', line).filter(|end| *end > 0)?;
        // Addresses and the name of a user may have brackets in them, too.
        memchr::memchr_iter(b'[', &line[first..]).take(MOST_BRACKETS).find_map(|place| {
            let (prefix, after) = (&line[..first + place], &line[first + place + 1..]);
            let end = memchr::memchr(b']', &after[..after.len().min(LONGEST_TIME)])?;
            let (time, request) = after.split_at(end);
            let request = request[1..].trim_ascii_start().strip_prefix(b"\"")?;
            Some(Self { prefix, at: last.read(time)?, request })
        })
    }

    /// The method and the target of the request, where it is one.
    pub(crate) fn method_and_target(&self) -> Option<(&'l [u8], &'l [u8])> {
        let request = self.quoted(0)?;
        let mut words = request.split(|byte| *byte == b' ');
        Some((words.next()?, words.next()?))
    }

    /// The status that was answered.
    pub(crate) fn status(&self) -> Option<&'l [u8]> {
        self.words_behind_request()?.next()
    }

    /// The bytes that were.
    pub(crate) fn bytes(&self) -> Option<&'l [u8]> {
        self.words_behind_request()?.nth(1)
    }

    fn words_behind_request(&self) -> Option<impl Iterator<Item = &'l [u8]>> {
        let rest = &self.request[end_of_quoted(self.request)? + 1..];
        Some(rest.split(|byte| *byte == b' ').filter(|word| !word.is_empty()))
    }

    pub(crate) fn referer(&self) -> Option<&'l [u8]> {
        self.quoted(1)
    }

    pub(crate) fn agent(&self) -> Option<&'l [u8]> {
        self.quoted(2)
    }

    /// One of the quoted parts, from the request on.
    fn quoted(&self, place: usize) -> Option<&'l [u8]> {
        let mut rest = self.request;
        for _ in 0..place {
            rest = &rest[end_of_quoted(rest)? + 1..];
            rest = &rest[memchr::memchr(b'"', rest)? + 1..];
        }
        Some(&rest[..end_of_quoted(rest)?])
    }
}

/// Where the closing quote is: the first one that is not escaped.
fn end_of_quoted(text: &[u8]) -> Option<usize> {
    let is_escaped =
        |place: usize| text[..place].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1;
    memchr::memchr_iter(b'"', text).find(|place| !is_escaped(*place))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<AccessLine<'_>> {
        AccessLine::read(line.as_bytes(), &mut LastTime::default())
    }

    #[test]
    fn a_combined_line_is_taken_apart() {
        let line = r#"10.0.0.1 - alice [17/May/2015:10:05:03 +0000] "GET /a?b HTTP/1.1" 200 12 "http://b/" "An \"agent\" (x)""#;
        let line = read(line).unwrap();
        assert_eq!(line.prefix, b"10.0.0.1 - alice ");
        assert_eq!(line.at, 1_431_857_103_000_000_000);
        assert_eq!(line.method_and_target(), Some((&b"GET"[..], &b"/a?b"[..])));
        assert_eq!((line.status(), line.bytes()), (Some(&b"200"[..]), Some(&b"12"[..])));
        assert_eq!(
            (line.referer(), line.agent()),
            (Some(&b"http://b/"[..]), Some(&br#"An \"agent\" (x)"#[..]))
        );
    }

    #[test]
    fn a_field_a_time_and_a_quote_make_a_line() {
        for line in [
            r#"unicomp6.unicomp.net - - [01/Jul/1995:00:00:06 -0400] "GET /shuttle/countdown/ HTTP/1.0" 200 3985"#,
            r#"::1 - - [01/Jul/1995:00:00:06 -0400] "\x16\x03\x01" 400 0"#,
            r#"a - "b [c" d [01/Jul/1995:00:00:06 -0400] "-" 408 0"#,
            r#"a - - [01/Jul/1995:00:00:06 -0400] ""#,
            r#"a - - [804571206.25] "x"#,
        ] {
            assert!(read(line).is_some(), "{line}");
        }
        for line in [
            "",
            "a",
            "a - - ",
            r#" - - [01/Jul/1995:00:00:06 -0400] "GET"#,
            r#"a - - [01/Jul/1995:00:00:06 -0400] GET"#,
            r#"a - - [01/Jul/0000:00:00:06 -0400] "GET"#,
            r#"a - - 01/Jul/1995:00:00:06 -0400 "GET"#,
            r#"a - - [01/Jul/1995:00:00:06 -0400"#,
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
