//! The fields of an access-log line before its time, and which of them is the client.
//!
//! Formats that web servers write, with the client marked by `*`:
//!
//! | fields | layout |
//! |---|---|
//! | `*client ident user` | common, combined |
//! | `vhost[:port] *client ident user` | `vhost_common`, `vhost_combined` |
//! | `*client vhost:port ident user` | the same with the fields exchanged |
//!
//! The client may be a list of addresses, as in `X-Forwarded-For`. A file has one layout. The first line that fits only one layout decides
//! it. A later line that does not fit the layout is an error, because one of the two readings would count wrong clients.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use tollgate_policy::{AddressHeader, ClientIp, Trust};

use super::{LogOptions, Wanted};

const NO_CLIENT: &str = "the line does not name its client";
const NO_PREFIX: &str =
    "the fields before the time must be client, ident and user, with or without a virtual host";
const NO_ADDRESS: &str = "the client is not an address, and this log lists addresses";
const NO_TRUSTED: &str =
    "no trusted proxy has added an address to the list; `--trusted-hops N` needs at least N addresses";

const UNDECIDED: &str = "no line at the beginning of this file shows which field is the client. Choose the field with --client-field 1 or \
                         --client-field 2";

/// The longest text of a log that an error quotes.
const LONGEST_QUOTE: usize = 64;

/// The field of an access-log line that is the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientField {
    /// The first field.
    First,
    /// The second field. The first is a virtual host or a proxy.
    Second,
}

/// The fields before the time.
#[derive(Clone, Copy, Debug)]
struct Prefix<'l> {
    first: &'l [u8],
    second: Option<&'l [u8]>,
    after_second: &'l [u8],
}

/// What a field can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// `-`, `unknown`, or nothing in quotes.
    Missing,
    Address,
    /// Addresses with commas between them.
    List,
    /// A host name, an ident, or any other word without punctuation that these do not have.
    Name,
    /// A name and a port: a virtual host, and never a client.
    NameAndPort,
    Other,
}

/// Where the client is in the lines of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// `client ident user`.
    Alone,
    /// `client other ident user`.
    First,
    /// `other client ident user`.
    Second,
}

/// What one line shows about the layout of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evidence {
    /// Only this layout fits.
    Is(Layout),
    /// Several layouts fit. Other lines of the file can decide.
    Unclear,
    /// Each of two fields can be the client: of a proxy and the client behind it, either may come first. Other lines cannot decide.
    TwoClients,
    /// No layout fits.
    Nothing,
}

/// The client and the user of a line.
#[derive(Debug, Default)]
pub(crate) struct Identity<'l> {
    /// None where the line does not name a client and none is needed.
    pub(crate) client: Option<Cow<'l, [u8]>>,
    pub(crate) user: Option<&'l [u8]>,
    /// Whether the client is the second field.
    pub(crate) is_second: bool,
    /// Whether the client was taken from a list.
    pub(crate) is_from_list: bool,
}

/// Why a line has no identity.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum IdentityFault {
    /// The line is skipped and counted.
    Malformed(&'static str),
    /// The file is refused.
    Refused(String),
}

/// Finds the client in the lines of one file.
#[derive(Debug)]
pub(crate) struct ClientFields {
    layout: Option<(Layout, u64)>, // and the line that decides it
    chosen: Option<ClientField>,
    rule: Option<(ClientIp, IpAddr)>, // and the peer that is taken for the last proxy
    needs: Needs,
    has_lists: bool,
}

/// What must be known of every line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Client,
    User,
    Nothing,
}

