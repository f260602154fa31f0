//! Requests and answers pass as they are, but for what a proxy must change.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use tollgate_testkit::free_port;

use super::application::application;
use super::backend::Backend;
use super::running::Gateway;
use crate::service::{eventually, json_of, pause, timed};

/// An address at which nobody listens.
fn nobody() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}

#[test]
fn a_request_reaches_the_application_and_its_answer_the_client() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", "");
    let mut client = gateway.connect();
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PURGE"] {
        let answer = client.send(method, "/a/b?c=d&e=%20", &[("x-mine", "yes")], "hello");
        assert_eq!(answer.status, 200, "{method}: {answer:?}");
        let told = if method == "HEAD" { String::new() } else { format!("{method} /a/b?c=d&e=%20 5") };
        assert_eq!(answer.body, told);
        let arrived = backend.arrived().pop().unwrap();
        assert_eq!(arrived.request, format!("{method} /a/b?c=d&e=%20"));
        assert_eq!((arrived.header("x-mine"), &arrived.body[..]), (Some("yes"), &b"hello"[..]));
        assert_eq!(arrived.header("host"), Some(gateway.address.to_string().as_str()));
        assert_eq!(arrived.header("x-forwarded-for"), Some("127.0.0.1"));
    }
    assert_eq!(backend.connections(), 1, "they follow each other over one");
}

/// Where a proxy of ours tells the client in one header only, both say the same.
#[test]
fn the_application_is_told_one_chain_of_addresses() {
    let backend = Backend::start();
    let trusting = "identity: { client_ip: { trusted_proxies: [127.0.0.1] } }\nlimits: []\n";
    for (policy, said, addresses, chain) in [
        (
            trusting,
            ("x-forwarded-for", "9.9.9.8, 2001:db8::1"),
            "9.9.9.8, 2001:db8::1, 127.0.0.1",
            "for=\"[2001:db8::1]\", for=127.0.0.1;", // nobody vouches for what stands left of the client
        ),
        (trusting, ("forwarded", "for=9.9.9.8"), "127.0.0.1", "for=127.0.0.1;"), // not the configured one
        ("limits: []\n", ("x-forwarded-for", "9.9.9.8"), "127.0.0.1", "for=127.0.0.1;"),
    ] {
        let gateway = Gateway::start(&backend, "", policy);
        assert_eq!(gateway.connect().send("GET", "/", &[said], "").status, 200);
        let arrived = backend.arrived().pop().unwrap();
        assert_eq!(arrived.header("x-forwarded-for"), Some(addresses));
        let forwarded = arrived.header("forwarded").unwrap();
        assert!(forwarded.starts_with(chain), "{forwarded}");
    }
}

/// A body that is refused on its way is not a client that has left.
#[test]
fn bodies_that_are_refused_are_counted_as_such() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "max_body: 10", "");
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (body, status) in [("b\r\neleven byte\r\n0\r\n\r\n", 413), ("zz\r\n", 400)] {
        let answer = gateway.connect().send_raw(format!("{chunked}{body}").as_bytes()).unwrap();
        assert_eq!(answer.status, status, "{answer:?}");
    }
    let mut seen = gateway.service.connect();
    let ended = |outcome: &str| format!("tollgate_gateway_requests_total{{outcome=\"{outcome}\"}}");
    assert_eq!(seen.metric(&ended("refused")), Some(2.0));
    assert_eq!(seen.metric(&ended("gone")), Some(0.0));
}

#[test]
fn bodies_pass_in_either_framing_and_any_size() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", "");
    let mut client = gateway.connect();
    for size in [0, 1, 1000, 70_000, 5_000_000] {
        let answer = client.send("POST", &format!("/bytes/{size}"), &[], &"y".repeat(size));
        assert_eq!((answer.status, answer.body.len()), (200, size));
        assert_eq!(backend.arrived().pop().unwrap().body.len(), size);
    }
    let chunked = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n\
                   0\r\nx-trailer: 1\r\n\r\n";
    let answer = client.send_raw(chunked.as_bytes()).unwrap();
    assert_eq!(answer.body, "POST /echo 11");
    let answer = client.send("GET", "/chunks/3", &[], "");
    assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
    assert_eq!(answer.body, "a piece of it, ".repeat(3));
}

#[test]
fn what_comes_a_byte_at_a_time_is_understood_all_the_same() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", "");
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_nodelay(true).unwrap();
    let request = "POST /slow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    for byte in request.bytes() {
        stream.write_all(&[byte]).unwrap();
        pause(Duration::from_millis(1));
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("POST /slow 3"), "{answer}");
}

