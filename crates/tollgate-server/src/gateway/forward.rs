//! What changes in the head of a message on its way through.

use std::net::IpAddr;

use axum::http::{HeaderMap, Method, StatusCode, Uri};
use smallvec::SmallVec;
use tollgate_policy::{Policy, RequestHeaders};

use super::h1::{Framing, Kind, Lines, reads_as};

/// Headers on their way through.
pub(super) trait Carried: RequestHeaders {
    /// What each is to us, names and values, in their order.
    fn each(&self) -> impl Iterator<Item = (Kind, &[u8], &[u8])>;

    /// The values of a header of a kind of its own.
    fn of(&self, kind: Kind) -> impl Iterator<Item = &[u8]> {
        self.each().filter(move |(known, _, _)| *known == kind).map(|(_, _, value)| value)
    }
}

impl Carried for Lines {
    fn each(&self) -> impl Iterator<Item = (Kind, &[u8], &[u8])> {
        self.iter()
    }
}

impl Carried for HeaderMap {
    fn each(&self) -> impl Iterator<Item = (Kind, &[u8], &[u8])> {
        self.iter().map(|(name, value)| {
            let name = name.as_str().as_bytes();
            (Kind::of(name), name, value.as_bytes())
        })
    }
}

/// The most tokens that `Connection` may have in a request. Every header is compared with each of them.
const MOST_TOKENS: usize = 32;

/// What `Connection` says: `close`, for example, or the names of headers that are of this connection only.
#[derive(Debug, Default)]
pub(super) struct ConnectionTokens<'h>(SmallVec<[&'h [u8]; 2]>);

impl<'h> ConnectionTokens<'h> {
    pub(super) fn of<H: Carried>(headers: &'h H) -> Self {
        let lines = headers.of(Kind::Connection);
        Self(lines.flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii).collect())
    }

    pub(super) fn are_too_many(&self) -> bool {
        self.0.len() > MOST_TOKENS
    }

    pub(super) fn has(&self, token: &[u8]) -> bool {
        self.0.iter().any(|known| known.eq_ignore_ascii_case(token))
    }
}

/// Who sent a request, and over what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender<'c> {
    pub(super) peer: &'c Peer,
    pub(super) client: IpAddr, // behind proxies of ours, if there are any
    pub(super) is_tls: bool,
}

/// Who is at the other end of a connection, also in writing: that is done once for many requests.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) ip: IpAddr,
    text: String,
    node: String, // as RFC 7239 has it: an IPv6 address stands in brackets, and what has a colon in quotes
}

impl Peer {
    pub(super) fn new(ip: IpAddr) -> Self {
        let ip = ip.to_canonical();
        let text = ip.to_string();
        let node = if ip.is_ipv6() { format!("\"[{text}]\"") } else { text.clone() };
        Self { ip, text, node }
    }
}

/// Writes the head of a request as the application gets it.
pub(super) fn write_request<H: Carried>(
    policy: &Policy,
    (method, uri, headers): (&Method, &Uri, &H),
    host: &str,
    framing: Framing,
    upgrade: Option<&[u8]>,
    sender: Sender<'_>,
    out: &mut Vec<u8>,
) {
    let is_trusted = policy.identity.client_ip.trusts(sender.peer.ip);
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let slash = if target.starts_with('?') { "/" } else { "" };
    write_all(out, &[method.as_str(), " ", slash, target, " HTTP/1.1\r\nhost: ", host, "\r\n"]);
    let named = ConnectionTokens::of(headers);
    for (kind, name, value) in headers.each() {
        // What proxies tell follows below; what a client says that is none of ours, the application must not believe.
        if kind == Kind::Other && !named.has(name) && !is_disguised(policy, name) {
            write_header(name, value, out);
        }
    }
    write_forwarded(headers, host, is_trusted, sender, out);
    match framing {
        Framing::Length(length) => write_length(length, out),
        Framing::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Framing::Empty | Framing::UntilClose => {}
    }
    if let Some(protocol) = upgrade {
        out.extend_from_slice(b"connection: upgrade\r\n");
        write_header(b"upgrade", protocol, out);
    }
    out.extend_from_slice(b"\r\n");
}

/// The headers by which requests are told apart.
pub(super) fn identities(policy: &Policy) -> impl Iterator<Item = &str> {
    let sources = [&policy.identity.tenant, &policy.identity.user].into_iter().flatten();
    sources.filter_map(|source| source.strip_prefix("header."))
}

/// Whether some read a header as one of these, which limits do not.
fn is_disguised(policy: &Policy, name: &[u8]) -> bool {
    name.contains(&b'_')
        && identities(policy)
            .any(|known| !name.eq_ignore_ascii_case(known.as_bytes()) && reads_as(name, known))
}

