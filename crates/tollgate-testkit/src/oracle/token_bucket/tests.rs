use super::TokenBucket;
use crate::Random;
use crate::oracle::expected::{MS, S, allow, deny, held, never, wait};

fn five_a_second(burst: u64) -> TokenBucket {
    TokenBucket::new(5, S, burst)
}

fn drained(tokens: u64, period: u64, burst: u64, now: u64) -> TokenBucket {
    let mut bucket = TokenBucket::new(tokens, period, burst);
    assert!(bucket.ask(now, burst).allowed);
    bucket
}

#[test]
fn tb_1_burst_then_refill() {
    let mut bucket = five_a_second(10);
    for spent in 1..=6 {
        assert_eq!(bucket.ask(0, 1), allow(10 - spent, spent * 200 * MS));
    }
    assert_eq!(bucket.ask(100 * MS, 1), allow(3, 1300 * MS));
    assert_eq!(bucket.ask(200 * MS, 1), allow(3, 1400 * MS));

    let mut busy = bucket.clone();
    for remaining in [2, 1, 0] {
        assert_eq!(busy.ask(200 * MS, 1), allow(remaining, 2000 * MS - remaining * 200 * MS));
    }
    assert_eq!(busy.ask(200 * MS, 1), deny(200 * MS, 0, 2 * S));

    assert_eq!(bucket.ask(1600 * MS, 0), allow(10, 0));
    assert_eq!(bucket.ask(2000 * MS, 0), allow(10, 0));
}

#[test]
fn tb_2_edge_of_the_refill() {
    let mut bucket = five_a_second(20);
    for _ in 0..20 {
        assert!(bucket.ask(0, 1).allowed);
    }
    assert_eq!(bucket.ask(0, 1), deny(200_000_000, 0, 4_000_000_000));
    assert_eq!(wait(bucket.ask(199_999_999, 1)), 1);
    assert!(bucket.ask(200_000_000, 1).allowed);
}

#[test]
fn tb_3_costs() {
    let mut bucket = five_a_second(10);
    assert_eq!(bucket.ask(0, 7), allow(3, 1400 * MS));
    assert_eq!(bucket.ask(0, 4), deny(200 * MS, 3, 1400 * MS));
    assert_eq!(bucket.ask(0, 3), allow(0, 2 * S));
    assert_eq!(bucket.ask(0, 11), never(0, 2 * S));
    assert_eq!(bucket.ask(0, 0), allow(0, 2 * S));
    assert_eq!(bucket.ask(800 * MS, 4), allow(0, 2 * S));
}

#[test]
fn tb_4_conservation() {
    let mut bucket = TokenBucket::new(100, S, 600);
    let (mut now, mut admitted) = (0, 0);
    while now <= 10 * S {
        let answer = bucket.ask(now, 1);
        if answer.allowed {
            admitted += 1;
        } else {
            now += wait(answer);
        }
    }
    assert_eq!(admitted, 1600);
}

#[test]
fn tb_4_no_interval_admits_more_than_burst_and_refill() {
    let mut random = Random::new(4);
    let mut bucket = TokenBucket::new(3, 1000, 5);
    let (mut now, mut admitted) = (0, Vec::new());
    for _ in 0..2000 {
        now += random.log_uniform(0, 1000);
        let cost = random.between(1, 5);
        if bucket.ask(now, cost).allowed {
            admitted.push((now, cost));
        }
    }
    for (first, (start, _)) in admitted.iter().enumerate() {
        let mut sum = 0;
        for (end, cost) in &admitted[first..] {
            sum += cost;
            assert!(sum <= 5 + (end - start) * 3 / 1000, "from {start} to {end}");
        }
    }
}

#[test]
fn tb_5_long_idle() {
    let mut bucket = five_a_second(10);
    assert!(bucket.ask(0, 1).allowed);
    let ten_years = 10 * 365 * 24 * 3600 * S;
    assert_eq!(bucket.ask(ten_years, 1), allow(9, 200 * MS));
    assert_eq!(bucket.ask(1 << 62, 1), allow(9, 200 * MS));
    assert_eq!(bucket.ask(1 << 62, 9), allow(0, 2 * S));
    assert_eq!(wait(bucket.ask(1 << 62, 10)), 2 * S);
}

#[test]
fn tb_6_clock_steps_back() {
    let mut bucket = drained(5, S, 10, 10 * S);
    assert_eq!(bucket.ask(9 * S, 1), deny(1_200_000_000, 0, 3 * S));
    assert_eq!(bucket.ask(10 * S, 1), deny(200_000_000, 0, 2 * S));
    assert!(bucket.ask(10_200 * MS, 1).allowed);
}

