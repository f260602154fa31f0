//! RESP on a real port: what sockets, clocks and signals add to what the unit tests of `src/resp` hold.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::service::resp::{Resp, RespService};
use crate::service::{Directory, Service, TOLLGATE, eventually, pause, timed};

const POLICY: &str = "limits: [{ name: per-user, key: [user], token_bucket: { rate: 1/min, burst: 2 } }]";

/// Five integers, as `CL.THROTTLE` answers them.
fn five(values: [i64; 5]) -> String {
    format!("*5\r\n{}", values.map(|value| format!(":{value}\r\n")).concat())
}

#[test]
fn throttle_answers_by_the_real_clock() {
    let service = RespService::start(POLICY);
    let mut client = service.connect();
    client.ask("CL.THROTTLE u 15 30 60", &five([0, 16, 15, -1, 2]));
    for remaining in (0..5).rev() {
        client.ask("CL.THROTTLE k 4 1 3600", &five([0, 5, remaining, -1, 3600 * (5 - remaining)]));
    }
    client.ask("CL.THROTTLE k 4 1 3600", &five([1, 5, 0, 3600, 18_000]));
    client.ask("CL.THROTTLE k 4 1 3600 6", &five([1, 5, 0, -1, 18_000]));
    // Denied, and allowed once what it was told has passed.
    client.ask("CL.THROTTLE soon 0 1 1", &five([0, 1, 0, -1, 1]));
    client.ask("CL.THROTTLE soon 0 1 1", &five([1, 1, 0, 1, 1]));
    pause(Duration::from_secs(1));
    client.ask("CL.THROTTLE soon 0 1 1", &five([0, 1, 0, -1, 1]));
}

#[test]
fn decisions_are_counted_and_share_the_policy_with_http() {
    let service = RespService::start(POLICY);
    let (mut resp, mut http) = (service.connect(), service.service.connect());
    resp.ask("TOLLGATE.CHECK user bob", "*16\r\n$7\r\nallowed\r\n:1\r\n");
    assert_eq!(http.remaining("per-user", &[("user", "bob")]), 1);
    let calls = "CL.THROTTLE k 4 1 3600\r\n".repeat(40);
    let mut other = service.connect();
    other.send(calls.as_bytes());
    (0..5).for_each(|spent| other.expect(&five([0, 5, 4 - spent, -1, 3600 * (spent + 1)])));
    (5..40).for_each(|_| other.expect(&five([1, 5, 0, 3600, 18_000])));
    let mut count = |limit: &str, outcome: &str| {
        let labels = format!("limit=\"{limit}\",outcome=\"{outcome}\",protocol=\"resp\"");
        http.metric(&format!("tollgate_decisions_total{{{labels}}}"))
    };
    assert_eq!(count("per-user", "allow"), Some(1.0));
    assert_eq!((count("(sent)", "allow"), count("(sent)", "deny")), (Some(5.0), Some(35.0)));
}

#[test]
fn a_pipeline_may_come_in_any_pieces() {
    let service = RespService::start(POLICY);
    let input = b"*5\r\n$11\r\nCL.THROTTLE\r\n$1\r\nk\r\n$2\r\n15\r\n$2\r\n30\r\n$4\r\n3600\r\n*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$4\r\na\r\nb\r\nPING\r\n";
    for cut in 0..input.len() {
        let mut client = service.connect();
        client.send(&input[..cut]);
        pause(Duration::from_millis(1));
        client.send(&input[cut..]);
        client.expect("*5\r\n:");
        let mut five = [0; 1];
        // Its integers are of any length; the last line of them is the fifth.
        let mut lines = 0;
        while lines < 5 {
            client.0.read_exact(&mut five).unwrap();
            lines += usize::from(five[0] == b'\n');
        }
        client.expect("+PONG\r\n$4\r\na\r\nb\r\n+PONG\r\n");
    }
}

