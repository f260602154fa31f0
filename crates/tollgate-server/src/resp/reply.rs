//! Replies, in either version of the protocol.

use std::fmt::Display;
use std::io::Write as _;

/// Which version a connection speaks. It begins with 2, and `HELLO` changes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Version {
    #[default]
    Two = 2,
    Three = 3,
}

/// Appends replies to what is about to be sent.
pub(super) struct Reply<'a> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) version: Version,
}

impl Reply<'_> {
    pub(super) fn ok(&mut self) {
        self.simple("OK");
    }

    /// A text without line breaks.
    pub(super) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error, which begins with its code, such as `ERR`. What would break the line is replaced by spaces.
    pub(super) fn error(&mut self, text: impl Display) {
        self.out.push(b'-');
        let begin = self.out.len();
        write!(self.out, "{text}").expect("a vector takes everything");
        for byte in &mut self.out[begin..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.out.extend_from_slice(b"\r\n");
    }

    pub(super) fn integer(&mut self, value: i64) {
        self.number(b':', value);
    }

    /// An integer that counts something.
    pub(super) fn count(&mut self, count: usize) {
        self.length(b':', count);
    }

    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.length(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A text for people: verbatim, where that can be said.
    pub(super) fn text(&mut self, text: &str) {
        match self.version {
            Version::Two => self.bulk(text.as_bytes()),
            Version::Three => {
                self.length(b'=', text.len() + 4);
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text.as_bytes());
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    pub(super) fn null(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::Two => b"$-1\r\n",
            Version::Three => b"_\r\n",
        });
    }

    /// Begins an array of so many replies.
    pub(super) fn array(&mut self, length: usize) {
        self.length(b'*', length);
    }

    /// Begins a map of so many pairs of replies: in version 2, an array in which they follow each other.
    pub(super) fn map(&mut self, pairs: usize) {
        match self.version {
            Version::Two => self.length(b'*', 2 * pairs),
            Version::Three => self.length(b'%', pairs),
        }
    }

    fn length(&mut self, kind: u8, length: usize) {
        self.number(kind, i64::try_from(length).unwrap_or(i64::MAX));
    }

    fn number(&mut self, kind: u8, value: i64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = value.unsigned_abs();
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if value < 0 {
            at -= 1;
            digits[at] = b'-';
        }
        self.line(kind, &digits[at..]);
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_its_own_forms() {
        type Write = fn(&mut Reply<'_>);
        let rows: [(Write, &str, &str); 10] = [
            (|reply| reply.ok(), "+OK\r\n", "+OK\r\n"),
            (|reply| reply.error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
            (|reply| reply.integer(i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"),
            (|reply| reply.integer(i64::MAX), ":9223372036854775807\r\n", ":9223372036854775807\r\n"),
            (|reply| reply.integer(0), ":0\r\n", ":0\r\n"),
            (|reply| reply.bulk(b"a\r\n\xff"), "$4\r\na\r\n\u{fffd}\r\n", "$4\r\na\r\n\u{fffd}\r\n"),
            (|reply| reply.text("abc"), "$3\r\nabc\r\n", "=7\r\ntxt:abc\r\n"),
            (|reply| reply.null(), "$-1\r\n", "_\r\n"),
            (|reply| reply.array(10), "*10\r\n", "*10\r\n"),
            (|reply| reply.map(7), "*14\r\n", "%7\r\n"),
        ];
        for (write, two, three) in rows {
            for (version, expected) in [(Version::Two, two), (Version::Three, three)] {
                let mut out = Vec::new();
                write(&mut Reply { out: &mut out, version });
                assert_eq!(String::from_utf8_lossy(&out), expected, "{version:?}");
            }
        }
    }
}