#[test]
fn requests_sent_together_are_answered_in_order() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", "");
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    let mut sent = String::new();
    for i in 0..50 {
        sent += &format!("POST /{i} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
    }
    sent += "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(sent.as_bytes()).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    let told: Vec<&str> = answers
        .split("HTTP/1.1 200 OK\r\n")
        .skip(1)
        .map(|answer| answer.rsplit_once("\r\n").unwrap().1)
        .collect();
    let expected: Vec<String> =
        (0..50).map(|i| format!("POST /{i} 2")).chain(["GET /last 0".to_owned()]).collect();
    assert_eq!(told, expected);
}

#[test]
fn a_client_of_http_1_0_gets_what_it_understands() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", "");
    for (request, ends_with) in [
        ("GET /old HTTP/1.0\r\n\r\n", "GET /old 0"),
        ("GET /chunks/2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "a piece of it, a piece of it, "),
    ] {
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with(&format!("\r\n\r\n{ends_with}")), "{answer}");
        assert!(answer.contains("connection: close\r\n") && !answer.contains("chunked"), "{answer}");
    }
    let mut client = gateway.connect();
    for _ in 0..2 {
        let answer = client.send_raw(b"GET /kept HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").unwrap();
        assert_eq!((answer.body.as_str(), answer.header("connection")), ("GET /kept 0", Some("keep-alive")));
    }
}

#[test]
fn what_is_of_the_applications_connection_goes_no_further() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", "");
    let answer = gateway.connect().send("GET", "/hop", &[], "");
    assert_eq!(answer.header("x-kept"), Some("2"), "{answer:?}");
    for name in ["connection", "x-secret", "keep-alive"] {
        assert_eq!(answer.header(name), None, "{answer:?}");
    }
}

#[test]
fn answers_without_a_body_are_told_apart() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", "");
    let mut client = gateway.connect();
    for status in [204, 304, 404, 500] {
        let answer = client.send("GET", &format!("/status/{status}"), &[], "");
        assert_eq!(answer.status, status);
    }
    let head = client.send("HEAD", "/bytes/1234", &[], "");
    assert_eq!((head.status, head.header("content-length")), (200, Some("1234")));
    assert_eq!(client.send("GET", "/after", &[], "").body, "GET /after 0");
}

#[test]
fn a_client_that_waits_for_a_word_before_its_body_gets_it_unless_it_is_refused() {
    let backend = Backend::start();
    let limits = "limits: [{ name: few, key: [], token_bucket: { rate: 1/hour, burst: 1 } }]";
    let gateway = Gateway::start(&backend, "", limits);
    let head = "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let mut word = [0; 25];
    stream.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"hello").unwrap();
    let mut buffer = [0; 4096];
    let read = stream.read(&mut buffer).unwrap();
    assert!(String::from_utf8_lossy(&buffer[..read]).ends_with("POST /upload 5"));
    assert_eq!(backend.arrived()[0].header("expect"), None);
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    assert!(answer.contains("connection: close\r\n"), "whether a body follows is open: {answer}");
}

#[test]
fn requests_go_where_fewest_are_and_round_a_place_that_is_gone() {
    let (first, second, gone) = (Backend::start(), Backend::start(), nobody());
    let upstreams = format!("['http://{}', 'http://{}', 'http://{gone}']", first.address, second.address);
    let gateway = Gateway::before(&upstreams, "", "");
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let mut client = gateway.connect();
            std::thread::spawn(move || {
                for _ in 0..20 {
                    let answer = client.send("POST", "/sleep/5", &[], "x");
                    assert_eq!(answer.status, 200, "{answer:?}");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let counts = [&first, &second].map(|backend| backend.arrived().len());
    assert_eq!(counts.iter().sum::<usize>(), 160);
    assert!(counts.iter().all(|count| (60..=100).contains(count)), "{counts:?}");
    let mut seen = gateway.service.connect();
    let metric = format!("tollgate_upstream_up{{upstream=\"{gone}\"}}");
    eventually("the one that is gone is left alone", || seen.metric(&metric) == Some(0.0));
    assert_eq!(seen.metric(&format!("tollgate_upstream_up{{upstream=\"{}\"}}", first.address)), Some(1.0));
}

#[test]
fn an_application_that_does_not_answer_is_told_of() {
    let gateway = Gateway::before(&format!("http://{}", nobody()), "", "");
    let answer = gateway.connect().send("GET", "/", &[], "");
    assert_eq!((answer.status, answer.header("content-type")), (502, Some("application/problem+json")));
    assert_eq!(json_of(&answer)["status"], 502);

    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "timeouts: { answer: 200ms }", "");
    let mut client = gateway.connect();
    let (took, answer) = timed(|| client.send("GET", "/sleep/5000", &[], ""));
    assert_eq!(answer.status, 504);
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(client.send("GET", "/still", &[], "").status, 200, "the connection can be used on");
    let mut seen = gateway.service.connect();
    assert_eq!(seen.metric("tollgate_upstream_errors_total{kind=\"timeout\"}"), Some(1.0));
}

#[test]
fn a_body_beyond_the_bound_is_refused() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "max_body: 1KiB", "");
    assert_eq!(gateway.connect().send("POST", "/", &[], &"x".repeat(1024)).status, 200);
    let answer = gateway.connect().send("POST", "/", &[], &"x".repeat(1025));
    assert_eq!((answer.status, backend.arrived().len()), (413, 1));
    let chunk = format!("401\r\n{}\r\n0\r\n\r\n", "x".repeat(1025));
    let request = format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}");
    assert_eq!(gateway.connect().send_raw(request.as_bytes()).unwrap().status, 413);
    eventually("nothing of it counts", || backend.arrived().iter().all(|arrived| arrived.body.len() < 1025));
}

