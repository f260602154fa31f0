//! The RESP listener of the real binary, and a plain connection to it.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use tollgate_testkit::address_in;

use super::{Directory, Service, TOLLGATE};

/// A service that speaks RESP, and HTTP to be looked at.
pub(crate) struct RespService {
    pub(crate) service: Service,
    pub(crate) address: SocketAddr,
}

impl RespService {
    pub(crate) fn start(policy: &str) -> Self {
        Self::start_in(Directory::new(), policy)
    }

    /// With files that are there already.
    pub(crate) fn start_in(directory: Directory, policy: &str) -> Self {
        Self::run(directory, policy, &mut Command::new(TOLLGATE))
    }

    /// By any command that ends in one that starts `tollgate`.
    pub(crate) fn run(directory: Directory, policy: &str, command: &mut Command) -> Self {
        // Many connections come from one address here.
        let listen = "listen: { http: '127.0.0.1:0', resp: '127.0.0.1:0', max_connections: 11000, \
                      max_connections_per_address: 11000 }";
        let file = directory.write("tollgate.yaml", &format!("{listen}\n{policy}"));
        let mut service = Service::run(directory, command.args(["serve", "--config"]).arg(file));
        let address = address_in(&service.process.line_with("listens on redis"));
        Self { service, address }
    }

    pub(crate) fn connect(&self) -> Resp {
        Resp::connect(self.address)
    }

    /// The bytes that the process has in memory.
    pub(crate) fn memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.service.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
    }
}

/// One connection.
pub(crate) struct Resp(pub(crate) TcpStream);

impl Resp {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
        Self(stream)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// What comes back must begin with this.
    #[track_caller]
    pub(crate) fn expect(&mut self, expected: &str) {
        let mut answer = vec![0; expected.len()];
        if let Err(error) = self.0.read_exact(&mut answer) {
            panic!("{error} instead of {expected:?}");
        }
        assert_eq!(String::from_utf8_lossy(&answer), expected);
    }

    /// The answer to an inline command must begin with this.
    #[track_caller]
    pub(crate) fn ask(&mut self, line: &str, expected: &str) {
        self.send(format!("{line}\r\n").as_bytes());
        self.expect(expected);
    }

    /// Reads until this has come.
    #[track_caller]
    pub(crate) fn skip_to(&mut self, end: &str) {
        let mut read = Vec::new();
        while !read.ends_with(end.as_bytes()) {
            let mut byte = [0];
            if let Err(error) = self.0.read_exact(&mut byte) {
                panic!("{error} before {end:?}: {:?}", String::from_utf8_lossy(&read));
            }
            read.push(byte[0]);
        }
    }

    /// The integer that answers an inline command.
    #[track_caller]
    pub(crate) fn integer(&mut self, line: &str) -> i64 {
        self.ask(line, ":");
        let mut digits = String::new();
        while !digits.ends_with("\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            digits.push(char::from(byte[0]));
        }
        digits.trim_end().parse().unwrap()
    }

    /// Everything that comes until the other side closes.
    pub(crate) fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("it stays open: {error}"),
            _ => String::from_utf8_lossy(&rest).into_owned(),
        }
    }
}
