//! The names of keys: readable parts, escaped, under a hash tag.
//!
//! `tollgate:{acme}:per-user:t:acme:42` is the token bucket of limit `per-user` for tenant `acme` and user `42`. What stands
//! in braces decides which server of a cluster has it.

use smallvec::SmallVec;
use tollgate_core::AlgorithmKind;
use tollgate_policy::Ask;

/// All keys begin so, which is what an ACL grants.
pub(crate) const PREFIX: &[u8] = b"tollgate:";

/// What stands in the braces where there is nothing to stand there: empty braces would not count.
const NO_TAG: u8 = b'_';

/// Appends the name of the key that is asked of.
pub(crate) fn write_key(ask: &Ask<'_>, key: &mut Vec<u8>) {
    let parts: usize = ask.key.iter().map(|part| part.len() + 1).sum();
    key.reserve(PREFIX.len() + ask.tag.len() + ask.limit.len() + parts + "{}::t".len());
    write_limit(ask, key);
    write_parts(ask, key);
}

/// Appends what the names of all keys of a limit and a tag begin with.
fn write_limit(ask: &Ask<'_>, key: &mut Vec<u8>) {
    key.extend_from_slice(PREFIX);
    key.push(b'{');
    if ask.tag.is_empty() {
        key.push(NO_TAG)
    } else {
        escape(ask.tag, key)
    }
    key.extend_from_slice(b"}:");
    escape(ask.limit.as_bytes(), key);
    key.push(b':');
}

/// Appends the name of the guard of a grant: while it exists, a return of the grant has been counted. It has the hash tag of the key that
/// the grant was drawn from, so it is in the same slot. No state has the same name, because an algorithm follows the limit in these.
pub(crate) fn write_guard(ask: &Ask<'_>, process: u64, grant: u64, key: &mut Vec<u8>) {
    write_limit(ask, key);
    key.extend_from_slice(format!("return:{process:016x}-{grant}:").as_bytes());
    write_parts(ask, key);
}

/// Appends what follows the limit in the name of a state.
fn write_parts(ask: &Ask<'_>, key: &mut Vec<u8>) {
    key.extend_from_slice(&form(ask.rule.kind()));
    for part in &ask.key {
        key.push(b':');
        escape(part, key);
    }
}

/// The part of a key that names its algorithm and the form of its state.
///
/// Earlier builds kept permits under `p`, with one member per unit of cost. Nothing reads those keys; they expire with their leases.
pub(crate) fn form(kind: AlgorithmKind) -> SmallVec<[u8; 2]> {
    let mut form = SmallVec::from_slice(&[kind.letter()]);
    if kind == AlgorithmKind::Concurrency {
        form.push(b'2');
    }
    form
}

/// Appends a text in which nothing can be taken for the border of a part or of a tag.
fn escape(text: &[u8], key: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let is_border = |byte: &u8| matches!(byte, b'%' | b':' | b'{' | b'}' | 0..=b' ' | 0x7f);
    let mut rest = text;
    // Nearly all texts have none, and are copied at once.
    while let Some(at) = rest.iter().position(is_border) {
        let byte = rest[at];
        key.extend_from_slice(&rest[..at]);
        key.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        rest = &rest[at + 1..];
    }
    key.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::adaptive::Pace;
    use tollgate_core::{Action, Group, Rate, TokenBucket};

    #[test]
    fn names_are_readable_and_cannot_be_mistaken() {
        let rule = TokenBucket::new(Rate::per_second(1).expect("a rate"), 1).expect("a bucket").into();
        for (tag, limit, parts, expected) in [
            ("acme", "per-user", vec!["acme", "42"], "tollgate:{acme}:per-user:t:acme:42"),
            ("", "global", vec![], "tollgate:{_}:global:t"),
            ("a:b", "x", vec!["a:b"], "tollgate:{a%3Ab}:x:t:a%3Ab"),
            ("{}", "x", vec!["", ""], "tollgate:{%7B%7D}:x:t::"),
            ("a b%\n", "x/y", vec!["é"], "tollgate:{a%20b%25%0A}:x/y:t:é"),
        ] {
            let ask = Ask {
                limit: limit.into(),
                key: parts.iter().map(|part| part.as_bytes()).collect(),
                tag: tag.as_bytes(),
                rule,
                pace: Pace::FULL,
                cost: 1,
                action: Action::Charge,
                group: Group::All,
                has_one_tier: false,
                is_denied: false,
            };
            let mut key = Vec::new();
            write_key(&ask, &mut key);
            assert_eq!(String::from_utf8(key).as_deref(), Ok(expected));
            let mut guard = Vec::new();
            write_guard(&ask, 0xab, 7, &mut guard);
            let (limit, parts) = expected.split_at(expected.rfind(":t").expect("a token bucket") + 1);
            assert_eq!(String::from_utf8(guard), Ok(format!("{limit}return:00000000000000ab-7:{parts}")));
        }
    }
}
