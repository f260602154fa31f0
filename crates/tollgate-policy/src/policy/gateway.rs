//! The reverse proxy, and how rates follow the load.

use std::time::Duration;

use crate::fault::Fault;
use crate::keys;
use crate::reader::Reader;
use crate::yaml::{Node, Value};

/// A reverse proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// The application, or several of it.
    pub upstreams: Vec<String>,
    /// How many requests it gets at once.
    pub slots: Option<Slots>,
    /// How they are shared.
    pub fair_queue: Option<FairQueue>,
}

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
    pub per_key: Option<u64>,
    /// How long a request waits at most.
    pub max_wait: Option<Duration>,
}

impl Gateway {
    pub(super) fn read(reader: &Reader<'_>, node: &Node) -> Option<Self> {
        let section = reader.section(node, keys::GATEWAY)?;
        let upstreams = section.require(reader, "upstream", "http://127.0.0.1:9000");
        let url = |text: &str| match text.strip_prefix("http://") {
            Some(host) if !host.is_empty() => Ok(text.to_owned()),
            _ => Err("write an upstream as http://127.0.0.1:9000".into()),
        };
        Some(Self {
            upstreams: reader
                .one_or_more(upstreams?)
                .iter()
                .filter_map(|node| reader.read(node, url))
                .collect(),
            slots: section.get("concurrency").and_then(|node| Slots::read(reader, node)),
            fair_queue: section.get("fair_queue").and_then(|node| FairQueue::read(reader, node)),
        })
    }
}

impl Slots {
    fn read(reader: &Reader<'_>, node: &Node) -> Option<Self> {
        let section = reader.section(node, keys::SLOTS)?;
        let adaptive = section.word(reader, "adaptive");
        let count = |key: &str| section.get(key).and_then(|node| reader.positive(node, key));
        let max = section.require(reader, "max", "64").and(count("max"))?;
        let min = count("min").unwrap_or(1);
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
        Some(Self {
            by: section.require(reader, "by", "tenant").and_then(|node| reader.text(node))?,
            per_key: section.get("per_key").and_then(|node| reader.positive(node, "`per_key`")),
            max_wait: section.get("max_wait").and_then(|node| reader.time(node)),
        })
    }
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
        let floor = section.get("floor").map_or(Some(100), |node| thousandths(reader, node));
        let (high, low) = (high?, low?);
        if low >= high {
            let fault =
                Fault::new(section.span.clone(), format!("`low` of {low:?} is not below `high` of {high:?}"));
            reader.fault(fault.help("leave room between them, lest rates go up and down all the time"));
        }
        Some(Self { high, low, floor: floor? })
    }
}

fn thousandths(reader: &Reader<'_>, node: &Node) -> Option<u32> {
    let value = match node.value {
        Value::Float(number) => number,
        Value::Integer(number) => number as f64,
        _ => -1.0,
    };
    if !(0.001..=1.0).contains(&value) {
        let fault = Fault::new(node.span.clone(), "this cannot be a floor");
        reader.fault(fault.help("write a number from 0.001 to 1"));
        return None;
    }
    #[expect(clippy::cast_sign_loss, reason = "between 1 and 1000")]
    Some((value * 1000.0).round() as u32)
}
