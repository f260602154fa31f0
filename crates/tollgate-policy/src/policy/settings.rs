//! Listeners, headers, identity, and what else is neither a limit nor a store.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use crate::client_address::Networks;
use crate::fault::Fault;
use crate::keys;
use crate::reader::{Reader, Section};
use crate::yaml::Node;

/// Where to listen. A listener left out is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listen {
    /// Decision API, forward-auth, dashboard, metrics, health.
    pub http: Option<SocketAddr>,
    /// Envoy's rate limit service.
    pub grpc: Option<SocketAddr>,
    /// `CL.THROTTLE`.
    pub resp: Option<SocketAddr>,
    /// The reverse proxy.
    pub gateway: Option<SocketAddr>,
    /// The most connections of all listeners.
    pub max_connections: Option<u64>,
    /// The most connections of one peer address.
    pub max_connections_per_address: Option<u64>,
    /// After how long without a call a gRPC connection is closed.
    pub idle: Option<Duration>,
}

impl Listen {
    /// The listeners, and the names in `hosts`.
    pub(super) fn read(reader: &Reader<'_>, node: &Node) -> Option<(Self, Vec<String>)> {
        let section = reader.section(node, keys::LISTEN)?;
        let address = |key: &str| {
            let parse = |text: &str| {
                text.parse().map_err(|_| "write an address as 127.0.0.1:8080 or [::1]:8080".into())
            };
            section.get(key).and_then(|node| reader.read(node, parse))
        };
        let count = |key: &str| section.get(key).and_then(|node| reader.positive(node, &format!("`{key}`")));
        let listen = Self {
            http: address("http"),
            grpc: address("grpc"),
            resp: address("resp"),
            gateway: address("gateway"),
            max_connections: count("max_connections"),
            max_connections_per_address: count("max_connections_per_address"),
            idle: section.get("idle").and_then(|node| {
                let idle = reader.time(node)?;
                if idle.is_zero() {
                    let fault = Fault::new(node.span.clone(), "no time at all");
                    reader.fault(fault.help("write after how long an idle connection is closed, such as 5m"));
                }
                Some(idle)
            }),
        };
        let hosts = section.get("hosts").map_or(&[][..], |node| reader.list(node));
        Some((listen, hosts.iter().filter_map(|node| reader.read(node, host)).collect()))
    }
}

/// A name by which callers reach this machine.
fn host(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    if text.is_empty() || text.len() > 253 || !text.chars().all(fits) {
        return Err(
            "write a name or an IPv4 address without scheme and port, such as limits.example.com".into()
        );
    }
    Ok(text.to_ascii_lowercase())
}

/// A certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate chain.
    pub cert_file: String,
    /// Its private key.
    pub key_file: String,
}

impl Tls {
    pub(super) fn read(reader: &Reader<'_>, node: &Node, file: &Path) -> Option<Self> {
        let section = reader.section(node, keys::TLS)?;
        let required = |key: &str, example: &str| {
            section.require(reader, key, example).and_then(|node| path(reader, node, file))
        };
        let files = (required("cert_file", "./cert.pem"), required("key_file", "./key.pem"));
        Some(Self { cert_file: files.0?, key_file: files.1? })
    }
}

/// The file with the token of admin calls.
pub(super) fn admin(reader: &Reader<'_>, node: &Node, file: &Path) -> Option<String> {
    let section = reader.section(node, keys::ADMIN)?;
    section.require(reader, "token_file", "./admin.token").and_then(|node| path(reader, node, file))
}

/// A path; a relative one is relative to the policy file.
pub(super) fn path(reader: &Reader<'_>, node: &Node, file: &Path) -> Option<String> {
    let path = reader.text(node)?;
    let absolute = file.parent().unwrap_or(Path::new("")).join(&path);
    Some(absolute.display().to_string())
}

/// Whether the HTTP listener serves the dashboard and the playground.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dashboard {
    /// It does.
    #[default]
    On,
    /// It does not.
    Off,
}

impl Dashboard {
    pub(super) fn read(reader: &Reader<'_>, node: &Node) -> Self {
        if reader.flag(node) == Some(false) { Self::Off } else { Self::On }
    }
}

/// Which headers answers carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// `RateLimit` and `RateLimit-Policy`.
    pub ietf: Ietf,
    /// `X-RateLimit-*`.
    pub x_ratelimit: XRateLimit,
    /// Whose headers a client of the gateway gets.
    pub upstream: UpstreamHeaders,
}

/// What the gateway does with `RateLimit`, `RateLimit-*`, `X-RateLimit-*` and `Retry-After` of the application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpstreamHeaders {
    /// The gateway's own header replaces one of the same name.
    #[default]
    Replace,
    /// The application's header is kept, and the gateway's own of the same name is left out.
    Keep,
}

/// A generation of the draft.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ietf {
    /// Items, from -08 on.
    #[default]
    Draft08,
    /// A dictionary, in -07.
    Draft07,
    /// Three fields, up to -06.
    Draft06,
    /// None.
    Off,
}

/// How `X-RateLimit-Reset` is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XRateLimit {
    /// In Unix time.
    #[default]
    Epoch,
    /// In seconds from now.
    Delta,
    /// Not at all.
    Off,
}

impl Headers {
    pub(super) fn read(reader: &Reader<'_>, node: &Node) -> Self {
        let Some(section) = reader.section(node, keys::HEADERS) else { return Self::default() };
        let word = |key: &str| section.word(reader, key).unwrap_or(0);
        let ietf = word("ietf");
        let x_ratelimit = word("x_ratelimit");
        let upstream = word("upstream");
        Self {
            ietf: [Ietf::Draft08, Ietf::Draft07, Ietf::Draft06, Ietf::Off][ietf],
            x_ratelimit: [XRateLimit::Epoch, XRateLimit::Delta, XRateLimit::Off][x_ratelimit],
            upstream: [UpstreamHeaders::Replace, UpstreamHeaders::Keep][upstream],
        }
    }
}

