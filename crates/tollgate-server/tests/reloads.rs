//! Reloads under load: no request is lost, and no caller gains by them.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::service::{Client, Directory, Service, TOLLGATE, eventually, json_of, pause, timed};
use serde_json::{Value, json};
use tollgate_testkit::{Random, waited_for_a_core};

const RELOADS: usize = 1000;

/// What the limit admits whose numbers never change.
const STEADY: u64 = 3000;

/// The most that the limit admits whose numbers go up and down.
const LARGEST: u64 = 400;

/// How many keys the latter has.
const KEYS: u64 = 20;

/// Hardly a token comes while the test runs.
fn policy(moving: u64, extra: usize, tenants: usize) -> String {
    let extra: String = (0..extra)
        .map(|i| {
            format!(
                "  - {{ name: extra-{i}, key: [user], token_bucket: {{ rate: 1M/s, burst: 1000000 }} }}\n"
            )
        })
        .collect();
    let tenants: String = (0..tenants).map(|i| format!("  t{i}: {{ tier: pro }}\n")).collect();
    format!(
        "tiers: {{ free: {{}}, pro: {{}} }}
default_tier: free
tenants:
  somebody: {{ tier: pro }}
{tenants}limits:
{extra}  - {{ name: steady, key: [], match: {{ path: /steady }}, token_bucket: {{ rate: 1/day, burst: {STEADY} }} }}
  - name: moving
    key: [tenant]
    match: {{ path: /moving }}
    token_bucket: {{ rate: 1/day, burst: {moving} }}
    tiers: {{ pro: {{ burst: {} }} }}
",
        LARGEST - moving
    )
}

/// What the hammering threads have seen.
struct Seen {
    is_over: AtomicBool,
    steady: AtomicU64,
    moving: Vec<AtomicU64>,
    requests: AtomicU64,
}