#[test]
fn what_is_under_way_is_finished_when_the_process_is_to_end() {
    let backend = Backend::start();
    let mut gateway = Gateway::start(&backend, "", "");
    let mut idle = gateway.connect();
    assert_eq!(idle.send("GET", "/", &[], "").status, 200);
    let mut client = gateway.connect();
    let under_way = std::thread::spawn(move || client.send("GET", "/sleep/600", &[], ""));
    eventually("it has arrived", || backend.arrived().len() == 2);
    gateway.service.process.signal("TERM");
    let answer = under_way.join().unwrap();
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert!(idle.try_send("GET", "/", &[], b"").is_err(), "one that was idle is closed");
    assert!(gateway.service.process.wait().success());
}

#[test]
fn limits_are_told_with_every_answer_and_refuse_what_is_too_much() {
    let backend = Backend::start();
    let limits = "identity: { tenant: header.x-api-key }\n\
                  limits: [{ name: per-tenant, key: [tenant], token_bucket: { rate: 1/hour, burst: 3 } }]";
    let gateway = Gateway::start(&backend, "", limits);
    let mut client = gateway.connect();
    let mut ask = |tenant: &str, target: &str| client.send("GET", target, &[("x-api-key", tenant)], "");
    for (left, target) in [(2, "/a"), (1, "/status/500"), (0, "/status/304")] {
        let answer = ask("acme", target);
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(left.to_string().as_str()), "{answer:?}");
        assert!(answer.header("ratelimit").unwrap().starts_with(&format!("\"per-tenant\";r={left}")));
    }
    let denied = ask("acme", "/b");
    assert_eq!((denied.status, denied.header("content-type")), (429, Some("application/problem+json")));
    assert!((3500..=3600).contains(&denied.header("retry-after").unwrap().parse::<u64>().unwrap()));
    assert_eq!(json_of(&denied)["error"], "rate_limit_exceeded");
    assert_eq!(ask("globex", "/c").status, 200);
    assert_eq!(backend.arrived().len(), 4);
    let mut seen = gateway.service.connect();
    let decided = |outcome: &str| {
        format!("tollgate_decisions_total{{limit=\"per-tenant\",outcome=\"{outcome}\",protocol=\"gateway\"}}")
    };
    assert_eq!(seen.metric(&decided("allow")), Some(4.0));
    assert_eq!(seen.metric(&decided("deny")), Some(1.0));
}

