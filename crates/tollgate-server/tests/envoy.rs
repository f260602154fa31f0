//! A real Envoy before an application, by the files of `examples/envoy/` as they stand but for their ports, asking us.
//!
//! `./test` installs Envoy. Without it, and without Envoy, these tests are skipped.

use std::net::SocketAddr;
use std::process::Command;

use crate::service::{Directory, TOLLGATE, eventually, json_of, repository};
use crate::site::{application, free_addresses};
use tollgate_testkit::{Http, Process, http, program};

/// Envoy, the application behind it, and the limiter that it asks.
struct Site {
    address: SocketAddr,
    grpc: SocketAddr,
    limiter: Option<Process>,
    settings: &'static str, // of ours, besides where to listen
    _envoy: Process,
    directory: Directory,
}

impl Site {
    /// None where there is no Envoy. It reads `ratelimit.yaml` with each `(text, instead)` replaced.
    fn start(changes: &[(&str, &str)], settings: &'static str) -> Option<Self> {
        let envoy = program("envoy")?;
        let directory = Directory::new();
        let [address, grpc] = free_addresses();
        let read = |file: &str| std::fs::read_to_string(repository("examples/envoy").join(file)).unwrap();
        let mut config = read("envoy.yaml");
        for (port, address) in [("8000", address), ("8081", grpc), ("9000", application())] {
            let (old, new) = (format!("port_value: {port}"), format!("port_value: {}", address.port()));
            assert_eq!(config.matches(&old).count(), 1, "{old}");
            config = config.replace(&old, &new);
        }
        let mut limits = read("ratelimit.yaml");
        for (old, new) in changes {
            assert!(limits.contains(old) || config.contains(old), "{old}");
            (limits, config) = (limits.replace(old, new), config.replace(old, new));
        }
        directory.write("envoy.yaml", &config);
        directory.write("ratelimit.yaml", &limits);
        let mut command = Command::new(envoy);
        command.args(["-c", "envoy.yaml", "--concurrency", "1", "--disable-hot-restart", "-l", "error"]);
        let envoy = Process::start(command.current_dir(directory.path(".")));
        let mut site = Self { address, grpc, limiter: None, settings, _envoy: envoy, directory };
        site.start_limiter();
        eventually("Envoy answers, and has asked", || {
            site.try_get("/")
                .is_some_and(|answer| answer.headers.iter().any(|(name, _)| name.contains("ratelimit")))
        });
        Some(site)
    }

    fn start_limiter(&mut self) {
        let listen = format!("listen: {{ http: '127.0.0.1:0', grpc: '{}' }}\n{}", self.grpc, self.settings);
        let config = self.directory.write("tollgate.yaml", &listen);
        let mut command = Command::new(TOLLGATE);
        command.args(["serve", "--config"]).arg(config).arg("--envoy-config");
        let mut limiter = Process::start(command.arg(self.directory.path("ratelimit.yaml")));
        limiter.line_with("grpc://");
        self.limiter = Some(limiter);
    }

    fn get(&self, target: &str) -> http::Answer {
        Http::connect(self.address).send("GET", target, &[], "")
    }

    fn sign_up(&self) -> http::Answer {
        Http::connect(self.address).send("POST", "/sign-up?from=here", &[], "me")
    }

    fn try_get(&self, target: &str) -> Option<http::Answer> {
        let stream = std::net::TcpStream::connect(self.address).ok()?;
        Http::over(stream).try_send("GET", target, &[], b"").ok()
    }
}

#[test]
fn what_passes_is_told_how_it_stands_by_envoy_and_by_us() {
    let Some(site) = Site::start(&[], "") else { return };
    let answer = site.sign_up();
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body.starts_with("POST /sign-up?from=here 2\n"), "{answer:?}");
    let state = answer.header("ratelimit").unwrap();
    assert!(state.contains(";r=4;t=") && state.contains("remote_address\";r="), "{state}");
    assert_eq!(answer.header("x-ratelimit-limit"), Some("5"));
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("4"));
}

