//! The simulated world: time, network, store and faults. A scheme says what a node and the store do.

use tollgate_core::{Rule, State, Timestamp};

use super::arrivals::Arrivals;
use super::event_queue::EventQueue;
use super::fault::{Fault, FaultKind};
use super::outcome::Call;
use super::settings::ClusterSettings;
use super::tally::ClusterTally;
use crate::random::Random;

/// What nodes and the store do under one scheme. Each method is one thing that happens at one moment.
pub(super) trait Protocol: Sized {
    /// What nodes and the store send to each other.
    type Message;
    /// What a node has planned for a time.
    type Timer;

    /// A request comes to a node.
    fn request(&mut self, node: usize, request: Request, world: &mut World<'_, Self>);

    /// A message comes to the store.
    fn at_store(&mut self, sender: Sender, message: Self::Message, world: &mut World<'_, Self>);

    /// A message comes to a node.
    fn at_node(&mut self, node: usize, message: Self::Message, world: &mut World<'_, Self>);

    /// A planned time has come.
    fn at_time(&mut self, node: usize, timer: Self::Timer, world: &mut World<'_, Self>);

    /// A message was lost. No node knows that. This is for the requests that will get no answer.
    fn lost(&mut self, node: usize, message: Self::Message, world: &mut World<'_, Self>);

    /// A process ended, and another one takes its place.
    fn restart(&mut self, node: usize, world: &mut World<'_, Self>);

    /// Another server answers from now on.
    fn change_primary(&mut self, node: usize, world: &mut World<'_, Self>);
}

/// A request that has not been decided yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// When it came.
    pub(super) arrived: u64,
    /// How long it waits for the store.
    pub(super) until: u64,
}

/// The process that sent a message, and the server that it was meant for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    node: usize,
    process: u32,
    primary: u32,
}

/// Time, network, store and what is measured.
pub(super) struct World<'s, P: Protocol> {
    pub(super) rule: Rule,
    pub(super) store: State,
    pub(super) tally: ClusterTally,
    settings: &'s ClusterSettings,
    now: u64,
    primary: u32,
    processes: Vec<Process>,
    queue: EventQueue<Event<P>>,
    random: Random,
    loss: u64,             // in parts of `WHOLE`
    snapshots: Vec<State>, // of the store, by the number of the fault that restores it
}

/// A process of a node.
#[derive(Clone, Copy, Debug, Default)]
struct Process {
    number: u32,
    starts_at: u64,
    primary: u32, // that it knows
}

enum Event<P: Protocol> {
    Request { node: usize, process: u32, request: Request },
    ToStore(Letter<P::Message>),
    ToNode(Letter<P::Message>),
    Timer { node: usize, process: u32, timer: P::Timer },
    NewPrimary { node: usize },
    Crash { fault: usize },
    Snapshot { fault: usize },
    Failover { fault: usize },
}

/// A call of a process, or the answer to one.
struct Letter<M> {
    sender: Sender,
    message: M,
}

const WHOLE: u64 = 1 << 53;

/// Runs a scheme from the first request to the end.
pub(super) fn run<P: Protocol>(
    settings: &ClusterSettings,
    rule: Rule,
    mut protocol: P,
    progress: &mut dyn FnMut(u64),
) -> ClusterTally {
    let mut world = World::new(settings, rule);
    let mut arrivals = Arrivals::new(settings);
    let mut next = arrivals.next();
    let step = (settings.duration / 100).max(1);
    let mut reported = 0;
    loop {
        let event_at = world.queue.next_at().filter(|at| *at <= next.0);
        world.now = event_at.unwrap_or(next.0);
        if world.now >= settings.duration {
            break;
        }
        if world.now >= reported + step {
            reported = world.now;
            progress(reported);
        }
        match event_at.and_then(|_| world.queue.next()) {
            Some(event) => world.happen(&mut protocol, event),
            None => {
                let (now, node) = next;
                world.tally.arrive(node);
                let process = world.processes[node].number;
                let request = Request { arrived: now, until: now + settings.deadline };
                world.happen(&mut protocol, Event::Request { node, process, request });
                next = arrivals.next();
            }
        }
    }
    progress(settings.duration);
    world.tally
}

impl<'s, P: Protocol> World<'s, P> {
    fn new(settings: &'s ClusterSettings, rule: Rule) -> Self {
        let mut queue = EventQueue::new();
        for (fault, Fault { kind, start, length, .. }) in settings.faults.iter().enumerate() {
            match kind {
                FaultKind::Crash => queue.add(*start, Event::Crash { fault }),
                FaultKind::Failover => {
                    queue.add(start - length, Event::Snapshot { fault });
                    queue.add(*start, Event::Failover { fault });
                }
                FaultKind::Partition | FaultKind::Pause | FaultKind::Suspend => {}
            }
        }
        Self {
            rule,
            store: State::default(),
            tally: ClusterTally::new(settings),
            settings,
            now: 0,
            primary: 0,
            processes: vec![Process::default(); settings.nodes as usize],
            queue,
            random: Random::new(settings.seed ^ 0x6c6f_7373),
            loss: (settings.loss * WHOLE as f64) as u64,
            snapshots: vec![State::default(); settings.faults.len()],
        }
    }

    /// The clock of the store.
    pub(super) const fn store_clock(&self) -> Timestamp {
        Timestamp::from_nanos(self.now)
    }

    /// The clock of a node.
    pub(super) fn clock(&self, node: usize) -> Timestamp {
        Timestamp::from_nanos(self.now - self.clock_lag(node))
    }

    /// Sends a script to the store.
    pub(super) fn call(&mut self, protocol: &mut P, call: Call, node: usize, message: P::Message) {
        self.tally.call(call, self.now);
        let Process { number: process, primary, .. } = self.processes[node];
        let sender = Sender { node, process, primary };
        // The two ways together take the round trip.
        self.send(protocol, self.settings.rtt / 2, Letter { sender, message }, Event::ToStore);
    }

    /// Sends the answer of the store.
    pub(super) fn reply(&mut self, protocol: &mut P, sender: Sender, message: P::Message) {
        self.send(protocol, self.settings.rtt.div_ceil(2), Letter { sender, message }, Event::ToNode);
    }

    /// Plans something for a time of the node's clock.
    pub(super) fn plan(&mut self, node: usize, at: Timestamp, timer: P::Timer) {
        let at = at.as_nanos() + self.clock_lag(node);
        let process = self.processes[node].number;
        self.queue.add(at.max(self.now), Event::Timer { node, process, timer });
    }

    /// Plans something for the time at which a request has waited long enough.
    pub(super) fn plan_end(&mut self, node: usize, request: Request, timer: P::Timer) {
        let process = self.processes[node].number;
        self.queue.add(request.until.max(self.now), Event::Timer { node, process, timer });
    }

    /// Whether a request has waited long enough.
    pub(super) const fn has_waited(&self, request: &Request) -> bool {
        self.now >= request.until
    }

    /// Admits a request.
    pub(super) fn admit(&mut self, node: usize, request: Request) {
        self.tally.admit(node, request.arrived, self.now);
    }

    /// Denies a request.
    pub(super) fn deny(&mut self, request: Request) {
        self.tally.deny(request.arrived, self.now);
    }

    /// Gives up a request that got no answer in time.
    pub(super) fn give_up(&mut self, request: Request) {
        self.tally.give_up(request.arrived, request.until.max(self.now));
    }

    /// Ends a request that the store has decided.
    pub(super) fn end_check(&mut self, node: usize, request: Request, is_allowed: bool) {
        match () {
            () if self.now > request.until => self.give_up(request),
            () if is_allowed => self.admit(node, request),
            () => self.deny(request),
        }
    }

    fn send(
        &mut self,
        protocol: &mut P,
        delay: u64,
        letter: Letter<P::Message>,
        event: fn(Letter<P::Message>) -> Event<P>,
    ) {
        let is_lost = self.loss > 0 && self.random.below(WHOLE) < self.loss;
        if is_lost || self.is_cut_off(letter.sender.node) {
            protocol.lost(letter.sender.node, letter.message, self);
        } else {
            self.queue.add(self.now + delay, event(letter));
        }
    }

    fn happen(&mut self, protocol: &mut P, event: Event<P>) {
        if let Some(end) = event.node().and_then(|node| self.stall_end(node)) {
            self.queue.add(end, event);
            return;
        }
        match event {
            Event::Request { node, process, request } => {
                let known = self.processes[node];
                if process != known.number || self.now < known.starts_at {
                    self.tally.give_up(request.arrived, self.now);
                } else {
                    // A request that came while the process stood still begins to wait now.
                    let until = self.now + self.settings.deadline;
                    protocol.request(node, Request { until, ..request }, self);
                }
            }
            Event::ToStore(Letter { sender, message }) => {
                if sender.primary != self.primary || self.is_cut_off(sender.node) {
                    protocol.lost(sender.node, message, self);
                } else {
                    self.tally.begin(self.now);
                    protocol.at_store(sender, message, self);
                }
            }
            Event::ToNode(Letter { sender: Sender { node, process, primary }, message }) => {
                let known = self.processes[node];
                if process != known.number || primary != known.primary || self.is_cut_off(node) {
                    protocol.lost(node, message, self);
                } else {
                    protocol.at_node(node, message, self);
                }
            }
            Event::Timer { node, process, timer } => {
                if process == self.processes[node].number {
                    protocol.at_time(node, timer, self);
                }
            }
            Event::NewPrimary { node } => {
                self.processes[node].primary = self.primary;
                protocol.change_primary(node, self);
            }
            Event::Crash { fault } => self.crash(protocol, self.settings.faults[fault]),
            Event::Snapshot { fault } => self.snapshots[fault] = self.store.clone(),
            Event::Failover { fault } => {
                self.store = std::mem::take(&mut self.snapshots[fault]);
                self.primary += 1;
                for node in 0..self.processes.len() {
                    self.queue.add(self.now, Event::NewPrimary { node });
                }
            }
        }
    }

    fn crash(&mut self, protocol: &mut P, fault: Fault) {
        for node in (0..self.processes.len()).filter(|node| fault.is_of(*node)) {
            let number = self.processes[node].number + 1;
            self.processes[node] = Process { number, starts_at: fault.end(), primary: self.primary };
            protocol.restart(node, self);
        }
    }

    /// Whether no message passes between a node and the store.
    fn is_cut_off(&self, node: usize) -> bool {
        let faults = &self.settings.faults;
        faults.iter().any(|f| f.kind == FaultKind::Partition && f.is_of(node) && f.is_at(self.now))
    }

    /// When the process of a node goes on, if it stands still.
    fn stall_end(&self, node: usize) -> Option<u64> {
        let faults = &self.settings.faults;
        faults.iter().find(|f| f.kind.is_stall() && f.is_of(node) && f.is_at(self.now)).map(Fault::end)
    }

    /// How far the clock of a node is behind, because the node was suspended.
    fn clock_lag(&self, node: usize) -> u64 {
        let suspended = |f: &&Fault| f.kind == FaultKind::Suspend && f.is_of(node) && f.start <= self.now;
        self.settings.faults.iter().filter(suspended).map(|f| f.end().min(self.now) - f.start).sum()
    }
}

impl<P: Protocol> Event<P> {
    /// The node at which it happens.
    const fn node(&self) -> Option<usize> {
        match self {
            Self::Request { node, .. } | Self::Timer { node, .. } | Self::NewPrimary { node } => Some(*node),
            Self::ToNode(letter) => Some(letter.sender.node),
            Self::ToStore(_) | Self::Crash { .. } | Self::Snapshot { .. } | Self::Failover { .. } => None,
        }
    }
}
