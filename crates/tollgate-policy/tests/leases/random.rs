//! Random histories of engines that lease from one store. What must hold after every step is checked after every step.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::thread;

use tollgate::{Clock, Nanos, Timestamp};
use tollgate_policy::{Engine, Policy, Request, Source, Verdict};
use tollgate_testkit::{Random, is_long};

use super::store::{DEADLINE, GrantStore};
use super::{MS, Node, TENANT, USER};

const PATHS: [&str; 3] = ["/a", "/b", "/c"];
const USERS: [&str; 2] = ["u", "v"];
const TENANTS: [&str; 2] = ["s", "t"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bucket,
    Window,
    Counter,
    Log,
}

/// A limit of a random policy.
#[derive(Clone)]
struct RandomLimit {
    name: &'static str,
    kind: Kind,
    key: &'static str,
    rate: u64, // per second; the window of other kinds, in seconds
    burst: u64,
    paths: Vec<&'static str>,
    on_error: &'static str,
    is_shadow: bool,
    pro: Option<(u64, u64)>,
    is_for_pro: bool, // applies to one tier only
}

impl RandomLimit {
    fn new(name: &'static str, random: &mut Random) -> Self {
        let kind =
            *random.pick(&[Kind::Bucket, Kind::Bucket, Kind::Bucket, Kind::Window, Kind::Counter, Kind::Log]);
        let burst = if random.chance(1, 4) { 16 } else { random.log_uniform(16, 2000) };
        let rate = if kind == Kind::Bucket { random.log_uniform(1, 3000) } else { random.between(1, 3) };
        let pro = (kind == Kind::Bucket && random.chance(1, 4))
            .then(|| (random.log_uniform(1, 3000), random.log_uniform(16, 2000)));
        let mut paths: Vec<_> = PATHS.into_iter().filter(|_| random.chance(2, 3)).collect();
        if paths.is_empty() {
            paths.push("/a");
        }
        Self {
            name,
            kind,
            key: *random.pick(&["user", "tenant"]),
            rate,
            burst,
            paths,
            on_error: *random.pick(&["deny", "allow", "local"]),
            is_shadow: random.chance(1, 6),
            pro,
            is_for_pro: random.chance(1, 8),
        }
    }

    fn write(&self, file: &mut String) {
        let Self { name, key, rate, burst, paths, on_error, is_shadow, .. } = self;
        let tier = if self.is_for_pro { ", tier: pro" } else { "" };
        write!(
            file,
            "  - {{ name: {name}, match: {{ path: {paths:?}{tier} }}, key: [{key}], shadow: {is_shadow}, on_error: {on_error}, "
        )
        .unwrap();
        match self.kind {
            Kind::Bucket => write!(file, "token_bucket: {{ rate: {rate}/s, burst: {burst} }}"),
            Kind::Window => write!(file, "fixed_window: {{ limit: {burst}, window: {rate}s }}"),
            Kind::Counter => write!(file, "sliding_counter: {{ limit: {burst}, window: {rate}s }}"),
            Kind::Log => write!(file, "sliding_log: {{ limit: {burst}, window: {rate}s }}"),
        }
        .unwrap();
        if let Some((rate, burst)) = self.pro {
            write!(file, ", tiers: {{ pro: {{ rate: {rate}/s, burst: {burst} }} }}").unwrap();
        }
        file.push_str(" }\n");
    }

    /// The most that one process holds of a key, if no request costs more than `most_cost`.
    fn most_held(&self, most_cost: u64) -> u64 {
        let burst = self.burst.max(self.pro.map_or(0, |(_, burst)| burst));
        if most_cost > self.burst.min(self.pro.map_or(u64::MAX, |(_, burst)| burst)) / 4 {
            (burst / 2).max(2 * most_cost.min(burst))
        } else {
            burst / 2
        }
    }
}

fn policy(limits: &[RandomLimit], is_cluster: bool) -> Result<Policy, String> {
    let mut file = format!(
        "store: {{ redis: {{ url: 'redis://127.0.0.1:1', cluster: {is_cluster}, mode: lease, on_error: deny }} }}\n\
         tiers: {{ free: {{}}, pro: {{}} }}\ndefault_tier: free\nlimits:\n"
    );
    limits.iter().for_each(|limit| limit.write(&mut file));
    Policy::read(Path::new("tollgate.yaml"), &file).map_err(|faults| format!("{faults}\n{file}"))
}

/// What a request did to one limit.
struct Part {
    limit: String,
    key: String,
    cost: u64,
    is_shadow: bool,
    is_charged: bool,
}

struct Done {
    is_allowed: bool,
    source: Source,
    parts: Vec<Part>,
}

