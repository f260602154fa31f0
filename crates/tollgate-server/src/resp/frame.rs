//! Requests as they come: arrays of bulk strings, or lines. They are read where they lie.

use std::ops::Range;

use memchr::memchr;

/// The longest argument.
const LONGEST_BULK: usize = 64 << 10;

/// The longest line: a request of its own, or a length.
const LONGEST_LINE: usize = 64 << 10;

/// The most arguments, the command included.
const MOST_ARGUMENTS: usize = 1024;

/// The same for whoever has yet to give the password.
const LONGEST_BULK_OF_STRANGERS: usize = 16 << 10;
const MOST_ARGUMENTS_OF_STRANGERS: usize = 10;

/// What begins at a place in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// A request that ends here. It may have no arguments, and is then passed over.
    Request { end: usize },
    /// A part of one: it is worth another look when the input is at least so long.
    Part { until: usize },
}

/// What is no request, and after which nothing can be understood any more. The texts are those of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProtocolError {
    #[error("invalid multibulk length")]
    ArrayLength,
    #[error("invalid bulk length")]
    BulkLength,
    #[error("expected '$', got '{}'", char::from(*.0))]
    NoBulk(u8),
    #[error("too big inline request")]
    LongLine,
    #[error("too big mbulk count string")]
    LongArrayLength,
    #[error("too big bulk count string")]
    LongBulkLength,
    #[error("unbalanced quotes in request")]
    Quotes,
    #[error("unauthenticated multibulk length")]
    ArrayOfStranger,
    #[error("unauthenticated bulk length")]
    BulkOfStranger,
    #[error("too big request")]
    LongRequest,
}

/// Reads the request that begins at `at`, and tells where its arguments lie. A line with quotes is unquoted in its place.
pub(super) fn parse(
    input: &mut [u8],
    at: usize,
    is_stranger: bool,
    arguments: &mut Vec<Range<usize>>,
) -> Result<Parsed, ProtocolError> {
    arguments.clear();
    match input.get(at) {
        None => Ok(Parsed::Part { until: at + 1 }),
        Some(b'*') => parse_array(input, at, is_stranger, arguments),
        Some(_) => parse_line(input, at, is_stranger, arguments),
    }
}

fn parse_array(
    input: &[u8],
    at: usize,
    is_stranger: bool,
    arguments: &mut Vec<Range<usize>>,
) -> Result<Parsed, ProtocolError> {
    let (count, mut at) = match Length::parse(input, at + 1) {
        Length::Is(length, end) => (length, end),
        Length::Part => return Ok(Parsed::Part { until: input.len() + 1 }),
        Length::Wrong => return Err(ProtocolError::ArrayLength),
        Length::Long => return Err(ProtocolError::LongArrayLength),
    };
    // None, as `*-1` has it, is as good as zero.
    let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
    if count > MOST_ARGUMENTS {
        return Err(ProtocolError::ArrayLength);
    }
    if is_stranger && count > MOST_ARGUMENTS_OF_STRANGERS {
        return Err(ProtocolError::ArrayOfStranger);
    }
    for _ in 0..count {
        match input.get(at) {
            None => return Ok(Parsed::Part { until: at + 1 }),
            Some(b'$') => {}
            Some(&other) => return Err(ProtocolError::NoBulk(other)),
        }
        let (length, begin) = match Length::parse(input, at + 1) {
            Length::Is(length, end) => (length, end),
            Length::Part => return Ok(Parsed::Part { until: input.len() + 1 }),
            Length::Wrong => return Err(ProtocolError::BulkLength),
            Length::Long => return Err(ProtocolError::LongBulkLength),
        };
        let length = usize::try_from(length).map_err(|_| ProtocolError::BulkLength)?;
        if length > LONGEST_BULK {
            return Err(ProtocolError::BulkLength);
        }
        if is_stranger && length > LONGEST_BULK_OF_STRANGERS {
            return Err(ProtocolError::BulkOfStranger);
        }
        let end = begin + length;
        match input.get(end..end + 2) {
            Some(b"\r\n") => {}
            // Redis takes any two bytes for the end of the line; whoever sends others has miscounted.
            Some(_) => return Err(ProtocolError::BulkLength),
            None => return Ok(Parsed::Part { until: end + 2 }),
        }
        arguments.push(begin..end);
        at = end + 2;
    }
    Ok(Parsed::Request { end: at })
}

/// The number in a line.
enum Length {
    /// And where the next line begins.
    Is(i64, usize),
    /// The line is not all there yet.
    Part,
    /// It is none.
    Wrong,
    /// The line is too long.
    Long,
}

