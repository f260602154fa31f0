//! A cluster that loses a primary, or moves a slot.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate_testkit::RedisCluster;
use tollgate_testkit::redis::slot_of;

use super::load::{Line, Load};
use super::mode::{Mode, in_both_modes};
use super::{BACK_WITHIN, Node, unspent, wait};

const RATE: u64 = 50;
const BURST: u64 = 200;

/// A tenant on each of the three primaries.
const TENANTS: [Line; 3] = [
    Line { name: "b", attributes: &[("tenant", "b")] },
    Line { name: "c", attributes: &[("tenant", "c")] },
    Line { name: "a", attributes: &[("tenant", "a")] },
];

fn store(mode: Mode, cluster: &RedisCluster, deadline: &str) -> String {
    let urls: Vec<String> = cluster.urls().iter().map(|url| format!("'{url}'")).collect();
    let (urls, mode) = (urls.join(", "), mode.settings());
    format!(
        "store: {{ redis: {{ urls: [{urls}], cluster: true, deadline: {deadline}, on_error: deny, {mode} }} }}\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_is_killed_disturbs_its_own_keys_alone() {
    in_both_modes(|mode| async move {
        let cluster = wait(RedisCluster::start);
        for (index, tenant) in TENANTS.iter().enumerate() {
            assert_eq!(wait(|| cluster.primary_of(slot_of(tenant.name))), index, "tenant {}", tenant.name);
        }
        let limit = format!("token_bucket: {{ rate: {RATE}/s, burst: {BURST} }}");
        let policy =
            format!("{}limits: [{{ name: per-tenant, key: [tenant], {limit} }}]", store(mode, &cluster, "500ms"));
        let nodes = [Node::start(&policy).await, Node::start(&policy).await];
        let load = Load::start(&nodes, &TENANTS, 2, Duration::from_millis(10));
        load.until_denied().await;
        let killed = Instant::now();
        wait(|| cluster.kill(0));
        // Until a replica has taken over.
        let promoted = wait(|| cluster.primary_of(slot_of("b")));
        let took_over = killed.elapsed();
        assert_eq!(promoted, 3);
        let back = load.until_back(Instant::now()).await;
        sleep(Duration::from_millis(500)).await;
        let log = load.stop().await;

        let hit = log.of("b");
        // What was granted in the last moments, which the replica may not have got.
        let last = hit.count(|one| one.is_allowed && one.sent < killed + LAG && one.received() + LAG > killed);
        hit.report(
            &mode.name("cluster, primary killed, deny"),
            hit.over(RATE, BURST),
            last.min(BURST + RATE * LAG.as_secs()) + mode.excess(RATE, BURST, 2),
            format_args!(
                "the replica took over after {took_over:.1?}, {:.1?} without an answer; back after {back:.0?}",
                hit.silence()
            ),
        );
        assert!(hit.fell_back() > 0);
        for other in ["a", "c"] {
            let other = log.of(other);
            let excess = mode.excess(RATE, BURST, 2);
            other.report(&mode.name("cluster, the other primaries"), other.over(RATE, BURST), excess, "not disturbed");
            assert_eq!(other.fell_back(), 0);
        }
        assert!(back < BACK_WITHIN, "{back:?}");
    })
    .await;
}

/// The answer to a draw comes sooner: half of the life of a grant.
const DRAW: Duration = Duration::from_millis(250);

/// Replication is behind by less.
const LAG: Duration = Duration::from_secs(1);

/// One tenant, whose users have a limit each beside his own: three keys a request, all in one slot.
const USERS: [Line; 2] = [
    Line { name: "ann", attributes: &[("tenant", "c"), ("user", "ann")] },
    Line { name: "bob", attributes: &[("tenant", "c"), ("user", "bob")] },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_under_load_keeps_its_counts() {
    in_both_modes(|mode| async move {
        const LIMIT: u64 = 100_000;
        let cluster = wait(RedisCluster::start);
        let policy = format!(
            "{}limits:\n  \
             - {{ name: bucket, key: [tenant], token_bucket: {{ rate: 1/h, burst: {LIMIT} }} }}\n  \
             - {{ name: counter, key: [tenant], sliding_counter: {{ limit: {LIMIT}, window: 10h }} }}\n  \
             - {{ name: user, key: [tenant, user], fixed_window: {{ limit: {LIMIT}, window: 1h, align: first }} }}\n",
            store(mode, &cluster, "500ms")
        );
        let nodes = [Node::start(&policy).await, Node::start(&policy).await];
        let load = Load::start(&nodes, &USERS, 4, Duration::from_millis(10));
        load.until_back(Instant::now()).await;
        let slot = slot_of("c");
        // The way back takes longer than a call tries again.
        for (from, to, pause) in [(1, 2, 5), (2, 1, 60)] {
            let migration = wait(|| cluster.migrate_slot(slot, from, to));
            sleep(Duration::from_millis(100)).await;
            // One after the other: meanwhile a request has keys on both sides.
            while wait(|| migration.move_keys(1)) > 0 {
                sleep(Duration::from_millis(pause)).await;
            }
            sleep(Duration::from_millis(100)).await;
            wait(|| migration.finish());
            load.until_back(Instant::now()).await;
        }
        let log = load.stop().await;
        // Draws may still be on their way.
        sleep(DRAW).await;

        let mut charged = Vec::new();
        for user in USERS {
            charged.push(
                nodes[0].remaining(user.attributes).await.iter().map(|left| LIMIT - left).collect::<Vec<_>>(),
            );
        }
        let health: Vec<_> = nodes.iter().flat_map(|node| node.store.health()).collect();
        let redirects: u64 = health.iter().map(|shard| shard.redirects).sum();
        let tried_again: u64 = nodes.iter().map(|node| node.errors("server")).sum();
        log.report(
            &mode.name("cluster, slot moved twice"),
            log.admitted().saturating_sub(charged[0][0]),
            0,
            format_args!(
                "charged {charged:?}; {redirects} sent on, {tried_again} refused with TRYAGAIN to the end"
            ),
        );
        let all = log.admitted();
        let unspent = ["bucket", "counter", "user"].map(|limit| unspent(&nodes, limit));
        for (user, charged) in USERS.iter().zip(&charged) {
            assert_eq!(charged[..2], [all + unspent[0], all + unspent[1]], "{}", user.name);
            assert!(charged[2] >= log.of(user.name).admitted(), "{}", user.name);
        }
        assert_eq!(charged.iter().map(|charged| charged[2]).sum::<u64>(), all + unspent[2]);
        if mode == Mode::Exact {
            assert_eq!(log.fell_back(), tried_again);
        }
        assert_eq!(log.fell_back() + log.admitted(), log.asked.len() as u64);
        for kind in ["timed_out", "lost", "open"] {
            assert_eq!(nodes.iter().map(|node| node.errors(kind)).sum::<u64>(), 0, "{kind}: {health:?}");
        }
    })
    .await;
}
