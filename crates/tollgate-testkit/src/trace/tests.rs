use super::{HORIZON, Trace, rates};

#[test]
fn the_same_seed_gives_the_same_trace() {
    let trace = || Trace::new(3, 200, 10).take(1000);
    assert!(trace().eq(trace()));
    assert!(!trace().eq(Trace::new(4, 200, 10).take(1000)));
}

#[test]
fn everything_that_should_occur_does() {
    let (scale, capacity) = (1_000_000, 10);
    let steps: Vec<_> = Trace::new(1, scale, capacity).take(100_000).collect();
    let pairs = || steps.windows(2).map(|pair| (pair[0].now, pair[1].now));
    let year = 365 * 24 * 3600 * 1_000_000_000;
    assert!(pairs().filter(|(a, b)| a == b).count() > 10_000, "bursts at one instant");
    assert!(pairs().filter(|(a, b)| b > a && b - a <= 10).count() > 1000, "steps of a few ns");
    assert!(pairs().filter(|(a, b)| b > a && b - a == scale).count() > 1000, "steps of the scale");
    assert!(pairs().any(|(a, b)| b > a && b - a > year), "long idle");
    assert!(pairs().any(|(a, b)| a > b && a - b <= 10), "small steps back");
    assert!(pairs().any(|(a, b)| a > b && a - b > year), "large steps back");
    for cost in [0, 1, 2, capacity - 1, capacity, capacity + 1] {
        assert!(steps.iter().any(|step| step.cost == cost), "cost {cost}");
    }
    assert!(steps.iter().all(|step| step.now <= HORIZON));
}

#[test]
fn idle_gaps_keep_to_the_knob() {
    let steps: Vec<_> = Trace::new(1, 1000, 10).longest_idle(5000).take(100_000).collect();
    let returned = |a: u64, b: u64, latest: u64| b <= a + 5000 || b <= latest + 1;
    let mut latest = 0;
    for pair in steps.windows(2) {
        latest = latest.max(pair[0].now);
        assert!(returned(pair[0].now, pair[1].now, latest), "{pair:?}");
    }
}

#[test]
fn a_hint_is_taken_up_exactly_or_a_tick_before() {
    let mut trace = Trace::new(5, 1000, 10);
    let (mut exactly, mut before) = (0, 0);
    for _ in 0..1000 {
        let step = trace.next().unwrap();
        trace.hint(777_777);
        let next = trace.next().unwrap();
        exactly += u32::from(next.now == step.now + 777_777 && next.cost == step.cost);
        before += u32::from(next.now == step.now + 777_776 && next.cost == step.cost);
    }
    assert!(exactly > 200 && before > 200, "{exactly} {before}");
}

#[test]
fn a_million_steps_stay_below_the_horizon() {
    assert!(Trace::new(9, 1_000_000_000, 100).take(1_000_000).all(|step| step.now <= HORIZON));
}

#[test]
fn rates_lie_between_one_a_month_and_ten_million_a_second() {
    let second = 1_000_000_000u128;
    for (tokens, period) in rates(1).take(10_000) {
        assert!(tokens >= 1 && u128::from(period) <= 30 * 86_400 * second);
        assert!(u128::from(tokens) * second <= 10_000_000 * u128::from(period), "{tokens} per {period}");
    }
    assert!(rates(1).take(1000).any(|rate| rate == (9_999_991, 1_000_000_000)));
}
