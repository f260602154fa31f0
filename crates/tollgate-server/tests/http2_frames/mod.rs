//! Frames that RFC 9113 forbids, and frames that few clients send, on every listener that speaks HTTP/2. The cases are those of h2spec
//! (github.com/summerwind/h2spec), by the sections of RFC 7540 that h2spec names, and some of RFC 7541. h2spec itself is in no package
//! registry that the tests install from.

mod cases;
pub(crate) mod wire;

use std::net::SocketAddr;

use tollgate_testkit::Http;

use self::cases::{CASES, Expected};
use self::wire::{
    DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, PING, PREFACE, PROTOCOL_ERROR, RST_STREAM, Wire,
    block, frame,
};
use crate::gateway::backend::Backend;
use crate::gateway::running::Gateway;
use crate::service::Service;

/// A listener, and a request that it answers with status 200.
#[derive(Clone, Copy)]
pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    fields: &'static [(&'static str, &'static str)],
    body: &'static [u8],
}

impl Listener {
    const fn gateway(address: SocketAddr) -> Self {
        let fields = &[
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/bytes/5"),
            (":authority", "site.example"),
        ];
        Self { address, fields, body: b"hello" }
    }

    const fn grpc(address: SocketAddr) -> Self {
        let fields = &[
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/grpc.health.v1.Health/Check"),
            (":authority", "site.example"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ];
        Self { address, fields, body: &[0; 5] }
    }

    /// The fields of the good request.
    pub(crate) fn fields(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.fields
            .iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect()
    }

    /// The header block of the good request.
    pub(crate) fn block(&self) -> Vec<u8> {
        block(self.fields)
    }

    /// The header block of the good request with more fields at its end.
    pub(crate) fn block_with(&self, more: &[(&str, &str)]) -> Vec<u8> {
        [self.block(), block(more)].concat()
    }

    /// The header block of the good request without a field.
    pub(crate) fn block_without(&self, name: &str) -> Vec<u8> {
        let mut fields = self.fields();
        fields.retain(|(known, _)| known != name.as_bytes());
        block(&fields)
    }

    /// The header block of the good request with another value of a field.
    pub(crate) fn block_where(&self, name: &str, value: &[u8]) -> Vec<u8> {
        let mut fields = self.fields();
        let field = fields.iter_mut().find(|(known, _)| known == name.as_bytes());
        field.unwrap().1 = value.to_vec();
        block(&fields)
    }

    /// The head of the good request, whose body follows.
    pub(crate) fn head(&self, stream: u32) -> Vec<u8> {
        frame(HEADERS, END_HEADERS, stream, &self.block())
    }

    /// The body of the good request.
    pub(crate) fn data(&self, stream: u32) -> Vec<u8> {
        frame(DATA, END_STREAM, stream, self.body)
    }

    /// The good request.
    pub(crate) fn request(&self, stream: u32) -> Vec<u8> {
        [self.head(stream), self.data(stream)].concat()
    }

    /// Asserts that a good request on a connection of its own is answered.
    fn assert_answers(&self, after: &str) {
        let mut wire = Wire::open(self.address, &[]);
        wire.send(&self.request(1));
        let answer = wire.until(|frame| frame.kind == HEADERS);
        assert_eq!(answer.and_then(|frame| frame.status()), Some(200), "after {after}");
    }
}

/// What the server has done in a case so far.
#[derive(Debug, Default)]
struct Reaction {
    frames: Vec<Frame>,
    is_probed: bool, // whether the server has answered the PING that follows the case
    is_closed: bool,
}

impl Reaction {
    fn of_stream(&self, kind: u8, stream: u32) -> Option<&Frame> {
        self.frames.iter().find(|frame| frame.kind == kind && frame.stream == stream)
    }

    fn reset(&self, stream: u32) -> Option<u32> {
        self.of_stream(RST_STREAM, stream)?.error_code()
    }

    fn status(&self, stream: u32) -> Option<u16> {
        self.of_stream(HEADERS, stream)?.status()
    }

    /// The code of a connection error, once the server has closed the connection: it must (RFC 9113, section 5.4.1).
    fn connection_error(&self) -> Option<u32> {
        let mut errors =
            self.frames.iter().filter(|frame| frame.kind == GOAWAY).filter_map(Frame::error_code);
        errors.rfind(|code| *code != 0 && self.is_closed)
    }

