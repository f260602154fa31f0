//! One Redis server.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::shifted_clock::ShiftedClock;
use super::{RedisClient, Reply};
use crate::directory::Directory;
use crate::ports::free_port;
use crate::real_time::within;

#[cfg(test)]
mod tests;

/// How long a server has to answer for the first time.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often another port is tried, when somebody else was faster to take one.
const TRIES: usize = 10;

/// A real `redis-server` that keeps nothing on the disk, on a port and in a directory of its own.
///
/// It can be killed, started again and paused from any thread while others use it.
#[derive(Debug)]
pub struct RedisServer {
    address: SocketAddr,
    password: Option<String>,
    /// The program with its arguments.
    command: Vec<String>,
    state: Mutex<State>,
    clock: Option<ShiftedClock>,
    // Below what runs in it, so that it goes after.
    directory: Directory,
}

#[derive(Debug, Default)]
struct State {
    /// Until it is killed.
    child: Option<Child>,
    is_paused: bool,
}

/// How a server is started.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// What its command line begins with.
    pub(crate) under: Vec<String>,
    /// Where it listens.
    pub(crate) host: IpAddr,
    /// The text of its configuration file, if it has one.
    pub(crate) config: Option<String>,
    /// Further arguments.
    pub(crate) arguments: Vec<String>,
    /// What [`RedisServer::command`] authenticates with.
    pub(crate) password: Option<String>,
    /// Whether its clock can be set.
    pub(crate) has_clock: bool,
}

impl Launch {
    pub(crate) fn with(arguments: &[&str]) -> Self {
        let password = arguments.windows(2).find(|pair| pair[0] == "--requirepass").map(|pair| pair[1]);
        Self {
            under: Vec::new(),
            host: Ipv4Addr::LOCALHOST.into(),
            config: None,
            arguments: owned(arguments),
            password: password.map(str::to_owned),
            has_clock: false,
        }
    }

    pub(crate) fn under(self, prefix: &[&str]) -> Self {
        Self { under: owned(prefix), ..self }
    }

    pub(crate) fn start(&self) -> RedisServer {
        assert!(RedisServer::is_installed(), "redis-server is not installed: ./test installs it");
        let mut taken = String::new();
        for _ in 0..TRIES {
            let server = self.server_on(free_port());
            match server.run() {
                Ok(()) => return server,
                Err(log) if log.contains("ddress already in use") => taken = log,
                Err(log) => panic!("{log}"),
            }
        }
        panic!("{TRIES} ports in a row were taken: {taken}");
    }

    /// A server that does not run yet.
    fn server_on(&self, port: u16) -> RedisServer {
        let directory = Directory::new();
        let clock = self.has_clock.then(|| ShiftedClock::new(directory.path()));
        let mut command = self.under.clone();
        command.extend(clock.iter().flat_map(ShiftedClock::prefix));
        command.push("redis-server".to_owned());
        if let Some(config) = &self.config {
            command.push(directory.write("redis.conf", config).display().to_string());
        }
        let (host, port_text) = (self.host.to_string(), port.to_string());
        command.extend(owned(&["--bind", &host, "--port", &port_text]));
        command.extend(owned(&["--daemonize", "no", "--save", "", "--appendonly", "no"]));
        command.extend_from_slice(&self.arguments);
        RedisServer {
            address: (self.host, port).into(),
            password: self.password.clone(),
            command,
            state: Mutex::default(),
            clock,
            directory,
        }
    }
}

impl RedisServer {
    /// Starts one, and waits until it answers.
    ///
    /// # Panics
    ///
    /// When there is no `redis-server`, or it does not answer; then with what it has logged.
    #[must_use = "it is gone when it is dropped"]
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts one with further arguments, such as `--requirepass`. It keeps listening without TLS, too: that is how it
    /// is found to answer.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use = "it is gone when it is dropped"]
    pub fn with(arguments: &[&str]) -> Self {
        Launch::with(arguments).start()
    }

    /// Starts one under another program, such as `env NAME=value`, which must become the server (`exec`)
    /// rather than wait for it: signals are sent to the process that was started.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use = "it is gone when it is dropped"]
    pub fn under(prefix: &[&str], arguments: &[&str]) -> Self {
        Launch::with(arguments).under(prefix).start()
    }

    /// Starts one with a time of day of its own, which is right until [`shift_clock`](Self::shift_clock).
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[must_use = "it is gone when it is dropped"]
    pub fn with_clock(arguments: &[&str]) -> Self {
        Launch { has_clock: true, ..Launch::with(arguments) }.start()
    }

    /// Starts one in a network namespace, where it listens on `host`.
    pub(crate) fn inside(namespace: &str, host: Ipv4Addr, arguments: &[&str]) -> Self {
        let arguments = [&["--protected-mode", "no"], arguments].concat();
        let mut launch = Launch::with(&arguments).under(&["ip", "netns", "exec", namespace]);
        launch.host = host.into();
        launch.start()
    }

    /// Whether there is a `redis-server` on this machine.
    pub fn is_installed() -> bool {
        let version = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    }

    /// Where it listens, such as `redis://127.0.0.1:11234`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The directory it runs in.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Whether it was neither killed nor paused.
    pub fn is_up(&self) -> bool {
        let state = self.state();
        state.child.is_some() && !state.is_paused
    }

