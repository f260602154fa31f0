//! From what a script answers to what is told: the script says which states it found and whether it charged them; what that
//! means, the rules themselves say.
//!
//! So waits, what remains and who is reported are worked out by the same code as for states in memory, from the states as
//! they were before the charge.

use redis::Value;
use smallvec::SmallVec;
use tollgate_core::lease::{Draw, Grant};
use tollgate_core::{
    Action, Counts, Credits, Decision, Group, Nanos, Outcome, PermitId, Plan, Retry, Rule, RuleParts, State,
    Status, Tat, Timestamp, Waiting, Window, decide_each,
};
use tollgate_policy::{Drawn, KeyState, LimitDecision, LimitDecisions};

use crate::numbers::{MICRO, Schedule};
use crate::request::{Limit, Prepared, Which};

/// What a script has answered.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "it is nearly always the large one")]
pub(crate) enum Answer<T = Replayed> {
    /// It has decided.
    Decided(T),
    /// It has not, because the state of a key was written by other numbers.
    OtherNumbers {
        /// Which key.
        key: usize,
        /// The state as it is.
        held: Vec<u8>,
        /// In microseconds.
        now: u64,
    },
}

/// What was decided of each ask, and whether the request passes.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) passes: bool,
    pub(crate) each: LimitDecisions,
}

/// An answer that no script gives.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Misunderstood {
    #[error("the store's answer cannot be read")]
    Unreadable,
    #[error("the store's script and the rules disagree")]
    Disagree,
}

/// Reads an answer and works out what it means.
pub(crate) fn read(prepared: &Prepared, which: Which, answer: Value) -> Result<Answer, Misunderstood> {
    let items = match answer {
        Value::Array(items) => items,
        // One bucket, by how much it was ahead.
        Value::Int(ahead) if which == Which::Buckets => {
            let (status, ahead) = if ahead >= 0 { (1, ahead) } else { (0, -1 - ahead) };
            return decided(prepared, which, status, NOW, &mut Items(vec![Value::Int(ahead)].into_iter()));
        }
        _ => return Err(Misunderstood::Unreadable),
    };
    let mut items = Items(items.into_iter());
    let status = items.number()?;
    if status == 2 {
        return other_numbers(prepared, &mut items);
    }
    let now = if which == Which::Buckets { NOW } else { items.number()? };
    decided(prepared, which, status, now, &mut items)
}

/// Reads which key has a state of other numbers.
fn other_numbers<T>(prepared: &Prepared, items: &mut Items) -> Result<Answer<T>, Misunderstood> {
    let now = items.number()?;
    let key = usize::try_from(items.number()?).map_err(|_| Misunderstood::Unreadable)?;
    let Some(Value::BulkString(held)) = items.0.next() else { return Err(Misunderstood::Unreadable) };
    let key = key.checked_sub(1).filter(|key| prepared.limits.iter().any(|limit| limit.key == *key));
    Ok(Answer::OtherNumbers { key: key.ok_or(Misunderstood::Unreadable)?, held, now })
}

/// Reads the answer to a draw of one key. The grant is that of the rule, from the state that the script found. The script must have
/// charged as many units.
pub(crate) fn read_drawn(
    prepared: &Prepared,
    draw: &Draw,
    answer: Value,
) -> Result<Answer<Drawn>, Misunderstood> {
    let Value::Array(items) = answer else { return Err(Misunderstood::Unreadable) };
    let mut items = Items(items.into_iter());
    if items.number()? == 2 {
        return other_numbers(prepared, &mut items);
    }
    let (now, units) = (items.number()?, items.number()?);
    let [limit] = &prepared.limits[..] else { return Err(Misunderstood::Unreadable) };
    let Held::State(mut state) = Held::read(limit, Which::Plan, &mut items)? else {
        return Err(Misunderstood::Unreadable);
    };
    let charged = Timestamp::from_nanos(now.saturating_mul(MICRO));
    let grant = limit.rule.grant(&mut state, draw, charged);
    if grant.units != units {
        return Err(Misunderstood::Disagree);
    }
    let retry = grant.retry.map(retry_in_micros);
    let (start, status) = (in_micros(grant.start), status_in_micros(grant.status));
    Ok(Answer::Decided(Drawn { grant: Grant { start, retry, status, ..grant }, charged }))
}

/// Buckets tell how far they are ahead of now, whenever that was: any time will do to work out the rest.
const NOW: u64 = 1 << 50;

