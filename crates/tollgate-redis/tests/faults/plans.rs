//! Plans of leased and exact limits over two slots of a cluster, while calls fail: all of a plan is charged, or nothing.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::sleep;
use tollgate_policy::{LeaseStats, Request, Source};
use tollgate_testkit::redis::{RedisClient, Reply, slot_of};
use tollgate_testkit::{Random, RedisCluster, is_long};

use super::mode::Mode;
use super::{Node, wait};

const LIMIT: u64 = 100_000_000;

/// What each path asks for. `user` and `tight` are in the slot of the user, the others in that of the tenant.
const PATHS: [(&str, &[&str]); 6] = [
    ("/leased", &["user", "tenant"]),
    ("/tight", &["user", "tight", "tenant"]),
    ("/tenant", &["tenant", "bucket", "count"]),
    ("/apart", &["user", "bucket", "count"]),
    ("/all", &["user", "tight", "tenant", "bucket", "count"]),
    ("/exact", &["bucket", "count"]),
];

/// The limits that are decided exactly, by their keys in the store.
const EXACT_KEYS: [&str; 2] = ["tollgate:{b}:bucket:t:b", "tollgate:{b}:count:f:b"];

const ATTRIBUTES: [(&str, &str); 2] = [("tenant", "b"), ("user", "c")];

fn policy(cluster: &RedisCluster) -> String {
    let urls: Vec<String> = cluster.urls().iter().map(|url| format!("'{url}'")).collect();
    let paths = |limit: &str| {
        let of = PATHS.iter().filter(|(_, limits)| limits.contains(&limit)).map(|(path, _)| *path);
        of.collect::<Vec<_>>().join(", ")
    };
    let window = format!("fixed_window: {{ limit: {LIMIT}, window: 10h, align: first }}");
    let limit = |name: &str, key: &str, rule: &str| {
        format!("  - {{ name: {name}, match: {{ path: [{}] }}, key: [{key}], {rule} }}\n", paths(name))
    };
    format!(
        "store: {{ redis: {{ urls: [{}], cluster: true, deadline: 100ms, on_error: deny, {} }} }}\nlimits:\n{}{}{}{}{}",
        urls.join(", "),
        Mode::LEASE.settings(),
        limit("user", "user", &window),
        limit("tight", "user", "token_bucket: { rate: 1000/s, burst: 60 }"),
        limit("tenant", "tenant", &window),
        limit("bucket", "tenant", "mode: exact, token_bucket: { rate: 500/s, burst: 500 }"),
        limit("count", "tenant", &format!("mode: exact, {window}")),
    )
}

/// What became of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Admitted,
    Denied,
    /// It fell back, and may have been charged.
    NoAnswer,
    /// Nobody waited for it any more.
    Dropped,
}

/// When a caller leaves that has no answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    Never,
    /// After this number of polls.
    After(u64),
    /// When it should poll again after this number of polls. The answer may have come, but the caller never reads it.
    Before(u64),
}

