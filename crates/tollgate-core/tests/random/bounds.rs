//! Never above the promised bound, in any window.

use std::time::Duration;

use tollgate_core::{
    Algorithm, Align, BurstCredits, FixedWindow, LeakyBucket, Mode, Outcome, Rate, SlidingCounter,
    SlidingLog, Timestamp, TokenBucket,
};
use tollgate_testkit::{Random, Trace};

/// Runs a trace whose clock never steps back: when how much was let go.
fn admitted<A: Algorithm>(rule: &A, seed: u64, scale: u64) -> Vec<(u64, u64)> {
    let mut trace = Trace::new(seed, scale, rule.capacity()).longest_idle(scale.saturating_mul(1000));
    let mut state = A::State::default();
    let (mut latest, mut admitted) = (0, Vec::new());
    for _ in 0..2000 {
        let step = trace.next().unwrap();
        latest = step.now.max(latest);
        match rule.decide(&mut state, step.cost, Timestamp::from_nanos(latest)).outcome {
            Outcome::Allow { delay } if step.cost > 0 => admitted.push((latest + delay.get(), step.cost)),
            Outcome::Allow { .. } => {}
            Outcome::Deny { retry: tollgate_core::Retry::After(wait) } => trace.hint(wait.get()),
            Outcome::Deny { .. } => {}
        }
    }
    admitted
}

/// The most let go in any span `(t - window, t]`.
pub(crate) fn most_in(admitted: &[(u64, u64)], window: u64) -> u64 {
    let (mut oldest, mut inside, mut most) = (0, 0, 0);
    for &(time, cost) in admitted {
        inside += cost;
        while admitted[oldest].0 + window <= time {
            inside -= admitted[oldest].1;
            oldest += 1;
        }
        most = most.max(inside);
    }
    most
}

pub(crate) fn numbers(seed: u64) -> (u64, u64, Random) {
    let mut random = Random::new(seed);
    (random.log_uniform(1, 60), random.log_uniform(10, 100_000_000_000), random)
}

pub(crate) fn runs() -> std::ops::Range<u64> {
    0..500 * tollgate_testkit::effort()
}

/// In every interval, from one admission to another, at most `burst + floor(d * rate)`.
fn within_rate(admitted: &[(u64, u64)], tokens: u64, period: u64, burst: u64, seed: u64) {
    for (first, &(start, _)) in admitted.iter().enumerate() {
        let mut sum = 0;
        for &(end, cost) in admitted[first..].iter().take(200) {
            sum += cost;
            let most = burst + (u128::from(end - start) * u128::from(tokens) / u128::from(period)) as u64;
            assert!(sum <= most, "seed {seed}: {sum} from {start} to {end}, at most {most}");
        }
    }
}

#[test]
fn tb_4_token_bucket_conserves_in_every_interval() {
    for seed in runs() {
        let (burst, period, mut random) = numbers(seed);
        let tokens = random.log_uniform(1, period.min(1000));
        let rule = TokenBucket::new(Rate::new(tokens, Duration::from_nanos(period)).unwrap(), burst).unwrap();
        within_rate(&admitted(&rule, seed, period / tokens), tokens, period, burst, seed);
    }
}

#[test]
fn burst_credits_keep_to_both_rates() {
    for seed in runs() {
        let (credits, period, mut random) = numbers(seed);
        let tokens = random.log_uniform(1, (period / 7).min(100));
        let (peak, peak_burst) = (tokens * 7, random.between(1, 20));
        let rate = |tokens| Rate::new(tokens, Duration::from_nanos(period)).unwrap();
        let Ok(rule) = BurstCredits::with_peak_burst(rate(tokens), rate(peak), credits, peak_burst) else {
            continue;
        };
        let admitted = admitted(&rule, seed, period / tokens);
        within_rate(&admitted, tokens, period, credits, seed);
        within_rate(&admitted, peak, period, peak_burst, seed);
    }
}

