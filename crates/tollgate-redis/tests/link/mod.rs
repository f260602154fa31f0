//! The link with real servers: what they do to it, and how soon it is over that.

mod acl;
mod certificates;
mod cluster;
mod connection_errors;
mod logs;
mod passwords;
mod proxy;
mod refusing;
mod sentinel;
mod single;

use std::time::Duration;

use redis::Value;
use tokio::time::{Instant, sleep};
use tollgate_redis::link::{Call, Link, LinkError, Script, Settings};

/// Long enough for a busy machine, where time is not the question.
const DEADLINE: Duration = Duration::from_millis(500);

/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

fn settings(url: &str) -> Settings {
    Settings::single(url.to_owned(), DEADLINE)
}

/// Counts how often it has run, by key.
fn counting() -> Script {
    Script::new("return redis.call('INCR', KEYS[1])")
}

async fn count(link: &Link, script: &Script, key: &str) -> Result<i64, LinkError> {
    let answer = link.call(Call { script, keys: &[key.as_bytes()], args: &[] }).await?;
    match answer {
        Value::Int(count) => Ok(count),
        answer => panic!("{answer:?}"),
    }
}

/// Waits until it is so.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        sleep(Duration::from_millis(5)).await;
    }
    began.elapsed()
}
