//! Programs that a test starts and stops: real servers, on free ports.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// A program that runs until it is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    out: BufReader<ChildStdout>,
    errors: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts a program.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Self {
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = started.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut stderr = child.stderr.take().expect("it is piped");
        let errors = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&errors);
        // Read as it comes, lest the program wait for room in the pipe.
        let reader = thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(read @ 1..) = stderr.read(&mut chunk) {
                kept.lock()
                    .expect("nobody panics with it")
                    .push_str(&String::from_utf8_lossy(&chunk[..read]));
            }
        });
        Self { child, out, errors, reader: Some(reader) }
    }

    /// Its next line on standard output that contains `words`.
    ///
    /// # Panics
    ///
    /// When it ends without.
    pub fn line_with(&mut self, words: &str) -> String {
        let mut line = String::new();
        while self.out.read_line(&mut line).is_ok_and(|read| read > 0) {
            if line.contains(words) {
                return line.trim().to_owned();
            }
            line.clear();
        }
        let status = self.child.wait();
        panic!("it ended ({status:?}) without a line that has `{words}`: {}", self.errors());
    }

    /// What it has written to standard error so far.
    ///
    /// # Panics
    ///
    /// When another thread has.
    pub fn errors(&self) -> String {
        self.errors.lock().expect("nobody panics with it").clone()
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, such as `TERM`.
    ///
    /// # Panics
    ///
    /// When there is no `kill`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.id().to_string()]).status();
        assert!(status.expect("every system has kill").success());
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    ///
    /// When the system cannot tell.
    pub fn wait(&mut self) -> ExitStatus {
        let status = self.child.wait().expect("it was started");
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        status
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address in a line such as `listens on http://127.0.0.1:8080`.
///
/// # Panics
///
/// When there is none.
pub fn address_in(line: &str) -> SocketAddr {
    let address = line.rsplit_once("//").map_or(line, |(_, address)| address);
    address.trim().parse().unwrap_or_else(|_| panic!("no address in `{line}`"))
}
