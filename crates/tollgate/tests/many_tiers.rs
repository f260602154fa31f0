//! Ten thousand tiers, as a policy with a line for each customer has.

use tollgate::{Clock, KeyedLimiter, Numbers, Rate, Shed, Tier, TokenBucket};

const TIERS: u64 = 10_000;

fn numbers(burst: u64) -> Numbers {
    let rule = TokenBucket::new(Rate::per_hour(1).unwrap(), burst).unwrap();
    Numbers { rule: rule.into(), shed: Shed::Normal }
}

/// Looking for a free number anew for each of them would take half a minute here.
#[test]
fn ten_thousand_tiers_are_changed_in_one_step() {
    let limiter = KeyedLimiter::builder(numbers(1).rule).clock(Clock::manual()).build();
    let told: Vec<Numbers> = (0..TIERS).map(|i| numbers(1000 + i)).collect();
    let tiers = limiter.add_tiers(&told).unwrap();
    let ask = |i: usize| limiter.ask(&i).tier(tiers[i]);
    assert!((0..tiers.len()).all(|i| ask(i).check().is_allowed()));
    for round in 1..=20 {
        let change = |(i, tier): (u64, &Tier)| (&limiter, *tier, numbers(1000 + i + round));
        let changes: Vec<_> = (0..).zip(&tiers).map(change).collect();
        KeyedLimiter::set_tiers(&changes).unwrap();
    }
    // The tokens stay what they were, of more now.
    assert!((0..tiers.len()).all(|i| ask(i).peek().remaining == 999 + i as u64));
}
