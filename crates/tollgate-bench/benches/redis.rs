//! The Redis store beside a bare loop of the same client, on a server of its own: 64 tasks, in rounds that alternate.
//!
//!     cargo bench -p tollgate-bench --bench redis
//!
//! The bare loop is what many write by hand: `EVALSHA` of a GCRA script that calls `TIME`, `GET` and `SET`, over one
//! multiplexed connection. Then what a key takes in Redis, for each algorithm.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tollgate::adaptive::Pace;
use tollgate::{
    Action, Align, BurstCredits, Concurrency, FixedWindow, Group, LeakyBucket, Mode, Rate, Rule,
    SlidingCounter, SlidingLog, TokenBucket,
};
use tollgate_policy::{Ask, Store as _};
use tollgate_redis::{RedisStore, Settings};
use tollgate_testkit::{Random, RedisServer};

const TASKS: usize = 64;
const KEYS: u64 = 100_000;
const REQUESTS: usize = 40_000; // in each round
const ROUNDS: usize = 15;

/// Microseconds, one text, no parts, no numbers beside the state, nothing told but whether and how long.
const GCRA: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local tat = tonumber(redis.call('GET', KEYS[1]) or 0)
local new = math.max(tat, now) + interval
if new - now > interval * burst then return { 0, new - interval * burst - now } end
redis.call('SET', KEYS[1], string.format('%.0f', new), 'PX', math.ceil((new - now) / 1000))
return { 1, 0 }
";

/// Nothing is decided: each key is read and written, which no script with a key for each limit can do without.
const FLOOR: &str = "
for i = 1, #KEYS do redis.call('GET', KEYS[i]) end
for i = 1, #KEYS do redis.call('SET', KEYS[i], ARGV[1], 'KEEPTTL') end
return 1
";

#[derive(Clone)]
enum Peer {
    Bare(MultiplexedConnection, redis::Script),
    /// Four keys, all in one call or each in one of its own.
    Floor(MultiplexedConnection, redis::Script, Keys),
    Store(RedisStore),
    /// Four limits in one plan.
    Plan(RedisStore),
    /// Four limits, one after the other.
    Four(RedisStore),
    /// Four limits of four kinds in one plan.
    Mixed(RedisStore),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    Together,
    OneByOne,
}

fn bucket() -> Rule {
    TokenBucket::new(Rate::per_second(5).unwrap(), 1_000_000).unwrap().into()
}

fn ask<'a>(limit: &'static str, key: &'a str, rule: Rule) -> Ask<'a> {
    Ask {
        limit: limit.into(),
        key: std::iter::once(key.as_bytes()).collect(),
        tag: key.as_bytes(),
        rule,
        pace: Pace::FULL,
        cost: 1,
        action: Action::Charge,
        group: Group::All,
        has_one_tier: false,
        is_denied: false,
    }
}

const LIMITS: [&str; 4] = ["per-user", "per-tenant", "per-route", "per-region"];

fn mixed() -> [Rule; 4] {
    let hour = Duration::from_secs(3600);
    [
        bucket(),
        FixedWindow::new(1_000_000, hour, Align::Epoch).unwrap().into(),
        SlidingCounter::new(1_000_000, hour, 1, Mode::Interpolate).unwrap().into(),
        LeakyBucket::new(Rate::per_second(5).unwrap(), 1_000_000).unwrap().into(),
    ]
}

