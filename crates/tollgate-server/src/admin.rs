//! Who may change things at run time.

use axum::http::{HeaderMap, header};
use parking_lot::RwLock;

use crate::cross_site;

/// The token that admin calls carry, where one is configured.
pub(crate) struct Admin(RwLock<Option<Vec<u8>>>);

/// Why an admin call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("this call needs the admin token: send `Authorization: Bearer TOKEN`")]
    Unauthorized,
    #[error(
        "without an admin token this call is answered on a loopback listener only: write `admin: {{ token_file: … }}` in the policy file"
    )]
    NotLoopback,
    #[error(
        "without an admin token this call needs a loopback address or localhost as `Host`, and no `Origin` of another site: write `admin: {{ token_file: … }}` in the policy file to make it by another name"
    )]
    OtherOrigin,
}

impl Admin {
    /// Reads the token from its file.
    pub(crate) fn new(token_file: Option<&str>) -> Result<Self, String> {
        Ok(Self(RwLock::new(token_file.map(read).transpose()?)))
    }

    /// Goes by another token from now on.
    pub(crate) fn replace(&self, other: Self) {
        *self.0.write() = other.0.into_inner();
    }

    /// Whether a call may change things that came in at a listener that is bound to the loopback, or to more.
    pub(crate) fn allows(&self, headers: &HeaderMap, is_loopback: bool) -> Result<(), Refused> {
        match &*self.0.read() {
            Some(token) => {
                let given = headers.get(header::AUTHORIZATION).map_or(&[][..], |value| value.as_bytes());
                let given = match given.split_at_checked(7) {
                    Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => token,
                    _ => return Err(Refused::Unauthorized),
                };
                if same(given, token) { Ok(()) } else { Err(Refused::Unauthorized) }
            }
            None if !is_loopback => Err(Refused::NotLoopback),
            // Not by a name in `listen.hosts` either: a proxy answers to it, for callers of any machine.
            None if !cross_site::is_local(headers) => Err(Refused::OtherOrigin),
            None => Ok(()),
        }
    }
}

fn read(file: &str) -> Result<Vec<u8>, String> {
    let token = std::fs::read(file).map_err(|error| format!("admin token {file}: {error}"))?;
    let token = token.trim_ascii().to_vec();
    if token.is_empty() {
        return Err(format!("admin token {file}: the file is empty; write a token of your choice into it"));
    }
    Ok(token)
}

/// Compares in a time that does not tell how much was right.
pub(crate) fn same(given: &[u8], token: &[u8]) -> bool {
    let differences = given.iter().zip(token).fold(0, |all, (a, b)| all | (a ^ b));
    given.len() == token.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_token_opens_every_listener_and_nothing_else_does() {
        let admin = Admin(RwLock::new(Some(b"secret".to_vec())));
        for (value, allowed) in [
            ("Bearer secret", true),
            ("bearer secret", true),
            ("Bearer secre", false),
            ("Bearer secrets", false),
            ("Bearer ", false),
            ("secret", false),
            ("", false),
        ] {
            let headers = headers(&[("authorization", value)]);
            for local in [true, false] {
                assert_eq!(admin.allows(&headers, local).is_ok(), allowed, "{value} on {local}");
            }
        }
        assert_eq!(admin.allows(&HeaderMap::new(), true), Err(Refused::Unauthorized));
    }

    #[test]
    fn without_a_token_only_this_machine_may_and_no_page_of_another_site() {
        let admin = Admin(RwLock::new(None));
        let page = |origin| headers(&[("host", "127.0.0.1:8080"), ("origin", origin)]);
        let loopback = true;
        assert_eq!(admin.allows(&HeaderMap::new(), loopback), Ok(()));
        assert_eq!(admin.allows(&HeaderMap::new(), false), Err(Refused::NotLoopback));
        assert_eq!(admin.allows(&page("http://127.0.0.1:8080"), loopback), Ok(()));
        assert_eq!(admin.allows(&page("https://evil.example"), loopback), Err(Refused::OtherOrigin));
        assert_eq!(admin.allows(&page("null"), loopback), Err(Refused::OtherOrigin));
        // A page whose name was made to lead to this machine is of its own origin.
        for (host, expected) in [
            ("evil.example:8080", Err(Refused::OtherOrigin)),
            ("localhost:8080", Ok(())),
            ("[::1]:8080", Ok(())),
            ("127.0.0.1", Ok(())),
            ("127.0.0.1.evil.example", Err(Refused::OtherOrigin)),
        ] {
            assert_eq!(admin.allows(&headers(&[("host", host)]), loopback), expected, "{host}");
        }
    }
}
