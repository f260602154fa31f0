//! The attributes of an HTTP request, as the gateway, forward-auth and tower read them.
//!
//! The application behind them reads the same request again. Where two programs could read it in two ways, a client could be counted by
//! one reading and served by the other. Such a request has a [fault](RequestFault) instead of attributes.

pub(crate) mod header_table;

use std::borrow::Cow;
use std::net::IpAddr;

use http::{HeaderMap, Method, Uri};
use smallvec::SmallVec;

use crate::client_address::AddressChain;
use crate::engine::PolicyInForce;
use crate::host::normal_host;
use crate::path::{normal_path, require_one_path};
use crate::policy::Policy;

/// The most bytes of a value that a key has. The rest of a longer value does not count.
const LONGEST_VALUE: usize = 4 << 10;

/// The headers of a message, however they are kept.
pub trait RequestHeaders {
    /// The names, in any case, and the values of all lines.
    fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])>;

    /// The values of a header, whose name is given in small letters.
    fn values<'h>(&'h self, name: &'h str) -> impl Iterator<Item = &'h [u8]> {
        let lines = self.lines().filter(move |(known, _)| known.eq_ignore_ascii_case(name.as_bytes()));
        lines.map(|(_, value)| value)
    }

    /// The text of a header: of several lines, the last, which is what the nearest proxy has added.
    fn last<'h>(&'h self, name: &'h str) -> Option<Cow<'h, str>> {
        self.values(name).last().map(lossy).filter(|value| !value.is_empty())
    }
}

impl RequestHeaders for HeaderMap {
    fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
    }

    fn values<'h>(&'h self, name: &'h str) -> impl Iterator<Item = &'h [u8]> {
        self.get_all(name).iter().map(http::HeaderValue::as_bytes)
    }
}

/// Why a request has no attributes: applications read it in more than one way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestFault {
    /// The path has `.` or `..` in it.
    #[error("its path has a segment `.` or `..`, which some applications resolve and some do not")]
    Detours,
    /// The path begins with two slashes.
    #[error("its path begins with `//`, and some applications read what follows as a host")]
    DoubleSlash,
    /// The path has a backslash, as it is or escaped.
    #[error("its path has a backslash in it, which some applications read as a slash")]
    Backslash,
    /// The path has a control character, as it is or escaped.
    #[error("its path has a control character in it, which some applications leave out")]
    ControlCharacter,
    /// A header that the policy reads comes more than once.
    #[error("the header `{name}` comes more than once, and limits are decided by it; send it once")]
    RepeatedHeader {
        /// The header, as the policy names it.
        name: String,
    },
    /// The name of a header differs only in punctuation from one that the policy reads.
    #[error(
        "some applications read the header `{found}` as `{name}`, by which limits are decided; send `{name}`"
    )]
    DisguisedHeader {
        /// The header, as it was sent.
        found: String,
        /// The header, as the policy names it.
        name: String,
    },
    /// `Connection` names a header that the policy reads, so that the application would not get it.
    #[error(
        "`connection` names the header `{name}`, by which limits are decided; leave it out of `connection`"
    )]
    ConnectionOption {
        /// The header, as the policy names it.
        name: String,
    },
    /// `Host` and the target name two hosts.
    #[error("`host` differs from the host of the target; send one of them")]
    TwoHosts,
    /// Credentials have more than a scheme and a token.
    #[error("the header `{name}` has text after the token; send the scheme, one space and the token")]
    Credentials {
        /// The header, as the policy names it.
        name: String,
    },
}

impl RequestFault {
    /// The fault as the sentence that the client of a refused request gets.
    pub fn detail(&self) -> String {
        format!("This request is refused: {self}.")
    }
}

/// An HTTP request as limits read it.
#[derive(Debug)]
pub struct RequestAttributes<'r, H> {
    /// The method.
    pub method: Cow<'r, str>,
    /// The target: a path, with its query or without.
    pub target: Cow<'r, str>,
    /// The host that an adapter sets. It replaces the host of the target and the header `Host`.
    pub host: Option<Cow<'r, str>>,
    /// The way of the request: the peer, the proxies behind it that are trusted, the client.
    pub chain: AddressChain,
    /// The headers.
    pub headers: &'r H,
    authority: Option<&'r str>, // the host of the target
}

/// Names and values.
pub type Attributes<'a> = SmallVec<[(&'a str, Cow<'a, str>); 8]>;

