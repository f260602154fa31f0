//! `tollgate top`, in the terminal of a tmux server of the test's own.

use std::path::PathBuf;
use std::process::{Command, Output};

use tollgate_testkit::{program, real_time};

use crate::service::{Client, Directory, Service, TOLLGATE, eventually};

const POLICY: &str = "
limits:
  - { name: per-user, key: [user], token_bucket: { rate: 1/h, burst: 3 } }
  - { name: per-tenant, key: [tenant], fixed_window: { limit: 2000, window: 1h } }
  - { name: candidate, shadow: true, key: [user], token_bucket: { rate: 1/h, burst: 2 } }
  - { name: unused, key: [user], match: { path: /never }, token_bucket: { rate: 5/s } }
";

/// A terminal in which a command runs.
struct Terminal {
    tmux: PathBuf,
    directory: Directory,
}

impl Terminal {
    /// Runs a command, between a line before it and a line with its exit code. None without tmux.
    fn run(command: &str) -> Option<Self> {
        let terminal = Self { tmux: program("tmux")?, directory: Directory::new() };
        let script = format!("echo before; {command}; echo exit code $?; cat");
        let output = terminal.tmux(&["new-session", "-d", "-x", "120", "-y", "40", &script]);
        assert!(output.status.success(), "{output:?}");
        Some(terminal)
    }

