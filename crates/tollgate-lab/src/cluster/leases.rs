//! Leases: the state machine of the core at each node, and its grants at the store.

use std::collections::VecDeque;

use tollgate_core::lease::{Draw, DrawId, Grant, Lease, Step, Take, Terms};
use tollgate_core::{Nanos, Timestamp};

use super::exact::Check;
use super::outcome::Call;
use super::settings::ClusterSettings;
use super::world::{Protocol, Request, Sender, World};

/// Nodes with a [`Lease`] each.
#[derive(Debug)]
pub(super) struct Leases {
    nodes: Vec<Node>,
    terms: Terms,
}

#[derive(Debug)]
struct Node {
    lease: Lease,
    waiting: VecDeque<Request>,  // for a draw, oldest first
    wakes_at: Option<Timestamp>, // to return units
    will_give_up: bool,          // a timer runs for a request that waits
}

/// What nodes and the store send to each other.
#[derive(Debug)]
pub(super) enum Message {
    Draw(Box<(DrawId, Draw)>),
    Granted(Box<(DrawId, Grant, Timestamp)>), // with the time of the charge
    Return { units: u64, charged: Timestamp },
    Check(Check),
}

/// What a node has planned.
#[derive(Debug)]
pub(super) enum Timer {
    /// To return units.
    Wake,
    /// To give up a draw.
    DrawIsLost(DrawId, Timestamp),
    /// To give up requests that have waited long enough.
    GiveUp,
}

impl Leases {
    pub(super) fn new(settings: &ClusterSettings, terms: Terms) -> Self {
        Self { nodes: (0..settings.nodes).map(|_| Node::new(terms)).collect(), terms }
    }

    /// Does what [`Lease::take`] said of a request.
    fn go_by(&mut self, take: Take, node: usize, request: Request, world: &mut World<'_, Self>) {
        match take {
            Take::Taken(_) => world.admit(node, request),
            Take::Denied(_) => world.deny(request),
            Take::Wait => self.nodes[node].waiting.push_back(request),
            Take::Exact => world.call(self, Call::ExactCheck, node, Message::Check(Check::Asked(request))),
        }
    }

    /// Requests that wait ask again.
    fn ask_again(&mut self, node: usize, world: &mut World<'_, Self>) {
        let now = world.clock(node);
        for request in std::mem::take(&mut self.nodes[node].waiting) {
            let take = self.nodes[node].lease.take_again(1, now);
            self.go_by(take, node, request, world);
        }
    }

    /// Sends what the lease wants to send, and plans what comes next.
    fn go_on(&mut self, node: usize, world: &mut World<'_, Self>) {
        let now = world.clock(node);
        while let Some(step) = self.nodes[node].lease.next_step(now) {
            match step {
                Step::Draw { id, draw } => {
                    let given_up = now.after(Nanos::new(self.terms.life().get() / 2));
                    world.plan(node, given_up, Timer::DrawIsLost(id, given_up));
                    world.call(self, Call::Draw, node, Message::Draw(Box::new((id, draw))));
                }
                Step::Return { units, charged, .. } => {
                    world.call(self, Call::Return, node, Message::Return { units, charged });
                }
            }
        }
        let local = &mut self.nodes[node];
        world.tally.lapsed += local.lease.take_lapsed();
        if let Some(at) = local.lease.next_return()
            && local.wakes_at.is_none_or(|known| at < known)
        {
            local.wakes_at = Some(at);
            world.plan(node, at, Timer::Wake);
        }
        if let Some(oldest) = local.waiting.front()
            && !std::mem::replace(&mut local.will_give_up, true)
        {
            world.plan_end(node, *oldest, Timer::GiveUp);
        }
    }
}

impl Node {
    const fn new(terms: Terms) -> Self {
        Self { lease: Lease::new(terms), waiting: VecDeque::new(), wakes_at: None, will_give_up: false }
    }
}

impl Protocol for Leases {
    type Message = Message;
    type Timer = Timer;

    fn request(&mut self, node: usize, request: Request, world: &mut World<'_, Self>) {
        let now = world.clock(node);
        let take = self.nodes[node].lease.take(1, now);
        self.go_by(take, node, request, world);
        self.go_on(node, world);
    }

    fn at_store(&mut self, sender: Sender, message: Message, world: &mut World<'_, Self>) {
        let now = world.store_clock();
        match message {
            Message::Draw(draw) => {
                let (id, draw) = *draw;
                let grant = world.rule.grant(&mut world.store, &draw, now);
                world.reply(self, sender, Message::Granted(Box::new((id, grant, now))));
            }
            // It counts only within the life of the grant (LE-4). The network delivers nothing twice.
            Message::Return { units, charged } if now < charged.after(self.terms.life()) => {
                // Units that have come again since the charge are not given back.
                let returned = world.rule.refund(&mut world.store, units, charged, now);
                world.tally.returned += returned;
                world.tally.lapsed += units - returned.min(units);
            }
            Message::Return { units, .. } => world.tally.lapsed += units,
            Message::Check(check) => {
                let answer = Check::decide(check.request(), world);
                world.reply(self, sender, Message::Check(answer));
            }
            Message::Granted(_) => {}
        }
    }

    fn at_node(&mut self, node: usize, message: Message, world: &mut World<'_, Self>) {
        match message {
            Message::Granted(granted) => {
                let (id, grant, charged) = *granted;
                let now = world.clock(node);
                self.nodes[node].lease.accept_grant(id, &grant, charged, now);
                self.ask_again(node, world);
                self.go_on(node, world);
            }
            Message::Check(Check::Answered { request, is_allowed }) => {
                world.end_check(node, request, is_allowed);
            }
            Message::Check(Check::Asked(_)) | Message::Draw(_) | Message::Return { .. } => {}
        }
    }

    fn at_time(&mut self, node: usize, timer: Timer, world: &mut World<'_, Self>) {
        let now = world.clock(node);
        let local = &mut self.nodes[node];
        match timer {
            Timer::Wake => local.wakes_at = None,
            Timer::DrawIsLost(id, at) if now < at => world.plan(node, at, Timer::DrawIsLost(id, at)),
            Timer::DrawIsLost(id, _) => {
                let had_draw = local.lease.has_draw_in_flight();
                local.lease.give_up_draw(id);
                if had_draw && !local.lease.has_draw_in_flight() {
                    self.ask_again(node, world);
                }
            }
            Timer::GiveUp => {
                local.will_give_up = false;
                while let Some(request) = local.waiting.pop_front_if(|request| world.has_waited(request)) {
                    world.give_up(request);
                }
            }
        }
        self.go_on(node, world);
    }

    fn lost(&mut self, _node: usize, message: Message, world: &mut World<'_, Self>) {
        match message {
            Message::Check(check) => world.give_up(check.request()),
            Message::Granted(granted) => world.tally.lapsed += granted.1.units,
            Message::Return { units, .. } => world.tally.lapsed += units,
            Message::Draw(_) => {}
        }
    }

    fn restart(&mut self, node: usize, world: &mut World<'_, Self>) {
        let before = std::mem::replace(&mut self.nodes[node], Node::new(self.terms));
        world.tally.lapsed += before.lease.units();
        before.waiting.into_iter().for_each(|request| world.give_up(request));
    }

    fn change_primary(&mut self, node: usize, world: &mut World<'_, Self>) {
        self.nodes[node].lease.change_primary();
        self.ask_again(node, world);
        self.go_on(node, world);
    }
}