/// Asks once. Returns what became of it, and whether it was decided without a call.
async fn ask(node: &Node, path: &str, cost: u64, leaves: Leaves) -> (Outcome, bool) {
    let (policy, attributes) = (node.engine.policy(), [ATTRIBUTES[0], ATTRIBUTES[1], ("path", path)]);
    let request = Request { attributes: &attributes, cost: Some(cost) };
    let mut answer = pin!(policy.check(&request, node.engine.clock().now()).wait());
    let mut polls = 0;
    let verdict = poll_fn(|cx| {
        if leaves == Leaves::Before(polls) {
            return Poll::Ready(None);
        }
        polls += 1;
        match answer.as_mut().poll(cx) {
            Poll::Ready(verdict) => Poll::Ready(Some(verdict.unwrap())),
            Poll::Pending if leaves == Leaves::After(polls) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    let outcome = match verdict {
        None => Outcome::Dropped,
        Some(verdict) if verdict.source() == Source::Fallback => Outcome::NoAnswer,
        Some(verdict) if verdict.is_allowed() => Outcome::Admitted,
        Some(_) => Outcome::Denied,
    };
    (outcome, polls == 1 && outcome != Outcome::Dropped)
}

/// The units of each leased limit that were spent by grants: drawn, and nothing else became of them.
async fn spent(node: &Node) -> HashMap<String, i64> {
    let read = || node.engine.lease_stats();
    let mut stats = read();
    // A draw may be answered while they are read.
    loop {
        let again = read();
        if again == stats {
            break;
        }
        (stats, _) = (again, sleep(Duration::from_micros(200)).await);
    }
    let signed = |units: u64| i64::try_from(units).unwrap();
    let of = |stats: &LeaseStats| {
        let LeaseStats { drawn, held, lapsed, returned, .. } = *stats;
        signed(drawn) - signed(held) - signed(lapsed) - signed(returned)
    };
    stats.iter().map(|stats| (stats.limit.clone(), of(stats))).collect()
}

/// What the exact limits hold, byte by byte.
fn dump(client: &mut RedisClient) -> [Reply; 2] {
    EXACT_KEYS.map(|key| client.command(&["DUMP", key]))
}

/// What a window has charged.
fn used(client: &mut RedisClient, key: &str) -> u64 {
    let state = client.command(&["GET", key]);
    state.text().split(' ').nth(1).expect("`end used tag`").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_over_two_slots_are_charged_wholly_or_not_at_all() {
    let plans = if is_long() { 100_000 } else { 2000 };
    let cluster = wait(RedisCluster::start);
    let servers = ["b", "c"].map(|tag| wait(|| cluster.primary_of(slot_of(tag))));
    assert_ne!(servers[0], servers[1], "the slots are on different servers");
    let node = Node::start(&policy(&cluster)).await;
    let mut clients = servers.map(|server| cluster.node(server).client());
    let mut random = Random::new(7);
    let mut counts: HashMap<&str, [u64; 2]> = HashMap::new(); // admitted, and charged perhaps
    let mut largest: HashMap<String, u64> = HashMap::new(); // grant of each limit
    let mut drawn: HashMap<String, u64> = HashMap::new();
    let (mut outcomes, mut compared, mut calls) = ([0_u64; 4], 0_u64, 0_u64);
    // A bucket that is full expires. This one is used up from now on.
    while ask(&node, "/exact", 3, Leaves::Never).await.0 == Outcome::Admitted {
        counts.entry("count").or_default()[0] += 3;
    }
    for plan in 0..plans {
        let (path, limits) = *random.pick(&PATHS);
        let cost = random.between(1, 3);
        let is_broken = random.chance(1, 250);
        let leaves = match random.below(12) {
            0..=1 => Leaves::After(1),
            2..=3 => Leaves::Before(1),
            4 => Leaves::After(2),
            5 => Leaves::Before(2),
            _ => Leaves::Never,
        };
        let before = (wait(|| dump(&mut clients[0])), spent(&node).await);
        if is_broken {
            let of = random.below(2) as usize;
            let server = cluster.node(servers[of]);
            if random.chance(1, 2) {
                wait(|| server.command(&["CLIENT", "PAUSE", "150", "ALL"]));
            } else {
                wait(|| server.command(&["CLIENT", "KILL", "TYPE", "normal"]));
                clients[of] = wait(|| server.client());
            }
        }
        let (outcome, is_at_once) = ask(&node, path, cost, leaves).await;
        calls += u64::from(!is_at_once);
        outcomes[outcome as usize] += 1;
        if is_broken {
            sleep(Duration::from_millis(200)).await;
        }
        if outcome == Outcome::Denied {
            let (exact, spent) = (wait(|| dump(&mut clients[0])), spent(&node).await);
            assert_eq!(exact, before.0, "plan {plan}, {path}: the exact limits are as before");
            for (limit, spent) in spent {
                let before = before.1.get(&limit).copied().unwrap_or_default();
                assert_eq!(spent, before, "plan {plan}, {path}: {limit} is as before");
            }
            compared += 1;
        }
        for limit in limits {
            let [admitted, perhaps] = counts.entry(limit).or_default();
            match outcome {
                Outcome::Admitted => *admitted += cost,
                Outcome::Denied => {}
                Outcome::NoAnswer | Outcome::Dropped => *perhaps += cost,
            }
        }
        for stats in node.engine.lease_stats() {
            let before = drawn.insert(stats.limit.clone(), stats.drawn).unwrap_or_default();
            let grant = largest.entry(stats.limit).or_default();
            *grant = (*grant).max(stats.drawn - before);
        }
        if outcome == Outcome::Dropped {
            settle(&node).await;
        }
    }
    settle(&node).await;
    // Answers to draws are on their way for half of the life of a grant.
    sleep(Duration::from_millis(300)).await;
    let [admitted, denied, unanswered, dropped] = outcomes;
    println!(
        "{plans} plans, {calls} waited for the store: {admitted} admitted, {denied} denied, {unanswered} unanswered, \
         {dropped} dropped; {compared} denials changed nothing"
    );
    let stats = node.engine.lease_stats();
    let errors = node.errors("timed_out") + node.errors("lost");
    for (limit, key) in [
        ("user", "tollgate:{c}:user:f:c"),
        ("tenant", "tollgate:{b}:tenant:f:b"),
        ("count", "tollgate:{b}:count:f:b"),
    ] {
        let [admitted, perhaps] = counts[limit];
        let stats = stats.iter().find(|stats| stats.limit == limit);
        let unspent = stats.map_or(0, |stats| stats.held + stats.lapsed);
        let used = wait(|| used(&mut clients[usize::from(limit == "user")], key));
        // A call without an answer is charged once at most. A draw without an answer was no larger than the largest, and a return
        // may have come too late.
        let lost = stats
            .map_or(0, |stats| errors * largest.get(limit).copied().unwrap_or_default() + stats.returned);
        let (least, most) = (admitted + unspent, admitted + unspent + perhaps + lost);
        println!(
            "{limit}: {used} charged, of {least} to {most}: {admitted} admitted, {unspent} drawn and not spent, {perhaps} perhaps"
        );
        assert!((least..=most).contains(&used), "{limit}: {used} charged, not {least} to {most}");
    }
}

/// Waits until calls that nobody waits for any more have been decided. They are before this one on the same connection.
async fn settle(node: &Node) {
    let (policy, attributes) = (node.engine.policy(), [ATTRIBUTES[0], ATTRIBUTES[1], ("path", "/exact")]);
    let request = Request { attributes: &attributes, cost: Some(0) };
    let verdict = policy.check(&request, node.engine.clock().now()).wait().await.unwrap();
    let _ = verdict.is_allowed();
}