impl ClientFields {
    /// Decides the layout from the lines at the beginning of a file: their numbers, and their fields before the time.
    ///
    /// # Errors
    ///
    /// The number of a line that fits several layouts where no line decides, and the readings.
    pub(crate) fn decide<'l>(
        lines: impl Iterator<Item = (u64, &'l [u8])>,
        options: &LogOptions,
    ) -> Result<Self, (u64, String)> {
        let needs = match (options.client, options.client_column.as_deref()) {
            (Wanted::Nothing, _) => Needs::Nothing,
            (_, Some("user")) => Needs::User,
            _ => Needs::Client,
        };
        let mut fields = Self {
            layout: None,
            chosen: options.client_field,
            rule: address_rule(options),
            needs,
            has_lists: options.trusted_hops.is_some(),
        };
        let mut unclear = None;
        for (number, prefix) in lines {
            let Some(prefix) = Prefix::read(prefix) else { continue };
            fields.has_lists |= prefix.has_list();
            match prefix.evidence() {
                Evidence::Is(layout) => fields.layout = fields.layout.or(Some((layout, number))),
                Evidence::Unclear => unclear = unclear.or(Some((number, prefix.two_readings()))),
                Evidence::TwoClients | Evidence::Nothing => {}
            }
        }
        match unclear {
            Some(unclear)
                if fields.layout.is_none() && fields.chosen.is_none() && needs != Needs::Nothing =>
            {
                Err(unclear)
            }
            _ => Ok(fields),
        }
    }

    /// The client and the user of a line, by its fields before the time.
    pub(crate) fn read<'l>(&self, prefix: &'l [u8]) -> Result<Identity<'l>, IdentityFault> {
        let is_common =
            matches!((self.chosen, self.layout), (None, Some((Layout::Alone, _)))) && !self.has_lists;
        if let Some(identity) = is_common.then(|| common_fields(prefix)).flatten() {
            return Ok(identity);
        }
        match self.identity(prefix) {
            Err(_) if self.needs == Needs::Nothing => Ok(Identity::default()),
            identity => identity,
        }
    }

    fn identity<'l>(&self, prefix: &'l [u8]) -> Result<Identity<'l>, IdentityFault> {
        let prefix = Prefix::read(prefix).ok_or(IdentityFault::Malformed(NO_PREFIX))?;
        let layout = self.layout_of(&prefix)?;
        let (client, is_second) = match layout {
            Layout::Alone | Layout::First => (prefix.first, false),
            Layout::Second => (prefix.second.unwrap_or_default(), true),
        };
        let user = match layout {
            Layout::Alone => prefix.after_second,
            Layout::First | Layout::Second => {
                next_field(prefix.after_second).map_or(&b""[..], |(_, user)| user)
            }
        };
        let user = Some(user.trim_ascii()).filter(|user| !matches!(*user, b"" | b"-"));
        let shape = Shape::of(client);
        let client = match self.client(client, shape) {
            Ok(client) => Some(client),
            Err(_) if self.needs == Needs::User => None,
            Err(fault) => return Err(fault),
        };
        let is_from_list = shape == Shape::List && client.is_some();
        Ok(Identity { client, user, is_second, is_from_list })
    }

    /// The layout of a line: the one chosen by the caller, or the one of the file if the line fits it.
    fn layout_of(&self, prefix: &Prefix<'_>) -> Result<Layout, IdentityFault> {
        let refuse = |why| Err(IdentityFault::Refused(why));
        let evidence = prefix.evidence();
        match (evidence, self.chosen, self.layout) {
            (Evidence::Nothing, ..) => Err(IdentityFault::Malformed(NO_PREFIX)),
            (_, Some(ClientField::Second), _) => Ok(Layout::Second),
            (Evidence::Is(Layout::Alone), Some(ClientField::First), _) => Ok(Layout::Alone),
            (Evidence::Unclear, Some(ClientField::First), _) if !prefix.has_ident_third() => {
                Ok(Layout::Alone)
            }
            (_, Some(ClientField::First), _) => Ok(Layout::First),
            (Evidence::Is(here), None, Some((layout, _))) if here == layout => Ok(layout),
            (Evidence::Is(here), None, Some((layout, line))) => refuse(prefix.conflict(here, layout, line)),
            (Evidence::Unclear, None, Some((layout, _))) => Ok(layout),
            (Evidence::TwoClients, None, _) => refuse(prefix.two_readings()),
            (Evidence::Is(_) | Evidence::Unclear, None, None) => refuse(UNDECIDED.to_owned()),
        }
    }

    fn client<'l>(&self, text: &'l [u8], shape: Shape) -> Result<Cow<'l, [u8]>, IdentityFault> {
        let malformed = |why| Err(IdentityFault::Malformed(why));
        let owned = |address: IpAddr| Cow::Owned(address.to_string().into_bytes());
        match shape {
            Shape::Missing => malformed(NO_CLIENT),
            Shape::NameAndPort | Shape::Other => malformed(NO_PREFIX),
            Shape::Name if self.has_lists => malformed(NO_ADDRESS),
            Shape::Name => Ok(Cow::Borrowed(text)),
            Shape::Address => match address(text) {
                // As the log writes it, except for a port.
                Some(address) if self.has_lists || !is_bare_address(text) => Ok(owned(address)),
                _ => Ok(Cow::Borrowed(text)),
            },
            Shape::List => match &self.rule {
                None => Err(IdentityFault::Refused(list_error(text))),
                Some((rule, peer)) => {
                    let list = std::str::from_utf8(text).map_err(|_| IdentityFault::Malformed(NO_TRUSTED))?;
                    match rule.chain(*peer, [list])[..] {
                        [_, .., client] => Ok(owned(client)),
                        _ => malformed(NO_TRUSTED),
                    }
                }
            },
        }
    }
}

