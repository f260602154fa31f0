//! No request hides in another: what could be read in two ways is refused, or handed on in one.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tollgate_testkit::{Process, program};

use super::backend::Backend;
use super::running::Gateway;
use crate::service::{Directory, eventually};
use crate::site::free_addresses;

/// The request that must never arrive.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";

/// Requests, and what the gateway makes of them: 400, or one request with so many bytes of body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Makes {
    Refused,
    One(usize),
}
use Makes::{One, Refused};

/// Heads of `POST / HTTP/1.1` without `Host`, which is added where none is there, and bodies.
fn attacks() -> Vec<(String, Makes)> {
    let chunks = format!("0\r\n\r\n{HIDDEN}");
    let with = |headers: &str, body: &str| format!("POST /seen HTTP/1.1\r\nHost: a\r\n{headers}\r\n{body}");
    let length = HIDDEN.len();
    let mut all = vec![
        // Two statements about the length.
        (with("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", &chunks), Refused),
        (with("Transfer-Encoding: chunked\r\nContent-Length: 6\r\n", &chunks), Refused),
        (with(&format!("Content-Length: 0\r\nContent-Length: {length}\r\n"), HIDDEN), Refused),
        (with(&format!("Content-Length: {length}\r\nContent-Length: 0\r\n"), HIDDEN), Refused),
        (with("Content-Length: 0\r\nContent-Length: 0\r\n", HIDDEN), Refused),
        (with("Content-Length: 0, 0\r\n", HIDDEN), Refused),
        (with(&format!("Content-Length: 0\r\nContent_Length: {length}\r\n"), HIDDEN), Refused),
        (with("Transfer_Encoding: chunked\r\n", &chunks), Refused),
        // Lengths that are none.
        (with("Content-Length: +0\r\n", HIDDEN), Refused),
        (with("Content-Length: -1\r\n", HIDDEN), Refused),
        (with("Content-Length: 0x0\r\n", HIDDEN), Refused),
        (with("Content-Length: 0 \x0b\r\n", HIDDEN), Refused),
        (with("Content-Length:\r\n", HIDDEN), Refused),
        (with("Content-Length: 99999999999999999999\r\n", HIDDEN), Refused),
        // Encodings that only some understand.
        (with("Transfer-Encoding: xchunked\r\n", &chunks), Refused),
        (with("Transfer-Encoding: chunked, identity\r\n", &chunks), Refused),
        (with("Transfer-Encoding: identity, chunked\r\n", &chunks), Refused),
        (with("Transfer-Encoding: gzip, chunked\r\n", &chunks), Refused),
        (with("Transfer-Encoding: identity\r\n", &chunks), Refused),
        (with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", &chunks), Refused),
        (with("Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", &chunks), Refused),
        (with("Transfer-Encoding: \x0bchunked\r\n", &chunks), Refused),
        (with("Transfer-Encoding: \"chunked\"\r\n", &chunks), Refused),
        (with("Transfer-Encoding:\r\n chunked\r\n", &chunks), Refused),
        (with("Transfer-Encoding : chunked\r\n", &chunks), Refused),
        (with(" Transfer-Encoding: chunked\r\n", &chunks), Refused),
        (with("X: a\nTransfer-Encoding: chunked\r\n", &chunks), Refused),
        (with("X: a\rTransfer-Encoding: chunked\r\n", &chunks), Refused),
        (with("X: a\0b\r\n", ""), Refused),
        (
            "POST /seen HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned() + &chunks,
            Refused,
        ),
        // Chunks that are none.
        (with("Transfer-Encoding: chunked\r\n", &format!("0 \n\r\n{HIDDEN}")), Refused),
        (with("Transfer-Encoding: chunked\r\n", &format!("0\n\n{HIDDEN}")), Refused),
        (with("Transfer-Encoding: chunked\r\n", &format!("2\r\nabc\r\n0\r\n\r\n{HIDDEN}")), Refused),
        (with("Transfer-Encoding: chunked\r\n", &format!("-1\r\n\r\n{HIDDEN}")), Refused),
        (with("Transfer-Encoding: chunked\r\n", &format!("10000000000000000\r\n{HIDDEN}")), Refused),
        (with("Transfer-Encoding: chunked\r\n", &format!("0;a\rb\r\n\r\n{HIDDEN}")), Refused),
        (with("Transfer-Encoding: chunked\r\n", &format!("0\x0c\r\n\r\n{HIDDEN}")), Refused),
        // Hosts.
        ("POST /seen HTTP/1.1\r\nContent-Length: 0\r\n\r\n".to_owned(), Refused),
        ("POST /seen HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 0\r\n\r\n".to_owned(), Refused),
        ("POST /seen HTTP/1.1\r\nHost: a b\r\nContent-Length: 0\r\n\r\n".to_owned(), Refused),
        ("POST /seen HTTP/1.1\r\nHost: a/hidden\r\nContent-Length: 0\r\n\r\n".to_owned(), Refused),
        ("POST /seen HTTP/1.1\r\nHost: a@b\r\nContent-Length: 0\r\n\r\n".to_owned(), Refused),
        ("POST /seen HTTP/1.1\r\nHost:\r\nContent-Length: 0\r\n\r\n".to_owned(), Refused),
        // Lines that are none.
        ("POST /seen HTTP/1.1 x\r\nHost: a\r\n\r\n".to_owned(), Refused),
        ("POST /seen\r\nHost: a\r\n\r\n".to_owned(), Refused),
        ("POST seen HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), Refused),
        ("POST http://a@b/seen HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), Refused),
        ("CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned() + HIDDEN, Refused),
        ("POST /seen HTTP/1.1\r\nHost: a\r\nX\r\n\r\n".to_owned(), Refused),
    ];
    // What is fine, and holds something that looks like a request.
    all.extend([
        (with(&format!("Content-Length: {length}\r\n"), HIDDEN), One(length)),
        (
            with("Transfer-Encoding: chunked\r\n", &format!("{length:x}\r\n{HIDDEN}\r\n0\r\n\r\n")),
            One(length),
        ),
        (with("Transfer-Encoding: Chunked\r\n", "3\r\nabc\r\n0\r\nX: y\r\n\r\n"), One(3)),
        (with("Connection: content-length\r\nContent-Length: 3\r\n", "abc"), One(3)),
        (
            with("Connection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n"),
            One(3),
        ),
        ("POST http://b/seen HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc".to_owned(), One(3)),
    ]);
    all
}

/// What is answered until the connection ends, or nothing more comes.
fn send(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(400))).unwrap();
    stream.write_all(bytes).unwrap();
    let (mut answer, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = stream.read(&mut chunk) {
        answer.extend_from_slice(&chunk[..read]);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn what_could_be_read_in_two_ways_is_refused_and_nothing_hides_in_what_is_not() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", "");
    let attacks = attacks();
    assert!(attacks.len() >= 50, "{}", attacks.len());
    let mut arrived = 0;
    for (attack, makes) in attacks {
        let answer = send(gateway.address, attack.as_bytes());
        let new: Vec<_> = backend.arrived().drain(arrived..).collect();
        arrived += new.len();
        match makes {
            Refused => {
                assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{attack:?}: {answer}");
                assert!(answer.contains("connection: close\r\n"), "{attack:?}: {answer}");
                let answers = answer.lines().filter(|line| line.starts_with("HTTP/1.1 "));
                assert_eq!(answers.count(), 1, "{attack:?}: {answer}");
                assert!(
                    new.iter().all(|new| new.request == "POST /seen" && new.body.is_empty()),
                    "{attack:?}: {new:?}"
                );
            }
            One(length) => {
                assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{attack:?}: {answer}");
                assert_eq!(new.len(), 1, "{attack:?}: {new:?}");
                assert_eq!(
                    (new[0].request.as_str(), new[0].body.len()),
                    ("POST /seen", length),
                    "{attack:?}"
                );
            }
        }
        for new in new {
            let framed = ["content-length", "transfer-encoding"]
                .map(|name| new.headers.iter().filter(|(known, _)| known == name).count());
            assert!(framed.iter().sum::<usize>() <= 1, "{attack:?}: {new:?}");
            assert_eq!(
                new.headers.iter().filter(|(name, _)| name == "host").count(),
                1,
                "{attack:?}: {new:?}"
            );
        }
    }
}

/// nginx before the gateway, over connections that it keeps: what it takes for one request must be one for the application.
#[test]
fn behind_nginx_the_application_gets_what_nginx_believes_it_has_sent() {
    let Some(nginx) = program("nginx") else { return };
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", "");
    let [address] = free_addresses();
    let directory = Directory::new();
    let configuration = format!(
        "daemon off; master_process off; pid pid; error_log stderr;
        events {{}}
        http {{
          log_format sent '$upstream_status $request_method $request_uri';
          access_log log sent;
          client_body_temp_path t; proxy_temp_path t; fastcgi_temp_path t; uwsgi_temp_path t; scgi_temp_path t;
          upstream gateway {{ server {}; keepalive 1; }}
          server {{
            listen {address};
            location / {{
              proxy_http_version 1.1;
              proxy_set_header Connection \"\";
              proxy_set_header Host $host;
              proxy_request_buffering off;
              proxy_pass http://gateway;
            }}
          }}
        }}",
        gateway.address
    );
    directory.write("nginx.conf", &configuration);
    let mut command = std::process::Command::new(nginx);
    let _nginx =
        Process::start(command.args(["-p", ".", "-c", "nginx.conf"]).current_dir(directory.path(".")));
    eventually("nginx listens", || TcpStream::connect(address).is_ok());
    for (attack, _) in attacks() {
        let answer = send(address, attack.as_bytes());
        let answers = answer.lines().filter(|line| line.starts_with("HTTP/1.1 "));
        for answer in answers {
            let is_expected =
                ["200", "400", "405", "501", "502"].iter().any(|status| answer.contains(status));
            assert!(is_expected, "{attack:?}: {answer}");
        }
    }
    // What the gateway has answered with 200, it has asked the application, once.
    let sent = || {
        let log = std::fs::read_to_string(directory.path("log")).unwrap();
        log.lines().filter_map(|line| line.strip_prefix("200 ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let arrived = || backend.arrived().into_iter().map(|arrived| arrived.request).collect::<Vec<_>>();
    eventually("the log is written", || sent().len() == arrived().len());
    let (mut sent, mut arrived) = (sent(), arrived());
    // nginx writes the whole URL of one that asks by it.
    sent.iter_mut().for_each(|request| *request = request.replace("http://b", ""));
    sent.sort();
    arrived.sort();
    assert_eq!(sent, arrived);
    assert!(arrived.len() >= 5, "what is fine passes: {arrived:?}");
}
