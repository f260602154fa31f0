use std::time::Duration;

use super::*;
use crate::real_time::eventually;

#[test]
fn a_server_keeps_bytes_as_they_are() {
    let server = RedisServer::start();
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
    assert_eq!(server.command(&["SET", "key", "value"]), Reply::Simple("OK".to_owned()));

    let dump = server.command(&["DUMP", "key"]);
    let restored = server.command(&[b"RESTORE".as_slice(), b"copy", b"0", dump.bytes()]);
    assert_eq!(restored.text(), "OK");
    assert_eq!(server.command(&["GET", "copy"]).text(), "value");
}

#[test]
fn a_killed_server_is_gone_and_a_restarted_one_is_empty() {
    let server = RedisServer::start();
    server.command(&["SET", "key", "value"]);
    server.kill();
    assert!(server.try_client().is_err());
    assert!(!server.is_up());
    let port = server.port();
    server.restart();
    assert_eq!(server.port(), port);
    assert!(server.command(&["GET", "key"]).is_null());
}

#[test]
fn a_paused_server_answers_once_it_goes_on() {
    let server = RedisServer::start();
    let mut client = server.client();
    client.set_timeout(Duration::from_millis(200)).unwrap();
    server.pause();
    assert!(!server.is_up());
    let error = client.try_command(&["INCR", "key"]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    server.resume();
    eventually("the command that timed out was done", || {
        (server.command(&["GET", "key"]) == Reply::Bulk(Some(b"1".to_vec()))).then_some(())
    });
}

#[test]
fn a_server_takes_further_arguments_and_authenticates_itself() {
    let server = RedisServer::with(&["--requirepass", "secret"]);
    let mut stranger = RedisClient::connect(server.address()).unwrap();
    assert!(stranger.command(&["PING"]).error().unwrap().starts_with("NOAUTH"));
    assert_eq!(server.command(&["PING"]).text(), "PONG");
    server.restart();
    assert_eq!(server.command(&["PING"]).text(), "PONG");
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let caught = std::panic::catch_unwind(|| RedisServer::with(&["--no-such-option", "yes"]));
    let message = *caught.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("no-such-option"), "{message}");
}

#[test]
fn nothing_is_left_of_a_server_whose_test_panicked() {
    let seen = Mutex::default();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let server = RedisServer::start();
        *seen.lock().unwrap() = Some((server.id().unwrap(), server.directory().to_owned()));
        server.pause();
        panic!("as a failing test does");
    }));
    assert!(caught.is_err());
    let (process, directory) = seen.into_inner().unwrap().unwrap();
    assert!(!Path::new(&format!("/proc/{process}")).exists());
    assert!(!directory.exists());
}

#[test]
fn a_server_under_another_program_is_killed_with_it() {
    let server = RedisServer::under(&["nice", "-n", "19"], &[]);
    let stat = fs::read_to_string(format!("/proc/{}/stat", server.id().unwrap())).unwrap();
    let (_, after_name) = stat.rsplit_once(") ").unwrap();
    assert_eq!(after_name.split(' ').nth(16), Some("19"), "how nice it is: {stat}");
    server.kill();
    assert!(server.try_client().is_err());
}

#[test]
fn a_clock_that_was_shifted_moves_scripts_and_expiry() {
    let machine = RedisServer::start();
    let server = RedisServer::with_clock(&[]);
    let hour = 3_600_000_000;
    let script = ["EVAL", "return redis.call('TIME')[1]", "0"];
    let ahead = || server.command(&script).integer() - machine.command(&script).integer();
    assert!((-60..=60).contains(&ahead()), "{}", ahead());
    assert_eq!(server.command(&["SET", "key", "value", "EX", "600"]).text(), "OK");

    server.shift_clock(-hour);
    assert!((-3660..=-3540).contains(&ahead()), "{}", ahead());
    let left = server.command(&["TTL", "key"]).integer();
    assert!((4100..=4200).contains(&left), "it lives by the same clock: {left}");

    server.restart();
    assert!((-3660..=-3540).contains(&ahead()), "{}", ahead());
    server.command(&["SET", "key", "value", "EX", "600"]);
    server.shift_clock(hour);
    assert!((3540..=3660).contains(&ahead()), "{}", ahead());
    assert!(server.command(&["GET", "key"]).is_null(), "it has expired");
}
