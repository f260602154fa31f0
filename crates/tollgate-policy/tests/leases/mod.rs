//! Limits that the engine decides by grants, in virtual time.

mod random;
mod store;

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate::{Clock, Nanos};
use tollgate_core::State;
use tollgate_policy::{Answer, Engine, LeaseStats, Policy, Request, Source, Verdict};
use tollgate_testkit::Counting;

use self::store::{DEADLINE, GrantStore};

const MS: Nanos = Nanos::new(1_000_000);

/// An engine beside its store.
struct Node {
    engine: Arc<Engine>,
    store: Arc<GrantStore>,
    clock: Clock,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Got {
    is_allowed: bool,
    source: Source,
}

fn got(verdict: &Verdict<'_>) -> Got {
    Got { is_allowed: verdict.is_allowed(), source: verdict.source() }
}

fn policy(limits: &str) -> Policy {
    policy_of("mode: lease, on_error: deny", limits)
}

fn policy_of(store: &str, limits: &str) -> Policy {
    let text = format!("store: {{ redis: {{ url: 'redis://127.0.0.1:1', {store} }} }}\nlimits:\n{limits}");
    Policy::read(Path::new("tollgate.yaml"), &text).unwrap_or_else(|faults| panic!("{faults}"))
}

impl Node {
    fn new(limits: &str) -> Self {
        Self::with(policy(limits))
    }

    fn with(policy: Policy) -> Self {
        let clock = Clock::manual();
        clock.advance(Nanos::new(10_000_000_000));
        let store = GrantStore::new(clock.clone());
        let engine = Engine::with_store(policy, clock.clone(), Arc::<GrantStore>::clone(&store)).unwrap();
        Self { engine: Arc::new(engine), store, clock }
    }

    fn advance(&self, span: Nanos) {
        self.clock.advance(span);
        self.store.run();
    }

    /// Begins a request. A request that is decided at once has an answer.
    fn begin(&self, path: &'static str) -> Result<Got, Waiting> {
        self.begin_at_cost(path, None)
    }

    fn request(&self, path: &'static str, cost: Option<u64>) -> Waiting {
        let engine = Arc::clone(&self.engine);
        let now = self.clock.now();
        let attributes: &'static [(&str, &str)] =
            Box::leak(Box::new([("path", path), ("user", "u"), ("tenant", "t")]));
        Box::pin(async move {
            let policy = engine.policy();
            let answer = policy.check(&Request { attributes, cost }, now);
            let is_now = matches!(answer, Answer::Now(_));
            let verdict = answer.wait().await.unwrap();
            (got(&verdict), is_now)
        })
    }

    fn begin_at_cost(&self, path: &'static str, cost: Option<u64>) -> Result<Got, Waiting> {
        let mut waiting = self.request(path, cost);
        match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready((got, is_now)) => {
                assert!(is_now || got.source != Source::Lease, "grants decide without a future");
                Ok(got)
            }
            Poll::Pending => Err(waiting),
        }
    }

    /// Decides a request, and runs the store meanwhile.
    fn check(&self, path: &'static str) -> Got {
        match self.begin(path) {
            Ok(got) => {
                self.store.run();
                got
            }
            Err(waiting) => self.finish(waiting),
        }
    }

    fn finish(&self, mut waiting: Waiting) -> Got {
        for _ in 0..100 {
            self.store.run();
            if let Poll::Ready((got, _)) = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                self.store.run();
                return got;
            }
        }
        panic!("the request waits for ever");
    }

    /// Sends requests until grants decide them.
    fn warm(&self, path: &'static str) {
        for _ in 0..200 {
            if self.check(path) == BY_GRANT {
                return;
            }
        }
        panic!("{path} is not decided by grants");
    }

    fn reset(&self, limit: &str, key: (&str, &str)) {
        let (policy, key) = (self.engine.policy(), [key]);
        let mut reset = Box::pin(policy.reset(limit, &key).wait());
        let answer = reset.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(answer, Poll::Ready(Ok(Some(true)))));
    }

    fn held(&self, limit: &str) -> u64 {
        self.engine.lease_stats().iter().find(|stats| stats.limit == limit).map_or(0, |stats| stats.held)
    }
}

type Waiting = Pin<Box<dyn Future<Output = (Got, bool)> + Send>>;

