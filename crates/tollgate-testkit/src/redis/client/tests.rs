use super::*;
use crate::redis::RedisServer;

#[test]
fn every_kind_of_answer_is_read() {
    let server = RedisServer::start();
    let mut client = server.client();
    assert_eq!(client.command(&["PING"]), Reply::Simple("PONG".to_owned()));
    assert!(client.command(&["NONSENSE"]).error().unwrap().starts_with("ERR unknown command"));
    assert_eq!(client.command(&["INCR", "n"]), Reply::Integer(1));
    assert_eq!(client.command(&["GET", "n"]).integer(), 1);
    assert_eq!(client.command(&["GET", "none"]), Reply::Bulk(None));
    assert_eq!(client.command(&["BLPOP", "none", "0.01"]), Reply::Array(None));
    let nested = client.command(&["EVAL", "return {1, {'a\\r\\nb', false}, {}}", "0"]);
    assert_eq!(nested.array()[0].integer(), 1);
    assert_eq!(nested.array()[1].array()[0].bytes(), b"a\r\nb");
    assert!(nested.array()[1].array()[1].is_null());
    assert!(nested.array()[2].array().is_empty());
    assert_eq!(format!("{nested:?}"), r#"[1, ["a\r\nb", null], []]"#);
}

#[test]
fn answers_come_in_the_order_of_commands() {
    let server = RedisServer::start();
    let mut client = server.client();
    for _ in 0..100 {
        client.send(&["INCR", "n"]).unwrap();
    }
    for expected in 1..=100 {
        assert_eq!(client.receive().unwrap().integer(), expected);
    }
}

#[test]
fn an_answer_that_is_cut_short_is_an_error() {
    let rows: [&[u8]; 7] = [b"", b"+OK", b"$5\r\nab", b"$2\r\nabcd", b"*2\r\n:1\r\n", b"?\r\n", b"$-2\r\n"];
    for row in rows {
        assert!(Reply::read(&mut &*row).is_err(), "{}", row.escape_ascii());
    }
    let deep = b"*1\r\n".repeat(1000);
    assert!(Reply::read(&mut &deep[..]).is_err());
}
