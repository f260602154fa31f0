#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::*;
use crate::Nanos;
use crate::table::*;

fn bucket(per_second_: u64, burst: u64) -> TokenBucket {
    TokenBucket::new(per_second(per_second_), burst).unwrap()
}

#[test]
fn tb_1_burst_then_refill() {
    let rule = bucket(5, 10);
    let mut state = replay(
        &rule,
        &[
            (0, 1, ALLOW, 9, 200 * MS),
            (0, 1, ALLOW, 8, 400 * MS),
            (0, 1, ALLOW, 7, 600 * MS),
            (0, 1, ALLOW, 6, 800 * MS),
            (0, 1, ALLOW, 5, 1000 * MS),
            (0, 1, ALLOW, 4, 1200 * MS),
            (100 * MS, 1, ALLOW, 3, 1300 * MS),
            (200 * MS, 1, ALLOW, 3, 1400 * MS),
        ],
    );
    let mut variant = state;
    replay_on(&rule, &mut state, &[(1600 * MS, 0, ALLOW, 10, 0), (2000 * MS, 0, ALLOW, 10, 0)]);
    replay_on(
        &rule,
        &mut variant,
        &[
            (200 * MS, 1, ALLOW, 2, 1600 * MS),
            (200 * MS, 1, ALLOW, 1, 1800 * MS),
            (200 * MS, 1, ALLOW, 0, 2000 * MS),
            (200 * MS, 1, deny(200 * MS), 0, 2000 * MS),
        ],
    );
}

#[test]
fn tb_2_edge_of_the_refill() {
    let rule = bucket(5, 20);
    let mut state = Tat::default();
    assert_eq!(drain(&rule, &mut state, 0), 20);
    replay_on(
        &rule,
        &mut state,
        &[
            (0, 1, deny(200_000_000), 0, 4_000_000_000),
            (199_999_999, 1, deny(1), 0, ANY),
            (200_000_000, 1, ALLOW, 0, ANY),
        ],
    );
}

#[test]
fn tb_3_costs() {
    replay(
        &bucket(5, 10),
        &[
            (0, 7, ALLOW, 3, 1400 * MS),
            (0, 4, deny(200 * MS), 3, ANY),
            (0, 3, ALLOW, 0, 2 * S),
            (0, 11, NEVER, ANY, ANY),
            (0, 0, ALLOW, ANY, ANY),
            (800 * MS, 4, ALLOW, 0, ANY),
        ],
    );
}

#[test]
fn tb_4_conservation() {
    let rule = bucket(100, 600);
    let mut state = Tat::default();
    let first = drain(&rule, &mut state, 0);
    let later: u64 = (1..=10_000).map(|ms| drain(&rule, &mut state, ms * MS)).sum();
    assert_eq!(first + later, 1600);
}

#[test]
fn tb_5_long_idle() {
    let ten_years = 3652 * DAY;
    replay(&bucket(5, 10), &[(0, 1, ALLOW, 9, ANY), (ten_years, 1, ALLOW, 9, ANY)]);
    replay(&bucket(5, 10), &[(0, 1, ALLOW, 9, ANY), (1 << 62, 1, ALLOW, 9, 200 * MS)]);
}

#[test]
fn tb_6_clock_steps_back() {
    let rule = bucket(5, 10);
    let mut state = Tat::default();
    assert_eq!(drain(&rule, &mut state, 10 * S), 10);
    replay_on(
        &rule,
        &mut state,
        &[
            (9 * S, 1, deny(1_200_000_000), 0, 3 * S),
            (10 * S, 1, deny(200_000_000), 0, 2 * S),
            (10_200 * MS, 1, ALLOW, 0, ANY),
        ],
    );
}

#[test]
fn tb_7_one_per_month() {
    let month = 2_592_000_000_000_000;
    let rate = Rate::new(1, span(month)).unwrap();
    replay(
        &TokenBucket::new(rate, 1).unwrap(),
        &[
            (0, 1, ALLOW, 0, month),
            (1, 1, deny(2_591_999_999_999_999), 0, ANY),
            (month - 1, 1, deny(1), 0, ANY),
            (month, 1, ALLOW, 0, month),
        ],
    );
    // What is stored must stay readable with `now` at 2^62 too; burst 1779 is the largest that does.
    let largest = TokenBucket::new(rate, 1779).unwrap();
    replay(&largest, &[(1 << 62, 1779, ALLOW, 0, 1779 * month), (1 << 62, 1, deny(month), 0, ANY)]);
    let refused = RuleError::TooLarge { what: "burst", found: 1780, most: 1779 };
    assert_eq!(TokenBucket::new(rate, 1780), Err(refused));
    assert!(TokenBucket::new(rate, 3559).is_err());
}

#[test]
fn tb_8_ten_million_per_second() {
    let rule = bucket(10_000_000, 1000);
    let mut state = Tat::default();
    assert_eq!(drain(&rule, &mut state, 0), 1000);
    replay_on(
        &rule,
        &mut state,
        &[(0, 1, deny(100), 0, ANY), (99, 1, deny(1), 0, ANY), (100, 1, ALLOW, 0, ANY)],
    );
}

