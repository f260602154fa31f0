//! Each node decides by its own copy of the bucket. Every `sync` it reports what it has spent, and gets the bucket of the store.
//!
//! This is how gubernator (`GLOBAL`) and Kong (`sync_rate`) share limits.

use tollgate_core::{Nanos, PermitId, State};

use super::outcome::Call;
use super::settings::ClusterSettings;
use super::world::{Protocol, Request, Sender, World};

/// Nodes with copies of the bucket.
#[derive(Debug)]
pub(super) struct ReportAfterSpend {
    nodes: Vec<Node>,
    sync: Nanos,
}

#[derive(Clone, Debug, Default)]
struct Node {
    copy: State,
    spent: u64,             // since the last report
    in_flight: Option<u64>, // units of a report without an answer yet
    asked: u64,             // requests since the last report
    reports: u64,           // sent so far
    has_timer: bool,
}

/// A report and its answer.
#[derive(Debug)]
pub(super) enum Message {
    Report { number: u64, spent: u64 },
    Bucket { number: u64, state: Box<State> },
}

impl ReportAfterSpend {
    pub(super) fn new(settings: &ClusterSettings) -> Self {
        Self { nodes: vec![Node::default(); settings.nodes as usize], sync: Nanos::new(settings.sync) }
    }
}

impl Protocol for ReportAfterSpend {
    type Message = Message;
    type Timer = ();

    fn request(&mut self, node: usize, request: Request, world: &mut World<'_, Self>) {
        let now = world.clock(node);
        let local = &mut self.nodes[node];
        local.asked += 1;
        if !std::mem::replace(&mut local.has_timer, true) {
            world.plan(node, now.after(self.sync), ());
        }
        if world.rule.decide(&mut local.copy, PermitId(0), 1, now).is_allowed() {
            local.spent += 1;
            world.admit(node, request);
        } else {
            world.deny(request);
        }
    }

    fn at_store(&mut self, sender: Sender, message: Message, world: &mut World<'_, Self>) {
        let Message::Report { number, spent } = message else { return };
        let now = world.store_clock();
        if spent > 0 {
            world.rule.spend_in_full(&mut world.store, spent, now);
        }
        let state = Box::new(world.store.clone());
        world.reply(self, sender, Message::Bucket { number, state });
    }

    fn at_node(&mut self, node: usize, message: Message, world: &mut World<'_, Self>) {
        let Message::Bucket { number, state } = message else { return };
        let now = world.clock(node);
        let local = &mut self.nodes[node];
        if number != local.reports || local.in_flight.take().is_none() {
            return;
        }
        local.copy = *state;
        if local.spent > 0 {
            world.rule.spend_in_full(&mut local.copy, local.spent, now);
        }
    }

    fn at_time(&mut self, node: usize, (): (), world: &mut World<'_, Self>) {
        let local = &mut self.nodes[node];
        // A report without an answer is sent again. The store may then count it twice.
        local.spent += local.in_flight.take().unwrap_or(0);
        if local.asked == 0 && local.spent == 0 {
            local.has_timer = false;
            return;
        }
        let spent = std::mem::take(&mut local.spent);
        (local.asked, local.in_flight) = (0, Some(spent));
        local.reports += 1;
        let number = local.reports;
        world.plan(node, world.clock(node).after(self.sync), ());
        world.call(self, Call::Report, node, Message::Report { number, spent });
    }

    fn lost(&mut self, _node: usize, _message: Message, _world: &mut World<'_, Self>) {}

    fn restart(&mut self, node: usize, _world: &mut World<'_, Self>) {
        self.nodes[node] = Node::default();
    }

    fn change_primary(&mut self, _node: usize, _world: &mut World<'_, Self>) {}
}
