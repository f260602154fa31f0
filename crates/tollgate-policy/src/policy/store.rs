//! Where the state of keys is kept.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use tollgate::WhenFull;

use super::OnError;
use super::settings::path;
use crate::fault::Fault;
use crate::keys;
use crate::machine_memory::machine_memory;
use crate::quantity::{self, duration_text};
use crate::reader::{Reader, Section};
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
    /// The most bytes, of the policy's limits and of rules that callers send together.
    pub max_bytes: MaxBytes,
    /// What becomes of a new key when all places are in use.
    pub when_full: WhenFull,
    /// The directory long quotas are kept in.
    pub persist: Option<String>,
}

/// The most bytes that keys may take in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaxBytes {
    /// 1 GiB, or a quarter of the memory of the machine (or of its cgroup) where that is less.
    #[default]
    OfMachine,
    /// This many, at least 256 KiB.
    Bytes(usize),
    /// Any number.
    Unlimited,
}

impl MaxBytes {
    /// The bound in bytes. `None` for `unlimited`.
    pub fn bytes(self) -> Option<usize> {
        const GIB: usize = 1 << 30;
        match self {
            Self::OfMachine => Some(
                machine_memory()
                    .map_or(GIB, |memory| usize::try_from(memory / 4).unwrap_or(GIB).clamp(Self::LEAST, GIB)),
            ),
            Self::Bytes(bytes) => Some(bytes),
            Self::Unlimited => None,
        }
    }

    /// A table is made of parts of 64 KiB, and rules that callers send have a quarter of the bytes.
    const LEAST: usize = 256 << 10;

    fn read(reader: &Reader<'_>, node: &Node) -> Option<Self> {
        let parse = |text: &str| match text {
            "unlimited" => Ok(Self::Unlimited),
            _ => match quantity::bytes(text) {
                Ok(bytes) if bytes < Self::LEAST => {
                    Err("it must be at least 256KiB, or `unlimited`".to_owned())
                }
                Ok(bytes) => Ok(Self::Bytes(bytes)),
                Err(help) => Err(format!("{help}, or `unlimited`")),
            },
        };
        reader.quantity(node, parse)
    }
}

/// How to reach Redis, and what to do when it cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redis {
    /// One server, several of a cluster, or Sentinels.
    pub urls: Vec<String>,
    /// Whether they are a cluster.
    pub cluster: bool,
    /// Whose Sentinels they are, where they are.
    pub sentinel: Option<Sentinel>,
    /// The ACL user.
    pub username: Option<String>,
    /// The file with the password.
    pub password_file: Option<String>,
    /// Certificates.
    pub tls: Option<RedisTls>,
    /// How long a grant should last at the present demand (`sync`), if nodes draw grants: `mode: lease`.
    pub lease: Option<Duration>,
    /// How long an answer may take.
    pub deadline: Duration,
    /// What is decided when there is none.
    pub on_error: OnError,
    /// Among how many processes rates are divided then, where they are not counted.
    pub nodes: Option<u64>,
}

/// Sentinels, and who we are to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentinel {
    /// What they call the master.
    pub master: String,
    /// The ACL user.
    pub username: Option<String>,
    /// The file with the password.
    pub password_file: Option<String>,
}

/// The certificates of a client of Redis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisTls {
    /// Whom to trust, if not the system's.
    pub ca_file: Option<String>,
    /// Our own.
    pub cert_file: Option<String>,
    /// Its private key.
    pub key_file: Option<String>,
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
            (Some(memory), Some(redis)) => {
                let fault = Fault::new(redis.span.clone(), "two stores");
                reader.fault(fault.help("keep `memory` or `redis`"));
                Memory::read(reader, memory, file);
                Redis::read(reader, redis, file);
                Self::default()
            }
            (Some(node), None) => Memory::read(reader, node, file).map_or_else(Self::default, Self::Memory),
            (None, Some(node)) => Redis::read(reader, node, file)
                .map_or_else(Self::default, |redis| Self::Redis(Box::new(redis))),
            (None, None) => Self::default(),
        }
    }
}

