//! `CL.THROTTLE key max_burst count_per_period period [quantity]`, as redis-cell has it.

use std::ops::Range;
use std::sync::Arc;

use tollgate::{Decision, Timestamp};
use tollgate_policy::{CellNumbers, CellRequest, ThrottleError};

use super::commands::integer;
use super::later::Later;
use super::reply::{Reply, Version};
use crate::calls::Calls;
use crate::metrics::Protocol;
use crate::service::Service;

/// As many are decided together: what the table fetches from memory at once.
const BATCH: usize = 16;

/// Whether a command is this one.
pub(super) fn is_meant(command: &[u8]) -> bool {
    command.eq_ignore_ascii_case(b"CL.THROTTLE")
}

/// Why a call is not decided: in the words of redis-cell, where it has any.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CellError {
    #[error(
        "ERR Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]"
    )]
    Usage,
    #[error("ERR Cell error: Store error: Couldn't parse as integer: {0}")]
    NoInteger(String),
    #[error("ERR Cell error: Store error: Zero rates are not supported")]
    ZeroRate,
    #[error("ERR Cell error: {what} must not be negative, and is {found}")]
    Negative { what: &'static str, found: i64 },
    #[error("ERR Cell error: {0}")]
    Rule(#[from] ThrottleError),
}

/// Calls that follow each other and are not answered yet. Keys stay where they lie in the input.
#[derive(Debug, Default)]
pub(super) struct Batch {
    calls: [Call; BATCH],
    length: usize,
}

#[derive(Clone, Debug, Default)]
struct Call {
    key: Range<usize>,
    numbers: CellNumbers,
    quantity: u64,
}

impl Batch {
    /// Takes a call, or says why it is none. There must be room for it.
    pub(super) fn add(&mut self, input: &[u8], arguments: &[Range<usize>]) -> Result<(), CellError> {
        let &[_, ref key, ref max_burst, ref count, ref period, ref quantity @ ..] = arguments else {
            return Err(CellError::Usage);
        };
        let number = |what: &'static str, place: &Range<usize>| {
            let text = &input[place.clone()];
            let found = integer(text)
                .ok_or_else(|| CellError::NoInteger(String::from_utf8_lossy(shown(text)).into_owned()))?;
            u64::try_from(found).map_err(|_| CellError::Negative { what, found })
        };
        let numbers = CellNumbers {
            max_burst: number("max_burst", max_burst)?,
            count: number("count per period", count)?,
            period: number("period", period)?,
        };
        let quantity = match quantity {
            [] => 1,
            [quantity] => number("quantity", quantity)?,
            _ => return Err(CellError::Usage),
        };
        if numbers.count == 0 || numbers.period == 0 {
            return Err(CellError::ZeroRate);
        }
        self.calls[self.length] = Call { key: key.clone(), numbers, quantity };
        self.length += 1;
        Ok(())
    }

    pub(super) const fn len(&self) -> usize {
        self.length
    }

    pub(super) const fn is_full(&self) -> bool {
        self.length == BATCH
    }

    /// Decides all calls in order and answers them, later if a store has to be waited for. There are none afterwards.
    pub(super) fn answer(
        &mut self,
        service: &Arc<Service>,
        calls: &Calls<'_>,
        input: &[u8],
        out: &mut Vec<u8>,
        later: &mut Later,
    ) {
        let batch = &self.calls[..self.length];
        if batch.is_empty() {
            return;
        }
        let nothing = CellRequest { key: &[], numbers: CellNumbers::default(), quantity: 0 };
        let mut requests = [nothing; BATCH];
        for (request, call) in requests.iter_mut().zip(batch) {
            *request = call.request(&input[call.key.clone()]);
        }
        let mut numbers = batch.iter().map(|call| call.numbers);
        let answered = calls.throttle_cells(&requests[..batch.len()], |decision| {
            let CellNumbers { max_burst, .. } = numbers.next().expect("one decision for each");
            write(decision, max_burst, out);
        });
        if answered.is_none() {
            for call in batch {
                let (service, call, now) = (Arc::clone(service), call.clone(), calls.now());
                let key: Box<[u8]> = input[call.key.clone()].into();
                later.push(1, async move { call.answer_later(&service, &key, now).await });
            }
        }
        self.length = 0;
    }
}

impl Call {
    const fn request<'a>(&self, key: &'a [u8]) -> CellRequest<'a> {
        CellRequest { key, numbers: self.numbers, quantity: self.quantity }
    }

    /// The answer of a store.
    async fn answer_later(&self, service: &Service, key: &[u8], now: Timestamp) -> Vec<u8> {
        let calls = Calls::at(service, Protocol::resp, now);
        let throttled = calls.throttle_cell(&self.request(key)).wait().await;
        let throttled = throttled.inspect_err(|_| calls.count_error());
        let mut out = Vec::new();
        write(throttled.map(|throttled| throttled.decision), self.numbers.max_burst, &mut out);
        out
    }
}

/// Five integers, in every version: whether it is limited, the limit, what remains, and in whole seconds, rounded up, when
/// to retry and when all is back. No wait is told as -1, also where none would help. An error looks alike, too.
fn write(decision: Result<Decision, ThrottleError>, max_burst: u64, out: &mut Vec<u8>) {
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let mut reply = Reply { out, version: Version::Two };
    let decision = match decision {
        Ok(decision) => decision,
        Err(error) => return reply.error(CellError::from(error)),
    };
    reply.array(5);
    reply.integer(i64::from(!decision.is_allowed()));
    reply.integer(signed(max_burst.saturating_add(1)));
    reply.integer(signed(decision.status.remaining));
    reply.integer(decision.retry_after().map_or(-1, |wait| signed(wait.as_secs_ceil())));
    reply.integer(signed(decision.status.reset_after.as_secs_ceil()));
}

/// As much of an argument as an error repeats.
fn shown(text: &[u8]) -> &[u8] {
    &text[..text.len().min(128)]
}
