//! Nodes that share a limit on a simulated network.

use tollgate_lab::cluster::{ClusterOutcome, ClusterSettings, Scheme, SchemeOutcome, simulate};

const SECOND: u64 = 1_000_000_000;

fn run(settings: &ClusterSettings) -> ClusterOutcome {
    simulate(settings, &Scheme::ALL, &mut |_| {}).unwrap()
}

fn run_one(scheme: Scheme, settings: &ClusterSettings) -> SchemeOutcome {
    simulate(settings, &[scheme], &mut |_| {}).unwrap().schemes.remove(0)
}

fn with_faults(faults: &[&str]) -> ClusterSettings {
    let faults = faults.iter().map(|fault| fault.parse().unwrap()).collect();
    ClusterSettings { faults, duration: 10 * SECOND, ..ClusterSettings::default() }
}

/// One key of 10 000/s at 20 times its rate.
fn busy_key(nodes: u32) -> ClusterSettings {
    ClusterSettings { nodes, rate: 10_000, burst: 10_000, ..ClusterSettings::default() }
}

fn calls_per_second(outcome: &SchemeOutcome, settings: &ClusterSettings) -> u64 {
    outcome.calls.total() * SECOND / settings.duration
}

/// Every request has exactly one end, and no node admits more than came to it.
fn require_balance(outcome: &SchemeOutcome) {
    let ends = outcome.decided() + outcome.undecided;
    assert_eq!(outcome.requests, ends, "{outcome:?}");
    assert!(outcome.shares.highest <= 1.0 && outcome.shares.jain <= 1.0 + 1e-9, "{outcome:?}");
    assert_eq!(outcome.admitted_over_time.bins.iter().sum::<u64>(), outcome.admitted);
    assert_eq!(outcome.calls_over_time.bins.iter().sum::<u64>(), outcome.calls.total());
}