const BY_GRANT: Got = Got { is_allowed: true, source: Source::Lease };

const USER: &str = "  - { name: user, match: { path: ['/a', '/both', '/three'] }, key: [user], token_bucket: { rate: 1000/s, burst: 1000 } }\n";
const TENANT: &str = "  - { name: tenant, match: { path: ['/both', '/three'] }, key: [tenant], token_bucket: { rate: 1000/s, burst: 1000 } }\n";
const LOG: &str =
    "  - { name: log, match: { path: /three }, key: [tenant], sliding_log: { limit: 30, window: 60s } }\n";

#[test]
fn busy_keys_are_decided_by_grants_without_a_call() {
    let node = Node::new(USER);
    for n in 0..3 {
        let rare = node.check("/a");
        assert_eq!(rare, Got { is_allowed: true, source: Source::Store }, "request {n}");
        node.advance(MS);
    }
    node.warm("/a");
    for _ in 0..100 {
        node.check("/a");
    }
    let (checks, draws) = (node.store.checks.load(SeqCst), node.store.draws.lock().len());
    for _ in 0..20 {
        let got = node.begin("/a").ok().expect("an answer at once");
        assert_eq!(got, BY_GRANT);
    }
    node.store.run();
    assert_eq!(node.store.checks.load(SeqCst), checks, "no call of the store");
    assert!(node.store.draws.lock().len() <= draws + 2);
}

#[test]
fn what_is_spent_never_exceeds_the_limit_and_uses_it() {
    let node = Node::new(USER);
    let mut passed = 0;
    for _ in 0..20_000 {
        for _ in 0..20 {
            passed += u64::from(node.check("/a").is_allowed);
        }
        node.advance(MS);
    }
    assert!(passed <= 1000 + 20_000, "{passed} passed");
    assert!(passed >= (1000 + 20_000) * 99 / 100, "{passed} passed");
    let calls = node.store.checks.load(SeqCst) as usize + node.store.draws.lock().len();
    assert!(400_000 / calls > 300, "{calls} calls");
}

#[test]
fn a_denial_of_the_store_puts_units_back() {
    let node = Node::new(&format!("{USER}{TENANT}{LOG}"));
    node.warm("/both");
    while node.check("/three").is_allowed {}
    let (held, state) = (["user", "tenant"].map(|limit| node.held(limit)), node.store.state("log"));
    for _ in 0..5 {
        assert_eq!(node.check("/three"), Got { is_allowed: false, source: Source::Store });
        assert_eq!(
            (["user", "tenant"].map(|limit| node.held(limit)), node.store.state("log")),
            (held, state.clone())
        );
    }
}

#[test]
fn a_denial_by_a_grant_asks_nobody_and_charges_nothing() {
    let few = "  - { name: tenant, match: { path: '*' }, key: [tenant], token_bucket: { rate: 20/s, burst: 20 } }\n";
    let node = Node::new(&format!("{USER}{few}{LOG}"));
    for _ in 0..400 {
        let _ = node.check("/a");
    }
    let (held, states, checks) = (node.held("user"), node.store.states(), node.store.checks.load(SeqCst));
    for path in ["/a", "/three"] {
        let got = node.begin(path).ok().expect("an answer at once");
        assert_eq!(got, Got { is_allowed: false, source: Source::Lease }, "{path}");
    }
    assert_eq!((node.held("user"), node.store.checks.load(SeqCst)), (held, checks));
    assert_eq!(node.store.state("log"), State::default());
    assert_eq!(node.store.states().get("log"), states.get("log"));
}

#[test]
fn a_caller_that_leaves_has_been_charged_nothing() {
    let node = Node::new(&format!("{USER}{TENANT}{LOG}"));
    node.warm("/both");
    let held = ["user", "tenant"].map(|limit| node.held(limit));
    let waiting = node.begin("/three").expect_err("the store has to be asked");
    assert_ne!(["user", "tenant"].map(|limit| node.held(limit)), held, "its units are taken meanwhile");
    drop(waiting);
    assert_eq!(["user", "tenant"].map(|limit| node.held(limit)), held);
}

