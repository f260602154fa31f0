//! Work in the background, which ends with what it is done for.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinHandle;

/// A task that is stopped when this is dropped.
#[derive(Debug)]
pub(super) struct Task(JoinHandle<()>);

impl Task {
    pub(super) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }

    /// Waits until it has ended by itself.
    pub(super) async fn ended(&mut self) {
        let _ = (&mut self.0).await; // a panic is an end as well
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Between half of a span and one and a half: many processes that lost the same server do not come back as one.
pub(super) fn jittered(span: Duration) -> Duration {
    const PARTS: u32 = 1024;
    let part = getrandom::u32().unwrap_or(PARTS / 2) % PARTS;
    span / 2 + span * part / PARTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_keeps_to_half_and_one_and_a_half() {
        let span = Duration::from_millis(250);
        for _ in 0..1000 {
            let jittered = jittered(span);
            assert!(jittered >= span / 2 && jittered < span * 3 / 2, "{jittered:?}");
        }
    }
}