/// Ends the hammering, also when something is wrong.
struct Over<'s>(&'s AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asks without a pause until it is over. Every answer must be a decision.
fn hammer(mut client: Client, mut random: Random, seen: &Seen) {
    let count = |reply: &Value, counter: &AtomicU64| {
        if reply["allowed"] == true {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    };
    while !seen.is_over.load(Ordering::Relaxed) {
        let place = random.below(KEYS);
        let (tenant, user) = (format!("t{place}"), random.below(50).to_string());
        let moving = client.check(&[("path", "/moving"), ("tenant", &tenant), ("user", &user)], None);
        count(&moving, &seen.moving[place as usize]);
        count(&client.check(&[("path", "/steady"), ("user", &user)], None), &seen.steady);
        seen.requests.fetch_add(2, Ordering::Relaxed);
    }
}

#[test]
fn a_thousand_reloads_under_load_lose_no_request_and_admit_nothing_more() {
    let service = Service::start(&policy(100, 0, 0));
    let moving = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let (is_over, steady, requests) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let seen = Seen { is_over, steady, moving, requests };
    let mut broken = 0;
    thread::scope(|scope| {
        let hammering: Vec<_> = (0..3)
            .map(|seed| {
                let (client, seen) = (service.connect(), &seen);
                scope.spawn(move || hammer(client, Random::new(seed), seen))
            })
            .collect();
        let _over = Over(&seen.is_over);
        let mut admin = service.connect();
        let mut random = Random::new(12);
        for i in 0..RELOADS {
            if hammering.iter().any(thread::ScopedJoinHandle::is_finished) {
                break; // what was wrong is told when it is joined
            }
            let moving = random.between(1, LARGEST - 1);
            let mut text = policy(moving, random.below(4) as usize, random.below(KEYS + 1) as usize);
            let is_broken = random.chance(1, 10);
            if is_broken {
                let fault =
                    random.pick(&["  - { name: half", "  - { name: x, key: [] }\n", "nonsense: 1\n", "\t}"]);
                text.push_str(fault);
            }
            service.write_policy(&text);
            let answer = admin.post("/v1/reload", &json!({}));
            if is_broken {
                broken += 1;
                let problem = json_of(&answer);
                let detail = problem["detail"].as_str().unwrap();
                assert_eq!((answer.status, &problem["status"]), (422, &json!(422)), "{i}: {answer:?}");
                let last = text.lines().count() + 1; // after that of `listen`
                assert!(detail.contains(&format!("tollgate.yaml:{last}:")), "{i}: {detail}\n{text}");
            } else {
                assert_eq!(answer.status, 200, "{i}: {answer:?}");
                let in_force = json_of(&admin.get("/v1/limits"));
                let limits = in_force["limits"].as_array().unwrap();
                assert_eq!(limits.last().unwrap()["capacity"], moving, "{i}");
            }
        }
        eventually("all is spent", || seen.steady.load(Ordering::Relaxed) >= STEADY);
    });
    let mut client = service.connect();
    assert_eq!(seen.steady.into_inner(), STEADY);
    assert_eq!(client.remaining("steady", &[("path", "/steady")]), 0);
    let moving: Vec<u64> = seen.moving.into_iter().map(AtomicU64::into_inner).collect();
    assert!(moving.iter().all(|admitted| (1..LARGEST).contains(admitted)), "{moving:?}");
    let requests = seen.requests.into_inner();
    assert!(requests > RELOADS as u64, "{requests} requests only");
    // The server looks at the file by itself, too, and may have found one before it was told: what it logged is counted.
    let [failures, successes] = ["failure", "success"].map(|result| {
        client.metric(&format!("tollgate_config_reloads_total{{result=\"{result}\"}}")).unwrap()
    });
    let count_in_log = |words: &str| service.process.errors().matches(words).count() as f64;
    eventually("the log is written", || count_in_log("policy not reloaded") >= failures);
    assert_eq!(count_in_log("policy not reloaded"), failures);
    assert!(failures >= f64::from(broken) && broken > 50, "{failures} failures of {broken}");
    assert!(successes >= (RELOADS as f64) - f64::from(broken), "{successes} of {RELOADS} reloads");
}

/// What is admitted by a limit while its numbers go along a list, always asked for all there is.
#[test]
fn a_limit_whose_numbers_move_never_gives_more_than_the_largest() {
    for (numbers, admitted) in [(&[10, 20, 30][..], 10), (&[30, 20, 10], 30), (&[10, 30, 10, 30, 10, 30], 10)]
    {
        let policy = |burst: u64| {
            format!("limits: [{{ name: moving, key: [], token_bucket: {{ rate: 1/day, burst: {burst} }} }}]")
        };
        let service = Service::start(&policy(numbers[0]));
        let mut client = service.connect();
        let mut total = 0;
        for burst in numbers {
            service.write_policy(&policy(*burst));
            assert_eq!(client.post("/v1/reload", &json!({})).status, 200);
            total += (0..40).filter(|_| client.passes(&[])).count();
        }
        assert_eq!(total, admitted, "{numbers:?}");
    }
}

#[test]
fn what_a_reload_does_to_each_limit_is_told() {
    let limit = |name: &str, rule: &str| format!("  - {{ name: {name}, key: [], {rule} }}\n");
    let bucket = |burst: u32| format!("token_bucket: {{ rate: 1/day, burst: {burst} }}");
    let service =
        Service::start(&format!("limits:\n{}{}", limit("stays", &bucket(10)), limit("goes", &bucket(10))));
    let mut client = service.connect();
    assert!(client.passes(&[]));
    service.write_policy(&format!("limits:\n{}{}", limit("stays", &bucket(10)), limit("comes", &bucket(5))));
    let reply = json_of(&client.post("/v1/reload", &json!({})));
    assert_eq!((&reply["reloaded"], &reply["limits"]), (&json!(true), &json!(2)), "{reply}");
    // Where the change of the file was seen before the call, it was told in the log.
    let changes = reply["changes"].to_string() + &service.process.errors();
    assert!(
        changes.contains("`goes`") && changes.contains("`comes`") && !changes.contains("`stays`"),
        "{reply}"
    );
    assert_eq!((client.remaining("stays", &[]), client.remaining("comes", &[])), (9, 5));
    // What can only be read at the start is told as such.
    service.write_policy(&format!(
        "store: {{ memory: {{ max_keys: 1000 }} }}\nlimits:\n{}",
        limit("stays", &bucket(10))
    ));
    let reply = json_of(&client.post("/v1/reload", &json!({})));
    assert_eq!(reply["needs_restart"], json!(["store"]), "{reply}");
    assert_eq!(client.remaining("stays", &[]), 9);
}

/// However often it is reloaded in between.
#[test]
fn what_needs_a_restart_is_told_until_there_was_one() {
    let service = Service::start("limits: []");
    let mut client = service.connect();
    service.directory.write("tollgate.yaml", "listen: { http: '127.0.0.1:1' }\nlimits: []");
    for _ in 0..2 {
        let answer = client.post("/v1/reload", &json!({}));
        assert_eq!(json_of(&answer)["needs_restart"], json!(["listen"]), "{answer:?}");
    }
}

/// What one reload changes. The kinds come in turn.
#[derive(Clone, Copy, Debug)]
enum ReloadKind {
    Numbers,
    RenamedLimits,
    AddedLimits,
    DroppedLimits,
    Tenants,
    TenantsFile,
    Tiers,
}

impl ReloadKind {
    const ALL: [Self; 7] = [
        Self::Numbers,
        Self::RenamedLimits,
        Self::AddedLimits,
        Self::DroppedLimits,
        Self::Tenants,
        Self::TenantsFile,
        Self::Tiers,
    ];
}

/// The contents of the policy and of its tenants file.
#[derive(Debug)]
struct Files {
    burst: u64,
    generation: u64, // in the names of the limits by path
    paths: usize,    // each has a limit of its own
    is_pro_in_policy: bool,
    is_pro_in_file: bool,
    pro_burst: u64,
}

/// The burst of a tenant without a tier of its own.
const FREE_BURST: u64 = 10;

impl Files {
    const FIRST: Self = Self {
        burst: 100,
        generation: 0,
        paths: 100,
        is_pro_in_policy: false,
        is_pro_in_file: false,
        pro_burst: 1000,
    };

    fn change(&mut self, kind: ReloadKind) {
        match kind {
            ReloadKind::Numbers => self.burst += 1,
            ReloadKind::RenamedLimits => self.generation += 1,
            ReloadKind::AddedLimits => self.paths += 10,
            ReloadKind::DroppedLimits => self.paths -= 10,
            ReloadKind::Tenants => self.is_pro_in_policy = !self.is_pro_in_policy,
            ReloadKind::TenantsFile => self.is_pro_in_file = !self.is_pro_in_file,
            ReloadKind::Tiers => self.pro_burst += 1,
        }
    }

    fn name_of_path(&self, path: usize) -> String {
        format!("path-{}-{path}", self.generation)
    }

    fn policy(&self) -> String {
        let Self { burst, pro_burst, .. } = self;
        let tenants: String = (0..100)
            .map(|i| format!("  in-policy-{i}: {{ tier: {} }}\n", tier(self.is_pro_in_policy)))
            .collect();
        let paths: String = (0..self.paths)
            .map(|i| {
                let name = self.name_of_path(i);
                format!("  - {{ name: {name}, match: {{ path: /p{i} }}, key: [user], token_bucket: {{ rate: 1M/s, burst: 1M }} }}\n")
            })
            .collect();
        format!(
            "tiers: {{ free: {{}}, pro: {{}}, unused-{pro_burst}: {{}} }}
default_tier: free
tenants_file: tenants.csv
tenants:
{tenants}limits:
  - {{ name: numbers, match: {{ path: /numbers }}, key: [user], token_bucket: {{ rate: 1/day, burst: {burst} }} }}
  - name: tiers
    match: {{ path: /tiers }}
    key: [tenant]
    token_bucket: {{ rate: 1/day, burst: {FREE_BURST} }}
    tiers: {{ pro: {{ burst: {pro_burst} }} }}
  - {{ name: same, match: {{ path: /same }}, key: [user], token_bucket: {{ rate: 1/day, burst: 10 }} }}
{paths}"
        )
    }

    fn tenants_file(&self) -> String {
        (0..100).map(|i| format!("in-file-{i},{}\n", tier(self.is_pro_in_file))).collect()
    }

    /// Requires that the service decides by these files. The keys of the limit that no reload changes must keep their
    /// states.
    fn require_in_force(&self, client: &mut Client) {
        let in_force = json_of(&client.get("/v1/limits"));
        let names: Vec<&Value> =
            in_force["limits"].as_array().unwrap().iter().map(|limit| &limit["name"]).collect();
        assert_eq!(
            (names.len(), names[names.len() - 1]),
            (3 + self.paths, &json!(self.name_of_path(self.paths - 1)))
        );
        assert_eq!(client.remaining("numbers", &[("path", "/numbers"), ("user", "anybody")]), self.burst);
        for (tenant, is_pro) in [("in-policy-7", self.is_pro_in_policy), ("in-file-7", self.is_pro_in_file)] {
            let expected = if is_pro { self.pro_burst } else { FREE_BURST };
            assert_eq!(
                client.remaining("tiers", &[("path", "/tiers"), ("tenant", tenant)]),
                expected,
                "{tenant}"
            );
        }
        for (user, remaining) in USERS_OF_SAME {
            assert_eq!(client.remaining("same", &[("path", "/same"), ("user", user)]), remaining, "{user}");
        }
    }
}

const fn tier(is_pro: bool) -> &'static str {
    if is_pro { "pro" } else { "free" }
}

