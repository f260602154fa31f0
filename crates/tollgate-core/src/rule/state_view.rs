//! Reads a state under another rule than the rule that wrote it. The state does not change.
#![deny(clippy::wildcard_enum_match_arm, reason = "a new algorithm must be handled in every match")]

use std::borrow::Cow;

use super::{Kind as _, Rule, State, read};
use crate::sliding_log::ConvertedLog;
use crate::{Log, Outcome, Status, Timestamp};

/// The state of a key, either as it is or as [`Rule::convert`] would leave it.
///
/// Logs and permits can be large. A view does not copy them. Its methods take O(log n) time for n entries or permits.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::{PermitId, Rule, SlidingLog, State, Timestamp};
///
/// let old = Rule::from(SlidingLog::new(100, Duration::from_secs(60))?);
/// let new = Rule::from(SlidingLog::new(50, Duration::from_secs(30))?);
/// let (mut key, at) = (State::default(), |s: u64| Timestamp::from_nanos(s * 1_000_000_000));
/// old.spend(&mut key, PermitId(0), 50, at(0));
///
/// let view = new.view(&old, &key, at(20));
/// let outcome = view.test(&new, 1, at(20));
/// assert_eq!(outcome.retry_after().map(|wait| wait.as_secs_ceil()), Some(20));
///
/// let mut copy = key.clone();
/// new.convert(&old, &mut copy, at(20));
/// assert_eq!(new.test(&copy, 1, at(20)), outcome);
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Debug)]
pub struct StateView<'a>(Form<'a>);

#[derive(Clone, Debug)]
enum Form<'a> {
    State(Cow<'a, State>),
    Log(ConvertedLog<'a>),
}

impl<'a> From<&'a State> for StateView<'a> {
    /// The state as it is.
    #[inline]
    fn from(state: &'a State) -> Self {
        Self(Form::State(Cow::Borrowed(state)))
    }
}

impl From<State> for StateView<'_> {
    /// The state as it is.
    #[inline]
    fn from(state: State) -> Self {
        Self(Form::State(Cow::Owned(state)))
    }
}

impl Rule {
    /// The state as [`convert`](Self::convert) would leave it. Nothing is changed. [`StateView`] has an example.
    pub fn view<'a>(&self, old: &Self, state: &'a State, now: Timestamp) -> StateView<'a> {
        match (self, old) {
            (Self::SlidingLog(new), Self::SlidingLog(old)) => match Log::find(state) {
                Some(log) => StateView(Form::Log(ConvertedLog::new(new, old, log, now))),
                None => State::Unused.into(),
            },
            (Self::Concurrency(_), Self::Concurrency(_)) => state.into(),
            (Self::SlidingLog(_), Self::SlidingCounter(_)) => {
                let units = self.units_to_take_over(old, state, now) as usize; // at most the limit of a log
                StateView(Form::Log(ConvertedLog::of_units(units, now)))
            }
            (Self::SlidingCounter(_), Self::SlidingLog(_)) => self.with_units_of(old, state, now).into(),
            // The algorithm changes, so the conversion drops the state. No copy is needed.
            (_, Self::SlidingLog(_) | Self::Concurrency(_)) => State::Unused.into(),
            (
                _,
                Self::TokenBucket(_)
                | Self::LeakyBucket(_)
                | Self::TokenBucketMaxWait(_)
                | Self::LeakyBucketMaxWait(_)
                | Self::FixedWindow(_)
                | Self::SlidingCounter(_)
                | Self::BurstCredits(_),
            ) => {
                let mut copy = state.clone();
                self.convert(old, &mut copy, now);
                copy.into()
            }
        }
    }
}

impl StateView<'_> {
    /// [`Rule::test`] of this state.
    #[inline]
    pub fn test(&self, rule: &Rule, cost: u64, now: Timestamp) -> Outcome {
        match (&self.0, rule) {
            (Form::Log(log), Rule::SlidingLog(rule)) => rule.test_entries(log, cost, now),
            (form, _) => rule.test(form.state(), cost, now),
        }
    }

    /// [`Rule::test_in_full`] of this state.
    pub fn test_in_full(&self, rule: &Rule, cost: u64, now: Timestamp) -> Outcome {
        match (&self.0, rule) {
            (Form::Log(log), Rule::SlidingLog(rule)) => rule.test_entries_in_full(log, cost, now),
            (form, _) => rule.test_in_full(form.state(), cost, now),
        }
    }

    /// [`Rule::status`] of this state.
    #[inline]
    pub fn status(&self, rule: &Rule, now: Timestamp) -> Status {
        match (&self.0, rule) {
            (Form::Log(log), Rule::SlidingLog(rule)) => rule.status_of_entries(log, now),
            (form, _) => rule.status(form.state(), now),
        }
    }

    /// The number of units that [`Rule::refund`] would give back.
    pub fn refundable(&self, rule: &Rule, cost: u64, charged: Timestamp, now: Timestamp) -> u64 {
        match (&self.0, rule) {
            (_, Rule::Concurrency(_)) => 0,
            (Form::Log(log), Rule::SlidingLog(rule)) => rule.refundable(log, cost, charged, now).len() as u64,
            (form, Rule::SlidingLog(rule)) => {
                read(form.state(), |log: &Log| rule.refundable(log, cost, charged, now).len() as u64)
            }
            (form, _) => rule.refund(&mut form.state().clone(), cost, charged, now),
        }
    }

    /// [`State::heap_bytes`] of this state. If the view has a copy of a small state, these are the bytes of the copy.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Form::State(state) => state.heap_bytes(),
            Form::Log(log) => log.heap_bytes(),
        }
    }

    /// [`Rule::heap_growth`] of this state.
    pub fn heap_growth(&self, rule: &Rule, cost: u64) -> usize {
        match (&self.0, rule) {
            (Form::Log(log), Rule::SlidingLog(rule)) => rule.heap_growth(log, cost),
            (form, _) => rule.heap_growth(form.state(), cost),
        }
    }

    /// [`Rule::heap_growth_in_full`] of this state.
    pub fn heap_growth_in_full(&self, rule: &Rule, cost: u64) -> usize {
        match (&self.0, rule) {
            (Form::Log(log), Rule::SlidingLog(rule)) => rule.heap_growth_in_full(log, cost),
            (form, _) => rule.heap_growth_in_full(form.state(), cost),
        }
    }
}

impl Form<'_> {
    /// The state for rules of other algorithms than the sliding log. For them, a log is an unused state.
    #[inline]
    fn state(&self) -> &State {
        match self {
            Self::State(state) => state,
            Self::Log(_) => &State::Unused,
        }
    }
}
