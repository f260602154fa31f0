use std::collections::BTreeSet;
use std::time::Duration;

use crate::{
    AlgorithmKind, Align, BurstCredits, Concurrency, FixedWindow, LeakyBucket, MaxWait, Mode, Rate, Rule,
    RuleParts, SlidingCounter, SlidingLog, TokenBucket,
};

#[test]
fn every_rule_is_what_its_numbers_say() -> Result<(), crate::RuleError> {
    let mut kinds = BTreeSet::new();
    let (minute, wait) = (Duration::from_secs(60), Duration::from_millis(1));
    for tokens in [1, 3, 5, 64, 65, 997, 1_000_003] {
        let rate = Rate::per_second(tokens)?;
        let (token, leaky) = (TokenBucket::new(rate, 7)?, LeakyBucket::new(rate, 9)?);
        let counter = |buckets, mode| SlidingCounter::new(tokens, minute, buckets, mode);
        let rules: [Rule; 13] = [
            token.into(),
            token.keeping_arrival_time().into(),
            leaky.into(),
            MaxWait::new(token, wait, 3)?.into(),
            MaxWait::new(leaky, wait, 4)?.into(),
            FixedWindow::new(tokens, minute, Align::Epoch)?.into(),
            FixedWindow::new(tokens, minute, Align::First)?.counting_denied().into(),
            SlidingLog::new(tokens, minute)?.into(),
            counter(1, Mode::Interpolate)?.into(),
            counter(32, Mode::Strict)?.into(),
            BurstCredits::with_peak_burst(rate, Rate::per_second(2 * tokens)?, 100, 5)?.into(),
            Concurrency::new(tokens, Some(minute))?.into(),
            Concurrency::new(tokens, None)?.into(),
        ];
        for rule in rules {
            assert_eq!(Rule::from_parts(&rule.parts()), Ok(rule));
            assert_eq!(rule.parts().kind(), rule.kind());
            kinds.insert(rule.kind());
        }
    }
    assert!(AlgorithmKind::ALL.iter().eq(&kinds), "{kinds:?}");
    Ok(())
}

#[test]
fn numbers_that_make_no_rule_are_refused() -> Result<(), crate::RuleError> {
    let rule = Rule::from(TokenBucket::new(Rate::per_second(5)?, 7)?);
    let RuleParts::TokenBucket { bucket, .. } = rule.parts() else { panic!("of another kind") };
    for (interval, per_nano, capacity) in [(0, 1, 1), (1, 0, 1), (1, 65, 1), (1, 1, 0), (u64::MAX, 1, 2)] {
        let bucket = crate::BucketParts { interval, per_nano, capacity };
        assert!(Rule::from_parts(&RuleParts::LeakyBucket { bucket, waits: None }).is_err(), "{bucket:?}");
    }
    assert_eq!(
        Rule::from_parts(&RuleParts::TokenBucket { bucket, keeps_arrival_time: false, waits: None }),
        Ok(rule)
    );
    Ok(())
}