/// Tells the application who asked, and what for. What a proxy of ours has said is kept, and our peer added.
fn write_forwarded<H: Carried>(
    headers: &H,
    host: &str,
    is_trusted: bool,
    sender: Sender<'_>,
    out: &mut Vec<u8>,
) {
    let scheme = if sender.is_tls { "https" } else { "http" };
    let peer = sender.peer;
    // What has been said so far, with a comma behind it.
    let before = |name: &str, out: &mut Vec<u8>| {
        for line in headers.values(name).filter(|_| is_trusted) {
            out.extend_from_slice(line);
            out.extend_from_slice(b", ");
        }
    };
    out.extend_from_slice(b"x-forwarded-for: ");
    before("x-forwarded-for", out);
    write_all(out, &[&peer.text, "\r\n"]);
    for (name, ours) in [("x-forwarded-proto", scheme), ("x-forwarded-host", host)] {
        let told = headers.values(name).last().filter(|_| is_trusted);
        write_header(name.as_bytes(), told.unwrap_or(ours.as_bytes()), out);
    }
    if sender.client == peer.ip {
        write_all(out, &["x-real-ip: ", &peer.text, "\r\n"]);
    } else {
        write_header(b"x-real-ip", sender.client.to_canonical().to_string().as_bytes(), out);
    }
    out.extend_from_slice(b"forwarded: ");
    if is_trusted && headers.values("forwarded").next().is_none() {
        // A proxy that tells the client in the other header only: who goes by this one must not take the proxy for it.
        let chain = headers.values("x-forwarded-for").flat_map(|line| line.split(|byte| *byte == b','));
        for address in chain.filter_map(|address| std::str::from_utf8(address).ok()?.trim().parse().ok()) {
            write_all(out, &["for=", &Peer::new(address).node, ", "]);
        }
    }
    before("forwarded", out);
    let quote = if host.contains([':', '[']) { "\"" } else { "" };
    write_all(out, &["for=", &peer.node, ";host=", quote, host, quote, ";proto=", scheme, "\r\n"]);
    if is_trusted {
        // What else a proxy of ours says is handed on as it is.
        const SET: [&str; 6] =
            ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-real-ip", "forwarded", "proxy"];
        let is_set = |name: &[u8]| SET.iter().any(|set| name.eq_ignore_ascii_case(set.as_bytes()));
        let told = headers.each().filter(|(kind, name, _)| *kind == Kind::ByProxies && !is_set(name));
        told.for_each(|(_, name, value)| write_header(name, value, out));
    }
}

/// The headers of an answer that go on to the client, and nothing that is of the application's connection only.
pub(super) fn carried_on<H: Carried>(headers: &H) -> impl Iterator<Item = (&[u8], &[u8])> {
    let named = ConnectionTokens::of(headers);
    headers
        .each()
        .filter(move |(kind, name, _)| !kind.is_of_connection() && !named.has(name))
        .map(|(_, name, value)| (name, value))
}

/// Writes the head of an answer as the client gets it. What the client is told of the limits takes the place of what the
/// application may have said of its own.
pub(super) fn write_response<'h>(
    status: StatusCode,
    headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
    told: &[(&'static str, String)],
    framing: Option<Framing>,
    keep: Keep<'_>,
    out: &mut Vec<u8>,
) {
    let reason = status.canonical_reason().unwrap_or("");
    write_all(out, &["HTTP/1.1 ", status.as_str(), " ", reason, "\r\n"]);
    for (name, value) in headers {
        if !told.iter().any(|(told, _)| name.eq_ignore_ascii_case(told.as_bytes())) {
            write_header(name, value, out);
        }
    }
    for (name, value) in told {
        write_header(name.as_bytes(), value.as_bytes(), out);
    }
    match framing {
        Some(Framing::Length(length)) => write_length(length, out),
        Some(Framing::Empty) => write_length(0, out),
        Some(Framing::Chunked) => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Some(Framing::UntilClose) | None => {}
    }
    match keep {
        Keep::Open => {}
        Keep::OpenFor10 => out.extend_from_slice(b"connection: keep-alive\r\n"),
        Keep::Close => out.extend_from_slice(b"connection: close\r\n"),
        Keep::Upgrade(protocol) => {
            out.extend_from_slice(b"connection: upgrade\r\n");
            write_header(b"upgrade", protocol, out);
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// What becomes of a connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep<'h> {
    Open,
    OpenFor10, // and a client that speaks HTTP/1.0 is told so
    Close,
    Upgrade(&'h [u8]),
}

fn write_header(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn write_length(length: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"content-length: ");
    out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn write_all(out: &mut Vec<u8>, parts: &[&str]) {
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
}

#[cfg(test)]
mod tests;
