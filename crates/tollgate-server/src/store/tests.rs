//! Every surface with a store that several processes share.

mod grpc;
mod http;
mod resp;

use std::path::Path;
use std::time::Duration;

use tollgate_policy::Policy;

use super::slow::Slow;
use super::*;
use crate::connections::{Activity, Connections};
use crate::listener::Connection;
use crate::reload::Reloader;
use crate::service::Service;
use crate::source::Source;

/// How long an answer takes at most, where it takes any time: longer than what is done meanwhile.
const TAKES: Duration = Duration::from_millis(80);

const LIMITS: &str = "
  - { name: per-user, match: { path: / }, key: [user], token_bucket: { rate: 1/day, burst: 100 } }
  - { name: all, match: { path: / }, key: [], fixed_window: { limit: 1000, window: 1day } }
  - { name: few, match: { path: /few }, key: [user], token_bucket: { rate: 1/day, burst: 2 } }
  - { name: in-flight, match: { path: /hold }, key: [], concurrency: { limit: 1, lease: 60s } }
  - { name: proxied, match: { path: /v1/forward-auth }, key: [], token_bucket: { rate: 1/day, burst: 1 } }
  - { name: paths, descriptor: { domain: edge, entries: [{ key: path }] }, fixed_window: { limit: 10, window: 1day } }
";

fn policy(on_error: &str) -> Policy {
    let text =
        format!("store: {{ redis: {{ url: 'redis://127.0.0.1', on_error: {on_error} }} }}\nlimits:{LIMITS}");
    Policy::read(Path::new("tollgate.yaml"), &text).unwrap_or_else(|faults| panic!("{faults}"))
}

/// A service with such a store.
fn shared(policy: Policy, store: &Arc<Slow>) -> Arc<Service> {
    let reloader = Reloader::new(Source::default(), policy.clone());
    let store: Arc<Slow> = Arc::clone(store);
    Arc::new(Service::new(policy, reloader, Some(store)).unwrap())
}

/// One without.
fn in_memory() -> Arc<Service> {
    let policy = Policy { store: StoreSettings::default(), ..policy("allow") };
    Arc::new(Service::new(policy.clone(), Reloader::new(Source::default(), policy), None).unwrap())
}

fn connection() -> Connection {
    Connection { peer: "127.0.0.1:1".parse().unwrap(), is_loopback: true, is_tls: false }
}

fn activity() -> Arc<Activity> {
    let connections = Arc::new(Connections::new(None, None));
    Arc::clone(&connections.try_admit(connection().peer.ip(), false).unwrap().activity)
}

/// Waits until something is so, for ten seconds at most.
async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it is still not so after ten seconds: {what}");
}
