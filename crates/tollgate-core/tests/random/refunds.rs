//! What refunds leave of the promises: charges are given back at random later times, whole or in part, each
//! once.

use std::time::Duration;

use tollgate_core::{Algorithm, BurstCredits, MaxWait, Outcome, Rate, Retry, Timestamp, TokenBucket};
use tollgate_testkit::{Random, Step, Trace};

use super::bounds::{Through, fixed_window_bound, numbers, runs, sliding_counter_bound, sliding_log_bound};

/// The charges that were made on a key and have not been given back.
pub(crate) struct Charges {
    random: Random,
    made: Vec<Step>,
}

impl Charges {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random::new(!seed), made: Vec::new() }
    }

    pub(crate) fn add(&mut self, step: Step) {
        if step.cost > 0 {
            self.made.push(step);
        }
    }

    /// In a quarter of the steps a charge to give back, most often one of the last few, and sometimes only a
    /// part of it.
    pub(crate) fn give_back(&mut self) -> Option<Step> {
        if self.made.is_empty() || !self.random.chance(1, 4) {
            return None;
        }
        let last = self.made.len() as u64 - 1;
        let newest = if self.random.chance(3, 4) { 4 } else { last };
        let charge = self.made.swap_remove((last - self.random.between(0, newest.min(last))) as usize);
        if charge.cost > 1 && self.random.chance(1, 4) {
            let part = self.random.between(1, charge.cost - 1);
            self.made.push(Step { cost: part, ..charge });
            return Some(Step { cost: charge.cost - part, ..charge });
        }
        Some(charge)
    }
}

/// What happened on a key and changed it, in order.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Let go at `time`, charged at `charge.now`.
    Admitted { time: u64, charge: Step },
    /// Of what `charge` says, `given` was given back at `time`.
    Refunded { time: u64, charge: Step, given: u64 },
}

/// Runs a trace whose clock never steps back.
fn events<A: Algorithm>(rule: &A, seed: u64, scale: u64) -> Vec<Event> {
    let mut trace = Trace::new(seed, scale, rule.capacity()).longest_idle(scale.saturating_mul(1000));
    let mut charges = Charges::new(seed);
    let (mut state, mut latest, mut events) = (A::State::default(), 0, Vec::new());
    for _ in 0..2000 {
        let step = trace.next().unwrap();
        latest = step.now.max(latest);
        let now = Timestamp::from_nanos(latest);
        if let Some(charge) = charges.give_back() {
            let before = state.clone();
            let given = rule.refund(&mut state, charge.cost, Timestamp::from_nanos(charge.now), now);
            assert!(given <= charge.cost, "seed {seed}: {given} of {charge:?}");
            if state == before {
                assert_eq!(given, 0, "seed {seed}: {charge:?}");
            } else {
                events.push(Event::Refunded { time: latest, charge, given });
            }
            continue;
        }
        let charge = Step { now: latest, cost: step.cost };
        match rule.decide(&mut state, step.cost, now).outcome {
            Outcome::Allow { .. } if step.cost == 0 => {}
            Outcome::Allow { delay } => {
                charges.add(charge);
                events.push(Event::Admitted { time: latest + delay.get(), charge });
            }
            Outcome::Deny { retry: Retry::After(wait) } => trace.hint(wait.get()),
            Outcome::Deny { .. } => {}
        }
    }
    events
}

/// In every stretch of events, what was admitted less what `returned` says came back is at most
/// `burst + floor(d * rate)`, where d may be longer by the `rounding` of the times.
fn within_rate(
    events: &[Event],
    (tokens, period, burst): (u64, u64, u64),
    rounding: u64,
    returned: impl Fn(u64, u64) -> u64,
) {
    let change = |event: &Event| match *event {
        Event::Admitted { time, charge } => (time, i128::from(charge.cost)),
        Event::Refunded { time, charge, given } => (time, -i128::from(returned(charge.cost, given))),
    };
    let changes: Vec<_> = events.iter().map(change).collect();
    for (first, &(start, _)) in changes.iter().enumerate() {
        let mut sum = 0;
        for &(end, change) in changes[first..].iter().take(200) {
            sum += change;
            let gained = u128::from(end - start + rounding) * u128::from(tokens) / u128::from(period);
            let most = i128::from(burst) + i128::try_from(gained).unwrap();
            assert!(sum <= most, "{sum} from {start} to {end}, at most {most}");
        }
    }
}

