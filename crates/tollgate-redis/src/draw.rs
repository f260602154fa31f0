//! Draws and returns of leases: from what a node asks to a script's arguments.
#![deny(clippy::wildcard_enum_match_arm, reason = "a new algorithm must be handled in every match")]

use tollgate_core::lease::{Draw, Mark};
use tollgate_core::{Action, BucketParts, Nanos, Rule, RuleParts, State, Tat, Timestamp};
use tollgate_policy::{Ask, LeasedKey, ReturnCall};

use crate::convert::Replaced;
use crate::key::write_guard;
use crate::numbers::{MICRO, MOST, Schedule, require, schedules};
use crate::request::{Prepared, Texts, write_beginning};

/// The most units that a draw may want. The script multiplies them by units that are kept, in 104 bits.
const MOST_WANTED: u64 = 1 << 50;

/// Refuses a rule whose grants the script cannot count exactly.
///
/// The script counts a schedule in pieces, and never one that reaches further than a second beyond the burst: such a draw gets nothing.
/// No other number that it computes is above twice the pieces of the burst and of two seconds. So doubles are exact if these pieces are
/// at most 2^52.
pub(crate) fn require_lease(rule: &Rule) -> Result<(), String> {
    require(rule)?;
    match rule.parts() {
        RuleParts::TokenBucket { bucket, waits: None, .. } => require_pieces(&bucket),
        RuleParts::BurstCredits { base, peak } => {
            require_pieces(&base)?;
            require_pieces(&peak)
        }
        RuleParts::FixedWindow { counts_denied: false, .. } | RuleParts::SlidingCounter { .. } => Ok(()),
        RuleParts::TokenBucket { waits: Some(_), .. }
        | RuleParts::FixedWindow { counts_denied: true, .. }
        | RuleParts::LeakyBucket { .. }
        | RuleParts::SlidingLog { .. }
        | RuleParts::Concurrency { .. } => {
            Err(format!("a {} of this kind cannot be leased: it must be decided exactly", rule.kind()))
        }
    }
}

fn require_pieces(bucket: &BucketParts) -> Result<(), String> {
    const TWO_SECONDS: u64 = 2_000_000_000;
    let pieces = u128::from(bucket.interval) * u128::from(bucket.capacity)
        + u128::from(TWO_SECONDS) * u128::from(bucket.per_nano);
    if pieces > u128::from(MOST) {
        let most = (MOST / bucket.per_nano - TWO_SECONDS) / 1_000_000_000;
        return Err(format!(
            "it takes longer than {most} s to fill, so the store cannot count its grants exactly"
        ));
    }
    Ok(())
}

/// A draw, ready to be sent.
#[derive(Debug)]
pub(crate) struct PreparedDraw {
    /// One ask, of the cost that waits for the draw, or of cost 1.
    pub(crate) ask: Prepared,
    /// What is owed, as an ask.
    owed: Option<Prepared>,
    /// The draw, with numbers that the script counts exactly.
    pub(crate) draw: Draw,
}

impl PreparedDraw {
    pub(crate) fn new(key: &LeasedKey, draw: Draw) -> Self {
        let most_demand = u128::from(MOST_WANTED) * 1_000_000_000 / u128::from(draw.sync.get().max(1));
        let demand = draw.demand.min(u64::try_from(most_demand).unwrap_or(u64::MAX));
        let draw = Draw { demand, owed: draw.owed.min(MOST), ..draw };
        let ask = Prepared::new(&[key.ask(draw.cost.max(1))]);
        let in_full = Ask { action: Action::ChargeInFull, ..key.ask(draw.owed) };
        let owed = (draw.owed > 0).then(|| Prepared::new(&[in_full]));
        Self { ask, owed, draw }
    }

