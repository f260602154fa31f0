//! A thousand reloads under load: no request is lost, and nobody gains by them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::service::{Client, Service, eventually, json_of};
use serde_json::{Value, json};
use tollgate_testkit::Random;

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
