//! What Envoy asks, in the engine's words.

use std::time::Duration;

use tollgate_policy::{Described, Hits, Override};
use tonic::Status;

use super::{RateLimitDescriptor, RateLimitRequest, RateLimitUnit, rate_limit_descriptor};
use crate::http::LONGEST_TEXT;

/// As many descriptors a request may have.
const MOST_DESCRIPTORS: usize = 64;

/// As many entries a descriptor may have.
const MOST_ENTRIES: usize = 32;

/// The attributes of all descriptors, one after the other, and where each ends: `domain`, then its entries.
pub(super) struct Entries<'r> {
    attributes: Vec<(&'r str, &'r str)>,
    ends: Vec<usize>,
}

/// The attributes of a request's descriptors.
pub(super) fn entries(request: &RateLimitRequest) -> Result<Entries<'_>, Status> {
    let refuse = |what: String| Err(Status::invalid_argument(what));
    if request.domain.is_empty() {
        return refuse("rate limit domain must not be empty".to_owned());
    }
    if request.descriptors.is_empty() {
        return refuse("rate limit descriptor list must not be empty".to_owned());
    }
    if request.descriptors.len() > MOST_DESCRIPTORS {
        let count = request.descriptors.len();
        return refuse(format!("{count} descriptors: {MOST_DESCRIPTORS} are the most"));
    }
    let count = request.descriptors.iter().map(|descriptor| descriptor.entries.len() + 1).sum();
    let mut entries = Entries { attributes: Vec::with_capacity(count), ends: Vec::new() };
    for (place, descriptor) in request.descriptors.iter().enumerate() {
        if descriptor.entries.len() > MOST_ENTRIES {
            let count = descriptor.entries.len();
            return refuse(format!("descriptor {place} has {count} entries: {MOST_ENTRIES} are the most"));
        }
        entries.attributes.push(("domain", &request.domain));
        for rate_limit_descriptor::Entry { key, value } in &descriptor.entries {
            entries.attributes.push((key, value));
        }
        entries.ends.push(entries.attributes.len());
    }
    let longest = entries.attributes.iter().map(|(key, value)| key.len().max(value.len())).max();
    if longest > Some(LONGEST_TEXT) {
        return refuse(format!("a text of more than {LONGEST_TEXT} bytes: shorten it before it is sent"));
    }
    Ok(entries)
}

/// What is to be done with each descriptor.
pub(super) fn described<'r>(
    request: &RateLimitRequest,
    entries: &'r Entries<'r>,
) -> Result<Vec<Described<'r>>, Status> {
    let mut start = 0;
    let mut described = Vec::with_capacity(request.descriptors.len());
    for (descriptor, &end) in request.descriptors.iter().zip(&entries.ends) {
        let attributes = &entries.attributes[start..end];
        let hits = hits(descriptor, request.hits_addend);
        described.push(Described { attributes, hits, limit: limit(descriptor)? });
        start = end;
    }
    Ok(described)
}

/// The hits of a descriptor. Its own are charged in full, as the reference does: Envoy reports usage at the end of a stream,
/// when the request can no longer be denied. Without its own, those of the request; 0 there means the usual.
fn hits(descriptor: &RateLimitDescriptor, of_request: u32) -> Hits {
    match (descriptor.hits_addend, of_request, descriptor.is_negative_hits) {
        (Some(hits), _, false) => Hits::ChargeInFull(hits),
        (Some(hits), _, true) => Hits::Refund(hits),
        (None, 0, false) => Hits::Usual,
        (None, 0, true) => Hits::Refund(1),
        (None, hits, false) => Hits::Charge(hits.into()),
        (None, hits, true) => Hits::Refund(hits.into()),
    }
}

fn limit(descriptor: &RateLimitDescriptor) -> Result<Option<Override>, Status> {
    let Some(limit) = &descriptor.limit else { return Ok(None) };
    let seconds = match limit.unit() {
        RateLimitUnit::Second => 1,
        RateLimitUnit::Minute => 60,
        RateLimitUnit::Hour => 3600,
        RateLimitUnit::Day => 86_400,
        RateLimitUnit::Month => 30 * 86_400,
        RateLimitUnit::Year => 365 * 86_400,
        RateLimitUnit::Unknown => {
            let unit = limit.unit;
            return Err(Status::invalid_argument(format!(
                "a limit with unit {unit}: SECOND to YEAR are known"
            )));
        }
    };
    Ok(Some(Override { limit: limit.requests_per_unit, window: Duration::from_secs(seconds) }))
}
