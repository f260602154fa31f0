//! A plan of leased and exact limits.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tollgate::{Group, Timestamp};

use super::Leases;
use super::take::{Attempt, HeldUnits, LeasedAsks, PartlyTaken, Stage, Taken};
use crate::engine::Engine;
use crate::engine::backend::{Decided, Shared};
use crate::engine::plan::Plan;
use crate::store::{LimitDecisions, Source, Unavailable};

/// A plan that grants decide, at least in part.
pub(in crate::engine) struct LeasedPlan {
    asks: LeasedAsks,
    spans_servers: bool,
}

/// What became of the first attempt to decide a plan by grants.
#[expect(clippy::large_enum_variant, reason = "it is nearly always the large one")]
pub(in crate::engine) enum FirstAttempt<'l> {
    /// It is decided.
    Decided(Decided),
    /// It has to wait for the store.
    Open(Box<(LeasedPlan, Taken<'l>)>),
}

impl LeasedPlan {
    /// None if the store decides the whole plan.
    pub(in crate::engine) fn of(engine: &Engine, shared: &Shared, plan: &Plan<'_>) -> Option<Self> {
        let asks = LeasedAsks::of(engine, plan)?;
        Some(Self { asks, spans_servers: shared.is_cluster && plan.spans_servers(engine) })
    }

    /// Decides by what grants have. Most requests are decided here, at once.
    pub(in crate::engine) fn decide<'l>(
        self,
        engine: &Engine,
        leases: &'l Arc<Leases>,
        plan: &Plan<'_>,
        now: Timestamp,
    ) -> FirstAttempt<'l> {
        match self.take(engine, leases, plan, Stage::First, now) {
            Taken::All(each) => FirstAttempt::Decided(by_grants(each)),
            taken => FirstAttempt::Open(Box::new((self, taken))),
        }
    }

    fn take<'l>(
        &self,
        engine: &Engine,
        leases: &'l Arc<Leases>,
        plan: &Plan<'_>,
        stage: Stage,
        now: Timestamp,
    ) -> Taken<'l> {
        Attempt { engine, plan, asks: &self.asks, stage, spans_servers: self.spans_servers, now }.take(leases)
    }

    /// Takes what grants have left while the store gives no answer.
    pub(in crate::engine) fn take_held<'l>(&self, plan: &Plan<'_>, leases: &'l Leases) -> HeldUnits<'l> {
        // The request may have waited since it came, and grants have ended.
        self.asks.take_held(plan, leases, leases.clock.now())
    }

    /// Notes what the share of this process let pass meanwhile, by places in the plan.
    pub(in crate::engine) fn owe(&self, leases: &Leases, was_local: impl Fn(usize) -> bool) {
        self.asks.owe(leases, was_local);
    }

    /// Decides what the first attempt left open: waits for draws, and asks the store for the rest.
    pub(in crate::engine) async fn finish(
        &self,
        engine: &Engine,
        shared: &Shared,
        leases: &Arc<Leases>,
        plan: &Plan<'_>,
        mut taken: Taken<'_>,
    ) -> Result<Decided, Unavailable> {
        let deadline = leases.store.deadline();
        let too_late = || Unavailable {
            why: format!("no grant came within {deadline:?}"),
            out_for: std::time::Duration::ZERO,
            retry_after: deadline,
        };
        let mut timeout = leases.store.sleep(deadline);
        let mut is_answered = false; // by the store, for other requests
        let mut stage = Stage::First;
        loop {
            let answer = match (taken, stage) {
                (Taken::All(each), _) => return Ok(by_grants(each)),
                (Taken::NoStore(unavailable), _) => return Err(unavailable),
                (Taken::Some(partly), Stage::First) => {
                    return ask_the_rest(engine, shared, plan, partly).await;
                }
                // The store has what is left of the deadline.
                (Taken::Some(partly), Stage::Again) => {
                    let mut asking = pin!(ask_the_rest(engine, shared, plan, partly));
                    let decided = poll_fn(|cx| match asking.as_mut().poll(cx) {
                        Poll::Ready(decided) => Poll::Ready(Some(decided)),
                        Poll::Pending => timeout.as_mut().poll(cx).map(|()| None),
                    });
                    match decided.await {
                        Some(decided) => return decided,
                        None => None,
                    }
                }
                (Taken::Some(_), Stage::Last) => return Err(too_late()),
                (Taken::Wait(wait), _) => wait.answer(&mut timeout).await,
            };
            stage = match answer {
                // A draw that failed alone is tried again, as long as there is time.
                Some(Err(unavailable)) if !unavailable.out_for.is_zero() => return Err(unavailable),
                Some(answer) => {
                    is_answered |= answer.is_ok();
                    Stage::Again
                }
                // The store is there, and gives this process less than its requests ask for.
                None if is_answered && stage != Stage::Last => Stage::Last,
                None => return Err(too_late()),
            };
            taken = self.take(engine, leases, plan, stage, engine.clock().now());
        }
    }
}

const fn by_grants(each: LimitDecisions) -> Decided {
    Decided { source: Source::Lease, each, permits: None }
}

/// Has the store decide what grants do not. Units go back into their grants if it denies, fails, or nobody waits any more.
async fn ask_the_rest(
    engine: &Engine,
    shared: &Shared,
    plan: &Plan<'_>,
    mut partly: Box<PartlyTaken<'_>>,
) -> Result<Decided, Unavailable> {
    let mut decided = shared.decide_places(engine, plan, &partly.stored).await?;
    let stored = std::mem::take(&mut decided.each);
    let denies = |(place, each): (&usize, &crate::store::LimitDecision)| {
        plan.asks[*place].group == Group::All && !each.decision.is_allowed()
    };
    let passes = !partly.stored.iter().zip(&stored).any(denies) && !partly.is_denied;
    partly.settle(passes);
    for (place, each) in partly.stored.iter().zip(stored) {
        partly.each[*place] = each;
    }
    decided.each = std::mem::take(&mut partly.each);
    Ok(decided)
}