impl Memory {
    fn read(reader: &Reader<'_>, node: &Node, file: &Path) -> Option<Self> {
        let section = reader.section(node, keys::MEMORY)?;
        let when_full = section.word(reader, "when_full");
        if let Some(node) = section.get("persist") {
            let fault = Fault::new(node.span.clone(), "`persist` is not built yet");
            reader.fault(fault.help("leave it out, or keep states in `redis`, which outlives a restart"));
        }
        let persist = section.section(reader, "persist").and_then(|section| {
            section.require(reader, "path", "./state").and_then(|node| path(reader, node, file))
        });
        Some(Self {
            max_keys: section.get("max_keys").and_then(|node| reader.positive(node, "`max_keys`")),
            max_bytes: section
                .get("max_bytes")
                .and_then(|node| MaxBytes::read(reader, node))
                .unwrap_or_default(),
            when_full: [WhenFull::Evict, WhenFull::Deny, WhenFull::Allow][when_full.unwrap_or(0)],
            persist,
        })
    }
}

/// How long a grant may be made to last.
const SYNC: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(5);

impl Redis {
    const DEFAULT_SYNC: Duration = Duration::from_millis(100);

    fn read(reader: &Reader<'_>, node: &Node, file: &Path) -> Option<Self> {
        let section = reader.section(node, keys::REDIS)?;
        let text = |section: &Section<'_>, key| section.get(key).and_then(|node| reader.text(node));
        let file = |section: &Section<'_>, key| section.get(key).and_then(|node| path(reader, node, file));
        let urls: Vec<String> = match (section.get("url"), section.get("urls")) {
            (Some(url), None) => reader.text(url).into_iter().collect(),
            (None, Some(urls)) => reader.list(urls).iter().filter_map(|node| reader.text(node)).collect(),
            (None, None) => {
                section.require(reader, "url", "redis://127.0.0.1:6379");
                Vec::new()
            }
            (Some(_), Some(node)) => {
                reader
                    .fault(Fault::new(node.span.clone(), "both `url` and `urls`").help("write one of them"));
                Vec::new()
            }
        };
        let cluster = section.get("cluster").and_then(|node| reader.flag(node)).unwrap_or(false);
        let sentinel = section.section(reader, "sentinel").and_then(|section| {
            let master = section.require(reader, "master", "mymaster").and_then(|node| reader.text(node));
            let (username, password_file) = (text(&section, "username"), file(&section, "password_file"));
            Some(Sentinel { master: master?, username, password_file })
        });
        let tls = section.section(reader, "tls").map(|section| {
            let [ca_file, cert_file, key_file] =
                ["ca_file", "cert_file", "key_file"].map(|key| file(&section, key));
            RedisTls { ca_file, cert_file, key_file }
        });
        if cluster && sentinel.is_some() {
            let fault = Fault::new(section.span.clone(), "both `cluster` and `sentinel`");
            reader.fault(fault.help("servers are a cluster or have Sentinels, not both"));
        }
        let mode = section.word(reader, "mode");
        let is_lease = mode == Some(1);
        // A mode that cannot be read is a fault already.
        let is_exact = mode == Some(0) || section.get("mode").is_none();
        if let Some(node) = section.get("lease").filter(|_| is_exact) {
            let fault = Fault::new(node.span.clone(), "`lease` without `mode: lease`");
            reader.fault(fault.help("write `mode: lease`, or leave `lease` out"));
        }
        let sync = section.section(reader, "lease").and_then(|section| {
            let node = section.get("sync")?;
            let sync = reader.time(node)?;
            if !SYNC.contains(&sync) {
                let fault = Fault::new(node.span.clone(), format!("a `sync` of {}", duration_text(sync)));
                reader.fault(fault.help("write a time from `10ms` to `5s`"));
            }
            Some(sync)
        });
        Some(Self {
            urls,
            cluster,
            sentinel,
            lease: is_lease.then(|| sync.unwrap_or(Redis::DEFAULT_SYNC)),
            deadline: section
                .get("deadline")
                .and_then(|node| reader.time(node))
                .unwrap_or(Duration::from_millis(5)),
            on_error: OnError::read(reader, &section).unwrap_or_default(),
            nodes: section.get("nodes").and_then(|node| reader.positive(node, "`nodes`")),
            username: text(&section, "username"),
            password_file: file(&section, "password_file"),
            tls,
        })
    }
}
