//! Where the state of keys is kept.

use std::path::Path;
use std::time::Duration;

use tollgate::WhenFull;

use super::OnError;
use super::settings::path;
use crate::fault::Fault;
use crate::keys;
use crate::reader::Reader;
use crate::yaml::{Node, Value};

/// Where the state of keys is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreSettings {
    /// In this process.
    Memory(Memory),
    /// In Redis or Valkey.
    Redis(Box<Redis>),
}

/// The bounds of the memory store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The most keys.
    pub max_keys: Option<u64>,
    /// The most bytes.
    pub max_bytes: Option<usize>,
    /// What becomes of a new key when all places are in use.
    pub when_full: WhenFull,
    /// The directory long quotas are kept in.
    pub persist: Option<String>,
}

/// How to reach Redis, and what to do when it cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redis {
    /// One server, several of a cluster, or Sentinels.
    pub urls: Vec<String>,
    /// Whether they are a cluster.
    pub cluster: bool,
    /// The master's name, where they are Sentinels.
    pub sentinel: Option<String>,
    /// Whether tokens are drawn in advance, and how long a grant should last then.
    pub lease: Option<Duration>,
    /// How long an answer may take.
    pub deadline: Duration,
    /// What is decided when there is none.
    pub on_error: OnError,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self::Memory(Memory::default())
    }
}

impl StoreSettings {
    pub(super) fn read(reader: &Reader<'_>, node: &Node, file: &Path) -> Self {
        if let Value::Text(_) = node.value {
            reader.word(node, &["memory"]);
            return Self::default();
        }
        let Some(section) = reader.section(node, keys::STORE) else { return Self::default() };
        match (section.get("memory"), section.get("redis")) {
            (Some(_), Some(node)) => {
                let fault = Fault::new(node.span.clone(), "two stores");
                reader.fault(fault.help("keep `memory` or `redis`"));
                Self::default()
            }
            (Some(node), None) => Memory::read(reader, node, file).map_or_else(Self::default, Self::Memory),
            (None, Some(node)) => {
                Redis::read(reader, node).map_or_else(Self::default, |redis| Self::Redis(Box::new(redis)))
            }
            (None, None) => Self::default(),
        }
    }
}

impl Memory {
    fn read(reader: &Reader<'_>, node: &Node, file: &Path) -> Option<Self> {
        let section = reader.section(node, keys::MEMORY)?;
        let when_full = section.word(reader, "when_full");
        let persist = section.section(reader, "persist").and_then(|section| {
            section.require(reader, "path", "./state").and_then(|node| path(reader, node, file))
        });
        Some(Self {
            max_keys: section.get("max_keys").and_then(|node| reader.positive(node, "`max_keys`")),
            max_bytes: section.get("max_bytes").and_then(|node| reader.bytes(node)),
            when_full: [WhenFull::Evict, WhenFull::Deny, WhenFull::Allow][when_full.unwrap_or(0)],
            persist,
        })
    }
}

impl Redis {
    fn read(reader: &Reader<'_>, node: &Node) -> Option<Self> {
        let section = reader.section(node, keys::REDIS)?;
        let urls: Vec<String> = match (section.get("url"), section.get("urls")) {
            (Some(url), None) => reader.text(url).into_iter().collect(),
            (None, Some(urls)) => reader.list(urls).iter().filter_map(|node| reader.text(node)).collect(),
            (None, None) => {
                section.require(reader, "url", "redis://127.0.0.1:6379")?;
                return None;
            }
            (Some(_), Some(node)) => {
                reader
                    .fault(Fault::new(node.span.clone(), "both `url` and `urls`").help("write one of them"));
                return None;
            }
        };
        let cluster = section.get("cluster").and_then(|node| reader.flag(node)).unwrap_or(false);
        let sentinel = section.section(reader, "sentinel").and_then(|section| {
            section.require(reader, "master", "mymaster").and_then(|node| reader.text(node))
        });
        if cluster && sentinel.is_some() {
            let fault = Fault::new(section.span.clone(), "both `cluster` and `sentinel`");
            reader.fault(fault.help("servers are a cluster or have Sentinels, not both"));
        }
        let is_lease = section.word(reader, "mode") == Some(1);
        let sync = section
            .section(reader, "lease")
            .and_then(|section| section.get("sync").and_then(|node| reader.time(node)));
        Some(Self {
            urls,
            cluster,
            sentinel,
            lease: is_lease.then(|| sync.unwrap_or(Duration::from_millis(100))),
            deadline: section
                .get("deadline")
                .and_then(|node| reader.time(node))
                .unwrap_or(Duration::from_millis(5)),
            on_error: OnError::read(reader, &section).unwrap_or_default(),
        })
    }
}
