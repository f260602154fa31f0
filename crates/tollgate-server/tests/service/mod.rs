//! The real binary, with a policy of the test's own.

pub(crate) mod resp;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
pub(crate) use tollgate_testkit::real_time::{pause, timed};
use tollgate_testkit::{Http, Process, address_in, http, program, real_time};

/// The binary under test.
pub(crate) const TOLLGATE: &str = env!("CARGO_BIN_EXE_tollgate");

/// A service that runs until it is dropped.
pub(crate) struct Service {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
    pub(crate) directory: Directory,
}

impl Service {
    /// Starts the service with a policy, on a free port of the loopback.
    pub(crate) fn start(policy: &str) -> Self {
        Self::start_in(Directory::new(), policy)
    }

    /// As [`start`](Self::start), with files that are there already.
    pub(crate) fn start_in(directory: Directory, policy: &str) -> Self {
        let file = directory.write("tollgate.yaml", &format!("listen: {{ http: '127.0.0.1:0' }}\n{policy}"));
        Self::run(directory, Command::new(TOLLGATE).args(["serve", "--config"]).arg(&file))
    }

    /// As [`start`](Self::start), with a policy that says where to listen, for HTTP first.
    pub(crate) fn start_listening(policy: &str) -> Self {
        let directory = Directory::new();
        let file = directory.write("tollgate.yaml", policy);
        Self::run(directory, Command::new(TOLLGATE).args(["serve", "--config"]).arg(&file))
    }

    /// Starts the service by any command line.
    pub(crate) fn run(directory: Directory, command: &mut Command) -> Self {
        let mut process = Process::start(command);
        let address = address_in(&process.line_with("listens on"));
        Self { process, address, directory }
    }

    /// Writes another policy into the file it was started with.
    pub(crate) fn write_policy(&self, policy: &str) {
        self.directory.write("tollgate.yaml", &format!("listen: {{ http: '127.0.0.1:0' }}\n{policy}"));
    }

    pub(crate) fn connect(&self) -> Client {
        Client(Http::connect(self.address))
    }
}

/// One connection to the service.
pub(crate) struct Client(pub(crate) Http);

impl Client {
    pub(crate) fn post(&mut self, target: &str, body: &Value) -> http::Answer {
        self.0.send("POST", target, &[], &body.to_string())
    }

    pub(crate) fn get(&mut self, target: &str) -> http::Answer {
        self.0.send("GET", target, &[], "")
    }

    /// Asks as a proxy does: about a path, in whatever headers it adds.
    pub(crate) fn ask(&mut self, path: &str, headers: &[(&str, &str)]) -> http::Answer {
        let headers: Vec<_> = [("x-forwarded-uri", path)].iter().chain(headers).copied().collect();
        self.0.send("GET", "/v1/forward-auth", &headers, "")
    }

    /// The value of a metric, by its name and labels as they are written.
    pub(crate) fn metric(&mut self, name: &str) -> Option<f64> {
        let metrics = self.get("/metrics").body;
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map(|value| value.parse().unwrap())
    }

    /// The answer to a check, which must be one.
    pub(crate) fn check(&mut self, attributes: &[(&str, &str)], cost: Option<u64>) -> Value {
        let attributes: serde_json::Map<String, Value> =
            attributes.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let answer = self.post("/v1/check", &json!({ "attributes": attributes, "cost": cost }));
        assert_eq!(answer.status, 200, "{}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    }

    /// Whether a request passes.
    pub(crate) fn passes(&mut self, attributes: &[(&str, &str)]) -> bool {
        self.check(attributes, None)["allowed"] == true
    }

    /// What remains of a limit, looking only.
    pub(crate) fn remaining(&mut self, limit: &str, attributes: &[(&str, &str)]) -> u64 {
        let reply = self.check(attributes, Some(0));
        let limits = reply["limits"].as_array().unwrap().iter();
        limits.clone().find(|entry| entry["name"] == limit).unwrap()["remaining"].as_u64().unwrap()
    }
}

/// The JSON of an answer.
pub(crate) fn json_of(answer: &http::Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

/// That an answer refuses something, and says why.
pub(crate) fn assert_refused(answer: &http::Answer, of: impl std::fmt::Debug) {
    assert!((400..500).contains(&answer.status), "{of:?}: {answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{of:?}: {answer:?}");
    let problem = json_of(answer);
    assert_eq!(problem["status"], answer.status, "{of:?}");
    assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{of:?}: {problem}");
}

/// Waits until a condition holds, for at most 30 seconds.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    real_time::eventually(what, || is_so().then_some(()));
}

/// What a command that ends has said.
pub(crate) fn tollgate(arguments: &[&str]) -> Output {
    Command::new(TOLLGATE).args(arguments).output().unwrap()
}

/// A directory of a test's own, gone with it.
pub(crate) struct Directory(PathBuf);

static DIRECTORIES: AtomicUsize = AtomicUsize::new(0);

impl Directory {
    pub(crate) fn new() -> Self {
        let number = DIRECTORIES.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tollgate-test-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        // In one step, so that nobody reads half of it.
        let new = self.path(&format!("{name}.new"));
        fs::write(&new, text).unwrap();
        fs::rename(&new, &path).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes `cert.pem` and `key.pem` for this machine into a directory. False, and the test is skipped, without openssl.
pub(crate) fn self_signed_certificate(directory: &Directory) -> bool {
    let Some(openssl) = program("openssl") else { return false };
    let output = Command::new(openssl)
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(directory.path("."))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    true
}

/// A file of the repository.
pub(crate) fn repository(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)
}