/// Users of the limit that no reload changes, and the rest of their 10 tokens.
const USERS_OF_SAME: [(&str, u64); 2] = [("spent", 0), ("half", 5)];

/// A request that takes longer than this is late. A nap that takes longer than [`NAP`] by this much is late too, and
/// then the machine is the cause.
const LATE_AFTER: Duration = Duration::from_millis(1);

/// A pause of a thread that shows whether the machine stalls.
const NAP: Duration = Duration::from_millis(1);

/// Repeats an action until `is_over` is set. Returns the time that each one took, minus the time that threads of the
/// service and of the test waited for a core.
fn net_times(service: &Service, is_over: &AtomicBool, mut action: impl FnMut()) -> Vec<Duration> {
    let waited = || waited_for_a_core(service.process.id()) + waited_for_a_core(std::process::id());
    let (mut times, mut before) = (Vec::new(), waited());
    while !is_over.load(Ordering::Relaxed) {
        let (took, ()) = timed(&mut action);
        let after = waited();
        times.push(took.saturating_sub(after.saturating_sub(before)));
        before = after;
    }
    times
}

/// Sends a request. The answer must be the decision of one limit.
fn send_request(client: &mut Client, random: &mut Random) {
    let is_spent = random.chance(1, 4);
    let path = if is_spent { "/same".to_owned() } else { format!("/p{}", random.below(100)) };
    let reply = client.check(&[("path", &path), ("user", "spent")], None);
    let limits = reply["limits"].as_array().unwrap().len();
    assert_eq!((&reply["allowed"], limits), (&json!(!is_spent), 1), "{reply}");
}

