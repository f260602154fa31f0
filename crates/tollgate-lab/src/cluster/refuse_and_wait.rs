//! A node draws units when it has none, and denies requests meanwhile. If the store has none either, it refuses and says when it will
//! have one. The node then asks again.

use tollgate_core::lease::Terms;
use tollgate_core::{Nanos, Outcome, PermitId, Retry, Timestamp};

use super::outcome::Call;
use super::settings::ClusterSettings;
use super::world::{Protocol, Request, Sender, World};

/// Nodes that hold what they have drawn for as long as a lease does.
#[derive(Debug)]
pub(super) struct RefuseAndWait {
    nodes: Vec<Node>,
    wanted: Vec<u64>, // by node: what lasts for `sync` at its demand, and at most a fourth of the burst
    life: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    units: u64,
    until: Timestamp, // when they end
    refused_until: Timestamp,
    in_flight: Option<(u64, Timestamp)>, // the number of the draw, and when it was sent
    draws: u64,
}

/// A draw and its answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    Draw { number: u64, wanted: u64 },
    Granted { number: u64, units: u64, wait: Nanos },
}

impl RefuseAndWait {
    pub(super) fn new(settings: &ClusterSettings, terms: Terms) -> Self {
        let wanted = |node| {
            let wanted = settings.demand_of(node) * settings.sync as f64 / 1e9;
            (wanted as u64).min(settings.burst / 4).max(1)
        };
        let count = settings.nodes as usize;
        Self { nodes: vec![Node::EMPTY; count], wanted: (0..count).map(wanted).collect(), life: terms.life() }
    }
}

impl Node {
    const EMPTY: Self = Self {
        units: 0,
        until: Timestamp::from_nanos(0),
        refused_until: Timestamp::from_nanos(0),
        in_flight: None,
        draws: 0,
    };
}

impl Protocol for RefuseAndWait {
    type Message = Message;
    type Timer = ();

    fn request(&mut self, node: usize, request: Request, world: &mut World<'_, Self>) {
        let now = world.clock(node);
        let local = &mut self.nodes[node];
        if now >= local.until {
            world.tally.lapsed += std::mem::take(&mut local.units);
        }
        if local.units > 0 {
            local.units -= 1;
            world.admit(node, request);
        } else {
            world.deny(request);
        }
        // A draw without an answer is given up after half a life.
        let gives_up = |sent: Timestamp| now >= sent.after(Nanos::new(self.life.get() / 2));
        if local.units == 0
            && now >= local.refused_until
            && local.in_flight.is_none_or(|(_, sent)| gives_up(sent))
        {
            local.draws += 1;
            local.in_flight = Some((local.draws, now));
            let message = Message::Draw { number: local.draws, wanted: self.wanted[node] };
            world.call(self, Call::Draw, node, message);
        }
    }

    fn at_store(&mut self, sender: Sender, message: Message, world: &mut World<'_, Self>) {
        let Message::Draw { number, wanted } = message else { return };
        let now = world.store_clock();
        let (units, wait) = match world.rule.test(&world.store, 1, now) {
            Outcome::Allow { .. } => {
                let units = wanted.min(world.rule.status(&world.store, now).remaining);
                (units, Nanos::ZERO)
            }
            Outcome::Deny { retry: Retry::After(wait) } => (0, wait),
            Outcome::Deny { .. } => (0, Nanos::ZERO),
        };
        if units > 0 {
            world.rule.spend(&mut world.store, PermitId(0), units, now);
        }
        world.reply(self, sender, Message::Granted { number, units, wait });
    }

    fn at_node(&mut self, node: usize, message: Message, world: &mut World<'_, Self>) {
        let Message::Granted { number, units, wait } = message else { return };
        let now = world.clock(node);
        let local = &mut self.nodes[node];
        match local.in_flight {
            Some((known, sent)) if known == number => {
                (local.units, local.until) = (units, sent.after(self.life));
                (local.refused_until, local.in_flight) = (now.after(wait), None);
            }
            _ => world.tally.lapsed += units,
        }
    }

    fn at_time(&mut self, _node: usize, (): (), _world: &mut World<'_, Self>) {}

    fn lost(&mut self, _node: usize, message: Message, world: &mut World<'_, Self>) {
        if let Message::Granted { units, .. } = message {
            world.tally.lapsed += units;
        }
    }

    fn restart(&mut self, node: usize, world: &mut World<'_, Self>) {
        world.tally.lapsed += self.nodes[node].units;
        self.nodes[node] = Node::EMPTY;
    }

    fn change_primary(&mut self, node: usize, _world: &mut World<'_, Self>) {
        self.nodes[node].in_flight = None;
    }
}
