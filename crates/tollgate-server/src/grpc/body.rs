//! A message as it comes, for those who read it piece by piece.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use hyper::body::{Body, Frame};

/// A message of which a piece may have been read already.
pub(super) struct Incoming {
    first: Option<Bytes>,
    rest: RecvStream,
}

impl Incoming {
    pub(super) const fn new(first: Option<Bytes>, rest: RecvStream) -> Self {
        Self { first, rest }
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if let Some(piece) = ready!(self.rest.poll_data(context)) {
            let piece = piece?;
            let _ = self.rest.flow_control().release_capacity(piece.len());
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let trailers = ready!(self.rest.poll_trailers(context))?;
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }
}
