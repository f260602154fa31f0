//! Passwords in files, which others change.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tollgate_redis::link::{Link, Password, Settings, Topology};
use tollgate_testkit::redis::SentinelSecrets;
use tollgate_testkit::{Directory, RedisServer, Sentinels};

use super::logs::lines;
use super::{PATIENCE, count, counting, settings, until};

fn in_file(path: &Path) -> Option<Password> {
    Some(Password::File(path.to_owned()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_is_read_anew_for_each_connection() {
    let lines = lines();
    let server = RedisServer::with(&["--requirepass", "first1"]);
    let folder = Directory::new();
    let file = folder.write("password", "first1\n");
    let link = Link::new(Settings { password: in_file(&file), ..settings(&server.url()) }).unwrap();
    assert!(link.ready(PATIENCE).await, "{link:?}");
    let mut client = server.client();
    let mut disconnect = async || {
        let reconnects = link.health()[0].reconnects;
        client.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        until("it is back", async || link.health()[0].reconnects > reconnects).await;
    };

    // It is gone: the last one is still good.
    std::fs::remove_file(&file).unwrap();
    disconnect().await;
    assert!(count(&link, &counting(), "a").await.is_ok());
    let shown = file.display().to_string();
    let told = lines.with(&shown);
    assert!(told.len() == 1 && told[0].contains("cannot be read, the last one is given"), "{told:?}");

    // Another is in its place.
    server.client().command(&["CONFIG", "SET", "requirepass", "second2"]);
    folder.write("password", "second2\n");
    disconnect().await;
    assert!(count(&link, &counting(), "a").await.is_ok());
    assert_eq!(lines.with("first1").len() + lines.with("second2").len(), 0);

    // At the beginning it must be there.
    std::fs::remove_file(&file).unwrap();
    let error = Link::new(Settings { password: in_file(&file), ..settings(&server.url()) }).unwrap_err();
    assert!(error.to_string().starts_with(&format!("{shown}: ")), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_never_read_does_not_keep_the_server_away() {
    let server = RedisServer::with(&["--requirepass", "first1"]);
    let folder = Directory::new();
    let file = folder.write("password", "first1\n");
    let link = Link::new(Settings { password: in_file(&file), ..settings(&server.url()) }).unwrap();
    assert!(link.ready(PATIENCE).await, "{link:?}");
    // Whoever reads a pipe waits for somebody who writes.
    std::fs::remove_file(&file).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    server.client().command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    until("it is back", async || link.health()[0].reconnects == 1 && link.ready(Duration::ZERO).await).await;
    drop(link);
    std::fs::write(&file, "").unwrap(); // lets the reader go
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sentinels_password_is_read_anew_too() {
    let servers = Sentinels::with(SentinelSecrets { servers: None, sentinels: Some("watching") });
    let folder = Directory::new();
    let file = folder.write("password", "wrong");
    let topology = Topology::Sentinel {
        master: servers.master_name().to_owned(),
        username: None,
        password: in_file(&file),
    };
    let link = Link::new(Settings { urls: servers.urls(), topology, ..settings("") }).unwrap();
    assert!(!link.ready(Duration::from_millis(500)).await);
    folder.write("password", "watching");
    assert!(link.ready(PATIENCE).await, "{link:?}");
}
