use std::path::Path;

use futures_util::FutureExt as _;
use tollgate::{Clock, Nanos};
use tollgate_policy::{Engine, Policy, Request};

use super::*;

fn engine() -> Engine {
    let text = "limits: [{ name: in-flight, key: [user], concurrency: { limit: 100, lease: 1day } }]";
    let policy = Policy::read(Path::new("tollgate.yaml"), text).unwrap_or_else(|faults| panic!("{faults}"));
    Engine::with_clock(policy, Clock::manual()).unwrap()
}

fn permits(engine: &Engine, number: usize) -> Permits {
    let policy = engine.policy();
    let user = (number / 100).to_string();
    let request = Request { attributes: &[("user", &user)], cost: None };
    let verdict = policy.acquire(&request, engine.clock().now()).now().unwrap();
    verdict.unwrap_or_else(|error| panic!("{error}")).take_permits()
}

const fn second(second: u64) -> Timestamp {
    Timestamp::from_nanos(second * 1_000_000_000)
}

#[test]
fn permits_above_the_bound_are_refused_until_one_is_released() {
    let (engine, held) = (engine(), Held::with_most(3, None));
    let ids: Vec<String> = (0..3).map(|_| held.keep(permits(&engine, 0), None).unwrap()).collect();
    let refused = held.require_room().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "3 permits are held, which is the maximum: release some, or give the limit a `lease`"
    );
    assert_eq!(held.keep(permits(&engine, 0), None), Err(refused));
    assert_eq!((held.counts().held(), held.counts().refused()), (3, 2));
    assert_eq!(held.release(&ids[1]).now_or_never(), Some(Ok(true)));
    assert_eq!(held.release(&ids[1]).now_or_never(), Some(Ok(false)));
    assert_eq!(held.require_room(), Ok(()));
    held.keep(permits(&engine, 0), None).unwrap();
    assert_eq!((held.counts().held(), held.counts().refused()), (3, 2));
}

/// More leases than are forgotten under one lock end at once, and some were released before.
#[test]
fn permits_are_forgotten_when_their_lease_has_ended() {
    let (engine, held) = (engine(), Held::new(None));
    let many = 2 * TABLES * FORGET_AT_ONCE;
    for number in 0..many {
        let until = (number % 4 != 0).then(|| second(1 + number as u64 % 4));
        let id = held.keep(permits(&engine, number), until).unwrap();
        if number % 8 == 1 {
            assert_eq!(held.release(&id).now_or_never(), Some(Ok(true)));
        }
    }
    let left = |now: Timestamp| {
        held.forget_ended(now);
        let tables = held.tables.iter().map(|table| table.lock());
        let (kept, ends) =
            tables.fold((0, 0), |(kept, ends), table| (kept + table.permits.len(), ends + table.ends.len()));
        assert_eq!(kept, held.counts().held());
        (kept, ends)
    };
    // A quarter has no lease. Half of those with a lease of two seconds were released.
    let eighth = many / 8;
    assert_eq!(left(second(1)), (7 * eighth, 5 * eighth));
    assert_eq!(left(second(2)), (6 * eighth, 4 * eighth));
    assert_eq!(left(second(3)), (4 * eighth, 2 * eighth));
    assert_eq!(left(second(4).after(Nanos::new(1))), (2 * eighth, 0));
}