/// The resident memory of the service in bytes.
fn resident_bytes(service: &Service) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<usize>().unwrap() * 1024
}

/// The number of lines of `/metrics` after every limit by path has decided.
fn lines_of_metrics(client: &mut Client) -> usize {
    let check = |path| json!({ "attributes": { "path": format!("/p{path}"), "user": "anybody" } });
    let checks: Vec<Value> = (0..Files::FIRST.paths).map(check).collect();
    assert_eq!(client.post("/v1/check", &json!(checks)).status, 200);
    client.get("/metrics").body.lines().count()
}

/// The memory that the service may use beyond that of the first round. A leak of one policy per reload would be 50 MB.
const MEMORY_SLACK: usize = 24 << 20;

#[test]
fn reloads_of_every_kind_delay_no_request_and_leave_nothing_behind() {
    const ROUNDS: usize = 15; // of all kinds
    let mut files = Files::FIRST;
    let directory = Directory::new();
    directory.write("tenants.csv", &files.tenants_file());
    let policy =
        directory.write("tollgate.yaml", &format!("listen: {{ http: '127.0.0.1:0' }}\n{}", files.policy()));
    let mut command = Command::new(TOLLGATE);
    // The allocator returns free memory at once, so that the resident memory is the memory in use.
    command.args(["serve", "--config"]).arg(policy).env("MIMALLOC_PURGE_DELAY", "0");
    let service = Service::run(directory, &mut command);
    let mut admin = service.connect();
    for (user, remaining) in USERS_OF_SAME {
        let reply = admin.check(&[("path", "/same"), ("user", user)], Some(10 - remaining));
        assert_eq!(reply["allowed"], true, "{reply}");
    }
    // A kind of reload that delays requests does so in most rounds of every attempt. Stalls of the machine are rarer.
    let (mut attempts, mut lines, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    let is_on_time = |attempts: &[(usize, usize)]| {
        attempts.iter().any(|(requests, naps)| *requests <= ROUNDS / 2 + 2 * naps)
    };
    while attempts.len() < 3 && !is_on_time(&attempts) {
        let is_over = AtomicBool::new(false);
        let (requests, naps) = thread::scope(|scope| {
            let clients = [1, 2].map(|seed| {
                let (mut client, mut random) = (service.connect(), Random::new(seed));
                let (service, is_over) = (&service, &is_over);
                scope.spawn(move || net_times(service, is_over, || send_request(&mut client, &mut random)))
            });
            let napping = scope.spawn(|| net_times(&service, &is_over, || pause(NAP)));
            let over = Over(&is_over);
            for _ in 0..ROUNDS {
                for kind in ReloadKind::ALL {
                    files.change(kind);
                    match kind {
                        ReloadKind::TenantsFile => {
                            service.directory.write("tenants.csv", &files.tenants_file());
                        }
                        _ => service.write_policy(&files.policy()),
                    }
                    let answer = admin.post("/v1/reload", &json!({}));
                    assert_eq!(answer.status, 200, "{kind:?}: {answer:?}");
                    files.require_in_force(&mut admin);
                }
                lines.push(lines_of_metrics(&mut admin));
                memory.push(resident_bytes(&service));
            }
            drop(over);
            (clients.map(|client| client.join().unwrap()).concat(), napping.join().unwrap())
        });
        assert!(requests.len() > ROUNDS * ReloadKind::ALL.len(), "{} requests only", requests.len());
        let late =
            |times: &[Duration], allowed: Duration| times.iter().filter(|time| **time > allowed).count();
        attempts.push((late(&requests, LATE_AFTER), late(&naps, NAP + LATE_AFTER)));
    }
    assert!(is_on_time(&attempts), "late requests and late naps of each attempt: {attempts:?}");
    assert!(lines.iter().all(|count| *count == lines[0]), "lines of /metrics after each round: {lines:?}");
    assert!(memory[memory.len() - 1] <= memory[0] + MEMORY_SLACK, "bytes after each round: {memory:?}");
}