    /// The arguments of grant.lua. `now` is empty except in tests. `near` is the time in microseconds, to within some years.
    pub(crate) fn arguments(&self, now: Option<u64>, near: u64, replaced: &[Replaced]) -> Texts {
        let (Self { ask, owed, draw }, mut texts) = (self, Texts::default());
        let limit = &ask.limits[0];
        let mark = draw.mark.and_then(|mark| mark_text(mark, &limit.rule, near));
        write_beginning(now, false, replaced, &mut texts);
        texts.with(|flags| {
            flags.extend(mark.is_some().then_some(b'm'));
            flags.extend(owed.is_some().then_some(b'o'));
        });
        texts.number(draw.cost);
        limit.write_once(limit.cost, b"", false, &mut texts);
        if let Some(mark) = mark {
            texts.text(mark.as_bytes());
        }
        if let Some(owed) = owed {
            owed.limits[0].write_once(draw.owed, b"", false, &mut texts);
        }
        let mut buckets = schedules(&limit.parts);
        for parts in limit.rule.offer_parts(draw) {
            texts.numbers(&[parts.wanted, parts.least, parts.most]);
            if let Some(bucket) = buckets.next() {
                let reach = bucket.interval * bucket.capacity - parts.reserve;
                texts.numbers(&[bucket.interval, Schedule::new(bucket).per, reach, parts.kept]);
            }
        }
        ask.write_replaced(replaced, &mut texts);
        texts
    }
}

/// A mark as grant.lua takes it. None if it says nothing of a key with this rule.
fn mark_text(mark: Mark, rule: &Rule, near: u64) -> Option<String> {
    let reach = |tat: Tat, bucket: BucketParts| match tat == Tat::default() {
        true => Some("0 0".to_owned()),
        false => Schedule::new(bucket).reach_near(tat, near),
    };
    match (mark, rule.parts()) {
        (Mark::Bucket(tat), RuleParts::TokenBucket { bucket, .. }) => reach(tat, bucket),
        (Mark::Credits(credits), RuleParts::BurstCredits { base, peak }) => {
            let [of_base, of_peak] = credits.schedules();
            Some(format!("{} {}", reach(of_base, base)?, reach(of_peak, peak)?))
        }
        (Mark::Window { end, used }, RuleParts::FixedWindow { .. }) => {
            Some(format!("{} {}", end.as_nanos().div_ceil(MICRO), used.min(MOST)))
        }
        (Mark::Window { end, used }, RuleParts::SlidingCounter { .. }) => {
            // The core finds the sub-window: it presents the mark to an unused key, just before the end.
            let before = Timestamp::from_nanos(end.as_nanos().checked_sub(1)?);
            let mut state = State::default();
            rule.grant(&mut state, &Draw { mark: Some(mark), ..Draw::of_cost(0) }, before);
            let State::Counts(counts) = state else { return None };
            Some(format!("{} {}", counts.newest(), used.min(MOST)))
        }
        // The mark of another algorithm.
        (Mark::Bucket(_) | Mark::Credits(_) | Mark::Window { .. }, _) => None,
    }
}

impl Schedule {
    /// The whole microseconds and the pieces that a schedule reaches to. Its word counts modulo 2^64, so the time must be known to within
    /// some years.
    fn reach_near(&self, tat: Tat, micros: u64) -> Option<String> {
        let ahead = tat.to_bits().wrapping_sub(micros.wrapping_mul(self.per)).cast_signed();
        let pieces = i128::from(micros) * i128::from(self.per) + i128::from(ahead);
        let (pieces, per) = (u128::try_from(pieces).ok()?, u128::from(self.per));
        Some(format!("{} {}", pieces / per, pieces % per))
    }
}

/// A return, ready to be sent.
#[derive(Debug)]
pub(crate) struct PreparedReturn {
    /// One ask, which refunds the units.
    pub(crate) ask: Prepared,
    pub(crate) guard: Vec<u8>,
    charged: Timestamp,
    life: Nanos,
}

impl PreparedReturn {
    /// `process` names this process in the guard.
    pub(crate) fn new(call: &ReturnCall, process: u64) -> Self {
        let ask = Ask { action: Action::Refund, ..call.key.ask(call.units) };
        let mut guard = Vec::new();
        write_guard(&ask, process, call.grant, &mut guard);
        Self { ask: Prepared::new(&[ask]), guard, charged: call.charged, life: call.life }
    }

    /// The arguments of give_back.lua.
    pub(crate) fn arguments(&self, now: Option<u64>) -> Texts {
        let (limit, mut texts) = (&self.ask.limits[0], Texts::default());
        write_beginning(now, false, &[], &mut texts);
        texts.number(self.charged.as_nanos() / MICRO);
        texts.number(self.life.get() / MICRO);
        limit.write_once(limit.cost, b"", false, &mut texts);
        texts
    }
}
