//! The client's side of an exchange, whatever it speaks.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::h1::Malformed;

/// Why the body of a request cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyError {
    /// It is not what HTTP says.
    Malformed(Malformed),
    /// It is larger than may be.
    TooLarge,
    /// It is not as long as was announced.
    OtherLength,
    /// No more of it came in time.
    Stalled,
    /// Its connection has ended, or failed.
    Gone,
}

/// The client's side of an exchange.
pub(super) trait Front {
    /// The next piece of the request's body; none at the end.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>>;

    /// Ready when the client has left, as far as can be seen.
    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()>;
}

/// Waits for something, unless the client leaves before.
pub(super) async fn unless_gone<F: Front, T>(front: &mut F, wait: impl Future<Output = T>) -> Option<T> {
    let mut wait = pin!(wait);
    poll_fn(|context| match wait.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => front.poll_gone(context).map(|()| None),
    })
    .await
}