fn done(verdict: &Verdict<'_>) -> Done {
    let parts = |is_shadow| {
        let limits: Vec<_> = if is_shadow { verdict.shadow().collect() } else { verdict.limits().collect() };
        limits.into_iter().map(move |limit| Part {
            limit: limit.name().to_owned(),
            key: format!("{}:{}", limit.name(), limit.key()[0]),
            cost: limit.cost(),
            is_shadow,
            is_charged: limit.is_charged(),
        })
    };
    let parts = parts(false).chain(parts(true)).collect();
    Done { is_allowed: verdict.is_allowed(), source: verdict.source(), parts }
}

struct Waiting {
    request: Pin<Box<dyn Future<Output = Done> + Send>>,
    since: Timestamp,
}

/// What was charged to a key.
#[derive(Default)]
struct Charged {
    first: Option<Timestamp>,
    units: u64,
    window: u64,
    in_window: u64,
}

struct History {
    random: Random,
    clock: Clock,
    store: Arc<GrantStore>,
    engines: Vec<Arc<Engine>>,
    limits: Vec<RandomLimit>,
    other: Vec<RandomLimit>, // as a reload has them
    is_cluster: bool,
    is_calm: bool, // no resets, reloads or outages
    is_down: bool,
    waiting: Vec<Waiting>,
    keys: HashMap<String, Charged>,
    spent: HashMap<String, [u64; 2]>, // by grants or the store; and by these or the share of a process
    most_cost: u64,
    decided: u64,
}

const NAMES: [&str; 4] = ["one", "two", "three", "four"];

