//! A cluster: which server has which slots, and how that stays known.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, ServerError, Value};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::connector::{Address, ask_all, text};
use super::error::{LinkError, text_of};
use super::health::{BreakerState, Counters, ShardHealth};
use super::shard::{Common, Finder, Shard};
use super::slot::SLOTS;
use super::task::jittered;
use super::told::Reason;

/// As many servers are known; a map that names more is refused. Redis advises against more than 1000.
const MOST_SERVERS: usize = 1024;

/// How long a server has to tell the map.
const PATIENCE: Duration = Duration::from_millis(200);

/// The map is not asked for more often.
const SPACING: Duration = Duration::from_millis(100);

/// How often it is asked for while some server cannot be reached: a replica takes its place soon.
const WHILE_DOWN: Duration = Duration::from_millis(150);

/// How often it is asked for though nothing seems wrong.
const WHILE_UP: Duration = Duration::from_secs(10);

/// A cluster.
pub(super) struct Cluster {
    seeds: Vec<Address>,
    common: Arc<Common>,
    map: ArcSwap<Map>,
    changing: Mutex<()>,                 // held while the map is changed
    unknown: Mutex<(Arc<str>, Instant)>, // why there is no map, and since when it lacks servers
}

/// Which server has which slots.
struct Map {
    owners: Box<[u16]>, // by slot, a place in `servers`
    servers: Vec<Arc<Shard>>,
}

impl Map {
    fn owner(&self, slot: usize) -> Option<&Arc<Shard>> {
        self.servers.get(usize::from(self.owners[slot]))
    }
}

/// The owner of a slot that has none.
const NOBODY: u16 = u16::MAX;

impl Cluster {
    pub(super) fn new(seeds: Vec<Address>, common: Arc<Common>) -> Self {
        let map = Map { owners: vec![NOBODY; SLOTS].into(), servers: Vec::new() };
        let reason = "no server has told which slots the cluster's servers have".into();
        Self {
            seeds,
            common,
            map: ArcSwap::from_pointee(map),
            changing: Mutex::new(()),
            unknown: Mutex::new((reason, Instant::now())),
        }
    }

    /// The server that has a slot.
    pub(super) fn owner(&self, slot: usize) -> Result<Arc<Shard>, LinkError> {
        let map = self.map.load();
        if let Some(owner) = map.owner(slot) {
            return Ok(Arc::clone(owner));
        }
        // Locked once: a second time within the statement would wait for the first, for ever.
        let (unknown, since) = self.unknown.lock().clone();
        let reason =
            if map.servers.is_empty() { unknown } else { format!("no server has slot {slot}").into() };
        let probe_at = Instant::now() + WHILE_DOWN;
        Err(LinkError::Open { shard: "cluster".into(), reason, since, probe_at })
    }

    /// The server that another one sent us to; a new one if it is not known. Nothing where there are too many.
    pub(super) fn at(&self, address: &Address) -> Option<Arc<Shard>> {
        let known =
            |map: &Map| map.servers.iter().find(|known| known.address().as_ref() == Some(address)).cloned();
        if let Some(known) = known(&self.map.load()) {
            return Some(known);
        }
        let _held = self.changing.lock();
        let map = self.map.load();
        if let Some(known) = known(&map) {
            return Some(known);
        }
        if map.servers.len() >= MOST_SERVERS {
            return None;
        }
        let new = self.start(address);
        let servers = map.servers.iter().cloned().chain([Arc::clone(&new)]).collect();
        self.map.store(Arc::new(Map { owners: map.owners.clone(), servers }));
        Some(new)
    }

    /// Whether every slot has a server that can be reached.
    pub(super) fn is_up(&self) -> bool {
        let map = self.map.load();
        !map.owners.contains(&NOBODY) && map.servers.iter().all(|server| server.is_up())
    }

    pub(super) fn health(&self) -> Vec<ShardHealth> {
        let map = self.map.load();
        if !map.servers.is_empty() {
            return map.servers.iter().map(|server| server.health()).collect();
        }
        let (reason, since) = self.unknown.lock().clone();
        let unknown = |seed: &Address| {
            let reason = Some(reason.to_string());
            let name = seed.to_string();
            Counters::default().health(name.clone(), name, BreakerState::Open, since.elapsed(), reason)
        };
        self.seeds.iter().map(unknown).collect()
    }

