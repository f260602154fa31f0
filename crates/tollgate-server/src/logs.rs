//! What is logged, and how it looks.

use std::io::{self, IsTerminal as _, Write};

use parking_lot::RwLock;
use tollgate_policy::EnvironmentValues;
use tracing_subscriber::fmt;

use crate::cli::{LogFormat, Serve};
use crate::output;

/// Begins to log to standard error.
pub(crate) fn start(options: &Serve) {
    let is_terminal = io::stderr().is_terminal();
    let default = if is_terminal { LogFormat::Text } else { LogFormat::Json };
    let lines = fmt()
        .with_max_level(options.log_level)
        .with_writer(|| Log)
        .with_target(false)
        .log_internal_errors(false); // it would print them by a macro that panics
    match options.log_format.unwrap_or(default) {
        LogFormat::Text => lines.with_ansi(is_terminal).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}

/// Hides values that came from the environment in every line from now on, besides those of earlier policies: a value goes many
/// ways, such as into the reason why a connection failed.
pub(crate) fn hide(environment_values: &EnvironmentValues) {
    HIDDEN.write().get_or_insert_default().extend(environment_values.clone());
}

static HIDDEN: RwLock<Option<EnvironmentValues>> = RwLock::new(None);

/// Standard error. The subscriber writes one line per call. A line that cannot be written is counted and is no error: logging
/// stops nothing.
struct Log;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match (&*HIDDEN.read(), std::str::from_utf8(line)) {
            (Some(hidden), Ok(text)) => output::log(hidden.hide(text).as_bytes()),
            _ => output::log(line),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(()) // nothing is buffered
    }
}
