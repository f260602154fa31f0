//! HTTP/2 at the level of frames. Unlike a client library, it also writes what RFC 9113 forbids.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frame types (RFC 9113, section 6).
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

/// Frame flags.
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;
pub(crate) const WITH_PRIORITY: u8 = 0x20;

/// Error codes (RFC 9113, section 7).
pub(crate) const PROTOCOL_ERROR: u32 = 1;
pub(crate) const FLOW_CONTROL_ERROR: u32 = 3;
pub(crate) const STREAM_CLOSED: u32 = 5;
pub(crate) const FRAME_SIZE_ERROR: u32 = 6;
pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const COMPRESSION_ERROR: u32 = 9;

/// Settings (RFC 9113, section 6.5.2).
pub(crate) const ENABLE_PUSH: u16 = 2;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(crate) const MAX_FRAME_SIZE: u16 = 5;

/// How long a frame that must come may take. A test that passes never waits for this long.
const PATIENCE: Duration = Duration::from_secs(20);

/// The bytes of a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A SETTINGS frame.
pub(crate) fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> = values
        .iter()
        .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
        .collect();
    frame(SETTINGS, 0, 0, &payload)
}

/// A WINDOW_UPDATE frame.
pub(crate) fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

/// A header block in which every field is a literal without indexing and without Huffman coding (RFC 7541, section 6.2.2).
pub(crate) fn block<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        string(name.as_ref(), &mut out);
        string(value.as_ref(), &mut out);
    }
    out
}

/// A length in a prefix of 7 bits (RFC 7541, section 5.1), then the bytes.
fn string(bytes: &[u8], out: &mut Vec<u8>) {
    match u8::try_from(bytes.len()) {
        Ok(length) if length < 127 => out.push(length),
        _ => {
            out.push(127);
            let mut rest = bytes.len() - 127;
            while rest >= 128 {
                out.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            out.push(rest as u8);
        }
    }
    out.extend_from_slice(bytes);
}

/// A frame from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    pub(crate) fn is_ack(&self, kind: u8) -> bool {
        self.kind == kind && self.flags & ACK != 0
    }

    /// Whether the frame ends the server's side of a stream.
    pub(crate) fn ends(&self, stream: u32) -> bool {
        let ends_stream = matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0;
        self.stream == stream && (ends_stream || self.kind == RST_STREAM)
    }

    /// The error code of a RST_STREAM or GOAWAY frame.
    pub(crate) fn error_code(&self) -> Option<u32> {
        let code = match self.kind {
            RST_STREAM => self.payload.get(..4)?,
            GOAWAY => self.payload.get(4..8)?,
            _ => return None,
        };
        Some(u32::from_be_bytes(code.try_into().ok()?))
    }

    /// The status of a HEADERS frame, where it is one of the static table (RFC 7541, appendix A). 0 for any other status.
    pub(crate) fn status(&self) -> Option<u16> {
        let first = *self.payload.first().filter(|_| self.kind == HEADERS)?;
        let known =
            [(0x88, 200), (0x89, 204), (0x8a, 206), (0x8b, 304), (0x8c, 400), (0x8d, 404), (0x8e, 500)];
        Some(known.iter().find(|(index, _)| *index == first).map_or(0, |(_, status)| *status))
    }
}

/// A connection to a server.
pub(crate) struct Wire {
    stream: TcpStream,
    unread: VecDeque<u8>,
}

impl Wire {
    /// Connects, and sends nothing.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, unread: VecDeque::new() }
    }

    /// Connects, sends the preface, and answers the settings of the server.
    pub(crate) fn open(address: SocketAddr, values: &[(u16, u32)]) -> Self {
        let mut wire = Self::connect(address);
        wire.send(PREFACE);
        wire.send(&settings(values));
        wire.until(|frame| frame.kind == SETTINGS && frame.flags & ACK == 0).unwrap();
        wire.send(&frame(SETTINGS, ACK, 0, &[]));
        wire
    }

    /// Sends bytes. The server may have closed the connection by now: what it sent before shows why.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// The next frame. None once the server has closed the connection.
    ///
    /// # Panics
    ///
    /// Panics when nothing comes for a long time.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        let head: Vec<u8> = self.take(9)?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        Some(Frame { kind: head[3], flags: head[4], stream, payload: self.take(length)? })
    }

    fn take(&mut self, length: usize) -> Option<Vec<u8>> {
        let mut chunk = [0; 16 << 10];
        while self.unread.len() < length {
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(read) => self.unread.extend(&chunk[..read]),
                Err(error) if is_timeout(&error) => {
                    panic!("the server neither answers nor closes the connection")
                }
                Err(_) => return None, // reset
            }
        }
        Some(self.unread.drain(..length).collect())
    }

    /// Reads up to a frame for which `is_wanted` holds. None if the connection ends before.
    pub(crate) fn until(&mut self, mut is_wanted: impl FnMut(&Frame) -> bool) -> Option<Frame> {
        loop {
            let frame = self.next()?;
            if is_wanted(&frame) {
                return Some(frame);
            }
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