#[test]
fn a_place_in_flight_is_held_until_the_answer_has_been_read_or_the_client_has_left() {
    let backend = Backend::start();
    let limits = "limits: [{ name: in-flight, key: [], concurrency: { limit: 1 } }]";
    let gateway = Gateway::start(&backend, "", limits);
    let big = "GET /bytes/20000000 HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut reading = TcpStream::connect(gateway.address).unwrap();
    reading.write_all(big.as_bytes()).unwrap();
    let mut begin = [0; 1000];
    reading.read_exact(&mut begin).unwrap();
    let mut client = gateway.connect();
    let denied = client.send("GET", "/", &[], "");
    assert_eq!((denied.status, json_of(&denied)["reason"].as_str()), (429, Some("in_flight")));
    let mut rest = vec![0; 20_000_000];
    let _ = reading.set_read_timeout(Some(Duration::from_secs(10)));
    let mut read = 0;
    while read + 1000 < 20_000_000 {
        read += reading.read(&mut rest).unwrap();
    }
    eventually("it has been read", || client.send("GET", "/", &[], "").status == 200);

    let mut leaving = TcpStream::connect(gateway.address).unwrap();
    leaving.write_all(big.as_bytes()).unwrap();
    leaving.read_exact(&mut begin).unwrap();
    assert_eq!(client.send("GET", "/", &[], "").status, 429);
    drop(leaving);
    eventually("it has left", || client.send("GET", "/", &[], "").status == 200);

    let mut leaving = TcpStream::connect(gateway.address).unwrap();
    leaving.write_all(b"GET /sleep/20000 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    eventually("it is there", || backend.arrived().last().unwrap().request == "GET /sleep/20000");
    assert_eq!(client.send("GET", "/", &[], "").status, 429);
    drop(leaving);
    eventually("it has left before its answer", || client.send("GET", "/", &[], "").status == 200);
}

/// An application that has limits of its own, and names a header that is for the gateway only.
fn limited_application() -> SocketAddr {
    application(|head, talk| {
        let (status, own) = match head.split(' ').nth(1) {
            Some("/limited") => ("200 OK", "RateLimit: \"app\";r=7\r\nX-RateLimit-Limit: 70\r\n"),
            Some("/busy") => ("503 Service Unavailable", "retry-after: 9\r\nratelimit-reset: 90\r\n"),
            Some("/hop") => ("200 OK", "connection: ratelimit\r\nratelimit: \"app\";r=7\r\n"),
            _ => ("200 OK", ""),
        };
        talk.say(&format!("HTTP/1.1 {status}\r\n{own}content-length: 0\r\n\r\n"));
    })
}

const OWN_LIMIT: &str = "limits: [{ name: ours, key: [], fixed_window: { limit: 4, window: 1day } }]";

/// The values of a header, of which there is at most one.
fn values<'a>(answer: &'a tollgate_testkit::http::Answer, names: &[&'a str]) -> Vec<&'a str> {
    for name in names {
        let count = answer.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name)).count();
        assert!(count <= 1, "{name}: {answer:?}");
    }
    names.iter().map(|name| answer.header(name).unwrap_or("-")).collect()
}

#[test]
fn limit_headers_of_the_application_are_replaced_by_default() {
    let upstream = format!("http://{}", limited_application());
    for policy in [OWN_LIMIT.to_owned(), format!("headers: {{ upstream: replace }}\n{OWN_LIMIT}")] {
        let gateway = Gateway::before(&upstream, "", &policy);
        let answer = gateway.connect().send("GET", "/limited", &[], "");
        assert!(answer.header("ratelimit").unwrap().starts_with("\"ours\";r=3"), "{answer:?}");
        assert_eq!(values(&answer, &["ratelimit", "x-ratelimit-limit"])[1], "4");
        // Of another name, they pass.
        let answer = gateway.connect().send("GET", "/busy", &[], "");
        assert_eq!(values(&answer, &["retry-after", "ratelimit-reset"]), ["9", "90"]);
    }
}

#[test]
fn limit_headers_of_the_application_are_kept_on_request() {
    let upstream = format!("http://{}", limited_application());
    let gateway = Gateway::before(&upstream, "", &format!("headers: {{ upstream: keep }}\n{OWN_LIMIT}"));
    let mut client = gateway.connect();
    let names = ["ratelimit", "x-ratelimit-limit", "x-ratelimit-remaining", "ratelimit-policy"];
    // What the application sends is kept. Ours of the same family are left out, because they would contradict it.
    let answer = client.send("GET", "/limited", &[], "");
    assert_eq!(values(&answer, &names[..2]), ["\"app\";r=7", "70"]);
    assert_eq!((answer.header(names[2]), answer.header(names[3])), (None, None), "{answer:?}");
    // Without any of its own, all are ours.
    let answer = client.send("GET", "/", &[], "");
    assert_eq!(values(&answer, &names)[1..], ["4", "2", "\"ours\";q=4;w=86400"]);
    assert!(answer.header("ratelimit").unwrap().starts_with("\"ours\";r=2"), "{answer:?}");
    // A header that ends at the gateway does not count as sent.
    let answer = client.send("GET", "/hop", &[], "");
    assert!(answer.header("ratelimit").unwrap().starts_with("\"ours\";r=1"), "{answer:?}");
    let answer = client.send("GET", "/busy", &[], "");
    assert_eq!((answer.status, values(&answer, &["retry-after"])), (503, vec!["9"]));
    // A denial is the gateway's.
    let answer = client.send("GET", "/limited", &[], "");
    assert_eq!((answer.status, values(&answer, &names)[1]), (429, "4"));
    assert!(answer.header("ratelimit").unwrap().starts_with("\"ours\";r=0"), "{answer:?}");
    assert!(answer.header("retry-after").is_some());
}
