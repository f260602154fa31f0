//! Rules that come with the request.

use std::collections::HashMap;
use std::fmt;
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

/// So many rules are remembered with the text they came in. Those not used for longest make room.
const MOST_RULES: usize = 4096;

/// A rule in a longer text is not one.
const LONGEST_TEXT: usize = 1024;

/// The limiters of rules that come with requests: one for each algorithm, so that a key that is asked under two of them
/// in turn is not forgotten by either.
pub(super) struct Throttle {
    limiter: KeyedLimiter,
    rules: RwLock<HashMap<&'static str, Rules>>, // by algorithm
}

/// The rules of one algorithm, by the text they came in.
struct Rules {
    limiter: KeyedLimiter,
    known: HashMap<Box<str>, Known>,
    spare: Vec<Tier>,
}

struct Known {
    tier: Tier,
    rule: Rule,
    used: AtomicU64, // when, last
}

impl Throttle {
    pub(super) fn new(limiter: KeyedLimiter) -> Self {
        Self { limiter, rules: RwLock::default() }
    }

    /// Any of the table's limiters.
    pub(super) const fn limiter(&self) -> &KeyedLimiter {
        &self.limiter
    }

    /// Decides by a rule of an algorithm whose numbers are written in JSON.
    pub(super) fn check(
        &self,
        key: &str,
        algorithm: &str,
        numbers: &str,
        cost: u64,
        now: Timestamp,
    ) -> Result<Throttled, ThrottleError> {
        if let Some(throttled) = self.check_known(key, algorithm, numbers, cost, now) {
            return Ok(throttled);
        }
        if numbers.len() > LONGEST_TEXT {
            let message = format!("a rule of {} bytes: {LONGEST_TEXT} are the most", numbers.len());
            return Err(ThrottleError::Rule(message));
        }
        let (algorithm, rule) = sent_rule(algorithm, numbers).map_err(ThrottleError::Rule)?;
        self.add(algorithm, numbers, rule, now)?;
        // Somebody else may have taken its place since; that has to be done four thousand times in between.
        self.check_known(key, algorithm, numbers, cost, now).ok_or(ThrottleError::TooManyRules)
    }

    fn check_known(
        &self,
        key: &str,
        algorithm: &str,
        numbers: &str,
        cost: u64,
        now: Timestamp,
    ) -> Option<Throttled> {
        let rules = self.rules.read();
        let rules = rules.get(algorithm)?;
        let known = rules.known.get(numbers)?;
        known.used.store(now.as_nanos(), Ordering::Relaxed);
        let decision = rules.limiter.ask(key).tier(known.tier).cost(cost).check_at(now);
        Some(Throttled { decision, rule: known.rule })
    }

    fn add(
        &self,
        algorithm: &'static str,
        numbers: &str,
        rule: Rule,
        now: Timestamp,
    ) -> Result<(), ThrottleError> {
        let full = |_| ThrottleError::TooManyRules;
        let mut all = self.rules.write();
        if !all.contains_key(algorithm) {
            let limiter = self.limiter.another(rule).map_err(full)?;
            all.insert(algorithm, Rules { limiter, known: HashMap::new(), spare: Vec::new() });
        }
        let rules = all.get_mut(algorithm).expect("just inserted");
        if rules.known.contains_key(numbers) {
            return Ok(());
        }
        if rules.known.len() >= MOST_RULES {
            rules.forget_some();
        }
        let tier = match rules.spare.pop() {
            None => rules.limiter.add_tier(rule).map_err(full)?,
            Some(tier) => match rules.limiter.set_tier(tier, rule) {
                Ok(()) => tier,
                Err(too_many) => {
                    rules.spare.push(tier);
                    return Err(full(too_many));
                }
            },
        };
        let used = AtomicU64::new(now.as_nanos());
        rules.known.insert(numbers.into(), Known { tier, rule, used });
        Ok(())
    }
}

impl Rules {
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