/// Most lines of most logs: a name or an IPv4 address, the ident `-`, and a user. Only the layout of a client alone fits them, so that this
/// is what [`ClientFields::identity`] finds, in a fraction of the time.
fn common_fields(prefix: &[u8]) -> Option<Identity<'_>> {
    let (first, rest) = prefix.split_at(memchr::memchr(b' ', prefix)?);
    let user = rest.strip_prefix(b" - ")?.trim_ascii();
    let is_name = first.iter().all(|byte| is_of_name(*byte)) && !is_missing(first);
    if !is_name || user.starts_with(b"- ") || user.starts_with(b",") {
        return None;
    }
    let user = Some(user).filter(|user| !matches!(*user, b"" | b"-"));
    Some(Identity { client: Some(Cow::Borrowed(first)), user, is_second: false, is_from_list: false })
}

/// The rule of the service for lists of addresses, and a peer that the rule trusts. A log does not name the peer: it is the proxy that added
/// the last address. None where no proxy is trusted.
fn address_rule(options: &LogOptions) -> Option<(ClientIp, IpAddr)> {
    let rule = match options.trusted_hops {
        Some(hops) => ClientIp { trust: Trust::Hops(hops), ..ClientIp::default() },
        None => options.client_ip.clone(),
    };
    if rule.header != AddressHeader::XForwardedFor {
        return None;
    }
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let peer = match &rule.trust {
        Trust::Hops(_) => Some(any),
        Trust::Proxies(networks) => {
            networks.iter().map(|(network, _)| *network).find(|peer| rule.trusts(*peer))
        }
    };
    peer.filter(|peer| rule.trusts(*peer)).map(|peer| (rule, peer))
}

impl<'l> Prefix<'l> {
    fn read(text: &'l [u8]) -> Option<Self> {
        if text.first().is_none_or(|byte| matches!(byte, b' ' | b'{')) {
            return None;
        }
        let (first, rest) = next_field(text)?;
        match next_field(rest) {
            Some((second, after_second)) => Some(Self { first, second: Some(second), after_second }),
            None if rest.trim_ascii().is_empty() => Some(Self { first, second: None, after_second: b"" }),
            None => None,
        }
    }

    fn has_list(&self) -> bool {
        [Some(self.first), self.second].into_iter().flatten().any(|field| Shape::of(field) == Shape::List)
    }

    /// Whether the third of at least four fields is `-`. It is an ident rather than the beginning of a user name.
    fn has_ident_third(&self) -> bool {
        matches!(next_field(self.after_second), Some((b"-", user)) if !user.trim_ascii().is_empty())
    }

