//! Redis servers that a test starts and stops, and a proxy that can fall silent.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering::Relaxed};

use redis::{ConnectionAddr, IntoConnectionInfo as _, RedisResult, Value};
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tollgate_testkit::process::Process;

use crate::until;

/// A server on a free port of the loopback.
pub(crate) struct Redis {
    process: Option<Process>,
    pub(crate) port: u16,
    folder: PathBuf,
    args: Vec<String>,
}

impl Redis {
    pub(crate) async fn start(args: &[&str]) -> Self {
        let (port, folder) = (free_port(), folder());
        let mut server =
            Self { process: None, port, folder, args: args.iter().map(|&arg| arg.to_owned()).collect() };
        server.again().await;
        server
    }

    /// Starts it, on the same port as before.
    pub(crate) async fn again(&mut self) {
        let mut command = Command::new("redis-server");
        command.current_dir(&self.folder).args(["--logfile", "log", "--save", "", "--bind", "127.0.0.1"]);
        if !self.args.iter().any(|arg| arg == "--tls-port") {
            command.args(["--port", &self.port.to_string()]);
        }
        let own = self.args.iter().map(|arg| arg.replace("PORT", &self.port.to_string()));
        self.process = Some(Process::start(command.args(own)));
        until("the server listens", async || TcpStream::connect(("127.0.0.1", self.port)).await.is_ok())
            .await;
    }

    /// Starts a sentinel of the primary at `port`, which it calls `main`.
    pub(crate) async fn sentinel(port: u16) -> Self {
        Self::sentinel_at(port, free_port()).await
    }

    pub(crate) async fn sentinel_at(port: u16, own_port: u16) -> Self {
        let folder = folder();
        let lines = format!(
            "sentinel monitor main 127.0.0.1 {port} 1\n\
             sentinel down-after-milliseconds main 500\n\
             sentinel failover-timeout main 3000\n\
             requirepass watching\n"
        );
        std::fs::write(folder.join("sentinel.conf"), lines).expect("a file of our own");
        let mut server = Self {
            process: None,
            port: own_port,
            args: vec![folder.join("sentinel.conf").display().to_string(), "--sentinel".to_owned()],
            folder,
        };
        let mut command = Command::new("redis-server");
        command.current_dir(&server.folder).args(&server.args);
        command.args(["--port", &server.port.to_string(), "--bind", "127.0.0.1", "--logfile", "log"]);
        server.process = Some(Process::start(&mut command));
        until("the sentinel listens", async || TcpStream::connect(("127.0.0.1", server.port)).await.is_ok())
            .await;
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    pub(crate) fn signal(&self, name: &str) {
        self.process.as_ref().expect("it runs").signal(name);
    }

    /// Asks it something, apart from any link.
    pub(crate) fn try_ask(&self, words: &[&str], password: Option<&str>) -> RedisResult<Value> {
        let mut info = ConnectionAddr::Tcp("127.0.0.1".to_owned(), self.port).into_connection_info()?;
        if let Some(password) = password {
            let greeting = info.redis_settings().clone().set_password(password);
            info = info.set_redis_settings(greeting);
        }
        let mut connection = redis::Client::open(info)?.get_connection()?;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut connection)
    }

    pub(crate) fn ask(&self, words: &[&str]) -> Value {
        self.try_ask(words, None).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    pub(crate) fn ask_text(&self, words: &[&str]) -> String {
        redis::from_redis_value(self.ask(words)).expect("a text")
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A proxy before a server.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    silenced: watch::Sender<u32>,
}

impl Proxy {
    pub(crate) async fn start(to: u16) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let (silenced, listening) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut silence = listening.clone();
                silence.mark_unchanged();
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        _ = silence.changed() => std::future::pending().await, // both stay open
                    }
                });
            }
        });
        Self { port, silenced }
    }

    /// Lets nothing through any more on the connections there are. New ones work.
    pub(crate) fn silence(&self) {
        self.silenced.send_modify(|times| *times += 1);
    }
}

/// A port that is free, as is the one that a cluster's servers use beside it: ten thousand more.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = (std::process::id() % 500 * 20) as u16;
    loop {
        let port = 12_000 + (begin + NEXT.fetch_add(1, Relaxed)) % 10_000;
        if [port, port + 10_000].iter().all(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return port;
        }
    }
}

/// An empty folder.
pub(crate) fn folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("link-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("a folder of our own");
    folder
}

/// Makes an authority, and a certificate for 127.0.0.1 that it has signed: `ca.pem`, `cert.pem` and `key.pem`.
pub(crate) fn certificates() -> PathBuf {
    let folder = folder();
    std::fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1\n").expect("a file of our own");
    let run = |line: &str| {
        let output = Command::new("openssl")
            .args(line.split(' '))
            .current_dir(&folder)
            .output()
            .expect("openssl is installed");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 9 -subj /CN=ca",
    );
    run(
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.csr -subj /CN=server",
    );
    run(
        "x509 -req -in cert.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 9 -extfile names -out cert.pem",
    );
    folder
}