impl Length {
    fn parse(input: &[u8], begin: usize) -> Self {
        let mut length = 0;
        // More digits than a length has would not fit, and are looked at below.
        for (at, &byte) in input.iter().enumerate().skip(begin).take(18) {
            match byte {
                b'0'..=b'9' => length = 10 * length + i64::from(byte - b'0'),
                b'\r' if at > begin && input.get(at + 1) == Some(&b'\n') => return Self::Is(length, at + 2),
                _ => break,
            }
        }
        Self::parse_any(&input[begin.min(input.len())..], begin)
    }

    /// What is not simply digits.
    fn parse_any(line: &[u8], begin: usize) -> Self {
        let Some(end) = memchr(b'\r', &line[..line.len().min(LONGEST_LINE + 1)]) else {
            return if line.len() > LONGEST_LINE { Self::Long } else { Self::Part };
        };
        match (line.get(end + 1), std::str::from_utf8(&line[..end]).map(str::parse)) {
            (None, _) => Self::Part,
            (Some(b'\n'), Ok(Ok(length))) => Self::Is(length, begin + end + 2),
            _ => Self::Wrong,
        }
    }
}

/// A line of words, which may be quoted.
fn parse_line(
    input: &mut [u8],
    at: usize,
    is_stranger: bool,
    arguments: &mut Vec<Range<usize>>,
) -> Result<Parsed, ProtocolError> {
    // With room for the line break, which is one byte or two.
    let line = &input[at..input.len().min(at + LONGEST_LINE + 2)];
    let Some(length) = memchr(b'\n', line) else {
        let is_long = line.len() == LONGEST_LINE + 2;
        return if is_long {
            Err(ProtocolError::LongLine)
        } else {
            Ok(Parsed::Part { until: input.len() + 1 })
        };
    };
    let end = at + length;
    let mut words = Words { line: &mut input[..end], next: at };
    while let Some(word) = words.next_word()? {
        if arguments.len() == MOST_ARGUMENTS {
            return Err(ProtocolError::LongLine);
        }
        if is_stranger && arguments.len() == MOST_ARGUMENTS_OF_STRANGERS {
            return Err(ProtocolError::ArrayOfStranger);
        }
        if is_stranger && word.len() > LONGEST_BULK_OF_STRANGERS {
            return Err(ProtocolError::BulkOfStranger);
        }
        arguments.push(word);
    }
    Ok(Parsed::Request { end: end + 1 })
}

/// The words of a line, as the shell-like rules of Redis have them.
struct Words<'a> {
    line: &'a mut [u8],
    next: usize,
}

impl Words<'_> {
    /// The next word, unquoted into its own place, where it is never longer.
    fn next_word(&mut self) -> Result<Option<Range<usize>>, ProtocolError> {
        while self.peek().is_some_and(is_space) {
            self.next += 1;
        }
        if self.peek().is_none() {
            return Ok(None);
        }
        let begin = self.next;
        let mut end = begin;
        while let Some(byte) = self.take().filter(|&byte| !is_space(byte)) {
            match byte {
                b'"' | b'\'' => {
                    while let Some(byte) = self.quoted(byte)? {
                        self.line[end] = byte;
                        end += 1;
                    }
                    // What is quoted ends its word.
                    if self.peek().is_some_and(|byte| !is_space(byte)) {
                        return Err(ProtocolError::Quotes);
                    }
                }
                byte => {
                    self.line[end] = byte;
                    end += 1;
                }
            }
        }
        Ok(Some(begin..end))
    }

    /// The next byte between quotes, or none at the closing one.
    fn quoted(&mut self, quote: u8) -> Result<Option<u8>, ProtocolError> {
        let byte = self.take().ok_or(ProtocolError::Quotes)?;
        if byte == quote {
            return Ok(None);
        }
        if byte != b'\\' {
            return Ok(Some(byte));
        }
        if quote == b'\'' {
            // Only the quote itself is escaped.
            if self.peek() == Some(b'\'') {
                return Ok(self.take());
            }
            return Ok(Some(byte));
        }
        if let Some(&[b'x', high, low]) = self.line.get(self.next..self.next + 3)
            && let (Some(high), Some(low)) = (hex(high), hex(low))
        {
            self.next += 3;
            return Ok(Some(16 * high + low));
        }
        Ok(Some(match self.take().ok_or(ProtocolError::Quotes)? {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'b' => 8,
            b'a' => 7,
            byte => byte,
        }))
    }

    fn peek(&self) -> Option<u8> {
        self.line.get(self.next).copied()
    }

    fn take(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.next += 1;
        Some(byte)
    }
}

/// As C has it: also the carriage return before the line's end.
const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests;
