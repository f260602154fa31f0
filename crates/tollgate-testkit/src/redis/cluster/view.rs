//! What one node knows of the cluster (`CLUSTER NODES`).

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::redis::RedisServer;

#[derive(Debug)]
pub(super) struct View(Vec<Node>);

#[derive(Debug)]
pub(super) struct Node {
    port: u16,
    flags: Vec<String>,
    pub(super) epoch: u64,
    slots: Vec<RangeInclusive<u16>>,
}

impl View {
    /// That of a node, unless it does not answer.
    pub(super) fn of(node: &RedisServer) -> Option<Self> {
        let nodes = node.try_client().ok()?.try_command(&["CLUSTER", "NODES"]).ok()?;
        nodes.error().is_none().then(|| Self::parse(nodes.text()))?
    }

    fn parse(text: &str) -> Option<Self> {
        text.lines().map(Node::parse).collect::<Option<_>>().map(Self)
    }

    /// The node itself.
    pub(super) fn myself(&self) -> Option<&Node> {
        self.0.iter().find(|node| node.is("myself"))
    }

    /// Whether it has met as many nodes, itself included.
    pub(super) fn is_settled(&self, count: usize) -> bool {
        self.0.len() == count && self.0.iter().all(|node| !node.is("handshake") && !node.is("noaddr"))
    }

    /// Whether it misses none of those.
    pub(super) fn sees_all(&self, ports: &[u16]) -> bool {
        let is_well =
            |node: &Node| !["fail", "fail?", "handshake", "noaddr"].iter().any(|flag| node.is(flag));
        ports.iter().all(|&port| self.0.iter().any(|node| node.port == port && is_well(node)))
    }

    /// Which node has which slots, by ports.
    pub(super) fn owners(&self) -> BTreeMap<u16, &[RangeInclusive<u16>]> {
        let with_slots = self.0.iter().filter(|node| !node.slots.is_empty());
        with_slots.map(|node| (node.port, node.slots.as_slice())).collect()
    }

    pub(super) fn count_of_slots(&self) -> u32 {
        let slots = self.0.iter().flat_map(|node| &node.slots);
        slots.map(|range| u32::from(range.end() - range.start()) + 1).sum()
    }
}

impl Node {
    /// `id address flags primary ping pong epoch link slots…`, where the address is `host:port@bus`.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let address = words.nth(1)?;
        let port = address.split('@').next()?.rsplit(':').next()?.parse().ok()?;
        let flags = words.next()?.split(',').map(str::to_owned).collect();
        let epoch = words.nth(3)?.parse().ok()?;
        // A slot in brackets is on its way, and stands among the others as well where it is still had.
        let slots = words.skip(1).filter(|word| !word.starts_with('['));
        let slots = slots.map(|word| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            Some(first.parse().ok()?..=last.parse().ok()?)
        });
        Some(Self { port, flags, epoch, slots: slots.collect::<Option<_>>()? })
    }

    fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|known| known == flag)
    }

    pub(super) fn has(&self, slot: u16) -> bool {
        self.is("master") && self.slots.iter().any(|range| range.contains(&slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_says_is_read() {
        let view = View::parse(
            "07c3 127.0.0.1:30004@31004,host slave e7d1 0 1426238317239 4 connected\n\
             67ed 127.0.0.1:30002@31002 master,fail? - 0 1426238316232 2 disconnected 5461-10922 12000\n\
             e7d1 127.0.0.1:30001@31001 myself,master - 0 0 7 connected 0-5460 [93-<-67ed] [77->-67ed]\n",
        );
        let view = view.unwrap();
        let myself = view.myself().unwrap();
        assert_eq!((myself.port, myself.epoch), (30001, 7));
        assert!(myself.has(0) && myself.has(5460) && !myself.has(5461));
        assert_eq!(view.count_of_slots(), 5461 + 5462 + 1);
        assert_eq!(view.owners().into_keys().collect::<Vec<_>>(), [30001, 30002]);
        assert!(view.is_settled(3) && !view.is_settled(4));
        assert!(view.sees_all(&[30001, 30004]) && !view.sees_all(&[30002]) && !view.sees_all(&[30003]));
    }
}
