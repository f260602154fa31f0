//! Permits that callers hold over HTTP, by the id they were told.
//!
//! What this process keeps is found in its table by a random id. What a store keeps, every process on it must be able to give
//! back, also one that was started since: the id says all that is needed (`carried.rs`), and nothing is kept here.

mod carried;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tollgate::Timestamp;
use tollgate_policy::{Permits, Unavailable};

use crate::store::Health;

/// As many callers can hold permits at once that this process keeps.
const MOST_HELD: usize = 1_000_000;

/// The id of permits where there is none to hold: no concurrency limit applied.
const NOTHING_HELD: &str = "00000000000000000000000000000000";

/// The permits that are held.
#[derive(Debug)]
pub(crate) struct Held {
    here: Mutex<HashMap<u128, Kept>>,
    store: Option<Arc<dyn Health>>, // which keeps the rest, if there is one
}

#[derive(Debug)]
struct Kept {
    permits: Permits,
    until: Option<Timestamp>, // when their lease has ended, if they have one
}

/// As many permits as may be are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{MOST_HELD} permits are held, and that is the most: release some")]
pub(crate) struct TooManyHeld;

impl Held {
    pub(crate) fn new(store: Option<Arc<dyn Health>>) -> Self {
        Self { here: Mutex::default(), store }
    }

    /// Keeps permits until they are released or their lease has ended. Tells an id that nobody can guess.
    pub(crate) fn keep(&self, permits: Permits, until: Option<Timestamp>) -> Result<String, TooManyHeld> {
        if permits.is_empty() {
            return Ok(NOTHING_HELD.to_owned());
        }
        if let Some(id) = permits.in_store().and_then(carried::write) {
            permits.leave_in_store();
            return Ok(id);
        }
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the system has randomness");
        let id = u128::from_ne_bytes(bytes);
        let mut held = self.here.lock();
        if held.len() >= MOST_HELD {
            return Err(TooManyHeld);
        }
        held.insert(id, Kept { permits, until });
        Ok(format!("{id:032x}"))
    }

    /// Whether no more can be kept.
    pub(crate) fn is_full(&self) -> bool {
        self.here.lock().len() >= MOST_HELD
    }

    /// Gives permits back. False if they were not held any more.
    ///
    /// # Errors
    ///
    /// When the store that keeps them gives no answer.
    pub(crate) async fn release(&self, id: &str) -> Result<bool, Unavailable> {
        if id == NOTHING_HELD {
            return Ok(true);
        }
        if let Some(permits) = carried::read(id) {
            return match &self.store {
                Some(store) if permits.iter().all(|permit| store.may_have_given(permit)) => {
                    Permits::stored(Arc::clone(store) as _, permits).release().await
                }
                _ => Ok(false),
            };
        }
        let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let Some(id) = is_id.then(|| u128::from_str_radix(id, 16).ok()).flatten() else { return Ok(false) };
        let kept = self.here.lock().remove(&id);
        match kept {
            Some(kept) => kept.permits.release().await,
            None => Ok(false),
        }
    }

    /// Forgets permits whose lease has ended.
    pub(crate) fn forget_ended(&self, now: Timestamp) {
        let has_ended = |_: &u128, kept: &mut Kept| kept.until.is_some_and(|until| until <= now);
        let ended: Vec<(u128, Kept)> = self.here.lock().extract_if(has_ended).collect();
        drop(ended); // which may give them back to a store, and is done without the lock
    }
}
