//! The controllers, the multiplier and the virtual clock against their oracles.

use std::time::Duration;

use tollgate_core::adaptive::{
    Aimd, Bounds, Controller, Gradient2, Load, Pace, RateMultiplier, Sample, Vegas, VirtualClock,
};
use tollgate_core::{Nanos, Timestamp};
use tollgate_testkit::oracle::adaptive::{self as oracle, fraction};
use tollgate_testkit::{BigRational, Random};

/// Steps that each controller is compared on.
fn steps() -> u64 {
    1_000_000 * tollgate_testkit::effort()
}

/// Calm and busy times take turns, so that limits grow to where their steps do, and fall again.
fn sample(random: &mut Random, step: u64, limit: u64) -> Sample {
    let longest = if (step / 1000).is_multiple_of(2) { 10_300_000 } else { 50_000_000 };
    let rtt = Duration::from_nanos(random.between(10_000_000, longest));
    Sample { rtt, in_flight: random.between(0, limit + 1), dropped: random.chance(1, 50) }
}

/// The whole of a fraction.
fn whole(limit: &BigRational) -> u64 {
    limit.to_integer().try_into().unwrap_or(0)
}

#[test]
fn aimd_equals_its_oracle() {
    let mut random = Random::new(1);
    let mut aimd = Aimd::new(20, Bounds::new(1, 1000).unwrap(), 900, Duration::from_secs(5)).unwrap();
    for i in 0..steps() {
        let limit = aimd.limit();
        let sample = sample(&mut random, i, limit);
        aimd.observe(sample);
        let expected = oracle::aimd(&fraction(limit, 1), sample.in_flight, sample.dropped);
        assert_eq!(aimd.limit(), whole(&expected).clamp(1, 1000), "step {i}: {limit} after {sample:?}");
    }
}

#[test]
fn vegas_equals_its_oracle() {
    let mut random = Random::new(2);
    let mut vegas = Vegas::new(20, Bounds::new(1, 1000).unwrap(), 7);
    let mut large = 0;
    for i in 0..steps() {
        let (limit, no_load) = (vegas.limit(), vegas.no_load());
        large += u64::from(limit >= 100);
        let sample = sample(&mut random, i, limit);
        vegas.observe(sample);
        let rtt = sample.rtt.as_nanos() as u64;
        let expected = match no_load {
            Some(no_load) if no_load <= rtt || sample.dropped => {
                let next = oracle::vegas(&fraction(limit, 1), no_load, rtt, sample.in_flight, sample.dropped);
                whole(&next).clamp(1, 1000)
            }
            _ => limit, // a new no-load time moves nothing
        };
        assert_eq!(vegas.limit(), expected, "step {i}: {limit} after {sample:?}, no load {no_load:?}");
    }
    assert!((steps() / 10..steps() / 10 * 9).contains(&large), "{large} steps at 100 or more");
}

/// The long average as `gradient2.rs` describes it, in floating point.
#[derive(Default)]
struct Usual {
    average: f64,
    calm: f64,
    seen: f64,
    slow_for: u32,
}

impl Usual {
    fn learn(&mut self, sample: f64) -> f64 {
        if self.seen < 10.0 {
            self.seen += 1.0;
            self.average += (sample - self.average) / self.seen;
        } else {
            let calm = self.average / sample >= 0.9;
            let next = self.average + (sample - self.average) * 2.0 / 601.0;
            self.slow_for = if calm { 0 } else { self.slow_for + 1 };
            if calm {
                self.average = if next > 2.0 * sample { next * 0.9 } else { next };
            } else if self.slow_for > 600 {
                self.average = next.min(2.0 * self.calm);
                if self.average < 2.0 * self.calm {
                    return self.average;
                }
                self.slow_for = 0;
            } else {
                return self.average;
            }
        }
        self.calm = self.average;
        self.average
    }
}

