//! The algorithms that stand side by side, each with the states of all clients. They are those of production: here are only places
//! to keep states in, and sums.
#![deny(clippy::wildcard_enum_match_arm, reason = "a new algorithm must be handled in every match")]

use std::fmt;
use std::time::Duration;

use tollgate_core::{
    Algorithm, AlgorithmKind, Align, FixedWindow, LeakyBucket, Mode, Nanos, Outcome, Rate, RuleError,
    SlidingCounter, SlidingLog, Timestamp, TokenBucket,
};

/// An algorithm, by its name in policy files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    /// `limit / window` tokens a second, of which `limit` can be saved up.
    TokenBucket,
    /// A queue of `limit` places from which `limit / window` leave a second.
    LeakyBucket,
    /// `limit` in each window of the wall clock.
    FixedWindow,
    /// `limit` in any window, exactly.
    SlidingLog,
    /// `limit` in any window, about: two counters.
    SlidingCounter,
    /// `limit` in any window, never more: 32 counters.
    StrictCounter,
}

impl Name {
    /// The algorithms that a replay compares, in the order of [`AlgorithmKind::ALL`].
    pub const ALL: [Self; Self::COMPARED] = {
        let mut all = [Self::TokenBucket; Self::COMPARED];
        let (mut kind, mut place) = (0, 0);
        while kind < AlgorithmKind::ALL.len() {
            if let Some(name) = Self::of_kind(AlgorithmKind::ALL[kind]) {
                all[place] = name;
                place += 1;
            }
            kind += 1;
        }
        all
    };

    const COMPARED: usize = {
        let (mut kind, mut compared) = (0, 0);
        while kind < AlgorithmKind::ALL.len() {
            compared += Self::of_kind(AlgorithmKind::ALL[kind]).is_some() as usize;
            kind += 1;
        }
        compared
    };

    /// The algorithm with a limit and a window as its only numbers, as a replay compares it. None where they are not enough:
    /// burst credits need a peak, and permits depend on how long requests take.
    pub const fn of_kind(kind: AlgorithmKind) -> Option<Self> {
        match kind {
            AlgorithmKind::TokenBucket => Some(Self::TokenBucket),
            AlgorithmKind::LeakyBucket => Some(Self::LeakyBucket),
            AlgorithmKind::FixedWindow => Some(Self::FixedWindow),
            AlgorithmKind::SlidingLog => Some(Self::SlidingLog),
            AlgorithmKind::SlidingCounter => Some(Self::SlidingCounter),
            AlgorithmKind::BurstCredits | AlgorithmKind::Concurrency => None,
        }
    }

    /// The algorithm as policy files call it. The strict counter has a name of its own.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TokenBucket => AlgorithmKind::TokenBucket.name(),
            Self::LeakyBucket => AlgorithmKind::LeakyBucket.name(),
            Self::FixedWindow => AlgorithmKind::FixedWindow.name(),
            Self::SlidingLog => AlgorithmKind::SlidingLog.name(),
            Self::SlidingCounter => AlgorithmKind::SlidingCounter.name(),
            Self::StrictCounter => "sliding_counter_strict",
        }
    }

    /// The algorithm of a name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().chain([Self::StrictCounter]).find(|known| known.as_str() == name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A limit, as it is given to every algorithm: so many in so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// How many.
    pub limit: u64,
    /// In how long.
    pub window: Duration,
}

/// A request as it is decided: small, since millions may have to be sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it comes, in nanoseconds: since the Unix epoch in a log, since the start in a scenario.
    pub at: u64,
    /// What it costs.
    pub cost: u64,
    /// Whose it is, by number.
    pub client: u32,
}

/// An algorithm, and the states of its clients.
pub trait Lane {
    /// Decides requests in their order, and adds an outcome for each. Times are since `start`.
    fn decide(&mut self, events: &[Event], start: u64, outcomes: &mut Vec<Outcome>);

    /// What a client has left at a time.
    fn remaining(&self, client: u32, now: u64) -> u64;

    /// The most that can pass at once.
    fn capacity(&self) -> u64;

    /// The bytes that the states of all clients take, and how many clients there are.
    fn bytes(&self) -> (usize, usize);
}

/// The largest limit of which an exact log is kept here: 8 bytes for each unit of it and client.
pub const LARGEST_LOG: u64 = 50_000_000;

