//! Why a call has no answer, and what that tells of whether it ran.

use std::sync::Arc;

use redis::ServerError;
use tokio::time::Instant;

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// There was no answer within the deadline.
    #[error("the store did not answer within the deadline; the call may have run")]
    TimedOut,
    /// The connection broke after the call was handed to it.
    #[error("the connection to the store broke before the answer came; the call may have run")]
    Lost,
    /// There is no connection to the shard at present, so the call was not sent, nor waited for.
    #[error("the store's shard {shard} cannot be reached: {reason}")]
    Open {
        /// Which one: its address, or the name the sentinels know it by.
        shard: Arc<str>,
        /// Why there is none.
        reason: Arc<str>,
        /// Since when.
        since: Instant,
        /// When the next attempt to reach the shard is due.
        probe_at: Instant,
    },
    /// The server answered with an error: its text.
    #[error("the store answered: {0}")]
    Server(String),
    /// The connection that the call was meant for is not the present one, so the call was not sent.
    #[error("the connection to the store's shard {shard} that the call was meant for has been replaced")]
    Replaced {
        /// Which shard, as in [`Open`](Self::Open).
        shard: Arc<str>,
    },
}

impl LinkError {
    /// The names of all kinds.
    pub const KINDS: [&'static str; 4] = ["timed_out", "lost", "open", "server"];

    /// A name for metrics.
    pub fn kind(&self) -> &'static str {
        Self::KINDS[self.index()]
    }

    /// Whether the script may have run, or a part of it: then it must not be called again for the same request.
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::TimedOut | Self::Lost => true,
            Self::Open { .. } | Self::Replaced { .. } => false,
            Self::Server(text) => {
                let code = text.split(' ').next().unwrap_or_default();
                !BEFORE_IT_RUNS.contains(&code) || is_from_inside(code, text)
            }
        }
    }

    pub(super) fn index(&self) -> usize {
        match self {
            Self::TimedOut => 0,
            Self::Lost => 1,
            // Neither was sent.
            Self::Open { .. } | Self::Replaced { .. } => 2,
            Self::Server(_) => 3,
        }
    }
}

/// Errors with which a server refuses to begin.
const BEFORE_IT_RUNS: [&str; 16] = [
    "NOSCRIPT",
    "MOVED",
    "ASK",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "CROSSSLOT",
    "LOADING",
    "READONLY",
    "MASTERDOWN",
    "NOREPLICAS",
    "MISCONF",
    "OOM",
    "BUSY",
    "NOAUTH",
    "NOPERM",
    "WRONGPASS",
];

/// Servers pass on the errors of commands that a script gives, and tell its line: what came before that has run. (On a
/// server that is read-only from the beginning of a script to its end, nothing has.)
fn is_from_inside(code: &str, text: &str) -> bool {
    code != "READONLY" && text.contains("user_script")
}

/// What a server's error asks the link to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal<'a> {
    /// To send the source.
    NoScript,
    /// To go to another server, now and from now on.
    Moved(&'a str),
    /// To go to another server, this once.
    Ask(&'a str),
    /// To come again in a moment.
    TryAgain,
    /// To look for another server: this one takes no charges at present.
    CannotCharge,
    /// Nothing: the caller is told.
    Final,
}

impl<'a> Refusal<'a> {
    pub(super) fn of(error: &'a ServerError) -> Self {
        let details = error.details().unwrap_or_default();
        if is_from_inside(error.code(), details) {
            return Self::Final;
        }
        let target = details.split_ascii_whitespace().nth(1);
        match (error.code(), target) {
            ("NOSCRIPT", _) => Self::NoScript,
            ("MOVED", Some(address)) => Self::Moved(address),
            ("ASK", Some(address)) => Self::Ask(address),
            ("TRYAGAIN", _) => Self::TryAgain,
            // This slot is nobody's; those that the server has are none the worse.
            ("CLUSTERDOWN", _) if details.starts_with("Hash slot not served") => Self::Final,
            ("READONLY" | "LOADING" | "MASTERDOWN" | "CLUSTERDOWN", _) => Self::CannotCharge,
            _ => Self::Final,
        }
    }
}

/// The error as the server wrote it.
pub(super) fn text_of(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_from_before_the_script_prove_that_it_did_not_run() {
        for (text, may_have_run) in [
            ("OOM command not allowed when used memory > 'maxmemory'.", false),
            ("OOM command not allowed when used memory > 'maxmemory'. script: 1f, on @user_script:3.", true),
            ("READONLY You can't write against a read only replica.", false),
            ("READONLY You can't write against a read only replica. script: 1f, on @user_script:1.", false),
            ("NOPERM this user has no permissions to run the 'evalsha' command", false),
            ("ERR user_script:1: attempt to index a nil value script: 1f, on @user_script:1.", true),
            ("ERR Error running script (call to f_1f): @user_script:1: WRONGTYPE", true),
            ("MINE as the script says it", true),
        ] {
            assert_eq!(LinkError::Server(text.to_owned()).may_have_run(), may_have_run, "{text}");
        }
        assert!(LinkError::TimedOut.may_have_run() && LinkError::Lost.may_have_run());
        assert!(
            !LinkError::Open {
                shard: "a".into(),
                reason: "b".into(),
                since: Instant::now(),
                probe_at: Instant::now()
            }
            .may_have_run()
        );
    }
}
