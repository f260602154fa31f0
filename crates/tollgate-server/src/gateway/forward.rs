//! What changes in the head of a message on its way through.

use std::net::IpAddr;

use axum::http::{HeaderMap, Method, StatusCode, Uri};
use smallvec::SmallVec;
use tollgate_policy::{AddressHeader, ClientIp, Policy, RequestHeaders};

use super::h1::{Framing, Kind, Lines, reads_as};
use crate::telemetry::{TRACEPARENT, TRACESTATE, TraceParent};

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
    pub(super) chain: &'c [IpAddr], // from the peer over proxies of ours to the client
    pub(super) is_tls: bool,
    /// The trace that the application continues. None: it gets the headers that the client sent.
    pub(super) trace: Option<TraceParent>,
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
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let slash = if target.starts_with('?') { "/" } else { "" };
    write_all(out, &[method.as_str(), " ", slash, target, " HTTP/1.1\r\nhost: ", host, "\r\n"]);
    let named = ConnectionTokens::of(headers);
    // `tracestate` belongs to the trace of the client: it is sent on with that trace only.
    let is_new = sender.trace.is_some() && TraceParent::of(headers.values(TRACEPARENT)).is_none();
    let is_replaced = |name: &[u8]| {
        sender.trace.is_some() && name.eq_ignore_ascii_case(TRACEPARENT.as_bytes())
            || is_new && name.eq_ignore_ascii_case(TRACESTATE.as_bytes())
    };
    for (kind, name, value) in headers.each() {
        // Headers of proxies follow below. From a client that is not one of ours, the application must not get them.
        if kind == Kind::Other && !named.has(name) && !is_replaced(name) {
            write_header(name, value, out);
        }
    }
    if let Some(trace) = sender.trace {
        write_all(out, &[TRACEPARENT, ": ", &trace.to_string(), "\r\n"]);
    }
    write_forwarded(policy, headers, host, sender, out);
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

/// Writes who asked, and what for. Of the headers that name the client's address, the one that `identity.client_ip` reads is
/// kept from a trusted proxy, with our peer added. All others are made from it: a proxy sets one, and may pass on what a client
/// wrote into the rest.
fn write_forwarded<H: Carried>(
    policy: &Policy,
    headers: &H,
    host: &str,
    sender: Sender<'_>,
    out: &mut Vec<u8>,
) {
    let client_ip = &policy.identity.client_ip;
    let peer = sender.peer;
    let is_trusted = client_ip.trusts(peer.ip);
    // Where nothing of the header was believed, nothing of it is passed on.
    let kept = (sender.chain.len() > 1).then_some(client_ip.header);
    let scheme = if sender.is_tls { "https" } else { "http" };
    let client = sender.chain.last().copied().unwrap_or(peer.ip);
    // The client and the proxies before our peer, as written in `X-Forwarded-For`.
    let before_peer = || sender.chain.iter().skip(1).rev();

    out.extend_from_slice(b"x-forwarded-for: ");
    if kept == Some(AddressHeader::XForwardedFor) {
        headers.values("x-forwarded-for").for_each(|line| write_element(line, out));
    } else {
        before_peer().for_each(|address| write_all(out, &[&address.to_string(), ", "]));
    }
    write_all(out, &[&peer.text, "\r\n"]);
    for (name, ours) in [("x-forwarded-proto", scheme), ("x-forwarded-host", host)] {
        let told = headers.values(name).last().filter(|_| is_trusted);
        write_header(name.as_bytes(), told.unwrap_or(ours.as_bytes()), out);
    }
    if client == peer.ip {
        write_all(out, &["x-real-ip: ", &peer.text, "\r\n"]);
    } else {
        write_header(b"x-real-ip", client.to_string().as_bytes(), out);
    }
    if kept == Some(AddressHeader::CfConnectingIp) && client != peer.ip {
        write_header(b"cf-connecting-ip", client.to_string().as_bytes(), out);
    }
    out.extend_from_slice(b"forwarded: ");
    if kept == Some(AddressHeader::Forwarded) {
        write_readable(client_ip, headers.values("forwarded"), out);
    } else {
        before_peer().for_each(|address| write_all(out, &["for=", &Peer::new(*address).node, ", "]));
    }
    let quote = if host.contains([':', '[']) { "\"" } else { "" };
    write_all(out, &["for=", &peer.node, ";host=", quote, host, quote, ";proto=", scheme, "\r\n"]);
    if is_trusted {
        // What else a proxy of ours says is handed on as it is.
        const SET: [&str; 3] = ["x-forwarded-proto", "x-forwarded-host", "proxy"];
        let is_set = |name: &[u8]| SET.iter().any(|set| reads_as(name, set));
        let told = headers.each().filter(|(kind, name, _)| *kind == Kind::ByProxies && !is_set(name));
        told.for_each(|(_, name, value)| write_header(name, value, out));
    }
}

/// Writes the lines of a header that can be read, each followed by a comma. What stands left of one that cannot be read is
/// left out with it: nobody knows where its elements end.
fn write_readable<'h>(client_ip: &ClientIp, lines: impl Iterator<Item = &'h [u8]>, out: &mut Vec<u8>) {
    let start = out.len();
    for line in lines {
        match std::str::from_utf8(line) {
            Ok(text) if client_ip.can_read(text) => write_element(line, out),
            _ => out.truncate(start),
        }
    }
}

fn write_element(element: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(element);
    out.extend_from_slice(b", ");
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
