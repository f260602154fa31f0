//! The reverse proxy, and how rates follow the load.

use std::time::Duration;

use crate::fault::Fault;
use crate::keys;
use crate::reader::Reader;
use crate::yaml::{Node, Value};

/// A reverse proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// The application, or several of it: each a host and a port, such as `127.0.0.1:9000`.
    pub upstreams: Vec<String>,
    /// How many requests it gets at once.
    pub slots: Option<Slots>,
    /// How they are shared.
    pub fair_queue: Option<FairQueue>,
    /// How long is waited for whom.
    pub timeouts: Timeouts,
    /// The largest body of a request.
    pub max_body: u64,
}

/// How long is waited for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For the application to accept a connection.
    pub connect: Duration,
    /// For its answer to begin, and for each piece of it.
    pub answer: Duration,
    /// For the client's next request, and for each piece of its body.
    pub idle: Duration,
    /// The least average rate at which a client sends the body of a request.
    pub upload: Option<MinRate>,
    /// The least average rate at which a client reads an answer.
    pub download: Option<MinRate>,
}

/// The least average rate at which a client moves bytes, while it is the client that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinRate {
    /// How long a client may move nothing at first.
    pub grace: Duration,
    /// Never zero.
    pub bytes_per_second: u64,
}

impl MinRate {
    const GRACE: Duration = Duration::from_secs(10);
    const UPLOAD: u64 = 4 << 10;
    const DOWNLOAD: u64 = 16 << 10;
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            answer: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            upload: Some(MinRate { grace: MinRate::GRACE, bytes_per_second: MinRate::UPLOAD }),
            download: Some(MinRate { grace: MinRate::GRACE, bytes_per_second: MinRate::DOWNLOAD }),
        }
    }
}

/// The largest body of a request, unless told.
const MAX_BODY: u64 = 1 << 30;

/// How many requests the application gets at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// The fewest, where it adapts.
    pub min: u64,
    /// The most.
    pub max: u64,
    /// Which controller finds the number, if one does.
    pub adaptive: Option<Adaptive>,
}

/// What the number of slots is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adaptive {
    /// How latency changes.
    Gradient,
    /// Drops and timeouts.
    Aimd,
    /// The queue that latency tells of.
    Vegas,
}

/// How slots are shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FairQueue {
    /// The attribute that tells tenants apart.
    pub by: String,
    /// The most of one tenant that wait.
    pub per_key: u64,
    /// How long a request waits at most.
    pub max_wait: Duration,
    /// What is shared, where the policy says so.
    pub work: Option<Work>,
}

/// What a fair queue shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The time that requests take.
    Time,
    /// What the policy says that they cost.
    Cost,
}

impl FairQueue {
    /// The most of one tenant that wait, unless told.
    pub const PER_KEY: u64 = 50;
    /// How long a request waits at most, unless told.
    pub const MAX_WAIT: Duration = Duration::from_secs(2);
}

impl Gateway {
    pub(super) fn read(reader: &Reader<'_>, node: &Node) -> Option<Self> {
        let section = reader.section(node, keys::GATEWAY)?;
        let upstreams = section.require(reader, "upstream", "http://127.0.0.1:9000");
        let upstreams = upstreams.map(|node| read_upstreams(reader, node));
        let slots = section.get("concurrency").and_then(|node| Slots::read(reader, node));
        let queue = section.get("fair_queue");
        if let (Some(node), None) = (queue, section.get("concurrency")) {
            let fault = Fault::new(node.span.clone(), "a queue that nobody ever waits in");
            reader.fault(
                fault.help("say how many requests the application gets at once: `concurrency: { max: 64 }`"),
            );
        }
        let fair_queue = queue.and_then(|node| FairQueue::read(reader, node));
        let timeouts = section.get("timeouts").and_then(|node| Timeouts::read(reader, node));
        let max_body = section.get("max_body").and_then(|node| reader.bytes(node));
        Some(Self {
            upstreams: upstreams?,
            slots,
            fair_queue,
            timeouts: timeouts.unwrap_or_default(),
            max_body: max_body.map_or(MAX_BODY, |bytes| bytes as u64),
        })
    }
}

/// One place or several, each once.
fn read_upstreams(reader: &Reader<'_>, node: &Node) -> Vec<String> {
    let nodes = reader.one_or_more(node);
    if nodes.is_empty() {
        let fault = Fault::new(node.span.clone(), "no upstream");
        reader.fault(fault.help("write where the application is: `upstream: http://127.0.0.1:9000`"));
    }
    let mut upstreams = Vec::new();
    for node in nodes {
        let Some(upstream) = reader.read(node, upstream) else { continue };
        if upstreams.contains(&upstream) {
            let fault = Fault::new(node.span.clone(), format!("{upstream} a second time"));
            reader.fault(fault.help("name each place once: requests go to the one that has the fewest"));
        }
        upstreams.push(upstream);
    }
    upstreams
}

/// The host and the port of `http://host:port`.
fn upstream(text: &str) -> Result<String, String> {
    let refused = || "write an upstream as http://127.0.0.1:9000, without a path".to_owned();
    if text.starts_with("https://") {
        return Err(
            "the gateway speaks plain HTTP/1.1 to the application: write http://host:port, and put what \
                    speaks TLS to it beside the gateway"
                .to_owned(),
        );
    }
    let host = text.strip_prefix("http://").ok_or_else(refused)?;
    let host = host.strip_suffix('/').unwrap_or(host);
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    let is_name = |name: &str| match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        }
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    if !is_name(name) || !port.is_none_or(is_port) {
        return Err(refused());
    }
    Ok(format!("{name}:{}", port.unwrap_or("80")))
}