#[test]
fn lq_3_leaky_bucket_spaces_its_releases() {
    for seed in runs() {
        let (capacity, period, mut random) = numbers(seed);
        let tokens = random.log_uniform(1, period.min(1000));
        let rule =
            LeakyBucket::new(Rate::new(tokens, Duration::from_nanos(period)).unwrap(), capacity).unwrap();
        let released = admitted(&rule, seed, period / tokens);
        for (first, &(start, _)) in released.iter().enumerate() {
            let mut before = 0;
            for pair in released[first..].windows(2).take(100) {
                before += pair[0].1;
                let closest = u128::from(before) * u128::from(period) / u128::from(tokens);
                assert!(
                    u128::from(pair[1].0 - start) >= closest,
                    "seed {seed}: {before} from {start} to {:?}",
                    pair[1]
                );
            }
        }
    }
}

/// What a window lets through, by when it was charged: all of it, or what is kept of it.
pub(crate) trait Through {
    fn of<A: Algorithm>(rule: &A, seed: u64, scale: u64) -> Vec<(u64, u64)>;
}

/// All that was admitted.
struct Admitted;

impl Through for Admitted {
    fn of<A: Algorithm>(rule: &A, seed: u64, scale: u64) -> Vec<(u64, u64)> {
        admitted(rule, seed, scale)
    }
}

pub(crate) fn fixed_window_bound<T: Through>() {
    for seed in runs() {
        let (limit, window, mut random) = numbers(seed);
        let align = *random.pick(&[Align::Epoch, Align::First]);
        let rule = FixedWindow::new(limit, Duration::from_nanos(window), align).unwrap();
        let through = T::of(&rule, seed, window);
        assert!(most_in(&through, window) <= 2 * limit, "seed {seed}");
        if align == Align::Epoch {
            let mut by_window = std::collections::BTreeMap::<u64, u64>::new();
            through.iter().for_each(|(time, cost)| *by_window.entry(time / window).or_default() += cost);
            assert!(by_window.values().all(|used| *used <= limit), "seed {seed}");
        }
    }
}

pub(crate) fn sliding_log_bound<T: Through>() {
    for seed in runs() {
        let (limit, window, _) = numbers(seed);
        let rule = SlidingLog::new(limit, Duration::from_nanos(window)).unwrap();
        assert!(most_in(&T::of(&rule, seed, window / limit), window) <= limit, "seed {seed}");
    }
}

pub(crate) fn sliding_counter_bound<T: Through>() {
    for seed in runs() {
        let (limit, window, mut random) = numbers(seed);
        let buckets = *random.pick(&[1, 2, 4, 10]);
        for mode in [Mode::Interpolate, Mode::Strict, Mode::Lenient] {
            let rule = SlidingCounter::new(limit, Duration::from_nanos(window), buckets, mode).unwrap();
            let through = T::of(&rule, seed, window / limit);
            let most = most_in(&through, window);
            let bound = match mode {
                Mode::Strict => limit,
                Mode::Interpolate => 2 * limit - 1, // at least the limit, which is not 0
                Mode::Lenient => 2 * limit,
            };
            assert!(most <= bound, "seed {seed}, {rule:?}: {most}");
            // What more sub-windows buy: the limit itself, in any span of all of them but one.
            let shorter = window - window.div_ceil(buckets.into());
            if shorter > 0 {
                assert!(most_in(&through, shorter) <= limit, "seed {seed}, {rule:?}");
            }
        }
    }
}

#[test]
fn fixed_window_lets_at_most_twice_the_limit_through() {
    fixed_window_bound::<Admitted>();
}

#[test]
fn sl_5_sliding_log_is_never_above_the_limit() {
    sliding_log_bound::<Admitted>();
}

#[test]
fn sc_5_sliding_counter_keeps_the_bound_of_its_mode() {
    sliding_counter_bound::<Admitted>();
}