impl<'r, H: RequestHeaders> RequestAttributes<'r, H> {
    /// A request as its sender wrote it. `peer` is the other end of the connection.
    pub fn new(policy: &Policy, method: &'r Method, uri: &'r Uri, headers: &'r H, peer: IpAddr) -> Self {
        Self {
            method: method.as_str().into(),
            target: uri.path().into(),
            host: None,
            chain: chain(policy, headers, peer),
            headers,
            authority: uri.authority().map(http::uri::Authority::as_str),
        }
    }

    /// The client's address.
    pub fn client(&self) -> IpAddr {
        *self.chain.last().expect("it begins with the peer")
    }

    /// The attributes that the policy looks at.
    ///
    /// # Errors
    ///
    /// When applications read the request in more than one way. Nothing has been decided then.
    pub fn attributes<'a>(&'a self, policy: &'a PolicyInForce<'_>) -> Result<Attributes<'a>, RequestFault> {
        let mut attributes = Attributes::new();
        // Writing an address takes time, so that it is done only for a policy that looks at it.
        if policy.looks_at("ip") {
            attributes.push(("ip", policy.identity.client_ip.attribute(self.client()).into()));
        }
        attributes.push(("method", normal_method(&self.method)));
        if policy.looks_at("path") {
            require_one_path(&self.target)?;
        }
        attributes.push(("path", normal_path(&self.target)));
        self.read_headers(policy, &mut attributes)?;
        Ok(attributes)
    }

    /// Adds what the policy reads from headers. An empty value is a missing one.
    fn read_headers<'a>(
        &'a self,
        policy: &'a PolicyInForce<'_>,
        attributes: &mut Attributes<'a>,
    ) -> Result<(), RequestFault> {
        let table = policy.header_table();
        let mut values: SmallVec<[Option<Cow<'a, str>>; 8]> = SmallVec::from_elem(None, table.len());
        for (name, value) in self.headers.lines() {
            let Some((place, header)) = table.find(name) else { continue };
            if !header.is_spelled(name) {
                let (found, name) = (lossy(name).into_owned(), header.name().to_owned());
                return Err(RequestFault::DisguisedHeader { found, name });
            }
            header.add(lossy(trimmed(value)), &mut values[place])?;
        }
        for (header, value) in table.iter().zip(values) {
            let is_host = header.name().eq_ignore_ascii_case("host");
            let value = if is_host { self.one_host(value)? } else { value };
            let Some(value) = value.filter(|value| !value.is_empty()) else { continue };
            // A host is matched as it is. The other values are counted by, and cut to the length that counts.
            let value = if is_host { normal_host(value) } else { cut_value(value) };
            attributes.extend(header.attributes.iter().map(|attribute| (&**attribute, value.clone())));
        }
        Ok(())
    }

    /// The host of the request. The host of the target counts before the header `Host` (RFC 9112, section 3.2.2, and RFC 9113,
    /// section 8.3.1). Applications differ in which of the two they read, so that both must be the same.
    fn one_host<'a>(&'a self, header: Option<Cow<'a, str>>) -> Result<Option<Cow<'a, str>>, RequestFault> {
        match (&self.host, self.authority, header) {
            (Some(host), _, _) => Ok(Some((&**host).into())),
            (None, Some(authority), Some(header)) if !is_same_host(authority, &header) => {
                Err(RequestFault::TwoHosts)
            }
            (None, Some(authority), _) => Ok(Some(authority.into())),
            (None, None, header) => Ok(header),
        }
    }
}

/// Whether the host of a target and the header `Host` name one host: [their normal forms](normal_host) are the same.
pub fn is_same_host(authority: &str, host: &str) -> bool {
    normal_host(authority.into()) == normal_host(host.into())
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

/// A method in capitals. The standard tells `post` from `POST`, and some frameworks do not.
fn normal_method(method: &str) -> Cow<'_, str> {
    let has_small = method.bytes().any(|byte| byte.is_ascii_lowercase());
    if has_small { method.to_ascii_uppercase().into() } else { method.into() }
}

/// A value without the blanks around it. HTTP/1.1 does not count them as part of it, HTTP/2 forbids them and some let them pass.
fn trimmed(value: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value.iter().position(|byte| !is_blank(byte)).unwrap_or(value.len());
    let end = value.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
    &value[start..end]
}

/// Bytes as text. Bytes that are not UTF-8 become replacement characters: a client may send any byte.
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

#[cfg(test)]
mod tests;