#[test]
fn units_that_are_put_back_after_their_grant_is_gone_are_counted_as_lapsed() {
    let node = Node::new(&format!("{USER}{TENANT}{LOG}"));
    node.warm("/both");
    let spent = || {
        let stats = node.engine.lease_stats();
        let user = stats.iter().find(|stats| stats.limit == "user").unwrap();
        user.drawn - user.held - user.lapsed - user.returned
    };
    let before = spent();
    let waiting = node.begin("/three").expect_err("the store has to be asked");
    assert_eq!(spent(), before + 1, "its unit is taken meanwhile");
    // The node holds two grants at most, so it forgets the one that the unit is from.
    let by_grants = (0..200).filter(|_| node.check("/both") == BY_GRANT).count() as u64;
    drop(waiting);
    assert_eq!(spent(), before + by_grants);
}

#[test]
fn without_the_store_the_rest_of_the_grant_is_spent_and_then_on_error_decides() {
    let node = Node::new(USER);
    node.warm("/a");
    let held = node.held("user");
    node.store.set_down(true);
    let passed = (0..held + 50).filter(|_| node.check("/a").is_allowed).count() as u64;
    assert_eq!(passed, held);
    assert_eq!(node.check("/a"), Got { is_allowed: false, source: Source::Fallback });
    node.store.set_down(false);
    node.warm("/a");
}

#[test]
fn what_the_share_of_a_process_let_pass_is_charged_when_the_store_is_back() {
    let node = Node::with(policy_of("mode: lease, on_error: local", USER));
    node.warm("/a");
    node.store.set_down(true);
    while node.check("/a").source == Source::Lease {}
    node.advance(Nanos::new(500 * MS.get()));
    let by_share = (0..200).filter(|_| node.check("/a").is_allowed).count() as u64;
    assert!(by_share > 100, "{by_share}");
    node.store.set_down(false);
    let drawn = node.store.draws.lock().len();
    let _ = node.check("/a");
    let draws = node.store.draws.lock();
    let first = &draws[drawn].draw;
    assert!(first.owed >= by_share, "{} of {by_share}", first.owed);
    assert!(first.mark.is_some(), "another primary may have forgotten some writes");
    assert_eq!(draws[drawn + 1..].iter().map(|call| call.draw.owed).sum::<u64>(), 0, "once");
}

