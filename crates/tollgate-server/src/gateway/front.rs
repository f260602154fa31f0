//! The client's side of an exchange, whatever it speaks.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;

use super::h1::{Malformed, Timer};
use super::progress::Progress;

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
    /// It came more slowly than `timeouts.min_upload_rate`.
    TooSlow,
    /// Its connection has ended, or failed.
    Gone,
}

/// The client's side of an exchange.
pub(super) trait Front {
    /// The next piece of the request's body; none at the end.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>>;

    /// Ready when the client has left, as far as can be seen.
    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()>;

    /// Reads the body ahead. Ready when all of it has come, or as much as is read ahead.
    fn poll_ahead(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyError>>;

    /// How fast the client sends the body.
    fn upload(&mut self) -> &mut Progress;
}

/// As much of a body is read before the request takes a slot.
pub(super) const READ_AHEAD: usize = 64 << 10;

/// Waits until the body is read ahead. A slow client then holds no slot.
pub(super) async fn read_ahead<F: Front>(
    front: &mut F,
    timer: &mut Option<Timer>,
    idle: Duration,
) -> Result<(), BodyError> {
    let mut bytes = None;
    poll_fn(|context| {
        if let Poll::Ready(result) = front.poll_ahead(context) {
            return Poll::Ready(result);
        }
        let timer = timer.get_or_insert_with(|| Timer::new(idle));
        let upload = front.upload();
        if bytes != Some(upload.bytes()) {
            bytes = Some(upload.bytes());
            timer.set(idle);
        }
        if upload.is_too_slow() {
            return Poll::Ready(Err(BodyError::TooSlow));
        }
        if timer.is_over(context) {
            return Poll::Ready(Err(BodyError::Stalled));
        }
        timer.bring_forward(upload.deadline());
        // Registers the time that was brought forward.
        if timer.poll(context).is_ready() {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await
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
