//! A directory of a test's own, gone with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A directory among the system's temporary ones, removed with all that is in it when it is dropped.
#[derive(Debug)]
pub struct Directory(PathBuf);

static DIRECTORIES: AtomicUsize = AtomicUsize::new(0);

impl Directory {
    /// Makes one, empty.
    ///
    /// # Panics
    ///
    /// When the system does not let it.
    #[expect(clippy::new_without_default, reason = "a directory on the disk is nobody's default")]
    pub fn new() -> Self {
        loop {
            let number = DIRECTORIES.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("tollgate-testkit-{}-{number}", process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Self(path),
                // Left by a test that was killed, whose process had the same number.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file into it, and says where that is.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