/// The rows of the core's own small simulation, with the decisions per call that it asserts.
#[test]
fn leases_use_the_whole_limit_with_few_calls_and_never_exceed_it() {
    let default = ClusterSettings::default();
    let of = |rate, burst| ClusterSettings { rate, burst, ..default.clone() };
    let skewed = |overload| ClusterSettings { nodes: 8, skew: Some(0.8), overload, ..default.clone() };
    for (name, settings, per_call) in [
        ("1000/s at 20 x", default.clone(), 450.0),
        ("100/s at 20 x", of(100, 100), 140.0),
        ("burst 100", of(1000, 100), 150.0),
        ("burst 16", of(1000, 16), 75.0),
        ("80 % of 20 x at one of 8", skewed(20.0), 220.0),
        ("80 % of 1.2 x at one of 8", skewed(1.2), 15.0),
        ("60 % load", ClusterSettings { overload: 0.6, ..default.clone() }, 13.0),
    ] {
        let outcome = run_one(Scheme::Lease, &settings);
        require_balance(&outcome);
        assert_eq!(outcome.over, 0, "{name}: {outcome:?}");
        assert!(outcome.limit_use >= 0.99, "{name}: {outcome:?}");
        assert!(outcome.decisions_per_call().unwrap() >= per_call, "{name}: {outcome:?}");
        assert!(outcome.waits.requests * 100 <= outcome.requests, "{name}: {outcome:?}");
        assert_eq!(outcome.unanswered, 0, "{name}: {outcome:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_result_and_another_seed_another() {
    let faults = ["partition@2s+1s:1", "crash@4s:0", "pause@5s+500ms:2", "failover@7s+50ms"];
    let settings = ClusterSettings { loss: 0.01, ..with_faults(&faults) };
    let outcome = run(&settings);
    assert_eq!(outcome, run(&settings));
    assert_ne!(outcome, run(&ClusterSettings { seed: 2, ..settings }));
    outcome.schemes.iter().for_each(require_balance);
}

#[test]
fn every_scheme_gets_the_same_requests() {
    let outcome = run(&ClusterSettings { overload: 0.5, duration: 5 * SECOND, ..ClusterSettings::default() });
    let requests: Vec<u64> = outcome.schemes.iter().map(|scheme| scheme.requests).collect();
    assert!(requests.iter().all(|count| *count == requests[0] && *count > 2000), "{requests:?}");
}

#[test]
fn a_thousand_nodes_share_one_key_fairly_and_never_exceed_it() {
    let settings = busy_key(1000);
    let leases = run_one(Scheme::Lease, &settings);
    assert_eq!(leases.over, 0);
    assert!(leases.shares.jain >= 0.99, "{leases:?}");
    // The research model had 166 000 calls per second.
    let short = ClusterSettings { duration: 5 * SECOND, ..settings.clone() };
    let refused = run_one(Scheme::RefuseAndWait, &short);
    assert!(calls_per_second(&refused, &short) > 150_000, "{refused:?}");
    assert!(calls_per_second(&leases, &settings) * 40 < calls_per_second(&refused, &short), "{leases:?}");
}

/// The research model had 1100 calls per second.
#[test]
fn a_thousand_nodes_use_one_key_with_few_calls() {
    let settings = busy_key(1000);
    let leases = run_one(Scheme::Lease, &settings);
    assert!(leases.limit_use >= 0.99, "{leases:?}");
    assert!(calls_per_second(&leases, &settings) <= 1500, "{leases:?}");
}

#[test]
fn ten_thousand_nodes_never_exceed_the_limit() {
    let settings = ClusterSettings { duration: 5 * SECOND, ..busy_key(10_000) };
    let leases = run_one(Scheme::Lease, &settings);
    require_balance(&leases);
    assert_eq!(leases.over, 0);
    // Never more calls than the exact scheme has: each of these nodes has 20 requests per second.
    assert!(leases.calls.total() < leases.requests, "{leases:?}");
}

#[test]
fn exact_checks_wait_for_the_store_and_use_the_whole_limit() {
    let settings = ClusterSettings { duration: 5 * SECOND, ..ClusterSettings::default() };
    let exact = run_one(Scheme::Exact, &settings);
    require_balance(&exact);
    assert_eq!((exact.waits.median, exact.waits.longest), (settings.rtt, settings.rtt));
    assert_eq!((exact.calls.exact_checks, exact.calls.total()), (exact.requests, exact.requests));
    assert_eq!((exact.over, exact.worst_span.over), (0, 0));
    assert!(exact.limit_use > 0.99, "{exact:?}");
}

#[test]
fn a_static_split_leaves_the_limit_unused_where_demand_is_at_one_node() {
    let settings = ClusterSettings { nodes: 8, skew: Some(0.8), overload: 1.2, ..ClusterSettings::default() };
    let split = run_one(Scheme::StaticSplit, &settings);
    // The node with 80 % of the demand has an eighth of the limit.
    assert!(split.limit_use < 0.5 && split.over == 0 && split.calls.total() == 0, "{split:?}");
    assert!(run_one(Scheme::Lease, &settings).limit_use > 0.99);
}

#[test]
fn reports_after_spending_exceed_the_limit_and_refusals_call_often() {
    let settings = ClusterSettings { duration: 5 * SECOND, ..busy_key(100) };
    let [lease, report, refuse] = [Scheme::Lease, Scheme::ReportAfterSpend, Scheme::RefuseAndWait]
        .map(|scheme| run_one(scheme, &settings));
    assert!(report.over > 10_000, "{report:?}");
    assert_eq!((lease.over, refuse.over), (0, 0));
    assert!(refuse.calls.total() > 20 * lease.calls.total(), "{refuse:?}");
}

#[test]
fn a_node_that_is_cut_off_answers_nothing_and_exceeds_nothing() {
    let outcome = run_one(Scheme::Lease, &with_faults(&["partition@3s+4s:0"]));
    // A quarter of the demand, less what the node held.
    let cut_off = outcome.requests / 4 * 4 / 10;
    assert!(outcome.unanswered > cut_off * 9 / 10 && outcome.unanswered <= cut_off * 11 / 10, "{outcome:?}");
    assert_eq!(outcome.over, 0);
    assert!(outcome.waits.longest >= 5_500_000, "{outcome:?}");
    // The other nodes use what it does not.
    assert!(outcome.limit_use > 0.98, "{outcome:?}");
}

#[test]
fn while_all_nodes_are_cut_off_nothing_is_admitted_beyond_what_they_hold() {
    let settings = with_faults(&["partition@3s+4s"]);
    let outcome = run_one(Scheme::Lease, &settings);
    assert_eq!(outcome.over, 0);
    let bins = &outcome.admitted_over_time.bins;
    assert_eq!(bins[40..70].iter().sum::<u64>(), 0, "{bins:?}");
    assert!(bins[72..].iter().sum::<u64>() > 2000, "{bins:?}");
}

/// `LE-3`: nobody spends what the node held, and the key is soon back to normal.
#[test]
fn a_crash_loses_only_what_the_node_held() {
    let outcome = run_one(Scheme::Lease, &with_faults(&["crash@5s:0", "crash@6s+1s:1"]));
    assert_eq!(outcome.over, 0);
    assert!(outcome.lapsed > 0 && outcome.lapsed <= 2 * 500, "{outcome:?}");
    assert!(outcome.limit_use > 0.97, "{outcome:?}");
    // No process answered the requests at node 1 for a second.
    assert!(outcome.unanswered.abs_diff(5000) < 300, "{outcome:?}");
}

#[test]
fn a_paused_node_exceeds_nothing() {
    let outcome = run_one(Scheme::Lease, &with_faults(&["pause@4s+2s:1"]));
    require_balance(&outcome);
    assert_eq!(outcome.over, 0);
    assert!(outcome.waits.longest > 19 * SECOND / 10, "{outcome:?}");
    assert_eq!(outcome.worst_span.over, 0);
}

/// `LE-2`: a clock that does not count suspended time spends a grant late. Only the bound of the units held remains.
#[test]
fn a_suspended_clock_spends_late_within_what_nodes_hold() {
    let settings = with_faults(&["suspend@4s+3s"]);
    let outcome = run_one(Scheme::Lease, &settings);
    require_balance(&outcome);
    assert_eq!(outcome.over, 0);
    assert!(outcome.worst_span.over <= 4 * 500, "{outcome:?}");
}

/// `LE-6`: a failover that forgets the last writes gives these units again.
#[test]
fn a_failover_exceeds_by_what_it_forgot() {
    let settings = with_faults(&["failover@5s+500ms"]);
    for scheme in [Scheme::Lease, Scheme::Exact, Scheme::RefuseAndWait] {
        let outcome = run_one(scheme, &settings);
        require_balance(&outcome);
        assert!(outcome.over <= 1000 + 500, "{outcome:?}");
        assert_eq!(outcome.over > 0, scheme != Scheme::Lease, "{outcome:?}");
    }
}

#[test]
fn lost_messages_exceed_nothing() {
    for loss in [0.01, 0.2, 1.0] {
        let settings = ClusterSettings { loss, duration: 10 * SECOND, ..ClusterSettings::default() };
        let outcome = run_one(Scheme::Lease, &settings);
        require_balance(&outcome);
        assert_eq!(outcome.over, 0, "{outcome:?}");
        assert!(outcome.unanswered > 0, "{outcome:?}");
        assert_eq!(outcome.admitted > 0, loss < 1.0, "{outcome:?}");
    }
}

#[test]
fn settings_out_of_bounds_are_refused_with_the_bound() {
    let default = ClusterSettings::default();
    let faults = |faults: &[&str]| with_faults(faults);
    for (settings, expected) in [
        (ClusterSettings { nodes: 0, ..default.clone() }, "nodes is 1 to 10000"),
        (ClusterSettings { nodes: 10_001, ..default.clone() }, "nodes is 1 to 10000"),
        (ClusterSettings { rate: 0, ..default.clone() }, "the rate is 1 to"),
        (
            ClusterSettings { burst: 15, ..default.clone() },
            "a burst of 15 cannot be leased: it is at least 16",
        ),
        (ClusterSettings { overload: 0.0, ..default.clone() }, "the overload is above 0"),
        (ClusterSettings { overload: f64::NAN, ..default.clone() }, "the overload is above 0"),
        (ClusterSettings { loss: 1.1, ..default.clone() }, "the loss is a probability"),
        (ClusterSettings { skew: Some(0.0), ..default.clone() }, "the skew is the share of one node"),
        (ClusterSettings { nodes: 1, skew: Some(0.5), ..default.clone() }, "one node has all of the demand"),
        (ClusterSettings { rtt: 2 * SECOND, ..default.clone() }, "the round trip is 0 to 1000 ms"),
        (ClusterSettings { sync: SECOND / 1000, ..default.clone() }, "sync is 10 to 5000 ms"),
        (ClusterSettings { duration: 7200 * SECOND, ..default.clone() }, "the duration is 1 to 3600 s"),
        (ClusterSettings { rate: 1_000_000, ..default.clone() }, "100000000 is the most: take a lower rate"),
        (faults(&["pause@11s+1s"]), "fault `pause@11s+1s`: it starts before the run ends"),
        (faults(&["crash@1s:4"]), "fault `crash@1s:4`: nodes are 0 to 3"),
        (faults(&["pause@1s+2s:1", "suspend@2s+2s"]), "stands still for one of them at a time"),
        (faults(&["failover@1s+2s"]), "at most the time since the start"),
        (faults(&["crash@1s"; 65]), "there are 65 faults, and 64 is the most"),
    ] {
        let error = simulate(&settings, &[Scheme::Lease], &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}, not {expected}");
    }
    // Duration, times and numbers at their bounds.
    let one = ClusterSettings { nodes: 1, skew: Some(1.0), rtt: 0, duration: SECOND, ..default };
    run(&one).schemes.iter().for_each(require_balance);
}
