use std::net::UdpSocket;
use std::time::Duration;

use super::*;
use crate::real_time::{eventually, timed};

/// One, unless this machine does not allow it.
fn lossy() -> Option<Lossy> {
    let reason = match Lossy::new() {
        Ok(lossy) => return Some(lossy),
        Err(reason) => reason,
    };
    let about_the_machine =
        ["not permitted", "ermission denied", "No such file", "nknown device", "not supported"];
    assert!(about_the_machine.iter().any(|words| reason.contains(words)), "{reason}");
    crate::skip(reason);
    None
}

/// How many of that many datagrams come through the router towards this machine.
fn arrived(lossy: &Lossy, sent: u32) -> usize {
    let here = lossy.outside();
    let socket = UdpSocket::bind((here, 0)).unwrap();
    let port = socket.local_addr().unwrap().port();
    let script = format!("for i in $(seq {sent}); do echo $i >/dev/udp/{here}/{port}; done");
    assert!(lossy.command("bash").args(["-c", &script]).status().unwrap().success());
    // They wait in the socket's buffer. A little longer for the last, should the machine be busy.
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    std::iter::from_fn(|| socket.recv(&mut [0; 64]).ok()).count()
}

#[test]
fn some_of_many_datagrams_are_lost() {
    let Some(lossy) = lossy() else { return };
    assert_eq!(arrived(&lossy, 100), 100);
    lossy.lose(30);
    let count = arrived(&lossy, 200);
    // 140 are to be expected, give or take 6.
    assert!((80..200).contains(&count), "{count}");
    lossy.lose(0);
    assert_eq!(arrived(&lossy, 100), 100);
}

#[test]
fn a_server_behind_it_answers_late_and_not_at_all_when_all_is_lost() {
    let Some(lossy) = lossy() else { return };
    let server = lossy.redis(&[]);
    let mut client = server.client();
    let mut ping_often = || (0..60).for_each(|_| assert_eq!(client.command(&["PING"]).text(), "PONG"));
    let (well, ()) = timed(&mut ping_often);
    lossy.lose(12);
    // Of 120 packets some are lost, and each is missed for a fifth of a second.
    let (badly, ()) = timed(&mut ping_often);
    assert!(badly > well && badly > Duration::from_millis(150), "{well:?}, {badly:?}");

    lossy.lose(100);
    client.set_timeout(Duration::from_millis(300)).unwrap();
    assert!(client.try_command(&["PING"]).is_err());
    lossy.lose(0);
    assert_eq!(server.command(&["PING"]).text(), "PONG");
}

#[test]
fn nothing_is_left_of_it() {
    let Some(lossy) = lossy() else { return };
    let name = lossy.name.clone();
    let listed = |what: &[&str]| {
        let output = Command::new("ip").args(what).output().unwrap();
        String::from_utf8(output.stdout).unwrap().contains(&name)
    };
    assert!(listed(&["netns", "list"]) && listed(&["link", "show"]));
    drop(lossy);
    assert!(!listed(&["netns", "list"]));
    eventually("the interface is gone", || (!listed(&["link", "show"])).then_some(()));
}
