//! The script grants what `Rule::grant` grants, step by step: random draws of every algorithm that can be leased, at random times that
//! also step back, with checks, returns, lost states and other numbers in between.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate_core::adaptive::Pace;
use tollgate_core::lease::{Draw, Grant, Mark};
use tollgate_core::{
    Action, AlgorithmKind, Align, BurstCredits, Credits, Decision, FixedWindow, Mode, Nanos, Outcome,
    PermitId, Rate, Retry, Rule, RuleParts, SlidingCounter, State, Status, Tat, Timestamp, TokenBucket,
};
use tollgate_policy::{Ask, DrawCall, LeaseStore as _, LeasedKey, PrimaryId, ReturnCall, Store as _};
use tollgate_redis::RedisStore;
use tollgate_testkit::{Random, RedisServer, is_long};

use super::{DEADLINE, store_at_a_time};

/// Keys that are asked at each moment.
const KEYS: usize = 100;

/// Steps for each algorithm.
fn steps() -> usize {
    if is_long() { 1_000_000 } else { 20_000 }
}

/// Makes a rule of random numbers.
type Make = fn(&mut Random) -> Rule;

const ALGORITHMS: [(&str, Make); 7] = [
    ("token_bucket", |random| TokenBucket::new(rate(random), random.log_uniform(1, 500)).unwrap().into()),
    ("token_bucket of large numbers", large_bucket),
    ("burst_credits", |random| {
        let base = rate(random);
        let peak = Rate::new(base.tokens() * random.between(2, 9), base.period()).unwrap();
        let (credits, burst) = (random.log_uniform(1, 500), random.log_uniform(1, 500));
        BurstCredits::with_peak_burst(base, peak, credits, burst).unwrap().into()
    }),
    ("fixed_window", |random| {
        let align = *random.pick(&[Align::Epoch, Align::First]);
        let most = if random.chance(1, 4) { 1 << 40 } else { 500 };
        let limit = random.log_uniform(1, most);
        FixedWindow::new(limit, span(random, 1), align).unwrap().into()
    }),
    ("sliding_counter", |random| counter(random, 1)),
    ("sliding_counter of many", |random| {
        let buckets = random.between(2, 40);
        counter(random, buckets as u32)
    }),
    ("sliding_counter of large numbers", |random| {
        let mode = *random.pick(&[Mode::Interpolate, Mode::Strict, Mode::Lenient]);
        SlidingCounter::new(random.between(1 << 30, 1 << 45), span(random, 1), 1, mode).unwrap().into()
    }),
];

#[test]
fn every_algorithm_that_can_be_leased_is_compared_with_the_core() {
    let mut random = Random::new(1);
    let compared: BTreeSet<_> = ALGORITHMS.iter().map(|(_, make)| make(&mut random).kind()).collect();
    let leased = [
        AlgorithmKind::TokenBucket,
        AlgorithmKind::BurstCredits,
        AlgorithmKind::FixedWindow,
        AlgorithmKind::SlidingCounter,
    ];
    assert_eq!(compared, leased.into());
}

fn rate(random: &mut Random) -> Rate {
    // Also some that are not exact in the core.
    let tokens = if random.chance(1, 4) { random.between(1, 10_000) } else { random.between(1, 64) };
    Rate::new(tokens, Duration::from_nanos(random.log_uniform(100_000, 10_000_000_000))).unwrap()
}

/// Products of its units pass 2^53, or it takes weeks to fill.
fn large_bucket(random: &mut Random) -> Rule {
    // The most that can be leased, whatever the pieces of two seconds are.
    const MOST_PIECES: u64 = (1 << 52) - 64 * 2_000_000_000;
    let tokens = random.between(1, 64);
    let (rate, most) = if random.chance(1, 2) {
        (Rate::new(tokens, Duration::from_nanos(random.between(64, 1000))).unwrap(), MOST_PIECES / 1000)
    } else {
        let period = random.log_uniform(1_000_000_000, 86_400_000_000_000);
        (Rate::new(tokens, Duration::from_nanos(period)).unwrap(), MOST_PIECES / period)
    };
    TokenBucket::new(rate, random.between(most / 2 + 1, most)).unwrap().into()
}