#[test]
fn tb_6_what_is_spent_in_the_past_is_missing_later() {
    let mut bucket = five_a_second(10);
    assert!(bucket.ask(10 * S, 1).allowed);
    // 9 tokens at 10 s are 4 at 9 s.
    assert_eq!(bucket.ask(9 * S, 4), allow(0, 2 * S));
    assert_eq!(bucket.ask(10 * S, 0), allow(5, S));
}

#[test]
fn tb_7_one_per_month() {
    let month = 2_592_000 * S;
    let mut bucket = TokenBucket::new(1, month, 1);
    assert_eq!(bucket.ask(0, 1), allow(0, 2_592_000_000_000_000));
    assert_eq!(wait(bucket.ask(1, 1)), 2_591_999_999_999_999);
    assert_eq!(wait(bucket.ask(month - 1, 1)), 1);
    assert!(bucket.ask(month, 1).allowed);
}

#[test]
fn tb_7_a_burst_beyond_the_word_is_exact() {
    let month = 2_592_000 * S;
    let mut bucket = drained(1, month, 4000, 1 << 62);
    assert_eq!(bucket.ask(1 << 62, 1), deny(month, 0, 4000 * month));
    assert!(!bucket.ask((1 << 62) + month - 1, 1).allowed);
    assert!(bucket.ask((1 << 62) + month, 1).allowed);
}

#[test]
fn tb_8_ten_million_per_second() {
    let mut bucket = TokenBucket::new(10_000_000, S, 1000);
    for _ in 0..1000 {
        assert!(bucket.ask(0, 1).allowed);
    }
    assert_eq!(wait(bucket.ask(0, 1)), 100);
    assert_eq!(wait(bucket.ask(99, 1)), 1);
    assert!(bucket.ask(100, 1).allowed);
}

#[test]
fn tb_9_rate_that_does_not_divide() {
    let mut bucket = drained(3, S, 3, 0);
    assert_eq!(wait(bucket.ask(333_333_333, 1)), 1);
    let mut times = Vec::new();
    for admission in 1..=3000u64 {
        let now = (admission * S).div_ceil(3);
        assert_eq!(wait(bucket.ask(now - 1, 1)), 1);
        assert!(bucket.ask(now, 1).allowed);
        times.push(now);
    }
    assert_eq!(times[..3], [333_333_334, 666_666_667, 1_000_000_000]);
    assert_eq!(times[2999], 1_000_000_000_000);
}

#[test]
fn tb_10_redis_cell_form() {
    let mut bucket = TokenBucket::new(30, 60 * S, 16);
    assert_eq!(bucket.ask(0, 1), allow(15, 2 * S));
    for _ in 2..16 {
        assert!(bucket.ask(0, 1).allowed);
    }
    assert_eq!(bucket.ask(0, 1), allow(0, 32 * S));
    assert_eq!(bucket.ask(0, 1), deny(2 * S, 0, 32 * S));
}

#[test]
fn tb_11_retry_counts_the_request_itself() {
    let mut bucket = five_a_second(1);
    assert!(bucket.ask(0, 1).allowed);
    assert_eq!(wait(bucket.ask(0, 1)), 200 * MS);
    assert_eq!(wait(bucket.ask(150 * MS, 1)), 50 * MS);
}

#[test]
fn would_changes_nothing_and_reports_the_unchanged_state() {
    let mut bucket = five_a_second(10);
    assert_eq!(bucket.would(0, 4), allow(10, 0));
    assert_eq!(bucket.ask(0, 4), allow(6, 800 * MS));
    assert_eq!(bucket.would(0, 7), deny(200 * MS, 6, 800 * MS));
}

#[test]
fn max_wait_holds_what_comes_in_time() {
    let mut bucket = five_a_second(2).with_max_wait(400 * MS, 100);
    assert_eq!(bucket.ask(0, 2), allow(0, 400 * MS));
    assert_eq!(bucket.ask(0, 1), held(200 * MS, 0, 600 * MS));
    assert_eq!(bucket.ask(0, 1), held(400 * MS, 0, 800 * MS));
    assert_eq!(bucket.ask(0, 1), deny(200 * MS, 0, 800 * MS));
    assert_eq!(bucket.ask(0, 3), never(0, 800 * MS));
    assert_eq!(bucket.ask(0, 0), allow(0, 800 * MS));
    assert_eq!(wait(bucket.ask(200 * MS - 1, 1)), 1);
    assert_eq!(bucket.ask(200 * MS, 1), held(400 * MS, 0, 800 * MS));
}