fn decided(
    prepared: &Prepared,
    which: Which,
    status: u64,
    now: u64,
    items: &mut Items,
) -> Result<Answer, Misunderstood> {
    let at = Timestamp::from_nanos(now.saturating_mul(MICRO));
    let is_late = |limit: &Limit| limit.is_repeated && limit.group == Group::Independent;
    // The script loads the states of late asks last, after the charges of the others.
    let mut held: SmallVec<[Option<Held>; 4]> = smallvec::smallvec![None; prepared.limits.len()];
    for late in [false, true] {
        for (limit, held) in prepared.limits.iter().zip(&mut held).filter(|(limit, _)| is_late(limit) == late)
        {
            *held = Some(Held::read(limit, which, items)?);
        }
    }
    let lines = prepared.limits.iter().zip(held);
    let lines = lines.map(|(limit, held)| Some(Line { limit, held: held?, is_late: is_late(limit) }));
    let mut lines = Lines(lines.collect::<Option<_>>().ok_or(Misunderstood::Unreadable)?);
    let mut decisions: SmallVec<[Decision; 4]> = smallvec::smallvec![Decision::default(); lines.len()];
    let passes = decide_each(&mut lines, at, &mut decisions);
    if (status == 1) != passes {
        return Err(Misunderstood::Disagree);
    }
    let each = lines.0.iter().zip(decisions).map(|(line, decision)| line.in_micros(decision, at)).collect();
    Ok(Answer::Decided(Replayed { passes, each }))
}

/// What is left of an answer.
struct Items(std::vec::IntoIter<Value>);

impl Items {
    fn number(&mut self) -> Result<u64, Misunderstood> {
        match self.0.next() {
            Some(Value::Int(number)) => u64::try_from(number).map_err(|_| Misunderstood::Unreadable),
            _ => Err(Misunderstood::Unreadable),
        }
    }

    /// How far a schedule is ahead, as buckets.lua tells it: whole microseconds, or with pieces.
    fn ahead(&mut self) -> Result<(u64, u64), Misunderstood> {
        let text = match self.0.next() {
            Some(Value::Int(whole)) => {
                return u64::try_from(whole).map(|whole| (whole, 0)).map_err(|_| Misunderstood::Unreadable);
            }
            Some(Value::BulkString(text)) => text,
            _ => return Err(Misunderstood::Unreadable),
        };
        let parts = std::str::from_utf8(&text).ok().and_then(|text| text.split_once('+'));
        let numbers = parts.and_then(|(whole, part)| Some((whole.parse().ok()?, part.parse().ok()?)));
        numbers.ok_or(Misunderstood::Unreadable)
    }
}

/// A limit, with the state that the script found.
struct Line<'l> {
    limit: &'l Limit,
    held: Held,
    is_late: bool, // its state was loaded after the charges of the others that name its key
}

/// A state, or of one that may be large what matters.
#[derive(Clone)]
enum Held {
    State(State),
    Log(Queue),
    Places(Queue),
}

/// Units in the order in which they leave.
#[derive(Clone, Copy, Debug)]
struct Queue {
    count: u64,
    first_leaves: Option<Timestamp>,
    last_leaves: Option<Timestamp>,
    makes_room: Option<Timestamp>, // when so many have left that the cost fits
}

