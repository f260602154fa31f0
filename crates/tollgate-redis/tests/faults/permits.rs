//! Places that several processes hold. They are never leased: which process holds a place is what the store is asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollgate_policy::{Permits, Request, Source};
use tollgate_testkit::RedisServer;

use super::{Node, PATIENCE, wait};

const LIMIT: u64 = 5;
const LEASE: Duration = Duration::from_secs(1);

/// A permit, where there is one.
async fn hold(node: &Node) -> Option<Permits> {
    let (policy, request) = (node.engine.policy(), Request { attributes: &[("tenant", "acme")], cost: None });
    let mut verdict = policy.acquire(&request, node.engine.clock().now()).wait().await.unwrap();
    let permits = verdict.take_permits();
    assert_eq!(verdict.source(), Source::Store);
    assert_eq!(verdict.is_allowed(), !permits.is_empty());
    verdict.is_allowed().then_some(permits)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_of_several_processes_never_exceed_the_limit_and_return_when_one_vanishes() {
    let server = wait(RedisServer::start);
    let policy = format!(
        "store: {{ redis: {{ url: '{}', deadline: 900ms, on_error: deny }} }}\n\
         limits: [{{ name: places, key: [tenant], concurrency: {{ limit: {LIMIT}, lease: {}ms }} }}]",
        server.url(),
        LEASE.as_millis(),
    );
    let nodes = [Node::start(&policy).await, Node::start(&policy).await, Node::start(&policy).await];
    let (held, most, given) =
        (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    let began = Instant::now();
    for task in 0..12 {
        let node = nodes[task % nodes.len()].clone();
        let (held, most, given) = (Arc::clone(&held), Arc::clone(&most), Arc::clone(&given));
        tasks.spawn(async move {
            while began.elapsed() < Duration::from_secs(2) {
                if let Some(permits) = hold(&node).await {
                    most.fetch_max(held.fetch_add(1, SeqCst) + 1, SeqCst);
                    given.fetch_add(1, SeqCst);
                    sleep(Duration::from_millis(3)).await;
                    held.fetch_sub(1, SeqCst);
                    permits.release().await.unwrap();
                }
                sleep(Duration::from_millis(1)).await;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let (most, given) = (most.load(SeqCst), given.load(SeqCst));
    assert!(most <= LIMIT && given > 100, "{most} at once, {given} in all");

    // One that vanishes gives nothing back.
    let vanished = Instant::now();
    for _ in 0..LIMIT {
        std::mem::forget(hold(&nodes[0]).await.expect("a place is free"));
    }
    let mut held = Vec::new();
    while held.len() < LIMIT as usize {
        held.extend(hold(&nodes[1]).await);
        assert!(held.is_empty() || vanished.elapsed() >= LEASE, "free after {:?}", vanished.elapsed());
        assert!(vanished.elapsed() < PATIENCE, "{} places are free again", held.len());
        sleep(Duration::from_millis(5)).await;
    }
    let back = vanished.elapsed();
    assert!(hold(&nodes[2]).await.is_none(), "all are held again");
    println!(
        "permits: {given} given, at most {most} of {LIMIT} at once; after a holder vanished, all back in {back:.2?}"
    );
    assert!(back < LEASE + Duration::from_secs(2), "{back:?}");
}
