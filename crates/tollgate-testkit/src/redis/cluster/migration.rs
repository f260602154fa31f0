//! A slot on its way from one node to another, in steps that a test can look between.

use super::{RedisCluster, accept};
use crate::redis::Reply;

/// How many keys are moved at once.
const BATCH: usize = 100;

/// A slot that is being moved. It stays on its way when this is dropped unfinished.
#[derive(Debug)]
pub struct Migration<'a> {
    cluster: &'a RedisCluster,
    slot: String,
    from: usize,
    to: usize,
}

impl<'a> Migration<'a> {
    pub(super) fn begin(cluster: &'a RedisCluster, slot: u16, from: usize, to: usize) -> Self {
        let migration = Self { cluster, slot: slot.to_string(), from, to };
        let (from_id, to_id) = (cluster.id_of(cluster.node(from)), cluster.id_of(cluster.node(to)));
        // In this order, so that nobody is sent to a node that knows nothing of it.
        migration.set_slot(to, &["IMPORTING", &from_id]);
        migration.set_slot(from, &["MIGRATING", &to_id]);
        migration
    }

    /// The keys that are still where they were, at most `most`.
    ///
    /// # Panics
    ///
    /// When the node does not answer.
    pub fn keys_left(&self, most: usize) -> Vec<Vec<u8>> {
        let from = self.cluster.node(self.from);
        let keys = from.command(&["CLUSTER", "GETKEYSINSLOT", &self.slot, &most.to_string()]);
        keys.array().iter().map(|key| key.bytes().to_vec()).collect()
    }

    /// Moves at most `most` keys, and says how many those were.
    ///
    /// # Panics
    ///
    /// When the nodes refuse.
    pub fn move_keys(&self, most: usize) -> usize {
        let keys = self.keys_left(most);
        self.move_these(&keys);
        keys.len()
    }

    /// Moves those keys.
    ///
    /// # Panics
    ///
    /// When the nodes refuse, or have none of them.
    pub fn move_these<K: AsRef<[u8]>>(&self, keys: &[K]) {
        if keys.is_empty() {
            return;
        }
        let (from, to) = (self.cluster.node(self.from), self.cluster.node(self.to));
        let (host, port) = (to.address().ip().to_string(), to.port().to_string());
        let mut command: Vec<&[u8]> = vec![b"MIGRATE", host.as_bytes(), port.as_bytes(), b"", b"0", b"10000"];
        if let Some(password) = from.password() {
            command.extend([b"AUTH".as_slice(), password.as_bytes()]);
        }
        command.push(b"KEYS");
        command.extend(keys.iter().map(AsRef::as_ref));
        assert_eq!(from.command(&command), Reply::Simple("OK".to_owned()), "slot {}", self.slot);
    }

    /// Moves what is left, gives the slot to its new node, and waits until all know.
    ///
    /// # Panics
    ///
    /// When the nodes refuse.
    pub fn finish(self) {
        while self.move_keys(BATCH) > 0 {}
        let new = self.cluster.id_of(self.cluster.node(self.to));
        // The new node first: were it the last and could not be told, the slot would be nobody's.
        self.set_slot(self.to, &["NODE", &new]);
        self.set_slot(self.from, &["NODE", &new]);
        self.cluster.wait_ok();
    }

    fn set_slot(&self, node: usize, what: &[&str]) {
        accept(self.cluster.node(node), &[&["CLUSTER", "SETSLOT", &self.slot], what].concat());
    }
}