// Of a bucket: its level is at most the burst at the start of a stretch and not below 0 at its end. In between
// it rises by at most d * rate and by what is given back, and falls by what is admitted. So
// admitted - given back <= burst + d * rate: a refund makes room for as much as it gives back, once. No more
// holds: of a charge from before the stretch, the room is used within it.
#[test]
fn token_bucket_admits_its_rate_and_what_came_back() {
    let mut refunds = 0;
    for seed in runs() {
        let (burst, period, mut random) = numbers(seed);
        let tokens = random.log_uniform(1, period.min(1000));
        let rule = TokenBucket::new(Rate::new(tokens, Duration::from_nanos(period)).unwrap(), burst).unwrap();
        let events = events(&rule, seed, period / tokens);
        within_rate(&events, (tokens, period, burst), 0, |_, given| given);
        refunds += events.iter().filter(|event| matches!(event, Event::Refunded { given: 1.., .. })).count();
    }
    assert!(refunds > 10_000, "{refunds}");
}

// The same, counted when requests are let go: nothing comes back while somebody waits, so at every refund the
// level is that of a bucket from which only those were taken who have left. Turns are told in whole
// nanoseconds, rounded up, so that two may seem up to one closer than they are.
#[test]
fn waiting_requests_keep_their_pace_and_their_number() {
    for seed in runs() {
        let (burst, period, mut random) = numbers(seed);
        let tokens = random.log_uniform(1, period.min(1000));
        let bucket =
            TokenBucket::new(Rate::new(tokens, Duration::from_nanos(period)).unwrap(), burst).unwrap();
        let max_wait = random.log_uniform(1, period / tokens * 8);
        let max_waiting = random.between(1, 6);
        let rule = MaxWait::new(bucket, Duration::from_nanos(max_wait), max_waiting as u32).unwrap();
        let events = events(&rule, seed, period / tokens);
        within_rate(&events, (tokens, period, burst), 1, |_, given| given);
        let (mut last, mut waiting) = (0, Vec::new());
        for event in events {
            let (Event::Admitted { time, charge: Step { now, .. } }
            | Event::Refunded { time: now @ time, .. }) = event;
            assert!(time >= last, "seed {seed}: {event:?} goes before {last}");
            last = time;
            waiting.retain(|release| *release > now);
            waiting.extend((time > now).then_some(time));
            assert!(waiting.len() as u64 <= max_waiting, "seed {seed}: {waiting:?} wait at {now}");
        }
    }
}

// Each bucket by itself, as above; but what either gave back is between what was told, the smaller of both, and
// the cost.
#[test]
fn burst_credits_keep_to_both_rates_and_what_came_back() {
    for seed in runs() {
        let (credits, period, mut random) = numbers(seed);
        let tokens = random.log_uniform(1, (period / 7).min(100));
        let (peak, peak_burst) = (tokens * 7, random.between(1, 20));
        let rate = |tokens| Rate::new(tokens, Duration::from_nanos(period)).unwrap();
        let Ok(rule) = BurstCredits::with_peak_burst(rate(tokens), rate(peak), credits, peak_burst) else {
            continue;
        };
        let events = events(&rule, seed, period / tokens);
        within_rate(&events, (tokens, period, credits), 0, |cost, _| cost);
        within_rate(&events, (peak, period, peak_burst), 0, |cost, _| cost);
    }
}

/// What was admitted and never given back.
struct Kept;

impl Through for Kept {
    fn of<A: Algorithm>(rule: &A, seed: u64, scale: u64) -> Vec<(u64, u64)> {
        let mut kept = std::collections::BTreeMap::<u64, u64>::new();
        for event in events(rule, seed, scale) {
            match event {
                Event::Admitted { charge, .. } => *kept.entry(charge.now).or_default() += charge.cost,
                Event::Refunded { charge, given, .. } => *kept.get_mut(&charge.now).unwrap() -= given,
            }
        }
        kept.into_iter().collect()
    }
}

// Of a window nothing is added to the bound: a count, sub-count or entry goes down for charges of its own only,
// so at each admission it holds all that is kept of them, and the bounds without refunds hold of what is kept.

// A window from the first request that is opened anew before its end had nothing left in it. So those in which
// anything is kept do not overlap, and a span meets two of them at most.
#[test]
fn what_is_kept_of_a_fixed_window_is_at_most_its_limit() {
    fixed_window_bound::<Kept>();
}

#[test]
fn what_is_kept_of_a_sliding_log_is_never_above_the_limit() {
    sliding_log_bound::<Kept>();
}

// Interpolating: of what is kept in a span, `full` has at most the limit, and so has `old`. Both have it only
// if the last that was admitted to `full` found `old` to weigh nothing, but it weighs something to its end.
#[test]
fn what_is_kept_of_a_sliding_counter_is_within_the_bound_of_its_mode() {
    sliding_counter_bound::<Kept>();
}