fn counter(random: &mut Random, buckets: u32) -> Rule {
    let mode = *random.pick(&[Mode::Interpolate, Mode::Strict, Mode::Lenient]);
    SlidingCounter::new(random.log_uniform(1, 500), span(random, buckets.into()), buckets, mode)
        .unwrap()
        .into()
}

fn span(random: &mut Random, least: u64) -> Duration {
    Duration::from_micros(random.log_uniform(least, 5_000_000))
}

#[test]
fn the_script_grants_as_the_rules_do() {
    let (server, runtime) = (RedisServer::start(), tokio::runtime::Runtime::new().unwrap());
    runtime.block_on(async {
        let store = store_at_a_time(&server).await;
        for (number, (name, make)) in ALGORITHMS.into_iter().enumerate() {
            let mut comparison = Comparison::new(&store, name, make, number as u64);
            for _ in 0..steps().div_ceil(KEYS) {
                comparison.step().await;
            }
            comparison.require_variety();
        }
    });
}

/// What the rules say, as a store says it that counts in microseconds.
fn rounded(span: Nanos) -> Nanos {
    Nanos::new(span.get().div_ceil(1000) * 1000)
}

fn rounded_retry(retry: Retry) -> Retry {
    if let Retry::After(wait) = retry { Retry::After(rounded(wait)) } else { retry }
}

fn rounded_status(status: Status) -> Status {
    Status { reset_after: rounded(status.reset_after), ..status }
}

fn rounded_decision(Decision { outcome, status }: Decision) -> Decision {
    let outcome = match outcome {
        Outcome::Allow { delay } => Outcome::Allow { delay: rounded(delay) },
        Outcome::Deny { retry } => Outcome::Deny { retry: rounded_retry(retry) },
    };
    Decision { outcome, status: rounded_status(status) }
}

fn rounded_grant(grant: Grant) -> Grant {
    let (retry, status) = (grant.retry.map(rounded_retry), rounded_status(grant.status));
    Grant { start: rounded(grant.start), retry, status, ..grant }
}

/// A mark that has something charged. The core has several words for nothing.
fn charged_mark(mark: Mark) -> Option<Mark> {
    let is_nothing = match mark {
        Mark::Bucket(tat) => tat == Tat::default(),
        Mark::Credits(credits) => credits == Credits::default(),
        Mark::Window { used, .. } => used == 0,
    };
    (!is_nothing).then_some(mark)
}

/// What a tag in the store says: the numbers without the limit of a window.
fn tagged(rule: &Rule) -> RuleParts {
    match rule.parts() {
        RuleParts::FixedWindow { window, align, counts_denied, .. } => {
            RuleParts::FixedWindow { limit: 0, window, align, counts_denied }
        }
        RuleParts::SlidingCounter { window, buckets, mode, .. } => {
            RuleParts::SlidingCounter { limit: 0, window, buckets, mode }
        }
        parts => parts,
    }
}

/// A grant that may be returned.
#[derive(Clone, Copy)]
struct Held {
    id: u64,
    rule: usize,
    units: u64,
    charged: Timestamp,
    life: Nanos,
}

/// One key, as the core keeps it.
struct Key {
    rules: [Rule; 3],
    written_by: usize,
    state: State,
    marks: Vec<(usize, Mark)>, // the latest, with the numbers that they belong to
    held: Vec<Held>,
    returned: Vec<Held>,
}

/// What the store must answer.
#[derive(Debug, PartialEq)]
enum Answer {
    Grant(Grant, Timestamp),
    Decision(Decision),
    Nothing,
}

/// How often something happened that must not be rare.
#[derive(Debug, Default)]
struct Variety {
    at_once: u64,
    dated: u64,
    denied: u64,
    single: u64,
    nothing: u64,
    marks_that_matter: u64,
    owed: u64,
    returns: u64,
    vain_returns: u64,
    converted: u64,
}

struct Comparison {
    store: RedisStore,
    name: &'static str,
    random: Random,
    keys: Vec<Key>,
    now: u64,
    newest: u64,
    due: u64,
    grants: u64,
    primary: Option<PrimaryId>,
    seen: Variety,
}