    /// Whether this is what the server must do. None while the server may still do it.
    fn is(&self, expected: Expected) -> Option<bool> {
        let is_one_of = |codes: &[u32], code: Option<u32>| code.map(|code| codes.contains(&code));
        let decided = match expected {
            Expected::ConnectionError(codes) => is_one_of(codes, self.connection_error()),
            Expected::Closed => self.is_closed.then_some(true),
            Expected::StreamError(stream, codes) => is_one_of(codes, self.reset(stream)),
            Expected::Error(stream, codes) => {
                is_one_of(codes, self.reset(stream).or(self.connection_error()))
            }
            Expected::Malformed(stream) => {
                let error = self.reset(stream).or(self.connection_error());
                // The server may answer before it resets the stream (RFC 9113, section 8.1.1).
                self.status(stream).map(|status| status == 400).or(is_one_of(&[PROTOCOL_ERROR], error))
            }
            Expected::AnyAnswer(stream) => self.status(stream).map(|_| true),
            Expected::Answer(stream) => {
                let has_ended = self.frames.iter().any(|frame| frame.ends(stream));
                has_ended.then(|| self.reset(stream).is_none() && self.status(stream) == Some(200))
            }
            Expected::Nothing => {
                let is_error = |frame: &Frame| matches!(frame.kind, RST_STREAM | GOAWAY);
                self.is_probed.then(|| !self.frames.iter().any(is_error))
            }
        };
        decided.or(self.is_closed.then_some(false))
    }
}

/// Compares what the server does with what it must do.
fn judge(wire: &mut Wire, expected: Expected) -> Result<(), String> {
    const PROBE: &[u8] = b"whatnext";
    wire.send(&frame(PING, 0, 0, PROBE));
    let mut reaction = Reaction::default();
    loop {
        match wire.next() {
            Some(frame) => {
                reaction.is_probed |= frame.is_ack(PING) && frame.payload == PROBE;
                reaction.frames.push(frame);
            }
            None => reaction.is_closed = true,
        }
        match reaction.is(expected) {
            Some(true) => return Ok(()),
            Some(false) => return Err(format!("{expected:?}, but {reaction:?}")),
            None => {}
        }
    }
}

/// Runs all cases against a listener. After each case, the listener still answers.
fn assert_follows_rfc_9113(listener: Listener) {
    let mut faults = Vec::new();
    for (name, settings, act) in CASES {
        let mut wire = Wire::open(listener.address, settings);
        let expected = act(&mut wire, &listener);
        if let Err(fault) = judge(&mut wire, expected) {
            faults.push(format!("{name}: {fault}"));
        }
        listener.assert_answers(name);
    }
    assert!(faults.is_empty(), "{} of {} cases:\n{}", faults.len(), CASES.len(), faults.join("\n"));
}

#[test]
fn the_gateway_answers_every_frame_as_rfc_9113_says() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", "");
    assert_follows_rfc_9113(Listener::gateway(gateway.address));
}

#[test]
fn the_grpc_listener_answers_every_frame_as_rfc_9113_says() {
    let (_service, address) = Service::start_grpc("");
    assert_follows_rfc_9113(Listener::grpc(address));
}

#[test]
fn an_invalid_preface_ends_the_connection_and_no_other() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", "");
    let (_service, grpc) = Service::start_grpc("");
    for listener in [Listener::gateway(gateway.address), Listener::grpc(grpc)] {
        for preface in [
            &b"INVALID CONNECTION PREFACE\r\n\r\n"[..],
            b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        ] {
            let mut wire = Wire::connect(listener.address);
            wire.send(preface);
            while wire.next().is_some() {}
            listener.assert_answers(&String::from_utf8_lossy(preface));
        }
    }
    assert_eq!(backend.count_arrived(), 3, "only the good requests arrive");
}

/// The http listener speaks HTTP/1.1 only.
#[test]
fn the_http_listener_refuses_http2_and_answers_others() {
    let service = Service::start("");
    let mut wire = Wire::connect(service.address);
    wire.send(&[PREFACE, &wire::settings(&[])].concat());
    while wire.next().is_some() {}
    assert_eq!(Http::connect(service.address).send("GET", "/metrics", &[], "").status, 200);
}
