//! What threads share: locks and atomics, or those of the model checkers where they run the models.
//!
//! `./test` builds the models with `--cfg loom_model` (every order, for the few lines that swap a word) and
//! `--cfg shuttle_model` (many random orders, for what waits).

#[cfg(not(any(loom_model, shuttle_model)))]
pub(crate) use self::real::*;

#[cfg(not(any(loom_model, shuttle_model)))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

    pub(crate) use parking_lot::Mutex;

    pub(crate) use crate::lock::{Guard, Lock};
}

#[cfg(any(loom_model, shuttle_model))]
pub(crate) use self::checked::*;

#[cfg(any(loom_model, shuttle_model))]
mod checked {
    #[cfg(loom_model)]
    use loom::sync;
    #[cfg(shuttle_model)]
    use shuttle::sync;
    pub(crate) use sync::MutexGuard as Guard;
    pub(crate) use sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

    pub(crate) use Mutex as Lock;

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> Guard<'_, T> {
            self.0.lock().expect("nobody panics while holding it")
        }

        pub(crate) fn lock_noting_wait(&self) -> (Guard<'_, T>, bool) {
            (self.lock(), false)
        }

        pub(crate) fn lock_soon(&self) -> Option<(Guard<'_, T>, bool)> {
            self.0.try_lock().ok().map(|guard| (guard, false))
        }
    }

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }
}