    /// Runs `tollgate top` on a service.
    fn top(service: &Service, options: &str) -> Option<Self> {
        Self::run(&format!("{TOLLGATE} top --url http://{} {options}", service.address))
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.tmux);
        command
            .arg("-u")
            .arg("-S")
            .arg(self.directory.path("tmux"))
            .args(["-f", "/dev/null"])
            .args(arguments);
        command.env("LC_ALL", "C.UTF-8").env_remove("TMUX").env_remove("NO_COLOR");
        command.output().unwrap()
    }

    /// Presses keys, by the names that tmux has for them.
    fn press(&self, keys: &[&str]) {
        for key in keys {
            assert!(self.tmux(&["send-keys", key]).status.success(), "{key}");
        }
    }

    fn lines(&self) -> Vec<String> {
        let screen = self.tmux(&["capture-pane", "-p"]).stdout;
        String::from_utf8_lossy(&screen).lines().map(str::to_owned).collect()
    }

    /// Waits until a text is on the screen.
    fn shows(&self, text: &str) {
        self.shows_when(text, |lines| lines.iter().any(|line| line.contains(text)));
    }

    /// Waits until the screen is as it should be.
    fn shows_when(&self, what: &str, mut is_so: impl FnMut(&[String]) -> bool) {
        let mut last = Vec::new();
        let shown = real_time::within(std::time::Duration::from_secs(30), || {
            last = self.lines();
            is_so(&last).then_some(())
        });
        assert!(shown.is_some(), "the screen does not show: {what}\n{}", last.join("\n"));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// The cells of a line. Two spaces or more are between them.
fn cells(line: &str) -> Vec<&str> {
    let cells = line.trim_start_matches('›').split("  ");
    cells.map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// The rows of the table, under their head.
fn rows(lines: &[String]) -> (Vec<&str>, Vec<Vec<&str>>) {
    let Some(head) = lines.iter().position(|line| line.trim_start().starts_with("LIMIT")) else {
        return Default::default();
    };
    let rows = lines[head + 1..].iter().map(|line| cells(line)).take_while(|row| !row.is_empty());
    (cells(&lines[head]), rows.collect())
}

/// The names of the limits, in the order in which they are shown.
fn names(lines: &[String]) -> Vec<&str> {
    rows(lines).1.iter().map(|row| row[0]).collect()
}

/// A number of the table.
fn number(lines: &[String], limit: &str, column: &str) -> Option<f64> {
    let (head, rows) = rows(lines);
    let column = head.iter().position(|title| title.trim_end_matches(['▼', '▲']) == column)?;
    let row = rows.into_iter().find(|row| row[0] == limit)?;
    row.get(column)?.replace(' ', "").parse().ok()
}

fn decisions(client: &mut Client, limit: &str, outcome: &str) -> f64 {
    let labels = format!(r#"limit="{limit}",outcome="{outcome}",protocol="http""#);
    client.metric(&format!("tollgate_decisions_total{{{labels}}}")).unwrap_or(0.0)
}

/// Sends requests of one user.
fn send(client: &mut Client, user: &str, requests: usize) {
    for _ in 0..requests {
        client.passes(&[("user", user), ("tenant", "acme")]);
    }
}

/// Waits until the totals on the screen are those of `/metrics`.
fn equals_metrics(terminal: &Terminal, client: &mut Client) {
    for (limit, shown, denied) in [
        ("per-user", "per-user", "deny"),
        ("per-tenant", "per-tenant", "deny"),
        ("candidate", "candidate (shadow)", "shadow_deny"),
    ] {
        let expected = [decisions(client, limit, "allow"), decisions(client, limit, denied)].map(Some);
        terminal.shows_when(&format!("{limit}: {expected:?}"), |lines| {
            [number(lines, shown, "ALLOWED"), number(lines, shown, "DENIED")] == expected
        });
    }
}

#[test]
fn totals_equal_metrics() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    send(&mut client, "ann", 7);
    let Some(terminal) = Terminal::top(&service, "") else { return };
    equals_metrics(&terminal, &mut client);
    send(&mut client, "bob", 1300);
    equals_metrics(&terminal, &mut client);
    let unused = |lines: &[String]| ["ALLOWED", "DENIED"].map(|column| number(lines, "unused", column));
    assert_eq!(unused(&terminal.lines()), [Some(0.0), Some(0.0)]);
    terminal.shows("requests per second denied, all by `per-user`.");
    // Neither more nor less than the requests that were sent.
    let lines = terminal.lines();
    let total = |column| number(&lines, "per-user", column).unwrap();
    assert_eq!((total("ALLOWED"), total("DENIED")), (6.0, 1301.0), "{}", lines.join("\n"));
}

#[test]
fn the_table_is_sorted_and_filtered_and_a_limit_opens() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    send(&mut client, "ann", 9);
    send(&mut client, "bob", 2);
    let Some(terminal) = Terminal::top(&service, "") else { return };
    terminal.shows("× /s▼");

    // By name, then by the total of allowed requests, which rates do not change.
    terminal.press(&["<", "<", "<"]);
    let by_name = ["candidate (shadow)", "per-tenant", "per-user", "unused"];
    terminal.shows_when("sorted by name", |lines| names(lines) == by_name);
    terminal.press(&["r"]);
    terminal.shows_when("reversed", |lines| names(lines).iter().rev().eq(&by_name));
    terminal.press(&["r", "s", "s", "s", "s", "s"]);
    terminal.shows("ALLOWED▼");
    terminal.shows_when("sorted by allowed requests", |lines| {
        names(lines) == ["per-tenant", "per-user", "candidate (shadow)", "unused"]
    });

    terminal.press(&["/", "U", "S", "E", "R"]);
    terminal.shows("Filter by name: USER");
    terminal.press(&["Enter"]);
    terminal.shows_when("filtered", |lines| names(lines) == ["per-user"]);
    terminal.shows("1 of 4 limits: `USER`");

    terminal.press(&["Enter"]);
    terminal.shows("per-user  token_bucket rate 1/h, burst 3");
    terminal.shows("allowed, 5 in all");
    terminal.shows("denied, 6 in all");
    terminal.shows("BY DENIALS");
    // All denials are of one key, and most requests.
    terminal.shows_when("the hot key", |lines| {
        lines.iter().any(|line| line.split_whitespace().eq("ann 9 82% ann 6 100% ann 3 60%".split(' ')))
    });
    terminal.shows("max "); // of its history
    terminal.press(&["Escape"]);
    terminal.shows_when("the table again", |lines| names(lines) == ["per-user"]);
    terminal.press(&["Escape"]);
    terminal.shows_when("all limits", |lines| names(lines).len() == 4);

    terminal.press(&["q"]);
    terminal.shows("exit code 0");
    let lines = terminal.lines();
    assert_eq!(lines[..2], ["before", "exit code 0"], "the screen is as it was: {lines:?}");
    let modes = terminal.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
    assert_eq!(String::from_utf8_lossy(&modes.stdout).trim(), "0 1", "the cursor is back");
}

#[test]
fn every_size_has_the_table_and_the_keys() {
    let service = Service::start(POLICY);
    send(&mut service.connect(), "ann", 5);
    let Some(terminal) = Terminal::top(&service, "") else { return };
    for (width, height) in [(40, 10), (80, 24), (200, 50), (120, 40)] {
        terminal.tmux(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]);
        terminal.shows_when(&format!("{width} x {height}"), |lines| {
            let last = lines
                .get(height - 1)
                .is_some_and(|line| line.ends_with("4 limits") && line.chars().count() == width);
            last && names(lines).len() >= 4
        });
    }
    terminal.press(&["q"]);
    terminal.shows("exit code 0");
}