impl Comparison {
    fn new(store: &RedisStore, name: &'static str, make: Make, seed: u64) -> Self {
        let mut random = Random::new(5000 + seed);
        let keys = (0..KEYS).map(|_| Key {
            rules: std::array::from_fn(|_| make(&mut random)),
            written_by: 0,
            state: State::default(),
            marks: Vec::new(),
            held: Vec::new(),
            returned: Vec::new(),
        });
        let keys: Vec<Key> = keys.collect();
        for key in &keys {
            key.rules.iter().for_each(|rule| store.require_lease(rule).unwrap());
        }
        Self {
            store: store.clone(),
            name,
            random,
            keys,
            now: 10_000_000,
            newest: 10_000_000,
            due: 0,
            grants: 0,
            primary: None,
            seen: Variety::default(),
        }
    }

    /// Goes on, sometimes to where something is due, and sometimes back.
    fn tick(&mut self) {
        let (random, due) = (&mut self.random, std::mem::take(&mut self.due));
        self.now = match random.below(20) {
            0..=5 => self.now,
            6..=7 => self.now + due,
            8 => (self.now + due).saturating_sub(1).max(self.now),
            9..=13 => self.now + random.log_uniform(1, 1000),
            14..=17 => self.now + random.log_uniform(1, 3_000_000),
            18 => self.now - random.log_uniform(1, self.now / 2),
            _ => self.newest,
        };
        self.newest = self.newest.max(self.now);
        self.store.set_time(self.now);
    }

    /// Asks something of every key at one moment.
    async fn step(&mut self) {
        self.tick();
        let mut answers = JoinSet::new();
        let mut expected = Vec::new();
        for number in 0..self.keys.len() {
            let (wanted, what) = match self.random.below(10) {
                0..=5 => self.draw(number, &mut answers),
                6 => self.give_back(number, &mut answers),
                7 if self.random.chance(1, 5) => self.forget(number, &mut answers),
                _ => self.check(number, &mut answers),
            };
            expected.push((wanted, what));
        }
        while let Some(answer) = answers.join_next().await {
            let (number, answer) = answer.unwrap();
            let (wanted, what) = &expected[number];
            assert_eq!(answer.as_ref(), Ok(wanted), "{}, key {number} at {}: {what}", self.name, self.now);
        }
    }

    fn leased(&self, number: usize, rule: usize) -> Arc<LeasedKey> {
        Arc::new(LeasedKey {
            limit: self.name.into(),
            key: Box::new([number.to_string().as_bytes().into()]),
            tag: Box::default(),
            rule: self.keys[number].rules[rule],
            pace: Pace::FULL,
        })
    }

    fn primary(&mut self, key: &LeasedKey) -> PrimaryId {
        *self.primary.get_or_insert_with(|| self.store.primary(key).unwrap())
    }

    /// Which numbers a call has, and the state as it is under these. Every fourth key changes its numbers.
    fn converted(&mut self, number: usize) -> (usize, State) {
        let now = Timestamp::from_nanos(self.now * 1000);
        let changes = number.is_multiple_of(4) && self.random.chance(1, 20);
        let key = &self.keys[number];
        let asked_by = if changes { self.random.below(3) as usize } else { key.written_by };
        let (mut state, rule, before) = (key.state.clone(), key.rules[asked_by], key.rules[key.written_by]);
        if rule != before {
            rule.convert(&before, &mut state, now);
            self.seen.converted += 1;
        }
        (asked_by, state)
    }

