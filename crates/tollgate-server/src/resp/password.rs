//! The password of RESP clients.

use parking_lot::RwLock;

use crate::admin::same;

/// The password that clients must give, where one is configured.
pub(crate) struct Password(RwLock<Option<Vec<u8>>>);

impl Password {
    /// Reads the password from its file: all of it, but for a line break at its end.
    pub(crate) fn new(file: Option<&str>) -> Result<Self, String> {
        Ok(Self(RwLock::new(file.map(read).transpose()?)))
    }

    /// Goes by another password from now on. Who has given the old one stays.
    pub(crate) fn replace(&self, other: Self) {
        *self.0.write() = other.0.into_inner();
    }

    /// Whether there is one.
    pub(super) fn is_set(&self) -> bool {
        self.0.read().is_some()
    }

    /// Whether this is it; anything is where there is none.
    pub(super) fn is(&self, given: &[u8]) -> bool {
        self.0.read().as_ref().is_none_or(|password| same(given, password))
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
