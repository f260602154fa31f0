//! A clock that steps back mints nothing, then or later.

use tollgate_core::{Nanos, PermitId, Timestamp};

use super::promises::on_any_trace;

#[test]
fn an_earlier_request_gains_nothing_then_or_later() {
    let mut admitted = 0_u64;
    let mut latest = Timestamp::default();
    on_any_trace(2000, |at, rule, state, cost, now| {
        latest = if at.contains("step 0:") { now } else { latest.max(now) };
        let span = rule.status(state, latest).reset_after.get();
        for back in [1, span / 3, span * 2] {
            let earlier = Timestamp::from_nanos(latest.as_nanos().saturating_sub(back));
            // It may deny more.
            if !rule.test(state, cost, earlier).is_allowed() {
                continue;
            }
            assert!(
                rule.test(state, cost, latest).is_allowed(),
                "{at}: passes {back} before {latest:?}, not then"
            );
            // What it took is missing ever after.
            let mut spent = state.clone();
            rule.spend(&mut spent, PermitId(0), cost, earlier);
            admitted += u64::from(cost > 0);
            for later in [0, span / 2, span, span * 2] {
                let later = latest.after(Nanos::new(later));
                let (with, without) = (rule.status(&spent, later), rule.status(state, later));
                assert!(with.remaining <= without.remaining, "{at}: {with:?} at {later:?}, else {without:?}");
            }
        }
    });
    assert!(admitted > 100_000, "{admitted}");
}
