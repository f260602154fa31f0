//! Answers that a shared store has to be waited for, and what comes after them.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;

use super::session::MUCH_TO_SEND;
use crate::service::MOST_AT_ONCE;

/// Answers of one connection that are waited for, side by side and to be sent in order, and answers that were ready but
/// come after one that is not. Where states are in this process, there are none.
#[derive(Default)]
pub(super) struct Later(Option<Box<Queue>>); // a connection that waits for nobody keeps none

#[derive(Default)]
struct Queue {
    awaited: FuturesOrdered<Awaited>,
    after: VecDeque<After>, // one for each
    asks: usize,            // of the store, by all of them
    bytes: usize,           // ready, after all of them
}

/// What comes after an answer, and how much was asked for it.
struct After {
    bytes: Vec<u8>,
    asks: usize,
}

type Awaited = Pin<Box<dyn Future<Output = Vec<u8>> + Send>>;

impl Later {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether with so many asks more there is as much to wait for, or ready and waiting, as may be.
    pub(super) fn is_full(&self, more: usize) -> bool {
        self.0.as_ref().is_some_and(|queue| queue.asks + more >= MOST_AT_ONCE || queue.bytes >= MUCH_TO_SEND)
    }

    /// Waits for an answer that takes so many asks. Nothing is asked before it is [polled](Self::poll), and then in this
    /// order.
    pub(super) fn push(&mut self, asks: usize, answer: impl Future<Output = Vec<u8>> + Send + 'static) {
        let queue = self.0.get_or_insert_default();
        queue.awaited.push_back(Box::pin(answer));
        queue.after.push_back(After { bytes: Vec::new(), asks });
        queue.asks += asks;
    }

    /// Takes what was said since `begin`, if it has to wait for an answer before it.
    pub(super) fn take_after(&mut self, out: &mut Vec<u8>, begin: usize) {
        let Some(queue) = &mut self.0 else { return };
        if let Some(after) = queue.after.back_mut() {
            after.bytes.extend_from_slice(&out[begin..]);
            queue.bytes += out.len() - begin;
            out.truncate(begin);
        }
    }

    /// Appends all answers whose turn it is.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) {
        let Some(queue) = &mut self.0 else { return };
        while let Poll::Ready(Some(answer)) = queue.awaited.poll_next_unpin(context) {
            out.extend_from_slice(&answer);
            let After { bytes, asks } = queue.after.pop_front().expect("one for each");
            out.extend_from_slice(&bytes);
            queue.bytes -= bytes.len();
            queue.asks -= asks;
        }
        if queue.awaited.is_empty() {
            self.0 = None;
        }
    }
}
