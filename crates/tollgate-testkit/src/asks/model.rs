//! The rules of deciding, slow and obvious.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::language::{Action, Ask, AskAnswer, Decided, FixedDenial, Group, Key};
use super::rule::State;
use crate::answer::{Answer, Retry};

/// Decides asks together, and keeps the states of their keys.
pub trait Decide {
    /// Decides a request at `now` (ns).
    fn decide(&mut self, now: u64, asks: &[Ask]) -> Decided;

    /// Gives the slots of a permit back.
    fn release(&mut self, now: u64, permit: u64);
}

impl Decide for Box<dyn Decide> {
    fn decide(&mut self, now: u64, asks: &[Ask]) -> Decided {
        (**self).decide(now, asks)
    }

    fn release(&mut self, now: u64, permit: u64) {
        (**self).release(now, permit);
    }
}

/// Keeps the state of every key for ever.
#[derive(Debug)]
pub struct Model {
    states: HashMap<Key, State>,
    slots: HashMap<u64, Vec<(Key, u64)>>, // by permit
    next_id: u64,
    tick: u64,
    empty_since: Option<u64>,
    untouched: Option<State>, // of a key that has no state yet, and gets none by the ask
}

impl Model {
    /// A model of a back end whose clock has this tick (ns). Its waits are rounded up to ticks.
    pub fn new(tick: u64) -> Self {
        Self {
            states: HashMap::new(),
            slots: HashMap::new(),
            next_id: 0,
            tick,
            empty_since: None,
            untouched: None,
        }
    }

    /// A model whose token buckets were empty at `since` (ns) instead of full.
    pub(super) fn empty_since(since: u64) -> Self {
        Self { empty_since: Some(since), ..Self::new(1) }
    }

    fn state(&mut self, ask: &Ask) -> &mut State {
        let Some(since) = self.empty_since else {
            return self.states.entry(ask.key.clone()).or_insert_with(|| ask.rule.state());
        };
        // A limit of 0 has nothing to give, so nothing is taken from it, except that usage is counted.
        let is_counted = ask.action == Action::ChargeInFull && ask.cost > 0;
        if ask.denial == Some(FixedDenial::Blocked) && !is_counted && !self.states.contains_key(&ask.key) {
            return self.untouched.insert(ask.rule.state());
        }
        self.states.entry(ask.key.clone()).or_insert_with(|| ask.rule.empty_state(since))
    }

    /// Tests an ask, together with the costs of earlier charges of the same key.
    fn test(&mut self, now: u64, ask: &Ask, earlier: u64) -> Result<u64, Retry> {
        let in_full = ask.action == Action::ChargeInFull;
        let reset = self.status(now, ask).reset;
        match (ask.cost, ask.denial) {
            _ if ask.action == Action::Refund => Ok(0),
            (1.., Some(_)) => Err(Retry::Never),
            // An earlier charge of the call would be above a limit of 0, too.
            (0, Some(FixedDenial::Blocked)) if in_full && earlier > 0 => Err(Retry::Never),
            // A key is above a limit of 0 as long as anything counts.
            (0, Some(FixedDenial::Blocked)) if in_full && reset > 0 => Err(Retry::After(reset)),
            (0, Some(FixedDenial::Blocked)) => Ok(0),
            // A peek is not affected by others.
            (0, _) if !in_full => Ok(0),
            (cost, _) => {
                let answer = self.state(ask).would(now, cost + earlier, in_full);
                answer.retry.map_or(Ok(answer.delay), Err)
            }
        }
    }

    fn charge(&mut self, now: u64, ask: &Ask) {
        let permit = (ask.action == Action::Hold && ask.rule.is_concurrency()).then_some(self.next_id);
        if permit.is_some() {
            self.slots.entry(ask.permit).or_default().push((ask.key.clone(), self.next_id));
            self.next_id += 1;
        }
        self.state(ask).charge(now, ask.cost, ask.action == Action::ChargeInFull, permit);
    }

    /// The state of a key. With a limit of 0, nothing remains.
    fn status(&mut self, now: u64, ask: &Ask) -> Answer {
        let status = self.state(ask).would(now, 0, false);
        match ask.denial {
            Some(FixedDenial::Blocked) => Answer { remaining: 0, ..status },
            _ => status,
        }
    }

    fn answer(&mut self, now: u64, ask: &Ask, tested: Result<u64, Retry>, is_charged: bool) -> AskAnswer {
        let up = |nanos: u64| nanos.next_multiple_of(self.tick);
        let tested = match tested {
            Ok(delay) => Ok(up(delay)),
            Err(Retry::After(wait)) => Err(Retry::After(up(wait))),
            other => other,
        };
        let status = self.status(now, ask);
        let reset = status.reset.next_multiple_of(self.tick);
        AskAnswer { answer: Answer::new(tested, status.remaining, reset), is_charged, is_known: true }
    }
}

