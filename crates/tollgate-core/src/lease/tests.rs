//! Tests of both halves, and of the two together.

mod grants;
mod node;
mod simulation;
mod terms;

use std::time::Duration;

use tollgate_testkit::Random;

use super::*;
use crate::{
    AlgorithmKind, Align, BurstCredits, Concurrency, FixedWindow, LeakyBucket, MaxWait, Mode, Nanos, Outcome,
    PermitId, Rate, Retry, Rule, SlidingCounter, SlidingLog, State, Status, Timestamp, TokenBucket,
};

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn bucket(rate: u64, burst: u64) -> Rule {
    TokenBucket::new(Rate::per_second(rate).unwrap(), burst).unwrap().into()
}

fn draw(sync_ms: u64, demand: u64, cost: u64) -> Draw {
    Draw { sync: Nanos::new(sync_ms * MS), demand, ..Draw::of_cost(cost) }
}

fn window(limit: u64, nanos: u64) -> Rule {
    FixedWindow::new(limit, Duration::from_nanos(nanos), Align::Epoch).unwrap().into()
}

fn counter(limit: u64, nanos: u64, buckets: u32, mode: Mode) -> Rule {
    SlidingCounter::new(limit, Duration::from_nanos(nanos), buckets, mode).unwrap().into()
}

fn credits() -> Rule {
    let rate = |tokens| Rate::per_second(tokens).unwrap();
    BurstCredits::with_peak_burst(rate(100), rate(1000), 500, 200).unwrap().into()
}
