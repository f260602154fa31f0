use super::LeakyQueue;
use crate::oracle::expected::{MS, S, deny, held, never, wait};
use crate::{Answer, Random};

#[test]
fn lq_1_a_queue_of_five_thousand() {
    let mut queue = LeakyQueue::new(3000, S, 5000);
    let rows = [
        (0, 4000, 0, 4000, 4000, 1_333_000_000),
        (S, 2500, 1000, 2500, 3500, 1_166_333_334),
        (2 * S, 3200, 500, 3200, 3700, 1_233_000_000),
        (3 * S, 6000, 700, 4300, 5000, 1_666_333_334),
    ];
    for (now, arrivals, before, accepted, after, delay) in rows {
        assert_eq!(5000 - queue.ask(now, 0).remaining, before, "before {now}");
        let answers: Vec<_> = (0..arrivals).map(|_| queue.ask(now, 1)).collect();
        let (allowed, denied): (Vec<Answer>, Vec<Answer>) = answers.iter().partition(|answer| answer.allowed);
        assert_eq!(allowed.len(), accepted, "accepted at {now}");
        assert_eq!(allowed.last().unwrap().delay, delay, "delay at {now}");
        assert!(denied.iter().all(|answer| wait(*answer) == 333_334), "retry at {now}");
        assert_eq!(5000 - queue.ask(now, 0).remaining, after, "after {now}");
    }
    assert_eq!(5000 - queue.ask(4 * S, 0).remaining, 2000);
}

#[test]
fn lq_2_fifty_at_once() {
    let mut queue = LeakyQueue::new(1, S, 50);
    for place in 0..50 {
        assert_eq!(queue.ask(0, 1), held(place * S, 49 - place, (place + 1) * S));
    }
    assert_eq!(queue.ask(0, 1), deny(S, 0, 50 * S));
    assert_eq!(queue.ask(0, 51), never(0, 50 * S));
}

#[test]
fn lq_2_a_deadline_denies_at_once() {
    let mut queue = LeakyQueue::new(1, S, 50);
    let answers: Vec<_> = (0..50).map(|_| queue.ask_within(0, 1, 10 * S)).collect();
    for (place, answer) in (0..).zip(&answers[..11]) {
        assert_eq!(*answer, held(place * S, 49 - place, (place + 1) * S));
    }
    assert!(answers[11..].iter().all(|answer| *answer == deny(S, 39, 11 * S)));
}

#[test]
fn lq_2_the_longer_of_the_two_waits_is_the_retry() {
    let mut queue = LeakyQueue::new(1, S, 5);
    assert!(queue.ask(0, 4).allowed);
    assert_eq!(wait(queue.ask_within(0, 5, S)), 4 * S);
    assert_eq!(wait(queue.ask_within(0, 1, S)), 3 * S);
}

#[test]
fn lq_3_releases_of_a_fractional_rate_do_not_drift() {
    let mut queue = LeakyQueue::new(3, S, 3000);
    let releases: Vec<_> = (0..3000).map(|_| queue.ask(0, 1).delay).collect();
    assert_eq!(releases[..4], [0, 333_333_334, 666_666_667, 1_000_000_000]);
    assert!((0..).zip(releases).all(|(place, release)| release == (place * S).div_ceil(3)));
}

#[test]
fn lq_3_spacing_whatever_the_arrivals() {
    let mut random = Random::new(3);
    let mut queue = LeakyQueue::new(7, 1000, 20);
    let (mut now, mut releases) = (0, Vec::new());
    for _ in 0..2000 {
        now += random.log_uniform(0, 400);
        let answer = queue.ask(now, 1);
        if answer.allowed {
            releases.push(now + answer.delay);
        }
    }
    for apart in [1, 2, 7, 50] {
        for pair in releases.windows(apart + 1) {
            assert!(pair[apart] - pair[0] >= apart as u64 * 1000 / 7, "{apart} apart: {pair:?}");
        }
    }
}

#[test]
fn a_clock_that_steps_back_finds_a_longer_queue() {
    let mut queue = LeakyQueue::new(1, S, 10);
    assert_eq!(queue.ask(10 * S, 2).delay, 0);
    assert_eq!(queue.ask(8 * S, 1), held(4 * S, 5, 5 * S));
    assert_eq!(queue.ask(10 * S, 1), held(3 * S, 6, 4 * S));
}

#[test]
fn max_wait_is_a_deadline_for_everybody() {
    let mut queue = LeakyQueue::new(1, S, 50).with_max_wait(2 * S, 100);
    let delays: Vec<_> = (0..3).map(|_| queue.ask(0, 1).delay).collect();
    assert_eq!(delays, [0, S, 2 * S]);
    assert_eq!(queue.ask(0, 1), deny(S, 0, 3 * S));
    // A caller's own deadline can only be stricter.
    assert_eq!(wait(queue.ask_within(0, 1, S)), 2 * S);
    assert_eq!(wait(queue.ask_within(0, 1, 9 * S)), S);
}

#[test]
fn max_waiting_leaves_room_when_the_first_is_released() {
    let mut queue = LeakyQueue::new(5, S, 50).with_max_wait(60 * S, 2);
    let delays: Vec<_> = (0..3).map(|_| queue.ask(0, 1).delay).collect();
    assert_eq!(delays, [0, 200 * MS, 400 * MS]);
    assert_eq!(wait(queue.ask(0, 1)), 200 * MS);
    assert_eq!(wait(queue.ask(200 * MS - 1, 1)), 1);
    assert_eq!(queue.ask(200 * MS, 1).delay, 400 * MS);
}

#[test]
fn what_remains_is_what_still_passes() {
    // Nine places of 100 ms: (max_wait, max_waiting, what remains of a new key and after each request)
    let rows: [(u64, u64, &[u64]); 5] = [
        (S, 1, &[2, 1, 0]),
        (250 * MS, 100, &[3, 2, 1, 0]), // turns at 0, 100 and 200 ms
        (200 * MS, 100, &[3, 2, 1, 0]),
        (200 * MS - 1, 100, &[2, 1, 0]),
        (S, 100, &[9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
    ];
    for (max_wait, max_waiting, remaining) in rows {
        let mut queue = LeakyQueue::new(10, S, 9).with_max_wait(max_wait, max_waiting);
        for left in remaining {
            let told = queue.would(0, 0).remaining;
            assert_eq!(told, *left, "of {max_waiting} within {max_wait}");
            assert_eq!(queue.ask(0, 1).allowed, told > 0, "of {max_waiting} within {max_wait}");
        }
    }
    // One request needs one place to wait in, whatever it costs; and none if it goes at once.
    let mut queue = LeakyQueue::new(10, S, 9).with_max_wait(S, 2);
    assert_eq!(queue.ask(0, 4), held(0, 2, 400 * MS));
    assert_eq!(queue.ask(0, 3), held(400 * MS, 1, 700 * MS));
    assert_eq!(queue.ask(400 * MS, 0).remaining, 2);
    assert_eq!(queue.ask(700 * MS, 0).remaining, 3);
}

#[test]
fn a_place_in_the_queue_is_not_given_back() {
    let mut queue = LeakyQueue::new(1, S, 3);
    assert_eq!(queue.ask(0, 2), held(0, 1, 2 * S));
    assert_eq!(queue.refund(0, 2, 0), 0);
    assert_eq!(queue.ask(0, 1), held(2 * S, 0, 3 * S));
}