    /// Keeps the map true, as long as the cluster is there.
    pub(super) async fn keep(self: Arc<Self>) {
        let mut told_why = Reason::default();
        loop {
            let asked = Instant::now();
            match self.ask().await {
                Ok(told) => {
                    self.adopt(&told);
                    told_why.is_over();
                }
                Err(reason) => {
                    if told_why.is_news(&reason, asked) {
                        tracing::warn!(
                            shard = "cluster",
                            reason,
                            "the store's cluster does not tell its map"
                        );
                    }
                    self.unknown.lock().0 = reason.into();
                }
            }
            self.common.changed.notify_waiters();
            let next = asked + if self.is_up() { WHILE_UP } else { jittered(WHILE_DOWN) };
            let _ = timeout_at(next, self.common.rediscover.notified()).await;
            sleep_until(asked + SPACING).await;
        }
    }

    /// The map as the first server that answers has it: one in use, each in turn, or one that we were told of.
    async fn ask(&self) -> Result<Told, String> {
        let mut servers = self.map.load().servers.clone();
        let turn = getrandom::u32().unwrap_or(0) as usize % servers.len().max(1);
        servers.rotate_left(turn);
        let mut reasons = Vec::new();
        for server in servers {
            if let (Some(mut connection), Some(address)) = (server.connection(), server.address()) {
                match self.ask_one(&mut connection, &address).await {
                    Ok(told) => return Ok(told),
                    Err(reason) => reasons.push(format!("{address}: {reason}")),
                }
            }
        }
        for seed in &self.seeds {
            match self.common.connector.connect(seed).await {
                Ok(mut connection) => match self.ask_one(&mut connection.redis, seed).await {
                    Ok(told) => return Ok(told),
                    Err(reason) => reasons.push(format!("{seed}: {reason}")),
                },
                Err(reason) => reasons.push(reason),
            }
        }
        Err(reasons.join("; "))
    }

    async fn ask_one(&self, connection: &mut MultiplexedConnection, asked: &Address) -> Result<Told, String> {
        let is_tls = self.common.connector.tls.is_some();
        let within = self.common.deadline.max(PATIENCE);
        let shards = ask_cluster(connection, "SHARDS", within).await?;
        let told = match shards {
            Value::ServerError(_) => match ask_cluster(connection, "SLOTS", within).await? {
                Value::ServerError(error) => return Err(no_map(&error)),
                slots => read_slots(&slots, asked),
            },
            shards => read_shards(&shards, asked, is_tls),
        };
        let told = told.ok_or("its map of the cluster cannot be read")?;
        if told.ranges.is_empty() {
            return Err("its map of the cluster is empty".to_owned());
        }
        if told.servers.len() > MOST_SERVERS {
            return Err(format!(
                "its map names {} servers, at most {MOST_SERVERS} are used",
                told.servers.len()
            ));
        }
        Ok(told)
    }

    /// Uses a new map. Servers that it has too keep their connections; those that it has no more lose them.
    fn adopt(&self, told: &Told) {
        let _held = self.changing.lock();
        let before = self.map.load();
        let known = |address| before.servers.iter().find(|known| known.address().as_ref() == Some(address));
        let mut owners = vec![NOBODY; SLOTS];
        let mut servers = Vec::new();
        for (index, address) in told.servers.iter().enumerate() {
            let ranges = told.ranges.iter().filter(|range| range.owner == index);
            let mut first = None;
            for range in ranges {
                owners[range.first..=range.last].fill(servers.len() as u16); // at most MOST_SERVERS
                first = first.or(Some(range.first));
            }
            match known(address) {
                Some(known) => servers.push(Arc::clone(known)),
                None if first.is_some() => servers.push(self.start(address)),
                None => continue, // it is connected to when a slot is on its way there
            }
            if let (Some(slot), Some(server)) = (first, servers.last()) {
                server.has_slot(slot);
            }
        }
        if owners.contains(&NOBODY) && !before.owners.contains(&NOBODY) {
            self.unknown.lock().1 = Instant::now();
        }
        let map = Map { owners: owners.into(), servers };
        let is_same = (0..SLOTS).all(|slot| match (map.owner(slot), before.owner(slot)) {
            (Some(owner), Some(before)) => Arc::ptr_eq(owner, before),
            (owner, before) => owner.is_none() && before.is_none(),
        });
        self.map.store(Arc::new(map));
        if !is_same {
            self.common.count_change();
        }
    }

