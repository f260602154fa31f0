//! Six Redis servers as one cluster.

use std::time::Duration;

use super::server::{RedisServer, field_of};
use super::slot::SLOTS;
use crate::real_time::eventually;
use view::View;

mod migration;
#[cfg(test)]
mod tests;
mod view;

pub use migration::Migration;

/// Nodes that slots are given to at first. As many replicas follow, in the same order.
const PRIMARIES: usize = 3;

/// Three primaries (nodes 0 to 2) with a replica each (3 to 5, in the same order), which take over when a primary is
/// gone. The other slots stay in use meanwhile (`cluster-require-full-coverage no`).
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts one whose nodes are missed after a second, and waits until it is whole.
    ///
    /// # Panics
    ///
    /// When there is no `redis-server`, or the cluster does not become whole.
    #[must_use = "it is gone when it is dropped"]
    pub fn start() -> Self {
        Self::with(Duration::from_secs(1), &[])
    }

    /// Starts one whose nodes are missed after `node_timeout`, each with further arguments. With `--requirepass`, give
    /// the same as `--masterauth`.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use = "it is gone when it is dropped"]
    pub fn with(node_timeout: Duration, arguments: &[&str]) -> Self {
        let timeout = node_timeout.as_millis().to_string();
        let mut all = vec![
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            &timeout,
            "--cluster-require-full-coverage",
            "no",
            // A replica takes over however long it has heard nothing, and stays with its primary else.
            "--cluster-replica-validity-factor",
            "0",
            "--cluster-allow-replica-migration",
            "no",
            "--repl-diskless-sync-delay",
            "0",
        ];
        all.extend_from_slice(arguments);
        let cluster = Self { nodes: (0..2 * PRIMARIES).map(|_| RedisServer::with(&all)).collect() };
        cluster.introduce();
        cluster.share_slots();
        cluster.follow();
        cluster.wait_ok();
        cluster
    }

    /// Where its nodes listen.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    /// One of its six nodes.
    ///
    /// # Panics
    ///
    /// When there are fewer.
    pub fn node(&self, index: usize) -> &RedisServer {
        &self.nodes[index]
    }

    /// All of its nodes.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The node that has a slot now. Where none that is up does, it waits until one has taken over.
    ///
    /// # Panics
    ///
    /// When none does.
    pub fn primary_of(&self, slot: u16) -> usize {
        eventually(&format!("a node has slot {slot}"), || {
            let claims = self.views().into_iter().filter_map(|(index, view)| {
                let myself = view.myself()?;
                myself.has(slot).then_some((myself.epoch, index))
            });
            // One that was away may not know yet that another, of a later epoch, has taken over.
            claims.max().map(|(_, index)| index)
        })
    }

    /// The node that has a key's slot now; see [`primary_of`](Self::primary_of).
    ///
    /// # Panics
    ///
    /// When none does.
    pub fn primary_of_key(&self, key: impl AsRef<[u8]>) -> &RedisServer {
        self.node(self.primary_of(super::slot_of(key)))
    }

    /// Ends a node as a crash does.
    pub fn kill(&self, index: usize) {
        self.node(index).kill();
    }

    /// Starts a node again that was killed. It has lost its data, but knows the cluster.
    ///
    /// # Panics
    ///
    /// When it does not answer.
    pub fn restart(&self, index: usize) {
        self.node(index).restart();
    }

    /// Waits until all nodes that are up agree that every slot belongs to one of them, and replicas follow their
    /// primaries: after a [`kill`](Self::kill), until a replica has taken over.
    ///
    /// # Panics
    ///
    /// When they do not.
    pub fn wait_ok(&self) {
        eventually("the cluster is whole", || self.is_ok().then_some(()));
    }

    /// Begins to move a slot: from now on, `from` sends those who ask for keys that it does not have to `to` (`ASK`).
    ///
    /// # Panics
    ///
    /// When the nodes refuse.
    #[must_use = "the slot is moved when it is finished"]
    pub fn migrate_slot(&self, slot: u16, from: usize, to: usize) -> Migration<'_> {
        Migration::begin(self, slot, from, to)
    }

    /// Lets all nodes know each other. Whom a node has not met it would hear of by gossip, but later.
    fn introduce(&self) {
        for (index, node) in self.nodes.iter().enumerate() {
            // Each begins with an epoch of its own, so that none has to be agreed on. One that knows others takes none.
            accept(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
        }
        for (index, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[index + 1..] {
                let (host, port) = (other.address().ip().to_string(), other.port().to_string());
                accept(node, &["CLUSTER", "MEET", &host, &port]);
            }
        }
        eventually("all nodes know each other", || {
            let views = self.views();
            let know_all = views.iter().all(|(_, view)| view.is_settled(self.nodes.len()));
            (views.len() == self.nodes.len() && know_all).then_some(())
        });
    }

    fn share_slots(&self) {
        let share = SLOTS.div_ceil(3);
        for (index, node) in (0u16..).zip(&self.nodes[..PRIMARIES]) {
            let (first, last) = (index * share, ((index + 1) * share).min(SLOTS) - 1);
            accept(node, &["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
        }
    }

    fn follow(&self) {
        let (primaries, replicas) = self.nodes.split_at(PRIMARIES);
        for (primary, replica) in primaries.iter().zip(replicas) {
            accept(replica, &["CLUSTER", "REPLICATE", &self.id_of(primary)]);
        }
    }

    fn id_of(&self, node: &RedisServer) -> String {
        node.command(&["CLUSTER", "MYID"]).text().to_owned()
    }

    fn is_ok(&self) -> bool {
        let views = self.views();
        let Some((_, first)) = views.first() else { return false };
        let owners = first.owners();
        let up: Vec<u16> = self.up().map(|(_, node)| node.port()).collect();
        first.count_of_slots() == u32::from(SLOTS)
            && owners.iter().all(|(port, _)| up.contains(port))
            && views.iter().all(|(_, view)| view.owners() == owners && view.sees_all(&up))
            && views.len() == up.len()
            && self.up().all(|(_, node)| says_ok(node) && is_linked(node))
    }

    /// What each node that is up says.
    fn views(&self) -> Vec<(usize, View)> {
        self.up().filter_map(|(index, node)| Some((index, View::of(node)?))).collect()
    }

    fn up(&self) -> impl Iterator<Item = (usize, &RedisServer)> {
        self.nodes.iter().enumerate().filter(|(_, node)| node.is_up())
    }
}

fn says_ok(node: &RedisServer) -> bool {
    let info = node.try_client().and_then(|mut client| client.try_command(&["CLUSTER", "INFO"]));
    info.is_ok_and(|info| {
        info.error().is_none() && field_of(info.text(), "cluster_state").as_deref() == Some("ok")
    })
}

/// Whether a node has what its primary has. A primary has none.
fn is_linked(node: &RedisServer) -> bool {
    match node.info("replication", "role").as_deref() {
        Some("master") => true,
        Some("slave") => node.info("replication", "master_link_status").as_deref() == Some("up"),
        _ => false,
    }
}

/// Sends what must not be refused.
fn accept(node: &RedisServer, arguments: &[&str]) {
    let reply = node.command(arguments);
    assert!(reply.error().is_none(), "{}: {reply:?}", arguments.join(" "));
}
