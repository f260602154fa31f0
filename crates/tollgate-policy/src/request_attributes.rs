//! The attributes of an HTTP request, as the gateway, forward-auth and tower read them.

use std::borrow::Cow;
use std::net::IpAddr;

use http::{HeaderMap, Method};
use smallvec::SmallVec;

use crate::client_address::AddressChain;
use crate::engine::PolicyInForce;
use crate::path::normal_path;
use crate::policy::Policy;

/// The most bytes of a value that a key has. The rest of a longer value does not count.
const LONGEST_VALUE: usize = 4 << 10;

/// The headers of a message, however they are kept.
pub trait RequestHeaders {
    /// The values of a header, whose name is given in small letters.
    fn values<'h>(&'h self, name: &'h str) -> impl Iterator<Item = &'h [u8]>;

    /// The text of a header: of several lines, the last, which is what the nearest proxy has added.
    fn last<'h>(&'h self, name: &'h str) -> Option<Cow<'h, str>> {
        self.values(name).last().map(lossy).filter(|value| !value.is_empty())
    }
}

impl RequestHeaders for HeaderMap {
    fn values<'h>(&'h self, name: &'h str) -> impl Iterator<Item = &'h [u8]> {
        self.get_all(name).iter().map(http::HeaderValue::as_bytes)
    }
}

/// An HTTP request as limits read it.
#[derive(Debug)]
pub struct RequestAttributes<'r, H> {
    /// The method.
    pub method: Cow<'r, str>,
    /// The path in its normal form.
    pub path: Cow<'r, str>,
    /// The host, as it was written.
    pub host: Option<Cow<'r, str>>,
    /// The way of the request: the peer, the proxies behind it that are trusted, the client.
    pub chain: AddressChain,
    /// The headers, from which `identity` takes what else is known.
    pub headers: &'r H,
}

/// Names and values.
pub type Attributes<'a> = SmallVec<[(&'a str, Cow<'a, str>); 8]>;

impl<'r, H: RequestHeaders> RequestAttributes<'r, H> {
    /// A request of its sender. `peer` is who is at the other end of the connection.
    pub fn new(policy: &Policy, method: &'r Method, path: &'r str, headers: &'r H, peer: IpAddr) -> Self {
        Self {
            method: method.as_str().into(),
            path: normal_path(path),
            host: headers.last("host"),
            chain: chain(policy, headers, peer),
            headers,
        }
    }

    /// What the policy looks at.
    pub fn attributes<'a>(&'a self, policy: &'a PolicyInForce<'_>) -> Attributes<'a> {
        let identity = &policy.identity;
        let from = |source: &'a Option<String>| {
            source.as_deref().and_then(|source| self.header(source)).filter(|value| !value.is_empty())
        };
        // To write an address is work, which is done where somebody looks.
        let ip = || policy.looks_at("ip").then(|| identity.client_ip.attribute(self.client()).into());
        let known = [
            ("tenant", from(&identity.tenant)),
            ("user", from(&identity.user)),
            ("ip", ip()),
            ("method", Some((&*self.method).into())),
            ("path", Some((&*self.path).into())),
            ("host", self.host.as_deref().map(normal_host)),
        ];
        let known = known.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let headers = policy.attributes().filter_map(|name| Some((name, self.header(name)?)));
        // What is matched is matched as it is; what is counted by is cut to what counts.
        let is_matched = |name: &str| ["path", "method", "host"].contains(&name);
        known
            .chain(headers)
            .map(|(name, value)| (name, if is_matched(name) { value } else { cut_value(value) }))
            .collect()
    }

    /// The client's address.
    pub fn client(&self) -> IpAddr {
        *self.chain.last().expect("it begins with the peer")
    }

    /// The value of an attribute that names a header, such as `header.x-api-key`.
    fn header<'a>(&'a self, attribute: &'a str) -> Option<Cow<'a, str>> {
        self.headers.values(attribute.strip_prefix("header.")?).last().map(lossy)
    }
}

/// The way of a request, as far as a proxy at its end is trusted.
fn chain<H: RequestHeaders>(policy: &Policy, headers: &H, peer: IpAddr) -> AddressChain {
    let client_ip = &policy.identity.client_ip;
    if !client_ip.trusts(peer) {
        return client_ip.chain(peer, []);
    }
    let lines: SmallVec<[Cow<'_, str>; 2]> = headers.values(client_ip.header_name()).map(lossy).collect();
    client_ip.chain(peer, lines.iter().map(|line| &**line))
}

/// A host in its normal form: in small letters, without the port that goes without saying, and without the dot that a whole name may end
/// with.
fn normal_host(host: &str) -> Cow<'_, str> {
    let host = host.strip_suffix(":80").or_else(|| host.strip_suffix(":443")).unwrap_or(host);
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return host.to_ascii_lowercase().into();
    }
    host.into()
}

/// Bytes as text. What is none is shown as such and hides nothing of the rest: a client may write any byte.
fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// A value without the bytes that no key has.
pub fn cut_value(value: Cow<'_, str>) -> Cow<'_, str> {
    if value.len() <= LONGEST_VALUE {
        return value;
    }
    Cow::Owned(value[..value.floor_char_boundary(LONGEST_VALUE)].to_owned())
}
