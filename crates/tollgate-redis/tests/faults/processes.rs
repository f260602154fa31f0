//! Processes that are killed or stopped while they hold grants. They are real ones: this program, started again to run one test.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate_policy::Source;
use tollgate_testkit::{Directory, RedisServer, is_long};

use super::mode::Mode;
use super::{Node, until, wait};

/// The policy of a process, and the file that it writes to.
const POLICY: &str = "TOLLGATE_FAULTS_POLICY";
const REPORT: &str = "TOLLGATE_FAULTS_REPORT";

/// One request in so long, in each process.
const EVERY: Duration = Duration::from_millis(2);

const LIMIT: u64 = 1_000_000;

/// No bucket, so that the key says how many units were charged.
fn policy(url: &str) -> String {
    format!(
        "store: {{ redis: {{ url: '{url}', deadline: 900ms, on_error: deny, {} }} }}\n\
         limits: [{{ name: window, key: [tenant], fixed_window: {{ limit: {LIMIT}, window: 10h, align: first }} }}]",
        Mode::LEASE.settings()
    )
}

/// What a process has written after its newest request.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    admitted: u64,
    by_grants: u64,
    held: u64,
    lapsed: u64,
    drawn: u64,
}

impl Line {
    fn write(self, file: &mut File) {
        let Self { admitted, by_grants, held, lapsed, drawn } = self;
        // One write: the process may be killed at any time.
        file.write_all(format!("{admitted} {by_grants} {held} {lapsed} {drawn}\n").as_bytes()).unwrap();
    }

    fn read(line: &str) -> Self {
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        let [admitted, by_grants, held, lapsed, drawn] = numbers[..] else { panic!("{line}") };
        Self { admitted, by_grants, held, lapsed, drawn }
    }
}

/// What such a process does until it is killed. Not a test: in a run of all tests it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process() {
    let (Ok(policy), Ok(report)) = (std::env::var(POLICY), std::env::var(REPORT)) else { return };
    let node = Node::start(&policy).await;
    let mut file = OpenOptions::new().append(true).create(true).open(report).unwrap();
    let mut line = Line::default();
    loop {
        let (is_allowed, source) = node.ask(&[("tenant", "acme")]).await;
        line.admitted += u64::from(is_allowed);
        line.by_grants += u64::from(is_allowed && source == Source::Lease);
        if let Some(stats) = node.engine.lease_stats().first() {
            (line.held, line.lapsed, line.drawn) = (stats.held, stats.lapsed, stats.drawn);
        }
        line.write(&mut file);
        sleep(EVERY).await;
    }
}

/// A process, killed when it is dropped.
struct Running {
    child: Child,
    report: PathBuf,
}

impl Running {
    fn start(policy: &str, report: PathBuf) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "faults::processes::process"]);
        command.env(POLICY, policy).env(REPORT, &report).env_remove("NEXTEST_TEST_NAME");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { child, report }
    }

    fn lines(&self) -> Vec<Line> {
        lines(&self.report)
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill(); // SIGKILL
        let _ = self.child.wait();
    }
}

fn lines(report: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(report).unwrap_or_default();
    // The newest line may not be whole yet.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(Line::read).collect()
}

/// What the store has charged.
fn charged(server: &RedisServer) -> u64 {
    let state = server.command(&["GET", "tollgate:{acme}:window:f:acme"]);
    state.text().split(' ').nth(1).expect("`end used tag`").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_are_killed_lose_what_they_held_at_most() {
    let (kills, every) = if is_long() { (50, 1000) } else { (10, 500) };
    let (server, directory) = (wait(RedisServer::start), Directory::new());
    let policy = policy(&server.url());
    let (mut admitted, mut held, mut most_held) = (0, 0, 0);
    let mut running = Vec::new();
    // In the long run there are five at any time, so that one is killed every 0.2 s.
    let begin = |index: usize| Running::start(&policy, directory.path().join(format!("{index}")));
    let at_once = if is_long() { 5 } else { 2 };
    running.extend((0..at_once).map(begin));
    for kill in 0..kills {
        sleep(Duration::from_millis(every / at_once as u64)).await;
        let oldest: Running = running.remove(0);
        until("a process has grants", || oldest.lines().last().is_some_and(|line| line.held > 0)).await;
        let report = oldest.report.clone();
        wait(|| drop(oldest));
        let lines = lines(&report);
        let last = lines.last().unwrap();
        admitted += last.admitted;
        // A grant may have been on its way, as large as the largest before. The newest request may not have been written down.
        let largest = lines.windows(2).map(|two| two[1].drawn - two[0].drawn).max().unwrap_or_default();
        held += last.held + largest + 1;
        most_held = most_held.max(last.held);
        running.push(begin(at_once + kill));
    }
    for one in running {
        let report = one.report.clone();
        wait(|| drop(one));
        let lines = lines(&report);
        let Some(last) = lines.last() else { continue };
        let largest = lines.windows(2).map(|two| two[1].drawn - two[0].drawn).max().unwrap_or_default();
        admitted += last.admitted;
        held += last.held + largest + 1;
    }
    let charged = wait(|| charged(&server));
    let lost = charged.saturating_sub(admitted);
    println!(
        "{kills} processes killed: {charged} charged, {admitted} admitted; {lost} lost of at most {held}, {most_held} held at once"
    );
    assert!(admitted <= charged, "{admitted} admitted, {charged} charged");
    assert!(lost <= held, "{lost} lost, {held} held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_stopped_spends_nothing_of_an_old_grant() {
    let (server, directory) = (wait(RedisServer::start), Directory::new());
    let process = Running::start(&policy(&server.url()), directory.path().join("report"));
    until("the process has grants", || process.lines().last().is_some_and(|line| line.held > 5)).await;
    wait(|| process.signal("STOP"));
    sleep(Duration::from_millis(50)).await; // a write may be under way
    let before = process.lines();
    let stopped = Instant::now();
    sleep(Duration::from_secs(2)).await;
    wait(|| process.signal("CONT"));
    let stopped = stopped.elapsed();
    until("the process goes on", || process.lines().len() > before.len() + 200).await;
    wait(|| process.signal("STOP"));
    let (last, now) = (*before.last().unwrap(), *process.lines().last().unwrap());
    let spent = now.by_grants - last.by_grants;
    let (drawn, lapsed) = (now.drawn - last.drawn, now.lapsed - last.lapsed);
    // One request may have been under way.
    let old = last.held.saturating_sub(lapsed);
    println!(
        "stopped for {stopped:.1?}: {} held, {lapsed} lapsed, {old} of them spent later of at most 1; then {drawn} drawn, {spent} spent",
        last.held
    );
    assert!(old <= 1, "{old} units of an old grant were spent");
    assert!(spent + now.held <= drawn + 1, "{spent} spent and {} held of {drawn}", now.held);
}
