//! Whose request it is, when proxies stand between.
//!
//! A header can be written by anybody. It is believed only as far as proxies of ours have written it: from the right,
//! where the last of them added what it saw, to the first address that is not ours.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};

use smallvec::SmallVec;

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
            Trust::Proxies(networks) => networks.contain(peer.to_canonical()),
            Trust::Hops(hops) => *hops > 0,
        }
    }

    /// Whether a peer is listed as a proxy. With `trusted_hops`, none is: any peer may be one.
    pub fn lists(&self, peer: IpAddr) -> bool {
        matches!(self.trust, Trust::Proxies(_)) && self.trusts(peer)
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
        self.chain(peer, lines).last().copied().unwrap_or(peer)
    }

    /// The way of the request, from the nearest: the peer, then the proxies behind it, then the client. Arguments are those
    /// of [`client`](Self::client). Addresses that nobody vouches for are left out.
    pub fn chain<'h>(&self, peer: IpAddr, lines: impl IntoIterator<Item = &'h str>) -> AddressChain {
        let peer = peer.to_canonical();
        if !self.trusts(peer) {
            return AddressChain::from_elem(peer, 1);
        }
        let lines: SmallVec<[&str; 4]> = lines.into_iter().collect();
        match self.header {
            // One address, which the proxy sets in place of what it was sent: of two, one is not its.
            AddressHeader::XRealIp | AddressHeader::CfConnectingIp => {
                let only = if let [line] = lines[..] { address(line) } else { None };
                AddressChain::from_iter([Some(peer), only].into_iter().flatten())
            }
            AddressHeader::XForwardedFor => {
                let elements = lines.iter().rev().flat_map(|line| line.rsplit(',')).map(address);
                self.walk(peer, elements)
            }
            AddressHeader::Forwarded => {
                let unreadable = || ForwardedElements::from_elem(None, 1);
                let elements = lines
                    .iter()
                    .rev()
                    .flat_map(|line| forwarded_elements(line).unwrap_or_else(unreadable).into_iter().rev());
                self.walk(peer, elements)
            }
        }
    }

    /// Whether a line of the header can be read at all. A line of `Forwarded` whose quotes do not close cannot: an element that
    /// is appended to it would become part of the last value.
    pub fn can_read(&self, line: &str) -> bool {
        self.header != AddressHeader::Forwarded || forwarded_elements(line).is_some()
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
    fn walk(&self, peer: IpAddr, elements: impl Iterator<Item = Option<IpAddr>>) -> AddressChain {
        let mut elements = elements.take(MOST_ELEMENTS);
        let mut chain = AddressChain::from_elem(peer, 1);
        match &self.trust {
            Trust::Proxies(_) => {
                while chain.last().is_some_and(|last| self.trusts(*last)) {
                    let Some(Some(next)) = elements.next() else { break };
                    chain.push(next);
                }
            }
            Trust::Hops(hops) => {
                for _ in 0..*hops {
                    match elements.next() {
                        Some(Some(next)) => chain.push(next),
                        Some(None) => break,
                        // Fewer than there are proxies: it did not come through them.
                        None => {
                            chain.truncate(1);
                            break;
                        }
                    }
                }
            }
        }
        chain
    }
}

/// Addresses on the way of a request, the nearest first.
pub type AddressChain = SmallVec<[IpAddr; 4]>;

/// Networks of addresses, each an address and the length of its prefix. A lookup takes time by the logarithm of their number.
///
/// ```
/// use tollgate_policy::Networks;
///
/// let networks = Networks::from_iter([("10.0.0.0".parse()?, 8), ("fd00::".parse()?, 8)]);
/// assert!(networks.contain("10.1.2.3".parse()?));
/// assert!(!networks.contain("11.0.0.0".parse()?));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    networks: Vec<(IpAddr, u8)>,
    v4: Ranges,
    v6: Ranges,
}

/// The first and the last address of ranges that do not overlap, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ranges(Vec<(u128, u128)>);

impl FromIterator<(IpAddr, u8)> for Networks {
    fn from_iter<I: IntoIterator<Item = (IpAddr, u8)>>(networks: I) -> Self {
        let networks: Vec<(IpAddr, u8)> = networks.into_iter().collect();
        let range = |address: u128, host_bits: u8| {
            let hosts = u128::MAX.checked_shr(128 - u32::from(host_bits)).unwrap_or(0);
            (address & !hosts, address | hosts)
        };
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (address, length) in &networks {
            match address {
                IpAddr::V4(address) => {
                    v4.push(range(address.to_bits().into(), 32_u8.saturating_sub(*length)))
                }
                IpAddr::V6(address) => v6.push(range(address.to_bits(), 128_u8.saturating_sub(*length))),
            }
        }
        Self { networks, v4: Ranges::new(v4), v6: Ranges::new(v6) }
    }
}

