//! The request that a proxy asks about.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Once;

use axum::http::{HeaderMap, Request};
use tollgate_policy::{Policy, RequestAttributes, RequestHeaders as _};

/// Reads what a proxy says of the request that it asks about. Of a peer that is none of ours nothing is believed: it is then
/// the request itself that is asked about.
pub(crate) fn original<'r>(
    policy: &Policy,
    request: &'r Request<()>,
    peer: IpAddr,
) -> RequestAttributes<'r, HeaderMap> {
    let headers = request.headers();
    let mut seen = RequestAttributes::new(policy, request.method(), request.uri(), headers, peer);
    let speaks_like_a_proxy =
        ["x-forwarded-uri", "x-original-uri"].iter().any(|name| headers.contains_key(*name));
    if !policy.identity.client_ip.trusts(peer) {
        if speaks_like_a_proxy {
            warn_of_stranger(peer);
        }
        return seen;
    }
    let told = |names: &[&'static str]| names.iter().find_map(|name| headers.last(name));
    if let Some(method) = told(&["x-forwarded-method", "x-original-method"]) {
        seen.method = method;
    }
    if let Some(target) = told(&["x-forwarded-uri", "x-original-uri", "x-original-url"]) {
        seen.target = match target {
            Cow::Borrowed(target) => without_origin(target).into(),
            Cow::Owned(target) => without_origin(&target).to_owned().into(),
        };
    }
    if let Some(host) = told(&["x-forwarded-host"]) {
        seen.host = Some(host);
    }
    seen
}

/// Says once that somebody is not believed who speaks like a proxy: most often it is one, and was forgotten.
fn warn_of_stranger(peer: IpAddr) {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        tracing::warn!(
            %peer,
            "forward-auth was asked by somebody who is not in identity.client_ip.trusted_proxies: what is said of the \
             original request is ignored, now and later"
        );
    });
}

/// The path of a target that may be a whole URL.
fn without_origin(target: &str) -> &str {
    match target.split_once("://") {
        Some((_, rest)) if !target.starts_with('/') => {
            rest.find(['/', '\\', '?', '#']).map_or("/", |path| &rest[path..])
        }
        _ => target,
    }
}