impl Peer {
    async fn decide(&mut self, key: &str) {
        match self {
            Self::Bare(connection, script) => {
                let mut call = redis::cmd("EVALSHA");
                call.arg(script.get_hash()).arg(1).arg(key).arg(200_000).arg(1_000_000);
                let answer: (u64, u64) = call.query_async(connection).await.unwrap();
                assert_eq!(answer.0, 1);
            }
            Self::Floor(connection, script, keys) => {
                let keys_of_call = if *keys == Keys::Together { LIMITS.len() } else { 1 };
                for limits in LIMITS.chunks(keys_of_call) {
                    let mut call = redis::cmd("EVALSHA");
                    call.arg(script.get_hash()).arg(limits.len());
                    for limit in limits {
                        call.arg(format!("floor:{{{key}}}:{limit}:{key}"));
                    }
                    let _: u64 = call
                        .arg("1800000000000000 t200000000/1x1000000")
                        .query_async(connection)
                        .await
                        .unwrap();
                }
            }
            Self::Store(store) => Self::ask(store, &[ask("per-user", key, bucket())]).await,
            Self::Plan(store) => Self::ask(store, &LIMITS.map(|limit| ask(limit, key, bucket()))).await,
            Self::Four(store) => {
                for limit in LIMITS {
                    Self::ask(store, &[ask(limit, key, bucket())]).await;
                }
            }
            Self::Mixed(store) => {
                let [a, b, c, d] = mixed();
                let asks = [ask("a", key, a), ask("b", key, b), ask("c", key, c), ask("d", key, d)];
                Self::ask(store, &asks).await;
            }
        }
    }

    async fn ask(store: &RedisStore, asks: &[Ask<'_>]) {
        assert!(store.decide(asks).await.unwrap().each.iter().all(|each| each.decision.is_allowed()));
    }
}

/// Decisions a second, microseconds of the server's processor for each, and p99 in milliseconds.
async fn round(peer: &Peer, server: &RedisServer, seed: u64) -> [f64; 3] {
    let (start, cpu) = (Instant::now(), cpu(server));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let mut peer = peer.clone();
        tasks.spawn(async move {
            let mut random = Random::new(seed * 1000 + task as u64);
            let mut times = Vec::with_capacity(REQUESTS / TASKS);
            for _ in 0..REQUESTS / TASKS {
                let key = format!("user-{}", random.below(KEYS));
                let start = Instant::now();
                peer.decide(&key).await;
                times.push(start.elapsed());
            }
            times
        });
    }
    let mut times = Vec::with_capacity(REQUESTS);
    while let Some(done) = tasks.join_next().await {
        times.extend(done.unwrap());
    }
    let seconds = start.elapsed().as_secs_f64();
    times.sort_unstable();
    let p99 = times[times.len() * 99 / 100].as_secs_f64() * 1e3;
    let count = times.len() as f64;
    [count / seconds, (self::cpu(server) - cpu) / count * 1e6, p99]
}

/// Seconds of processor time that the server has used.
fn cpu(server: &RedisServer) -> f64 {
    let info = server.command(&["INFO", "cpu"]);
    let text = String::from_utf8_lossy(info.bytes()).into_owned();
    let of =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse::<f64>().unwrap();
    of("used_cpu_user:") + of("used_cpu_sys:")
}

async fn store(server: &RedisServer) -> RedisStore {
    let store = RedisStore::new(Settings::single(server.url(), Duration::from_secs(5)));
    let store = store.unwrap();
    assert!(store.ready(Duration::from_secs(5)).await);
    store
}

