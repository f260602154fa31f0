//! How many instructions a decision takes, with the time given: `cargo bench --bench instructions`.
//!
//! A shared machine makes wall time noise, so each case is run once under callgrind, which counts the
//! instructions of the one call that is measured. Exits with 1 where a case is above its limit.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

use tollgate_core::{
    Algorithm, Align, BurstCredits, Charge, Concurrency, Decision, FairQueue, FixedWindow, LeakyBucket,
    MaxWait, Mode, Outcome, PermitId, Permits, Rate, Request, Rule, SlidingCounter, SlidingLog, State,
    Ticket, Timestamp, TokenBucket, Verdict, Weight, decide_all,
};
use tollgate_testkit::instructions;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// A case: its name, the most instructions it may take, and the measured call with all that comes before.
type Case = (&'static str, Option<u64>, fn());

fn main() -> ExitCode {
    let asked: Option<String> = std::env::args().skip_while(|arg| arg != "--case").nth(1);
    match asked {
        Some(name) => {
            let (_, _, run) = cases().into_iter().find(|case| case.0 == name).expect("a case of this name");
            run();
            ExitCode::SUCCESS
        }
        None => measure_all(),
    }
}

fn measure_all() -> ExitCode {
    let mut passed = true;
    println!("{:<58} {:>12} {:>8}", "decision", "instructions", "at most");
    for (name, limit, _) in cases() {
        let count = instructions(name);
        let over = limit.is_some_and(|limit| count > limit);
        let limit = limit.map_or(String::new(), |limit| limit.to_string());
        println!("{name:<58} {count:>12} {limit:>8}{}", if over { "  TOO MANY" } else { "" });
        passed &= !over;
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[inline(never)]
fn measured<A: Algorithm>(rule: &A, state: &mut A::State, cost: u64, now: Timestamp) -> Decision {
    rule.decide(state, cost, now)
}

#[inline(never)]
fn measured_test<A: Algorithm>(rule: &A, state: &A::State, cost: u64, now: Timestamp) -> Outcome {
    rule.test(state, cost, now)
}

#[inline(never)]
fn measured_acquire(rule: &Concurrency, state: &mut Permits, now: Timestamp) -> Outcome {
    let outcome = rule.test(state, 1, now);
    if outcome.is_allowed() {
        rule.acquire(state, PermitId(2), 1, now);
    }
    outcome
}

#[inline(never)]
fn measured_plan(plan: &mut [Charge<'_>], now: Timestamp, decisions: &mut [Decision]) -> Verdict {
    decide_all(plan, now, decisions)
}

/// Spends `spent` at 0, then measures a request of cost 1 at `now`, which must come out as `allowed`.
fn decide<A: Algorithm>(rule: A, spent: u64, now: u64, allowed: bool) {
    let mut state = A::State::default();
    for _ in 0..spent {
        rule.spend(&mut state, 1, Timestamp::from_nanos(0));
    }
    let decision = measured(black_box(&rule), black_box(&mut state), black_box(1), black_box(at(now)));
    assert_eq!(decision.is_allowed(), allowed);
}

fn test<A: Algorithm>(rule: A, spent: u64, now: u64, allowed: bool) {
    let mut state = A::State::default();
    for _ in 0..spent {
        rule.spend(&mut state, 1, Timestamp::from_nanos(0));
    }
    let outcome = measured_test(black_box(&rule), black_box(&state), black_box(1), black_box(at(now)));
    assert_eq!(outcome.is_allowed(), allowed);
}

fn acquire(held: u64, allowed: bool) {
    acquire_of(20, held, allowed);
}

fn acquire_of(limit: u64, held: u64, allowed: bool) {
    let rule = Concurrency::new(limit, Some(span(30 * S))).expect("valid");
    let mut state = Permits::default();
    for id in 0..held {
        rule.acquire(&mut state, PermitId(100 + id), 1, at(0));
    }
    let outcome = measured_acquire(black_box(&rule), black_box(&mut state), black_box(at(1)));
    assert_eq!(outcome.is_allowed(), allowed);
}

#[inline(never)]
fn measured_release(rule: &Concurrency, state: &mut Permits, id: PermitId) -> bool {
    rule.release(state, id, at(1))
}

/// Releases the permit in the middle of those held.
fn release(held: u64) {
    let rule = Concurrency::new(held, Some(span(30 * S))).expect("valid");
    let mut state = Permits::default();
    for id in 0..held {
        rule.acquire(&mut state, PermitId(id), 1, at(0));
    }
    assert!(measured_release(black_box(&rule), black_box(&mut state), black_box(PermitId(held / 2))));
}

#[inline(never)]
fn measured_cancel(queue: &mut FairQueue<u64, u64>, ticket: Ticket) -> Option<u64> {
    queue.cancel(&0, ticket)
}

/// A request leaves from the middle of its tenant's line.
fn cancel(waiting: u64) {
    let mut queue = FairQueue::new(0, usize::MAX, usize::MAX);
    let request = |item| Request { weight: Weight::ONE, cost: 1, deadline: None, item };
    let tickets: Vec<Ticket> = (0..waiting).map(|item| queue.push(0, request(item)).expect("room")).collect();
    let middle = waiting / 2;
    let cancelled = measured_cancel(black_box(&mut queue), black_box(tickets[middle as usize]));
    assert_eq!(cancelled, Some(middle));
}

fn plan<const N: usize>() {
    let rule = Rule::TokenBucket(bucket(5));
    let mut states: [State; N] = std::array::from_fn(|_| State::default());
    let charge = |state| Charge { rule: &rule, state, cost: 1, permit: PermitId(0) };
    let mut charges = states.each_mut().map(charge);
    let mut decisions = [Decision::default(); N];
    let verdict = measured_plan(black_box(&mut charges), black_box(at(1)), black_box(&mut decisions));
    assert!(verdict.is_allowed());
}

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn span(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

fn rate(tokens: u64) -> Rate {
    Rate::per_second(tokens).expect("valid")
}

fn bucket(tokens: u64) -> TokenBucket {
    TokenBucket::new(rate(tokens), 10).expect("valid")
}

fn leaky() -> LeakyBucket {
    LeakyBucket::new(rate(5), 10).expect("valid")
}

fn patient() -> MaxWait<TokenBucket> {
    MaxWait::new(bucket(5), span(S), 100).expect("valid")
}

fn window(align: Align) -> FixedWindow {
    FixedWindow::new(10, span(60 * S), align).expect("valid")
}

fn log() -> SlidingLog {
    SlidingLog::new(1000, span(60 * S)).expect("valid")
}

fn counter(buckets: u32, mode: Mode) -> SlidingCounter {
    SlidingCounter::new(10, span(60 * S), buckets, mode).expect("valid")
}

fn credits() -> BurstCredits {
    BurstCredits::new(rate(100), rate(1000), 27_000).expect("valid")
}

fn cases() -> Vec<Case> {
    vec![
        ("token bucket, admit", Some(80), || decide(bucket(5), 3, MS, true)),
        ("token bucket, deny", Some(60), || decide(bucket(5), 10, MS, false)),
        ("token bucket 3/s, admit", Some(80), || decide(bucket(3), 3, MS, true)),
        ("token bucket 3/s, deny", Some(60), || decide(bucket(3), 10, MS, false)),
        ("token bucket, new key", Some(80), || decide(bucket(5), 0, MS, true)),
        ("token bucket, admit, test only", None, || test(bucket(5), 3, MS, true)),
        ("token bucket, deny, test only", None, || test(bucket(5), 10, MS, false)),
        ("leaky bucket, admit", None, || decide(leaky(), 3, MS, true)),
        ("leaky bucket, deny", None, || decide(leaky(), 10, MS, false)),
        ("token bucket with max_wait, admit at once", None, || decide(patient(), 3, MS, true)),
        ("token bucket with max_wait, admit to wait", None, || decide(patient(), 10, MS, true)),
        ("token bucket with max_wait, deny", None, || decide(patient(), 15, MS, false)),
        ("fixed window, admit", None, || decide(window(Align::Epoch), 3, MS, true)),
        ("fixed window, admit in a new window", None, || decide(window(Align::Epoch), 3, 61 * S, true)),
        ("fixed window, deny", None, || decide(window(Align::Epoch), 10, MS, false)),
        ("sliding log of 1000, admit into a part-filled log", None, || decide(log(), 900, MS, true)),
        ("sliding log of 1000, admit as the first of 1000 leave", None, || decide(log(), 1000, 60 * S, true)),
        ("sliding log of 1000, deny", None, || decide(log(), 1000, MS, false)),
        ("sliding counter, admit", None, || decide(counter(1, Mode::Interpolate), 3, MS, true)),
        ("sliding counter, deny", None, || decide(counter(1, Mode::Interpolate), 10, MS, false)),
        ("sliding counter, deny by the previous window", None, || {
            decide(counter(1, Mode::Interpolate), 10, 60 * S, false);
        }),
        ("sliding counter strict, 10 sub-windows, admit", None, || {
            decide(counter(10, Mode::Strict), 3, MS, true);
        }),
        ("sliding counter strict, 10 sub-windows, deny", None, || {
            decide(counter(10, Mode::Strict), 10, MS, false);
        }),
        ("burst credits, admit", None, || decide(credits(), 3, MS, true)),
        ("burst credits, deny", None, || decide(credits(), 1000, 0, false)),
        ("concurrency, first of 20", None, || acquire(0, true)),
        ("concurrency, last of 20", None, || acquire(19, true)),
        ("concurrency, deny", None, || acquire(20, false)),
        ("concurrency, last of 100 000", Some(6000), || acquire_of(100_000, 99_999, true)),
        ("concurrency, deny with 100 000 held", Some(2000), || acquire_of(100_000, 100_000, false)),
        ("concurrency, release with 20 held", None, || release(20)),
        ("concurrency, release with 100 000 held", Some(6000), || release(100_000)),
        ("fair queue, leave a line of 10", None, || cancel(10)),
        ("fair queue, leave a line of 100 000", Some(2000), || cancel(100_000)),
        ("plan of 1 token bucket, admit", None, plan::<1>),
        ("plan of 4 token buckets, admit", None, plan::<4>),
        ("plan of 8 token buckets, admit", None, plan::<8>),
    ]
}