/// A new lane. Windows begin with those of the wall clock, which is `start` at the beginning.
///
/// # Errors
///
/// When the numbers make no rule.
pub fn lane(name: Name, limit: Limit, start: u64) -> Result<Box<dyn Lane>, RuleError> {
    let Limit { limit, window } = limit;
    let since_epoch = Duration::from_nanos(start);
    Ok(match name {
        Name::TokenBucket => Box::new(States::new(TokenBucket::new(Rate::new(limit, window)?, limit)?)),
        Name::LeakyBucket => Box::new(States::new(LeakyBucket::new(Rate::new(limit, window)?, limit)?)),
        Name::FixedWindow => {
            Box::new(States::new(FixedWindow::new(limit, window, Align::Epoch)?.started_at(since_epoch)))
        }
        Name::SlidingLog => Box::new(States::new(SlidingLog::new(limit, window)?)),
        Name::SlidingCounter => Box::new(States::new(
            SlidingCounter::new(limit, window, 1, Mode::Interpolate)?.started_at(since_epoch),
        )),
        Name::StrictCounter => Box::new(States::new(
            SlidingCounter::new(limit, window, 32, Mode::Strict)?.started_at(since_epoch),
        )),
    })
}

/// A rule, and the states of clients by number.
struct States<A: Algorithm> {
    rule: A,
    states: Vec<A::State>,
}

impl<A: Algorithm> States<A> {
    const fn new(rule: A) -> Self {
        Self { rule, states: Vec::new() }
    }

    /// Looks at the states of a batch, where there are too many for the processor's cache. To decide is to branch by what is there,
    /// and until that has come, nothing behind the branch is asked for; to count is not, and all of them come side by side. (55 ns a
    /// decision of a million clients without it, 37 with it.)
    fn fetch(&self, events: &[Event]) {
        let is_plain = size_of::<A::State>() <= 24;
        if is_plain && self.states.len() * size_of::<A::State>() > FITS_CACHE {
            let unused = A::State::default();
            let is_unused = |event: &&Event| self.states[event.client as usize] == unused;
            std::hint::black_box(events.iter().filter(is_unused).count());
        }
    }
}

/// So many bytes are found in a core's own cache.
const FITS_CACHE: usize = 512 << 10;

impl<A: Algorithm + Heap> Lane for States<A> {
    fn decide(&mut self, events: &[Event], start: u64, outcomes: &mut Vec<Outcome>) {
        let most = events.iter().map(|event| event.client as usize + 1).max().unwrap_or(0);
        if most > self.states.len() {
            self.states.resize_with(most, A::State::default);
        }
        self.fetch(events);
        outcomes.extend(events.iter().map(|event| {
            let now = Timestamp::from_nanos(event.at - start);
            let state = &mut self.states[event.client as usize];
            // `decide` without telling what remains, which nobody asks for here.
            let outcome = self.rule.test(state, event.cost, now);
            if outcome.is_allowed() {
                self.rule.spend(state, event.cost, now);
            }
            outcome
        }));
    }

    fn remaining(&self, client: u32, now: u64) -> u64 {
        match self.states.get(client as usize) {
            Some(state) => self.rule.status(state, Timestamp::from_nanos(now)).remaining,
            None => self.rule.capacity(),
        }
    }

    fn capacity(&self) -> u64 {
        self.rule.capacity()
    }

    fn bytes(&self) -> (usize, usize) {
        let heap: usize = self.states.iter().map(A::heap_bytes).sum();
        (self.states.len() * size_of::<A::State>() + heap, self.states.len())
    }
}

/// What a state has on the heap.
trait Heap: Algorithm {
    fn heap_bytes(state: &Self::State) -> usize {
        let _ = state;
        0
    }
}

impl Heap for TokenBucket {}
impl Heap for LeakyBucket {}
impl Heap for FixedWindow {}
impl Heap for SlidingLog {
    fn heap_bytes(state: &Self::State) -> usize {
        state.heap_bytes()
    }
}
impl Heap for SlidingCounter {
    fn heap_bytes(state: &Self::State) -> usize {
        state.heap_bytes()
    }
}

/// How long an outcome makes somebody wait: a request that is held, until it goes.
pub(crate) fn held(outcome: Outcome) -> Option<Nanos> {
    match outcome {
        Outcome::Allow { delay } => Some(delay),
        Outcome::Deny { .. } => None,
    }
}
