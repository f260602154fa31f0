//! Bodies of messages: taken apart as they come, and put together as they go.

use bytes::{Buf as _, Bytes, BytesMut};

use super::framing::Framing;
use super::head::Malformed;

/// The longest line that says how large a chunk is, with what some write behind the number.
const SIZE_LINE: usize = 256;

/// The most bytes of trailers. They are read over.
const TRAILER_BYTES: usize = 8 << 10;

/// Takes a body apart.
#[derive(Debug)]
pub(crate) struct Decoder {
    state: State,
}

#[derive(Debug)]
enum State {
    Done,
    Length(u64),
    UntilClose,
    ChunkSize,
    ChunkData(u64),
    ChunkEnd,
    Trailers(usize),   // of which so many bytes have been read
    Broken(Malformed), // nobody knows where it ends, and what comes is no next message
}

/// What of a body is in a buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    Piece(Bytes),
    NeedsMore,
    End,
}

impl Decoder {
    pub(crate) const fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::Empty | Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::ChunkSize,
            Framing::UntilClose => State::UntilClose,
        };
        Self { state }
    }

    pub(crate) const fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// How many bytes are still to come, where that is known.
    pub(crate) const fn left(&self) -> Option<u64> {
        match self.state {
            State::Done => Some(0),
            State::Length(left) => Some(left),
            _ => None,
        }
    }

    /// Whether it ends where the connection does.
    pub(crate) const fn ends_with_connection(&self) -> bool {
        matches!(self.state, State::UntilClose)
    }

    /// The connection has ended, and with it what ends there.
    pub(crate) fn connection_ended(&mut self) {
        if self.ends_with_connection() {
            self.state = State::Done;
        }
    }

    /// Takes the next piece out of a buffer.
    pub(crate) fn decode(&mut self, buffer: &mut BytesMut) -> Result<Decoded, Malformed> {
        let decoded = self.decode_on(buffer);
        if let Err(malformed) = decoded {
            self.state = State::Broken(malformed);
        }
        decoded
    }

    fn decode_on(&mut self, buffer: &mut BytesMut) -> Result<Decoded, Malformed> {
        loop {
            self.state = match self.state {
                State::Done => return Ok(Decoded::End),
                State::Broken(malformed) => return Err(malformed),
                _ if buffer.is_empty() => return Ok(Decoded::NeedsMore),
                State::UntilClose => return Ok(Decoded::Piece(buffer.split().freeze())),
                State::Length(left) => {
                    let piece = up_to(buffer, left);
                    let left = left - piece.len() as u64;
                    self.state = if left == 0 { State::Done } else { State::Length(left) };
                    return Ok(Decoded::Piece(piece));
                }
                State::ChunkSize => {
                    let Some(line) = line(buffer, SIZE_LINE)? else { return Ok(Decoded::NeedsMore) };
                    match chunk_size(&line)? {
                        0 => State::Trailers(0),
                        size => State::ChunkData(size),
                    }
                }
                State::ChunkData(left) => {
                    let piece = up_to(buffer, left);
                    let left = left - piece.len() as u64;
                    self.state = if left == 0 { State::ChunkEnd } else { State::ChunkData(left) };
                    return Ok(Decoded::Piece(piece));
                }
                State::ChunkEnd => {
                    if buffer.len() < 2 {
                        return Ok(Decoded::NeedsMore);
                    }
                    if !buffer.starts_with(b"\r\n") {
                        return Err(Malformed::new("a chunk is longer than it says"));
                    }
                    buffer.advance(2);
                    State::ChunkSize
                }
                State::Trailers(read) => {
                    let Some(line) = line(buffer, TRAILER_BYTES - read)? else {
                        return Ok(Decoded::NeedsMore);
                    };
                    if line.is_empty() { State::Done } else { State::Trailers(read + line.len()) }
                }
            };
        }
    }
}

fn up_to(buffer: &mut BytesMut, most: u64) -> Bytes {
    let length = usize::try_from(most).unwrap_or(usize::MAX).min(buffer.len());
    buffer.split_to(length).freeze()
}

/// A line without its end, once all of it is there.
fn line(buffer: &mut BytesMut, longest: usize) -> Result<Option<BytesMut>, Malformed> {
    match memchr::memchr(b'\n', buffer) {
        Some(end) if end <= longest => {
            let mut line = buffer.split_to(end + 1);
            if !line.ends_with(b"\r\n") || memchr::memchr(b'\r', &line[..end - 1]).is_some() {
                return Err(Malformed::new("a line of a chunked body ends with CR LF"));
            }
            line.truncate(end - 1);
            Ok(Some(line))
        }
        None if buffer.len() <= longest => Ok(None),
        _ => Err(Malformed::new("a line of a chunked body is too long")),
    }
}

/// The number that a chunk begins with, in hexadecimal; what stands behind a `;` means nothing to us.
fn chunk_size(line: &[u8]) -> Result<u64, Malformed> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let padding = digits.iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t')).count(); // some pad it
    let digits = &digits[..digits.len() - padding];
    let is_number = (1..=15).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    let number = std::str::from_utf8(digits).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok());
    number.filter(|_| is_number).ok_or(Malformed::new("a chunk begins with its size in hexadecimal"))
}

/// Puts a body together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoder {
    framing: Framing,
}

impl Encoder {
    pub(crate) const fn new(framing: Framing) -> Self {
        Self { framing }
    }

    /// Writes a piece. False if it is more than was announced.
    #[must_use = "what is more than announced would be read as the next message"]
    pub(crate) fn piece(&mut self, piece: &[u8], out: &mut Vec<u8>) -> bool {
        match &mut self.framing {
            _ if piece.is_empty() => return true, // an empty chunk would be the last
            Framing::Empty => return false,
            Framing::UntilClose => out.extend_from_slice(piece),
            Framing::Length(left) => {
                let Some(rest) = left.checked_sub(piece.len() as u64) else { return false };
                *left = rest;
                out.extend_from_slice(piece);
            }
            Framing::Chunked => {
                write_hex(piece.len(), out);
                out.extend_from_slice(b"\r\n");
                out.extend_from_slice(piece);
                out.extend_from_slice(b"\r\n");
            }
        }
        true
    }

    /// Writes the end. False if less came than was announced.
    #[must_use = "whoever reads it waits for the rest"]
    pub(crate) fn end(&self, out: &mut Vec<u8>) -> bool {
        match self.framing {
            Framing::Chunked => out.extend_from_slice(b"0\r\n\r\n"),
            Framing::Length(left) if left > 0 => return false,
            _ => {}
        }
        true
    }
}

fn write_hex(number: usize, out: &mut Vec<u8>) {
    use std::io::Write as _;
    let _ = write!(out, "{number:x}");
}

#[cfg(test)]
mod tests;
