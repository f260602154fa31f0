//! Who waits for which key, first come first served.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use crate::sync::{AtomicUsize, Mutex, Ordering, fence};

/// As many as may wait before a limiter, unless it was told otherwise.
pub(crate) const MOST_WAITING: usize = 100_000;

/// The lines before all keys of a table.
///
/// Only the first of a line asks for its key; it alone has a timer. Those behind it are woken when they have
/// become first. So whoever waits costs nothing but a place, and nobody overtakes.
#[derive(Debug)]
pub(crate) struct Lines {
    places: Mutex<Places>,
    waiting: AtomicUsize, // as many as there are places: to see without the lock that nobody waits
    most: usize,
}

#[derive(Debug, Default)]
struct Places {
    by_key: BTreeMap<(u64, u64), Waiter>, // by key and arrival
    arrivals: u64,
}

#[derive(Debug, Default)]
struct Waiter {
    waker: Option<Waker>,
    is_called: bool, // the key may have changed for the better since it was last asked
}

/// A place in a line, left when it is dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    lines: &'a Lines,
    key: u64,
    arrival: u64,
}

impl Lines {
    /// In which `most` may wait in all.
    pub(crate) fn new(most: usize) -> Self {
        Self { places: Mutex::default(), waiting: AtomicUsize::new(0), most }
    }

    /// Whether nobody waits for the key.
    pub(crate) fn is_empty(&self, key: u64) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0 || self.places.lock().first(key).is_none()
    }

    /// Takes a place at the end of the line. None where as many wait as may.
    pub(crate) fn join(&self, key: u64) -> Option<Place<'_>> {
        let mut places = self.places.lock();
        if places.by_key.len() >= self.most {
            return None;
        }
        let arrival = places.arrivals;
        places.arrivals += 1;
        places.by_key.insert((key, arrival), Waiter::default());
        self.waiting.store(places.by_key.len(), Ordering::Relaxed);
        fence(Ordering::SeqCst); // see `call`
        Some(Place { lines: self, key, arrival })
    }

    /// Has the first in line ask again: the key has changed for the better otherwise than by time.
    ///
    /// Nobody is missed, though the lock is not taken where nobody waits: whoever waits has joined and then asked,
    /// whoever calls has changed the key and then looks. Of the two fences in between one comes first, so that
    /// either the change is seen by who asks, or who waits is seen here.
    pub(crate) fn call(&self, key: u64) {
        if self.is_waited_for() {
            let waker = self.places.lock().call(key);
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Has the first of every line ask again.
    pub(crate) fn call_all(&self) {
        if self.is_waited_for() {
            let mut places = self.places.lock();
            let keys: Vec<u64> = places.firsts().collect();
            let wakers: Vec<Waker> = keys.into_iter().filter_map(|key| places.call(key)).collect();
            drop(places);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    fn is_waited_for(&self) -> bool {
        fence(Ordering::SeqCst);
        self.waiting.load(Ordering::Relaxed) > 0
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        assert_eq!(self.waiting.load(Ordering::Relaxed), self.places.lock().by_key.len());
        self.places.lock().by_key.len()
    }
}

impl Places {
    fn first(&self, key: u64) -> Option<u64> {
        self.by_key.range((key, 0)..=(key, u64::MAX)).next().map(|(&(_, arrival), _)| arrival)
    }

    fn waiter(&mut self, place: &Place<'_>) -> &mut Waiter {
        let waiter = self.by_key.get_mut(&(place.key, place.arrival));
        waiter.expect("a place is taken until it is dropped")
    }

    /// The keys for which anybody waits.
    fn firsts(&self) -> impl Iterator<Item = u64> {
        let mut last = None;
        self.by_key.keys().filter_map(move |&(key, _)| (last.replace(key) != Some(key)).then_some(key))
    }

    /// Marks the first in line as called, and hands out its waker.
    fn call(&mut self, key: u64) -> Option<Waker> {
        let (_, waiter) = self.by_key.range_mut((key, 0)..=(key, u64::MAX)).next()?;
        waiter.is_called = true;
        waiter.waker.take()
    }
}

impl Place<'_> {
    /// Waits until nobody is before.
    pub(crate) async fn first(&self) {
        poll_fn(|context| self.poll_until(context, |places| places.first(self.key) == Some(self.arrival)))
            .await;
    }

    /// Ready if it has been called since it was last ready.
    pub(crate) fn poll_called(&self, context: &Context<'_>) -> Poll<()> {
        self.poll_until(context, |places| std::mem::take(&mut places.waiter(self).is_called))
    }

    /// Wakers are made and dropped outside the lock, as they are woken: they are the caller's, and may do anything.
    fn poll_until(&self, context: &Context<'_>, is_ready: impl FnOnce(&mut Places) -> bool) -> Poll<()> {
        let waker = context.waker().clone();
        let mut places = self.lines.places.lock();
        if is_ready(&mut places) {
            return Poll::Ready(());
        }
        let before = places.waiter(self).waker.replace(waker);
        drop(places);
        drop(before);
        Poll::Pending
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut places = self.lines.places.lock();
        let was_first = places.first(self.key) == Some(self.arrival);
        let own = places.by_key.remove(&(self.key, self.arrival));
        self.lines.waiting.store(places.by_key.len(), Ordering::Relaxed);
        let next = if was_first { places.call(self.key) } else { None };
        drop(places);
        drop(own);
        next.into_iter().for_each(Waker::wake);
    }
}

#[cfg(all(test, loom_model))]
mod models;
