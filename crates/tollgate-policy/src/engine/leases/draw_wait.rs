//! Requests that wait for the answer to a draw.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::store::{Later, Unavailable};

/// What the requests that wait for one draw share.
#[derive(Debug, Default)]
pub(in crate::engine) struct DrawWait(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    answer: Option<Result<(), Unavailable>>,
    wakers: Vec<Waker>,
}

impl DrawWait {
    /// Wakes all that wait: with units or without, or because the store gave no answer. Call it without a lock held.
    pub(super) fn end(&self, answer: Result<(), Unavailable>) {
        let wakers = {
            let mut state = self.0.lock();
            state.answer = Some(answer);
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<(), Unavailable>> {
        let mut state = self.0.lock();
        if let Some(answer) = &state.answer {
            return Poll::Ready(answer.clone());
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Waits for the answer. None if `timeout` ends first.
    pub(super) async fn answer(
        self: Arc<Self>,
        timeout: &mut Later<'static, ()>,
    ) -> Option<Result<(), Unavailable>> {
        poll_fn(|cx| match self.poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => timeout.as_mut().poll(cx).map(|()| None),
        })
        .await
    }
}
