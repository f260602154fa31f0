//! What is told in the log: each change of a shard's state and of the reason, once.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use tollgate_redis::link::{Link, Settings};
use tollgate_testkit::RedisServer;

use super::{PATIENCE, count, counting, settings, until};

/// What all tests have logged so far.
///
/// For all of the process: whether a line is wanted at all is decided once, by whoever comes there first.
pub(crate) fn lines() -> &'static Lines {
    static LINES: LazyLock<Lines> = LazyLock::new(|| {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        tracing::subscriber::set_global_default(subscriber).expect("nobody else reads logs");
        lines
    });
    &LINES
}

#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panics with it").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    pub(crate) fn with(&self, words: &str) -> Vec<String> {
        let bytes = self.0.lock().expect("nobody panics with it").clone();
        let text = String::from_utf8(bytes).expect("logs are text");
        text.lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_change_is_told_once_and_no_call_is() {
    let lines = lines();
    let server = RedisServer::with(&["--requirepass", "hidden"]);
    server.kill();
    let link = Link::new(Settings { password: Some("hidden".into()), ..settings(&server.url()) }).unwrap();
    // Three attempts or more.
    assert!(!link.ready(Duration::from_millis(1200)).await);
    server.restart();
    assert!(link.ready(PATIENCE).await);
    let script = counting();
    for _ in 0..100 {
        count(&link, &script, "a").await.unwrap();
    }
    server.kill();
    until("the end is noticed", async || !link.ready(Duration::ZERO).await).await;
    for _ in 0..100 {
        count(&link, &script, "a").await.unwrap_err();
    }
    server.restart();
    assert!(link.ready(PATIENCE).await);

    let told = lines.with(&format!("shard=127.0.0.1:{}", server.port()));
    // That the server is gone may be told after its connection broke, if it took long to start again.
    let is_another = |line: &String| line.contains("cannot be reached") && line.contains("refused");
    let told: Vec<_> = told
        .iter()
        .enumerate()
        .filter(|(at, line)| *at == 0 || !is_another(line))
        .map(|told| told.1)
        .collect();
    let words = [
        ("WARN", "cannot be reached"),
        ("INFO", "can be used"),
        ("WARN", "cannot be used"),
        ("INFO", "can be used"),
    ];
    assert_eq!(told.len(), words.len(), "{told:#?}");
    for (line, (level, words)) in told.iter().zip(words) {
        assert!(line.contains(level) && line.contains(words) && !line.contains("hidden"), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_reason_for_an_outage_is_told_once() {
    let lines = lines();
    let server = RedisServer::with(&["--requirepass", "hidden"]);
    let password = Some("hidden".into());
    let link = Link::new(Settings { password, ..settings(&server.url()) }).unwrap();
    assert!(link.ready(PATIENCE).await);
    let mut client = server.client();
    client.command(&["CONFIG", "SET", "requirepass", "changed"]);
    client.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    let told = || lines.with(&format!("shard=127.0.0.1:{}", server.port()));
    until("the reason is told", async || told().len() == 3).await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let told = told();
    let [_, closed, refused] = &told[..] else { panic!("{told:#?}") };
    assert!(closed.contains("WARN") && closed.contains("the connection was closed"), "{closed}");
    assert!(refused.contains("WARN") && refused.contains("refuses the password"), "{refused}");
}