impl Held {
    fn read(limit: &Limit, which: Which, next: &mut Items) -> Result<Self, Misunderstood> {
        let schedule = |bucket| Schedule::new(bucket);
        Ok(Self::State(match limit.parts {
            RuleParts::TokenBucket { bucket, .. } | RuleParts::LeakyBucket { bucket, .. }
                if which == Which::Buckets =>
            {
                let (ahead, part) = next.ahead()?;
                State::Bucket(schedule(bucket).tat(NOW + ahead, part))
            }
            RuleParts::TokenBucket { bucket, waits, .. } | RuleParts::LeakyBucket { bucket, waits } => {
                let tat = schedule(bucket).tat(next.number()?, next.number()?);
                let turns = next.number()?;
                let turns = (0..turns).map(|_| next.number().map(time)).collect::<Result<Vec<_>, _>>()?;
                if waits.is_some() { State::Waiting(Waiting::new(tat, turns)) } else { State::Bucket(tat) }
            }
            RuleParts::BurstCredits { base, peak } => {
                let base = schedule(base).tat(next.number()?, next.number()?);
                State::Credits(Credits::new(base, schedule(peak).tat(next.number()?, next.number()?)))
            }
            RuleParts::FixedWindow { .. } => State::Window(Window::new(time(next.number()?), next.number()?)),
            RuleParts::SlidingCounter { buckets, .. } => {
                let newest = next.number()?;
                let ring = (0..=buckets).map(|_| next.number()).collect::<Result<SmallVec<[u64; 2]>, _>>()?;
                State::Counts(Counts::of_ring(newest, &ring))
            }
            RuleParts::SlidingLog { window, .. } => {
                let count = next.number()?;
                let leaves = |came: u64| (came > 0).then(|| time(came).after(window));
                let [newest, oldest, last] = [next.number()?, next.number()?, next.number()?].map(leaves);
                return Ok(Self::Log(Queue {
                    count,
                    first_leaves: oldest,
                    last_leaves: newest,
                    makes_room: last,
                }));
            }
            RuleParts::Concurrency { .. } => {
                let count = next.number()?;
                let leaves = |ends: u64| (ends > 0).then(|| time(ends));
                let [first_leaves, last_leaves, makes_room] =
                    [next.number()?, next.number()?, next.number()?].map(leaves);
                return Ok(Self::Places(Queue { count, first_leaves, last_leaves, makes_room }));
            }
        }))
    }
}

const fn time(micros: u64) -> Timestamp {
    Timestamp::from_nanos(micros * MICRO)
}

impl Schedule {
    /// The state of a schedule that reaches to so many whole microseconds and pieces.
    pub(crate) fn tat(&self, whole: u64, part: u64) -> Tat {
        // Modulo 2^64, as the word itself counts.
        Tat::from_bits(whole.wrapping_mul(self.per).wrapping_add(part))
    }
}

impl Queue {
    fn test(&self, limit: u64, cost: u64, now: Timestamp) -> Outcome {
        if cost > limit {
            return Outcome::NEVER;
        }
        if cost == 0 || cost <= limit.saturating_sub(self.count) {
            return Outcome::ALLOW;
        }
        self.makes_room.map_or(Outcome::Deny { retry: Retry::Unknown }, |room| Outcome::Deny {
            retry: Retry::After(room.since(now)),
        })
    }

    /// [`test`](Self::test) of a request that is charged in any case: cost 0 is denied while there are more than the limit.
    fn test_in_full(&self, limit: u64, cost: u64, now: Timestamp) -> Outcome {
        match self.makes_room {
            Some(room) if cost == 0 && self.count > limit => {
                Outcome::Deny { retry: Retry::After(room.since(now)) }
            }
            _ => self.test(limit, cost, now),
        }
    }

    fn spend(&mut self, cost: u64, leaves: Timestamp) {
        if cost > 0 {
            self.count += cost;
            self.first_leaves = Some(self.first_leaves.map_or(leaves, |first| first.min(leaves)));
            self.last_leaves = Some(self.last_leaves.map_or(leaves, |last| last.max(leaves)));
        }
    }

    fn status(&self, limit: u64, now: Timestamp) -> Status {
        let last = self.last_leaves.filter(|_| self.count > 0);
        Status {
            remaining: limit.saturating_sub(self.count),
            reset_after: last.map_or(Nanos::ZERO, |last| last.since(now)),
        }
    }
}

