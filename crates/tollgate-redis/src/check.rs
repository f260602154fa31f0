//! What is refused before a server is asked: settings that make no sense, and permits that no store has given.

use tollgate_policy::{Redis, StoredPermit};

use crate::key::PREFIX;
use crate::numbers::MOST_PLACES;
use crate::open::{OpenError, settings};
use crate::store::RedisStore;

impl RedisStore {
    /// Refuses what [`open`](Self::open) would refuse, and connects to nobody. It needs no runtime.
    ///
    /// # Errors
    ///
    /// When the settings make no sense, or a file cannot be read.
    pub fn check(redis: &Redis) -> Result<(), OpenError> {
        Ok(settings(redis)?.check()?)
    }
}

/// Whether a store may have given such a permit. Whoever brings one back might name any key of the server, or so many
/// places that it would have time for nobody else.
pub fn is_permit(permit: &StoredPermit) -> bool {
    is_key_of_places(&permit.key) && std::str::from_utf8(&permit.id).is_ok_and(is_id)
}

/// `tollgate:{tag}:limit:p` and the parts of the key, as `key` writes it for a concurrency limit.
fn is_key_of_places(key: &[u8]) -> bool {
    let Some(name) = key.strip_prefix(PREFIX) else { return false };
    let mut parts = name.split(|byte| *byte == b':');
    let tag = parts.next().and_then(|tag| tag.strip_prefix(b"{")?.strip_suffix(b"}"));
    tag.is_some_and(|tag| !tag.is_empty()) && parts.nth(1) == Some(b"p")
}

/// The process, which of its permits, and how many places it has: `0123456789abcdef-2a*1`.
fn is_id(id: &str) -> bool {
    let Some((name, places)) = id.rsplit_once('*') else { return false };
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
        && places.parse().is_ok_and(|places| (1..=MOST_PLACES).contains(&places))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use tollgate_policy::{Policy, StoreSettings};

    #[test]
    fn settings_are_checked_without_a_runtime() {
        for (redis, expected) in [
            ("{ url: 'redis://127.0.0.1:1' }", None),
            ("{ urls: ['redis://127.0.0.1:1', 'redis://127.0.0.1:2'], cluster: true }", None),
            ("{ url: 'http://127.0.0.1' }", Some("unknown scheme `http`")),
            ("{ url: 'redis://127.0.0.1', password_file: /nowhere }", Some("/nowhere cannot be read")),
            ("{ url: 'rediss://127.0.0.1', tls: { ca_file: /nowhere } }", Some("/nowhere")),
            ("{ url: 'redis://127.0.0.1', deadline: 1h }", Some("between 1 ms and 60 s")),
        ] {
            let text = format!("{{ store: {{ redis: {redis} }}, limits: [] }}");
            let policy = Policy::read(Path::new("tollgate.yaml"), &text).expect(redis);
            let StoreSettings::Redis(settings) = policy.store else { panic!("it is Redis") };
            let refused = RedisStore::check(&settings).err().map(|error| error.to_string());
            match expected {
                None => assert_eq!(refused, None, "{redis}"),
                Some(words) => {
                    assert!(refused.as_ref().is_some_and(|told| told.contains(words)), "{redis}: {refused:?}")
                }
            }
        }
    }

    #[test]
    fn only_what_a_store_gives_is_a_permit() {
        let id = "0123456789abcdef-2a*1";
        let key = "tollgate:{acme}:in-flight:p:acme";
        for (key, id, expected) in [
            (key, id, true),
            ("tollgate:{_}:in-flight:p", "0123456789abcdef-2a*100000", true),
            ("tollgate:{a%3Ab}:in%20flight:p:a%3Ab:é:", id, true),
            ("sessions", id, false),
            ("tollgate:nodes", id, false),
            ("tollgate:{acme}:per-user:t:acme", id, false), // of another algorithm
            ("tollgate:{}:in-flight:p", id, false),
            ("tollgate:{acme}:in-flight", id, false),
            ("", id, false),
            (key, "", false),
            (key, "0123456789abcdef-2a", false),
            (key, "*1", false),
            (key, "0123456789abcdef-2a*0", false),
            (key, "0123456789abcdef-2a*100001", false),
            (key, "0123456789abcdef-2a*-1", false),
            (key, "0123456789abcdef-2a*1e9", false),
            (key, "newest:1*1", false),
        ] {
            let permit = StoredPermit { key: key.into(), id: id.into() };
            assert_eq!(is_permit(&permit), expected, "{key} {id}");
        }
    }
}