    fn evidence(&self) -> Evidence {
        let first = Shape::of(self.first);
        let Some(second) = self.second else {
            return match first {
                Shape::NameAndPort | Shape::Other => Evidence::Nothing,
                _ => Evidence::Is(Layout::Alone),
            };
        };
        let third = next_field(self.after_second);
        let is_longer = third.is_some_and(|(_, user)| !user.trim_ascii().is_empty());
        match (first, Shape::of(second)) {
            (Shape::Address | Shape::List | Shape::Missing, Shape::Address | Shape::List) => {
                Evidence::TwoClients
            }
            (_, Shape::Address | Shape::List) => Evidence::Is(Layout::Second),
            (Shape::Other, _) | (_, Shape::Other) => Evidence::Nothing,
            // A virtual host without a client.
            (Shape::NameAndPort, Shape::Missing) if !is_longer => Evidence::Nothing,
            (Shape::NameAndPort, Shape::Name) if self.has_ident_third() => Evidence::Is(Layout::Second),
            (_, Shape::Name | Shape::NameAndPort) if self.has_other_prefix() => Evidence::Nothing,
            (Shape::NameAndPort, Shape::NameAndPort) => Evidence::Nothing,
            (Shape::NameAndPort, _) => Evidence::Is(Layout::Second),
            (_, Shape::NameAndPort) => Evidence::Is(Layout::First),
            (_, Shape::Missing) if self.has_ident_third() => Evidence::Unclear,
            (_, Shape::Name) if is_longer => Evidence::Unclear,
            (_, Shape::Missing | Shape::Name) => Evidence::Is(Layout::Alone),
        }
    }

    /// Whether words before the client are those of another program, such as syslog: the third field is a time of day, or an address
    /// follows.
    fn has_other_prefix(&self) -> bool {
        let mut fields = std::iter::successors(next_field(self.after_second), |(_, rest)| next_field(rest))
            .map(|(field, _)| field)
            .peekable();
        fields.peek().is_some_and(|third| is_time_of_day(third))
            || fields.any(|field| matches!(Shape::of(field), Shape::Address | Shape::List))
    }

    fn two_readings(&self) -> String {
        format!(
            "this line can be read in two ways: its client is field 1, `{}`, or field 2, `{}`. Choose the field with --client-field 1 or \
             --client-field 2",
            quote(self.first),
            quote(self.second.unwrap_or_default())
        )
    }

    fn conflict(&self, here: Layout, file: Layout, line: u64) -> String {
        let format = |layout| match layout {
            Layout::Alone => "`client ident user`",
            Layout::First => "`client host:port ident user`",
            Layout::Second => "`host client ident user`",
        };
        format!(
            "this line begins with `{} {}`, which reads as {}, but line {line} reads as {}. Choose the field of the client with \
             --client-field 1 or --client-field 2, or split the file",
            quote(self.first),
            quote(self.second.unwrap_or_default()),
            format(here),
            format(file)
        )
    }
}

fn list_error(list: &[u8]) -> String {
    let end = |element: Option<&[u8]>| quote(element.unwrap_or_default().trim_ascii());
    let mut elements = list.split(|byte| *byte == b',');
    let (first, last) = (end(elements.next()), end(elements.next_back()));
    format!(
        "this line lists several addresses, `{}`: its client is `{first}` if every entry is trusted, and `{last}` if only the last entry is. Set \
         how many proxies of yours add to the list with --trusted-hops: 1 takes the last address, 2 the one before it. With --policy, \
         `identity.client_ip` of the policy can set this",
        quote(list)
    )
}

/// A text of the log as an error quotes it.
fn quote(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let mut quote: String =
        text.chars().take(LONGEST_QUOTE).map(|c| if c.is_control() { '?' } else { c }).collect();
    if text.chars().nth(LONGEST_QUOTE).is_some() {
        quote.push('…');
    }
    quote
}

/// The next field and the text behind it. A field in quotes ends at the next quote; blanks beside a comma do not end a field.
fn next_field(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    if let Some(inner) = text.strip_prefix(b"\"") {
        let (field, rest) = inner.split_at(memchr::memchr(b'"', inner)?);
        let rest = &rest[1..];
        return rest.first().is_none_or(|byte| *byte == b' ').then_some((field.trim_ascii(), rest));
    }
    let mut end = 0;
    loop {
        end += memchr::memchr(b' ', &text[end..]).unwrap_or(text.len() - end);
        let rest = text[end..].trim_ascii_start();
        let goes_on = text[..end].ends_with(b",") || rest.starts_with(b",");
        if rest.is_empty() || !goes_on {
            return (end > 0).then_some((&text[..end], &text[end..]));
        }
        end = text.len() - rest.len();
    }
}