    fn start(&self, address: &Address) -> Arc<Shard> {
        let finder = Finder::At(address.clone());
        Shard::start(&address.to_string(), Some(address.clone()), finder, Arc::clone(&self.common))
    }
}

/// A map as a server tells it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    servers: Vec<Address>, // primaries
    ranges: Vec<Range>,
}

#[derive(Debug, PartialEq, Eq)]
struct Range {
    first: usize,
    last: usize,
    owner: usize, // a place in `servers`
}

impl Told {
    fn server(&mut self, address: Address) -> usize {
        if let Some(known) = self.servers.iter().position(|known| *known == address) {
            return known;
        }
        self.servers.push(address);
        self.servers.len() - 1
    }

    fn range(&mut self, first: usize, last: usize, owner: usize) -> Option<()> {
        (first <= last && last < SLOTS).then(|| self.ranges.push(Range { first, last, owner }))
    }
}

async fn ask_cluster(
    connection: &mut MultiplexedConnection,
    what: &str,
    within: Duration,
) -> Result<Value, String> {
    let mut question = Pipeline::new();
    question.cmd("CLUSTER").arg(what);
    let mut answers = ask_all(connection, &question, within).await?;
    answers.pop().ok_or_else(|| "no answer".to_owned())
}

fn no_map(error: &ServerError) -> String {
    let text = text_of(error);
    if text.contains("cluster support disabled") {
        return format!("this server is not in a cluster: `cluster: true` must not stand there ({text})");
    }
    format!("CLUSTER SLOTS is answered `{text}`")
}

/// Reads the answer to CLUSTER SHARDS: of each shard its slots and nodes, as lists of names and values.
fn read_shards(answer: &Value, asked: &Address, is_tls: bool) -> Option<Told> {
    let mut told = Told::default();
    for shard in list(answer)? {
        let nodes = list(field(shard, "nodes")?)?;
        let is_primary = |node: &&Value| field(node, "role").and_then(text) == Some("master");
        let is_online = |node: &&Value| field(node, "health").and_then(text) == Some("online");
        let Some(primary) =
            nodes.iter().filter(is_primary).find(is_online).or_else(|| nodes.iter().find(is_primary))
        else {
            continue;
        };
        let slots = list(field(shard, "slots")?)?;
        if slots.is_empty() && !is_online(&primary) {
            continue; // one whose slots a replica has taken over
        }
        let port = field(primary, if is_tls { "tls-port" } else { "port" }).and_then(number);
        let endpoint = field(primary, "endpoint").and_then(text).unwrap_or_default();
        let Some(address) = address(endpoint, port, asked) else { continue };
        let owner = told.server(address);
        for range in slots.chunks_exact(2) {
            told.range(number(&range[0])?, number(&range[1])?, owner)?;
        }
    }
    Some(told)
}

/// Reads the answer to CLUSTER SLOTS: of each range its ends and nodes, the primary first.
fn read_slots(answer: &Value, asked: &Address) -> Option<Told> {
    let mut told = Told::default();
    for range in list(answer)? {
        let [first, last, primary, ..] = list(range)? else { return None };
        let [endpoint, port, ..] = list(primary)? else { return None };
        let Some(address) = address(text(endpoint).unwrap_or_default(), number(port), asked) else {
            continue;
        };
        let owner = told.server(address);
        told.range(number(first)?, number(last)?, owner)?;
    }
    Some(told)
}

/// No endpoint means the host that was asked, and `?` that it is not known.
fn address(endpoint: &str, port: Option<usize>, asked: &Address) -> Option<Address> {
    let port = u16::try_from(port?).ok().filter(|&port| port != 0)?;
    match endpoint {
        "?" => None,
        "" => Some(Address { host: Arc::clone(&asked.host), port }),
        host => Some(Address { host: host.into(), port }),
    }
}

fn list(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(values) => Some(values),
        _ => None,
    }
}

fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    list(value)?.chunks_exact(2).find(|pair| text(&pair[0]) == Some(name)).map(|pair| &pair[1])
}

fn number(value: &Value) -> Option<usize> {
    match value {
        Value::Int(number) => usize::try_from(*number).ok(),
        value => text(value)?.parse().ok(),
    }
}

#[cfg(test)]
mod tests;