impl Line<'_> {
    fn test(&self, now: Timestamp) -> Outcome {
        let Limit { action, tested, is_denied, .. } = *self.limit;
        if is_denied {
            return action.test_denied(tested, self.status(now));
        }
        match action {
            Action::Refund => Outcome::ALLOW,
            Action::ChargeInFull => self.test_in_full(tested, now),
            Action::Charge | Action::Hold | Action::Peek => self.test_cost(tested, now),
        }
    }

    fn test_in_full(&self, cost: u64, now: Timestamp) -> Outcome {
        let rule = &self.limit.rule;
        let outcome = match &self.held {
            Held::State(state) => rule.test_in_full(state, cost, now),
            Held::Log(queue) | Held::Places(queue) => queue.test_in_full(rule.capacity(), cost, now),
        };
        self.until_full_pace(outcome, cost)
    }

    fn test_cost(&self, cost: u64, now: Timestamp) -> Outcome {
        let rule = &self.limit.rule;
        let outcome = match &self.held {
            Held::State(state) => rule.test(state, cost, now),
            Held::Log(queue) | Held::Places(queue) => queue.test(rule.capacity(), cost, now),
        };
        self.until_full_pace(outcome, cost)
    }

    /// A cost above the reduced limit of a window may pass when the load has gone, at a time that is not known.
    fn until_full_pace(&self, outcome: Outcome, cost: u64) -> Outcome {
        match outcome {
            Outcome::NEVER if cost <= self.limit.full.capacity() => Outcome::Deny { retry: Retry::Unknown },
            outcome => outcome,
        }
    }

    /// Does what `of` does, which names the same key.
    fn spend(&mut self, of: &Limit, now: Timestamp) {
        let (rule, cost, action) = (&self.limit.rule, of.cost, of.action);
        let in_full = action == Action::ChargeInFull;
        match (&mut self.held, action) {
            (_, Action::Peek) => {}
            (Held::State(state), Action::Refund) => _ = rule.refund(state, cost, now, now),
            (Held::Log(_) | Held::Places(_), Action::Refund) => {}
            (Held::State(state), _) if in_full => rule.spend_in_full(state, cost, now),
            (Held::State(state), _) => rule.spend(state, PermitId(0), cost, now),
            (Held::Log(queue), _) => {
                let window = rule.period().unwrap_or_default();
                // A clock that stepped back finds the log as it stood at the newest entry.
                let leaves = queue.last_leaves.unwrap_or_default().max(now.after(window));
                let most = self.limit.most_in_full().saturating_sub(queue.count);
                queue.spend(if in_full { cost.min(most) } else { cost }, leaves);
            }
            (Held::Places(queue), _) => {
                if let Rule::Concurrency(concurrency) = rule {
                    queue.spend(cost, now.after(concurrency.lease().unwrap_or_default()));
                }
            }
        }
    }

    fn status(&self, now: Timestamp) -> Status {
        match &self.held {
            Held::State(state) => self.limit.rule.status(state, now),
            Held::Log(queue) | Held::Places(queue) => queue.status(self.limit.rule.capacity(), now),
        }
    }

    /// The decision with all times in whole microseconds, rounded up: the store has no shorter ones.
    fn in_micros(&self, decision: Decision, now: Timestamp) -> LimitDecision {
        let remaining = decision.status.remaining;
        let more_after = match &self.held {
            _ if remaining >= self.limit.rule.capacity() => None,
            Held::State(_) => self.test_cost(remaining + 1, now).retry_after(),
            Held::Log(queue) | Held::Places(queue) => queue.first_leaves.map(|first| first.since(now)),
        };
        let outcome = in_micros_of(decision.outcome);
        let status = status_in_micros(decision.status);
        let key_state = KeyState::Stored { more_after: more_after.map(in_micros) };
        LimitDecision { decision: Decision { outcome, status }, key_state }
    }
}

fn in_micros(span: Nanos) -> Nanos {
    Nanos::new(span.get().div_ceil(MICRO) * MICRO)
}

fn in_micros_of(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Allow { delay } => Outcome::Allow { delay: in_micros(delay) },
        Outcome::Deny { retry } => Outcome::Deny { retry: retry_in_micros(retry) },
    }
}

fn retry_in_micros(retry: Retry) -> Retry {
    match retry {
        Retry::After(wait) => Retry::After(in_micros(wait)),
        retry => retry,
    }
}

fn status_in_micros(status: Status) -> Status {
    Status { reset_after: in_micros(status.reset_after), ..status }
}

/// The asks of a request, decided as plan.lua decides them.
struct Lines<'l>(SmallVec<[Line<'l>; 4]>);

impl Plan for Lines<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn test(&self, i: usize, now: Timestamp) -> Outcome {
        self.0[i].test(now)
    }

    fn spend(&mut self, i: usize, now: Timestamp) {
        let of = self.0[i].limit;
        self.0[i].spend(of, now);
        // Later asks that name its key have loaded the state without this charge.
        let later = self.0[i + 1..].iter_mut().filter(|line| line.limit.key == of.key && !line.is_late);
        later.for_each(|line| line.spend(of, now));
    }

    fn status(&self, i: usize, now: Timestamp) -> Status {
        self.0[i].status(now)
    }

    fn counts_denied(&self, i: usize) -> bool {
        self.0[i].limit.rule.counts_denied()
    }

    fn action(&self, i: usize) -> Action {
        self.0[i].limit.action
    }

    fn group(&self, i: usize) -> Group {
        self.0[i].limit.group
    }
}
