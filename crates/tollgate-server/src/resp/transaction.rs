//! `MULTI`, `EXEC` and `DISCARD`: transactions, which are refused.
//!
//! Most clients send a whole transaction at once, before they have read that `MULTI` was refused. The commands in it must not run
//! one by one: the client expects all or nothing. So commands are refused up to the end of the transaction.

use tollgate::{Nanos, Timestamp};

use super::commands::Asked;
use super::connection::REQUEST_TIMEOUT;
use super::hints;

/// How long commands are refused at most. A client that reads the error may never send `EXEC`, and its connection may go back to a
/// pool. A whole request has to come within the same time.
const REFUSED_FOR: Nanos = Nanos::new(REQUEST_TIMEOUT.as_secs() * 1_000_000_000);

/// A transaction whose commands are refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefusedTransaction {
    until: Timestamp,
}

impl RefusedTransaction {
    /// Whether its commands are no longer refused.
    pub(super) fn has_ended(self, now: Timestamp) -> bool {
        now >= self.until
    }
}

/// Commands that end a refused transaction, or the connection.
const ENDS: [&[u8]; 4] = [b"exec", b"discard", b"reset", b"quit"];

/// Whether a command is one of these.
pub(super) fn is_end(command: &[u8]) -> bool {
    ENDS.iter().any(|end| command.eq_ignore_ascii_case(end))
}

/// `MULTI`.
pub(super) fn multi(asked: &mut Asked<'_>) {
    asked.session.refused_transaction =
        Some(RefusedTransaction { until: asked.calls.now().after(REFUSED_FOR) });
    asked.reply.error(hints::refused_multi());
}

/// `EXEC`.
pub(super) fn exec(asked: &mut Asked<'_>) {
    match asked.session.refused_transaction.take() {
        Some(_) => asked.reply.error(hints::aborted()),
        None => asked.reply.error("ERR EXEC without MULTI"),
    }
}

/// `DISCARD`.
pub(super) fn discard(asked: &mut Asked<'_>) {
    match asked.session.refused_transaction.take() {
        Some(_) => asked.reply.ok(),
        None => asked.reply.error("ERR DISCARD without MULTI"),
    }
}