impl Networks {
    /// Whether an address is in one of the networks. An IPv4 address is in no IPv6 network.
    pub fn contain(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.v4.contain(address.to_bits().into()),
            IpAddr::V6(address) => self.v6.contain(address.to_bits()),
        }
    }

    /// The networks, in the order in which they were given.
    pub fn iter(&self) -> std::slice::Iter<'_, (IpAddr, u8)> {
        self.networks.iter()
    }
}

impl<'n> IntoIterator for &'n Networks {
    type Item = &'n (IpAddr, u8);
    type IntoIter = std::slice::Iter<'n, (IpAddr, u8)>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Ranges {
    fn new(mut ranges: Vec<(u128, u128)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(u128, u128)> = Vec::new();
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if first <= *end => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    fn contain(&self, address: u128) -> bool {
        let behind = self.0.partition_point(|(first, _)| *first <= address);
        behind.checked_sub(1).is_some_and(|place| address <= self.0[place].1)
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

/// The addresses of a line of `Forwarded`. None for an element that names none: it is hidden, unknown, or has two.
type ForwardedElements = SmallVec<[Option<IpAddr>; 4]>;

/// Reads a line of `Forwarded` (RFC 7239, section 4). None where a quote or a backslash stands in a place that the grammar does
/// not allow, or a quoted string does not end: who reads on from there in another way sees other elements.
fn forwarded_elements(line: &str) -> Option<ForwardedElements> {
    let mut elements = ForwardedElements::new();
    let (mut found, mut is_ambiguous) = (None, false);
    let mut rest = line;
    loop {
        let (pair, end, after) = forwarded_pair(rest)?;
        match pair {
            Pair::Is(name, value) if name.eq_ignore_ascii_case("for") => {
                is_ambiguous |= found.is_some(); // two: whose is right?
                found = Some(value);
            }
            Pair::Is(..) | Pair::Empty => {}
            Pair::NoValue => is_ambiguous = true,
        }
        if end != Some(';') {
            let value = found.take().filter(|_| !is_ambiguous);
            elements.push(value.and_then(|value| address(&value)));
            is_ambiguous = false;
        }
        if end.is_none() {
            return Some(elements);
        }
        rest = after;
    }
}

/// A part of an element of `Forwarded`.
enum Pair<'h> {
    Is(&'h str, Cow<'h, str>),
    NoValue,
    Empty,
}

/// The first pair of what is left of a line, the separator behind it, and what follows that.
fn forwarded_pair(text: &str) -> Option<(Pair<'_>, Option<char>, &str)> {
    let name_end = text.find(['=', ';', ',', '"', '\\']).unwrap_or(text.len());
    let (name, rest) = text.split_at(name_end);
    let Some(rest) = rest.strip_prefix('=') else {
        let pair = if name.trim().is_empty() { Pair::Empty } else { Pair::NoValue };
        let (end, after) = separator(rest)?;
        return Some((pair, end, after));
    };
    let rest = rest.trim_start();
    let (value, rest) = match rest.strip_prefix('"') {
        Some(quoted) => quoted_string(quoted)?,
        None => {
            let end = rest.find([';', ',', '"', '\\']).unwrap_or(rest.len());
            (Cow::Borrowed(rest[..end].trim_end()), &rest[end..])
        }
    };
    let (end, after) = separator(rest)?;
    Some((Pair::Is(name.trim(), value), end, after))
}

/// The separator that a pair ends with, none at the end of the line, and what follows it.
fn separator(text: &str) -> Option<(Option<char>, &str)> {
    let mut rest = text.trim_start().chars();
    match rest.next() {
        None => Some((None, "")),
        Some(end @ (';' | ',')) => Some((Some(end), rest.as_str())),
        Some(_) => None,
    }
}

/// The value of a quoted string whose opening quote has been read, and what follows the closing one.
fn quoted_string(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let end = text.find(['"', '\\'])?;
    if text[end..].starts_with('"') {
        return Some((Cow::Borrowed(&text[..end]), &text[end + 1..]));
    }
    let mut value = text[..end].to_owned();
    let mut rest = text[end..].chars();
    loop {
        match rest.next()? {
            '"' => return Some((Cow::Owned(value), rest.as_str())),
            '\\' => value.push(rest.next()?),
            c => value.push(c),
        }
    }
}

#[cfg(test)]
mod tests;
