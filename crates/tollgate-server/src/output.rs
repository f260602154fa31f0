//! Standard output and standard error. Everything that the program writes there is written here.
//!
//! The macros of the standard library panic when a write fails: a reader such as `head` has closed the pipe, or the disk is
//! full. The macros of this module have the same names and never panic. Lints in `main.rs` forbid those of the standard library.

use std::fmt;
use std::io::{self, ErrorKind, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Writes to standard output. [`finish`] reports a failure.
macro_rules! print {
    ($($text:tt)*) => { $crate::output::write(::std::format_args!($($text)*)) };
}

/// Writes a line to standard output. [`finish`] reports a failure.
macro_rules! println {
    () => { $crate::output::write(::std::format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::write(::std::format_args!("{}\n", ::std::format_args!($($text)*))) };
}

/// Writes a line to standard error. A line that cannot be written is dropped.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::output::write_error(::std::format_args!("{}\n", ::std::format_args!($($text)*))) };
}

/// The first failure to write to standard output. Nothing is written after it.
static FAILURE: Mutex<Option<io::Error>> = Mutex::new(None);

/// Log lines that could not be written.
static LOG_LINES_LOST: AtomicU64 = AtomicU64::new(0);

/// Writes to standard output and remembers the first failure.
pub(crate) fn write(text: fmt::Arguments<'_>) {
    let mut failure = FAILURE.lock();
    if failure.is_none() {
        *failure = io::stdout().lock().write_fmt(text).err();
    }
}

/// Writes to standard error, as far as that is possible.
pub(crate) fn write_error(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}

/// Writes a text to standard output, all of it before this returns.
pub(crate) fn say(text: &str) -> Result<(), String> {
    write(format_args!("{text}"));
    finish()
}

/// Writes what is still buffered. An error if standard output did not take everything. A reader that has closed the pipe has read
/// all it wants, so that is no error.
pub(crate) fn finish() -> Result<(), String> {
    let mut failure = FAILURE.lock();
    if failure.is_none() {
        *failure = io::stdout().lock().flush().err();
    }
    match &*failure {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => Err(format!("standard output: {error}")),
        _ => Ok(()),
    }
}

/// Writes a line of the log to standard error. A line that cannot be written is counted.
pub(crate) fn log(line: &[u8]) {
    if io::stderr().lock().write_all(line).is_err() {
        LOG_LINES_LOST.fetch_add(1, Ordering::Relaxed);
    }
}

/// The number of log lines that could not be written.
pub(crate) fn log_lines_lost() -> u64 {
    LOG_LINES_LOST.load(Ordering::Relaxed)
}
