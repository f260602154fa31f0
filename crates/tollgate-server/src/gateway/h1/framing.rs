//! Where the body of a message ends.

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use super::head::{Lines, Malformed, RequestHead, ResponseHead};
use super::kind::Kind;

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is none.
    Empty,
    /// After so many bytes.
    Length(u64),
    /// Where its chunks say.
    Chunked,
    /// Where the connection does.
    UntilClose,
}

impl Framing {
    /// Of a request. Two statements about it, also if they agree, are one too many: programs differ on which they believe, and
    /// one behind another is then made to see a second request in the body of the first.
    pub(crate) fn of_request(head: &RequestHead) -> Result<Self, Malformed> {
        if head.headers.of(Kind::Disguised).next().is_some() {
            return Err(Malformed::new("a header like Content_Length could be read as Content-Length"));
        }
        match of_headers(&head.headers)? {
            Some(Self::Chunked) if !head.is_11 => Err(Malformed::new("HTTP/1.0 has no Transfer-Encoding")),
            framing => Ok(framing.unwrap_or(Self::Empty)),
        }
    }

    /// Of a request over HTTP/2, whose end is in its frames. A length is announced once, or not at all.
    pub(crate) fn of_stream(headers: &HeaderMap, is_over: bool) -> Result<Self, Malformed> {
        let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter().map(HeaderValue::as_bytes);
        match (lengths.next(), lengths.next()) {
            (Some(length), None) => {
                length_of(length).map(|length| if is_over { Self::Empty } else { length })
            }
            (None, _) if is_over => Ok(Self::Empty),
            (None, _) => Ok(Self::Chunked),
            (Some(_), Some(_)) => Err(WRONG_LENGTH),
        }
    }

    /// Of the answer to a request of this method.
    pub(crate) fn of_response(head: &ResponseHead, method: &Method) -> Result<Self, Malformed> {
        let framing = of_headers(&head.headers)?;
        let has_none = *method == Method::HEAD
            || head.status.is_informational()
            || head.status == StatusCode::NO_CONTENT
            || head.status == StatusCode::NOT_MODIFIED;
        Ok(if has_none { Self::Empty } else { framing.unwrap_or(Self::UntilClose) })
    }

    pub(crate) const fn is_empty(self) -> bool {
        matches!(self, Self::Empty | Self::Length(0))
    }
}

fn of_headers(headers: &Lines) -> Result<Option<Framing>, Malformed> {
    let mut encodings = headers.of(Kind::TransferEncoding);
    let mut lengths = headers.of(Kind::ContentLength);
    match (encodings.next(), lengths.next()) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => {
            Err(Malformed::new("Content-Length and Transfer-Encoding: only one can be true"))
        }
        (Some(encoding), None) => {
            if encodings.next().is_some() || !encoding.eq_ignore_ascii_case(b"chunked") {
                return Err(Malformed::new("Transfer-Encoding is `chunked`, once, or is not there"));
            }
            Ok(Some(Framing::Chunked))
        }
        (None, Some(_)) if lengths.next().is_some() => Err(WRONG_LENGTH),
        (None, Some(length)) => length_of(length).map(Some),
    }
}

const WRONG_LENGTH: Malformed = Malformed::new("Content-Length is one whole number, once");

fn length_of(length: &[u8]) -> Result<Framing, Malformed> {
    let is_number = !length.is_empty() && length.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(length).ok().and_then(|digits| digits.parse().ok());
    number.filter(|_| is_number).map(Framing::Length).ok_or(WRONG_LENGTH)
}
