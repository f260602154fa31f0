use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::Duration;

use super::*;
use crate::real_time::{eventually, timed};
use crate::redis::{RedisClient, RedisServer};

const SHORT: Duration = Duration::from_millis(200);

fn server_and_proxy() -> (RedisServer, FaultProxy) {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.address());
    (server, proxy)
}

fn connect(proxy: &FaultProxy) -> RedisClient {
    RedisClient::connect(proxy.address()).unwrap()
}

/// What a new connection answers. One that is closed at once may be told so already while it is set up.
fn ping(proxy: &FaultProxy) -> std::io::Result<String> {
    let mut client = RedisClient::connect(proxy.address())?;
    client.try_command(&["PING"]).map(|pong| pong.text().to_owned())
}

/// A connection on which no answer comes.
fn assert_silent(client: &mut RedisClient, command: &[&str]) {
    client.set_timeout(SHORT).unwrap();
    let error = client.try_command(command).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
    client.set_timeout(Duration::from_secs(10)).unwrap();
}

/// A connection that was reset: it may be told when it sends, or later.
fn assert_reset(client: &mut RedisClient) {
    let error = client.try_command(&["PING"]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
}

#[test]
fn what_is_carried_arrives_as_it_was_sent() {
    let (_server, proxy) = server_and_proxy();
    let mut client = connect(&proxy);
    let value: Vec<u8> = (0..3_000_000u32).map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    assert_eq!(client.command(&[b"SET".as_slice(), b"key", &value]).text(), "OK");
    assert!(client.command(&["GET", "key"]).bytes() == value);
    drop(client);
    eventually("a connection that was closed is forgotten", || (proxy.connections() == 0).then_some(()));
}

#[test]
fn a_delay_is_latency_of_which_any_number_share() {
    let (_server, proxy) = server_and_proxy();
    let mut client = connect(&proxy);
    proxy.delay(Duration::from_millis(100));
    let (took, ()) = timed(|| {
        for number in 0..100 {
            client.send(&["ECHO", &number.to_string()]).unwrap();
        }
        for number in 0..100 {
            assert_eq!(client.receive().unwrap().integer(), number);
        }
    });
    assert!(took >= Duration::from_millis(200), "there and back: {took:?}");
    assert!(took < Duration::from_secs(10), "not one after the other: {took:?}");
}

#[test]
fn what_was_delayed_is_not_overtaken() {
    let (_server, proxy) = server_and_proxy();
    let mut client = connect(&proxy);
    assert_eq!(client.command(&["PING"]).text(), "PONG");
    proxy.delay(Duration::from_millis(300));
    client.send(&["ECHO", "1"]).unwrap();
    // Once it is on its way: until then, it might not be delayed.
    pause(Duration::from_millis(50));
    proxy.delay(Duration::ZERO);
    client.send(&["ECHO", "2"]).unwrap();
    assert_eq!([client.receive().unwrap().integer(), client.receive().unwrap().integer()], [1, 2]);
}

#[test]
fn a_cut_resets_connections_and_refuses_new_ones_until_it_is_healed() {
    let (_server, proxy) = server_and_proxy();
    let mut clients = [connect(&proxy), connect(&proxy)];
    clients.iter_mut().for_each(|client| assert_eq!(client.command(&["PING"]).text(), "PONG"));
    for _ in 0..3 {
        proxy.cut();
        assert_eq!(proxy.connections(), 0);
        clients.iter_mut().for_each(assert_reset);
        let refused = RedisClient::connect(proxy.address()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        proxy.heal();
        clients = [connect(&proxy), connect(&proxy)];
        clients.iter_mut().for_each(|client| assert_eq!(client.command(&["PING"]).text(), "PONG"));
    }
}

#[test]
fn half_open_connections_carry_nothing_and_stay() {
    let (server, proxy) = server_and_proxy();
    let mut before = connect(&proxy);
    before.command(&["SET", "n", "0"]);
    proxy.half_open();
    let mut new = connect(&proxy);
    assert_silent(&mut before, &["INCR", "n"]);
    assert_silent(&mut new, &["INCR", "n"]);
    assert_eq!(server.command(&["GET", "n"]).integer(), 0, "nothing has arrived");
    assert_eq!(proxy.connections(), 2);
    proxy.heal();
    let mut answers = [before.receive().unwrap().integer(), new.receive().unwrap().integer()];
    answers.sort_unstable();
    assert_eq!(answers, [1, 2], "what was sent is delivered late");
}

#[test]
fn a_server_does_not_hear_that_a_half_open_connection_was_closed() {
    let (server, proxy) = server_and_proxy();
    let mut client = connect(&proxy);
    client.command(&["CLIENT", "SETNAME", "seen"]);
    let is_seen = || server.command(&["CLIENT", "LIST"]).text().contains("name=seen");
    proxy.half_open();
    drop(client);
    pause(SHORT);
    assert!(is_seen());
    proxy.heal();
    eventually("the server hears of it", || (!is_seen()).then_some(()));
}

#[test]
fn a_call_whose_answer_is_dropped_was_done() {
    let (server, proxy) = server_and_proxy();
    let mut client = connect(&proxy);
    let mut idle = connect(&proxy);
    assert_eq!(client.command(&["INCR", "n"]).integer(), 1);
    assert_eq!(idle.command(&["PING"]).text(), "PONG");
    proxy.drop_answers();
    assert_silent(&mut client, &["INCR", "n"]);
    assert_silent(&mut connect(&proxy), &["INCR", "n"]);
    eventually("both have arrived", || (server.command(&["GET", "n"]).integer() == 3).then_some(()));
    proxy.heal();
    assert_reset(&mut client);
    assert_eq!(idle.command(&["INCR", "n"]).integer(), 4, "one that has lost nothing goes on");
}

#[test]
fn a_server_that_is_gone_is_gone_behind_the_proxy_too() {
    let (server, proxy) = server_and_proxy();
    let mut client = connect(&proxy);
    assert_eq!(client.command(&["PING"]).text(), "PONG");
    server.kill();
    assert!(client.try_command(&["PING"]).is_err());
    assert!(ping(&proxy).is_err());
    server.restart();
    assert_eq!(connect(&proxy).command(&["PING"]).text(), "PONG");
}

#[test]
fn connections_beyond_the_bound_are_closed() {
    let (_server, proxy) = server_and_proxy();
    let mut clients: Vec<_> = (0..MOST_CONNECTIONS).map(|_| connect(&proxy)).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.command(&["PING"]).text(), "PONG"));
    assert!(ping(&proxy).is_err());
    clients.pop();
    eventually("there is room again", || ping(&proxy).ok());
}

#[test]
fn nothing_is_left_of_a_proxy_whatever_its_fault() {
    for fault in [FaultProxy::heal, FaultProxy::cut, FaultProxy::half_open, FaultProxy::drop_answers] {
        let (_server, proxy) = server_and_proxy();
        let mut client = connect(&proxy);
        assert_eq!(client.command(&["PING"]).text(), "PONG");
        // On its way for longer than anybody would wait.
        proxy.delay(Duration::from_secs(3600));
        client.send(&["PING"]).unwrap();
        fault(&proxy);
        let (address, shared) = (proxy.address(), Arc::downgrade(&proxy.shared));
        drop(proxy);
        assert_eq!(shared.strong_count(), 0, "every thread has one");
        assert!(TcpStream::connect(address).is_err());
        assert_reset(&mut client);
    }
}
