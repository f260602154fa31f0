//! A fast path of [`parse`](super::parse) for the rules that callers send.
//!
//! A caller may send a different rule with every call, so parsing must be fast. The YAML parser takes microseconds for
//! `{"rate":"5/s","burst":9}`. This file reads the usual form of such a rule and leaves every other text to the YAML
//! parser. Both return the same tree with the same spans, so the messages about a rule do not depend on its parser.

use std::ops::Range;

use super::{Node, Value};

/// The most entries of an object. No algorithm has more settings, and the test for duplicate names is quadratic.
const MOST_ENTRIES: usize = 8;

/// The most digits of a number. All numbers of this length fit into a `u64`.
const MOST_DIGITS: usize = 19;

/// The longest text, in bytes. YAML allows no more characters from the start of a key to its colon.
const LONGEST: usize = 1024;

/// Reads one JSON object. Its names are different strings of the characters `a` to `z` and `_`. Its values are strings
/// and whole numbers from 0. Strings consist of printable ASCII characters, and `\/` is their only escape.
///
/// Returns `None` for any other text. The YAML parser then decides whether this text is valid.
pub(super) fn parse(source: &str) -> Option<Node> {
    if source.len() > LONGEST {
        return None;
    }
    let mut scanner = Scanner { source, at: 0 };
    let mut entries: Vec<(Node, Node)> = Vec::with_capacity(4);
    scanner.skip_blanks();
    let start = scanner.at;
    scanner.take(b'{')?;
    let span = start..scanner.at; // a map has the span of its first byte, as the YAML parser reports it
    scanner.skip_blanks();
    if scanner.take(b'}').is_none() {
        loop {
            let (name, span) = scanner.name()?;
            let is_duplicate =
                |(known, _): &(Node, Node)| matches!(&known.value, Value::Text(text) if text == name);
            if entries.len() == MOST_ENTRIES || entries.iter().any(is_duplicate) {
                return None;
            }
            let name = Node { value: Value::Text(name.to_owned()), span };
            while scanner.take(b' ').is_some() {} // YAML allows no line break here
            scanner.take(b':')?;
            scanner.skip_blanks();
            entries.push((name, scanner.value()?));
            scanner.skip_blanks();
            if scanner.take(b',').is_none() {
                break;
            }
            scanner.skip_blanks();
        }
        scanner.take(b'}')?;
    }
    scanner.skip_blanks();
    (scanner.at == source.len()).then_some(Node { value: Value::Map(entries), span })
}

/// A text, and the place of the next byte to read. All bytes before it are ASCII characters.
struct Scanner<'s> {
    source: &'s str,
    at: usize,
}

impl<'s> Scanner<'s> {
    fn peek(&self) -> Option<u8> {
        self.source.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek() == Some(byte)).then(|| self.at += 1)
    }

    fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    /// Returns the next ASCII characters for which `belongs` is true, and moves past them.
    fn take_while(&mut self, belongs: impl Fn(u8) -> bool) -> &'s str {
        let rest = &self.source[self.at..];
        let end = rest.bytes().position(|byte| !(byte.is_ascii() && belongs(byte)));
        let taken = &rest[..end.unwrap_or(rest.len())];
        self.at += taken.len();
        taken
    }

    fn name(&mut self) -> Option<(&'s str, Range<usize>)> {
        let start = self.at;
        self.take(b'"')?;
        let name = self.take_while(|byte| matches!(byte, b'a'..=b'z' | b'_'));
        self.take(b'"')?;
        (!name.is_empty()).then_some((name, start..self.at))
    }

    fn value(&mut self) -> Option<Node> {
        let start = self.at;
        let value = if self.take(b'"').is_some() { self.string()? } else { self.number()? };
        Some(Node { value, span: start..self.at })
    }

    /// The rest of a string after its first quote.
    fn string(&mut self) -> Option<Value> {
        let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
        let mut text = self.take_while(is_plain).to_owned();
        while self.take(b'"').is_none() {
            self.take(b'\\')?;
            self.take(b'/')?; // some encoders escape every slash
            text.push('/');
            text.push_str(self.take_while(is_plain));
        }
        Some(Value::Text(text))
    }

    fn number(&mut self) -> Option<Value> {
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        let has_leading_zero = digits.len() > 1 && digits.starts_with('0');
        if digits.is_empty() || digits.len() > MOST_DIGITS || has_leading_zero {
            return None;
        }
        let number = digits.bytes().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
        Some(Value::Integer(number.into()))
    }
}
