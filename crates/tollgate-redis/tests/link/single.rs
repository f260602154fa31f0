//! One server.

use std::time::Duration;

use redis::Value;
use tokio::time::{Instant, sleep, timeout};
use tollgate_redis::link::{BreakerState, Call, Link, LinkError, Password, Script, Settings, Tls};
use tollgate_testkit::{RedisServer, free_port};

use super::certificates::certificates;
use super::proxy::Proxy;
use super::{PATIENCE, count, counting, settings, until};

/// What a busy machine may add to a deadline.
const SLACK: Duration = Duration::from_millis(150);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_answered_and_a_script_that_was_forgotten_is_sent_again() {
    let server = RedisServer::start();
    let link = Link::new(settings(&server.url())).unwrap();
    assert!(link.ready(PATIENCE).await);
    let script = Script::new("return {KEYS[1], ARGV[1], ARGV[2]}");
    let call = Call { script: &script, keys: &[b"{a}k\r\n"], args: &[b"", b"\xff"] };
    let expected = Value::Array(vec![
        Value::BulkString(b"{a}k\r\n".into()),
        Value::BulkString(b"".into()),
        Value::BulkString(b"\xff".into()),
    ]);
    assert_eq!(link.call(call).await, Ok(expected.clone()));
    server.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(link.call(call).await, Ok(expected.clone()));
    assert_eq!(link.call(call).await, Ok(expected));
    let [health] = &link.health()[..] else { panic!("one server is one shard") };
    assert_eq!((health.state, health.repairs, health.calls), (BreakerState::Closed, 2, 5));
    assert_eq!(health.address, format!("127.0.0.1:{}", server.port()));
    assert_eq!(health.name, health.address);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_were_learnt_are_there_from_the_first_call() {
    let server = RedisServer::start();
    let link = Link::new(settings(&server.url())).unwrap();
    let script = counting();
    link.learn(&script);
    assert!(link.ready(PATIENCE).await);
    server.kill();
    until("the end is noticed", async || link.health()[0].state == BreakerState::Open).await;
    server.restart();
    assert!(link.ready(PATIENCE).await);
    assert_eq!(link.health()[0].state, BreakerState::HalfOpen);
    assert_eq!(count(&link, &script, "a").await, Ok(1));
    let health = &link.health()[0];
    assert_eq!((health.repairs, health.reconnects, health.state), (0, 1, BreakerState::Closed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_the_server_are_told_and_do_not_open_the_breaker() {
    let server = RedisServer::start();
    let link = Link::new(settings(&server.url())).unwrap();
    assert!(link.ready(PATIENCE).await);
    for (source, words, may_have_run) in [
        ("return redis.error_reply('MINE own words')", "MINE own words", true),
        ("redis.call('SET', KEYS[1], 1) return redis.call('LPUSH', KEYS[1], 2)", "WRONGTYPE", true),
        ("this is not Lua", "ERR Error compiling script", true),
    ] {
        let script = Script::new(source);
        for _ in 0..6 {
            let Err(error) = link.call(Call { script: &script, keys: &[b"a"], args: &[] }).await else {
                panic!("{source} runs")
            };
            assert!(matches!(&error, LinkError::Server(text) if text.contains(words)), "{error}");
            assert_eq!(error.may_have_run(), may_have_run, "{error}");
        }
    }
    let health = &link.health()[0];
    assert_eq!((health.state, health.errors[3]), (BreakerState::Closed, ("server", 18)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_costs_no_time_and_is_back_within_two_seconds() {
    let server = RedisServer::start();
    let link = Link::new(settings(&server.url())).unwrap();
    let script = counting();
    assert!(link.ready(PATIENCE).await);
    assert_eq!(count(&link, &script, "a").await, Ok(1));
    server.kill();
    until("the end is noticed", async || !link.ready(Duration::ZERO).await).await;
    let began = Instant::now();
    for _ in 0..1000 {
        let error = count(&link, &script, "a").await.unwrap_err();
        assert!(matches!(error, LinkError::Open { .. }) && !error.may_have_run(), "{error}");
    }
    assert!(began.elapsed() < SLACK, "{:?}", began.elapsed());
    server.restart();
    let back = until("calls work again", async || count(&link, &script, "a").await.is_ok()).await;
    assert!(back < Duration::from_secs(2), "{back:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_costs_a_deadline_at_most_and_nothing_runs_twice() {
    let server = RedisServer::start();
    let deadline = Duration::from_millis(100);
    let link = Link::new(Settings { deadline, ..settings(&server.url()) }).unwrap();
    let script = counting();
    link.learn(&script);
    assert!(link.ready(PATIENCE).await);
    server.pause();
    let stopped = Instant::now();
    let (mut number, mut late, mut may_have_run) = (0, 0, Vec::new());
    while stopped.elapsed() < Duration::from_secs(2) {
        let (began, key) = (Instant::now(), format!("n{number}"));
        let error = count(&link, &script, &key).await.unwrap_err();
        if began.elapsed() > deadline + SLACK {
            late += 1;
        }
        if error.may_have_run() {
            may_have_run.push(key);
        }
        number += 1;
        sleep(Duration::from_millis(1)).await;
    }
    server.resume();
    assert_eq!(late, 0, "of {number}");
    assert_eq!(may_have_run.len(), 5, "the sixth and later fail at once: {:?}", link.health());
    let back = until("calls work again", async || count(&link, &script, "after").await.is_ok()).await;
    assert!(back < Duration::from_secs(2), "{back:?}");
    // What stood in the server's socket ran when it went on; none of it twice, and nothing else.
    let keys = server.command(&["KEYS", "n*"]);
    let keys: Vec<String> = keys.array().iter().map(|key| key.text().to_owned()).collect();
    assert!(!keys.is_empty() && keys.iter().all(|key| may_have_run.contains(key)), "{keys:?}");
    for key in keys {
        assert_eq!(server.command(&["GET", &key]).text(), "1", "{key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_under_way_when_the_server_is_killed_may_have_run() {
    let server = RedisServer::start();
    let link = Link::new(Settings { deadline: PATIENCE, ..settings(&server.url()) }).unwrap();
    let script = counting();
    assert!(link.ready(PATIENCE).await);
    assert_eq!(count(&link, &script, "a").await, Ok(1));
    server.pause();
    let (answer, ()) = tokio::join!(count(&link, &script, "a"), async {
        sleep(Duration::from_millis(50)).await;
        server.kill();
    });
    assert_eq!(answer, Err(LinkError::Lost));
    assert_eq!(link.health()[0].state, BreakerState::Open);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_fell_silent_is_replaced_by_a_new_one() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let deadline = Duration::from_millis(100);
    let link =
        Link::new(Settings { deadline, ..settings(&format!("redis://127.0.0.1:{}", proxy.port)) }).unwrap();
    let script = counting();
    assert!(link.ready(PATIENCE).await);
    assert_eq!(count(&link, &script, "a").await, Ok(1));
    proxy.silence();
    for _ in 0..5 {
        assert_eq!(count(&link, &script, "a").await, Err(LinkError::TimedOut));
    }
    assert!(matches!(count(&link, &script, "a").await, Err(LinkError::Open { .. })));
    assert!(link.ready(Duration::from_secs(2)).await, "{:?}", link.health());
    // A second silence is found out by the first call, since none has been answered.
    assert_eq!(link.health()[0].state, BreakerState::HalfOpen);
    proxy.silence();
    assert_eq!(count(&link, &script, "a").await, Err(LinkError::TimedOut));
    assert_eq!(link.health()[0].state, BreakerState::Open);
    assert!(link.ready(Duration::from_secs(2)).await, "{:?}", link.health());
    // One that passed the proxy in the last moment has run.
    let had: i64 = server.command(&["GET", "a"]).text().parse().unwrap();
    assert_eq!(count(&link, &script, "a").await, Ok(had + 1));
    assert_eq!(link.health()[0].state, BreakerState::Closed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_never_answers_is_never_called() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let link = Link::new(settings(&url)).unwrap();
    assert!(!link.ready(Duration::from_millis(800)).await);
    let Err(LinkError::Open { reason, .. }) = count(&link, &counting(), "a").await else {
        panic!("it is called")
    };
    assert!(reason.contains("did not answer within"), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_and_users_are_given_and_wrong_ones_told() {
    let server = RedisServer::with(&["--requirepass", "open sesame"]);
    let script = counting();
    let acl = [
        "ACL",
        "SETUSER",
        "me",
        "on",
        ">mine",
        "~*",
        "+evalsha",
        "+eval",
        "+script|load",
        "+time",
        "+get",
        "+set",
        "+incr",
        "+role",
        "+ping",
    ];
    assert_eq!(server.command(&acl).text(), "OK");
    let narrow = ["ACL", "SETUSER", "narrow", "on", ">mine", "~*", "+role", "+ping"];
    assert_eq!(server.command(&narrow).text(), "OK");
    let link = |username: Option<&str>, password: Option<&str>| {
        let (username, password) = (username.map(str::to_owned), password.map(Password::from));
        Link::new(Settings { username, password, ..settings(&server.url()) }).unwrap()
    };
    for (username, password) in
        [(None, "open sesame"), (Some("default"), "open sesame"), (Some("me"), "mine")]
    {
        let link = link(username, Some(password));
        assert!(link.ready(PATIENCE).await, "{link:?}");
        assert!(count(&link, &script, "a").await.is_ok());
    }
    for (username, password, words) in [
        (None, Some("wrong1"), "refuses the password of user `default`: WRONGPASS invalid"),
        (Some("me"), Some("wrong1"), "refuses the password of user `me`: WRONGPASS invalid"),
        (None, None, "NOAUTH"),
        (Some("narrow"), Some("mine"), "NOPERM"),
    ] {
        let link = link(username, password);
        assert!(!link.ready(Duration::from_millis(500)).await);
        let error = count(&link, &script, "a").await.unwrap_err().to_string();
        assert!(error.contains(words) && !error.contains("wrong1"), "{error}");
        assert!(!format!("{link:?}").contains("wrong1"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_is_spoken_with_those_who_can_prove_who_they_are() {
    let folder = certificates();
    let file = |name: &str| folder.path().join(name);
    let [ca, cert, key] = ["ca.pem", "cert.pem", "key.pem"].map(|name| file(name).display().to_string());
    let port = free_port();
    let _server = RedisServer::with(&[
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
    ]);
    let url = format!("rediss://127.0.0.1:{port}");
    let link = |tls| Link::new(Settings { tls, ..settings(&url) }).unwrap();
    let ours = Tls {
        ca_file: Some(file("ca.pem")),
        cert_file: Some(file("cert.pem")),
        key_file: Some(file("key.pem")),
    };
    let trusted = link(Some(ours.clone()));
    assert!(trusted.ready(PATIENCE).await, "{trusted:?}");
    assert_eq!(count(&trusted, &counting(), "a").await, Ok(1));
    // Nobody whom we trust knows the server; the server asks for a certificate.
    let other = certificates();
    for (tls, words) in [
        (
            Tls { ca_file: Some(other.path().join("ca.pem")), ..ours },
            "signed by nobody whom we trust; `ca_file` names who may",
        ),
        (Tls { ca_file: Some(file("ca.pem")), ..Tls::default() }, "`cert_file` and `key_file` name ours"),
    ] {
        let link = link(Some(tls));
        assert!(!link.ready(Duration::from_millis(500)).await);
        let error = count(&link, &counting(), "a").await.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_takes_no_charges_and_becoming_one_opens_the_breaker() {
    let server = RedisServer::start();
    let link = Link::new(settings(&server.url())).unwrap();
    let script = counting();
    assert!(link.ready(PATIENCE).await);
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let error = count(&link, &script, "a").await.unwrap_err();
    assert!(matches!(&error, LinkError::Server(text) if text.starts_with("READONLY")), "{error}");
    until("it is told why", async || {
        link.health()[0]
            .reason
            .as_ref()
            .is_some_and(|reason| reason.contains("it is a replica, not a primary"))
    })
    .await;
    server.command(&["REPLICAOF", "NO", "ONE"]);
    assert!(link.ready(Duration::from_secs(2)).await);
    assert_eq!(count(&link, &script, "a").await, Ok(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_goes_on_once_the_link_is_dropped() {
    let server = RedisServer::start();
    let link = Link::new(settings(&server.url())).unwrap();
    assert!(link.ready(PATIENCE).await);
    let connected = || server.command(&["CLIENT", "LIST"]).text().lines().count();
    assert_eq!(connected(), 2);
    drop(link);
    until("the connection ends", async || connected() == 1).await;
}

#[test]
fn a_link_needs_a_runtime() {
    let error = Link::new(settings("redis://127.0.0.1:1")).unwrap_err();
    assert!(error.to_string().contains("runtime"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_given_up_leaves_the_others_their_answers() {
    let server = RedisServer::start();
    let link = Link::new(settings(&server.url())).unwrap();
    let script = Script::new("return ARGV[1]");
    assert!(link.ready(PATIENCE).await);
    for number in 0..200 {
        let text = number.to_string();
        let call = Call { script: &script, keys: &[b"a"], args: &[text.as_bytes()] };
        let _ = timeout(Duration::from_micros(number % 7), link.call(call)).await;
        assert_eq!(link.call(call).await, Ok(Value::BulkString(text.into_bytes())));
    }
}
