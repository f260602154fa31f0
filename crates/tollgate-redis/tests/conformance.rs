//! The Redis store keeps every promise of a store, as the table in memory action: on Redis, and on Valkey where that is
//! installed.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::runtime::Runtime;
use tollgate_core::Rule;
use tollgate_core::adaptive::Pace;
use tollgate_core::{Action, Group};
use tollgate_policy::{Ask, Store as _};
use tollgate_redis::{RedisStore, Settings};
use tollgate_testkit::conformance::{Line, Store, conforms};
use tollgate_testkit::oracle::Several;
use tollgate_testkit::{RedisServer, Verdict, skip};

#[path = "../../tollgate-core/tests/random/plain.rs"]
mod plain;

/// A store on an empty server, asked by a thread that waits.
struct Waiting<'s> {
    store: RedisStore,
    runtime: &'s Runtime,
    rules: HashMap<String, Rule>,
}

impl<'s> Waiting<'s> {
    fn new(server: &RedisServer, runtime: &'s Runtime) -> Self {
        server.command(&["FLUSHALL"]);
        let settings = Settings::single(server.url(), Duration::from_secs(10));
        let _guard = runtime.enter();
        let store = RedisStore::with_manual_clock(settings).unwrap();
        assert!(runtime.block_on(store.ready(Duration::from_secs(10))), "the server answers");
        Self { store, runtime, rules: HashMap::new() }
    }
}

impl Store for Waiting<'_> {
    fn tick(&self) -> u64 {
        1000
    }

    fn decide(&mut self, now: u64, plan: &[Line]) -> Verdict {
        self.store.set_time(now / 1000);
        for line in plan {
            self.rules.entry(line.limit.clone()).or_insert_with(|| plain::rule_of(line.rule));
        }
        let asks = plan.iter().map(|line| Ask {
            limit: line.limit.clone().into(),
            key: std::iter::once(line.key.as_bytes()).collect(),
            tag: b"all",
            rule: self.rules[&line.limit],
            pace: Pace::FULL,
            cost: line.cost,
            action: Action::Charge,
            group: Group::All,
            has_one_tier: false,
            is_denied: false,
        });
        let asks: Vec<Ask<'_>> = asks.collect();
        let decided = self.runtime.block_on(self.store.decide(&asks)).unwrap();
        let summary =
            Several::summary(decided.each.iter().map(|seen| plain::answer(seen.decision)).collect());
        let groups = asks.iter().map(|ask| ask.group);
        let verdict = tollgate_core::Verdict::of(groups.zip(decided.each.iter().map(|each| each.decision)));
        assert_eq!((verdict.is_allowed(), verdict.reported), (summary.allowed, Some(summary.reported)));
        summary
    }
}

#[test]
fn the_redis_store_conforms() {
    let (server, runtime) = (RedisServer::start(), Runtime::new().unwrap());
    conforms(|| Waiting::new(&server, &runtime));
}

#[test]
fn it_conforms_on_valkey() {
    let version = Command::new("valkey-server").arg("--version").stdout(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        return skip("valkey-server is not installed");
    }
    // The harness starts `redis-server`, which is the first argument here.
    let valkey = ["sh", "-c", "shift; exec valkey-server \"$@\"", "sh"];
    let (server, runtime) = (RedisServer::under(&valkey, &[]), Runtime::new().unwrap());
    assert!(server.log().contains("Valkey"), "{}", server.log());
    conforms(|| Waiting::new(&server, &runtime));
}
