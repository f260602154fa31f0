//! The states that two nodes, a store and the network can be in, and the steps between them.

use std::time::Duration;

use stateright::{Model, Property};
use tollgate_core::lease::{Draw, DrawId, Grant, GrantId, Lease, Step, Take, Terms};
use tollgate_core::{Nanos, Rate, Rule, Timestamp, TokenBucket};

use super::ledger::{Ledger, Promise};
use super::node::{Node, Record};
use super::store::Store;

/// Times are counted in halves of the time in which a unit comes.
const HALF: u64 = 50_000_000;

pub(super) const HALVES_PER_UNIT: i16 = 2;

/// The life of a grant.
pub(super) const LIFE: u8 = 3;

/// The burst of the rule.
pub(super) const BURST: i16 = 3;

/// The clocks of the nodes and of the store show different times. The numbers do not matter.
const EPOCHS: [u64; 2] = [1_000_000_000, 7_000_000_000];

pub(super) fn at(halves: u8) -> Timestamp {
    Timestamp::from_nanos(5_000_000_000 + u64::from(halves) * HALF)
}

pub(super) fn life() -> Nanos {
    terms(0).life()
}

/// The rule of these numbers. The new ones give a unit in twice the time.
pub(super) fn rule(numbers: u8) -> Rule {
    bucket(numbers, BURST.unsigned_abs().into())
}

/// The terms of these numbers. Such a small burst is not leased, so they are those of a larger one: the burst is in no term that matters
/// here.
pub(super) fn terms(numbers: u8) -> Terms {
    bucket(numbers, 16).lease_terms(Nanos::new(u64::from(LIFE) * HALF / 5)).unwrap()
}

fn bucket(numbers: u8, burst: u64) -> Rule {
    let period =
        Duration::from_nanos(u64::from(HALVES_PER_UNIT.unsigned_abs()) * HALF) * (1 + u32::from(numbers));
    TokenBucket::new(Rate::new(1, period).unwrap(), burst).unwrap().into()
}

/// How far the model goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// How many draws each node sends.
    pub(super) draws: [u8; 2],
    /// The time at which the model ends.
    pub(super) end: u8,
    /// The time of a step.
    pub(super) step: u8,
    /// The costs of requests at each node.
    pub(super) costs: [&'static [u8]; 2],
    pub(super) faults: Faults,
    /// In some state, everything that the rule allows has been spent.
    pub(super) spends_all: bool,
}

/// How often something happens at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Faults {
    /// Of all kinds together.
    pub(super) in_all: u8,
    /// Messages that arrive late or never.
    pub(super) delays: u8,
    pub(super) repetitions: u8,
    pub(super) crashes: u8,
    /// Steps of time that the clock of a node does not see.
    pub(super) pauses: u8,
    /// Each forgets the last write.
    pub(super) failovers: u8,
    pub(super) resets: u8,
    /// Changes of numbers, at one node each.
    pub(super) changes: u8,
    /// Nodes that shut down in order.
    pub(super) closes: u8,
    pub(super) put_backs: u8,
}

impl Faults {
    fn use_up(&mut self, kind: fn(&mut Self) -> &mut u8) {
        *kind(self) -= 1;
        self.in_all -= 1;
    }
}

/// Names a grant for the store: the node, how often it has crashed, and the number of the draw.
pub(super) type GrantName = (usize, u8, u64);

/// A message on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Message {
    content: Content,
    /// It may arrive at a later tick, or never. Other messages arrive at the tick at which they are sent.
    is_late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Content {
    Draw { name: GrantName, id: DrawId, draw: Draw, numbers: u8 },
    Reply { name: GrantName, id: DrawId, grant: Grant, charged: Timestamp },
    Return { name: GrantName, units: u64, charged: Timestamp, numbers: u8 },
}

impl Message {
    /// A draw is not: a node that repeats a draw sends a new one.
    const fn may_be_repeated(&self) -> bool {
        !matches!(self.content, Content::Draw { .. })
    }

    /// Messages have no order, so a state lists them by this.
    const fn order(&self) -> (u8, GrantName) {
        match self.content {
            Content::Draw { name, .. } => (0, name),
            Content::Reply { name, .. } => (1, name),
            Content::Return { name, .. } => (2, name),
        }
    }
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    now: u8,
    store: Store,
    primary: u8,
    /// The grant that the present primary has forgotten.
    forgotten: Option<GrantName>,
    nodes: [Node; 2],
    network: Vec<Message>,
    ledger: Ledger,
    left: Faults,
}

