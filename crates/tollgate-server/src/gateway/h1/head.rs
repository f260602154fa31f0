//! Heads of messages, read as strictly as the standard allows: what two programs could read in two ways is refused.

use std::mem::MaybeUninit;

use axum::http::{Method, StatusCode, Uri};
use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
use tollgate_policy::RequestHeaders;

use super::kind::Kind;

/// The largest head of a message.
pub(crate) const HEAD_BYTES: usize = 64 << 10;

/// The most header lines in it.
pub(crate) const MOST_HEADERS: usize = 100;

/// The head of a request.
#[derive(Debug)]
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) is_11: bool, // HTTP/1.1, or else 1.0
    pub(crate) headers: Lines,
}

/// The head of an answer.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    pub(crate) is_11: bool,
    pub(crate) headers: Lines,
}

/// The header lines of a message, as they came: on the way through, most are copied as they are.
#[derive(Debug)]
pub(crate) struct Lines {
    head: Bytes,
    lines: SmallVec<[Line; 12]>,
}

/// Where in the head a name and its value stand.
#[derive(Clone, Copy, Debug)]
struct Line {
    kind: Kind,
    name: (u16, u16),
    value: (u16, u16),
}

impl Lines {
    fn new(head: Bytes, parsed: &[httparse::Header<'_>]) -> Self {
        let start = head.as_ptr() as usize;
        let place = |part: &[u8]| {
            let from = part.as_ptr() as usize - start;
            (from as u16, (from + part.len()) as u16) // a head has 64 KiB, and ends with an empty line
        };
        let line = |line: &httparse::Header<'_>| Line {
            kind: Kind::of(line.name.as_bytes()),
            name: place(line.name.as_bytes()),
            value: place(line.value),
        };
        let lines = parsed.iter().map(line).collect();
        Self { head, lines }
    }

    fn part(&self, (from, to): (u16, u16)) -> &[u8] {
        &self.head[usize::from(from)..usize::from(to)]
    }

    /// Names and values, in their order. Names are written as they were.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Kind, &[u8], &[u8])> {
        self.lines.iter().map(|line| (line.kind, self.part(line.name), self.part(line.value)))
    }

    /// The values of a header of a kind of its own.
    pub(crate) fn of(&self, kind: Kind) -> impl Iterator<Item = &[u8]> {
        self.lines.iter().filter(move |line| line.kind == kind).map(|line| self.part(line.value))
    }
}

impl RequestHeaders for Lines {
    fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lines.iter().map(|line| (self.part(line.name), self.part(line.value)))
    }
}

/// Why a message is not taken, in a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    pub(crate) status: StatusCode,
    pub(crate) why: &'static str,
}

impl Malformed {
    pub(crate) const fn new(why: &'static str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, why }
    }
}

pub(crate) const TOO_LARGE: Malformed = Malformed {
    status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
    why: "the head of a request has 64 KiB and 100 lines at most",
};

/// Finds the end of a head in what has come so far, and takes the head off it.
#[derive(Debug, Default)]
pub(crate) struct HeadReader {
    searched: usize, // so much of the buffer has no end of a head in it
}

impl HeadReader {
    /// The bytes of a head with the empty line behind it, once all have come. Where `is_strict`, every line of it ends with CR LF:
    /// some take LF alone for an end, others for a part of the line.
    fn take(&mut self, buffer: &mut BytesMut, is_strict: bool) -> Result<Option<Bytes>, Malformed> {
        let from = self.searched;
        for place in memchr::memchr_iter(b'\n', &buffer[from..]) {
            let end = from + place + 1;
            if end > HEAD_BYTES {
                return Err(TOO_LARGE);
            }
            if is_strict && !buffer[..end].ends_with(b"\r\n") {
                return Err(Malformed::new("a line ends with CR LF, not with LF alone"));
            }
            let is_empty_line = [b"\r\n\r\n".as_slice(), b"\n\n", b"\n\r\n"];
            let ends = if is_strict { &is_empty_line[..1] } else { &is_empty_line };
            if ends.iter().any(|ending| buffer[..end].ends_with(ending)) {
                self.searched = 0;
                return Ok(Some(buffer.split_to(end).freeze()));
            }
        }
        self.searched = buffer.len();
        if buffer.len() < HEAD_BYTES { Ok(None) } else { Err(TOO_LARGE) }
    }

    /// The head of a request, once all of it has come.
    pub(crate) fn request(&mut self, buffer: &mut BytesMut) -> Result<Option<RequestHead>, Malformed> {
        // Some clients send an empty line after a body; the standard asks to overlook it.
        while buffer.starts_with(b"\r\n") {
            let _ = buffer.split_to(2);
            self.searched = 0;
        }
        let Some(head) = self.take(buffer, true)? else { return Ok(None) };
        let mut headers = [const { MaybeUninit::uninit() }; MOST_HEADERS];
        let mut request = httparse::Request::new(&mut []);
        let is_whole = request.parse_with_uninit_headers(&head, &mut headers).map_err(told)?.is_complete();
        let (Some(method), Some(target), Some(version), true) =
            (request.method, request.path, request.version, is_whole)
        else {
            return Err(Malformed::new("the head of the request is not HTTP"));
        };
        if target.contains('#') {
            return Err(Malformed::new("a fragment is for the client only"));
        }
        let method =
            Method::from_bytes(method.as_bytes()).map_err(|_| Malformed::new("the method is none"))?;
        let uri = Uri::from_maybe_shared(head.slice_ref(target.as_bytes()))
            .map_err(|_| Malformed::new("the target is no path and no URL"))?;
        let headers = Lines::new(head.clone(), request.headers);
        Ok(Some(RequestHead { method, uri, is_11: version == 1, headers }))
    }

    /// The head of an answer, once all of it has come.
    pub(crate) fn response(&mut self, buffer: &mut BytesMut) -> Result<Option<ResponseHead>, Malformed> {
        let Some(head) = self.take(buffer, false)? else { return Ok(None) };
        let mut headers = [const { MaybeUninit::uninit() }; MOST_HEADERS];
        let mut response = httparse::Response::new(&mut []);
        let read = httparse::ParserConfig::default()
            .parse_response_with_uninit_headers(&mut response, &head, &mut headers)
            .map_err(told)?;
        let is_whole = read == httparse::Status::Complete(head.len());
        let (Some(code), Some(version), true) = (response.code, response.version, is_whole) else {
            return Err(Malformed::new("the head of the answer is not HTTP"));
        };
        let status = StatusCode::from_u16(code).map_err(|_| Malformed::new("the status is none"))?;
        let headers = Lines::new(head.clone(), response.headers);
        Ok(Some(ResponseHead { status, is_11: version == 1, headers }))
    }
}

fn told(error: httparse::Error) -> Malformed {
    match error {
        httparse::Error::TooManyHeaders => TOO_LARGE,
        httparse::Error::HeaderName => {
            Malformed::new("a header line has no valid name, or continues the one before it")
        }
        httparse::Error::HeaderValue => Malformed::new("a header has a byte in its value that none may have"),
        httparse::Error::Version => Malformed::new("it is neither HTTP/1.1 nor HTTP/1.0"),
        _ => Malformed::new("the head of the request is not HTTP"),
    }
}

#[cfg(test)]
mod tests;