#[test]
fn gradient2_equals_its_oracle() {
    let mut random = Random::new(3);
    let mut usual = Usual::default();
    let mut gradient = Gradient2::new(100, Bounds::new(8, 500).unwrap());
    let mut base = 10_000_000;
    for i in 0..steps() {
        if random.chance(1, 5000) {
            base = random.log_uniform(1_000_000, 100_000_000);
        }
        let rtt = random.between(base / 10 * 9, base / 10 * 11);
        let limit = gradient.limit_units();
        let in_flight = random.between(0, limit / 1024);
        gradient.observe(Sample { rtt: Duration::from_nanos(rtt), in_flight, dropped: false });
        // The average is kept in floating point here, to a thousandth of a nanosecond; the step is exact.
        let thousandths = |nanos: f64| BigRational::from_float((nanos * 1024.0).round() / 1024.0).unwrap();
        let long = thousandths(usual.learn(rtt as f64));
        let expected = oracle::gradient2(&fraction(limit, 1024), &long, &fraction(rtt, 1), in_flight);
        let expected = whole(&(expected * fraction(1024, 1))).clamp(8 * 1024, 500 * 1024);
        let found = gradient.limit_units();
        assert!(found.abs_diff(expected) <= 2, "step {i}: {found} for {expected}, in 1/1024");
    }
}

#[test]
fn multiplier_and_virtual_clock_equal_their_oracles() {
    for seed in 0..100 * tollgate_testkit::effort() {
        let mut random = Random::new(seed);
        let shed = random.below(3) as u8;
        let mut multiplier = RateMultiplier::new(100).unwrap();
        let mut exact = oracle::RateMultiplier::new(fraction(1, 10));
        let mut clock = VirtualClock::default();
        // V in 10^-9 ns, and the pace in 10^-9, summed up step by step.
        let (mut now, mut shown, mut pace) = (0_u64, 0_u128, 1_000_000_000_u128);
        for i in 0..10_000 {
            let at = format!("seed {seed}, step {i}");
            let passed = random.log_uniform(0, 1_000_000_000);
            now += passed;
            shown += u128::from(passed) * pace;
            assert_eq!(
                u128::from(clock.at(Timestamp::from_nanos(now)).as_nanos()),
                shown / 1_000_000_000,
                "{at}"
            );
            let wait = random.log_uniform(0, 1_000_000_000);
            let real = clock.real_wait(Timestamp::from_nanos(now), Nanos::new(wait)).get();
            let target = u128::from(clock.at(Timestamp::from_nanos(now)).as_nanos()) + u128::from(wait);
            let shows = |wait: u64| (shown + u128::from(wait) * pace) / 1_000_000_000;
            assert!(shows(real) >= target, "{at}: {wait} in {real}");
            assert!(real == 0 || shows(real - 1) < target, "{at}: {wait} in {real}");
            if random.chance(1, 3) {
                let (load, same) = *random.pick(&[
                    (Load::High, oracle::Load::High),
                    (Load::Between, oracle::Load::Between),
                    (Load::Low, oracle::Load::Low),
                ]);
                multiplier.observe(load);
                // The oracle's fractions grow without end, so it is started again from time to time.
                if i % 100 == 0 {
                    multiplier = RateMultiplier::new(100).unwrap();
                    exact = oracle::RateMultiplier::new(fraction(1, 10));
                } else {
                    exact.step(now, same);
                }
                let of_shed = multiplier.pace_of(shed);
                clock.set_pace(Timestamp::from_nanos(now), of_shed);
                pace = of_shed.billionths().into();
                let due = exact.factor(shed.into());
                let apart = fraction(pace.try_into().unwrap(), 1_000_000_000) - due;
                let apart = if apart < fraction(0, 1) { -apart } else { apart };
                assert!(apart < fraction(1, 10_000_000), "{at}: {of_shed:?}");
                assert!(of_shed <= Pace::FULL);
            }
        }
    }
}