impl Timeouts {
    fn read(reader: &Reader<'_>, node: &Node) -> Option<Self> {
        let section = reader.section(node, keys::TIMEOUTS)?;
        let time = |key: &str, default: Duration| {
            let Some(node) = section.get(key) else { return Some(default) };
            let time = reader.time(node)?;
            if time.is_zero() {
                let fault = Fault::new(node.span.clone(), "no time at all");
                reader.fault(fault.help("write how long is waited, such as 60s"));
            }
            Some(time)
        };
        let Self { connect, answer, idle, .. } = Self::default();
        let times = (time("connect", connect), time("answer", answer), time("idle", idle));
        let grace = time("grace", MinRate::GRACE);
        let rate = |key: &str, default: u64| match section.get(key) {
            None => Some(Some(default)),
            Some(node) => read_min_rate(reader, node),
        };
        let rates = (rate("min_upload_rate", MinRate::UPLOAD), rate("min_download_rate", MinRate::DOWNLOAD));
        let grace = grace?;
        let min_rate = |rate: Option<u64>| rate.map(|bytes_per_second| MinRate { grace, bytes_per_second });
        Some(Self {
            connect: times.0?,
            answer: times.1?,
            idle: times.2?,
            upload: min_rate(rates.0?),
            download: min_rate(rates.1?),
        })
    }
}

/// Bytes per second; none for `off`.
#[expect(clippy::option_option, reason = "the outer one is a fault that has been reported")]
fn read_min_rate(reader: &Reader<'_>, node: &Node) -> Option<Option<u64>> {
    if matches!(&node.value, Value::Bool(false)) || matches!(&node.value, Value::Text(text) if text == "off")
    {
        return Some(None);
    }
    let bytes = reader.bytes(node)?;
    if bytes == 0 {
        let fault = Fault::new(node.span.clone(), "a rate of 0");
        reader.fault(fault.help("write bytes per second, such as 4KiB, or `off`"));
        return None;
    }
    Some(Some(bytes as u64))
}

impl Slots {
    fn read(reader: &Reader<'_>, node: &Node) -> Option<Self> {
        let section = reader.section(node, keys::SLOTS)?;
        let adaptive = section.word(reader, "adaptive");
        let count = |key: &str| section.get(key).and_then(|node| reader.positive(node, &format!("`{key}`")));
        let max = section.require(reader, "max", "64").and(count("max"));
        let min = count("min").unwrap_or(1);
        if let (Some(node), None) = (section.get("min"), section.get("adaptive")) {
            let fault = Fault::new(node.span.clone(), "a least number of slots that never change");
            reader.fault(fault.help("leave `min` out, or say what finds their number: `adaptive: gradient`"));
        }
        let max = max?;
        if min > max {
            let fault = Fault::new(section.span.clone(), format!("`min` of {min} above `max` of {max}"));
            reader.fault(fault.help("write the smaller one as `min`"));
        }
        Some(Self {
            min,
            max,
            adaptive: adaptive.map(|place| [Adaptive::Gradient, Adaptive::Aimd, Adaptive::Vegas][place]),
        })
    }
}

impl FairQueue {
    fn read(reader: &Reader<'_>, node: &Node) -> Option<Self> {
        let section = reader.section(node, keys::FAIR_QUEUE)?;
        let by = section.require(reader, "by", "tenant").and_then(|node| reader.read(node, attribute));
        let queue = Self {
            by: by.clone().unwrap_or_default(),
            per_key: section
                .get("per_key")
                .and_then(|node| reader.positive(node, "`per_key`"))
                .unwrap_or(Self::PER_KEY),
            max_wait: section.get("max_wait").and_then(|node| reader.time(node)).unwrap_or(Self::MAX_WAIT),
            work: section.word(reader, "work").map(|place| [Work::Time, Work::Cost][place]),
        };
        by.map(|_| queue)
    }
}

/// What the gateway knows of a request.
fn attribute(text: &str) -> Result<String, String> {
    let is_known = ["tenant", "user", "ip", "method", "path", "host"].contains(&text);
    let is_header = text.strip_prefix("header.").is_some_and(|name| !name.is_empty());
    if is_known || is_header {
        return Ok(text.to_owned());
    }
    Err("requests are told apart by `tenant`, `user`, `ip`, `host`, `path`, `method`, or a header such as \
         `header.x-api-key`"
        .to_owned())
}

/// One multiplier on every rate while the upstream is overloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveRates {
    /// A delay above which rates go down.
    pub high: Duration,
    /// One below which they go up again.
    pub low: Duration,
    /// The least the multiplier can be, in thousandths.
    pub floor: u32,
}

impl AdaptiveRates {
    pub(super) fn read(reader: &Reader<'_>, node: &Node) -> Option<Self> {
        let section = reader.section(node, keys::ADAPTIVE_RATES)?;
        let time = |key: &str, example: &str| {
            section.require(reader, key, example).and_then(|node| reader.time(node))
        };
        let (high, low) = (time("high", "20ms"), time("low", "10ms"));
        let floor =
            section.get("floor").map_or(Some(100), |node| reader.thousandths(node, "this cannot be a floor"));
        let (high, low) = (high?, low?);
        if low >= high {
            let fault =
                Fault::new(section.span.clone(), format!("`low` of {low:?} is not below `high` of {high:?}"));
            reader.fault(fault.help("leave room between them, lest rates go up and down all the time"));
        }
        Some(Self { high, low, floor: floor? })
    }
}
