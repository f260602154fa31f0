use std::time::Duration;

use tollgate::Clock;

use super::{CellNumbers, CellRequest, ThrottleError};
use crate::{Engine, Policy, SentRule};

fn engine() -> Engine {
    Engine::with_clock(Policy::default(), Clock::manual()).unwrap()
}

/// What `CL.THROTTLE` would answer: limited, remaining, retry and reset in milliseconds, -1 for none.
fn cell(
    engine: &Engine,
    key: &[u8],
    numbers: [u64; 3],
    quantity: u64,
) -> Result<(u8, u64, i64, u64), ThrottleError> {
    let [max_burst, count, period] = numbers;
    let request = CellRequest { key, numbers: CellNumbers { max_burst, count, period }, quantity };
    let mut answer = None;
    let requests = [request];
    engine.throttle_cells(&requests, engine.clock().now(), |decision| answer = Some(decision)).now().unwrap();
    let decision = answer.expect("one request has one decision")?;
    let ms = |wait: tollgate::Nanos| wait.get() / 1_000_000;
    let retry = decision.retry_after().map_or(-1, |wait| ms(wait).cast_signed());
    let status = decision.status;
    Ok((u8::from(!decision.is_allowed()), status.remaining, retry, ms(status.reset_after)))
}

#[test]
fn numbers_of_redis_cell_decide_as_redis_cell_does() {
    let engine = engine();
    // TB-10 of docs/vectors.md, and more of what redis-cell answers: the moment in ms, the quantity, the answer.
    let rows = [
        (0, 6, (1, 5, -1, 0)),
        (0, 1, (0, 4, -1, 1000)),
        (0, 1, (0, 3, -1, 2000)),
        (0, 1, (0, 2, -1, 3000)),
        (0, 1, (0, 1, -1, 4000)),
        (0, 1, (0, 0, -1, 5000)),
        (0, 1, (1, 0, 1000, 5000)),
        (0, 0, (0, 0, -1, 5000)),
        (3000, 1, (0, 2, -1, 3000)),
        (3100, 1, (0, 1, -1, 3900)),
    ];
    let mut now = 0;
    for (step, (at, quantity, expected)) in rows.into_iter().enumerate() {
        engine.clock().advance(Duration::from_millis(at - now));
        now = at;
        assert_eq!(cell(&engine, b"k", [4, 1, 1], quantity), Ok(expected), "row {step}");
    }
    for call in 1..=17 {
        let expected = if call < 17 { (0, 16 - call, -1, 2000 * call) } else { (1, 0, 2000, 32_000) };
        assert_eq!(cell(&engine, b"u", [15, 30, 60], 1), Ok(expected), "call {call}");
    }
}

#[test]
fn other_numbers_keep_the_arrival_time_of_a_cell() {
    let engine = engine();
    assert_eq!(cell(&engine, b"k", [4, 1, 1], 5), Ok((0, 0, -1, 5000)));
    assert_eq!(cell(&engine, b"k", [49, 1, 1], 0), Ok((0, 45, -1, 5000)));
    assert_eq!(cell(&engine, b"k", [1, 1, 1], 1), Ok((1, 0, 4000, 5000)));
    assert_eq!(cell(&engine, b"k", [9, 2, 1], 1), Ok((1, 0, 500, 5000))); // 10 tokens come in 5 seconds
    assert_eq!(cell(&engine, b"k", [10, 2, 1], 1), Ok((0, 0, -1, 5500)));
}

#[test]
fn a_look_makes_no_cell_and_its_keys_are_its_own() {
    let engine = engine();
    let now = engine.clock().now();
    assert_eq!(cell(&engine, b"\xff\x00", [4, 1, 1], 0), Ok((0, 5, -1, 0)));
    assert_eq!(engine.stats().keys, 0);
    let numbers = r#"{"rate":"1/s","burst":5}"#;
    let sent = SentRule { key: "k", algorithm: tollgate::AlgorithmKind::TokenBucket, numbers, cost: 5 };
    engine.throttle(&sent, now).now().unwrap().unwrap();
    assert_eq!(cell(&engine, b"k", [4, 1, 1], 1), Ok((0, 4, -1, 1000)));
    let reset = || engine.reset_cell(b"k").now().unwrap().unwrap();
    assert!(reset() && !reset());
    assert_eq!(engine.stats().keys, 1);
}

#[test]
fn cells_that_come_together_are_decided_in_order() {
    let engine = engine();
    let request = |key: &'static [u8], max_burst, quantity| {
        let numbers = CellNumbers { max_burst, count: 1, period: 1 };
        CellRequest { key, numbers, quantity }
    };
    // More than are fetched at once, of which some have no rule: none of those holds up another.
    let requests: Vec<_> = (0..40)
        .map(|i| match i % 4 {
            3 => request(b"none", u64::MAX, 1),
            place => request([b"a", b"b", b"c"][place], 4, 1),
        })
        .collect();
    for round in 0..2 {
        let mut left = Vec::new();
        engine
            .throttle_cells(&requests, engine.clock().now(), |decision| {
                left.push(decision.map(|decision| (decision.is_allowed(), decision.status.remaining)));
            })
            .now()
            .unwrap();
        assert_eq!(left.len(), requests.len());
        for (i, left) in left.into_iter().enumerate() {
            match (i % 4, i / 4, round) {
                (3, ..) => assert!(matches!(left, Err(ThrottleError::Rule(_))), "{i}: {left:?}"),
                (_, turn @ 0..5, 0) => assert_eq!(left, Ok((true, 4 - turn as u64)), "{i}"),
                _ => assert_eq!(left, Ok((false, 0)), "{i}"),
            }
        }
    }
}

#[test]
fn any_numbers_can_be_sent_and_those_that_make_no_sense_are_told() {
    let engine = engine();
    for max_burst in 0..10_000 {
        assert_eq!(cell(&engine, b"k", [max_burst, 1, 1], 0), Ok((0, max_burst + 1, -1, 0)));
        engine.clock().advance(Duration::from_millis(1));
    }
    let most = i64::MAX.cast_unsigned();
    for numbers in [[most, 1, 1], [0, 1, most], [0, most, 1], [0, 0, 1], [0, 1, 0], [u64::MAX, 1, 1]] {
        assert!(matches!(cell(&engine, b"k", numbers, 1), Err(ThrottleError::Rule(_))), "{numbers:?}");
    }
    assert_eq!(cell(&engine, b"k", [0, 3, 1], u64::MAX), Ok((1, 1, -1, 0)));
}
