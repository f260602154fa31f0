//! The body of an answer, which keeps permits until it ends.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tollgate_policy::Permits;

pin_project! {
    /// The body of an answer: the service's own, which holds the permits of its request until it ends or is dropped, or
    /// that of a denial.
    pub struct ResponseBody<R> {
        #[pin]
        kind: Kind<R>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<R> {
        Inner { #[pin] body: R, permits: Permits },
        Own { bytes: Bytes },
    }
}

impl<R: Body> ResponseBody<R> {
    pub(crate) fn holding(body: R, permits: Permits) -> Self {
        // A server does not ask an empty body for its end, and may have sent the answer before it drops it.
        let permits = if body.is_end_stream() { Permits::default() } else { permits };
        Self { kind: Kind::Inner { body, permits } }
    }

    pub(crate) fn own(bytes: Bytes) -> Self {
        Self { kind: Kind::Own { bytes } }
    }
}

impl<R: Body<Data: From<Bytes>>> Body for ResponseBody<R> {
    type Data = R::Data;
    type Error = R::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<R::Data>, R::Error>>> {
        match self.project().kind.project() {
            KindProjection::Inner { mut body, permits } => {
                let frame = ready!(body.as_mut().poll_frame(context));
                let is_last = match &frame {
                    Some(Ok(frame)) => frame.is_trailers() || body.is_end_stream(),
                    Some(Err(_)) | None => true,
                };
                if is_last {
                    // Before the client has the end of the answer, so that its next request finds the permits free.
                    *permits = Permits::default();
                }
                Poll::Ready(frame)
            }
            KindProjection::Own { bytes } if bytes.is_empty() => Poll::Ready(None),
            KindProjection::Own { bytes } => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes).into())))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body, .. } => body.is_end_stream(),
            Kind::Own { bytes } => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body, .. } => body.size_hint(),
            Kind::Own { bytes } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}

impl<R> fmt::Debug for ResponseBody<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, permits) = match &self.kind {
            Kind::Inner { permits, .. } => ("inner", Some(permits)),
            Kind::Own { .. } => ("own", None),
        };
        f.debug_struct("ResponseBody").field("kind", &name).field("permits", &permits).finish()
    }
}
