//! Rules that come with the request.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use tollgate::{Decision, KeyedLimiter, Rule, Tier, Timestamp};

use crate::policy::sent_rule;

/// What a rule that came with a request decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttled {
    /// The outcome, and how the key stands after it.
    pub decision: Decision,
    /// The rule.
    pub rule: Rule,
}

/// Why a request with a rule of its own was not decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ThrottleError {
    /// The rule makes no sense: what is wrong, and what would be right.
    #[error("{0}")]
    Rule(String),
    /// As many rules as can be told apart are in use.
    #[error("too many different rules are in use: write them in the policy file, as tiers of a limit")]
    TooManyRules,
}

/// A request with the rule it is to be decided by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent<'a> {
    pub(super) key: &'a str,
    pub(super) algorithm: &'a str,
    pub(super) numbers: &'a str, // as a JSON object
    pub(super) cost: u64,
}

/// So many rules are remembered with what they were asked for by. Those not used for longest make room.
const MOST_RULES: usize = 4096;

/// A rule in a longer text is not one.
const LONGEST_TEXT: usize = 1024;

/// The limiters of rules that come with requests: one for each algorithm, so that a key that is asked under two of them
/// in turn is not forgotten by either.
pub(super) struct Throttle {
    limiter: KeyedLimiter,
    rules: RwLock<HashMap<&'static str, Rules<Box<str>>>>, // by algorithm, then by the text they came in
}

impl Throttle {
    pub(super) fn new(limiter: KeyedLimiter) -> Self {
        Self { limiter, rules: RwLock::default() }
    }

    /// Any of the table's limiters.
    pub(super) const fn limiter(&self) -> &KeyedLimiter {
        &self.limiter
    }

    /// Decides by the rule that was sent.
    pub(super) fn check(&self, sent: &Sent<'_>, now: Timestamp) -> Result<Throttled, ThrottleError> {
        if let Some(throttled) = self.check_known(sent, now) {
            return Ok(throttled);
        }
        if sent.numbers.len() > LONGEST_TEXT {
            let message = format!("a rule of {} bytes: {LONGEST_TEXT} are the most", sent.numbers.len());
            return Err(ThrottleError::Rule(message));
        }
        let (algorithm, rule) = sent_rule(sent.algorithm, sent.numbers).map_err(ThrottleError::Rule)?;
        self.add(algorithm, sent.numbers, rule, now)?;
        // Somebody else may have taken its place since; that has to be done four thousand times in between.
        self.check_known(sent, now).ok_or(ThrottleError::TooManyRules)
    }

    fn check_known(&self, sent: &Sent<'_>, now: Timestamp) -> Option<Throttled> {
        let rules = self.rules.read();
        let rules = rules.get(sent.algorithm)?;
        let known = rules.known.get(sent.numbers)?;
        known.use_at(now);
        let decision = rules.limiter.ask(sent.key).tier(known.tier).cost(sent.cost).check_at(now);
        Some(Throttled { decision, rule: known.rule })
    }

    fn add(
        &self,
        algorithm: &'static str,
        numbers: &str,
        rule: Rule,
        now: Timestamp,
    ) -> Result<(), ThrottleError> {
        let mut all = self.rules.write();
        if !all.contains_key(algorithm) {
            let limiter = self.limiter.another(rule).map_err(|_| ThrottleError::TooManyRules)?;
            all.insert(algorithm, Rules::new(limiter));
        }
        all.get_mut(algorithm).expect("just inserted").add(numbers.into(), rule, now)
    }
}

/// The rules of one limiter, by what they are asked for by.
pub(super) struct Rules<N> {
    pub(super) limiter: KeyedLimiter,
    pub(super) known: HashMap<N, Known>,
    spare: Vec<Tier>,
}

pub(super) struct Known {
    pub(super) tier: Tier,
    rule: Rule,
    used: AtomicU64, // when, last
}

impl Known {
    /// Notes that it is in use.
    pub(super) fn use_at(&self, now: Timestamp) {
        self.used.store(now.as_nanos(), Ordering::Relaxed);
    }
}

impl<N: Eq + Hash> Rules<N> {
    pub(super) fn new(limiter: KeyedLimiter) -> Self {
        Self { limiter, known: HashMap::new(), spare: Vec::new() }
    }

    /// Remembers a rule, unless it is known.
    pub(super) fn add(&mut self, numbers: N, rule: Rule, now: Timestamp) -> Result<(), ThrottleError> {
        if self.known.contains_key(&numbers) {
            return Ok(());
        }
        if self.known.len() >= MOST_RULES {
            self.forget_some();
        }
        let tier = match self.spare.pop() {
            None => self.limiter.add_tier(rule),
            Some(tier) => {
                self.limiter.set_tier(tier, rule).map(|()| tier).inspect_err(|_| self.spare.push(tier))
            }
        };
        let tier = tier.map_err(|_| ThrottleError::TooManyRules)?;
        let used = AtomicU64::new(now.as_nanos());
        self.known.insert(numbers, Known { tier, rule, used });
        Ok(())
    }

    /// Forgets an eighth of the rules, those not used for longest. Their keys stay, and are carried over to whichever
    /// rule they are asked under next.
    fn forget_some(&mut self) {
        let mut times: Vec<u64> =
            self.known.values().map(|known| known.used.load(Ordering::Relaxed)).collect();
        let eighth = times.len() / 8;
        let (_, &mut until, _) = times.select_nth_unstable(eighth);
        let mut left = eighth + 1;
        let spare = &mut self.spare;
        self.known.retain(|_, known| {
            let stays = left == 0 || known.used.load(Ordering::Relaxed) > until;
            if !stays {
                spare.push(known.tier);
                left -= 1;
            }
            stays
        });
    }
}

impl fmt::Debug for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Throttle(..)")
    }
}
