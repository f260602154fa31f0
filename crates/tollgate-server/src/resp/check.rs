//! `TOLLGATE.CHECK attribute value … [COST n]`: decides a request by the policy.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate::{Nanos, Timestamp};
use tollgate_policy::{Request, TooManyLimits, Verdict};

use super::commands::{Arguments, Asked, integer};
use super::reply::{Reply, Version};
use crate::calls::Calls;
use crate::metrics::Protocol;
use crate::service::Service;

/// The longest name and value of an attribute, and the most of them, as over HTTP.
const LONGEST_TEXT: usize = 4096;
const MOST_ATTRIBUTES: usize = 64;

type Attributes<'a> = SmallVec<[(&'a str, &'a str); 8]>;

pub(super) fn check(asked: &mut Asked<'_>) {
    let (attributes, cost) = match read(&asked.arguments) {
        Ok(read) => read,
        Err(error) => {
            asked.calls.count_error();
            return asked.reply.error(error);
        }
    };
    let policy = asked.service.engine.policy();
    let request = Request { attributes: &attributes, cost };
    let reply = &mut asked.reply;
    match asked.calls.check(&policy, &request, |verdict| write(&verdict, reply)).now() {
        Some(Ok(())) => {}
        Some(Err(too_many)) => refuse(asked.calls, &too_many, &mut asked.reply),
        None => {
            let (service, now, version) = (Arc::clone(asked.service), asked.calls.now(), asked.reply.version);
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            let attributes: Vec<(String, String)> = attributes.iter().map(owned).collect();
            asked.later.push(1, async move { answer_later(&service, &attributes, cost, now, version).await });
        }
    }
}

/// The answer of a store.
async fn answer_later(
    service: &Service,
    attributes: &[(String, String)],
    cost: Option<u64>,
    now: Timestamp,
    version: Version,
) -> Vec<u8> {
    let calls = Calls::at(service, Protocol::resp, now);
    let attributes: Attributes<'_> =
        attributes.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let policy = service.engine.policy();
    let request = Request { attributes: &attributes, cost };
    let answer = |verdict: Verdict<'_>| {
        let mut out = Vec::new();
        write(&verdict, &mut Reply { out: &mut out, version });
        out
    };
    match calls.check(&policy, &request, answer).wait().await {
        Ok(out) => out,
        Err(too_many) => {
            let mut out = Vec::new();
            refuse(&calls, &too_many, &mut Reply { out: &mut out, version });
            out
        }
    }
}

fn refuse(calls: &Calls<'_>, too_many: &TooManyLimits, reply: &mut Reply<'_>) {
    calls.count_error();
    reply.error(format_args!("ERR {too_many}"));
}

/// What is known of the request, and what it costs. A cost comes last, so that an attribute may be called so, too.
fn read<'a>(arguments: &Arguments<'a>) -> Result<(Attributes<'a>, Option<u64>), String> {
    let (mut end, mut cost) = (arguments.len(), None);
    if end >= 3
        && let (Some(word), Some(value)) = (arguments.get(end - 2), arguments.get(end - 1))
        && word.eq_ignore_ascii_case(b"COST")
    {
        let value = integer(value).and_then(|cost| u64::try_from(cost).ok());
        cost = Some(value.ok_or("ERR COST is not an integer from 0 on")?);
        end -= 2;
    }
    if end % 2 == 0 {
        return Err(
            "ERR an attribute without a value: TOLLGATE.CHECK attribute value ... [COST n]".to_owned()
        );
    }
    let mut attributes = Attributes::new();
    for place in (1..end).step_by(2) {
        let text = |place: usize| -> Result<&'a str, String> {
            let bytes = arguments.get(place).unwrap_or_default();
            if bytes.len() > LONGEST_TEXT {
                return Err(format!(
                    "ERR an attribute is longer than {LONGEST_TEXT} bytes, which are the most"
                ));
            }
            std::str::from_utf8(bytes).map_err(|_| "ERR an attribute is not UTF-8".to_owned())
        };
        if attributes.len() == MOST_ATTRIBUTES {
            return Err(format!("ERR more than {MOST_ATTRIBUTES} attributes"));
        }
        attributes.push((text(place)?, text(place + 1)?));
    }
    Ok((attributes, cost))
}

/// A map: what is decided, and how the limit stands that decided it, or that is nearest to. Waits are in milliseconds,
/// rounded up, since version 2 has no fractions.
fn write(verdict: &Verdict<'_>, reply: &mut Reply<'_>) {
    reply.map(8);
    reply.bulk(b"allowed");
    reply.integer(verdict.is_allowed().into());
    reply.bulk(b"reason");
    match verdict.reason() {
        Some(reason) => reply.bulk(reason.as_str().as_bytes()),
        None => reply.null(),
    }
    let mut number = |name: &str, value: Option<u64>| {
        reply.bulk(name.as_bytes());
        match value {
            Some(value) => reply.integer(i64::try_from(value).unwrap_or(i64::MAX)),
            None => reply.null(),
        }
    };
    number("retry_after_ms", verdict.retry_after().map(millis));
    number("delay_ms", Some(millis(verdict.delay())));
    let reported = verdict.reported();
    number("capacity", reported.as_ref().map(|limit| limit.capacity()));
    number("remaining", reported.as_ref().map(|limit| limit.decision().status.remaining));
    number("reset_after_ms", reported.as_ref().map(|limit| millis(limit.decision().status.reset_after)));
    reply.bulk(b"limit");
    match reported {
        Some(limit) => reply.bulk(limit.name().as_bytes()),
        None => reply.null(),
    }
}

fn millis(span: Nanos) -> u64 {
    span.get().div_ceil(1_000_000)
}
