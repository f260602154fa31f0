//! Whose request it is, when proxies stand between.
//!
//! A header can be written by anybody. It is believed only as far as proxies of ours have written it: from the right,
//! where the last of them added what it saw, to the first address that is not ours.

use std::net::{IpAddr, Ipv6Addr};

use crate::policy::{AddressHeader, ClientIp, Trust};

/// As many addresses of a header are looked at, from the right.
const MOST_ELEMENTS: usize = 32;

impl ClientIp {
    /// The name of the header that addresses are read from, in lower case.
    pub const fn header_name(&self) -> &'static str {
        match self.header {
            AddressHeader::XForwardedFor => "x-forwarded-for",
            AddressHeader::Forwarded => "forwarded",
            AddressHeader::XRealIp => "x-real-ip",
            AddressHeader::CfConnectingIp => "cf-connecting-ip",
        }
    }

    /// Whether a peer is a proxy of ours, whose headers are believed.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        match &self.trust {
            Trust::Proxies(networks) => {
                networks.iter().any(|network| contains(*network, peer.to_canonical()))
            }
            Trust::Hops(hops) => *hops > 0,
        }
    }

    /// The address of the client: `peer` is the other end of the connection, `lines` the values of the header of this
    /// [name](Self::header_name), in order.
    ///
    /// ```
    /// use std::path::Path;
    /// use tollgate_policy::Policy;
    ///
    /// let file = "identity: { client_ip: { trusted_proxies: [10.0.0.0/8] } }";
    /// let policy = Policy::read(Path::new("tollgate.yaml"), file)?;
    /// let client = |peer: &str, xff| policy.identity.client_ip.client(peer.parse().unwrap(), [xff]).to_string();
    /// assert_eq!(client("10.0.0.1", "6.6.6.6, 203.0.113.7, 10.0.0.2"), "203.0.113.7");
    /// assert_eq!(client("198.51.100.9", "127.0.0.1"), "198.51.100.9"); // not ours: what it says is not believed
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn client<'h>(&self, peer: IpAddr, lines: impl IntoIterator<Item = &'h str>) -> IpAddr {
        let peer = peer.to_canonical();
        if !self.trusts(peer) {
            return peer;
        }
        let lines: Vec<&str> = lines.into_iter().collect();
        match self.header {
            // One address, which the proxy sets in place of what it was sent: of two, one is not its.
            AddressHeader::XRealIp | AddressHeader::CfConnectingIp => match lines[..] {
                [line] => address(line).unwrap_or(peer),
                _ => peer,
            },
            AddressHeader::XForwardedFor => {
                let elements = lines.iter().rev().flat_map(|line| line.rsplit(',')).map(address);
                self.walk(peer, elements)
            }
            AddressHeader::Forwarded => {
                let elements = lines.iter().rev().flat_map(|line| {
                    let mut elements = split_unquoted(line, ',');
                    elements.reverse();
                    elements
                });
                self.walk(peer, elements.map(forwarded_for))
            }
        }
    }

    /// What stands for the client in the attribute `ip`: an IPv4 address, or the network of an IPv6 one.
    ///
    /// ```
    /// use tollgate_policy::ClientIp;
    ///
    /// let ip = |address: &str| ClientIp::default().attribute(address.parse().unwrap());
    /// assert_eq!(ip("203.0.113.7"), "203.0.113.7");
    /// assert_eq!(ip("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
    /// assert_eq!(ip("::ffff:203.0.113.7"), "203.0.113.7");
    /// ```
    pub fn attribute(&self, address: IpAddr) -> String {
        match address.to_canonical() {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) if self.ipv6_prefix >= 128 => address.to_string(),
            IpAddr::V6(address) => {
                let network = u128::from(address) & !(u128::MAX >> self.ipv6_prefix);
                format!("{}/{}", Ipv6Addr::from(network), self.ipv6_prefix)
            }
        }
    }

    /// From the peer on, to the first address that is not ours, or as many steps as there are proxies. An element that
    /// cannot be read ends it: what stands left of it is anybody's.
    fn walk(&self, peer: IpAddr, elements: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
        let mut elements = elements.take(MOST_ELEMENTS);
        let mut client = peer;
        match &self.trust {
            Trust::Proxies(_) => {
                while self.trusts(client) {
                    let Some(Some(next)) = elements.next() else { break };
                    client = next;
                }
            }
            Trust::Hops(hops) => {
                for _ in 0..*hops {
                    match elements.next() {
                        Some(Some(next)) => client = next,
                        Some(None) => break,
                        // Fewer than there are proxies: it did not come through them.
                        None => return peer,
                    }
                }
            }
        }
        client
    }
}

/// Whether an address is of a network. Neither is an IPv4 address in an IPv6 one.
fn contains((network, length): (IpAddr, u8), address: IpAddr) -> bool {
    let alike = |a: u128, b: u128, bits: u8| length == 0 || (a ^ b) >> (bits - length.min(bits)) == 0;
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            alike(network.to_bits().into(), address.to_bits().into(), 32)
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => alike(network.to_bits(), address.to_bits(), 128),
        _ => false,
    }
}

/// An address as proxies write it: with a port or without, an IPv6 one in brackets or not, with a zone or without.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let host = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            if !port.is_empty() {
                port.strip_prefix(':')?.parse::<u16>().ok()?;
            }
            host
        }
        None => match text.split_once(':') {
            // One colon only: an IPv4 address with a port.
            Some((host, port)) if !port.contains(':') => {
                port.parse::<u16>().ok()?;
                return host.parse::<std::net::Ipv4Addr>().ok().map(IpAddr::V4);
            }
            _ => text,
        },
    };
    let host = host.split_once('%').map_or(host, |(host, _zone)| host);
    Some(host.parse::<IpAddr>().ok()?.to_canonical())
}

/// The address in the `for` of an element of `Forwarded`. None for one that is hidden or unknown.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let mut found = None;
    for pair in split_unquoted(element, ';') {
        let (name, value) = pair.split_once('=')?;
        if name.trim().eq_ignore_ascii_case("for") {
            if found.is_some() {
                return None; // two: whose is right?
            }
            found = Some(unquoted(value.trim()));
        }
    }
    address(&found?)
}

/// The parts of a text between separators that do not stand in quotes.
fn split_unquoted(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut start, mut is_quoted, mut is_escaped) = (Vec::new(), 0, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            c if c == separator && !is_quoted => {
                parts.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// A value, without its quotes and the backslashes in them.
fn unquoted(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')) else {
        return value.to_owned();
    };
    let mut is_escaped = false;
    let keep = |c: &char| {
        is_escaped = *c == '\\' && !is_escaped;
        !is_escaped
    };
    inner.chars().filter(keep).collect()
}

#[cfg(test)]
mod tests;
