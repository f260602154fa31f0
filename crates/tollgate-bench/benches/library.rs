//! The library beside governor, throttlecrab and a map under a mutex: `cargo bench -p tollgate-bench`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use governor::{Quota, RateLimiter};
use throttlecrab::AdaptiveStore;
use tollgate::{
    Algorithm, Align, Clock, Decision, FixedWindow, KeyedLimiter, Limiter, Mode, Rate, Rule, SlidingCounter,
    SlidingLog, TokenBucket,
};
use tollgate_bench::{Contender, Figure, ROUNDS, calls, race, repeat};
use tollgate_testkit::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A burst that nobody spends, at a rate so slow that a key stays in use: ten an hour.
const PER_HOUR: u32 = 10;
const BURST: u32 = 1_000_000;
const HOUR: Duration = Duration::from_secs(3600);

fn main() {
    println!("nanoseconds a decision, all threads together; median of {ROUNDS} rounds [fastest, slowest]\n");
    // Words after `--` choose the cases whose names they stand in.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| name.contains(word));
    for (name, case) in CASES {
        if is_wanted(name) {
            case(name);
        }
    }
}

const MILLION: usize = 1_000_000;

/// A name, and what runs under it.
type Case = (&'static str, fn(&str));

const CASES: [Case; 9] = [
    ("unkeyed token bucket, 1 thread", unkeyed),
    ("token bucket, 1 M keys, uniform, 1 thread", |name| {
        let keys = keys(MILLION);
        show(name, &keys, &[uniform(1, &keys, 2 * MILLION)]);
    }),
    ("token bucket, 1 M keys, zipf 0.99, 2 threads", |name| {
        let keys = keys(MILLION);
        show(name, &keys, &[zipf(1, &keys, 2 * MILLION), zipf(2, &keys, 2 * MILLION)]);
    }),
    ("token bucket, 1 k keys, uniform, 1 thread", |name| {
        let keys = keys(1000);
        show(name, &keys, &[uniform(3, &keys, 4 * MILLION)]);
    }),
    ("token bucket, one key, 2 threads", |name| {
        show(name, &keys(1), &[vec![0; 2 * MILLION], vec![0; 2 * MILLION]]);
    }),
    ("windows, 1 M keys, uniform, 1 thread", windows),
    ("token bucket, 10 M keys, uniform, 1 thread, in batches", batches),
    ("slowest decisions: 50 M keys through a table of 1 M, 1 thread", slowest),
    ("memory: bytes a key, all of them in use", memory),
];

/// Such as a service would make of its callers.
fn keys(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("tenant:{:08}:user:{}", i * 7919 % 100_000_000, i % 97)).collect()
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn uniform(seed: u64, keys: &[String], n: usize) -> Vec<u32> {
    let mut random = Random(seed * 0x9e37_79b9_7f4a_7c15);
    (0..n).map(|_| (random.next() % keys.len() as u64) as u32).collect()
}

/// Ranks by the inverse of their approximate distribution (Gray et al. 1994), scattered over the keys.
#[expect(clippy::cast_sign_loss, reason = "a rank is not negative")]
fn zipf(seed: u64, keys: &[String], n: usize) -> Vec<u32> {
    let (theta, len) = (0.99, keys.len() as f64);
    let zeta = |n: f64| (1..=n as u64).map(|i| (i as f64).powf(-theta)).sum::<f64>();
    let (all, two) = (zeta(len), zeta(2.0));
    let eta = (1.0 - (2.0 / len).powf(1.0 - theta)) / (1.0 - two / all);
    let mut random = Random(seed * 0x9e37_79b9_7f4a_7c15);
    let rank = |u: f64| match u * all {
        uz if uz < 1.0 => 0,
        uz if uz < two => 1,
        _ => (len * (eta * u - eta + 1.0).powf(1.0 / (1.0 - theta))) as u64,
    };
    let mut next = || rank((random.next() >> 11) as f64 / (1_u64 << 53) as f64);
    (0..n).map(|_| (next() * 7_368_787 % keys.len() as u64) as u32).collect()
}

fn token_bucket() -> TokenBucket {
    TokenBucket::new(Rate::new(PER_HOUR.into(), HOUR).expect("valid"), BURST.into()).expect("valid")
}

fn tollgate(rule: impl Into<Rule>) -> Box<Contender> {
    let limiter = KeyedLimiter::new(rule);
    Box::new(move |key| limiter.check(key).is_allowed())
}

fn governor() -> Box<Contender> {
    let quota = Quota::per_hour(NonZeroU32::new(PER_HOUR).expect("not 0"));
    let limiter = RateLimiter::keyed(quota.allow_burst(NonZeroU32::new(BURST).expect("not 0")));
    Box::new(move |key| limiter.check_key(key).is_ok())
}

/// It is not made for threads, so it stands behind the mutex its users put it behind.
#[expect(clippy::disallowed_methods, reason = "its time is the caller's to read")]
fn throttlecrab() -> Box<Contender> {
    let store = AdaptiveStore::with_capacity(1_000_000);
    let limiter = Mutex::new(throttlecrab::RateLimiter::new(store));
    Box::new(move |key| {
        let now = SystemTime::now();
        let mut limiter = limiter.lock().expect("nobody panics");
        limiter.rate_limit(key, BURST.into(), PER_HOUR.into(), 3600, 1, now).expect("valid").0
    })
}

/// What one would write oneself.
fn map() -> Box<Contender> {
    let (rule, clock) = (token_bucket(), Clock::new());
    let states = Mutex::new(HashMap::<String, _>::new());
    Box::new(move |key| {
        let now = clock.now();
        let mut states = states.lock().expect("nobody panics");
        match states.get_mut(key) {
            Some(state) => rule.decide(state, 1, now).is_allowed(),
            None => rule.decide(states.entry(key.clone()).or_default(), 1, now).is_allowed(),
        }
    })
}

/// What every contender must do first.
fn hash_only() -> Box<Contender> {
    use std::hash::BuildHasher;
    let state = std::hash::RandomState::new();
    Box::new(move |key| state.hash_one(key) != 0)
}

fn show(what: &str, keys: &[String], orders: &[Vec<u32>]) {
    let contenders = [
        ("tollgate", tollgate(token_bucket())),
        ("governor 0.10.4", governor()),
        ("throttlecrab 0.4.40, mutex", throttlecrab()),
        ("HashMap<String, _>, mutex", map()),
        ("(hashing the key alone)", hash_only()),
    ];
    table(what, &contenders, keys, orders);
}

/// Allowed and denied apart: who is allowed must write. The swap alone is what any such write takes.
fn unkeyed(name: &str) {
    let ours = |rate: u64, burst| {
        Limiter::new(TokenBucket::new(Rate::per_second(rate).expect("valid"), burst).expect("valid"))
    };
    let governor = |rate: u32, burst| {
        let quota = Quota::per_second(NonZeroU32::new(rate).expect("not 0"));
        RateLimiter::direct(quota.allow_burst(NonZeroU32::new(burst).expect("not 0")))
    };
    let (plenty, spent) = (ours(1_000_000_000, 1_000_000_000), ours(1, 1));
    let (plenty_given, spent_given) = (ours(1_000_000_000, 1_000_000_000), ours(1, 1));
    let (their_plenty, their_spent) = (governor(1_000_000_000, 1_000_000_000), governor(1, 1));
    let (clock, swapped) = (Clock::new(), AtomicU64::new(0));
    let given = clock.now();
    let mut contenders = [
        ("tollgate, allowed", calls(move || plenty.check())),
        ("governor 0.10.4, allowed", calls(move || their_plenty.check())),
        ("tollgate, denied", calls(move || spent.check())),
        ("governor 0.10.4, denied", calls(move || their_spent.check())),
        ("tollgate, allowed, time given", calls(move || plenty_given.check_at(given))),
        ("tollgate, denied, time given", calls(move || spent_given.check_at(given))),
        ("(reading the clock alone)", calls(move || clock.now())),
        (
            "(swapping a word alone)",
            calls(move || {
                let found = swapped.load(Relaxed);
                swapped.compare_exchange_weak(found, found + 1, Relaxed, Relaxed)
            }),
        ),
    ];
    let figures = repeat(&mut contenders, 4_000_000);
    println!("{name}");
    for ((name, _), Figure { median, least, most }) in contenders.iter().zip(&figures) {
        println!("  {name:<32} {median:>5.1} [{least:.1}, {most:.1}]");
    }
}

/// The same limiter asked one by one and 16 at a time.
fn batches(name: &str) {
    println!("{name}");
    let (keys, limiter) = (keys(10_000_000), KeyedLimiter::new(token_bucket()));
    for key in &keys {
        _ = limiter.check(key);
    }
    let mut orders = [uniform(5, &keys, 2 * MILLION), uniform(6, &keys, 2 * MILLION)].into_iter();
    let shared = Arc::new(keys);
    // Each goes through an order of its own, 16 keys at a time, again and again.
    let mut turns = |decide: fn(&KeyedLimiter, [&String; 16]) -> [Decision; 16]| {
        let (order, keys, limiter) = (orders.next().expect("two"), Arc::clone(&shared), limiter.clone());
        let mut turn = 0;
        calls(move || {
            turn = (turn + 16) % order.len();
            decide(&limiter, std::array::from_fn(|i| &keys[order[turn + i] as usize]))
        })
    };
    let mut contenders = [
        ("one by one", turns(|limiter, keys| keys.map(|key| limiter.check(key)))),
        ("16 at once", turns(|limiter, keys| KeyedLimiter::check_each(limiter.ask_each(keys)))),
    ];
    let figures = repeat(&mut contenders, 100_000);
    for ((name, _), Figure { median, least, most }) in contenders.iter().zip(&figures) {
        println!("  {name:<28} {:>7.1} [{:.1}, {:.1}]", median / 16.0, least / 16.0, most / 16.0);
    }
    println!("  {:.2} x the single calls", figures[0].median / figures[1].median);
}

/// Every key is new, and the table full of keys in use: each decision looks for one to make way. Beside it what
/// the machine does by itself to a loop that takes as long and does nothing.
fn slowest(name: &str) {
    println!("{name}");
    let limiter = KeyedLimiter::builder(token_bucket()).max_keys(MILLION).build();
    let mean = slow_tail("tollgate", |key| _ = std::hint::black_box(limiter.check(&key)));
    let stats = limiter.stats();
    println!("  {:<28} {} slots touched at most, {} bytes", "", stats.most_touched, stats.bytes);
    let clock = Clock::new();
    slow_tail("(waiting as long)", |_| {
        let start = clock.now();
        while clock.now().since(start).get() < mean {}
    });
}

/// Prints how long the slowest of 50 million calls take. Returns the mean.
fn slow_tail(name: &str, mut call: impl FnMut(usize)) -> u64 {
    let (calls, clock) = (50 * MILLION, Clock::new());
    // The slowest ones, the fastest of them on top: one in 100 000, so that it is the quantile.
    let mut slowest = BinaryHeap::from(vec![Reverse(0); calls / 100_000]);
    let mut sum = 0;
    for i in 0..calls {
        let start = clock.now();
        call(i);
        let took = clock.now().since(start).get();
        sum += took;
        if slowest.peek().is_some_and(|&Reverse(fastest)| took > fastest) {
            slowest.pop();
            slowest.push(Reverse(took));
        }
    }
    let mean = sum / calls as u64;
    let micros = |nanos: u64| nanos as f64 / 1000.0;
    let quantile = micros(slowest.pop().expect("many").0);
    let most = micros(slowest.into_iter().map(|Reverse(took)| took).max().expect("many"));
    println!("  {name:<28} mean {mean} ns, p99.999 {quantile:.1} us, slowest {most:.1} us");
    mean
}

fn windows(name: &str) {
    let keys = keys(MILLION);
    let contenders = [
        ("tollgate, fixed window", tollgate(FixedWindow::new(1_000_000, HOUR, Align::Epoch).expect("valid"))),
        (
            "tollgate, sliding counter",
            tollgate(SlidingCounter::new(1_000_000, HOUR, 1, Mode::Interpolate).expect("valid")),
        ),
        ("governor 0.10.4", governor()),
    ];
    table(name, &contenders, &keys, &[uniform(4, &keys, 2 * MILLION)]);
}

/// Prints each with its ratio to governor.
fn table(what: &str, contenders: &[(&str, Box<Contender>)], keys: &[String], orders: &[Vec<u32>]) {
    let figures = race(contenders, keys, orders);
    let governor =
        contenders.iter().position(|(name, _)| name.starts_with("governor")).expect("always there");
    println!("{what}");
    for ((name, _), Figure { median, least, most }) in contenders.iter().zip(&figures) {
        let ratio = figures[governor].median / median;
        println!("  {name:<28} {median:>7.1} [{least:.1}, {most:.1}]  {ratio:.2} x governor");
    }
}

fn memory(name: &str) {
    println!("{name}");
    let ten_million = keys(10_000_000);
    for (name, make) in
        [("tollgate", (|| tollgate(token_bucket())) as fn() -> _), ("governor 0.10.4", governor)]
    {
        let before = Counting::bytes();
        let limiter = make();
        for key in &ten_million {
            std::hint::black_box(limiter(key));
        }
        let each = (Counting::bytes() - before) as f64 / ten_million.len() as f64;
        println!("  {name:<28} {each:>7.1}  at 10 M token buckets");
    }
    let limiter = KeyedLimiter::new(SlidingLog::new(1000, HOUR).expect("valid"));
    let before = Counting::bytes();
    for key in 0..1000 {
        let _ = limiter.ask(&key).cost(1000).check();
    }
    println!(
        "  {:<28} {:>7.1}  an entry, of 1000 full logs of 1000",
        "tollgate, sliding log",
        (Counting::bytes() - before) as f64 / 1e6
    );
}
