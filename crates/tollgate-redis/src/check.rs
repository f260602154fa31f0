//! What is refused before a server is asked: permits that no store has given.

use tollgate_policy::StoredPermit;

use crate::key::PREFIX;

/// As many places a limit has at most: what `numbers` lets pass.
const MOST_PLACES: u64 = 1_000_000;

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
    name.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
        && places.parse().is_ok_and(|places| (1..=MOST_PLACES).contains(&places))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tollgate_core::Concurrency;

    #[test]
    fn only_what_a_store_gives_is_a_permit() {
        let id = "0123456789abcdef-2a*1";
        let key = "tollgate:{acme}:in-flight:p:acme";
        for (key, id, expected) in [
            (key, id, true),
            ("tollgate:{_}:in-flight:p", "0123456789abcdef-2a*1000000", true),
            ("tollgate:{a%3Ab}:in%20flight:p:a%3Ab:é:", id, true),
            ("sessions", id, false),
            ("tollgate:nodes", id, false),
            ("tollgate:{acme}:per-user:t:acme", id, false), // of another algorithm
            ("tollgate:{}:in-flight:p", id, false),
            ("tollgate:{acme}:in-flight", id, false),
            ("", id, false),
            (key, "", false),
            (key, "0123456789abcdef-2a", false),
            (key, "0123456789abcdef-2a*0", false),
            (key, "0123456789abcdef-2a*1000001", false),
            (key, "0123456789abcdef-2a*-1", false),
            (key, "0123456789abcdef-2a*1e9", false),
            (key, "newest:1*1", false),
        ] {
            let permit = StoredPermit { key: key.into(), id: id.into() };
            assert_eq!(is_permit(&permit), expected, "{key} {id}");
        }
    }

    #[test]
    fn a_permit_may_have_as_many_places_as_a_limit() {
        let lease = Some(Duration::from_secs(1));
        let keeps = |limit| crate::require(&Concurrency::new(limit, lease).expect("a rule").into()).is_ok();
        assert_eq!([MOST_PLACES, MOST_PLACES + 1].map(keeps), [true, false]);
    }
}
