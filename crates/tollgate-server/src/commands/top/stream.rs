//! The stream of events: read, and opened again when it ends.

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::mpsc::Sender;
use tokio::time::{sleep, timeout};

use super::client::Server;
use super::frame::Frame;

/// How long the stream may be silent. The service sends an event every second.
const SILENCE: Duration = Duration::from_secs(10);

/// The largest event. `start` of 20 000 limits has 10 MB.
const MOST_BYTES: usize = 64 << 20;

/// The times between attempts to connect again.
const WAITS: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(5)];

/// What the stream sends to the screen.
#[derive(Debug)]
pub(super) enum Update {
    Frame(Frame),
    /// The connection was lost, or could not be opened again.
    Lost(String),
    /// Connected again.
    Connected,
}

/// An open stream.
#[derive(Debug)]
pub(super) struct Events {
    body: Incoming,
    lines: Lines,
}

/// The lines of events, from pieces of any size.
#[derive(Debug, Default)]
struct Lines {
    buffer: Vec<u8>,
    read: usize,    // bytes of the buffer that were returned as lines
    scanned: usize, // bytes of the buffer without the end of a line
}

impl Events {
    pub(super) async fn open(server: &Server) -> Result<Self, String> {
        Ok(Self { body: server.events().await?, lines: Lines::default() })
    }

    /// The next frame.
    pub(super) async fn next(&mut self) -> Result<Frame, String> {
        let (mut name, mut data) = (String::from("message"), String::new());
        loop {
            while let Some(line) = self.lines.next() {
                match line.split_once(':').unwrap_or((&line, "")) {
                    ("", "") => {
                        if let Some(frame) = Frame::read(&name, &data)? {
                            return Ok(frame);
                        }
                        (name, data) = (String::from("message"), String::new());
                    }
                    ("event", value) => name = value.trim_start().to_owned(),
                    ("data", value) => {
                        if !data.is_empty() {
                            data.push('\n');
                        }
                        data.push_str(value.strip_prefix(' ').unwrap_or(value));
                    }
                    _ => {} // a comment, or a field that is not used here
                }
            }
            if data.len() + self.lines.buffer.len() > MOST_BYTES {
                return Err(format!("the service sent an event of more than {} MiB", MOST_BYTES >> 20));
            }
            let piece = timeout(SILENCE, self.body.frame()).await;
            let piece =
                piece.map_err(|_| format!("the service sent nothing for {} seconds", SILENCE.as_secs()))?;
            let piece = piece.ok_or("the service has ended the stream")?;
            let piece = piece.map_err(|error| format!("the stream broke: {error}"))?;
            if let Ok(bytes) = piece.into_data() {
                self.lines.buffer.extend_from_slice(&bytes);
            }
        }
    }
}

impl Lines {
    /// The next line without its end. None if more bytes are needed.
    fn next(&mut self) -> Option<String> {
        let Some(end) = self.buffer[self.scanned..].iter().position(|byte| *byte == b'\n') else {
            self.buffer.drain(..self.read);
            (self.read, self.scanned) = (0, self.buffer.len());
            return None;
        };
        let end = self.scanned + end;
        let line = &self.buffer[self.read..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = String::from_utf8_lossy(line).into_owned();
        (self.read, self.scanned) = (end + 1, end + 1);
        Some(line)
    }
}

/// Sends the frames of a stream, and opens it again when it ends. Returns when the receiver is dropped.
pub(super) async fn follow(server: Server, mut events: Events, updates: Sender<Update>) {
    let mut attempts = 0;
    loop {
        let lost = loop {
            match events.next().await {
                Ok(frame) => {
                    attempts = 0;
                    if updates.send(Update::Frame(frame)).await.is_err() {
                        return;
                    }
                }
                Err(lost) => break lost,
            }
        };
        if updates.send(Update::Lost(lost)).await.is_err() {
            return;
        }
        events = loop {
            sleep(WAITS[attempts.min(WAITS.len() - 1)]).await;
            attempts += 1;
            match Events::open(&server).await {
                Ok(events) => break events,
                Err(why) => {
                    if updates.send(Update::Lost(why)).await.is_err() {
                        return;
                    }
                }
            }
        };
        if updates.send(Update::Connected).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_from_pieces_of_any_size() {
        let text = "event: tick\r\ndata: {\"now\":1}\n\n: a comment\ndata: é\n";
        for size in 1..text.len() {
            let (mut lines, mut found) = (Lines::default(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                lines.buffer.extend_from_slice(piece);
                while let Some(line) = lines.next() {
                    found.push(line);
                }
            }
            assert_eq!(found, ["event: tick", "data: {\"now\":1}", "", ": a comment", "data: é"], "{size}");
            assert!(lines.buffer.is_empty());
        }
    }
}
