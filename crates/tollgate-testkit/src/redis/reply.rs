//! What Redis answers (RESP2).

use std::fmt;
use std::io::{self, BufRead, Read as _};

/// One answer.
#[derive(Clone, PartialEq, Eq)]
pub enum Reply {
    /// A short text, such as `OK`.
    Simple(String),
    /// A refusal, with its code, such as `MOVED 3999 127.0.0.1:6381`.
    Error(String),
    /// A number.
    Integer(i64),
    /// Bytes, or nothing.
    Bulk(Option<Vec<u8>>),
    /// Several answers, or nothing.
    Array(Option<Vec<Reply>>),
}

/// Redis sends no longer string than this (`proto-max-bulk-len`).
const LONGEST: usize = 512 << 20;

/// How deep arrays may be nested: more than any command does.
const DEEPEST: usize = 32;

impl Reply {
    /// The text of a simple or a bulk answer.
    ///
    /// # Panics
    ///
    /// When it is none, or no text.
    pub fn text(&self) -> &str {
        match self {
            Self::Simple(text) => text,
            Self::Bulk(Some(bytes)) => {
                str::from_utf8(bytes).unwrap_or_else(|_| panic!("it is no text: {self:?}"))
            }
            _ => panic!("it is no text: {self:?}"),
        }
    }

    /// The number: also one that Redis sends as a string, as it does with stored ones.
    ///
    /// # Panics
    ///
    /// When it is none.
    pub fn integer(&self) -> i64 {
        match self {
            Self::Integer(number) => *number,
            Self::Bulk(Some(_)) => {
                self.text().parse().unwrap_or_else(|_| panic!("it is no integer: {self:?}"))
            }
            _ => panic!("it is no integer: {self:?}"),
        }
    }

    /// The bytes of a bulk answer.
    ///
    /// # Panics
    ///
    /// When it is none, or nothing.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bulk(Some(bytes)) => bytes,
            _ => panic!("it has no bytes: {self:?}"),
        }
    }

    /// The parts of an array.
    ///
    /// # Panics
    ///
    /// When it is none, or nothing.
    pub fn array(&self) -> &[Reply] {
        match self {
            Self::Array(Some(parts)) => parts,
            _ => panic!("it is no array: {self:?}"),
        }
    }

    /// What is refused, where it is a refusal.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Error(error) => Some(error),
            _ => None,
        }
    }

    /// Whether it is nothing: no such key, say.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Bulk(None) | Self::Array(None))
    }

    /// Reads one.
    pub(super) fn read(from: &mut impl BufRead) -> io::Result<Self> {
        Self::read_at(from, 0)
    }

    fn read_at(from: &mut impl BufRead, depth: usize) -> io::Result<Self> {
        let line = line(from)?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| no_resp(&line))?;
        match kind {
            "+" => Ok(Self::Simple(rest.to_owned())),
            "-" => Ok(Self::Error(rest.to_owned())),
            ":" => rest.parse().map(Self::Integer).map_err(|_| no_resp(&line)),
            "$" | "*" if rest == "-1" => Ok(if kind == "$" { Self::Bulk(None) } else { Self::Array(None) }),
            "$" => {
                let length = rest.parse().ok().filter(|&length| length <= LONGEST);
                let length = length.ok_or_else(|| no_resp(&line))?;
                let mut bytes = vec![0; length];
                from.read_exact(&mut bytes)?;
                let mut end = [0; 2];
                from.read_exact(&mut end)?;
                if end == *b"\r\n" { Ok(Self::Bulk(Some(bytes))) } else { Err(no_resp(&line)) }
            }
            "*" if depth < DEEPEST => {
                let count: usize = rest.parse().map_err(|_| no_resp(&line))?;
                let parts = (0..count).map(|_| Self::read_at(from, depth + 1));
                parts.collect::<io::Result<_>>().map(|parts| Self::Array(Some(parts)))
            }
            _ => Err(no_resp(&line)),
        }
    }
}

/// As one reads it: bytes as text wherever they are.
impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple(text) => write!(f, "+{text}"),
            Self::Error(error) => write!(f, "-{error}"),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Bulk(Some(bytes)) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Array(Some(parts)) => f.debug_list().entries(parts).finish(),
            Self::Bulk(None) | Self::Array(None) => write!(f, "null"),
        }
    }
}

/// A line without its end.
fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.by_ref().take(64 << 10).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = String::from_utf8_lossy(&line).into_owned();
    line.strip_suffix("\r\n").map(str::to_owned).ok_or_else(|| no_resp(&line))
}

fn no_resp(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no RESP: `{what}`"))
}