impl History {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = random.between(1, 4) as usize;
        let limits: Vec<_> = NAMES[..count].iter().map(|name| RandomLimit::new(name, &mut random)).collect();
        let mut other = limits.clone();
        for limit in &mut other {
            if random.chance(1, 2) {
                limit.burst = random.log_uniform(16, 2000);
            }
        }
        if random.chance(1, 3) {
            other.pop();
        }
        if other.is_empty() {
            other.clone_from(&limits);
        }
        let clock = Clock::manual();
        clock.advance(Nanos::new(10_000_000_000));
        let store = GrantStore::new(clock.clone());
        let engine = |is_cluster| {
            let policy = policy(&limits, is_cluster)?;
            Engine::with_store(policy, clock.clone(), Arc::<GrantStore>::clone(&store))
                .map_err(|error| error.to_string())
        };
        let is_cluster = random.chance(1, 2) && engine(true).is_ok() && policy(&other, true).is_ok();
        let engines = (0..random.between(1, 2)).map(|_| Arc::new(engine(is_cluster).unwrap())).collect();
        let is_calm = random.chance(1, 2);
        Self {
            random,
            clock,
            store,
            engines,
            limits,
            other,
            is_cluster,
            is_calm,
            is_down: false,
            waiting: Vec::new(),
            keys: HashMap::new(),
            spent: HashMap::new(),
            most_cost: 1,
            decided: 0,
        }
    }

    fn engine(&mut self) -> Arc<Engine> {
        Arc::clone(self.random.pick(&self.engines))
    }

    fn limit(&self, name: &str) -> &RandomLimit {
        self.limits.iter().find(|limit| limit.name == name).unwrap()
    }

    fn request(&mut self) {
        let (path, user, tenant) =
            (*self.random.pick(&PATHS), *self.random.pick(&USERS), *self.random.pick(&TENANTS));
        let cost = match self.random.below(20) {
            0 => Some(0),
            1 => Some(self.random.log_uniform(1, 3000)),
            2 | 3 => Some(self.random.between(1, 16)),
            _ => None,
        };
        self.most_cost = self.most_cost.max(cost.unwrap_or(1));
        let (engine, now) = (self.engine(), self.clock.now());
        let of = Arc::clone(&engine);
        let attributes = [("path", path), ("user", user), ("tenant", tenant)];
        let before = self.random.chance(1, 8).then(|| (self.kept(&of), self.store.states()));
        let mut request: Pin<Box<dyn Future<Output = Done> + Send>> = Box::pin(async move {
            let policy = engine.policy();
            let verdict = policy.check(&Request { attributes: &attributes, cost }, now).wait().await.unwrap();
            done(&verdict)
        });
        match request.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => {
                let is_shadow = done.parts.iter().any(|part| part.is_shadow);
                if let Some(before) = before.filter(|_| !done.is_allowed && !is_shadow) {
                    assert_eq!((self.kept(&of), self.store.states()), before, "a denial charges nothing");
                }
                self.note(&done);
            }
            Poll::Pending => self.waiting.push(Waiting { request, since: now }),
        }
    }

    /// What has not been spent of each limit.
    fn kept(&self, engine: &Engine) -> u64 {
        engine
            .lease_stats()
            .iter()
            .map(|stats| stats.drawn - stats.held - stats.lapsed - stats.returned)
            .sum()
    }

    fn note(&mut self, done: &Done) {
        self.decided += 1;
        let now = self.clock.now();
        // The store may have charged the key for this request, also if another limit has denied it.
        let begun = now.as_nanos().saturating_sub(Nanos::saturating_from(DEADLINE).get());
        for part in &done.parts {
            let key = self.keys.entry(part.key.clone()).or_default();
            key.first.get_or_insert(Timestamp::from_nanos(begun));
        }
        for part in done.parts.iter().filter(|part| part.is_charged) {
            let limit = self.limits.iter().find(|limit| limit.name == part.limit).unwrap();
            let is_unclear = done.source == Source::Fallback && limit.on_error == "local";
            let [certain, most] = self.spent.entry(part.limit.clone()).or_default();
            *most += part.cost;
            if is_unclear {
                continue;
            }
            *certain += part.cost;
            let (kind, rate, burst) = (limit.kind, limit.rate, limit.burst);
            if !self.is_calm || limit.pro.is_some() {
                continue;
            }
            let key = self.keys.entry(part.key.clone()).or_default();
            let first = key.first.unwrap_or(now);
            key.units += part.cost;
            if kind == Kind::Bucket {
                let most =
                    u128::from(burst) * 1_000_000_000 + u128::from(rate) * u128::from(now.since(first).get());
                let span = now.since(first);
                assert!(
                    u128::from(key.units) * 1_000_000_000 <= most,
                    "{}: {} in {span:?}",
                    part.key,
                    key.units
                );
            } else if kind == Kind::Window {
                let window = now.as_nanos() / (rate * 1_000_000_000);
                if window != key.window {
                    (key.window, key.in_window) = (window, 0);
                }
                key.in_window += part.cost;
                assert!(key.in_window <= burst, "{}: {} units in one window", part.key, key.in_window);
            }
        }
    }

    /// Goes on with the requests that wait. None waits for longer than the deadline.
    fn go_on(&mut self) {
        for _ in 0..4 {
            self.store.run();
            for mut one in std::mem::take(&mut self.waiting) {
                match one.request.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(done) => self.note(&done),
                    Poll::Pending => self.waiting.push(one),
                }
            }
        }
        self.store.run();
        let (now, deadline) = (self.clock.now(), Nanos::saturating_from(DEADLINE));
        let late = self.waiting.iter().filter(|one| now.since(one.since) >= deadline).count();
        assert_eq!(late, 0, "requests wait for longer than the deadline");
    }

    fn set_down(&mut self, is_down: bool) {
        if self.is_down != is_down {
            self.store.set_down(is_down);
            self.is_down = is_down;
        }
    }

    fn step(&mut self) {
        let chaos = if self.is_calm { 93 } else { 100 };
        match self.random.below(chaos) {
            0..50 => self.request(),
            50..60 => (0..self.random.log_uniform(1, 60)).for_each(|_| self.request()),
            60..80 => {
                let span = self.random.log_uniform(1_000, 100 * MS.get());
                self.clock.advance(Nanos::new(span));
                self.go_on();
            }
            80..88 => self.go_on(),
            88 => {
                self.clock.advance(Nanos::new(self.random.between(100, 3000) * MS.get()));
                self.go_on();
            }
            89 | 90 => self.store.set_slow(self.random.chance(1, 2)),
            91 | 92 => {
                if !self.waiting.is_empty() {
                    let place = self.random.below(self.waiting.len() as u64) as usize;
                    drop(self.waiting.swap_remove(place));
                }
            }
            93 | 94 => {
                let is_down = self.random.chance(1, 2);
                self.set_down(is_down);
            }
            95 | 96 => {
                let (engine, limit) = (self.engine(), self.random.pick(&self.limits).clone());
                let value = if limit.key == "user" { USERS[0] } else { TENANTS[0] };
                let policy = engine.policy();
                let attributes = [(limit.key, value)];
                let mut reset = Box::pin(policy.reset(limit.name, &attributes).wait());
                let context = &mut Context::from_waker(Waker::noop());
                assert!(matches!(reset.as_mut().poll(context), Poll::Ready(Ok(_))));
            }
            97 => {
                let to = if self.random.chance(1, 2) { &self.limits } else { &self.other };
                let policy = policy(to, self.is_cluster).unwrap();
                self.engine().reload(policy).unwrap();
            }
            98 => {
                let tier = *self.random.pick(&["free", "pro"]);
                let tenant = *self.random.pick(&TENANTS);
                self.engine().set_tier(tenant, tier).unwrap();
            }
            _ => {
                if self.random.chance(1, 20) {
                    self.close();
                }
            }
        }
        self.check();
    }

    fn check(&self) {
        let mut sums: HashMap<String, [u64; 2]> = HashMap::new();
        for engine in &self.engines {
            for stats in engine.lease_stats() {
                let most = stats.keys * self.limit(&stats.limit).most_held(self.most_cost);
                let other = self.other.iter().find(|limit| limit.name == stats.limit);
                let most = most.max(other.map_or(0, |limit| stats.keys * limit.most_held(self.most_cost)));
                assert!(stats.held <= most, "{stats:?}, which may hold {most}");
                let [drawn, kept] = sums.entry(stats.limit).or_default();
                *drawn += stats.drawn;
                *kept += stats.held + stats.lapsed + stats.returned;
            }
        }
        for limit in &self.limits {
            let [certain, most] = self.spent.get(limit.name).copied().unwrap_or_default();
            let by_store = self.store.charged(limit.name);
            let [drawn, kept] = sums.get(limit.name).copied().unwrap_or_default();
            assert!(kept <= drawn, "{}: {kept} of {drawn} units", limit.name);
            let is_gone = self.other.iter().all(|other| other.name != limit.name);
            if !self.waiting.is_empty() || is_gone {
                continue; // a request may have units
            }
            let spent = (drawn - kept) + by_store;
            assert!(
                (certain..=most).contains(&spent),
                "{}: {drawn} drawn, {kept} not spent, {by_store} by the store, but {certain} to {most} spent",
                limit.name
            );
        }
    }

    fn close(&mut self) {
        let engine = self.engine();
        let mut returning = engine.return_leases();
        assert!(returning.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        assert!(engine.lease_stats().iter().all(|stats| stats.held == 0), "{:?}", engine.lease_stats());
    }

    /// Nothing is left behind when no more requests come.
    fn end(&mut self) {
        self.store.set_slow(false);
        self.set_down(false);
        // Demand is remembered for a second, and units may come a second after they were drawn.
        for _ in 0..30 {
            self.clock.advance(Nanos::new(100 * MS.get()));
            self.go_on();
        }
        assert!(self.waiting.is_empty());
        self.check();
        for engine in &self.engines {
            assert!(engine.lease_stats().iter().all(|stats| stats.keys == 0), "{:?}", engine.lease_stats());
        }
        self.close();
        let decided = self.decided;
        self.request();
        self.go_on();
        assert_eq!(self.decided, decided + 1);
    }
}