#[test]
fn a_request_waits_for_its_grant_at_most_as_long_as_the_deadline() {
    let node = Node::new(USER);
    node.warm("/a");
    node.store.set_slow(true);
    while let Ok(got) = node.begin("/a") {
        assert_eq!(got, BY_GRANT);
    }
    let mut waiting = node.begin("/a").expect_err("nothing is left");
    node.advance(Nanos::saturating_from(DEADLINE - Duration::from_millis(1)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    let other = node.begin("/a").expect_err("nothing is left");
    node.advance(MS);
    assert_eq!(node.finish(waiting), Got { is_allowed: false, source: Source::Fallback });
    node.store.set_slow(false);
    assert_eq!(node.finish(other), BY_GRANT, "a late answer counts while it lives");
}

#[test]
fn a_request_that_gets_no_unit_of_an_answered_draw_is_denied_and_does_not_fall_back() {
    let node = Node::with(policy_of("mode: lease, on_error: allow", USER));
    node.warm("/a");
    node.store.set_slow(true);
    while node.begin("/a").is_ok() {}
    // A node holds 500 units at most.
    let waiting: Vec<Waiting> = (0..600).map(|_| node.begin("/a").expect_err("nothing is left")).collect();
    let mut last = node.begin("/a").expect_err("nothing is left");
    node.store.set_slow(false);
    node.advance(MS);
    node.store.set_slow(true);
    let mut context = Context::from_waker(Waker::noop());
    let passed = waiting.into_iter().filter_map(|mut one| match one.as_mut().poll(&mut context) {
        Poll::Ready((got, _)) => Some(got),
        Poll::Pending => None,
    });
    let passed: Vec<Got> = passed.collect();
    assert!(!passed.is_empty() && passed.iter().all(|got| *got == BY_GRANT));
    assert!(last.as_mut().poll(&mut context).is_pending(), "the next draw is on its way");
    node.advance(Nanos::saturating_from(DEADLINE));
    assert_eq!(node.finish(last), Got { is_allowed: false, source: Source::Lease });
}

#[test]
fn shutdown_returns_what_is_left() {
    let node = Node::new(USER);
    node.warm("/a");
    let held = node.held("user");
    let mut returning = node.engine.return_leases();
    assert!(returning.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    let returned: u64 = node.store.returns.lock().iter().map(|call| call.units).sum();
    assert_eq!((returned, node.held("user")), (held, 0));
    assert_eq!(node.check("/a").source, Source::Store, "it is decided exactly from then on");
}

#[test]
fn a_reset_drops_grants_and_a_reload_keeps_those_of_unchanged_numbers() {
    let node = Node::new(USER);
    node.warm("/a");
    node.engine.reload(policy(&format!("{USER}{TENANT}"))).unwrap();
    assert_eq!(node.begin("/a").ok(), Some(BY_GRANT));
    let held = node.held("user");
    let policy_in_force = node.engine.policy();
    let reset = policy_in_force.reset("user", &[("user", "u")]);
    let mut reset = Box::pin(reset.wait());
    assert!(matches!(
        reset.as_mut().poll(&mut Context::from_waker(Waker::noop())),
        Poll::Ready(Ok(Some(true)))
    ));
    assert!(held > 0 && node.held("user") == 0);
    node.warm("/a");
    let lower = USER.replace("1000/s", "100/s");
    node.engine.reload(policy(&lower)).unwrap();
    let passed = (0..3000).filter(|_| node.check("/a").is_allowed).count();
    assert!(passed <= 1000, "{passed} by the old numbers");
    assert_eq!(node.store.returns.lock().len(), 0, "units of old numbers are not returned");
}

#[test]
fn idle_keys_are_forgotten_within_a_second() {
    let node = Node::new(USER);
    node.warm("/a");
    for _ in 0..20 {
        node.advance(Nanos::new(100 * MS.get()));
    }
    assert_eq!(node.engine.lease_stats()[0].keys, 0);
}

#[test]
fn units_of_a_key_that_is_forgotten_are_counted_as_lapsed() {
    let node = Node::new(USER);
    node.warm("/a");
    let held = node.held("user");
    // As in a process that was stopped: nothing happens until the grant has ended.
    node.clock.advance(Nanos::new(2000 * MS.get()));
    node.store.run();
    let stats = &node.engine.lease_stats()[0];
    assert_eq!((stats.keys, stats.held, stats.lapsed), (0, 0, held));
}

#[test]
fn keys_on_different_servers_draw_single_costs_if_they_are_rare() {
    let limits = format!("{USER}{TENANT}");
    let node = Node::with(policy_of("cluster: true, mode: lease, on_error: deny", &limits));
    assert_eq!(node.check("/both"), BY_GRANT);
    assert_eq!(node.store.checks.load(SeqCst), 0);
    let draws =
        node.store.draws.lock().iter().map(|call| (call.draw.cost, call.draw.demand)).collect::<Vec<_>>();
    assert_eq!(draws, [(1, 0), (1, 0)]);
    assert_eq!((node.held("user"), node.held("tenant")), (0, 0));
}

#[test]
fn single_costs_go_back_if_another_server_denies() {
    let limits = format!("{USER}{}", LOG.replace("[tenant]", "[user, tenant]"));
    let node =
        Node::with(policy_of("cluster: true, mode: lease, on_error: deny", &format!("{limits}{TENANT}")));
    while node.check("/three").is_allowed {
        node.advance(Nanos::new(100 * MS.get()));
    }
    for _ in 0..20 {
        node.advance(Nanos::new(100 * MS.get()));
    }
    node.store.returns.lock().clear();
    assert!(!node.check("/three").is_allowed);
    assert_eq!((node.held("user"), node.held("tenant")), (1, 1), "their units are put back");
    for _ in 0..20 {
        node.advance(Nanos::new(100 * MS.get()));
    }
    let returned: u64 = node.store.returns.lock().iter().map(|call| call.units).sum();
    assert_eq!((returned, node.held("user"), node.held("tenant")), (2, 0, 0));
}

#[test]
fn a_key_that_was_busy_for_a_moment_is_not_drawn_for_when_it_is_idle() {
    let node = Node::new(USER);
    for _ in 0..60 {
        node.check("/a");
    }
    for _ in 0..20 {
        node.advance(Nanos::new(100 * MS.get()));
    }
    let draws = node.store.draws.lock().len();
    assert_eq!(node.engine.lease_stats()[0].keys, 0);
    for _ in 0..20 {
        node.advance(Nanos::new(100 * MS.get()));
    }
    assert_eq!(node.store.draws.lock().len(), draws);
}

#[test]
fn closed_leases_that_owe_units_are_forgotten() {
    let node = Node::with(policy_of("mode: lease, on_error: local", USER));
    node.warm("/a");
    node.store.set_down(true);
    while node.check("/a").source == Source::Lease {}
    node.advance(Nanos::new(500 * MS.get()));
    assert!(node.check("/a").is_allowed);
    drop(node.engine.return_leases());
    node.store.set_down(false);
    for _ in 0..20 {
        node.advance(Nanos::new(100 * MS.get()));
    }
    assert_eq!(node.engine.lease_stats()[0].keys, 0);
}

#[test]
fn units_of_an_answer_to_a_draw_of_old_numbers_or_of_an_old_primary_have_lapsed() {
    for is_primary in [false, true] {
        let node = Node::new(USER);
        node.warm("/a");
        node.store.set_slow(true);
        while node.begin("/a").is_ok() {}
        if is_primary {
            node.store.set_down(false); // other connections
        } else {
            node.engine.reload(policy(&USER.replace("burst: 1000", "burst: 900"))).unwrap();
        }
        let _ = node.begin("/a");
        let before = node.engine.lease_stats()[0].clone();
        node.store.set_slow(false);
        node.store.run();
        let after = node.engine.lease_stats()[0].clone();
        let spent = |stats: &LeaseStats| stats.drawn - stats.held - stats.lapsed - stats.returned;
        assert!(after.drawn > before.drawn);
        assert_eq!(spent(&after), spent(&before), "{after:?}");
    }
}

#[test]
fn units_that_are_put_back_after_a_reset_are_counted_as_lapsed() {
    let node = Node::new(&format!("{USER}{TENANT}{LOG}"));
    node.warm("/both");
    let spent = || {
        let stats = node.engine.lease_stats();
        let user = stats.iter().find(|stats| stats.limit == "user").unwrap();
        user.drawn - user.held - user.lapsed - user.returned
    };
    let before = spent();
    let waiting = node.begin("/three").expect_err("the store has to be asked");
    node.reset("user", ("user", "u"));
    drop(waiting);
    assert_eq!(spent(), before);
}

#[test]
fn a_key_that_is_forgotten_after_a_change_of_the_primary_wakes_those_that_wait() {
    let node = Node::new(USER);
    node.warm("/a");
    node.store.set_slow(true);
    while node.begin("/a").is_ok() {}
    let mut waiting = node.begin("/a").expect_err("nothing is left");
    // The grant has ended when the connections change, and requests have become rare.
    node.clock.advance(Nanos::new(3000 * MS.get()));
    node.store.set_down(false);
    node.store.run();
    assert_eq!(node.engine.lease_stats()[0].keys, 0);
    let mut context = Context::from_waker(Waker::noop());
    // Its deadline is over, so that there is no time to ask the store.
    let answer = waiting.as_mut().poll(&mut context);
    assert!(matches!(answer, Poll::Ready((Got { is_allowed: false, source: Source::Fallback }, _))));
}

#[test]
fn a_tenant_may_get_another_tier_while_its_request_waits() {
    let pro = TENANT.replace("path: ['/both', '/three']", "tier: pro");
    let text = format!(
        "store: {{ redis: {{ url: 'redis://127.0.0.1:1', mode: lease, on_error: deny }} }}\n\
         tiers: {{ free: {{}}, pro: {{}} }}\ndefault_tier: free\nlimits:\n{pro}{USER}"
    );
    let node = Node::with(Policy::read(Path::new("tollgate.yaml"), &text).unwrap());
    node.engine.set_tier("t", "pro").unwrap();
    node.warm("/a");
    node.store.set_slow(true);
    while node.begin("/a").is_ok() {}
    let waiting = node.begin("/a").expect_err("nothing is left");
    node.engine.set_tier("t", "free").unwrap();
    node.clock.advance(Nanos::saturating_from(DEADLINE));
    assert_eq!(node.finish(waiting), Got { is_allowed: false, source: Source::Fallback });
}

#[test]
fn shutdown_without_the_store_keeps_nothing() {
    let node = Node::new(&format!("{USER}{TENANT}{LOG}"));
    node.warm("/both");
    let got = node.begin_at_cost("/three", Some(300)).unwrap_or_else(|waiting| node.finish(waiting));
    assert!(!got.is_allowed && node.held("user") > 300, "it holds two grants");
    node.store.set_down(true);
    drop(node.engine.return_leases());
    assert_eq!((node.held("user"), node.held("tenant")), (0, 0));
}

#[test]
fn a_denied_request_of_a_high_cost_loses_no_units() {
    let node = Node::new(&format!("{USER}{TENANT}{LOG}"));
    node.warm("/both");
    node.advance(Nanos::new(400 * MS.get()));
    for n in 0..3 {
        let got = node.begin_at_cost("/three", Some(600)).unwrap_or_else(|waiting| node.finish(waiting));
        assert!(!got.is_allowed);
        let held = ["user", "tenant"].map(|limit| node.held(limit));
        assert!(held.iter().all(|held| *held >= 600), "{held:?} after {n}");
    }
}

#[test]
fn requests_of_two_tiers_that_wait_for_one_key_on_another_server_do_not_fall_back() {
    let user = USER.replace("} }", "}, tiers: { pro: { burst: 900 } } }");
    let text = format!(
        "store: {{ redis: {{ url: 'redis://127.0.0.1:1', cluster: true, mode: lease, on_error: allow }} }}\n\
         tiers: {{ free: {{}}, pro: {{}} }}\ndefault_tier: free\nlimits:\n{user}{TENANT}"
    );
    let node = Node::with(Policy::read(Path::new("tollgate.yaml"), &text).unwrap());
    let free = node.begin("/both").expect_err("it draws");
    node.engine.set_tier("t", "pro").unwrap();
    let mut waiting = vec![free, node.begin("/both").expect_err("it draws")];
    let mut context = Context::from_waker(Waker::noop());
    let mut done = Vec::new();
    for round in 0..20 {
        node.store.run();
        if round == 10 {
            node.advance(Nanos::saturating_from(DEADLINE));
        }
        waiting.retain_mut(|one| match one.as_mut().poll(&mut context) {
            Poll::Ready((got, _)) => {
                done.push(got.source);
                false
            }
            Poll::Pending => true,
        });
    }
    assert_eq!(done, [Source::Lease; 2]);
}

/// A decision that begins a draw allocates for the call. All others need nothing.
#[test]
fn decisions_by_grants_need_no_allocation() {
    let node = Node::new(&format!("{USER}{TENANT}"));
    for _ in 0..2000 {
        node.check("/both");
        node.advance(Nanos::new(1_500_000));
    }
    while node.held("user").min(node.held("tenant")) < 20 {
        node.check("/both");
        node.advance(MS);
    }
    let attributes = [("path", "/both"), ("user", "u"), ("tenant", "t")];
    let request = Request { attributes: &attributes, cost: None };
    let (mut decisions, before) = (0, Counting::allocations());
    let draws = node.store.draws.lock().len();
    for _ in 0..8 {
        let policy = node.engine.policy();
        let verdict = policy.check(&request, node.clock.now()).now().unwrap().unwrap();
        assert_eq!(got(&verdict), BY_GRANT);
        decisions += 1;
    }
    assert_eq!((decisions, node.store.draws.lock().len()), (8, draws), "no draw was sent meanwhile");
    assert_eq!(Counting::allocations() - before, 0);
}

#[test]
fn the_store_has_what_is_left_of_the_deadline_after_a_wait() {
    let node = Node::new(&format!("{USER}{TENANT}{LOG}"));
    node.warm("/both");
    node.store.set_slow(true);
    while node.begin("/both").is_ok() {}
    let mut waiting = node.begin("/three").expect_err("nothing is left");
    node.clock.advance(Nanos::saturating_from(DEADLINE - Duration::from_millis(1)));
    node.store.set_slow(false);
    node.store.run();
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending(), "the store is asked for the rest");
    node.clock.advance(MS);
    // The answer of the store and the end of the deadline come together. An answer that is there counts.
    let Poll::Ready((got, _)) = waiting.as_mut().poll(&mut context) else { panic!("its time is over") };
    assert_eq!(got.source, Source::Store);
}