/// A step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Time passes. The clock of a node that is suspended does not see it.
    Pass {
        halves: u8,
        suspended: Option<usize>,
    },
    /// A request comes. It may turn out that it does not go ahead, and then its units are put back later.
    Request {
        node: usize,
        cost: u8,
        goes_ahead: bool,
    },
    PutBack {
        node: usize,
    },
    /// The node sends what it has to send.
    Send {
        node: usize,
    },
    /// The message in this place arrives. If it is repeated, it arrives again later.
    Deliver {
        place: usize,
        again: bool,
    },
    /// The message in this place will be late, or is lost.
    Delay {
        place: usize,
    },
    /// The node no longer waits for the answer to its draw.
    GiveUp {
        node: usize,
    },
    /// The node shuts down in order.
    Close {
        node: usize,
    },
    Crash {
        node: usize,
    },
    /// The store fails over, and the new primary has not seen the last write.
    FailOver,
    /// The node connects to the new primary.
    Connect {
        node: usize,
    },
    Reset,
    /// The node learns of new numbers.
    ChangeNumbers {
        node: usize,
    },
}

pub(super) struct TwoNodes(pub(super) Bounds);

impl Model for TwoNodes {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        let node = |node| Node::new(self.0.draws[node], new_lease(node, 0));
        vec![World {
            now: 0,
            store: Store::default(),
            primary: 0,
            forgotten: None,
            nodes: [node(0), node(1)],
            network: Vec::new(),
            ledger: Ledger::new(),
            left: self.0.faults,
        }]
    }

    fn actions(&self, world: &World, events: &mut Vec<Event>) {
        let may = |left: u8| left > 0 && world.left.in_all > 0;
        // What is not late arrives before anything else happens.
        if let Some(place) = world.network.iter().position(|message| !message.is_late) {
            events.push(Event::Deliver { place, again: false });
            if may(world.left.delays) {
                events.push(Event::Delay { place });
            }
            if may(world.left.repetitions) && world.network[place].may_be_repeated() {
                events.push(Event::Deliver { place, again: true });
            }
            return;
        }
        let halves = self.0.step;
        if world.now < self.0.end {
            events.push(Event::Pass { halves, suspended: None });
            if may(world.left.pauses) {
                events.extend([0, 1].map(|node| Event::Pass { halves, suspended: Some(node) }));
            }
        }
        for (place, message) in world.network.iter().enumerate() {
            events.push(Event::Deliver { place, again: false });
            if may(world.left.repetitions) && message.may_be_repeated() {
                events.push(Event::Deliver { place, again: true });
            }
        }
        if may(world.left.failovers) && world.store.has_written() {
            events.push(Event::FailOver);
        }
        if may(world.left.resets) && !world.store.is_unused() {
            events.push(Event::Reset);
        }
        for (node, state) in world.nodes.iter().enumerate() {
            if state.is_closed {
                continue;
            }
            for &cost in self.0.costs[node] {
                events.push(Event::Request { node, cost, goes_ahead: true });
                if may(world.left.put_backs) && state.taken.is_none() {
                    events.push(Event::Request { node, cost, goes_ahead: false });
                }
            }
            events.push(Event::Send { node });
            let deadline = |(_, sent): (DrawId, u8)| 2 * (world.clock(node) - sent) >= LIFE;
            if state.in_flight.is_some_and(deadline) {
                events.push(Event::GiveUp { node });
            }
            if state.taken.is_some() {
                events.push(Event::PutBack { node });
            }
            if state.primary != world.primary {
                events.push(Event::Connect { node });
            }
            if may(world.left.closes) && state.draws < self.0.draws[node] {
                events.push(Event::Close { node });
            }
            if may(world.left.crashes) && state.draws < self.0.draws[node] {
                events.push(Event::Crash { node });
            }
            if may(world.left.changes) && state.numbers == 0 {
                events.push(Event::ChangeNumbers { node });
            }
        }
    }

    fn next_state(&self, world: &World, event: Event) -> Option<World> {
        let mut next = world.clone();
        next.run(event)?;
        next.network.sort_by_key(Message::order);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("LE-1: no more is spent in total", |_, world: &World| {
                world.ledger.keeps_total()
            }),
            Property::always("LE-1: each unit was charged for its grant", |_, world: &World| {
                world.ledger.keeps(Promise::Charged)
            }),
            Property::always("LE-2: no more is spent in any span", |_, world: &World| {
                world.ledger.keeps_spans(world.nodes.iter().map(|node| node.unseen).max().unwrap_or(0))
            }),
            Property::always("LE-2: no node holds more than two grants", |model: &Self, world: &World| {
                let largest = model.0.costs.concat().into_iter().max().unwrap_or(0);
                // Units that are put back may be more for a while.
                model.0.faults.put_backs > 0
                    || [0, 1].iter().all(|&node| {
                        let (clock, time) = (world.clock(node), world.time(node));
                        world.nodes[node].most_units(clock, time) <= 2 * u64::from(largest)
                    })
            }),
            Property::always("LE-6: a draw charges its grant only", |_, world: &World| {
                world.ledger.keeps(Promise::NothingElseCharged)
            }),
            Property::always("LE-8: grants of other numbers are not spent", |_, world: &World| {
                world.ledger.keeps(Promise::PresentNumbers)
            }),
        ];
        if self.0.spends_all {
            properties.push(Property::sometimes("everything is spent", |_, world: &World| {
                world.now > 0 && world.ledger.is_used_up()
            }));
        }
        properties
    }
}

