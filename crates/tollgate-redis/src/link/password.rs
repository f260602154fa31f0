//! Passwords, and the files they are in.

use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, fs, io};

use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::told::Reason;

/// How long a file has to be read: it may be on another machine.
const PATIENCE: Duration = Duration::from_millis(100);

/// A password. It is not shown.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    /// This one.
    Text(String),
    /// The one in a file, without the line break at its end. It is read anew for each connection, so that another password
    /// needs no restart.
    File(PathBuf),
}

impl From<String> for Password {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Password {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => formatter.write_str("…"),
            Self::File(file) => formatter.debug_tuple("File").field(file).finish(),
        }
    }
}

impl Password {
    /// The password as it is now.
    ///
    /// # Errors
    ///
    /// When its file cannot be read.
    pub fn read(&self) -> io::Result<String> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File(file) => Ok(fs::read_to_string(file)?.trim_end_matches(['\r', '\n']).to_owned()),
        }
    }
}

/// A password in use, with the last that its file had: it may be missing for a moment while it is replaced.
pub(super) struct Secret {
    password: Password,
    last: Mutex<String>,
    told: Mutex<Reason>, // why the file cannot be read
}

impl Secret {
    pub(super) fn new(password: &Password) -> io::Result<Self> {
        let last = Mutex::new(password.read()?);
        Ok(Self { password: password.clone(), last, told: Mutex::default() })
    }

    /// The password as it is now, or was last.
    pub(super) async fn now(&self) -> String {
        let Password::File(file) = &self.password else { return self.last.lock().clone() };
        let password = self.password.clone();
        // Where others do not wait for it.
        let reading = spawn_blocking(move || password.read());
        let read = match timeout(PATIENCE, reading).await {
            Ok(read) => read.unwrap_or_else(|error| Err(error.into())),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("not within {PATIENCE:?}"))),
        };
        match read {
            Ok(password) => {
                self.told.lock().is_over();
                self.last.lock().clone_from(&password);
                password
            }
            Err(error) => {
                if self.told.lock().is_news(&error.to_string(), Instant::now()) {
                    let file = file.display();
                    tracing::warn!(%file, %error, "the store's password cannot be read, the last one is given");
                }
                self.last.lock().clone()
            }
        }
    }
}
