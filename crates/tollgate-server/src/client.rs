//! Who asked the proxy, and what for.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Once;

use axum::http::{HeaderMap, Request, header};
use tollgate_policy::{Policy, PolicyInForce, normal_path};

use crate::http::LONGEST_TEXT;

/// The request that a proxy asks about.
pub(crate) struct Original<'r> {
    method: Cow<'r, str>,
    path: Cow<'r, str>,
    host: Option<Cow<'r, str>>,
    ip: String,
    headers: &'r HeaderMap,
}

impl<'r> Original<'r> {
    /// Reads what the proxy says of it. Of a peer that is none of ours nothing is believed: it is then the request itself
    /// that is asked about.
    pub(crate) fn read(policy: &Policy, request: &'r Request<()>, peer: IpAddr) -> Self {
        let client_ip = &policy.identity.client_ip;
        let headers = request.headers();
        let is_trusted = client_ip.trusts(peer);
        let speaks_like_a_proxy =
            ["x-forwarded-uri", "x-original-uri"].iter().any(|name| headers.contains_key(*name));
        if speaks_like_a_proxy && !is_trusted {
            warn_of_stranger(peer);
        }
        let told = |names: &[&str]| names.iter().filter(|_| is_trusted).find_map(|name| text(headers, name));
        let target = told(&["x-forwarded-uri", "x-original-uri", "x-original-url"]);
        let lines: Vec<Cow<'_, str>> =
            headers.get_all(client_ip.header_name()).iter().map(|value| lossy(value.as_bytes())).collect();
        Self {
            method: told(&["x-forwarded-method", "x-original-method"])
                .unwrap_or_else(|| request.method().as_str().into()),
            path: match &target {
                Some(target) => normal_path(without_origin(target)).into_owned().into(),
                None => normal_path(request.uri().path()),
            },
            host: told(&["x-forwarded-host"]).or_else(|| text(headers, header::HOST.as_str())),
            ip: client_ip.attribute(client_ip.client(peer, lines.iter().map(|line| &**line))),
            headers,
        }
    }

    /// What the policy looks at.
    pub(crate) fn attributes<'a>(&'a self, policy: &'a PolicyInForce<'_>) -> Vec<(&'a str, Cow<'a, str>)> {
        let identity = &policy.identity;
        let from = |source: &Option<String>| {
            source.as_deref().and_then(|source| self.header(source)).filter(|value| !value.is_empty())
        };
        let known = [
            ("tenant", from(&identity.tenant)),
            ("user", from(&identity.user)),
            ("ip", Some(Cow::from(&self.ip))),
            ("method", Some((&*self.method).into())),
            ("path", Some((&*self.path).into())),
            ("host", self.host.as_deref().map(Cow::from)),
        ];
        let known = known.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let headers = policy.attributes().filter_map(|name| Some((name, self.header(name)?)));
        // What is matched is matched as it is; what is counted by is cut to what counts.
        let is_matched = |name: &str| ["path", "method", "host"].contains(&name);
        known
            .chain(headers)
            .map(|(name, value)| (name, if is_matched(name) { value } else { cut(value) }))
            .collect()
    }

    /// The value of an attribute that names a header, such as `header.x-api-key`.
    fn header(&self, attribute: &str) -> Option<Cow<'_, str>> {
        let value = self.headers.get_all(attribute.strip_prefix("header.")?).iter().next_back()?;
        Some(lossy(value.as_bytes()))
    }
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

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<Cow<'h, str>> {
    // Of several, the last is what the proxy has added.
    headers
        .get_all(name)
        .iter()
        .next_back()
        .map(|value| lossy(value.as_bytes()))
        .filter(|value| !value.is_empty())
}

/// Bytes as text. What is none is shown as such and hides nothing of the rest: a client may write any byte.
fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The path of a target that may be a whole URL.
fn without_origin(target: &str) -> &str {
    match target.split_once("://") {
        Some((_, rest)) if !target.starts_with('/') => rest.find('/').map_or("/", |path| &rest[path..]),
        _ => target,
    }
}

/// As much of a value as is counted by. Longer ones are nobody's name.
fn cut(value: Cow<'_, str>) -> Cow<'_, str> {
    if value.len() <= LONGEST_TEXT {
        return value;
    }
    Cow::Owned(value[..value.floor_char_boundary(LONGEST_TEXT)].to_owned())
}
