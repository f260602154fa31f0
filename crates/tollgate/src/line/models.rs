//! Whether a look without the lock can miss somebody, in every order, tried by loom: see `sync.rs`.

use loom::thread;

use super::*;
use crate::sync::AtomicU64;

#[test]
fn who_asked_too_early_is_called() {
    loom::model(|| {
        let shared = loom::sync::Arc::new((Lines::new(10), AtomicU64::new(0)));
        let giving = thread::spawn({
            let shared = loom::sync::Arc::clone(&shared);
            move || {
                shared.1.swap(1, Ordering::Relaxed);
                shared.0.call(7);
            }
        });
        let (lines, is_given) = &*shared;
        let place = lines.join(7).unwrap();
        let was_given = is_given.load(Ordering::Relaxed) == 1;
        giving.join().unwrap();
        let called = place.poll_called(&Context::from_waker(Waker::noop())).is_ready();
        assert!(was_given || called, "asked before it was given, and not called");
    });
}