#[test]
fn tb_9_rate_that_does_not_divide() {
    for rate in [3, 7, 60, 7_000_000] {
        let rule = bucket(rate, 3);
        let mut state = Tat::default();
        assert_eq!(drain(&rule, &mut state, 0), 3);
        for k in 1..=3000_u64 {
            let due = (k * S).div_ceil(rate);
            replay_on(&rule, &mut state, &[(due - 1, 1, deny(1), 0, ANY), (due, 1, ALLOW, 0, ANY)]);
        }
    }
}

#[test]
fn tb_9_lateness_is_the_only_error_where_the_word_cannot_hold_the_rate() {
    // The error allowed is 1/64 ns a token: a share of 1/64 ns * rate of the time.
    for rate in [7777, 999_983, 9_999_991] {
        let rule = bucket(rate, 3);
        let mut state = Tat::default();
        assert_eq!(drain(&rule, &mut state, 0), 3);
        for k in 1..=3000_u64 {
            let due = (k * S).div_ceil(rate);
            let last = (k * S).div_ceil(rate) + k.div_ceil(64);
            let wait = retry(rule.test(&state, 1, at(0)));
            assert!((due..=last).contains(&wait.get()), "token {k} at {rate}/s comes at {wait:?}");
            rule.spend(&mut state, 1, at(wait.get()));
        }
    }
}

#[test]
fn tb_10_redis_cell_form() {
    // CL.THROTTLE k 15 30 60 1
    let rule = TokenBucket::new(Rate::new(30, Duration::from_secs(60)).unwrap(), 15 + 1).unwrap();
    assert_eq!(rule.capacity(), 16);
    let mut state = replay(&rule, &[(0, 1, ALLOW, 15, 2 * S)]);
    let fourteen = [(0, 1, ALLOW, ANY, ANY); 14];
    replay_on(&rule, &mut state, &fourteen);
    replay_on(&rule, &mut state, &[(0, 1, ALLOW, 0, 32 * S), (0, 1, deny(2 * S), 0, 32 * S)]);
}

#[test]
fn tb_11_retry_is_computed_from_the_new_tat() {
    replay(
        &bucket(5, 1),
        &[(0, 1, ALLOW, 0, 200 * MS), (0, 1, deny(200 * MS), 0, ANY), (150 * MS, 1, deny(50 * MS), 0, ANY)],
    );
}

#[test]
fn any_zero_of_the_clock_will_do() {
    // The word wraps at 2^64 thirds of a nanosecond, and the word 0 itself means "unused".
    for zero in [0, u64::MAX / 3 - 2 * S, u64::MAX / 3 * 2 - 1, u64::MAX - 3 * S] {
        let third = 333_333_334;
        let rule = bucket(3, 2);
        replay(
            &rule,
            &[
                (zero, 2, ALLOW, 0, 666_666_667),
                (zero, 1, deny(third), 0, ANY),
                (zero + third, 1, ALLOW, 0, ANY),
                (zero + 2 * S, 2, ALLOW, 0, ANY),
            ],
        );
    }
}

#[test]
fn nonsense_is_refused_with_what_would_be_right() {
    let second = Duration::from_secs(1);
    let errors = [
        Rate::new(0, second).map(|_| ()),
        Rate::new(1, Duration::ZERO).map(|_| ()),
        Rate::new(1, Duration::MAX).map(|_| ()),
        Rate::per_second(7_000_000_001).map(|_| ()),
        TokenBucket::new(per_second(1), 0).map(|_| ()),
        TokenBucket::new(per_second(1), u64::MAX).map(|_| ()),
        bucket(5, 10).require(11),
    ];
    let messages = errors.map(|error| error.unwrap_err().to_string());
    assert_eq!(
        messages,
        [
            "the rate is 0 tokens, so nothing could ever pass; give at least 1 token per period",
            "the rate's period is 0; give a period of at least 1 ns, such as 1 s",
            "the rate's period of 18446744073709551615.999999999s is too long; give at most 4611686018.427387904s (146 \
             years)",
            "the rate of 7000000001 tokens per 1s is faster than one token a nanosecond and cannot be kept \
             exactly; give at most 1000000000 tokens per second, or count in a larger unit",
            "the burst is 0, so nothing could ever pass; give at least 1",
            "the burst of 18446744073709551615 is too large; with the other numbers as they are, give at most 4611686018",
            "a cost of 11 can never pass: the limit holds 10 at most; raise the limit or lower the cost",
        ]
    );
}

