//! How permits are stored: the work and the memory follow the number of permits, not their costs.

use std::time::Duration;

use tollgate_core::{Action, Concurrency, Rule};
use tollgate_policy::{Ask, Store as _};
use tollgate_redis::RedisStore;
use tollgate_testkit::RedisServer;

use super::{ask, decide, store_at_a_time};

const KEY: &str = "tollgate:{acme}:slots:p2:k";
const START: u64 = 1_800_000_000_000_000;
const LEASE: Duration = Duration::from_secs(30);

fn slots() -> Rule {
    Concurrency::new(100_000, Some(LEASE)).unwrap().into()
}

fn hold(cost: u64) -> Ask<'static> {
    Ask { action: Action::Hold, ..ask("slots", "k", slots(), cost) }
}

async fn remaining(store: &RedisStore) -> u64 {
    decide(store, &[ask("slots", "k", slots(), 0)]).await.each[0].decision.status.remaining
}

fn members(server: &RedisServer) -> i64 {
    server.command(&["ZCARD", KEY]).integer()
}

/// The commands that the server has run, those of scripts included.
fn commands(server: &RedisServer) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let stats = String::from_utf8_lossy(stats.bytes()).into_owned();
    let calls = |line: &str| line.split_once(":calls=")?.1.split(',').next()?.parse::<u64>().ok();
    stats.lines().filter(|line| !line.starts_with("cmdstat_info")).filter_map(calls).sum()
}

#[tokio::test]
async fn a_permit_of_any_cost_takes_few_commands_and_members() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    for cost in [1, 3, 1000, 50_000, 65_535, 100_000] {
        let before = commands(&server);
        let permits = store.decide(&[hold(cost)]).await.unwrap().permits;
        let acquire = commands(&server) - before;
        assert!(members(&server) <= 1 + 17, "cost {cost}: {} members", members(&server));
        assert_eq!(remaining(&store).await, 100_000 - cost);

        let before = commands(&server);
        assert!(store.release(&permits).await.unwrap(), "cost {cost}");
        let release = commands(&server) - before;
        assert!(acquire <= 8 && release <= 5, "cost {cost}: {acquire} commands, and {release} to release");
        assert!(!store.release(&permits).await.unwrap(), "cost {cost}: released twice");
        assert_eq!((members(&server), remaining(&store).await), (1, 100_000));
    }
}

#[tokio::test]
async fn leases_that_end_together_leave_in_small_parts() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    for _ in 0..1500 {
        assert!(decide(&store, &[hold(3)]).await.verdict.is_allowed());
    }
    assert_eq!((members(&server), remaining(&store).await), (3001, 95_500));
    store.set_time(START + 30_000_000);
    assert_eq!(remaining(&store).await, 100_000);
    for (acquired, left) in [(1, 1003), (2, 5), (3, 7)] {
        assert!(decide(&store, &[hold(3)]).await.verdict.is_allowed());
        assert_eq!((members(&server), remaining(&store).await), (left, 100_000 - 3 * acquired));
    }
}

#[tokio::test]
async fn permits_of_an_earlier_version_are_not_read() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    let earlier = "tollgate:{acme}:slots:p:k";
    let (ends, newest) = ((START + 9).to_string(), ((1_u64 << 52) + START).to_string());
    server.command(&["ZADD", earlier, &ends, "0-0123456789abcdef:1", &newest, "newest"]);
    assert!(decide(&store, &[hold(100_000)]).await.verdict.is_allowed());
    assert_eq!(server.command(&["ZCARD", earlier]).integer(), 2);
}
