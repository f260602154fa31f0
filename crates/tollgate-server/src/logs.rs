//! What is logged, and how it looks.

use std::io::IsTerminal as _;

use tracing_subscriber::fmt;

use crate::cli::{LogFormat, Serve};

/// Begins to log to standard error.
pub(crate) fn start(options: &Serve) {
    let is_terminal = std::io::stderr().is_terminal();
    let default = if is_terminal { LogFormat::Text } else { LogFormat::Json };
    let lines = fmt().with_max_level(options.log_level).with_writer(std::io::stderr).with_target(false);
    match options.log_format.unwrap_or(default) {
        LogFormat::Text => lines.with_ansi(is_terminal).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}