fn new_lease(node: usize, halves: u8) -> Lease {
    Lease::with_demand(terms(0), 100_000_000_000, node_time(node, halves))
}

fn node_time(node: usize, halves: u8) -> Timestamp {
    Timestamp::from_nanos(EPOCHS[node] + u64::from(halves) * HALF)
}

impl World {
    /// The tick that the clock of a node shows.
    fn clock(&self, node: usize) -> u8 {
        self.now - self.nodes[node].unseen
    }

    fn time(&self, node: usize) -> Timestamp {
        node_time(node, self.clock(node))
    }

    /// None if the event changes nothing.
    fn run(&mut self, event: Event) -> Option<()> {
        match event {
            Event::Pass { halves, suspended } => {
                self.now += halves;
                self.ledger.pass(halves);
                if let Some(node) = suspended {
                    self.nodes[node].unseen += halves;
                    self.left.use_up(|left| &mut left.pauses);
                }
            }
            Event::Request { node, cost, goes_ahead } => self.request(node, cost, goes_ahead)?,
            Event::PutBack { node } => {
                let (grant, cost) = self.nodes[node].taken.take()?;
                self.nodes[node].lease.put_back(grant, cost.into());
            }
            Event::Send { node } => {
                let now = self.time(node);
                let step = self.nodes[node].lease.next_step(now)?;
                self.send(node, step)?;
            }
            Event::Deliver { place, again } => {
                let message = if again {
                    self.left.use_up(|left| &mut left.repetitions);
                    self.network[place].is_late = true;
                    self.network[place].clone()
                } else {
                    self.network.remove(place)
                };
                self.deliver(message.content);
            }
            Event::Delay { place } => {
                self.left.use_up(|left| &mut left.delays);
                self.network[place].is_late = true;
            }
            Event::GiveUp { node } => {
                let (id, _) = self.nodes[node].in_flight.take()?;
                self.nodes[node].lease.give_up_draw(id);
            }
            Event::Close { node } => {
                self.left.use_up(|left| &mut left.closes);
                let now = self.time(node);
                self.nodes[node].is_closed = true;
                self.nodes[node].lease.close();
                while let Some(step) = self.nodes[node].lease.next_step(now) {
                    self.send(node, step)?;
                }
            }
            Event::Crash { node } => {
                self.left.use_up(|left| &mut left.crashes);
                let Node { restarts, unseen, draws, numbers, .. } = self.nodes[node];
                let lease = new_lease(node, self.clock(node));
                let primary = self.primary;
                self.nodes[node] =
                    Node { restarts: restarts + 1, unseen, numbers, primary, ..Node::new(draws, lease) };
                // Nobody reads the answers to the old draws.
                self.network.retain(
                    |message| !matches!(message.content, Content::Reply { name, .. } if name.0 == node),
                );
                if numbers > 0 {
                    self.nodes[node].lease.change_terms(terms(numbers));
                }
            }
            Event::FailOver => {
                self.left.use_up(|left| &mut left.failovers);
                self.primary += 1;
                self.forgotten = self.store.fail_over();
                if let Some((node, restarts, number)) = self.forgotten
                    && self.nodes[node].restarts == restarts
                    && let Some(record) = self.nodes[node].record(number)
                {
                    record.is_forgotten = true;
                    self.ledger.forget(record.granted - record.units);
                }
                // Nobody reads what was sent to the old primary.
                self.network.retain(|message| matches!(message.content, Content::Reply { .. }));
            }
            Event::Connect { node } => self.nodes[node].change_primary(self.primary),
            Event::Reset => {
                self.left.use_up(|left| &mut left.resets);
                self.store.reset();
                self.ledger.reset();
                for record in self.nodes.iter_mut().flat_map(|node| &mut node.records) {
                    record.is_forgotten |= record.units > 0;
                }
            }
            Event::ChangeNumbers { node } => {
                self.left.use_up(|left| &mut left.changes);
                self.nodes[node].change_terms();
            }
        }
        self.forget_what_has_no_effect();
        Some(())
    }

