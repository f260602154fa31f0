//! Services that together have every metric, and the traffic that makes every alert fire.

use std::net::SocketAddr;
use std::thread;

use serde_json::{Value, json};
use tollgate_testkit::{Http, RedisServer, free_port};

use crate::gateway::backend::Backend;
use crate::gateway::running::Gateway;
use crate::service::Service;

/// A gateway with a queue of one request, adaptive rates, a small table, a small record, and limits of all kinds.
const WITH_GATEWAY: &str = "
store: { memory: { max_keys: 200 } }
record: { path: ./decisions.log, max_bytes: 4KiB }
identity: { user: header.x-user-id }
adaptive_rates: { high: 20ms, low: 10ms, floor: 0.1 }
limits:
  - { name: per-user, match: { path: /api/* }, key: [user], token_bucket: { rate: 1/h, burst: 5 } }
  - { name: line, match: { path: /line }, key: [], leaky_bucket: { rate: 100/s, queue: 50 } }
  - { name: candidate, shadow: true, match: { path: /api/* }, key: [user], token_bucket: { rate: 1/h, burst: 2 } }
  - { name: edge, descriptor: { domain: edge, entries: [{ key: path }], detailed_metric: true }, fixed_window: { limit: 9, window: 1day } }
";

const QUEUE: &str = "concurrency: { adaptive: gradient, min: 1, max: 2 }, fair_queue: { by: user, per_key: 1, max_wait: 50ms }";

pub(super) struct Scene {
    gateway: Gateway,
    shared: Gateway,        // on a Redis, before an application that is down
    without_store: Service, // whose Redis is down
    _backend: Backend,
    _redis: RedisServer,
}

impl Scene {
    pub(super) fn start() -> Self {
        let (backend, redis) = (Backend::start(), RedisServer::start());
        let down = || format!("127.0.0.1:{}", free_port());
        let (gateway, shared, without_store) = thread::scope(|scope| {
            let gateway = scope.spawn(|| {
                let telemetry = format!("telemetry: {{ otlp: 'http://{}', sample: 1 }}", down());
                Gateway::start(&backend, QUEUE, &format!("{WITH_GATEWAY}{telemetry}"))
            });
            let shared = scope.spawn(|| {
                let policy = format!(
                    "store: {{ redis: {{ url: '{}', mode: lease, deadline: 1s }} }}
limits: [{{ name: leased, key: [user], token_bucket: {{ rate: 1000/s, burst: 1000 }} }}]",
                    redis.url()
                );
                Gateway::before(&format!("'http://{}'", down()), "concurrency: { max: 4 }", &policy)
            });
            let without_store = scope.spawn(|| {
                Service::start(&format!(
                    "store: {{ redis: {{ url: 'redis://{}', on_error: allow }} }}
limits: [{{ name: unshared, key: [user], token_bucket: {{ rate: 1/h, burst: 1 }} }}]",
                    down()
                ))
            });
            (gateway.join().unwrap(), shared.join().unwrap(), without_store.join().unwrap())
        });
        Self { gateway, shared, without_store, _backend: backend, _redis: redis }
    }

    /// The services, to be scraped.
    pub(super) fn targets(&self) -> [SocketAddr; 3] {
        [self.gateway.service.address, self.shared.service.address, self.without_store.address]
    }

    /// What each service answers to a scrape in the text format.
    pub(super) fn scrapes(&self) -> [String; 3] {
        self.targets().map(|target| Http::connect(target).send("GET", "/metrics", &[], "").body)
    }

    /// Sends some traffic of each kind, different for each number.
    pub(super) fn send(&self, number: usize) {
        let clients = thread::scope(|scope| {
            // One of these requests gets a slot, or two, one waits until `max_wait`, and the others find the queue full.
            let ask = || self.gateway.connect().send("GET", "/sleep/100", &[("x-user-id", "ann")], "").status;
            let asking: Vec<_> = (0..5).map(|_| scope.spawn(ask)).collect();
            self.send_checks(number);
            asking.into_iter().map(|asking| asking.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(clients.iter().all(|status| [200, 503].contains(status)), "{clients:?}");
    }

    fn send_checks(&self, number: usize) {
        let check = |user: &str, path: &str| json!({ "attributes": { "user": user, "path": path } });
        let users = (0..100).map(|user| check(&format!("user-{number}-{user}"), "/api/trips"));
        let hot = (0..150).map(|_| check("hot", "/api/trips"));
        let line = (0..5).map(|_| check("ann", "/line"));
        let mut gateway = self.gateway.service.connect();
        assert_eq!(gateway.post("/v1/check", &users.chain(hot).chain(line).collect::<Value>()).status, 200);
        let edge =
            json!({ "domain": "edge", "descriptors": [{ "entries": [{ "key": "path", "value": "a" }] }] });
        assert!([200, 429].contains(&gateway.post("/json", &edge).status));
        for _ in 0..10 {
            assert_eq!(gateway.0.send("PUT", "/v1/pressure", &[], r#"{ "load": 1.0 }"#).status, 200);
        }
        let mut shared = self.shared.service.connect();
        for _ in 0..20 {
            assert!(shared.passes(&[("user", "ann")]));
        }
        assert_eq!(self.shared.connect().send("GET", "/", &[], "").status, 502);
        let mut without_store = self.without_store.connect();
        assert_eq!(without_store.check(&[("user", "ann")], None)["source"], "fallback");
    }
}
