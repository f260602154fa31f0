//! The permits of a key that holds many of them: two search trees over one list of nodes.
//!
//! The first tree has the order in which leases end, and each node knows the cost of its subtree. The second tree has the order
//! of the permit IDs. Every operation looks at O(log n) nodes.
//!
//! Both trees are treaps (Seidel, Aragon 1996): a node stands above all nodes of a lower priority. The priority is a hash of the
//! node's index, so the depth does not depend on the order in which permits come and go.

use super::{Permit, PermitId};
use crate::Timestamp;

/// An index that no node has.
const NO_NODE: u32 = u32::MAX;

/// The two trees, as indexes of `roots` and `children`.
const BY_END: usize = 0;
const BY_ID: usize = 1;

const LEFT: usize = 0;
const RIGHT: usize = 1;

#[derive(Clone, Debug)]
pub(super) struct PermitTree {
    nodes: Vec<Node>,
    roots: [u32; 2],
    free: u32, // the first node without a permit; its left child by end is the next one
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    permit: Permit,
    /// The cost of the subtree by end, modulo 2^64: permits whose leases have ended are part of it.
    cost: u64,
    children: [[u32; 2]; 2], // by tree, then by side
}

impl PermitTree {
    pub(super) fn with_capacity(permits: usize) -> Self {
        Self { nodes: Vec::with_capacity(permits), roots: [NO_NODE; 2], free: NO_NODE, len: 0 }
    }

    /// The bytes of a tree with room for this number of permits.
    pub(super) const fn bytes_for(permits: usize) -> usize {
        size_of::<Self>() + permits * size_of::<Node>()
    }

    pub(super) fn bytes(&self) -> usize {
        Self::bytes_for(self.nodes.capacity())
    }

    /// Bytes that one more permit may add.
    pub(super) fn growth(&self) -> usize {
        let is_full = self.free == NO_NODE && self.nodes.len() == self.nodes.capacity();
        if is_full { self.nodes.capacity().max(4) * size_of::<Node>() } else { 0 }
    }

    /// The number of permits, including those whose leases have ended.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The cost of the permits that are not over at `now`.
    pub(super) fn in_flight(&self, now: Timestamp) -> u64 {
        let (mut cost, mut at) = (0_u64, self.roots[BY_END]);
        while let Some(node) = self.node(at) {
            if node.permit.is_over(now) {
                at = node.children[BY_END][RIGHT];
            } else {
                at = node.children[BY_END][LEFT];
                cost = cost.wrapping_add(node.cost).wrapping_sub(self.cost_of(at));
            }
        }
        cost
    }

    /// The first permit by the end of its lease after which at most `most` is in flight. More than that must be in flight at `now`.
    pub(super) fn first_that_leaves(&self, most: u64, now: Timestamp) -> Option<Permit> {
        let (mut first, mut after, mut at) = (None, 0_u64, self.roots[BY_END]);
        while let Some(node) = self.node(at) {
            let [left, right] = node.children[BY_END];
            // The permits that are over come first, so that here `after` and the right subtree have none of them.
            if !node.permit.is_over(now) {
                let after_this = after.wrapping_add(self.cost_of(right));
                if after_this <= most {
                    first = Some(node.permit);
                    (at, after) = (left, after_this.wrapping_add(node.permit.cost));
                    continue;
                }
            }
            at = right;
        }
        first
    }

    /// The end of the last lease. None if no permit has a lease.
    pub(super) fn last_end(&self) -> Option<Timestamp> {
        let (mut last, mut at) = (None, self.roots[BY_END]);
        while let Some(node) = self.node(at) {
            let side = if node.permit.ends.is_some() { RIGHT } else { LEFT };
            last = node.permit.ends.or(last);
            at = node.children[BY_END][side];
        }
        last
    }