/// What Envoy makes of our statuses by itself: of the limit with least left, then every one in order.
#[test]
fn envoys_own_headers_tell_the_same() {
    let own = ("failure_mode_deny: false", "enable_x_ratelimit_headers: DRAFT_VERSION_03");
    let Some(site) = Site::start(&[own], "envoy: { response_headers: false }\n") else { return };
    let answer = site.sign_up();
    assert_eq!(
        answer.header("x-ratelimit-limit"),
        Some("5, 100;w=1, 5;w=3600;name=\"sign-up\""),
        "{answer:?}"
    );
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("4"));
    let reset: u64 = answer.header("x-ratelimit-reset").unwrap().parse().unwrap();
    assert!((1..=3600).contains(&reset), "{reset}");
    while site.sign_up().status == 200 {}
    let denied = site.sign_up();
    assert_eq!((denied.status, denied.header("x-ratelimit-remaining")), (429, Some("0")), "{denied:?}");
    assert_eq!(denied.header("retry-after"), None, "we were told not to");
}

#[test]
fn what_is_denied_is_denied_by_envoy_with_our_headers_and_body() {
    let Some(site) = Site::start(&[], "") else { return };
    for left in (0..5).rev() {
        assert_eq!(site.sign_up().status, 200, "{left} should be left");
    }
    let answer = site.sign_up();
    assert_eq!(answer.status, 429, "{answer:?}");
    assert_eq!(answer.header("x-envoy-ratelimited"), Some("true"));
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=3600).contains(&wait), "{wait}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{answer:?}");
    assert_eq!(json_of(&answer)["status"], 429);
    assert_eq!(site.get("/").status, 200, "it is of this limit only");
}

/// As Envoy Gateway and AI gateways limit by tokens of a model: a request asks with 0 hits, and what it used is reported at
/// the end of its stream. The use that goes beyond the limit is counted, and denies the next request.
#[test]
fn usage_that_envoy_reports_at_the_end_of_a_stream_is_counted() {
    let limit = (
        "domain: site\ndescriptors:\n",
        "domain: site\ndescriptors:\n  - { key: tokens, rate_limit: { unit: hour, requests_per_unit: 1000 } }\n",
    );
    let actions = (
        "                        - actions: [{ remote_address: {} }]\n",
        r#"                        - actions: [{ generic_key: { descriptor_key: tokens, descriptor_value: all } }]
                          hits_addend: { number: 0 }
                        - actions: [{ generic_key: { descriptor_key: tokens, descriptor_value: all } }]
                          hits_addend: { format: "%REQ(X-TOKENS)%" }
                          apply_on_stream_done: true
"#,
    );
    let Some(site) = Site::start(&[limit, actions], "") else { return };
    let use_tokens = |tokens: &str| {
        Http::connect(site.address).send("GET", "/v1/chat/completions", &[("x-tokens", tokens)], "").status
    };
    assert_eq!(use_tokens("900"), 200);
    assert_eq!(use_tokens("300"), 200, "900 of 1000 are used");
    // Envoy reports the use after it has answered.
    eventually("1200 of 1000 are used", || use_tokens("0") == 429);
    assert_eq!(use_tokens("0"), 429);
}

#[test]
fn a_rule_in_shadow_mode_counts_and_lets_pass() {
    let Some(site) = Site::start(&[], "") else { return };
    for _ in 0..5 {
        assert_eq!(site.get("/search?q=x").status, 200);
    }
}

#[test]
fn while_we_are_down_envoy_passes_traffic_and_asks_again_when_we_are_back() {
    let Some(mut site) = Site::start(&[], "") else { return };
    while site.sign_up().status == 200 {}
    site.limiter = None; // killed
    for _ in 0..3 {
        assert_eq!(site.sign_up().status, 200, "nobody is there to deny it");
    }
    site.start_limiter();
    eventually("it is asked again", || site.sign_up().header("ratelimit").is_some());
    while site.sign_up().status == 200 {}
    // Told to stop, it answers what has come and closes.
    let limiter = site.limiter.as_mut().unwrap();
    limiter.signal("TERM");
    assert!(limiter.wait().success());
    assert_eq!(site.sign_up().status, 200);
}

#[test]
fn told_so_envoy_refuses_what_it_cannot_ask_about() {
    let Some(mut site) = Site::start(&[("failure_mode_deny: false", "failure_mode_deny: true")], "") else {
        return;
    };
    site.limiter = None;
    assert_eq!(site.get("/").status, 500);
    site.start_limiter();
    eventually("it passes again", || site.get("/").status == 200);
}