impl Decide for Model {
    fn decide(&mut self, now: u64, asks: &[Ask]) -> Decided {
        let is_together = |ask: &Ask| ask.group != Group::Independent;
        // Every ask of All and AnyOf is tested against the states before the request.
        let mut tested = vec![Ok(0); asks.len()];
        for (place, ask) in asks.iter().enumerate().filter(|(_, ask)| is_together(ask)) {
            let same = asks[..place].iter().filter(|other| is_together(other) && other.key == ask.key);
            let earlier = same.filter(|other| other.can_be_charged()).map(|other| other.cost).sum();
            tested[place] = self.test(now, ask, earlier);
        }
        let allows = |group: Group| {
            asks.iter().zip(&tested).filter(move |(ask, _)| ask.group == group).map(|(_, test)| test.is_ok())
        };
        let passes = allows(Group::All).all(|allows| allows)
            && (allows(Group::AnyOf).next().is_none() || allows(Group::AnyOf).any(|allows| allows));
        // Then they are charged or given back, in order.
        let mut answers: Vec<Option<AskAnswer>> = vec![None; asks.len()];
        for (place, ask) in asks.iter().enumerate().filter(|(_, ask)| is_together(ask)) {
            let is_due = ask.can_be_charged() && passes && tested[place].is_ok();
            let is_charged = is_due || ask.is_charged_on_denial();
            if is_charged {
                self.charge(now, ask);
            }
            if passes && ask.action == Action::Refund {
                self.state(ask).refund(now, ask.cost);
            }
            answers[place] = Some(self.answer(now, ask, tested[place], is_charged));
        }
        // Independent asks see all of that, and do not change it.
        for (place, ask) in asks.iter().enumerate().filter(|(_, ask)| !is_together(ask)) {
            let test = self.test(now, ask, 0);
            let needs_pass = ask.action == Action::Hold && ask.rule.is_concurrency();
            let is_due = ask.can_be_charged() && test.is_ok() && (passes || !needs_pass);
            let is_charged = is_due || ask.is_charged_on_denial();
            if is_charged {
                self.charge(now, ask);
            }
            if passes && ask.action == Action::Refund {
                self.state(ask).refund(now, ask.cost);
            }
            answers[place] = Some(self.answer(now, ask, test, is_charged));
        }
        summary(asks, answers.into_iter().flatten().collect())
    }

    fn release(&mut self, now: u64, permit: u64) {
        for (key, id) in self.slots.remove(&permit).unwrap_or_default() {
            if let Some(State::Slots(slots)) = self.states.get_mut(&key) {
                slots.release(now, id);
            }
        }
    }
}

/// What the answers come to.
pub(super) fn summary(asks: &[Ask], answers: Vec<AskAnswer>) -> Decided {
    let of = |group: Group| {
        let both = asks.iter().zip(&answers).enumerate();
        both.filter(move |(_, (ask, _))| ask.group == group)
            .map(|(place, (_, answer))| (place, answer.answer))
    };
    let best = of(Group::AnyOf).map(|(_, answer)| rank(&answer)).min();
    let counts = |answer: &Answer| answer.allowed || best.is_none_or(|best| rank(answer) == best);
    let counting: Vec<(usize, Answer)> =
        of(Group::All).chain(of(Group::AnyOf).filter(|(_, answer)| counts(answer))).collect();
    let worst = counting.iter().map(|(_, answer)| rank(answer)).max().unwrap_or((0, 0));
    let is_denied = worst.0 > 0;
    let explains = counting.iter().filter(|(_, answer)| !is_denied || rank(answer) == worst);
    let reported = explains.min_by_key(|(place, answer)| (answer.remaining, Reverse(answer.reset), *place));
    let outcome = match worst {
        (0, _) => Ok(counting.iter().map(|(_, answer)| answer.delay).max().unwrap_or(0)),
        (1, wait) => Err(Retry::After(wait)),
        (2, _) => Err(Retry::Unknown),
        _ => Err(Retry::Never),
    };
    Decided { outcome, reported: reported.map(|(place, _)| *place), answers }
}

/// Orders answers: one that allows comes first, then the waits by length, unknown, never.
fn rank(answer: &Answer) -> (u8, u64) {
    match answer.retry {
        None => (0, 0),
        Some(Retry::After(wait)) => (1, wait),
        Some(Retry::Unknown) => (2, 0),
        Some(Retry::Never) => (3, 0),
    }
}
