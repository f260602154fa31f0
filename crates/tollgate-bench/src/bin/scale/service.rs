//! Rows about the program `tollgate`, and about a Redis server.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, BufWriter, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tollgate::adaptive::Pace;
use tollgate::{Action, Concurrency, Group};
use tollgate_policy::{Ask, Store as _};
use tollgate_redis::{RedisStore, Settings};
use tollgate_testkit::real_time::pause;
use tollgate_testkit::{Directory, Http, Random, RedisServer, StallWatch, address_in, waited_for_a_core};

use crate::measure::{children_seconds, memory_mb, nanos_since, now, process_seconds, threads_nanos};
use crate::table::Value;
use crate::{Report, grouped};

/// A service that runs until it is dropped.
struct Server {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Server {
    /// Starts the service. None if it refuses the policy.
    fn start(tollgate: &Path, policy: &Path, workers: Option<usize>) -> Option<(Self, SocketAddr)> {
        let mut command = Command::new(tollgate);
        command.args(["serve", "--log-level", "error", "--config"]).arg(policy);
        command.envs(workers.map(|workers| ("TOKIO_WORKER_THREADS", workers.to_string())));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", tollgate.display()));
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut server = Self { child, out };
        let address = server.next_address()?;
        Some((server, address))
    }

    /// The address of the next listener. None if the service ended.
    fn next_address(&mut self) -> Option<SocketAddr> {
        let mut line = String::new();
        while self.out.read_line(&mut line).is_ok_and(|read| read > 0) {
            if line.contains("listens on") {
                return Some(address_in(line.trim()));
            }
            line.clear();
        }
        None
    }

    fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const LISTEN: &str = "listen: { http: '127.0.0.1:0' }\n";
const BUCKET: &str = "token_bucket: { rate: 1M/s, burst: 1M }";

/// A policy with many limits, whose names have a suffix.
fn many_limits(count: usize, suffix: &str, path: impl Fn(usize) -> String) -> String {
    let mut policy = format!("{LISTEN}limits:\n");
    for i in 0..count {
        let _ = writeln!(
            policy,
            "- {{ name: l{i}{suffix}, match: {{ path: '{}' }}, key: [user], {BUCKET} }}",
            path(i)
        );
    }
    policy
}

/// The path that the limit with a number matches.
type PathOfLimit = fn(usize) -> String;

/// Seconds of processor time until the service listens, or `refused`.
fn start_seconds(tollgate: &Path, policy: &Path) -> Value {
    match Server::start(tollgate, policy, None) {
        Some((server, _)) => process_seconds(server.id()).into(),
        None => Value::Words("refused".to_owned()),
    }
}

pub(crate) fn start(report: &mut Report) {
    let directory = Directory::new();
    let kinds: [(&str, PathOfLimit); 2] =
        [("exact paths", |i| format!("/p{i}")), ("two wildcards each", |i| format!("*/x{i}/*"))];
    for (kind, path) in kinds {
        for (count, times) in [(100, 10), (1000, 3), (10_000, 1)] {
            let policy = directory.write("tollgate.yaml", many_limits(count, "", path));
            let begin = children_seconds();
            for _ in 0..times {
                let mut check = Command::new(&report.tollgate);
                let status =
                    check.arg("check").arg(&policy).stdout(Stdio::null()).stderr(Stdio::null()).status();
                assert!(status.expect("it starts").success(), "the policy has no fault");
            }
            let seconds = (children_seconds() - begin) / f64::from(times);
            let size = format!("{} limits", grouped(count));
            report.add(format!("`check`, {kind}"), &size, seconds, "s CPU", "0.5 at 10 000");
            let seconds = start_seconds(&report.tollgate, &policy);
            report.add(format!("start of `serve`, {kind}"), &size, seconds, "s CPU", "0.5 at 10 000");
        }
    }
}

pub(crate) fn tenants(report: &mut Report) {
    let directory = Directory::new();
    let limits = "tiers: { free: {}, pro: {} }\ndefault_tier: free\n".to_owned()
        + &many_limits(1000, "", |i| format!("/p{i}"));
    for count in [1000, 10_000, 50_000] {
        let mut policy = format!("{limits}tenants:\n");
        (0..count).for_each(|i| _ = writeln!(policy, "  t{i}: {{ tier: pro }}"));
        let policy = directory.write("tollgate.yaml", policy);
        let seconds = start_seconds(&report.tollgate, &policy);
        let what = "tenants in the policy, 1 000 limits: start of `serve`";
        report.add(what, grouped(count), seconds, "s CPU", "2 per million");
    }
    for count in [1000, 10_000, 70_000] {
        let mut policy = format!("{limits}tenants:\n");
        (0..count).for_each(|i| _ = writeln!(policy, "  t{i}: {{ limits: {{ l0: {{ burst: 5 }} }} }}"));
        let policy = directory.write("tollgate.yaml", policy);
        let seconds = start_seconds(&report.tollgate, &policy);
        let what = "tenants with the same own number, 1 000 limits: start of `serve`";
        report.add(what, grouped(count), seconds, "s CPU", "equal numbers shared");
    }
    for count in [10_000, 100_000, 1_000_000] {
        let mut lines = String::new();
        (0..count).for_each(|i| _ = writeln!(lines, "t{i},pro"));
        directory.write("tenants.csv", lines);
        let policy = directory.write("tollgate.yaml", format!("{limits}tenants_file: tenants.csv\n"));
        let what = "tenants in `tenants_file`, 1 000 limits";
        match Server::start(&report.tollgate, &policy, None) {
            Some((server, _)) => {
                let seconds = process_seconds(server.id());
                report.add(
                    format!("{what}: start of `serve`"),
                    grouped(count),
                    seconds,
                    "s CPU",
                    "2 per million",
                );
                let memory = memory_mb(server.id(), "VmRSS").expect("it runs");
                report.add(format!("{what}: memory"), grouped(count), memory, "MB RSS", "");
            }
            None => {
                let refused = || Value::Words("refused".to_owned());
                report.add(
                    format!("{what}: start of `serve`"),
                    grouped(count),
                    refused(),
                    "s CPU",
                    "2 per million",
                );
                report.add(format!("{what}: memory"), grouped(count), refused(), "MB RSS", "");
            }
        }
    }
}

const CHECK: &str = r#"{"attributes":{"path":"/p7","user":"u"}}"#;

pub(crate) fn reload(report: &mut Report) {
    for (count, reloads) in [(100, 30), (1000, 30), (1000, 300), (10_000, 5)] {
        let directory = Directory::new();
        let write = |generation: usize| {
            let policy = many_limits(count, &format!("_{generation}"), |i| format!("/p{i}"));
            directory.write("tollgate.yaml", policy)
        };
        let started = Server::start(&report.tollgate, &write(0), None);
        let (server, address) = started.expect("the policy has no fault");
        let (watch, mut rss) = (StallWatch::start(), Vec::new());
        let longest = longest_request(&server, address, || {
            for generation in 1..=reloads {
                write(generation);
                let answer = Http::connect(address).send("POST", "/v1/reload", &[], "{}");
                assert_eq!(answer.status, 200, "{}", answer.body);
                rss.push(memory_mb(server.id(), "VmRSS").expect("it runs"));
            }
        });
        let stall = watch.stop().worst.as_nanos() as f64;
        let metrics = Http::connect(address).send("GET", "/metrics", &[], "").body.len();
        let size = format!("{} limits, {reloads} reloads", grouped(count));
        let what = "reload that renames every limit";
        let request = format!("{what}: longest request beyond the median, without waits for a core");
        report.add(request, &size, longest / 1e6, "ms", "1");
        report.add("peer: the machine's longest stall during these reloads", &size, stall / 1e6, "ms", "");
        report.add(format!("{what}: memory after the first"), &size, rss[0], "MB RSS", "");
        let last = rss[rss.len() - 1];
        report.add(format!("{what}: memory after the last"), &size, last, "MB RSS", "as after the first");
        report.add(format!("{what}: /metrics after the last"), &size, metrics as f64 / 1e6, "MB", "flat");
    }
}

/// By how much the slowest array of 16 checks took longer than the median one while `work` ran, in nanoseconds. The time that threads of the client or of the
/// service were ready and waited for a core during the request is subtracted. Two clients send without a pause, so that a request is
/// under way whenever a policy is replaced.
fn longest_request(server: &Server, address: SocketAddr, work: impl FnOnce()) -> f64 {
    let is_over = AtomicBool::new(false);
    let body = format!("[{}]", vec![CHECK; 16].join(","));
    std::thread::scope(|scope| {
        let run = || {
            let (mut client, mut times) = (Http::connect(address), Vec::new());
            let waited = || waited_for_a_core(server.id()) + waited_for_a_core(std::process::id());
            let mut before = waited();
            while !is_over.load(Relaxed) {
                let start = now();
                assert_eq!(client.send("POST", "/v1/check", &[], &body).status, 200);
                let took = nanos_since(start) as f64;
                let after = waited();
                times.push(took - after.saturating_sub(before).as_nanos() as f64);
                before = after;
            }
            times.sort_by(f64::total_cmp);
            times[times.len() - 1] - times[times.len() / 2].max(0.0)
        };
        let clients = [scope.spawn(run), scope.spawn(run)];
        work();
        is_over.store(true, Relaxed);
        clients.map(|client| client.join().expect("every check is answered")).into_iter().fold(0.0, f64::max)
    })
}

/// Four limits, one of them with a key for everybody.
const FOUR: &str = "limits:
- { name: everybody, key: [], token_bucket: { rate: 10M/s, burst: 10M } }
- { name: tenant, key: [tenant], token_bucket: { rate: 10M/s, burst: 10M } }
- { name: user, key: [tenant, user], token_bucket: { rate: 10M/s, burst: 10M } }
- { name: path, key: [user, path], token_bucket: { rate: 10M/s, burst: 10M } }
";

pub(crate) fn workers(report: &mut Report) {
    const CHECKS: usize = 100; // per call
    let directory = Directory::new();
    let policy = directory.write("tollgate.yaml", format!("{LISTEN}{FOUR}"));
    for workers in [1, 2, 8] {
        let started = Server::start(&report.tollgate, &policy, Some(workers));
        let (server, address) = started.expect("the policy has no fault");
        let checks = AtomicU64::new(0);
        let is_over = AtomicBool::new(false);
        let micros = std::thread::scope(|scope| {
            for client in 0..8 {
                let (checks, is_over) = (&checks, &is_over);
                scope.spawn(move || {
                    let (mut http, mut random) = (Http::connect(address), Random::new(client));
                    let bodies: Vec<String> = (0..50).map(|_| array(CHECKS, &mut random)).collect();
                    while !is_over.load(Relaxed) {
                        let body = random.pick(&bodies);
                        assert_eq!(http.send("POST", "/v1/check", &[], body).status, 200);
                        checks.fetch_add(CHECKS as u64, Relaxed);
                    }
                });
            }
            pause(Duration::from_millis(300));
            let micros = least_per_count(&server, &checks);
            is_over.store(true, Relaxed);
            micros
        });
        let what = "workers of the service, 4 limits, one with a shared key";
        report.add(what, format!("workers: {workers}"), micros, "us CPU per check", "as 1 worker");
    }
}

fn array(checks: usize, random: &mut Random) -> String {
    let mut check = || {
        let (tenant, user) = (random.below(100), random.below(10_000));
        format!(r#"{{"attributes":{{"tenant":"t{tenant}","user":"u{user}","path":"/p"}}}}"#)
    };
    let checks: Vec<String> = (0..checks).map(|_| check()).collect();
    format!("[{}]", checks.join(","))
}

pub(crate) fn redis_permits(report: &mut Report) {
    if !RedisServer::is_installed() {
        eprintln!("redis-permits: skipped, because there is no redis-server");
        return;
    }
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = RedisStore::new(Settings::single(server.url(), Duration::from_secs(5))).expect("valid");
        assert!(store.ready(Duration::from_secs(5)).await, "the server answers");
        let rule = Concurrency::new(100_000, Some(Duration::from_secs(60))).expect("valid");
        for cost in [1, 1000, 50_000] {
            let mut usage = Vec::new();
            for permit in 0..21 {
                let key = format!("{cost}-{permit}");
                let ask = Ask {
                    limit: "permits".into(),
                    key: std::iter::once(key.as_bytes()).collect(),
                    tag: key.as_bytes(),
                    rule: rule.into(),
                    pace: Pace::FULL,
                    cost,
                    action: Action::Hold,
                    group: Group::All,
                    has_one_tier: false,
                    is_denied: false,
                };
                let decided = store.decide(&[ask]).await.expect("the server answers");
                assert_eq!(decided.permits.len(), 1);
                usage.push(script_micros(&server));
            }
            let micros = (usage[20] - usage[0]) / 20.0;
            report.add("cost of one permit in Redis", grouped(cost), micros, "us of the server", "as cost 1");
        }
    });
}

/// Microseconds that the server has spent on scripts.
fn script_micros(server: &RedisServer) -> f64 {
    let info = server.command(&["INFO", "commandstats"]);
    let text = String::from_utf8_lossy(info.bytes()).into_owned();
    let micros = |line: &str| line.split_once("usec=")?.1.split(',').next()?.parse::<f64>().ok();
    text.lines().filter(|line| line.starts_with("cmdstat_eval")).filter_map(micros).sum()
}

pub(crate) fn advise(report: &mut Report) {
    let directory = Directory::new();
    for (lines, size) in [(100_000, "0.1 M lines"), (1_000_000, "1 M lines"), (3_000_000, "3 M lines")] {
        let log = directory.path().join("access.log");
        write_log(&log, lines);
        let mut command = Command::new(&report.tollgate);
        command.arg("advise").arg(&log).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        let mut peak = 0.0_f64;
        let status = loop {
            peak = peak.max(memory_mb(child.id(), "VmHWM").unwrap_or(0.0));
            if let Some(status) = child.try_wait().expect("it was started") {
                break status;
            }
            pause(Duration::from_millis(2));
        };
        assert!(status.success(), "the log can be read");
        report.add("`advise`, 10 000 clients: peak memory", size, peak, "MB RSS", "by clients, not lines");
    }
}

fn write_log(path: &Path, lines: u64) {
    let file = std::fs::File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut file = BufWriter::with_capacity(1 << 20, file);
    let mut random = Random::new(1);
    for number in 0..lines {
        let (second, client) = (number / 300, random.below(10_000));
        let (day, hour, minute) = (second / 86_400 + 1, second / 3600 % 24, second / 60 % 60);
        let written = writeln!(
            file,
            "10.0.{}.{} - - [{day:02}/May/2015:{hour:02}:{minute:02}:{:02} +0000] \"GET /a HTTP/1.1\" 200 1",
            client >> 8,
            client & 255,
            second % 60,
        );
        written.expect("there is room on the disk");
    }
    file.flush().expect("there is room on the disk");
}

/// Connections of clients to the gateway.
const CLIENTS: u32 = 16;

pub(crate) fn leaky_queue(report: &mut Report) {
    let backend = application();
    let directory = Directory::new();
    // `group` is the number of requests that the queue lets go together at this rate.
    for (rate, group) in [(500, 3), (1000, 5), (2000, 9)] {
        let queue = format!("leaky_bucket: {{ rate: {rate}/s, queue: 1000 }}");
        let arrival = |group| Some(Arrival { pace: Duration::from_secs(1) * CLIENTS / rate, group });
        for (what, limit, arrival) in [
            ("leaky queue in the gateway", queue.as_str(), None),
            ("peer: the gateway without a queue, requests at the same pace", BUCKET, arrival(1)),
            (
                "peer: the gateway without a queue, requests at the same pace in groups of the queue's size",
                BUCKET,
                arrival(group),
            ),
        ] {
            let policy = format!(
                "listen: {{ http: '127.0.0.1:0', gateway: '127.0.0.1:0' }}\ngateway: {{ upstream: 'http://{backend}' }}\n\
                 limits: [{{ name: all, key: [], {limit} }}]\n"
            );
            let policy = directory.write("tollgate.yaml", policy);
            let (mut server, _) = Server::start(&report.tollgate, &policy, None).expect("no fault");
            let address = server.next_address().expect("the gateway listens");
            let wanted = if arrival.is_none() { "30" } else { "" };
            let micros = gateway_micros(&server, address, arrival);
            report.add(what, format!("{rate} requests/s"), micros, "us CPU per request", wanted);
        }
    }
}

/// Microseconds of the service's processor time per count, in the best of three spans: other programs on the machine cost time.
fn least_per_count(server: &Server, counter: &AtomicU64) -> f64 {
    let span = || {
        let (before, begin) = (counter.load(Relaxed), threads_nanos(server.id()));
        pause(Duration::from_millis(600));
        let (after, end) = (counter.load(Relaxed), threads_nanos(server.id()));
        (end - begin) / (after - before).max(1) as f64 / 1000.0
    };
    span().min(span()).min(span())
}

/// When clients send their requests.
#[derive(Clone, Copy)]
struct Arrival {
    pace: Duration, // between two requests of one client
    group: u32,     // the number of clients that send at the same time
}

/// Microseconds of the gateway's processor time per request. Each client sends its next request at the time that
/// `arrival` sets. Without `arrival`, it sends when it has the answer to the last one.
fn gateway_micros(server: &Server, address: SocketAddr, arrival: Option<Arrival>) -> f64 {
    let (served, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let begin = now();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (served, is_over) = (&served, &is_over);
            scope.spawn(move || {
                let mut http = Http::connect(address);
                for turn in 0_u32.. {
                    if let Some(Arrival { pace, group }) = arrival {
                        let start = begin + pace * (client / group * group) / CLIENTS;
                        pause((start + pace * turn).saturating_duration_since(now()));
                    }
                    if is_over.load(Relaxed) {
                        break;
                    }
                    assert_eq!(http.send("GET", "/", &[], "").status, 200);
                    served.fetch_add(1, Relaxed);
                }
            });
        }
        pause(Duration::from_millis(400));
        let micros = least_per_count(server, &served);
        is_over.store(true, Relaxed);
        micros
    })
}

/// The address of an application that answers every request alike, until this program ends.
fn application() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer_each(stream));
        }
    });
    address
}

/// Answers requests without bodies until the connection ends.
fn answer_each(mut stream: TcpStream) {
    let (mut buffer, mut length) = ([0; 4096], 0);
    let _ = stream.set_nodelay(true);
    while let Ok(read @ 1..) = stream.read(&mut buffer[length..]) {
        length += read;
        if buffer[..length].ends_with(b"\r\n\r\n") {
            length = 0;
            if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    }
}
