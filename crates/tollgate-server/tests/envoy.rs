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
        let site = Self::start_with(["envoy.yaml", "ratelimit.yaml"], changes, settings)?;
        eventually("Envoy answers, and has asked", || {
            site.try_get("/")
                .is_some_and(|answer| answer.headers.iter().any(|(name, _)| name.contains("ratelimit")))
        });
        Some(site)
    }

    /// [`start`](Self::start) with these files of the examples: Envoy's, and the limits. It does not wait for Envoy.
    fn start_with(files: [&str; 2], changes: &[(&str, &str)], settings: &'static str) -> Option<Self> {
        let envoy = program("envoy")?;
        let directory = Directory::new();
        let [address, grpc] = free_addresses();
        let read = |file: &str| std::fs::read_to_string(repository("examples/envoy").join(file)).unwrap();
        let mut config = read(files[0]);
        for (port, address) in [("8000", address), ("8081", grpc), ("9000", application())] {
            let (old, new) = (format!("port_value: {port}"), format!("port_value: {}", address.port()));
            assert_eq!(config.matches(&old).count(), 1, "{old}");
            config = config.replace(&old, &new);
        }
        let mut limits = read(files[1]);
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
    // The client says what a request uses, in place of the bytes of the response.
    let changes = [("%BYTES_SENT%", "%REQ(X-TOKENS)%")];
    let Some(site) = Site::start_with(["usage.yaml", "usage-limits.yaml"], &changes, "") else { return };
    let use_tokens = |user: &str, tokens: &str| {
        let headers = [("x-user-id", user), ("x-tokens", tokens)];
        let stream = std::net::TcpStream::connect(site.address).ok()?;
        let answer = Http::over(stream).try_send("GET", "/v1/chat/completions", &headers, b"").ok()?;
        answer.header("ratelimit").is_some().then_some(answer)
    };
    eventually("Envoy answers, and has asked", || use_tokens("somebody", "0").is_some());
    let mut asked = 0;
    let mut remaining = || {
        asked += 1;
        let answer = use_tokens("alice", "0").unwrap();
        let state = answer.header("ratelimit").unwrap().to_owned();
        let left: u64 = state.split_once(";r=").unwrap().1.split([';', ',']).next().unwrap().parse().unwrap();
        (answer.status, left)
    };
    // Envoy reports the use after it has answered.
    assert_eq!(use_tokens("alice", "900").unwrap().status, 200);
    eventually("900 of 1000 are used", || remaining() == (200, 100));
    assert_eq!(use_tokens("alice", "300").unwrap().status, 200, "100 are left");
    eventually("1200 of 1000 are used", || remaining() == (429, 0));
    // Asking costs nothing, however often.
    assert!(asked >= 2 && use_tokens("bob", "0").unwrap().header("ratelimit").unwrap().contains(";r=1000"));
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
