//! Each node has an equal part of the limit.

use tollgate_core::{PermitId, Rule, State};

use super::settings::ClusterSettings;
use super::world::{Protocol, Request, Sender, World};

/// Nodes that never speak to each other.
#[derive(Debug)]
pub(super) struct StaticSplit {
    rule: Rule,
    nodes: Vec<State>,
}

impl StaticSplit {
    pub(super) fn new(settings: &ClusterSettings, rule: &Rule) -> Self {
        let nodes = vec![State::default(); settings.nodes as usize];
        Self { rule: rule.share_of(settings.nodes), nodes }
    }
}

impl Protocol for StaticSplit {
    type Message = ();
    type Timer = ();

    fn request(&mut self, node: usize, request: Request, world: &mut World<'_, Self>) {
        let now = world.clock(node);
        if self.rule.decide(&mut self.nodes[node], PermitId(0), 1, now).is_allowed() {
            world.admit(node, request);
        } else {
            world.deny(request);
        }
    }

    fn at_store(&mut self, _sender: Sender, (): (), _world: &mut World<'_, Self>) {}

    fn at_node(&mut self, _node: usize, (): (), _world: &mut World<'_, Self>) {}

    fn at_time(&mut self, _node: usize, (): (), _world: &mut World<'_, Self>) {}

    fn lost(&mut self, _node: usize, (): (), _world: &mut World<'_, Self>) {}

    fn restart(&mut self, node: usize, _world: &mut World<'_, Self>) {
        self.nodes[node] = State::default();
    }

    fn change_primary(&mut self, _node: usize, _world: &mut World<'_, Self>) {}
}
