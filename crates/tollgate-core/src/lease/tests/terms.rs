//! Which rules can be leased.

use super::*;

#[test]
fn terms_name_the_rules_that_can_be_leased() {
    let sync = Nanos::new(100 * MS);
    let terms = |rule: Rule| rule.lease_terms(sync).map(|terms| (terms.most_held(), terms.most_excess(3)));
    let rate = Rate::per_second(1000).unwrap();
    assert_eq!(terms(bucket(1000, 1000)), Ok((500, 500)));
    assert_eq!(terms(bucket(1000, 100)), Ok((50, 150)));
    assert_eq!(terms(bucket(1000, 15)), Err(NoLease::Burst { found: 15, least: 16 }));
    assert_eq!(terms(credits()), Ok((100, 50)));
    assert_eq!(terms(window(1000, S)), Ok((500, 0)));
    let least = Nanos::new(500 * MS);
    assert_eq!(terms(window(9, 499 * MS)), Err(NoLease::Window { found: Nanos::new(499 * MS), least }));
    assert_eq!(terms(counter(9, 2 * S, 4, Mode::Strict)), Ok((4, 0)));
    let found = Nanos::new(400 * MS);
    assert_eq!(terms(counter(9, 2 * S, 5, Mode::Strict)), Err(NoLease::Window { found, least }));
    let counting = FixedWindow::new(9, Duration::from_secs(9), Align::Epoch).unwrap().counting_denied();
    assert_eq!(terms(counting.into()), Err(NoLease::CountsDenied));
    let log = SlidingLog::new(9, Duration::from_secs(1)).unwrap();
    assert_eq!(terms(log.into()), Err(NoLease::Algorithm(AlgorithmKind::SlidingLog)));
    assert_eq!(
        terms(LeakyBucket::new(rate, 100).unwrap().into()),
        Err(NoLease::Algorithm(AlgorithmKind::LeakyBucket))
    );
    assert_eq!(
        terms(Concurrency::new(100, None).unwrap().into()),
        Err(NoLease::Algorithm(AlgorithmKind::Concurrency))
    );
    let waits = MaxWait::new(TokenBucket::new(rate, 100).unwrap(), Duration::from_secs(1), 10).unwrap();
    assert_eq!(terms(waits.into()), Err(NoLease::MaxWait));
}