/// A connection as many have one, on a server that knows the script.
async fn bare(server: &RedisServer, source: &str) -> (MultiplexedConnection, redis::Script) {
    let mut connection =
        redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let mut load = redis::cmd("SCRIPT");
    let _: String = load.arg("LOAD").arg(source).query_async(&mut connection).await.unwrap();
    (connection, redis::Script::new(source))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let ours = store(&server).await;
        let (connection, gcra) = bare(&server, GCRA).await;
        let (_, floor) = bare(&server, FLOOR).await;
        let reads_and_writes = |keys| Peer::Floor(connection.clone(), floor.clone(), keys);
        let peers = [
            ("bare EVALSHA GCRA", Peer::Bare(connection.clone(), gcra)),
            ("store, one bucket", Peer::Store(ours.clone())),
            ("store, four buckets in one plan", Peer::Plan(ours.clone())),
            ("store, four calls of one bucket", Peer::Four(ours.clone())),
            ("store, four kinds in one plan", Peer::Mixed(ours.clone())),
            ("four keys read and written in one script", reads_and_writes(Keys::Together)),
            ("four keys read and written by four calls", reads_and_writes(Keys::OneByOne)),
        ];
        let mut seen: Vec<Vec<[f64; 3]>> = vec![Vec::new(); peers.len()];
        for number in 0..=ROUNDS {
            for (place, (_, peer)) in peers.iter().enumerate() {
                let measured = round(peer, &server, number as u64).await;
                if number > 0 {
                    seen[place].push(measured); // the first warms up
                }
            }
        }
        let of = |place: usize, what: usize| median(seen[place].iter().map(|round| round[what]).collect());
        // Rounds that follow each other had the same machine.
        let ratio =
            |a: usize, b: usize| median(seen[a].iter().zip(&seen[b]).map(|(a, b)| a[0] / b[0]).collect());
        println!("{TASKS} tasks, {REQUESTS} decisions a round, medians of {ROUNDS} rounds\n");
        println!("| | decisions a second | to bare | server CPU, us | p99, ms |\n|---|---:|---:|---:|---:|");
        for (place, (name, _)) in peers.iter().enumerate() {
            let [rate, cpu, p99] = [0, 1, 2].map(|what| of(place, what));
            println!("| {name} | {rate:.0} | {:.2} | {cpu:.1} | {p99:.2} |", ratio(place, 0));
        }
        println!("\none plan of four to four calls: {:.2} x", ratio(2, 3));
        println!("one plan of four kinds to four calls: {:.2} x", ratio(4, 3));
        println!("one plan of four to four bare calls: {:.2} x", 4.0 * ratio(2, 0));
        println!("what reads and writes alone allow: {:.2} x\n", ratio(5, 6));
        memory(&server, &ours).await;
    });
}

/// What a key takes, its name and the server's own bookkeeping included.
async fn memory(server: &RedisServer, store: &RedisStore) {
    const KEYS: u64 = 20_000;
    let hour = Duration::from_secs(3600);
    let rate = Rate::per_minute(100).unwrap();
    let log = |limit| Rule::from(SlidingLog::new(limit, hour).unwrap());
    let counter = |n| Rule::from(SlidingCounter::new(100, hour, n, Mode::Strict).unwrap());
    let rules: [(&str, Rule, u64); 10] = [
        ("token bucket", TokenBucket::new(rate, 100).unwrap().into(), 1),
        ("leaky bucket", LeakyBucket::new(rate, 100).unwrap().into(), 1),
        ("fixed window", FixedWindow::new(100, hour, Align::Epoch).unwrap().into(), 1),
        ("sliding counter", counter(1), 1),
        ("sliding counter of 32", counter(32), 1),
        ("burst credits", BurstCredits::new(rate, Rate::per_minute(1000).unwrap(), 1000).unwrap().into(), 1),
        ("sliding log, 1 entry", log(1000), 1),
        ("sliding log, 100 entries", log(1000), 100),
        ("sliding log, 1000 entries", log(1000), 1000),
        ("concurrency, 10 in flight", Concurrency::new(100, Some(hour)).unwrap().into(), 10),
    ];
    println!("| a key of | bytes |\n|---|---:|");
    for (name, rule, cost) in rules {
        server.command(&["FLUSHALL"]);
        let before = used(server);
        let keys = if cost > 99 { KEYS / 20 } else { KEYS };
        let mut asked = JoinSet::new();
        for key in 0..keys {
            let store = store.clone();
            asked.spawn(async move {
                let key = format!("user-{key:06}");
                let ask = Ask { cost, action: Action::Hold, ..ask("per-user", &key, rule) };
                store.decide(&[ask]).await.unwrap().permits.len()
            });
            if asked.len() == TASKS {
                asked.join_next().await;
            }
        }
        while asked.join_next().await.is_some() {}
        println!("| {name} | {:.0} |", (used(server) - before) / keys as f64);
    }
}

fn used(server: &RedisServer) -> f64 {
    let info = server.command(&["INFO", "memory"]);
    let text = String::from_utf8_lossy(info.bytes()).into_owned();
    text.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().parse().unwrap()
}