#[test]
fn names_of_keys_are_hashed_without_a_token_and_never_control_the_terminal() {
    let directory = Directory::new();
    let token = directory.write("token", "sesame");
    let service = Service::start_in(directory, &format!("admin: {{ token_file: ./token }}\n{POLICY}"));
    send(&mut service.connect(), "\u{1b}[31mred\u{7}\u{202e}", 3);
    let Some(terminal) = Terminal::top(&service, "") else { return };
    terminal.shows("HOTTEST (HASH)");
    assert!(!terminal.lines().join("\n").contains("red"));
    drop(terminal);
    let Some(terminal) = Terminal::top(&service, &format!("--token-file {}", token.display())) else {
        return;
    };
    terminal.shows("\\x1b[31mred\\x07\\u{202e} 100%");
    let screen = terminal.tmux(&["capture-pane", "-p", "-e"]).stdout;
    let screen = String::from_utf8_lossy(&screen).into_owned();
    assert!(!screen.contains("\u{1b}[31mred"), "{screen:?}");
    drop(terminal);
    service.directory.write("wrong", "simsim");
    let wrong = service.directory.path("wrong");
    let Some(terminal) = Terminal::top(&service, &format!("--token-file {}", wrong.display())) else {
        return;
    };
    terminal.shows("answers 401");
    terminal.shows("help: --token-file must have the token");
    terminal.shows("exit code 1");
}

#[test]
fn a_service_that_comes_back_is_followed_again() {
    let service = Service::start(POLICY);
    let address = service.address;
    send(&mut service.connect(), "ann", 5);
    let Some(terminal) = Terminal::top(&service, "") else { return };
    terminal.shows_when("the requests", |lines| number(lines, "per-user", "DENIED") == Some(2.0));
    drop(service);
    terminal.shows("Connection lost");
    terminal.shows(&format!("nothing listens on {address}"));

    let directory = Directory::new();
    let policy = directory.write("tollgate.yaml", POLICY);
    let mut command = Command::new(TOLLGATE);
    command.args(["serve", "--listen", &address.to_string(), "--config"]).arg(policy);
    let service = Service::run(directory, &mut command);
    terminal.shows_when("a service without requests", |lines| {
        lines[0].contains("connected") && number(lines, "per-user", "DENIED") == Some(0.0)
    });
    let mut client = service.connect();
    send(&mut client, "ann", 4);
    equals_metrics(&terminal, &mut client);
    terminal.press(&["C-c"]);
    terminal.shows("exit code 0");
}

#[test]
fn what_cannot_be_shown_is_refused_before_the_screen_is_taken_over() {
    let output = Command::new(TOLLGATE).arg("top").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("needs a terminal") && errors.contains("http://127.0.0.1:8080/metrics"),
        "{errors}"
    );
    assert!(output.stdout.is_empty());

    let service = Service::start(POLICY);
    let closed = format!("http://127.0.0.1:{}", tollgate_testkit::free_port());
    let cases = [
        (closed, "nothing listens on"),
        (format!("http://{}/metrics", service.address), "answers 404"),
        ("127.0.0.1:8080".to_owned(), "Write a URL such as http://127.0.0.1:8080"),
    ];
    for (url, error) in cases {
        let Some(terminal) = Terminal::run(&format!("{TOLLGATE} top --url {url}")) else { return };
        terminal.shows("exit code 1");
        let lines = terminal.lines();
        assert!(lines[0] == "before" && lines[1].contains(error), "{url}: {lines:?}");
    }
}

#[test]
fn the_screen_comes_back_after_it_was_suspended() {
    let service = Service::start(POLICY);
    let top = format!("{TOLLGATE} top --url http://{}", service.address);
    // With job control, the shell goes on when a command is suspended.
    let Some(terminal) = Terminal::run(&format!("set -m; {top}; echo suspended; read line; fg")) else {
        return;
    };
    terminal.shows("4 limits");
    terminal.press(&["C-z"]);
    terminal.shows("suspended");
    assert!(!terminal.lines().join("\n").contains("4 limits"));
    terminal.press(&["Enter"]);
    terminal.shows("4 limits");
    terminal.press(&["C-l"]);
    terminal.shows("4 limits");
    terminal.press(&["?"]);
    terminal.shows("reverse the order");
    terminal.press(&["q"]);
    terminal.shows("exit code 0");
}

#[test]
fn the_terminal_is_given_back_when_the_process_is_to_end() {
    let service = Service::start(POLICY);
    for signal in ["TERM", "INT", "HUP"] {
        let Some(terminal) = Terminal::top(&service, "") else { return };
        terminal.shows("LIMIT");
        let shell = terminal.tmux(&["display-message", "-p", "#{pane_pid}"]).stdout;
        let shell = String::from_utf8(shell).unwrap().trim().to_owned();
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
        let status = Command::new("kill").args([&format!("-{signal}"), children.trim()]).status().unwrap();
        assert!(status.success());
        terminal.shows("exit code 0");
        eventually("the first screen is back", || {
            terminal.lines().first().is_some_and(|line| line == "before")
        });
    }
}
