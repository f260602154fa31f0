//! Ten thousand tiers, as a policy with a line for each customer has.

use tollgate::{Clock, KeyedLimiter, Numbers, Rate, Shed, Tier, TokenBucket};

const TIERS: u64 = 10_000;

fn numbers(burst: u64) -> Numbers {
    let rule = TokenBucket::new(Rate::per_hour(1).unwrap(), burst).unwrap();
    Numbers { rule: rule.into(), shed: Shed::Normal }
}

/// A step of its own for each of them, over all rules there are, would take half a minute here.
#[test]
fn ten_thousand_tiers_are_changed_in_one_step() {
    let limiter = KeyedLimiter::builder(numbers(1).rule).clock(Clock::manual()).build();
    let mut tiers: Vec<Tier> = (0..TIERS).map(|i| limiter.add_tier(numbers(1000 + i))).collect();
    assert!((0..tiers.len()).all(|i| limiter.ask(&i).tier(&tiers[i]).check().is_allowed()));
    for round in 1..=20 {
        let changes: Vec<_> =
            (0..).zip(&tiers).map(|(i, tier)| (&limiter, tier, numbers(1000 + i + round))).collect();
        KeyedLimiter::set_tiers(&changes);
    }
    // The tokens stay what they were, of more now.
    let remaining = |i: usize, tiers: &[Tier]| limiter.ask(&i).tier(&tiers[i]).peek().remaining;
    assert!((0..tiers.len()).all(|i| remaining(i, &tiers) == 999 + i as u64));
    // The same by handles that are published together.
    let changed = |(i, tier): (u64, &Tier)| limiter.with_numbers(tier, numbers(1020 + i));
    tiers = (0..).zip(&tiers).map(changed).collect();
    assert!((0..tiers.len()).all(|i| remaining(i, &tiers) == 999 + i as u64));
}

/// Rules are remembered only while keys have them: a hundred thousand different ones come and go.
#[test]
fn rules_that_were_sent_are_forgotten_with_their_keys() {
    let limiter = KeyedLimiter::builder(numbers(1).rule).clock(Clock::manual()).build();
    for round in 0..4 {
        for i in 0..25_000_u64 {
            let rule = TokenBucket::new(Rate::per_second(1).unwrap(), 2 + round * 25_000 + i).unwrap();
            let sent = limiter.request_rule(&(round, i), rule);
            assert!(limiter.ask(&(round, i)).rule(&sent).check().is_allowed());
        }
        assert!(limiter.stats().rules <= 30_000 + 64 * 64, "{:?}", limiter.stats());
        limiter.clock().advance(std::time::Duration::from_secs(3600));
    }
}
