//! A primary, two replicas, and the sentinels that choose another primary when it is gone.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::server::{Launch, RedisServer};
use super::{RedisClient, Reply};
use crate::real_time::eventually;

#[cfg(test)]
mod tests;

/// Servers with data, and sentinels: as many of each.
const COUNT: usize = 3;

/// How many sentinels must miss the primary.
const QUORUM: usize = 2;

/// What the sentinels call the primary.
const MASTER_NAME: &str = "tollgate";

/// How long the primary may be silent until it is missed, and how long a failover may take until another is tried.
const DOWN_AFTER: Duration = Duration::from_millis(500);
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(2);

/// Three servers, of which one is the primary, watched by three sentinels.
#[derive(Debug)]
pub struct Sentinels {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
    /// The port of the primary that was killed last.
    killed: Mutex<Option<u16>>,
}

/// Passwords, of which each may be absent.
#[derive(Clone, Copy, Debug, Default)]
pub struct SentinelSecrets<'a> {
    /// What clients, replicas and sentinels authenticate with at the servers.
    pub servers: Option<&'a str>,
    /// What clients and other sentinels authenticate with at a sentinel.
    pub sentinels: Option<&'a str>,
}

impl Sentinels {
    /// Starts all six, and waits until the sentinels know of each other and of the replicas.
    ///
    /// # Panics
    ///
    /// When there is no `redis-server`, or they do not find each other.
    #[must_use = "they are gone when it is dropped"]
    pub fn start() -> Self {
        Self::with(SentinelSecrets::default())
    }

    /// As [`start`](Self::start), with passwords.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use = "they are gone when it is dropped"]
    pub fn with(secrets: SentinelSecrets<'_>) -> Self {
        let servers = servers(secrets);
        let config = config(&servers[0], secrets);
        let mut launch = Launch::with(&["--sentinel"]);
        launch.config = Some(config);
        launch.password = secrets.sentinels.map(str::to_owned);
        let sentinels = (0..COUNT).map(|_| launch.start()).collect();
        let all = Self { servers, sentinels, killed: Mutex::default() };
        all.wait_ok();
        all
    }

    /// Where the sentinels listen.
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::url).collect()
    }

    /// What the sentinels call the primary.
    pub fn master_name(&self) -> &'static str {
        MASTER_NAME
    }

    /// The servers with data: the first was started as the primary.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// The primary, as most sentinels say now. It may be gone without their having noticed.
    ///
    /// # Panics
    ///
    /// When they do not agree.
    pub fn primary(&self) -> &RedisServer {
        eventually("most sentinels agree on a primary", || {
            let told: Vec<u16> = self.sentinels.iter().filter_map(told_by).collect();
            let by_most = |port: u16| told.iter().filter(|&&other| other == port).count() >= QUORUM;
            self.servers.iter().find(|server| by_most(server.port()))
        })
    }

    /// Ends the primary as a crash does, and says which it was.
    ///
    /// # Panics
    ///
    /// When the sentinels do not agree which that is.
    pub fn kill_primary(&self) -> &RedisServer {
        let primary = self.primary();
        *self.killed.lock().unwrap_or_else(PoisonError::into_inner) = Some(primary.port());
        primary.kill();
        primary
    }

    /// Waits until all sentinels that are up name another primary than the one that was killed, and that says it is
    /// one.
    ///
    /// # Panics
    ///
    /// When they do not.
    pub fn wait_for_failover(&self) -> &RedisServer {
        let killed = *self.killed.lock().unwrap_or_else(PoisonError::into_inner);
        eventually("another primary was chosen", || {
            let mut told = self.up().map(told_by);
            let first = told.next()??;
            let is_chosen = Some(first) != killed && told.all(|other| other == Some(first));
            let server = self.servers.iter().find(|server| server.port() == first)?;
            let role = server.info("replication", "role");
            (is_chosen && role.as_deref() == Some("master")).then_some(server)
        })
    }

    /// Waits until every sentinel that is up knows the primary, both replicas and the other sentinels, misses none of
    /// them, and the replicas have what the primary has: also after a killed server was started again.
    ///
    /// # Panics
    ///
    /// When they do not.
    pub fn wait_ok(&self) {
        eventually("the sentinels know all servers", || {
            let know_all = self.up().all(|sentinel| knows_all(sentinel).unwrap_or(false));
            let linked = |server: &&RedisServer| {
                server.info("replication", "master_link_status").as_deref() == Some("up")
            };
            let linked = self.servers.iter().filter(linked).count();
            (know_all && linked == COUNT - 1).then_some(())
        });
    }

    fn up(&self) -> impl Iterator<Item = &RedisServer> {
        self.sentinels.iter().filter(|sentinel| sentinel.is_up())
    }
}