    fn draw(&mut self, number: usize, answers: &mut Answers) -> (Answer, String) {
        let (asked_by, mut state) = self.converted(number);
        let now = Timestamp::from_nanos(self.now * 1000);
        let key = self.leased(number, asked_by);
        let (rule, capacity) = (key.rule, key.rule.capacity());
        let primary = self.primary(&key);
        let random = &mut self.random;
        let cost = match random.below(12) {
            0 => capacity.saturating_add(random.between(1, 3)),
            1 => random.between(1, capacity),
            2..=4 => random.between(1, capacity.min(5)),
            _ => 0,
        };
        let owed = if random.chance(1, 12) { random.log_uniform(1, capacity.saturating_mul(2)) } else { 0 };
        let known: Vec<Mark> =
            self.keys[number].marks.iter().filter(|(of, _)| *of == asked_by).map(|(_, mark)| *mark).collect();
        let mark = (!known.is_empty() && random.chance(1, 4)).then(|| *random.pick(&known));
        let sync = match random.below(3) {
            0 => random.log_uniform(1, 10_000_000),
            _ => random.log_uniform(10_000_000, 5_000_000_000),
        };
        let demand = match random.below(12) {
            0 => 0,
            // Up to the most that the script counts.
            1 => random.log_uniform(
                1,
                u64::try_from((1_u128 << 50) * 1_000_000_000 / u128::from(sync)).unwrap_or(u64::MAX),
            ),
            2..=4 => random.log_uniform(1, 1 << 40),
            _ => random.log_uniform(1, 100_000),
        };
        let draw = Draw { sync: Nanos::new(sync), demand, cost, owed, mark };
        let mut presented = state.clone();
        rule.grant(&mut presented, &Draw { mark, ..Draw::of_cost(0) }, now);
        let has_mark_that_matters = presented != state;
        self.seen.marks_that_matter += u64::from(has_mark_that_matters);
        let grant = rule.grant(&mut state, &draw, now);
        let seen = &mut self.seen;
        match grant {
            Grant { retry: Some(_), .. } => seen.denied += 1,
            Grant { units: 0, .. } => seen.nothing += 1,
            Grant { start: Nanos::ZERO, .. } if demand > 0 => seen.at_once += 1,
            Grant { start: Nanos::ZERO, .. } => seen.single += 1,
            Grant { .. } => seen.dated += 1,
        }
        seen.owed += u64::from(owed > 0);
        if let Some(Retry::After(wait)) = grant.retry {
            self.due = wait.get().div_ceil(1000).min(10_000_000);
        }
        self.grants += 1;
        let entry = &mut self.keys[number];
        let is_kept = grant.units > 0 || grant.retry.is_some_and(|retry| retry != Retry::Never);
        if asked_by == entry.written_by || is_kept || owed > 0 || has_mark_that_matters {
            (entry.written_by, entry.state) = (asked_by, state);
        }
        if let Some(mark) = charged_mark(grant.mark) {
            entry.marks.push((asked_by, mark));
            let excess = entry.marks.len().saturating_sub(5);
            entry.marks.drain(..excess);
        }
        if grant.units > 0 {
            let life = Nanos::new(sync * 5 / 1000 * 1000);
            let held = Held { id: self.grants, rule: asked_by, units: grant.units, charged: now, life };
            entry.held.push(held);
            let excess = entry.held.len().saturating_sub(5);
            entry.held.drain(..excess);
        }
        let call = DrawCall { key, draw, primary, deadline: DEADLINE };
        let store = self.store.clone();
        let what = format!("{draw:?} by {rule:?}");
        answers.spawn(async move {
            let answer = store.draw(call).await;
            let answer = answer.map(|drawn| Answer::grant(drawn.grant, drawn.charged));
            (number, answer.map_err(|error| error.to_string()))
        });
        (Answer::grant(rounded_grant(grant), now), what)
    }

    /// Returns a grant, sometimes for a second time.
    fn give_back(&mut self, number: usize, answers: &mut Answers) -> (Answer, String) {
        let now = Timestamp::from_nanos(self.now * 1000);
        let again = self.random.chance(1, 4);
        let entry = &self.keys[number];
        let grants = if again { &entry.returned } else { &entry.held };
        if grants.is_empty() {
            return self.check(number, answers);
        }
        let held = *self.random.pick(grants);
        let (rule, writer) = (entry.rules[held.rule], entry.rules[entry.written_by]);
        let is_present = tagged(&rule) == tagged(&writer);
        // The store does not know when a window was carried over.
        if is_present && number.is_multiple_of(4) {
            return self.check(number, answers);
        }
        let units = self.random.between(1, held.units);
        let entry = &mut self.keys[number];
        let is_in_time = now < held.charged.after(held.life);
        let mut given = 0;
        if is_in_time && !again {
            entry.held.retain(|one| one.id != held.id);
            entry.returned.push(held);
            let excess = entry.returned.len().saturating_sub(5);
            entry.returned.drain(..excess);
            if is_present {
                given = rule.refund(&mut entry.state, units, held.charged, now);
            }
        }
        self.seen.returns += u64::from(given > 0);
        self.seen.vain_returns += u64::from(given == 0);
        let key = self.leased(number, held.rule);
        let Held { id: grant, charged, life, .. } = held;
        let primary = self.primary(&key);
        let call = ReturnCall { key, grant, units, charged, life, primary };
        let (store, what) = (self.store.clone(), format!("{call:?}"));
        answers.spawn(async move {
            let answer = store.give_back(call).await.map(|()| Answer::Nothing);
            (number, answer.map_err(|error| error.to_string()))
        });
        (Answer::Nothing, what)
    }