    /// Whether every permit is over.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.outermost(RIGHT).is_none_or(|last| self.nodes[last as usize].permit.is_over(now))
    }

    /// Removes the permit whose lease ends first if that permit is over.
    pub(super) fn remove_first_over(&mut self, now: Timestamp) {
        if let Some(first) =
            self.outermost(LEFT).filter(|&first| self.nodes[first as usize].permit.is_over(now))
        {
            self.remove(first);
        }
    }

    pub(super) fn insert(&mut self, permit: Permit) {
        let node = Node { permit, cost: permit.cost, children: [[NO_NODE; 2]; 2] };
        let place = self.free;
        let place = match self.nodes.get_mut(place as usize) {
            Some(free) => {
                self.free = free.children[BY_END][LEFT];
                *free = node;
                place
            }
            None => {
                self.nodes.push(node);
                u32::try_from(self.nodes.len() - 1)
                    .expect("4 thousand million permits of one key do not fit in memory")
            }
        };
        self.roots[BY_END] = self.insert_below::<BY_END>(self.roots[BY_END], place);
        self.roots[BY_ID] = self.insert_below::<BY_ID>(self.roots[BY_ID], place);
        self.len += 1;
    }

    /// Removes the permit of this ID. If a caller used an ID twice, the permit whose lease ends first.
    pub(super) fn take(&mut self, id: PermitId) -> Option<Permit> {
        let (mut found, mut at) = (None, self.roots[BY_ID]);
        while let Some(node) = self.node(at) {
            let side = if node.permit.id < id { RIGHT } else { LEFT };
            found = if node.permit.id == id { Some(at) } else { found };
            at = node.children[BY_ID][side];
        }
        found.map(|place| self.remove(place))
    }

    /// All permits, in the order in which their leases end.
    pub(super) fn in_order(&self) -> Vec<Permit> {
        let (mut permits, mut above, mut at) = (Vec::with_capacity(self.len), Vec::new(), self.roots[BY_END]);
        loop {
            if let Some(node) = self.node(at) {
                above.push(node);
                at = node.children[BY_END][LEFT];
            } else if let Some(node) = above.pop() {
                permits.push(node.permit);
                at = node.children[BY_END][RIGHT];
            } else {
                return permits;
            }
        }
    }

    fn remove(&mut self, place: u32) -> Permit {
        self.roots[BY_END] = self.remove_below::<BY_END>(self.roots[BY_END], place);
        self.roots[BY_ID] = self.remove_below::<BY_ID>(self.roots[BY_ID], place);
        self.len -= 1;
        let node = &mut self.nodes[place as usize];
        node.children[BY_END][LEFT] = self.free;
        self.free = place;
        node.permit
    }

    fn node(&self, place: u32) -> Option<&Node> {
        #[cfg(test)]
        visits::count();
        self.nodes.get(place as usize)
    }

    /// The first node by end, or the last.
    fn outermost(&self, side: usize) -> Option<u32> {
        let (mut outermost, mut at) = (None, self.roots[BY_END]);
        while let Some(node) = self.node(at) {
            outermost = Some(at);
            at = node.children[BY_END][side];
        }
        outermost
    }

    fn cost_of(&self, place: u32) -> u64 {
        self.node(place).map_or(0, |node| node.cost)
    }

    /// Whether one node stands before another in a tree. Permits without a lease come last by end.
    fn is_before<const TREE: usize>(&self, one: u32, other: u32) -> bool {
        #[cfg(test)]
        visits::count();
        let by_end = |place: u32| {
            let Permit { id, ends, .. } = self.nodes[place as usize].permit;
            (ends.is_none(), ends, id, place)
        };
        let id = |place: u32| self.nodes[place as usize].permit.id;
        let is_same_id = TREE == BY_ID && id(one) == id(other);
        if TREE == BY_END || is_same_id { by_end(one) < by_end(other) } else { id(one) < id(other) }
    }

    fn child<const TREE: usize>(&self, place: u32, side: usize) -> u32 {
        self.nodes[place as usize].children[TREE][side]
    }

    fn set_child<const TREE: usize>(&mut self, place: u32, side: usize, child: u32) {
        self.nodes[place as usize].children[TREE][side] = child;
        if TREE == BY_END {
            let [left, right] = self.nodes[place as usize].children[BY_END];
            let below = self.cost_of(left).wrapping_add(self.cost_of(right));
            let node = &mut self.nodes[place as usize];
            node.cost = node.permit.cost.wrapping_add(below);
        }
    }

    /// Puts a node without children into a subtree. Returns the subtree's root.
    fn insert_below<const TREE: usize>(&mut self, root: u32, new: u32) -> u32 {
        if root == NO_NODE {
            return new;
        }
        if priority(new) > priority(root) {
            let [left, right] = self.split::<TREE>(root, new);
            self.set_child::<TREE>(new, LEFT, left);
            self.set_child::<TREE>(new, RIGHT, right);
            return new;
        }
        let side = if self.is_before::<TREE>(new, root) { LEFT } else { RIGHT };
        let child = self.insert_below::<TREE>(self.child::<TREE>(root, side), new);
        self.set_child::<TREE>(root, side, child);
        root
    }

    /// The nodes of a subtree before and after one that is not in it.
    fn split<const TREE: usize>(&mut self, root: u32, at: u32) -> [u32; 2] {
        if root == NO_NODE {
            return [NO_NODE; 2];
        }
        if self.is_before::<TREE>(at, root) {
            let [before, after] = self.split::<TREE>(self.child::<TREE>(root, LEFT), at);
            self.set_child::<TREE>(root, LEFT, after);
            [before, root]
        } else {
            let [before, after] = self.split::<TREE>(self.child::<TREE>(root, RIGHT), at);
            self.set_child::<TREE>(root, RIGHT, before);
            [root, after]
        }
    }

    /// Takes a node out of a subtree. Returns the subtree's root.
    fn remove_below<const TREE: usize>(&mut self, root: u32, gone: u32) -> u32 {
        if root == NO_NODE || root == gone {
            let [left, right] =
                self.nodes.get(root as usize).map_or([NO_NODE; 2], |node| node.children[TREE]);
            return self.merge::<TREE>(left, right);
        }
        let side = if self.is_before::<TREE>(gone, root) { LEFT } else { RIGHT };
        let child = self.remove_below::<TREE>(self.child::<TREE>(root, side), gone);
        self.set_child::<TREE>(root, side, child);
        root
    }

    /// Joins two subtrees, all of the left before all of the right.
    fn merge<const TREE: usize>(&mut self, left: u32, right: u32) -> u32 {
        if left == NO_NODE || right == NO_NODE {
            return left.min(right);
        }
        if priority(left) > priority(right) {
            let child = self.merge::<TREE>(self.child::<TREE>(left, RIGHT), right);
            self.set_child::<TREE>(left, RIGHT, child);
            left
        } else {
            let child = self.merge::<TREE>(left, self.child::<TREE>(right, LEFT));
            self.set_child::<TREE>(right, LEFT, child);
            right
        }
    }
}

/// The finalizer of MurmurHash3, a bijection: no two nodes have the same priority.
const fn priority(place: u32) -> u32 {
    let mut hash = place.wrapping_add(0x9e37_79b9);
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

/// How many nodes the current thread has looked at.
#[cfg(test)]
pub(super) mod visits {
    use std::cell::Cell;

    thread_local!(static VISITS: Cell<u64> = const { Cell::new(0) });

    pub(super) fn count() {
        VISITS.set(VISITS.get() + 1);
    }

    /// The nodes that `act` looks at.
    pub(in super::super) fn of(act: impl FnOnce()) -> u64 {
        let before = VISITS.get();
        act();
        VISITS.get() - before
    }
}
