//! The cases: what a client sends after the settings of both sides, and what the server must do.

use super::Listener;
use super::wire::{
    ACK, COMPRESSION_ERROR, CONTINUATION, DATA, ENABLE_PUSH, END_HEADERS, END_STREAM, FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, PADDED, PING, PRIORITY,
    PROTOCOL_ERROR, PUSH_PROMISE, REFUSED_STREAM, RST_STREAM, SETTINGS, STREAM_CLOSED, WINDOW_UPDATE,
    WITH_PRIORITY, Wire, block, frame, settings, window_update,
};

/// What the server must do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expected {
    /// Send GOAWAY with one of these codes, then close the connection.
    ConnectionError(&'static [u32]),
    /// Close the connection, with GOAWAY or without.
    Closed,
    /// Send RST_STREAM with one of these codes on this stream, and keep the connection.
    StreamError(u32, &'static [u32]),
    /// Like `StreamError`, or end the connection with one of these codes: a server may treat a stream error as a connection error (RFC
    /// 9113, section 5.4.1).
    Error(u32, &'static [u32]),
    /// Refuse the request on this stream: status 400, or an error as in `Error` with the code PROTOCOL_ERROR.
    Malformed(u32),
    /// Answer the request on this stream with any status.
    AnyAnswer(u32),
    /// Answer the request on this stream with status 200.
    Answer(u32),
    /// Send no error.
    Nothing,
}
use Expected::{Answer, AnyAnswer, Closed, ConnectionError, Error, Malformed, Nothing, StreamError};

/// Codes that RFC 9113 names, and PROTOCOL_ERROR: h2 sends this more general code where the frame or the header block cannot be parsed.
const SIZE: &[u32] = &[FRAME_SIZE_ERROR, PROTOCOL_ERROR];
const COMPRESSION: &[u32] = &[COMPRESSION_ERROR, PROTOCOL_ERROR];
const FLOW_CONTROL: &[u32] = &[FLOW_CONTROL_ERROR, PROTOCOL_ERROR];
const CLOSED: &[u32] = &[STREAM_CLOSED, PROTOCOL_ERROR];

type Act = fn(&mut Wire, &Listener) -> Expected;

/// A case: its name, the client's first settings, what the client does.
pub(super) type Case = (&'static str, &'static [(u16, u32)], Act);

/// A HEADERS frame with a whole block that ends the stream.
fn whole(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, block)
}

/// The good request with this header block.
fn with_block(wire: &mut Wire, to: &Listener, block: &[u8]) {
    wire.send(&[frame(HEADERS, END_HEADERS, 1, block), to.data(1)].concat());
}

/// The good request, and its whole answer.
fn exchange(wire: &mut Wire, to: &Listener, stream: u32) {
    wire.send(&to.request(stream));
    wire.until(|frame| frame.ends(stream)).expect("an answer to a good request");
}

/// The good request with a malformed header block.
fn refused(wire: &mut Wire, to: &Listener, block: &[u8]) -> Expected {
    with_block(wire, to, block);
    Malformed(1)
}

/// Padding: a length, then the payload, then zeros.
fn padded(length: u8, payload: &[u8], padding: usize) -> Vec<u8> {
    [&[length], payload, &vec![0; padding]].concat()
}

pub(super) const CASES: &[Case] = &[
    // 4.1 Frame format.
    ("4.1 a frame of unknown type is ignored", &[], |wire, to| {
        wire.send(&[frame(0xff, 0, 0, &[0; 8]), to.request(1)].concat());
        Answer(1)
    }),
    ("4.1 undefined flags are ignored", &[], |wire, to| {
        wire.send(&[frame(PING, 0x16, 0, &[0; 8]), to.request(1)].concat());
        Answer(1)
    }),
    ("4.1 the reserved bit is ignored", &[], |wire, to| {
        wire.send(&[frame(PING, 0, 1 << 31, &[0; 8]), to.request(1)].concat());
        Answer(1)
    }),
    // 4.2 Frame size.
    ("4.2 a DATA frame of 16384 bytes is taken", &[], |wire, to| {
        // The gateway forwards the bytes. gRPC answers that they are not one message.
        wire.send(&[to.head(1), frame(DATA, END_STREAM, 1, &[0; 1 << 14])].concat());
        AnyAnswer(1)
    }),
    ("4.2 a DATA frame above the frame size is an error", &[], |wire, to| {
        wire.send(&[to.head(1), frame(DATA, END_STREAM, 1, &[0; (1 << 14) + 1])].concat());
        ConnectionError(&[FRAME_SIZE_ERROR])
    }),
    ("4.2 a HEADERS frame above the frame size is a connection error", &[], |wire, to| {
        let block = to.block_with(&[("x-large", &"a".repeat(1 << 14))]);
        wire.send(&whole(1, &block));
        ConnectionError(&[FRAME_SIZE_ERROR])
    }),
    // 4.3 Header compression, and RFC 7541.
    ("4.3 a header block that cannot be decoded is a connection error", &[], |wire, _| {
        wire.send(&whole(1, &[0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]));
        ConnectionError(COMPRESSION)
    }),
    ("4.3 a header block that ends in the middle of a field is a connection error", &[], |wire, to| {
        let block = to.block();
        wire.send(&whole(1, &block[..block.len() - 1]));
        ConnectionError(COMPRESSION)
    }),
    ("4.3 PRIORITY inside a header block is a connection error", &[], |wire, to| {
        let open = frame(HEADERS, END_STREAM, 1, &to.block());
        wire.send(&[open, frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 255])].concat());
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("4.3 HEADERS of another stream inside a header block is a connection error", &[], |wire, to| {
        wire.send(&[frame(HEADERS, END_STREAM, 1, &to.block()), to.request(3)].concat());
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("hpack 2.3.3 index 0 is a connection error", &[], |wire, to| {
        wire.send(&whole(1, &[to.block(), vec![0x80]].concat()));
        ConnectionError(COMPRESSION)
    }),
    ("hpack 2.3.3 an index above the tables is a connection error", &[], |wire, to| {
        wire.send(&whole(1, &[to.block(), vec![0xff, 0x20]].concat()));
        ConnectionError(COMPRESSION)
    }),
    ("hpack 4.2 a table size update at the end of a block is a connection error", &[], |wire, to| {
        wire.send(&whole(1, &[to.block(), vec![0x20]].concat()));
        ConnectionError(COMPRESSION)
    }),
    ("hpack 6.3 a table size above the setting is a connection error", &[], |wire, to| {
        wire.send(&whole(1, &[vec![0x3f, 0xe2, 0x1f], to.block()].concat()));
        ConnectionError(COMPRESSION)
    }),
    ("hpack 5.2 Huffman padding of more than 7 bits is a connection error", &[], |wire, to| {
        wire.send(&whole(1, &[to.block(), vec![0, 1, b'x', 0x82, 0x1f, 0xff]].concat()));
        ConnectionError(COMPRESSION)
    }),
    ("hpack 5.2 Huffman padding with zeros is a connection error", &[], |wire, to| {
        wire.send(&whole(1, &[to.block(), vec![0, 1, b'x', 0x81, 0x18]].concat()));
        ConnectionError(COMPRESSION)
    }),
    ("hpack 5.2 the Huffman end-of-string symbol is a connection error", &[], |wire, to| {
        wire.send(&whole(1, &[to.block(), vec![0, 1, b'x', 0x84, 0xff, 0xff, 0xff, 0xff]].concat()));
        ConnectionError(COMPRESSION)
    }),
    // 5.1 Stream states.
    ("5.1 DATA on an idle stream is a connection error", &[], |wire, to| {
        wire.send(&to.data(1));
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("5.1 RST_STREAM on an idle stream is a connection error", &[], |wire, _| {
        wire.send(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]));
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("5.1 WINDOW_UPDATE on an idle stream is a connection error", &[], |wire, _| {
        wire.send(&window_update(1, 100));
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("5.1 CONTINUATION on an idle stream is a connection error", &[], |wire, to| {
        wire.send(&frame(CONTINUATION, END_HEADERS, 1, &to.block()));
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("5.1 PRIORITY on an idle stream is taken", &[], |wire, to| {
        wire.send(&[frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 15]), to.request(1)].concat());
        Answer(1)
    }),
    ("5.1 DATA on a half-closed stream is an error", &[], |wire, to| {
        wire.send(&[to.request(1), to.data(1)].concat());
        Error(1, CLOSED)
    }),
    ("5.1 HEADERS on a half-closed stream are an error", &[], |wire, to| {
        wire.send(&[to.request(1), whole(1, &to.block())].concat());
        Error(1, CLOSED)
    }),
    ("5.1 CONTINUATION on a half-closed stream is a connection error", &[], |wire, to| {
        wire.send(&[to.request(1), frame(CONTINUATION, END_HEADERS, 1, &block(&[("x", "y")]))].concat());
        ConnectionError(CLOSED)
    }),
    ("5.1 DATA after RST_STREAM is an error", &[], |wire, to| {
        wire.send(&[to.head(1), frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]), to.data(1)].concat());
        StreamError(1, &[STREAM_CLOSED])
    }),
    ("5.1 HEADERS after RST_STREAM are an error", &[], |wire, to| {
        wire.send(&[to.head(1), frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]), to.request(1)].concat());
        Error(1, CLOSED)
    }),
    ("5.1 CONTINUATION after RST_STREAM is a connection error", &[], |wire, to| {
        let more = frame(CONTINUATION, END_HEADERS, 1, &block(&[("x", "y")]));
        wire.send(&[to.head(1), frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]), more].concat());
        ConnectionError(CLOSED)
    }),
    ("5.1 DATA on a closed stream is an error", &[], |wire, to| {
        exchange(wire, to, 1);
        wire.send(&to.data(1));
        StreamError(1, &[STREAM_CLOSED])
    }),
    ("5.1 HEADERS on a closed stream are a connection error", &[], |wire, to| {
        exchange(wire, to, 1);
        wire.send(&to.request(1));
        ConnectionError(CLOSED)
    }),
    ("5.1 CONTINUATION on a closed stream is a connection error", &[], |wire, to| {
        exchange(wire, to, 1);
        wire.send(&frame(CONTINUATION, END_HEADERS, 1, &block(&[("x", "y")])));
        ConnectionError(CLOSED)
    }),
    ("5.1 PRIORITY and WINDOW_UPDATE on a closed stream are ignored", &[], |wire, to| {
        exchange(wire, to, 1);
        wire.send(&[frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 15]), window_update(1, 100), to.request(3)].concat());
        Answer(3)
    }),
    // 5.1.1 Stream identifiers.
    ("5.1.1 an even stream identifier is a connection error", &[], |wire, to| {
        wire.send(&to.request(2));
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("5.1.1 a stream identifier below the last is a connection error", &[], |wire, to| {
        wire.send(&[to.request(5), to.request(3)].concat());
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    // 5.1.2 Stream concurrency.
    ("5.1.2 streams above the bound are refused", &[(INITIAL_WINDOW_SIZE, 0)], |wire, to| {
        // The bodies never come, so that no stream ends.
        let heads: Vec<u8> = (0..1200).flat_map(|number| to.head(2 * number + 1)).collect();
        wire.send(&heads);
        StreamError(2399, &[REFUSED_STREAM, PROTOCOL_ERROR])
    }),
    // 5.3.1 Stream dependencies. RFC 9113 has deprecated them, and still defines the frames.
    ("5.3.1 HEADERS that depend on their own stream are an error", &[], |wire, to| {
        let payload = [&[0, 0, 0, 1, 255][..], &to.block()].concat();
        wire.send(&frame(HEADERS, END_HEADERS | END_STREAM | WITH_PRIORITY, 1, &payload));
        StreamError(1, &[PROTOCOL_ERROR])
    }),
    ("5.3.1 PRIORITY that depends on its own stream is an error", &[], |wire, to| {
        wire.send(&[to.head(1), frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 255])].concat());
        StreamError(1, &[PROTOCOL_ERROR])
    }),
    // 5.4.1 Connection errors.
    ("5.4.1 a connection error closes the connection", &[], |wire, _| {
        wire.send(&frame(PING, 0, 3, &[0; 8]));
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    // 5.5 Extensions.
    ("5.5 an unknown frame is ignored on an open stream", &[], |wire, to| {
        wire.send(&[to.head(1), frame(0x16, 0xff, 1, &[1; 9]), to.data(1)].concat());
        Answer(1)
    }),
    ("5.5 an unknown frame inside a header block is a connection error", &[], |wire, to| {
        let open = frame(HEADERS, END_STREAM, 1, &to.block());
        wire.send(&[open, frame(0x16, 0, 1, &[0; 8])].concat());
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    // 6.1 DATA.
    ("6.1 DATA on stream 0 is a connection error", &[], |wire, to| {
        wire.send(&to.data(0));
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("6.1 padding longer than the DATA frame is a connection error", &[], |wire, to| {
        let padded = padded(8, b"hello", 2);
        wire.send(&[to.head(1), frame(DATA, END_STREAM | PADDED, 1, &padded)].concat());
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("6.1 a padded DATA frame without a padding length is a connection error", &[], |wire, to| {
        wire.send(&[to.head(1), frame(DATA, END_STREAM | PADDED, 1, &[])].concat());
        ConnectionError(&[PROTOCOL_ERROR, FRAME_SIZE_ERROR])
    }),
    // 6.2 HEADERS.
    ("6.2 padding and priority in HEADERS are taken", &[], |wire, to| {
        let payload = padded(4, &[&[0, 0, 0, 0, 15][..], &to.block()].concat(), 4);
        wire.send(&frame(HEADERS, END_HEADERS | PADDED | WITH_PRIORITY, 1, &payload));
        wire.send(&to.data(1));
        Answer(1)
    }),
    ("6.2 HEADERS on stream 0 are a connection error", &[], |wire, to| {
        wire.send(&whole(0, &to.block()));
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("6.2 padding longer than the HEADERS frame is a connection error", &[], |wire, to| {
        let block = to.block();
        wire.send(&frame(HEADERS, END_HEADERS | END_STREAM | PADDED, 1, &padded(255, &block[..20], 0)));
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    // 6.3 PRIORITY.
    ("6.3 PRIORITY on stream 0 is a connection error", &[], |wire, _| {
        wire.send(&frame(PRIORITY, 0, 0, &[0, 0, 0, 0, 15]));
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("6.3 PRIORITY of other than 5 bytes is an error", &[], |wire, to| {
        wire.send(&[to.head(1), frame(PRIORITY, 0, 1, &[0; 4])].concat());
        Error(1, SIZE)
    }),
    // 6.4 RST_STREAM.
    ("6.4 RST_STREAM on stream 0 is a connection error", &[], |wire, _| {
        wire.send(&frame(RST_STREAM, 0, 0, &[0, 0, 0, 8]));
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("6.4 RST_STREAM of other than 4 bytes is a connection error", &[], |wire, to| {
        wire.send(&[to.head(1), frame(RST_STREAM, 0, 1, &[0; 3])].concat());
        ConnectionError(SIZE)
    }),
    // 6.5 SETTINGS.
    ("6.5 an acknowledgement of SETTINGS with a payload is a connection error", &[], |wire, _| {
        wire.send(&frame(SETTINGS, ACK, 0, &[0; 6]));
        ConnectionError(SIZE)
    }),
    ("6.5 SETTINGS on a stream are a connection error", &[], |wire, _| {
        wire.send(&frame(SETTINGS, 0, 1, &[0, 3, 0, 0, 0, 100]));
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("6.5 SETTINGS of a length that is not a multiple of 6 are a connection error", &[], |wire, _| {
        wire.send(&frame(SETTINGS, 0, 0, &[0, 3, 0]));
        ConnectionError(SIZE)
    }),
    ("6.5.2 ENABLE_PUSH above 1 is a connection error", &[], |wire, _| {
        wire.send(&settings(&[(ENABLE_PUSH, 2)]));
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("6.5.2 INITIAL_WINDOW_SIZE above 2^31 - 1 is a connection error", &[], |wire, _| {
        wire.send(&settings(&[(INITIAL_WINDOW_SIZE, 1 << 31)]));
        ConnectionError(FLOW_CONTROL)
    }),
    ("6.5.2 MAX_FRAME_SIZE below 2^14 is a connection error", &[], |wire, _| {
        wire.send(&settings(&[(MAX_FRAME_SIZE, (1 << 14) - 1)]));
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("6.5.2 MAX_FRAME_SIZE above 2^24 - 1 is a connection error", &[], |wire, _| {
        wire.send(&settings(&[(MAX_FRAME_SIZE, 1 << 24)]));
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("6.5.2 an unknown setting is ignored", &[], |wire, to| {
        wire.send(&[settings(&[(0xff, 1)]), to.request(1)].concat());
        Answer(1)
    }),
    ("6.5.3 SETTINGS are acknowledged", &[], |wire, _| {
        wire.send(&settings(&[(ENABLE_PUSH, 0)]));
        // The first acknowledgement is for the first SETTINGS of the connection.
        for _ in 0..2 {
            wire.until(|frame| frame.is_ack(SETTINGS)).expect("an acknowledgement");
        }
        Nothing
    }),
    ("6.5.3 the last value of a repeated setting counts", &[], |wire, to| {
        wire.send(&settings(&[(INITIAL_WINDOW_SIZE, 100), (INITIAL_WINDOW_SIZE, 1)]));
        wire.send(&to.request(1));
        let data = wire.until(|frame| frame.kind == DATA).expect("data");
        assert_eq!(data.payload.len(), 1);
        wire.send(&window_update(1, 1000));
        wire.until(|frame| frame.ends(1)).expect("the rest");
        Nothing
    }),
    // 6.7 PING.
    ("6.7 PING is acknowledged with its bytes", &[], |wire, _| {
        wire.send(&frame(PING, 0, 0, b"h2spec!!"));
        let answer = wire.until(|frame| frame.is_ack(PING)).expect("an acknowledgement");
        assert_eq!(answer.payload, b"h2spec!!");
        Nothing
    }),
    ("6.7 an acknowledgement of PING is not answered", &[], |wire, _| {
        wire.send(&[frame(PING, ACK, 0, b"invalid!"), frame(PING, 0, 0, b"correct!")].concat());
        let answer = wire.until(|frame| frame.is_ack(PING)).expect("an acknowledgement");
        assert_eq!(answer.payload, b"correct!");
        Nothing
    }),
    ("6.7 PING on a stream is a connection error", &[], |wire, _| {
        wire.send(&frame(PING, 0, 1, &[0; 8]));
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("6.7 PING of other than 8 bytes is a connection error", &[], |wire, _| {
        wire.send(&frame(PING, 0, 0, &[0; 6]));
        ConnectionError(SIZE)
    }),
    // 6.8 GOAWAY.
    ("6.8 GOAWAY on a stream is a connection error", &[], |wire, _| {
        wire.send(&frame(GOAWAY, 0, 1, &[0; 8]));
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("6.8 a request before GOAWAY is answered", &[], |wire, to| {
        wire.send(&[to.request(1), frame(GOAWAY, 0, 0, &[0; 8])].concat());
        Answer(1)
    }),
    // 6.9 WINDOW_UPDATE.
    ("6.9 an increment of 0 on the connection is a connection error", &[], |wire, _| {
        wire.send(&window_update(0, 0));
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("6.9 an increment of 0 on a stream is an error", &[], |wire, to| {
        wire.send(&[to.head(1), window_update(1, 0)].concat());
        Error(1, &[PROTOCOL_ERROR])
    }),
    ("6.9 WINDOW_UPDATE of other than 4 bytes is a connection error", &[], |wire, _| {
        wire.send(&frame(WINDOW_UPDATE, 0, 0, &[0; 3]));
        ConnectionError(SIZE)
    }),
    ("6.9.1 an answer keeps to a window of 1 byte", &[(INITIAL_WINDOW_SIZE, 1)], |wire, to| {
        wire.send(&to.request(1));
        let data = wire.until(|frame| frame.kind == DATA).expect("data");
        assert_eq!(data.payload.len(), 1);
        wire.send(&window_update(1, 1000));
        wire.until(|frame| frame.ends(1)).expect("the rest");
        Nothing
    }),
    ("6.9.1 a window of the connection above 2^31 - 1 is a connection error", &[], |wire, _| {
        wire.send(&[window_update(0, i32::MAX as u32), window_update(0, i32::MAX as u32)].concat());
        ConnectionError(&[FLOW_CONTROL_ERROR])
    }),
    ("6.9.1 a window of a stream above 2^31 - 1 is an error", &[], |wire, to| {
        let updates = [window_update(1, i32::MAX as u32), window_update(1, i32::MAX as u32)].concat();
        wire.send(&[to.head(1), updates].concat());
        StreamError(1, &[FLOW_CONTROL_ERROR])
    }),
    (
        "6.9.2 a larger initial window opens the windows of streams",
        &[(INITIAL_WINDOW_SIZE, 0)],
        |wire, to| {
            wire.send(&to.request(1));
            wire.until(|frame| frame.kind == HEADERS).expect("a head");
            wire.send(&settings(&[(INITIAL_WINDOW_SIZE, 1)]));
            let data = wire.until(|frame| frame.kind == DATA).expect("data");
            assert_eq!(data.payload.len(), 1);
            wire.send(&window_update(1, 1000));
            wire.until(|frame| frame.ends(1)).expect("the rest");
            Nothing
        },
    ),
    ("6.9.2 a smaller initial window makes a window negative", &[(INITIAL_WINDOW_SIZE, 3)], |wire, to| {
        wire.send(&to.request(1));
        let data = wire.until(|frame| frame.kind == DATA).expect("data");
        assert_eq!(data.payload.len(), 3);
        wire.send(&[settings(&[(INITIAL_WINDOW_SIZE, 2)]), window_update(1, 2)].concat());
        let data = wire.until(|frame| frame.kind == DATA).expect("data");
        assert_eq!(data.payload.len(), 1, "a window of -1 and 2");
        wire.send(&window_update(1, 1000));
        wire.until(|frame| frame.ends(1)).expect("the rest");
        Nothing
    }),
    ("6.9.2 settings that overflow the window of a stream are a connection error", &[], |wire, to| {
        wire.send(&[to.head(1), window_update(1, i32::MAX as u32 - 65_535)].concat());
        wire.send(&settings(&[(INITIAL_WINDOW_SIZE, 65_536)]));
        ConnectionError(&[FLOW_CONTROL_ERROR])
    }),
    // 6.10 CONTINUATION.
    ("6.10 a header block may come in many frames", &[], |wire, to| {
        let block = to.block();
        let mut pieces = block.chunks(40);
        wire.send(&frame(HEADERS, 0, 1, pieces.next().unwrap()));
        pieces.for_each(|piece| wire.send(&frame(CONTINUATION, 0, 1, piece)));
        wire.send(&[frame(CONTINUATION, END_HEADERS, 1, &[]), to.data(1)].concat());
        Answer(1)
    }),
    ("6.10 DATA inside a header block is a connection error", &[], |wire, to| {
        let open = [frame(HEADERS, 0, 1, &to.block()), frame(CONTINUATION, 0, 1, &[])].concat();
        wire.send(&[open, to.data(1)].concat());
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("6.10 CONTINUATION on stream 0 is a connection error", &[], |wire, to| {
        wire.send(&[frame(HEADERS, 0, 1, &to.block()), frame(CONTINUATION, END_HEADERS, 0, &[])].concat());
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("6.10 CONTINUATION of another stream is a connection error", &[], |wire, to| {
        wire.send(&[frame(HEADERS, 0, 1, &to.block()), frame(CONTINUATION, END_HEADERS, 3, &[])].concat());
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("6.10 CONTINUATION after END_HEADERS is a connection error", &[], |wire, to| {
        wire.send(&[to.head(1), frame(CONTINUATION, END_HEADERS, 1, &block(&[("x", "y")]))].concat());
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("6.10 CONTINUATION after a CONTINUATION with END_HEADERS is a connection error", &[], |wire, to| {
        let block = [frame(HEADERS, 0, 1, &to.block()), frame(CONTINUATION, END_HEADERS, 1, &[])].concat();
        wire.send(&[block, frame(CONTINUATION, END_HEADERS, 1, &[])].concat());
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("6.10 CONTINUATION after DATA is a connection error", &[], |wire, to| {
        wire.send(&[to.head(1), frame(DATA, 0, 1, b"h"), frame(CONTINUATION, END_HEADERS, 1, &[])].concat());
        ConnectionError(&[PROTOCOL_ERROR])
    }),
    ("6.10 CONTINUATION without end is a connection error", &[], |wire, to| {
        wire.send(&frame(HEADERS, 0, 1, &to.block()));
        (0..10_000).for_each(|_| wire.send(&frame(CONTINUATION, 0, 1, &[])));
        Closed
    }),
    // 7 Error codes.
    ("7 GOAWAY with an unknown code is taken", &[], |wire, to| {
        wire.send(&[to.request(1), frame(GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 0xff])].concat());
        Answer(1)
    }),
    ("7 RST_STREAM with an unknown code is taken", &[], |wire, to| {
        wire.send(&[to.head(1), frame(RST_STREAM, 0, 1, &[0, 0, 0, 0xff]), to.request(3)].concat());
        Answer(3)
    }),
    // 8.1 Requests.
    ("8.1 trailers are taken", &[], |wire, to| {
        wire.send(
            &[to.head(1), frame(DATA, 0, 1, &[0; 5]), whole(1, &block(&[("x-trailer", "t")]))].concat(),
        );
        Answer(1)
    }),
    ("8.1 trailers that do not end the stream are an error", &[], |wire, to| {
        let trailers = frame(HEADERS, END_HEADERS, 1, &block(&[("x-trailer", "t")]));
        wire.send(&[to.head(1), frame(DATA, 0, 1, b"h"), trailers, to.data(1)].concat());
        StreamError(1, &[PROTOCOL_ERROR])
    }),
    ("8.1.2 a name in capitals is refused", &[], |wire, to| {
        refused(wire, to, &to.block_with(&[("X-Test", "ok")]))
    }),
    ("8.1.2 a name with a blank is refused", &[], |wire, to| {
        refused(wire, to, &to.block_with(&[("x test", "ok")]))
    }),
    ("8.1.2 a name with a colon is refused", &[], |wire, to| {
        refused(wire, to, &to.block_with(&[("x:test", "ok")]))
    }),
    ("8.1.2 an empty name is refused", &[], |wire, to| refused(wire, to, &to.block_with(&[("", "ok")]))),
    ("8.1.2 a name with a line end is refused", &[], |wire, to| {
        refused(wire, to, &to.block_with(&[("x: y\r\nhidden", "ok")]))
    }),
    ("8.1.2 a value with NUL is refused", &[], |wire, to| {
        refused(wire, to, &to.block_with(&[("x", "a\0b")]))
    }),
    ("8.1.2 a value with CR is refused", &[], |wire, to| refused(wire, to, &to.block_with(&[("x", "a\rb")]))),
    ("8.1.2 a value with LF is refused", &[], |wire, to| refused(wire, to, &to.block_with(&[("x", "a\nb")]))),
    // 8.1.2.1 Pseudo-header fields.
    ("8.1.2.1 an unknown pseudo-header is refused", &[], |wire, to| {
        refused(wire, to, &[block(&[(":test", "ok")]), to.block()].concat())
    }),
    ("8.1.2.1 a pseudo-header of responses is refused", &[], |wire, to| {
        refused(wire, to, &[block(&[(":status", "200")]), to.block()].concat())
    }),
    ("8.1.2.1 a pseudo-header in trailers has no effect", &[], |wire, to| {
        // RFC 9113 calls the request malformed. h2 drops the field, and the gateway forwards no trailers.
        wire.send(
            &[to.head(1), frame(DATA, 0, 1, &[0; 5]), whole(1, &block(&[(":method", "GET")]))].concat(),
        );
        AnyAnswer(1)
    }),
    ("8.1.2.1 a pseudo-header after a field is refused", &[], |wire, to| {
        let block = [block(&[("x", "y")]), to.block()].concat();
        refused(wire, to, &block)
    }),
    // 8.1.2.2 Fields of a connection.
    ("8.1.2.2 Connection is refused", &[], |wire, to| {
        refused(wire, to, &to.block_with(&[("connection", "keep-alive")]))
    }),
    ("8.1.2.2 Transfer-Encoding is refused", &[], |wire, to| {
        refused(wire, to, &to.block_with(&[("transfer-encoding", "chunked")]))
    }),
    ("8.1.2.2 Upgrade is refused", &[], |wire, to| refused(wire, to, &to.block_with(&[("upgrade", "h2c")]))),
    ("8.1.2.2 Keep-Alive is refused", &[], |wire, to| {
        refused(wire, to, &to.block_with(&[("keep-alive", "5")]))
    }),
    ("8.1.2.2 Proxy-Connection is refused", &[], |wire, to| {
        refused(wire, to, &to.block_with(&[("proxy-connection", "close")]))
    }),
    ("8.1.2.2 TE other than trailers is refused", &[], |wire, to| {
        let mut fields = to.fields();
        fields.retain(|(name, _)| name != b"te");
        fields.push((b"te".to_vec(), b"trailers, deflate".to_vec()));
        refused(wire, to, &block(&fields))
    }),
    // 8.1.2.3 Pseudo-header fields of requests.
    ("8.1.2.3 an empty path is refused", &[], |wire, to| refused(wire, to, &to.block_where(":path", b""))),
    ("8.1.2.3 a path that does not begin with a slash is refused", &[], |wire, to| {
        refused(wire, to, &to.block_where(":path", b"bytes/5"))
    }),
    ("8.1.2.3 a path with a line end is refused", &[], |wire, to| {
        refused(wire, to, &to.block_where(":path", b"/ HTTP/1.1\r\nx: y\r\n\r\nGET /hidden"))
    }),
    ("8.1.2.3 a path with a blank is refused", &[], |wire, to| {
        refused(wire, to, &to.block_where(":path", b"/a HTTP/1.1"))
    }),
    ("8.1.2.3 a method with a line end is refused", &[], |wire, to| {
        refused(wire, to, &to.block_where(":method", b"GET / HTTP/1.1\r\nx: y\r\n\r\nGET"))
    }),
    ("8.1.2.3 a request without :method is refused", &[], |wire, to| {
        refused(wire, to, &to.block_without(":method"))
    }),
    ("8.1.2.3 a request without :scheme is refused", &[], |wire, to| {
        refused(wire, to, &to.block_without(":scheme"))
    }),
    ("8.1.2.3 a request without :path is refused", &[], |wire, to| {
        refused(wire, to, &to.block_without(":path"))
    }),
    ("8.1.2.3 a second :method is refused", &[], |wire, to| {
        refused(wire, to, &[block(&[(":method", "POST")]), to.block()].concat())
    }),
    ("8.1.2.3 a second :scheme is refused", &[], |wire, to| {
        refused(wire, to, &[block(&[(":scheme", "http")]), to.block()].concat())
    }),
    ("8.1.2.3 a second :path is refused", &[], |wire, to| {
        refused(wire, to, &[block(&[(":path", "/other")]), to.block()].concat())
    }),
    ("8.1.2.3 a second :authority is refused", &[], |wire, to| {
        refused(wire, to, &[block(&[(":authority", "other.example")]), to.block()].concat())
    }),
    // 8.1.2.6 Content-Length.
    ("8.1.2.6 a length other than that of the body is refused", &[], |wire, to| {
        refused(wire, to, &to.block_with(&[("content-length", "1")]))
    }),
    ("8.1.2.6 a length above that of the body is refused", &[], |wire, to| {
        refused(wire, to, &to.block_with(&[("content-length", "6")]))
    }),
    ("8.1.2.6 a length other than that of several DATA frames is refused", &[], |wire, to| {
        let head = frame(HEADERS, END_HEADERS, 1, &to.block_with(&[("content-length", "9")]));
        wire.send(&[head, frame(DATA, 0, 1, b"h"), to.data(1)].concat());
        Malformed(1)
    }),
    ("8.1.2.6 a length without a body is refused", &[], |wire, to| {
        wire.send(&whole(1, &to.block_with(&[("content-length", "5")])));
        Malformed(1)
    }),
    ("8.1.2.6 two lengths are refused", &[], |wire, to| {
        refused(wire, to, &to.block_with(&[("content-length", "5"), ("content-length", "6")]))
    }),
    ("8.1.2.6 a length that is not a number is refused", &[], |wire, to| {
        refused(wire, to, &to.block_with(&[("content-length", "+5")]))
    }),
    // 8.2 Server push.
    ("8.2 PUSH_PROMISE of a client is a connection error", &[], |wire, to| {
        let payload = [&[0, 0, 0, 2][..], &to.block()].concat();
        wire.send(&[to.head(1), frame(PUSH_PROMISE, END_HEADERS, 1, &payload)].concat());
        ConnectionError(&[PROTOCOL_ERROR])
    }),
];
