//! What a connection knows, and the way from the bytes that came in to those that go out. No socket is seen here.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use tollgate::Timestamp;

use super::commands::{self, Asked};
use super::frame::{Parsed, ProtocolError, parse};
use super::later::Later;
use super::reply::{Reply, Version};
use super::throttle::{self, Batch};
use super::transaction::RefusedTransaction;
use crate::calls::Calls;
use crate::metrics::Protocol;
use crate::service::Service;

/// The longest request.
pub(super) const MOST_PENDING: usize = 1 << 20;

/// When so much is to be sent, it is, before more is answered.
pub(super) const MUCH_TO_SEND: usize = 256 << 10;

/// The longest name a client may give itself.
const LONGEST_NAME: usize = 128;

/// What a connection knows.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: u64,
    pub(super) peer: SocketAddr,
    pub(super) version: Version,
    pub(super) is_stranger: bool, // has yet to give the password
    pub(super) is_closing: bool,  // once everything is sent
    pub(super) name: Option<Box<[u8]>>,
    pub(super) refused_transaction: Option<RefusedTransaction>,
}

/// What is needed to answer, and may be used for one connection after the other.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    arguments: Vec<Range<usize>>,
    batch: Batch,
}

/// How far requests have been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    /// So many bytes of the input are done with.
    pub(super) consumed: usize,
    /// With how many it is worth to look again; no more than there are where there was too much to send, or to wait for.
    pub(super) until: usize,
}

impl Session {
    pub(super) fn new(id: u64, peer: SocketAddr, service: &Service) -> Self {
        let is_stranger = service.resp_password.is_set();
        Self {
            id,
            peer,
            version: Version::default(),
            is_stranger,
            is_closing: false,
            name: None,
            refused_transaction: None,
        }
    }

    /// Answers all whole requests in the input, at one instant: those that a shared store is asked of, and what comes after
    /// them, later.
    pub(super) fn answer(
        &mut self,
        service: &Arc<Service>,
        now: Timestamp,
        input: &mut [u8],
        workspace: &mut Workspace,
        out: &mut Vec<u8>,
        later: &mut Later,
    ) -> Answered {
        let Workspace { arguments, batch } = workspace;
        let calls = Calls::at(service, Protocol::resp, now);
        self.refused_transaction.take_if(|transaction| transaction.has_ended(now));
        let mut at = 0;
        let until = loop {
            if self.is_closing || out.len() >= MUCH_TO_SEND || later.is_full(batch.len()) {
                break at;
            }
            let begin = out.len();
            let end = match parse(input, at, self.is_stranger, arguments) {
                Ok(Parsed::Request { end }) if end - at <= MOST_PENDING => end,
                Ok(Parsed::Part { until }) if until - at <= MOST_PENDING => break until,
                refused => {
                    // After everything before it is answered. Then nothing more is.
                    let error = refused.err().unwrap_or(ProtocolError::LongRequest);
                    batch.answer(service, &calls, input, out, later);
                    Reply { out, version: self.version }.error(format_args!("ERR Protocol error: {error}"));
                    self.is_closing = true;
                    later.take_after(out, begin);
                    break at;
                }
            };
            at = end;
            if arguments.is_empty() {
                continue;
            }
            let is_free = !self.is_stranger && self.refused_transaction.is_none();
            if is_free && throttle::is_meant(&input[arguments[0].clone()]) {
                // Those that come together are decided together.
                if let Err(error) = batch.add(input, arguments) {
                    batch.answer(service, &calls, input, out, later);
                    calls.count_error();
                    Reply { out, version: self.version }.error(error);
                    later.take_after(out, begin);
                } else if batch.is_full() {
                    batch.answer(service, &calls, input, out, later);
                }
                continue;
            }
            batch.answer(service, &calls, input, out, later);
            let reply = Reply { out, version: self.version };
            let arguments = commands::Arguments::new(input, arguments);
            commands::answer(&mut Asked { session: self, service, calls: &calls, arguments, reply, later });
            later.take_after(out, begin);
        };
        batch.answer(service, &calls, input, out, later);
        Answered { consumed: at, until: until - at }
    }

    /// Gives the connection a name.
    pub(super) fn set_name(&mut self, name: &[u8]) -> Result<(), String> {
        if name.len() > LONGEST_NAME {
            return Err(format!("ERR Client names are at most {LONGEST_NAME} bytes long."));
        }
        if !name.iter().all(|byte| matches!(byte, b'!'..=b'~')) {
            return Err("ERR Client names cannot contain spaces, newlines or special characters.".to_owned());
        }
        self.name = (!name.is_empty()).then(|| name.into());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