    /// Otherwise there would be many states that differ in nothing that matters.
    fn forget_what_has_no_effect(&mut self) {
        for node in &mut self.nodes {
            node.forget_what_has_no_effect();
        }
        if self.left.failovers == 0 || self.left.in_all == 0 {
            self.store.forget_last_write();
        }
    }

    fn request(&mut self, node: usize, cost: u8, goes_ahead: bool) -> Option<()> {
        let now = self.time(node);
        match self.nodes[node].lease.take_again(cost.into(), now) {
            Take::Taken(grant) if goes_ahead => self.spend(node, grant, cost),
            Take::Taken(grant) => {
                self.left.use_up(|left| &mut left.put_backs);
                self.nodes[node].taken = Some((grant, cost));
            }
            _ if !goes_ahead => return None,
            Take::Denied(_) => {}
            Take::Wait => {
                while let Some(step) = self.nodes[node].lease.next_step(now) {
                    self.send(node, step)?;
                }
            }
            Take::Exact => {
                while let Some(step) = self.nodes[node].lease.draw_single(cost.into(), now) {
                    self.send(node, step)?;
                }
            }
        }
        Some(())
    }

    fn spend(&mut self, node: usize, grant: GrantId, cost: u8) {
        let numbers = self.nodes[node].numbers;
        let Some(record) = self.nodes[node].record(grant.number()) else {
            return self.ledger.note_broken(Promise::Charged);
        };
        if record.units < cost {
            self.ledger.note_broken(Promise::Charged);
        }
        if record.numbers != numbers {
            self.ledger.note_broken(Promise::PresentNumbers);
        }
        record.units = record.units.saturating_sub(cost);
        if !record.is_forgotten {
            self.ledger.spend(cost);
        }
    }

    /// None if the node has no draw left.
    fn send(&mut self, node: usize, step: Step) -> Option<()> {
        let clock = self.clock(node);
        let state = &mut self.nodes[node];
        let (restarts, numbers) = (state.restarts, state.numbers);
        let content = match step {
            Step::Draw { id, draw } => {
                state.draws = state.draws.checked_sub(1)?;
                state.in_flight = Some((id, clock));
                let cost = u8::try_from(draw.cost.max(1)).unwrap();
                state.records.push(Record {
                    cost,
                    sent: clock,
                    granted: 0,
                    units: 0,
                    numbers,
                    is_forgotten: false,
                });
                let name = (node, restarts, state.records.len() as u64);
                Content::Draw { name, id, draw, numbers }
            }
            Step::Return { id, units, charged } => {
                Content::Return { name: (node, restarts, id.number()), units, charged, numbers }
            }
        };
        // The old primary no longer answers.
        if state.primary == self.primary {
            self.network.push(Message { content, is_late: false });
        }
        Some(())
    }

    fn deliver(&mut self, content: Content) {
        match content {
            Content::Draw { name, id, draw, numbers } => {
                let (node, restarts, number) = name;
                let answer = self.store.draw(name, numbers, &draw, self.now);
                if answer.grant.units > 0 {
                    self.ledger.charge();
                }
                if answer.differs && self.primary == 0 {
                    self.ledger.note_broken(Promise::NothingElseCharged);
                }
                if self.nodes[node].restarts != restarts {
                    return;
                }
                if let Some(record) = self.nodes[node].record(number) {
                    record.granted = u8::try_from(answer.grant.units).unwrap();
                    record.units = record.granted;
                }
                let content = Content::Reply { name, id, grant: answer.grant, charged: answer.charged };
                self.network.push(Message { content, is_late: false });
            }
            Content::Reply { name: (node, _, number), id, grant, charged } => {
                let now = self.time(node);
                let state = &mut self.nodes[node];
                state.lease.accept_grant(id, &grant, charged, now);
                state.answered = state.answered.max(u8::try_from(number).unwrap());
                if state.in_flight.is_some_and(|(waits_for, _)| waits_for == id) {
                    state.in_flight = None;
                }
            }
            Content::Return { name, units, charged, numbers } => {
                self.store.take_back(name, numbers, units, charged, self.now);
            }
        }
    }
}
