use super::*;

fn word(text: &str) -> Value {
    Value::BulkString(text.into())
}

fn asked() -> Address {
    Address { host: "10.0.0.9".into(), port: 7000 }
}

fn node(role: &str, health: &str, endpoint: Value, port: i64) -> Value {
    Value::Array(vec![
        word("port"),
        Value::Int(port),
        word("tls-port"),
        Value::Int(port + 1),
        word("endpoint"),
        endpoint,
        word("role"),
        word(role),
        word("health"),
        word(health),
    ])
}

fn shard(slots: &[i64], nodes: Vec<Value>) -> Value {
    let slots = slots.iter().map(|&slot| Value::Int(slot)).collect();
    Value::Array(vec![word("slots"), Value::Array(slots), word("nodes"), Value::Array(nodes)])
}

fn told(servers: &[(&str, u16)], ranges: &[(usize, usize, usize)]) -> Told {
    Told {
        servers: servers.iter().map(|&(host, port)| Address { host: host.into(), port }).collect(),
        ranges: ranges.iter().map(|&(first, last, owner)| Range { first, last, owner }).collect(),
    }
}

#[test]
fn of_two_primaries_the_one_that_lives_has_the_slots() {
    let answer = Value::Array(vec![
        shard(
            &[0, 99, 200, 299],
            vec![
                node("master", "fail", word("10.0.0.1"), 7001),
                node("master", "online", word("10.0.0.2"), 7002),
                node("replica", "online", word("10.0.0.3"), 7003),
            ],
        ),
        shard(&[], vec![node("master", "online", Value::Nil, 7004)]),
        shard(&[], vec![node("master", "fail", word("10.0.0.6"), 7006)]),
        shard(&[100, 199], vec![node("master", "online", word("?"), 7005)]),
    ]);
    let expected = told(&[("10.0.0.2", 7002), ("10.0.0.9", 7004)], &[(0, 99, 0), (200, 299, 0)]);
    assert_eq!(read_shards(&answer, &asked(), false), Some(expected));
    let expected = told(&[("10.0.0.2", 7003), ("10.0.0.9", 7005)], &[(0, 99, 0), (200, 299, 0)]);
    assert_eq!(read_shards(&answer, &asked(), true), Some(expected));
}

#[test]
fn the_older_question_gives_the_same_map() {
    let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), word("id")]);
    let range = |first, last, nodes: Vec<Value>| {
        Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
    };
    let answer = Value::Array(vec![
        range(0, 5460, vec![node(word("10.0.0.1"), 7001), node(word("10.0.0.2"), 7002)]),
        range(5461, 16383, vec![node(Value::Nil, 7003)]),
        range(5461, 5461, vec![node(word("10.0.0.1"), 7001)]),
    ]);
    let expected =
        told(&[("10.0.0.1", 7001), ("10.0.0.9", 7003)], &[(0, 5460, 0), (5461, 16383, 1), (5461, 5461, 0)]);
    assert_eq!(read_slots(&answer, &asked()), Some(expected));
}

#[test]
fn a_map_beyond_the_slots_is_refused() {
    for (first, last) in [(0, 16384), (5, 4), (-1, 3)] {
        let answer = Value::Array(vec![shard(&[first, last], vec![node("master", "online", word("a"), 1)])]);
        assert_eq!(read_shards(&answer, &asked(), false), None, "{first} {last}");
    }
    assert_eq!(read_shards(&Value::Nil, &asked(), false), None);
}
