//! Passwords, and the files they are in.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    is_reading: AtomicBool, // one at a time: a file that hangs must not take a thread with each attempt
    told: Mutex<Reason>,    // why the file cannot be read
}

impl Secret {
    pub(super) fn new(password: &Password) -> io::Result<Self> {
        let last = Mutex::new(password.read()?);
        Ok(Self {
            password: password.clone(),
            last,
            is_reading: AtomicBool::new(false),
            told: Mutex::default(),
        })
    }

    /// The password as it is now, or was last.
    pub(super) async fn now(self: &Arc<Self>) -> String {
        let Password::File(file) = &self.password else { return self.last.lock().clone() };
        if self.is_reading.swap(true, Ordering::Relaxed) {
            return self.last.lock().clone();
        }
        let secret = Arc::clone(self);
        // Where others do not wait for it. What comes too late is there for the next attempt.
        let reading = spawn_blocking(move || {
            let read = secret.password.read();
            if let Ok(password) = &read {
                secret.last.lock().clone_from(password);
            }
            secret.is_reading.store(false, Ordering::Relaxed);
            read
        });
        let read = match timeout(PATIENCE, reading).await {
            Ok(read) => read.unwrap_or_else(|error| Err(error.into())),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("not within {PATIENCE:?}"))),
        };
        match read {
            Ok(password) => {
                self.told.lock().is_over();
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use tollgate_testkit::Directory;

    #[tokio::test]
    async fn one_reader_at_a_time_waits_for_a_file_that_hangs() {
        let folder = Directory::new();
        let file = folder.write("password", "first\n");
        let secret = Arc::new(Secret::new(&Password::File(file.clone())).expect("a file"));
        // Whoever reads a pipe waits for somebody who writes.
        fs::remove_file(&file).expect("it is there");
        assert!(Command::new("mkfifo").arg(&file).status().expect("mkfifo").success());
        for _ in 0..5 {
            assert_eq!(secret.now().await, "first");
        }
        assert_eq!(Arc::strong_count(&secret), 2, "the reader's and ours");
        fs::write(&file, "second").expect("a reader");
        while secret.is_reading.load(Ordering::Relaxed) {
            tokio::task::yield_now().await; // a thread is at it
        }
        fs::remove_file(&file).expect("it is there");
        assert_eq!(secret.now().await, "second", "what came late, since the file is gone");
    }
}
