//! What a reload has replaced, until no request uses it any more.

use std::sync::Arc;

use parking_lot::Mutex;

/// Values that requests may still use. Dropping them takes time, for which no request should wait: the last user of a value would
/// drop it otherwise.
#[derive(Debug)]
pub(crate) struct Retired<T>(Mutex<Vec<Arc<T>>>);

impl<T> Default for Retired<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Retired<T> {
    /// Keeps a value that was replaced.
    pub(crate) fn push(&self, value: Arc<T>) {
        self.0.lock().push(value);
    }

    /// Drops the values that no request uses. To be called every second, and not on a worker.
    pub(crate) fn drop_unused(&self) {
        let unused: Vec<Arc<T>> =
            self.0.lock().extract_if(.., |value| Arc::strong_count(value) == 1).collect();
        drop(unused);
    }
}

#[cfg(test)]
mod tests {
    use arc_swap::ArcSwap;

    use super::*;

    #[test]
    fn a_replaced_value_is_not_dropped_by_its_last_user() {
        let (retired, current) = (Retired::default(), ArcSwap::from_pointee(1));
        let user = current.load();
        let weak = Arc::downgrade(&user);
        retired.push(current.swap(Arc::new(2)));
        retired.drop_unused();
        assert_eq!(weak.upgrade().as_deref(), Some(&1));
        drop(user);
        assert_eq!(weak.upgrade().as_deref(), Some(&1), "it waits for the next call");
        retired.drop_unused();
        assert!(weak.upgrade().is_none());
        assert!(retired.0.lock().is_empty());
    }
}
