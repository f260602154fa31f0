//! The password of RESP clients.

use std::net::IpAddr;
use std::time::Duration;

use parking_lot::RwLock;
use tollgate::{KeyedLimiter, Rate, Timestamp, TokenBucket};

use crate::admin::same;
use crate::connections::peer_network;

/// Failed attempts per address: at once, and per minute.
const ATTEMPTS: u32 = 20;
const ATTEMPTS_PER_MINUTE: u32 = 10;

/// The addresses whose attempts are remembered at once.
const MOST_ADDRESSES: usize = 100_000;

/// The password that clients must give, where one is configured.
pub(crate) struct Password {
    password: RwLock<Option<Vec<u8>>>,
    attempts: KeyedLimiter,
}

/// What comes of an attempt to give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    Right,
    Wrong,
    /// The address has failed too often. The password was not looked at.
    TooMany {
        retry_after: u64,
    }, // in seconds
}

impl Password {
    /// Reads the password from its file: all of it, but for a line break at its end.
    pub(crate) fn new(file: Option<&str>) -> Result<Self, String> {
        let rate = Rate::new(ATTEMPTS_PER_MINUTE.into(), Duration::from_secs(60)).expect("a rate above zero");
        let bucket = TokenBucket::new(rate, ATTEMPTS.into()).expect("a burst above zero");
        Ok(Self {
            password: RwLock::new(file.map(read).transpose()?),
            attempts: KeyedLimiter::builder(bucket).max_keys(MOST_ADDRESSES).build(),
        })
    }

    /// Goes by another password from now on. Who has given the old one stays.
    pub(crate) fn replace(&self, other: Self) {
        *self.password.write() = other.password.into_inner();
    }

    /// Whether there is one.
    pub(super) fn is_set(&self) -> bool {
        self.password.read().is_some()
    }

    /// Checks a password. Without a configured one, every password is right. A failure is charged to the address.
    pub(super) fn attempt(&self, given: &[u8], peer: IpAddr, now: Timestamp) -> Attempt {
        let Some(password) = &*self.password.read() else { return Attempt::Right };
        let address = peer_network(peer);
        let attempt = self.attempts.ask(&address);
        let decision = attempt.check_at(now);
        if let Some(retry_after) = decision.retry_after() {
            return Attempt::TooMany { retry_after: retry_after.get().div_ceil(1_000_000_000) };
        }
        if same(given, password) {
            attempt.refund_at(now, now);
            return Attempt::Right;
        }
        Attempt::Wrong
    }
}

fn read(file: &str) -> Result<Vec<u8>, String> {
    let mut password = std::fs::read(file).map_err(|error| format!("resp password {file}: {error}"))?;
    if password.ends_with(b"\n") {
        password.pop();
        if password.ends_with(b"\r") {
            password.pop();
        }
    }
    if password.is_empty() {
        return Err(format!(
            "resp password {file}: the file is empty; write a password of your choice into it"
        ));
    }
    Ok(password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_fails_too_often_is_not_heard_for_a_while() {
        let password = Password::new(None).unwrap();
        *password.password.write() = Some(b"secret".to_vec());
        let (one, other) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let at = |seconds: u64| Timestamp::from_nanos(seconds * 1_000_000_000);
        for _ in 0..100 {
            assert_eq!(password.attempt(b"secret", one, at(0)), Attempt::Right, "success is free");
        }
        for _ in 0..ATTEMPTS {
            assert_eq!(password.attempt(b"guess", one, at(0)), Attempt::Wrong);
        }
        assert_eq!(password.attempt(b"secret", one, at(0)), Attempt::TooMany { retry_after: 6 });
        assert_eq!(password.attempt(b"secret", other, at(0)), Attempt::Right);
        assert_eq!(password.attempt(b"secret", one, at(6)), Attempt::Right);
    }
}
