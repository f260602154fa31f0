//! `EXISTS`, `TTL` and `PTTL`: how long keys of `CL.THROTTLE` are still remembered.
//!
//! A key is remembered until its bucket is full again. That moment does not depend on the numbers of a call, so that a peek under
//! any numbers shows it.

use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use tollgate::{Nanos, Timestamp};
use tollgate_policy::{CellNumbers, CellRequest, Source};

use super::commands::Asked;
use super::reply::Reply;
use crate::service::Service;

/// The numbers of the peek.
const NUMBERS: CellNumbers = CellNumbers { max_burst: 0, count: 1, period: 1 };

/// `EXISTS key …`: how many of the keys are remembered. A key that is named twice counts twice.
pub(super) fn exists(asked: &mut Asked<'_>) {
    answer(asked, |reply, left| reply.count(left.iter().filter(|left| !left.is_zero()).count()));
}

/// `TTL key`: seconds, rounded up.
pub(super) fn ttl(asked: &mut Asked<'_>) {
    answer(asked, |reply, left| reply.integer(left_in(1_000_000_000, left)));
}

/// `PTTL key`: milliseconds, rounded up.
pub(super) fn pttl(asked: &mut Asked<'_>) {
    answer(asked, |reply, left| reply.integer(left_in(1_000_000, left)));
}

/// The time left of the first key, in a unit of nanoseconds. -2 if it is not remembered, as in Redis.
fn left_in(unit: u64, left: &[Nanos]) -> i64 {
    match left.first() {
        Some(left) if !left.is_zero() => i64::try_from(left.get().div_ceil(unit)).unwrap_or(i64::MAX),
        _ => -2,
    }
}

/// Answers with the time for which each key is still remembered. The time is zero for an unknown key.
fn answer(asked: &mut Asked<'_>, write: fn(&mut Reply<'_>, &[Nanos])) {
    let keys = (1..asked.arguments.len()).filter_map(|place| asked.arguments.get(place));
    let requests: Vec<CellRequest<'_>> = keys.map(peek).collect();
    let mut left = Ok(Vec::with_capacity(requests.len()));
    let (engine, now) = (&asked.service.engine, asked.calls.now());
    // These are no requests for a decision, and are not counted.
    let answered = engine.throttle_cells(&requests, now, |decision| match (decision, &mut left) {
        (Ok(decision), Ok(left)) => left.push(decision.status.reset_after),
        (Err(error), _) => left = Err(error),
        (Ok(_), Err(_)) => {}
    });
    if answered.now().is_some() {
        return match left {
            Ok(left) => write(&mut asked.reply, &left),
            Err(error) => asked.reply.error(format_args!("ERR {error}")),
        };
    }
    let (service, version) = (Arc::clone(asked.service), asked.reply.version);
    let keys: Vec<Box<[u8]>> = requests.iter().map(|request| request.key.into()).collect();
    asked.later.push(keys.len(), async move {
        let mut out = Vec::new();
        let reply = &mut Reply { out: &mut out, version };
        match ask_store(&service, &keys, now).await {
            Ok(left) => write(reply, &left),
            Err(error) => reply.error(format_args!("ERR {error}")),
        }
        out
    });
}

fn peek(key: &[u8]) -> CellRequest<'_> {
    CellRequest { key, numbers: NUMBERS, quantity: 0 }
}

/// Asks a shared store about all keys at once. An error if the store does not answer, because this process does not know the keys.
async fn ask_store(service: &Service, keys: &[Box<[u8]>], now: Timestamp) -> Result<Vec<Nanos>, String> {
    let ask = |key| async move { service.engine.throttle_cell(&peek(key), now).wait().await };
    let mut asked: FuturesOrdered<_> = keys.iter().map(|key| ask(key)).collect();
    let mut left = Vec::with_capacity(keys.len());
    while let Some(throttled) = asked.next().await {
        let throttled = throttled.map_err(|error| error.to_string())?;
        if throttled.source == Source::Fallback {
            return Err("the store gives no answer; try again later".to_owned());
        }
        left.push(throttled.decision.status.reset_after);
    }
    Ok(left)
}