    /// Its process, unless it was killed.
    pub fn id(&self) -> Option<u32> {
        self.state().child.as_ref().map(Child::id)
    }

    /// Ends it as a crash does (`SIGKILL`), and waits until it is gone.
    pub fn kill(&self) {
        let state = std::mem::take(&mut *self.state());
        if let Some(mut child) = state.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Kills it if it still runs, and starts it again on the same port with the same arguments: without its data and
    /// scripts, but as a node of the cluster that it was in. Waits until it answers.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn restart(&self) {
        self.kill();
        // What a replica got from its primary is kept in this file, if it was killed meanwhile.
        let _ = fs::remove_file(self.directory().join("dump.rdb"));
        self.run().unwrap_or_else(|log| panic!("{log}"));
    }

    /// Stops its process (`SIGSTOP`): connections stay and are accepted, but nothing is answered.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn pause(&self) {
        let mut state = self.state();
        let id = state.child.as_ref().expect("only a server that runs can be paused").id();
        signal(id, "STOP");
        state.is_paused = true;
        // The signal is delivered a little later than it is sent.
        within(PATIENCE, || is_stopped(id).then_some(()));
    }

    /// Lets it go on after a [`pause`](Self::pause) (`SIGCONT`).
    ///
    /// # Panics
    ///
    /// When it was killed.
    pub fn resume(&self) {
        let mut state = self.state();
        let id = state.child.as_ref().expect("a server that was killed cannot go on").id();
        signal(id, "CONT");
        state.is_paused = false;
    }

    /// Sets how many microseconds its time of day is ahead, or behind, of that of the machine: for `TIME`, in scripts
    /// too, and for when keys expire. It stays so when it is restarted.
    ///
    /// # Panics
    ///
    /// When it was not started by [`with_clock`](Self::with_clock).
    pub fn shift_clock(&self, micros: i64) {
        self.clock.as_ref().expect("only a server started by `with_clock` has one").set(micros);
    }

    /// Sends a command over a connection of its own, authenticated by `--requirepass` where that was given.
    ///
    /// # Panics
    ///
    /// When there is no answer.
    pub fn command<A: AsRef<[u8]>>(&self, arguments: &[A]) -> Reply {
        self.client().command(arguments)
    }

    /// A new connection, authenticated by `--requirepass` where that was given.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn client(&self) -> RedisClient {
        self.try_client().unwrap_or_else(|error| panic!("{}: {error}", self.address))
    }

    /// As [`client`](Self::client).
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub fn try_client(&self) -> std::io::Result<RedisClient> {
        let mut client = RedisClient::connect(self.address)?;
        if let Some(password) = &self.password {
            client.try_command(&["AUTH", password])?;
        }
        Ok(client)
    }

    /// What it was started with as `--requirepass`.
    pub(super) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// What a section of `INFO` says of a field.
    pub(super) fn info(&self, section: &str, field: &str) -> Option<String> {
        let told = self.try_client().ok()?.try_command(&["INFO", section]).ok()?;
        field_of(told.error().is_none().then(|| told.text())?, field)
    }

    /// What it has logged since it was started.
    pub fn log(&self) -> String {
        let log = fs::read(self.log_file()).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Starts the process and waits until it answers.
    fn run(&self) -> Result<(), String> {
        let log = File::create(self.log_file()).map_err(|error| error.to_string())?;
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).current_dir(self.directory());
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        *self.state() = State { child: Some(child), is_paused: false };
        let ended = within(PATIENCE, || {
            // Killed by another thread: that is no fault of this start.
            let ended = self.state().child.as_mut().map(Child::try_wait);
            match ended {
                None => Some(None),
                Some(Ok(Some(status))) => Some(Some(status)),
                Some(_) => self.answers().then_some(None),
            }
        });
        let why = match ended {
            Some(None) => return Ok(()),
            Some(Some(status)) => format!("it ended ({status})"),
            None => format!("it does not answer within {PATIENCE:?}"),
        };
        self.kill();
        Err(format!("{:?}: {why}; its log:\n{}", self.command, self.log()))
    }

    /// Whether it is ready for commands, though it may refuse them for want of a password.
    fn answers(&self) -> bool {
        let Ok(mut client) = RedisClient::connect(self.address) else { return false };
        let answer = client.set_timeout(Duration::from_secs(1)).and_then(|()| client.try_command(&["PING"]));
        let is_ready =
            answer.is_ok_and(|answer| !answer.error().is_some_and(|error| error.starts_with("LOADING")));
        // Unless somebody else's server has the port: then this one is about to end.
        let process = self.info("server", "process_id");
        is_ready && process.is_none_or(|process| Some(process) == self.id().map(|id| id.to_string()))
    }

    fn log_file(&self) -> std::path::PathBuf {
        self.directory().join("log")
    }

    /// Nothing is left half done in it by a panic.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The value in a line `field:value`.
pub(super) fn field_of(text: &str, field: &str) -> Option<String> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.into_iter().find(|(name, _)| *name == field).map(|(_, value)| value.trim().to_owned())
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn signal(process: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status();
    assert!(status.expect("every system has kill").success());
}

/// Whether a process is stopped. Where there is no `/proc`, it is taken for it.
fn is_stopped(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"));
    // The state follows the name in parentheses.
    stat.map_or(true, |stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')))
}