/// Where the gateway, forward-auth and tower take attributes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Of the tenant, such as `header.x-api-key`.
    pub tenant: Option<String>,
    /// Of the user.
    pub user: Option<String>,
    /// Of the client's address.
    pub client_ip: ClientIp,
}

/// Whose word on the client's address is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIp {
    /// Which proxies are ours.
    pub trust: Trust,
    /// The header in which they tell it.
    pub header: AddressHeader,
    /// How many bits of an IPv6 address make a client.
    pub ipv6_prefix: u8,
}

/// The proxies whose word on the client's address is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Proxies in these networks.
    Proxies(Networks),
    /// This number of proxies in a row, whatever their addresses.
    Hops(usize),
}

impl Default for Trust {
    fn default() -> Self {
        Self::Proxies(Networks::default())
    }
}

/// The header in which proxies tell the client's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressHeader {
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded`, RFC 7239.
    Forwarded,
    /// `X-Real-IP`.
    XRealIp,
    /// `CF-Connecting-IP`.
    CfConnectingIp,
}

impl Default for ClientIp {
    fn default() -> Self {
        Self { trust: Trust::default(), header: AddressHeader::default(), ipv6_prefix: 64 }
    }
}

impl Identity {
    pub(super) fn read(reader: &Reader<'_>, node: &Node) -> Self {
        let Some(section) = reader.section(node, keys::IDENTITY) else { return Self::default() };
        let source = |key: &str| {
            let header = |text: &str| match text.strip_prefix("header.") {
                Some(name) if !name.is_empty() => Ok(text.to_ascii_lowercase()),
                _ => Err("write a header as header.x-api-key".into()),
            };
            section.get(key).and_then(|node| reader.read(node, header))
        };
        let client_ip = section.get("client_ip").and_then(|node| ClientIp::read(reader, node));
        Self { tenant: source("tenant"), user: source("user"), client_ip: client_ip.unwrap_or_default() }
    }
}

impl ClientIp {
    fn read(reader: &Reader<'_>, node: &Node) -> Option<Self> {
        let section = reader.section(node, keys::CLIENT_IP)?;
        let proxies = section.get("trusted_proxies").map_or(&[][..], |node| reader.list(node));
        let proxies: Networks = proxies.iter().filter_map(|node| reader.read(node, network)).collect();
        let trust = match section.get("trusted_hops") {
            None => Trust::Proxies(proxies),
            Some(node) => {
                if section.get("trusted_proxies").is_some() {
                    let fault = Fault::new(node.span.clone(), "both `trusted_proxies` and `trusted_hops`");
                    reader.fault(fault.help("say which proxies are yours, or how many: one of them"));
                }
                let hops = reader.count(node).unwrap_or(0);
                Trust::Hops(usize::try_from(hops).unwrap_or(usize::MAX))
            }
        };
        let header = section.word(reader, "header").unwrap_or(0);
        let prefix = section.get("ipv6_prefix").and_then(|node| {
            let prefix = reader.count(node)?;
            if !(48..=128).contains(&prefix) {
                let fault = Fault::new(node.span.clone(), format!("a prefix of {prefix} bits"));
                reader.fault(fault.help("48 to 128; 64 is what one customer usually has"));
            }
            u8::try_from(prefix).ok()
        });
        let headers = [
            AddressHeader::XForwardedFor,
            AddressHeader::Forwarded,
            AddressHeader::XRealIp,
            AddressHeader::CfConnectingIp,
        ];
        Some(Self { trust, header: headers[header], ipv6_prefix: prefix.unwrap_or(64) })
    }
}

fn network(text: &str) -> Result<(IpAddr, u8), String> {
    const NETWORKS: &str = "write a network as 10.0.0.0/8, 127.0.0.1/32 or fd00::/8";
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    let address: IpAddr = address.trim().parse().map_err(|_| NETWORKS)?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let length = if length.is_empty() { most } else { length.parse().map_err(|_| NETWORKS)? };
    if length > most { Err(NETWORKS.into()) } else { Ok((address, length)) }
}

/// A record has no more files than this: each is renamed when the newest is full.
const MOST_RECORD_FILES: u64 = 1000;

/// Where decisions are written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The file.
    pub path: String,
    /// How large it may become.
    pub max_bytes: usize,
    /// How many files there may be: the one of that name, and those that were full before.
    pub max_files: u32,
}

impl Record {
    pub(super) fn read(reader: &Reader<'_>, node: &Node, file: &Path) -> Option<Self> {
        let section: Section<'_> = reader.section(node, keys::RECORD)?;
        let max_bytes = section.get("max_bytes").map_or(Some(1 << 30), |node| reader.bytes(node));
        let path =
            section.require(reader, "path", "./decisions.log").and_then(|node| path(reader, node, file));
        let max_files = section.get("max_files").map_or(Some(1), |node| {
            let files = reader.count(node)?;
            if !(1..=MOST_RECORD_FILES).contains(&files) {
                let fault = Fault::new(node.span.clone(), format!("`max_files` of {files}"));
                reader.fault(fault.help(format!("1 to {MOST_RECORD_FILES}; 1 stops when the file is full")));
            }
            u32::try_from(files).ok()
        });
        Some(Self { path: path?, max_bytes: max_bytes?, max_files: max_files? })
    }
}
