//! What happens later, in the order of its times.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Events by time. Those of the same time come in the order in which they were added.
#[derive(Debug)]
pub(super) struct EventQueue<E> {
    heap: BinaryHeap<Scheduled<E>>,
    added: u64,
}

#[derive(Debug)]
struct Scheduled<E> {
    at: u64,
    number: u64,
    event: E,
}

impl<E> EventQueue<E> {
    pub(super) const fn new() -> Self {
        Self { heap: BinaryHeap::new(), added: 0 }
    }

    pub(super) fn add(&mut self, at: u64, event: E) {
        self.heap.push(Scheduled { at, number: self.added, event });
        self.added += 1;
    }

    /// When the next event is.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|next| next.at)
    }

    pub(super) fn next(&mut self) -> Option<E> {
        self.heap.pop().map(|next| next.event)
    }
}

impl<E> Ord for Scheduled<E> {
    /// The heap has its greatest on top, so the earliest is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Scheduled<E> {}
