//! Permits: what places in a concurrency limit are known by, and how they are given back.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::Value;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tollgate_core::{Action, AlgorithmKind};
use tollgate_policy::{StoredPermit, Unavailable};

use super::Inner;
use crate::key::{PREFIX, form};
use crate::numbers::MOST_PLACES;
use crate::request::{Prepared, Texts};

/// As many permits may be given back in the background at once.
const MOST_RELEASING: usize = 1024;

/// What a process gives permits by.
#[derive(Debug)]
pub(super) struct Permits {
    given: AtomicU64,    // so far
    secret: RandomState, // of this process, by which they are told apart from others and from what is made up
    releasing: Arc<Semaphore>,
}

impl Default for Permits {
    fn default() -> Self {
        Self {
            given: AtomicU64::new(0),
            secret: RandomState::new(),
            releasing: Arc::new(Semaphore::new(MOST_RELEASING)),
        }
    }
}

impl Permits {
    /// A name that no other permit has, and that nobody can guess who has another: whoever knows it may give the permit back.
    /// Those of other processes have other secrets. It is short, since a permit of a large cost is stored under it several times.
    pub(super) fn next(&self) -> String {
        let number = self.given.fetch_add(1, Ordering::Relaxed);
        format!("{number:x}-{:016x}", self.secret.hash_one(number))
    }
}

/// The slots that a request holds once it is allowed, by limits that `allow` it.
pub(super) fn held(prepared: &Prepared, permit: &str, allow: impl Fn(usize) -> bool) -> Vec<StoredPermit> {
    let limits = prepared.limits.iter().enumerate();
    let held =
        limits.filter(|(place, limit)| limit.action == Action::Hold && limit.cost > 0 && allow(*place));
    held.map(|(place, limit)| {
        let own = if limit.is_repeated { format!("{permit}-{place:x}") } else { permit.to_owned() };
        let id = format!("{own}*{}", limit.cost).into_bytes();
        StoredPermit { key: prepared.key(limit).to_vec(), id }
    })
    .collect()
}

impl Inner {
    /// Gives back the places of a request that may have got them, though nobody has heard of it.
    pub(super) fn give_up(self: &Arc<Self>, prepared: &Prepared, permit: &str) {
        let permits = held(prepared, permit, |_| true);
        if !permits.is_empty() {
            self.release_later(permits, false);
        }
    }

    /// Gives places back in the background: now, and for some seconds again where the store does not answer, or does not know
    /// them though they are not certain to be held. Where all of that fails, or too many are at it, their leases end them.
    pub(super) fn release_later(self: &Arc<Self>, permits: Vec<StoredPermit>, is_held: bool) {
        const PAUSES: [Duration; 3] =
            [Duration::from_millis(250), Duration::from_secs(1), Duration::from_secs(4)];
        // Without a runtime nobody can be told.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let Ok(turn) = Arc::clone(&self.permits.releasing).try_acquire_owned() else { return };
        let store = Arc::clone(self);
        runtime.spawn(async move {
            let _turn = turn;
            for pause in PAUSES.map(Some).into_iter().chain([None]) {
                let answer = store.release(&permits).await;
                let (false, Some(pause)) = (answer.is_ok_and(|was_held| was_held || is_held), pause) else {
                    return;
                };
                sleep(pause).await;
            }
        });
    }

    pub(super) async fn release(&self, permits: &[StoredPermit]) -> Result<bool, Unavailable> {
        let mut all = true;
        for permit in permits {
            let id = String::from_utf8_lossy(&permit.id);
            let (id, places) = id.rsplit_once('*').unwrap_or((&id, "1"));
            let mut args = Texts::default();
            args.time(self.time());
            args.text(id.as_bytes());
            args.text(places.as_bytes());
            let answer = self.call(&self.scripts.release, &[&permit.key], &args).await;
            all &= answer.map_err(|error| self.unavailable(error.into()))? == Value::Int(1);
        }
        Ok(all)
    }
}

/// Whether a store may have given such a permit. A caller that releases one could otherwise name any key of the server.
pub fn is_permit(permit: &StoredPermit) -> bool {
    is_key_of_places(&permit.key) && std::str::from_utf8(&permit.id).is_ok_and(is_id)
}

/// `tollgate:{tag}:limit:p2` and the parts of the key, as `write_key` writes it for a concurrency limit.
fn is_key_of_places(key: &[u8]) -> bool {
    let Some(name) = key.strip_prefix(PREFIX) else { return false };
    let mut parts = name.split(|byte| *byte == b':');
    let tag = parts.next().and_then(|tag| tag.strip_prefix(b"{")?.strip_suffix(b"}"));
    tag.is_some_and(|tag| !tag.is_empty()) && parts.nth(1) == Some(&form(AlgorithmKind::Concurrency))
}

/// The number of the permit in its process, a part that nobody can guess, and the cost: `2a-0123456789abcdef*1`.
fn is_id(id: &str) -> bool {
    let Some((name, places)) = id.rsplit_once('*') else { return false };
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
        && places.parse().is_ok_and(|places| (1..=MOST_PLACES).contains(&places))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_this_process_is_one_that_is_taken_back() {
        let name = Permits::default().next();
        assert!(is_id(&format!("{name}*1")), "{name}");
    }

    #[test]
    fn only_what_a_store_gives_is_a_permit() {
        let id = "2a-0123456789abcdef*1";
        let key = "tollgate:{acme}:in-flight:p2:acme";
        for (key, id, expected) in [
            (key, id, true),
            ("tollgate:{_}:in-flight:p2", "2a-0123456789abcdef*100000", true),
            ("tollgate:{a%3Ab}:in%20flight:p2:a%3Ab:é:", id, true),
            ("sessions", id, false),
            ("tollgate:nodes", id, false),
            ("tollgate:{acme}:per-user:t:acme", id, false), // of another algorithm
            ("tollgate:{acme}:in-flight:p:acme", id, false), // of an earlier version: its lease ends it
            ("tollgate:{}:in-flight:p2", id, false),
            ("tollgate:{acme}:in-flight", id, false),
            ("", id, false),
            (key, "", false),
            (key, "2a-0123456789abcdef", false),
            (key, "*1", false),
            (key, "2a-0123456789abcdef*0", false),
            (key, "2a-0123456789abcdef*100001", false),
            (key, "2a-0123456789abcdef*-1", false),
            (key, "2a-0123456789abcdef*1e9", false),
            (key, "newest:1*1", false),
        ] {
            let permit = StoredPermit { key: key.into(), id: id.into() };
            assert_eq!(is_permit(&permit), expected, "{key} {id}");
        }
    }
}