    /// The store loses the key.
    fn forget(&mut self, number: usize, answers: &mut Answers) -> (Answer, String) {
        let key = self.leased(number, self.keys[number].written_by);
        let store = self.store.clone();
        self.keys[number].state = State::default();
        answers.spawn(async move {
            let answer = store.forget(&key.ask(1)).await.map(|_| Answer::Nothing);
            (number, answer.map_err(|error| error.to_string()))
        });
        (Answer::Nothing, "it is forgotten".to_owned())
    }

    /// One exact request.
    fn check(&mut self, number: usize, answers: &mut Answers) -> (Answer, String) {
        let (asked_by, mut state) = self.converted(number);
        let now = Timestamp::from_nanos(self.now * 1000);
        let key = self.leased(number, asked_by);
        let (rule, random) = (key.rule, &mut self.random);
        let left = rule.status(&state, now).remaining;
        let cost = match random.below(10) {
            0 => random.between(1, rule.capacity()),
            // All but a few units, so that later draws get units that are still to come.
            1..=2 if left > 0 => (left - random.log_uniform(1, left)).max(1),
            _ => random.between(1, rule.capacity().min(5)),
        };
        let action = *random.pick(&[Action::Charge, Action::Charge, Action::Peek, Action::ChargeInFull]);
        let (outcome, is_written) = match action {
            Action::ChargeInFull => {
                let outcome = rule.test_in_full(&state, cost, now);
                rule.spend_in_full(&mut state, cost, now);
                (outcome, true)
            }
            Action::Peek => (rule.test(&state, cost, now), false),
            Action::Charge | Action::Hold | Action::Refund => {
                let outcome = rule.decide(&mut state, PermitId(0), cost, now).outcome;
                (outcome, outcome != Outcome::NEVER)
            }
        };
        let decision = Decision { outcome, status: rule.status(&state, now) };
        let entry = &mut self.keys[number];
        if is_written {
            (entry.written_by, entry.state) = (asked_by, state);
        }
        let store = self.store.clone();
        answers.spawn(async move {
            let ask = Ask { action, ..key.ask(cost) };
            let answer = store.decide(&[ask]).await.map(|decided| Answer::Decision(decided.each[0].decision));
            (number, answer.map_err(|error| error.to_string()))
        });
        (Answer::Decision(rounded_decision(decision)), format!("{action:?} of {cost} by {rule:?}"))
    }

    /// Requires that every kind of answer was compared.
    fn require_variety(&self) {
        println!("{}: {:?}", self.name, self.seen);
        let Variety { at_once, denied, single, nothing, marks_that_matter, .. } = self.seen;
        let Variety { owed, returns, vain_returns, converted, dated, .. } = self.seen;
        let common = [at_once, denied, single, nothing, owed, returns, vain_returns, marks_that_matter];
        let has_dates = matches!(self.keys[0].rules[0], Rule::TokenBucket(_) | Rule::BurstCredits(_));
        assert!(common.into_iter().all(|count| count > 20), "{}: {:?}", self.name, self.seen);
        assert!(!has_dates || dated > 20, "{}: {:?}", self.name, self.seen);
        assert!(converted > 20, "{}: {:?}", self.name, self.seen);
    }
}

type Answers = JoinSet<(usize, Result<Answer, String>)>;

impl Answer {
    fn grant(grant: Grant, charged: Timestamp) -> Self {
        let mark = charged_mark(grant.mark).unwrap_or(Mark::Bucket(Tat::default()));
        Self::Grant(Grant { mark, ..grant }, charged)
    }
}