fn servers(secrets: SentinelSecrets<'_>) -> Vec<RedisServer> {
    let mut arguments = vec!["--repl-diskless-sync-delay", "0"];
    if let Some(password) = secrets.servers {
        arguments.extend(["--requirepass", password, "--masterauth", password]);
    }
    let mut servers = vec![RedisServer::with(&arguments)];
    let port = servers[0].port().to_string();
    arguments.extend(["--replicaof", "127.0.0.1", &port]);
    servers.extend((1..COUNT).map(|_| RedisServer::with(&arguments)));
    servers
}

/// The configuration of a sentinel. It has to be a file, in which the sentinel notes what it finds out.
fn config(primary: &RedisServer, secrets: SentinelSecrets<'_>) -> String {
    let mut lines = vec![
        format!("sentinel monitor {MASTER_NAME} 127.0.0.1 {} {QUORUM}", primary.port()),
        format!("sentinel down-after-milliseconds {MASTER_NAME} {}", DOWN_AFTER.as_millis()),
        format!("sentinel failover-timeout {MASTER_NAME} {}", FAILOVER_TIMEOUT.as_millis()),
    ];
    if let Some(password) = secrets.servers {
        lines.push(format!("sentinel auth-pass {MASTER_NAME} {password}"));
    }
    if let Some(password) = secrets.sentinels {
        // For others that ask it, and for itself where it asks others.
        lines.push(format!("requirepass {password}"));
        lines.push(format!("sentinel sentinel-pass {password}"));
    }
    lines.join("\n") + "\n"
}

/// The port of the primary, as a sentinel says.
fn told_by(sentinel: &RedisServer) -> Option<u16> {
    if !sentinel.is_up() {
        return None;
    }
    let reply = ask(&mut sentinel.try_client().ok()?, "GET-MASTER-ADDR-BY-NAME")?;
    match reply {
        Reply::Array(Some(address)) => address.get(1)?.text().parse().ok(),
        _ => None,
    }
}

fn knows_all(sentinel: &RedisServer) -> Option<bool> {
    let mut client = sentinel.try_client().ok()?;
    let master = ask(&mut client, "MASTER")?;
    let flags = field(&master, "flags")? == "master";
    let others = field(&master, "num-other-sentinels")? == (COUNT - 1).to_string();
    // Connected to all that it knows, and missing none.
    let mut are_well = |what: &str, flag: &str| {
        let known = ask(&mut client, what)?;
        let is_well = known.array().iter().all(|one| field(one, "flags") == Some(flag));
        Some(is_well && known.array().len() == COUNT - 1)
    };
    Some(flags && others && are_well("REPLICAS", "slave")? && are_well("SENTINELS", "sentinel")?)
}

fn ask(client: &mut RedisClient, what: &str) -> Option<Reply> {
    client.try_command(&["SENTINEL", what, MASTER_NAME]).ok().filter(|reply| reply.error().is_none())
}

/// A value in an array of names and values.
fn field<'a>(fields: &'a Reply, name: &str) -> Option<&'a str> {
    let mut pairs = fields.array().chunks_exact(2);
    pairs.find(|pair| pair[0].text() == name).map(|pair| pair[1].text())
}