#[test]
fn new_numbers_keep_the_tokens() {
    let old = bucket(100, 10);
    let cases = [
        // (spent at 0, new rule, remaining then, reset then)
        (4, bucket(100, 10), 6, 40 * MS),
        (4, bucket(50, 10), 6, 80 * MS), // half the rate: what is missing takes twice as long
        (4, bucket(100, 20), 6, 140 * MS), // a larger burst fills up from here
        (4, bucket(100, 5), 5, 0),       // a smaller one is full
        (10, bucket(1000, 20), 0, 20 * MS),
        (0, bucket(100, 20), 20, 0), // an unused key stays unused
    ];
    for (spent, new, remaining, reset) in cases {
        let mut state = Tat::default();
        let _ = old.decide(&mut state, spent, at(0));
        new.convert(&old, &mut state, at(0));
        let status = new.status(&state, at(0));
        assert_eq!(
            (status.remaining, status.reset_after),
            (remaining, Nanos::new(reset)),
            "{spent} spent, {new:?}"
        );
    }
}

#[test]
fn a_clock_that_stepped_back_is_no_debt_of_tokens() {
    // Drained at 10 s, converted with a clock that is behind: the key waits for the clock, then for a token.
    let (fast, slow) =
        (bucket(1_000_000, 10), TokenBucket::new(Rate::new(1, span(MIN)).unwrap(), 10).unwrap());
    for behind in [0, MS, 9 * S] {
        let mut state = Tat::default();
        assert_eq!(drain(&fast, &mut state, 10 * S), 10);
        slow.convert(&fast, &mut state, at(10 * S - behind));
        replay_on(&slow, &mut state, &[(10 * S, 1, deny(MIN), 0, 10 * MIN)]);
    }
}

#[test]
fn conversion_stays_within_the_word() {
    // However far the clock is behind, the key is not taken for unused.
    let (fast, slow) =
        (bucket(1_000_000_000, 1), TokenBucket::new(Rate::new(1, span(30 * DAY)).unwrap(), 1).unwrap());
    let mut state = Tat::default();
    let _ = fast.decide(&mut state, 1, at(1000 * S));
    slow.convert(&fast, &mut state, at(S));
    for now in [0, S - 1, S, 1000 * S] {
        assert!(!slow.test(&state, 1, at(now)).is_allowed(), "at {now}");
    }
}

#[test]
fn a_refund_puts_tokens_back_until_the_bucket_is_full() {
    let rule = bucket(5, 10);
    let mut state = replay(&rule, &[(0, 6, ALLOW, 4, 1200 * MS)]);
    assert_eq!(rule.refund(&mut state, 2, at(0), at(0)), 2);
    replay_on(&rule, &mut state, &[(0, 0, ALLOW, 6, 800 * MS)]);
    // At 500 ms 1.5 tokens are missing. All of them come back, told as 2.
    assert_eq!(rule.refund(&mut state, 4, at(0), at(500 * MS)), 2);
    assert_eq!(state, Tat::default());
    // Of a single token half has come back by itself, and the rest is given.
    replay_on(&rule, &mut state, &[(S, 1, ALLOW, 9, 200 * MS)]);
    assert_eq!(rule.refund(&mut state, 1, at(S), at(1100 * MS)), 1);
    assert_eq!(state, Tat::default());
}

#[test]
fn a_refund_that_the_refill_has_paid_gives_nothing() {
    let rule = bucket(5, 10);
    let state = replay(&rule, &[(0, 10, ALLOW, 0, 2 * S), (S, 5, ALLOW, 0, 2 * S)]);
    // (cost, charged, now, given)
    for (cost, charged, now, given) in [
        (3, 0, 2 * S - 1, 3),
        (3, 0, 2 * S, 0), // an empty bucket would have filled by now
        (3, S, 2 * S, 3),
        (0, S, 2 * S, 0),
        (11, S, 2 * S, 0),
        (u64::MAX, S, S, 0),
        (3, 0, u64::MAX, 0),
        (3, S, 3 * S, 0),
    ] {
        let mut refunded = state;
        assert_eq!(
            rule.refund(&mut refunded, cost, at(charged), at(now)),
            given,
            "{cost} of {charged} at {now}"
        );
        assert_eq!(refunded == state, given == 0, "{cost} of {charged} at {now}");
    }
}

#[test]
fn a_refund_with_a_clock_that_stepped_back_mints_nothing() {
    let rule = bucket(5, 10);
    let mut state = replay(&rule, &[(10 * S, 10, ALLOW, 0, 2 * S)]);
    assert_eq!(rule.refund(&mut state, 5, at(10 * S), at(9 * S)), 5);
    replay_on(&rule, &mut state, &[(9 * S, 1, deny(200 * MS), 0, 2 * S), (10 * S, 0, ALLOW, 5, S)]);
}

#[test]
fn a_refund_is_exact_where_the_rate_does_not_divide() {
    let rule = bucket(3, 3);
    let mut state = replay(&rule, &[(0, 3, ALLOW, 0, S)]);
    for _ in 0..1000 {
        assert_eq!(rule.refund(&mut state, 2, at(0), at(1)), 2);
        replay_on(&rule, &mut state, &[(1, 2, ALLOW, 0, S - 1), (1, 1, deny(333_333_333), 0, ANY)]);
    }
}