#[test]
fn what_is_too_large_or_no_request_is_answered_and_closed() {
    let service = RespService::start(POLICY);
    let large = [&b"*2\r\n$4\r\nECHO\r\n$65536\r\n"[..], &[b'x'; 65536], b"\r\n"].concat();
    let mut client = service.connect();
    client.send(&large);
    client.expect("$65536\r\nxxxx");
    let bulk = [&b"$65000\r\n"[..], &[b'x'; 65000], b"\r\n"].concat();
    for (input, error) in [
        (b"*2\r\n$4\r\nECHO\r\n$65537\r\n".to_vec(), "invalid bulk length"),
        (b"*1025\r\n".to_vec(), "invalid multibulk length"),
        (b"*1\r\n+PING\r\n".to_vec(), "expected '$', got '+'"),
        (vec![b'x'; 70_000], "too big inline request"),
        ([&b"*"[..], &[b'1'; 70_000]].concat(), "too big mbulk count string"),
        ([&b"*1\r\n$"[..], &[b'1'; 70_000]].concat(), "too big bulk count string"),
        ([&b"*20\r\n"[..], &bulk.repeat(20)].concat(), "too big request"),
        (b"PING \"x\r\n".to_vec(), "unbalanced quotes in request"),
    ] {
        let mut client = service.connect();
        // It may close before it has taken all of it.
        let _ = client.0.write_all(&input);
        assert_eq!(client.rest(), format!("-ERR Protocol error: {error}\r\n"));
    }
    let mut client = service.connect();
    client.send(b"PING\r\nPOST / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.rest(), "+PONG\r\n");
    let mut client = service.connect();
    client.send(b"PING\r\nQUIT\r\nPING\r\n");
    assert_eq!(client.rest(), "+PONG\r\n+OK\r\n");
    service.connect().ask("PING", "+PONG\r\n");
}

/// Sends until the server takes no more; how many whole requests it got.
fn send_without_reading(client: &mut Resp, request: &[u8]) -> usize {
    client.0.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut bytes = 0;
    // Cut into the bytes themselves: what is written in part is gone on with.
    loop {
        match client.0.write(&request[bytes % request.len()..]) {
            Ok(written) => bytes += written,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
            Err(error) => panic!("{error}"),
        }
        assert!(bytes < 1 << 30, "it takes everything");
    }
    bytes / request.len()
}

#[test]
fn who_does_not_read_is_not_listened_to_and_harms_nobody() {
    let service = RespService::start(POLICY);
    let echo = [&b"*2\r\n$4\r\nECHO\r\n$1000\r\n"[..], &[b'x'; 1000], b"\r\n"].concat();
    let deaf = || {
        let mut client = service.connect();
        let sent = send_without_reading(&mut client, &echo);
        (client, sent)
    };
    // The first few have the process take what it keeps for all.
    let mut first: Vec<(Resp, usize)> = (0..4).map(|_| deaf()).collect();
    let before = service.memory();
    let more: Vec<(Resp, usize)> = (0..16).map(|_| deaf()).collect();
    service.connect().ask("PING", "+PONG\r\n");
    let taken = service.memory().saturating_sub(before) / more.len();
    println!("{taken} bytes for each that does not read");
    assert!(taken < 512 << 10, "{taken} bytes for each that does not read");
    // Whoever reads after all gets every answer.
    let (mut client, sent) = first.pop().unwrap();
    let mut answer = vec![0; sent * (7 + 1000 + 2)];
    client.0.read_exact(&mut answer).unwrap();
    assert_eq!(answer.chunks(1009).filter(|answer| answer.starts_with(b"$1000\r\nx")).count(), sent);
}

#[test]
fn nobody_is_waited_for_for_ever() {
    let directory = Directory::new();
    directory.write("password", "secret\n");
    let service = RespService::start_in(directory, &format!("resp_password_file: ./password\n{POLICY}"));
    let known = || {
        let mut client = service.connect();
        client.ask("AUTH secret", "+OK\r\n");
        client
    };
    let (mut half, mut stranger, mut deaf, mut idle) = (known(), service.connect(), known(), known());
    half.ask("PING", "+PONG\r\n");
    half.send(b"*2\r\n$4\r\nECHO\r\n$10\r\nabc");
    stranger.ask("PING", "-NOAUTH Authentication required.\r\n");
    send_without_reading(
        &mut deaf,
        &[&b"*2\r\n$4\r\nECHO\r\n$9000\r\n"[..], &[b'x'; 9000], b"\r\n"].concat(),
    );
    // A stranger that goes on asking is a stranger still.
    let mut chatty = service.connect();
    let is_answered = |client: &mut Resp| {
        let mut answer = [0; 64];
        client.0.write_all(b"PING\r\n").is_ok() && client.0.read(&mut answer).is_ok_and(|read| read > 0)
    };
    let asked = (0..60)
        .take_while(|_| is_answered(&mut chatty))
        .inspect(|_| pause(Duration::from_millis(500)))
        .count();
    assert!(asked < 60, "it may ask for ever");
    // More of the half comes, but never all of it.
    half.send(b"def");
    assert_eq!(half.rest(), "");
    assert_eq!(stranger.rest(), "");
    eventually("the one that does not read is closed", || {
        let closed = deaf
            .0
            .write(b"PING\r\n")
            .is_err_and(|error| matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe));
        if !closed {
            pause(Duration::from_secs(1));
        }
        closed
    });
    idle.ask("PING", "+PONG\r\n"); // idle is not slow
}