#[test]
fn random_histories_keep_all_promises() {
    let histories = if is_long() { 30_000 } else { 300 };
    for seed in 0..histories {
        let run = || {
            let mut history = History::new(seed);
            (0..500).for_each(|_| history.step());
            history.end();
        };
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Threads that decide, while others reset the key, run the store and, at last, return what is left.
#[test]
fn threads_neither_exceed_a_limit_nor_wait_for_each_other() {
    for has_resets in [false, true] {
        let node = Node::new(&format!("{USER}{TENANT}"));
        let (passed, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            let deciding: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        for n in 0..if is_long() { 100_000 } else { 3000 } {
                            let path = if n % 3 == 0 { "/a" } else { "/both" };
                            let mut request = node.request(path, None);
                            if n % 7 == 0 {
                                // It may leave before there is an answer.
                                let mut context = Context::from_waker(Waker::noop());
                                if let Poll::Ready((got, _)) = request.as_mut().poll(&mut context) {
                                    passed.fetch_add(got.is_allowed.into(), SeqCst);
                                }
                                continue;
                            }
                            let mut context = Context::from_waker(Waker::noop());
                            let got = loop {
                                match request.as_mut().poll(&mut context) {
                                    Poll::Ready((got, _)) => break got,
                                    Poll::Pending => thread::yield_now(),
                                }
                            };
                            passed.fetch_add(got.is_allowed.into(), SeqCst);
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    node.advance(Nanos::new(50_000));
                    thread::yield_now();
                }
            });
            scope.spawn(|| {
                let mut at = node.clock.now();
                while has_resets && !is_over.load(SeqCst) {
                    if node.clock.now().since(at) < MS {
                        thread::yield_now();
                        continue;
                    }
                    at = node.clock.now();
                    let (policy, key) = (node.engine.policy(), [("user", "u")]);
                    let mut reset = Box::pin(policy.reset("user", &key).wait());
                    let _ = reset.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                    let _ = node.engine.lease_stats();
                }
            });
            let results: Vec<_> = deciding.into_iter().map(|one| one.join()).collect();
            is_over.store(true, SeqCst);
            results.into_iter().for_each(|result| result.unwrap());
        });
        let elapsed = node.clock.now().as_nanos() - 10_000 * MS.get();
        let passed = passed.load(SeqCst);
        assert!(has_resets || passed <= 1000 + elapsed / MS.get(), "{passed} passed in {elapsed} ns");
        let mut returning = node.engine.return_leases();
        assert!(returning.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        assert_eq!((node.held("user"), node.held("tenant")), (0, 0));
        node.check("/both");
    }
}