#[test]
fn max_waiting_counts_those_not_yet_released() {
    let mut bucket = five_a_second(1).with_max_wait(10 * S, 2);
    assert_eq!(bucket.ask(0, 1).delay, 0);
    assert_eq!(bucket.ask(0, 1).delay, 200 * MS);
    assert_eq!(bucket.ask(0, 1).delay, 400 * MS);
    assert_eq!(wait(bucket.ask(0, 1)), 200 * MS);
    assert_eq!(wait(bucket.ask(200 * MS - 1, 1)), 1);
    assert_eq!(bucket.ask(200 * MS, 1).delay, 400 * MS);
}

#[test]
fn max_waiting_zero_is_a_plain_bucket() {
    let mut bucket = five_a_second(1).with_max_wait(10 * S, 0);
    assert_eq!(bucket.ask(0, 1), allow(0, 200 * MS));
    assert_eq!(bucket.ask(0, 1), deny(200 * MS, 0, 200 * MS));
    assert_eq!(bucket.ask(200 * MS, 1), allow(0, 200 * MS));
}

#[test]
fn a_refund_puts_tokens_back_until_the_bucket_is_full() {
    let mut bucket = five_a_second(10);
    assert_eq!(bucket.ask(0, 6), allow(4, 1200 * MS));
    assert_eq!(bucket.refund(0, 2, 0), 2);
    assert_eq!(bucket.ask(0, 0), allow(6, 800 * MS));
    // At 500 ms 1.5 tokens are missing. All of them come back, told as 2.
    assert_eq!(bucket.refund(500 * MS, 4, 0), 2);
    assert_eq!(bucket.ask(500 * MS, 0), allow(10, 0));
    // As new, also for a clock that steps back.
    assert_eq!(bucket.ask(0, 0), allow(10, 0));
    assert_eq!(bucket.refund(500 * MS, 1, 0), 0);
}

#[test]
fn a_refund_that_the_refill_has_paid_gives_nothing() {
    let mut bucket = five_a_second(10);
    assert_eq!(bucket.ask(0, 10), allow(0, 2 * S));
    assert_eq!(bucket.ask(1000 * MS, 5), allow(0, 2 * S));
    assert_eq!(bucket.clone().refund(2 * S - 1, 3, 0), 3);
    assert_eq!(bucket.refund(2 * S, 3, 0), 0);
    assert_eq!(bucket.refund(2 * S, 11, S), 0);
    assert_eq!(bucket.refund(2 * S, 0, S), 0);
    assert_eq!(bucket.ask(2 * S, 0), allow(5, S));
}

#[test]
fn a_refund_by_a_clock_that_stepped_back_stays_on_the_same_line() {
    let mut bucket = drained(5, S, 10, 10 * S);
    assert_eq!(bucket.refund(9 * S, 5, 10 * S), 5);
    assert_eq!(bucket.ask(9 * S, 0), allow(0, 2 * S));
    assert_eq!(bucket.ask(10 * S, 0), allow(5, S));
}

#[test]
fn a_refund_moves_nobody_who_waits() {
    let mut bucket = five_a_second(2).with_max_wait(400 * MS, 1);
    assert_eq!(bucket.ask(0, 2), allow(0, 400 * MS));
    assert_eq!(bucket.ask(0, 1), held(200 * MS, 0, 600 * MS));
    assert_eq!(bucket.refund(200 * MS - 1, 1, 0), 0);
    assert_eq!(bucket.refund(200 * MS, 1, 0), 1);
    assert_eq!(bucket.ask(200 * MS, 1), allow(0, 400 * MS));
    // It has been let go: a clock that steps back does not find it waiting.
    assert_eq!(bucket.ask(100 * MS, 1), held(300 * MS, 0, 700 * MS));
}

#[test]
fn other_numbers_may_keep_the_time_until_it_is_full() {
    let mut bucket = drained(1, S, 5, 0);
    bucket.change_keeping_time(0, 1, S, 50);
    assert_eq!(bucket.ask(0, 0), allow(45, 5 * S));
    bucket.change_keeping_time(2 * S, 1, S, 2); // reaches further ahead than two tokens take
    assert_eq!(bucket.ask(2 * S, 1), deny(2 * S, 0, 3 * S));
    bucket.change_keeping_time(2 * S, 3, S, 9);
    assert_eq!(bucket.ask(2 * S, 0), allow(0, 3 * S));
    bucket.change_keeping_time(5 * S, 1, S, 7);
    assert_eq!(bucket.ask(5 * S, 0), allow(7, 0));
}
