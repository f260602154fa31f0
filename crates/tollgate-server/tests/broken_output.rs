//! Standard output and standard error that cannot be written to: closed pipes, full disks, closed descriptors.

use std::fs::File;
use std::io::{Read as _, pipe};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::json;
use tollgate_testkit::free_port;

use crate::service::{Client, Directory, Service, TOLLGATE, eventually, repository, timed};

const POLICY: &str = "limits: [{ name: only, key: [], token_bucket: { rate: 1/day, burst: 3 } }]";
const LOST: &str = "tollgate_log_lines_lost_total";

/// A pipe whose reader is gone.
fn closed_pipe() -> Stdio {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    writer.into()
}

/// A disk without space.
fn full_disk() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

/// A service whose address is known although it cannot print it. Stopped when dropped.
struct Silent {
    child: Child,
    address: SocketAddr,
    directory: Directory,
}

impl Silent {
    fn start(command: &mut Command, out: Stdio, errors: Stdio) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let directory = Directory::new();
        let file = directory.write("tollgate.yaml", &format!("listen: {{ http: '{address}' }}\n{POLICY}"));
        let command = command.args(["serve", "--config"]).arg(file).stdin(Stdio::null());
        let mut silent =
            Self { child: command.stdout(out).stderr(errors).spawn().unwrap(), address, directory };
        eventually("it listens", || {
            let ended = silent.child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended: {ended:?}");
            TcpStream::connect(address).is_ok()
        });
        silent
    }

    fn connect(&self) -> Client {
        Client(tollgate_testkit::Http::connect(self.address))
    }

    /// Decides, reloads, refuses a wrong policy, and ends without an error.
    fn assert_works(&mut self, loses_lines: bool) {
        let mut client = self.connect();
        let passed = (0..4).filter(|_| client.passes(&[])).count();
        assert_eq!(passed, 3);
        assert_eq!(client.post("/v1/reload", &json!({})).status, 200);
        self.directory.write("tollgate.yaml", "limitz: []");
        assert_eq!(client.post("/v1/reload", &json!({})).status, 422);
        let lost = client.metric(LOST).unwrap();
        assert_eq!(lost > 0.0, loses_lines, "{lost}");
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_service_runs_on_when_its_output_cannot_be_written() {
    for broken in [closed_pipe, full_disk] {
        Silent::start(&mut Command::new(TOLLGATE), broken(), broken()).assert_works(true);
    }
    // Without descriptors for output, the system discards what is written.
    let mut closed = Command::new("sh");
    let closed = closed.args(["-c", "exec \"$0\" \"$@\" >&- 2>&-", TOLLGATE]);
    Silent::start(closed, Stdio::null(), Stdio::null()).assert_works(false);
}

/// The pipe breaks while the service runs, as when the log collector is restarted.
#[test]
fn a_log_that_breaks_stops_no_request_and_no_reload() {
    let (mut reader, writer) = pipe().unwrap();
    let mut silent = Silent::start(&mut Command::new(TOLLGATE), Stdio::null(), writer.into());
    reader.read_exact(&mut [0; 10]).unwrap();
    assert_eq!(silent.connect().metric(LOST), Some(0.0));
    drop(reader);
    silent.assert_works(true);
}

#[test]
fn a_command_ends_quietly_when_nobody_reads_its_output() {
    let directory = Directory::new();
    let policy = directory.write("tollgate.yaml", POLICY);
    let policy = policy.to_str().unwrap();
    let envoy = repository("examples/envoy/ratelimit.yaml");
    let commands = [
        vec!["check", policy],
        vec!["explain", "--config", policy, "tenant=acme"],
        vec!["schema"],
        vec!["--help"],
        vec!["--version"],
        vec!["simulate"],
        vec!["import", "envoy", envoy.to_str().unwrap()],
    ];
    for arguments in &commands {
        let output = Command::new(TOLLGATE).args(arguments).stdout(closed_pipe()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {errors}");
        assert!(!errors.contains("panicked") && !errors.contains("Broken pipe"), "{arguments:?}: {errors}");
    }
}

#[test]
fn a_command_whose_output_does_not_fit_on_the_disk_fails() {
    let directory = Directory::new();
    let policy = directory.write("tollgate.yaml", POLICY);
    for arguments in [&["check", policy.to_str().unwrap()][..], &["schema"]] {
        let output = Command::new(TOLLGATE).args(arguments).stdout(full_disk()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{arguments:?}: {errors}");
        assert!(errors.starts_with("standard output: No space left"), "{arguments:?}: {errors}");
    }
}

#[test]
fn an_error_that_nobody_reads_keeps_its_exit_code() {
    for (arguments, code) in [(&["check", "/nowhere.yaml"][..], 1), (&["serve", "--nothing"], 2)] {
        for broken in [closed_pipe, full_disk] {
            let status = Command::new(TOLLGATE).args(arguments).stdout(broken()).stderr(broken()).status();
            assert_eq!(status.unwrap().code(), Some(code), "{arguments:?}");
        }
    }
}

#[test]
fn without_file_descriptors_one_failed_connection_per_second_is_logged() {
    let directory = Directory::new();
    // More connections are allowed than there are descriptors.
    let policy = "listen: { http: '127.0.0.1:0', max_connections: 1000, max_connections_per_address: 1000 }";
    let file = directory.write("tollgate.yaml", policy);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 40; exec \"$0\" serve --config \"$1\"", TOLLGATE]).arg(file);
    let service = Service::run(directory, &mut command);
    let mut client = service.connect();
    assert_eq!(client.get("/livez").status, 200);
    let (took, lines) = timed(|| {
        let _many: Vec<TcpStream> = (0..60).map(|_| TcpStream::connect(service.address).unwrap()).collect();
        eventually("many have failed", || {
            client.metric("tollgate_connections_failed_total").is_some_and(|failed| failed >= 150.0)
        });
        service.process.errors().matches("could not be accepted").count()
    });
    assert!(lines >= 2, "{lines} lines");
    assert!(lines as u64 <= took.as_secs() + 2, "{lines} lines in {took:?}");
    let log = service.process.errors();
    assert!(log.contains("Too many open files") && log.contains("\"not_logged\":0"), "{log}");
    let not_logged = log.lines().filter(|line| line.contains("could not be accepted")).nth(1).unwrap();
    assert!(!not_logged.contains("\"not_logged\":0,"), "{not_logged}");
    // The service accepts again once connections are closed.
    eventually("it accepts", || {
        tollgate_testkit::Http::connect(service.address).try_send("GET", "/livez", &[], b"").is_ok()
    });
}