#[test]
fn a_password_can_be_changed_while_it_runs() {
    let directory = Directory::new();
    directory.write("password", "one\n");
    let policy = format!("resp_password_file: ./password\n{POLICY}");
    let service = RespService::start_in(directory, &policy);
    let mut old = service.connect();
    old.ask("AUTH one", "+OK\r\n");
    service.service.directory.write("password", "two");
    service.service.process.signal("HUP");
    eventually("the new password opens", || {
        let mut client = service.connect();
        client.send(b"AUTH two\r\n");
        let mut answer = [0; 3];
        client.0.read_exact(&mut answer).unwrap();
        &answer == b"+OK"
    });
    service.connect().ask("AUTH one", "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    old.ask("PING", "+PONG\r\n");
}

#[test]
fn what_has_come_is_answered_when_the_server_stops() {
    let mut service = RespService::start(POLICY);
    let mut idle: Vec<Resp> = (0..20).map(|_| service.connect()).collect();
    idle.iter_mut().for_each(|client| client.ask("PING", "+PONG\r\n"));
    let mut busy = service.connect();
    // More than the sockets hold, and not read before the end has begun.
    let sent = send_without_reading(&mut busy, b"*2\r\n$4\r\nECHO\r\n$10\r\n0123456789\r\n");
    service.service.process.signal("TERM");
    let address = service.address;
    eventually("no connection is accepted", || TcpStream::connect(address).is_err());
    // Of what the sockets held some had not come yet; what had is answered, and no answer is cut off.
    let (answers, one) = (busy.rest(), "$10\r\n0123456789\r\n");
    let count = answers.len() / one.len();
    assert!(0 < count && count <= sent, "{count} answers to {sent} requests");
    assert!(answers == one.repeat(count), "{count} answers, and a part of one");
    assert!(idle.iter_mut().all(|client| client.rest().is_empty()));
    let (took, status) = timed(|| service.service.process.wait());
    assert_eq!(status.code(), Some(0), "{}", service.service.process.errors());
    assert!(took < Duration::from_secs(6), "{took:?}");
}

#[test]
fn listen_on_the_command_line_opens_http_only() {
    let directory = Directory::new();
    let file = directory.write("tollgate.yaml", POLICY);
    let mut command = Command::new(TOLLGATE);
    let service =
        Service::run(directory, command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(file));
    assert_eq!(service.connect().get("/livez").status, 200);
    eventually("it says where", || service.process.errors().contains("\"protocol\":\"http\""));
    assert!(!service.process.errors().contains("\"protocol\":\"redis\""));
    // Unless the policy names others.
    let directory = Directory::new();
    let text = format!("listen: {{ http: '192.0.2.1:80', resp: '127.0.0.1:0' }}\n{POLICY}");
    let file = directory.write("tollgate.yaml", &text);
    let mut command = Command::new(TOLLGATE);
    let mut service =
        Service::run(directory, command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(file));
    let address = tollgate_testkit::address_in(&service.process.line_with("listens on redis"));
    Resp::connect(address).ask("PING", "+PONG\r\n");
}

#[test]
fn connections_together_keep_no_more_than_64_mib() {
    let service = RespService::start("limits: []");
    let before = service.memory();
    // Requests whose last argument never comes, just below the most that one connection may keep.
    let argument = format!("$60000\r\n{}\r\n", "x".repeat(60_000));
    let begin = format!("*17\r\n{}", argument.repeat(16)).into_bytes();
    let open: Vec<Resp> = (0..150)
        .map(|_| {
            let mut connection = service.connect();
            let _ = connection.0.write_all(&begin);
            connection
        })
        .collect();
    let is_waiting = |connection: &Resp| {
        connection.0.set_nonblocking(true).unwrap();
        matches!(connection.0.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    };
    let count = || open.iter().filter(|connection| is_waiting(connection)).count();
    eventually("no more wait than there is room for", || count() <= 70);
    let waiting = count();
    let why = open.iter().filter_map(|connection| {
        let mut answer = [0; 20];
        connection.0.peek(&mut answer).ok().filter(|length| *length == 20).map(|_| answer)
    });
    // A connection that is closed before all of a request was read may not get its error.
    let why: Vec<String> = why.map(|answer| String::from_utf8_lossy(&answer).into_owned()).collect();
    assert!(why.iter().all(|why| why == "-ERR too many bytes "), "{why:?}");
    let grown = service.memory().saturating_sub(before);
    println!("{waiting} of 150 wait, {grown} bytes more in memory");
    assert!(waiting >= 20, "{waiting} of 150");
    // The allocator keeps some of what connections had that are closed now. Without the bound it is 190 MB.
    assert!(grown <= 150 << 20, "{grown} bytes");
    // Whole requests are answered meanwhile.
    service.connect().ask("PING", "+PONG\r\n");
    drop(open);
}

#[test]
fn an_address_has_only_so_many_attempts_at_the_password() {
    let directory = Directory::new();
    let file = directory.write("password", "secret");
    let service = RespService::start_in(directory, &format!("resp_password_file: {}", file.display()));
    let mut guesses = service.connect();
    for _ in 0..20 {
        guesses.ask("AUTH guess", "-WRONGPASS");
        let mut line = [0; 1];
        while line != *b"\n" {
            guesses.0.read_exact(&mut line).unwrap();
        }
    }
    guesses.ask("AUTH guess", "-ERR too many failed attempts");
    guesses.rest(); // and it is closed
    let mut again = service.connect();
    again.ask("HELLO 3 AUTH default secret", "-ERR too many failed attempts");
}