impl Shape {
    fn of(text: &[u8]) -> Self {
        if is_missing(text) {
            return Self::Missing;
        }
        if memchr::memchr(b',', text).is_some() {
            let has_address = text.split(|byte| *byte == b',').any(|element| address(element).is_some());
            return if has_address { Self::List } else { Self::Other };
        }
        if address(text).is_some() {
            return Self::Address;
        }
        if text.iter().all(|byte| is_of_name(*byte)) {
            return Self::Name;
        }
        let colon = text.iter().rposition(|byte| *byte == b':').unwrap_or(0);
        let (name, port) = (&text[..colon], text.get(colon + 1..).unwrap_or_default());
        let is_name = name.iter().all(|byte| is_of_name(*byte)) && name.iter().any(u8::is_ascii_alphabetic);
        let is_port = (1..=5).contains(&port.len()) && port.iter().all(u8::is_ascii_digit);
        if is_name && is_port { Self::NameAndPort } else { Self::Other }
    }
}

fn is_missing(text: &[u8]) -> bool {
    matches!(text, b"" | b"-") || text.eq_ignore_ascii_case(b"unknown")
}

/// Whether a name may have this byte. Publishers of logs replace parts of addresses, so that most bytes are allowed. Those that are not
/// separate words, or are added to a line by other programs.
const fn is_of_name(byte: u8) -> bool {
    !matches!(
        byte,
        0..=b' ' | 0x7f | b'"' | b',' | b':' | b';' | b'<' | b'>' | b'[' | b']' | b'{' | b'|' | b'}'
    )
}

/// Whether a text looks like `06:30:00`.
fn is_time_of_day(text: &[u8]) -> bool {
    text.iter().filter(|byte| **byte == b':').count() == 2
        && text.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b':' | b'.'))
}

/// Whether a text is an address and nothing else: no port, no brackets.
fn is_bare_address(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| text.parse::<IpAddr>().is_ok())
}

/// An address in any form that the service reads.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = text.trim_ascii();
    if !text.first().is_some_and(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'[')) {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    if !text.contains(':') {
        return text.parse::<Ipv4Addr>().ok().map(IpAddr::V4);
    }
    let rule = ClientIp { trust: Trust::Hops(1), ..ClientIp::default() };
    match rule.chain(IpAddr::V4(Ipv4Addr::UNSPECIFIED), [text])[..] {
        [_, address] => Some(address),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random_prefix(random: &mut tollgate_testkit::Random) -> Vec<u8> {
        let pieces =
            [" ", " ", " - ", "-", "203.0.113.9", "a.example", ":80", ",", "\"", "unknown", "::1", "x", "  "];
        let count = random.between(1, 9);
        (0..count).flat_map(|_| random.pick(&pieces).bytes()).collect()
    }

    #[test]
    fn the_short_way_finds_what_the_long_way_finds() {
        let mut random = tollgate_testkit::Random::new(5);
        let first: [(u64, &[u8]); 1] = [(1, b"203.0.113.9 - - ")];
        let fields = ClientFields::decide(first.into_iter(), &LogOptions::default()).unwrap();
        let mut found = 0;
        for _ in 0..200_000 {
            let prefix = random_prefix(&mut random);
            let Some(short) = common_fields(&prefix) else { continue };
            let long =
                fields.identity(&prefix).unwrap_or_else(|fault| panic!("{}: {fault:?}", quote(&prefix)));
            assert_eq!((short.client, short.user), (long.client, long.user), "{}", quote(&prefix));
            assert!(!long.is_second && !long.is_from_list, "{}", quote(&prefix));
            found += 1;
        }
        assert!(found > 1000, "{found}");
    }
}
