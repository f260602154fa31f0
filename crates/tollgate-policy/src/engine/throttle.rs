//! Rules that come with the request.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::RwLock;
use tollgate::{Decision, KeyedLimiter, Request, Rule, Tier, Timestamp};

use super::Engine;
use super::share::share;
use crate::policy::sent_rule;
use crate::store::{Ask, Source};

/// What a rule that came with a request decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttled {
    /// The outcome, and how the key stands after it.
    pub decision: Decision,
    /// The rule.
    pub rule: Rule,
    /// Who decided.
    pub source: Source,
    /// Whether the state of the key is known. It is not if the store gave no answer and `on_error` decided.
    pub is_known: bool,
}

impl Throttled {
    /// Before anybody has decided.
    pub(super) fn not_yet(rule: Rule) -> Self {
        Self { decision: Decision::default(), rule, source: Source::Memory, is_known: true }
    }
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
pub struct SentRule<'a> {
    /// What it is counted by. The keys of these requests are their own, and each algorithm's.
    pub key: &'a str,
    /// The algorithm, as the policy file names it.
    pub algorithm: &'a str,
    /// Its numbers, as a JSON object.
    pub numbers: &'a str,
    /// What the request costs. 0 peeks.
    pub cost: u64,
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
    nodes: Option<Nodes>,
}

/// Among how many processes a rule is divided while the store is gone that they share. None where there is no store.
pub(super) type Nodes = Arc<AtomicU32>;

impl Throttle {
    pub(super) fn new(limiter: KeyedLimiter, nodes: Option<Nodes>) -> Self {
        Self { limiter, rules: RwLock::default(), nodes }
    }

    /// Any of the table's limiters.
    pub(super) const fn limiter(&self) -> &KeyedLimiter {
        &self.limiter
    }

    /// Decides by the rule that was sent.
    pub(super) fn check(&self, sent: &SentRule<'_>, now: Timestamp) -> Result<Throttled, ThrottleError> {
        self.with_known(sent, now, |ask, rule| Throttled {
            decision: ask.check_at(now),
            ..Throttled::not_yet(rule)
        })
    }

    /// Tells the rule that was sent.
    fn rule(&self, sent: &SentRule<'_>, now: Timestamp) -> Result<Rule, ThrottleError> {
        self.with_known(sent, now, |_, rule| rule)
    }

    /// Does something with the rule that was sent and its key in this process, which is made known if it is not.
    fn with_known<T>(
        &self,
        sent: &SentRule<'_>,
        now: Timestamp,
        mut then: impl FnMut(Request<'_>, Rule) -> T,
    ) -> Result<T, ThrottleError> {
        if let Some(done) = self.if_known(sent, now, &mut then) {
            return Ok(done);
        }
        if sent.numbers.len() > LONGEST_TEXT {
            let message = format!("a rule of {} bytes: {LONGEST_TEXT} are the most", sent.numbers.len());
            return Err(ThrottleError::Rule(message));
        }
        let (algorithm, rule) = sent_rule(sent.algorithm, sent.numbers).map_err(ThrottleError::Rule)?;
        self.add(algorithm, sent.numbers, rule, now)?;
        // Somebody else may have taken its place since; that has to be done four thousand times in between.
        self.if_known(sent, now, then).ok_or(ThrottleError::TooManyRules)
    }

    fn if_known<T>(
        &self,
        sent: &SentRule<'_>,
        now: Timestamp,
        mut then: impl FnMut(Request<'_>, Rule) -> T,
    ) -> Option<T> {
        let rules = self.rules.read();
        let rules = rules.get(sent.algorithm)?;
        let known = rules.known.get(sent.numbers)?;
        known.use_at(now);
        Some(then(rules.limiter.ask(sent.key).tier(known.tier).cost(sent.cost), known.rule))
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
            all.insert(algorithm, Rules::new(limiter, self.nodes.clone()));
        }
        all.get_mut(algorithm).expect("just inserted").add(numbers.into(), rule, now)
    }
}

impl Engine {
    /// [`throttle`](Self::throttle), wherever states are kept.
    ///
    /// # Errors
    ///
    /// As [`throttle`](Self::throttle), and when the store cannot keep the rule's states.
    pub async fn decide_throttle(
        &self,
        sent: &SentRule<'_>,
        now: Timestamp,
    ) -> Result<Throttled, ThrottleError> {
        let Some(shared) = &self.shared else { return self.throttle.check(sent, now) };
        let rule = self.throttle.rule(sent, now)?;
        let ask = Ask::sent("*throttle", sent.key.as_bytes(), rule, sent.cost);
        match shared.ask_alone(ask).await? {
            Ok(throttled) => Ok(throttled),
            Err(unavailable) => self
                .throttle
                .with_known(sent, now, |here, rule| shared.fall_back_alone(here, rule, &unavailable, now)),
        }
    }
}

/// The rules of one limiter, by what they are asked for by.
pub(super) struct Rules<N> {
    pub(super) limiter: KeyedLimiter,
    pub(super) known: HashMap<N, Known>,
    spare: Vec<Tier>,
    nodes: Option<Nodes>,
}

pub(super) struct Known {
    pub(super) tier: Tier,
    pub(super) rule: Rule, // as it came: in the table there may be a share of it
    used: AtomicU64,       // when, last
}

impl Known {
    /// Notes that it is in use.
    pub(super) fn use_at(&self, now: Timestamp) {
        self.used.store(now.as_nanos(), Ordering::Relaxed);
    }
}

impl<N: Eq + Hash> Rules<N> {
    pub(super) fn new(limiter: KeyedLimiter, nodes: Option<Nodes>) -> Self {
        Self { limiter, known: HashMap::new(), spare: Vec::new(), nodes }
    }

    /// Remembers a rule, unless it is known.
    pub(super) fn add(&mut self, numbers: N, rule: Rule, now: Timestamp) -> Result<(), ThrottleError> {
        if self.known.contains_key(&numbers) {
            return Ok(());
        }
        if self.known.len() >= MOST_RULES {
            self.forget_some();
        }
        let here = self.nodes.as_ref().map_or(rule, |nodes| share(&rule, nodes.load(Ordering::Relaxed)));
        let tier = match self.spare.pop() {
            None => self.limiter.add_tier(here),
            Some(tier) => {
                self.limiter.set_tier(tier, here).map(|()| tier).inspect_err(|_| self.spare.push(tier))
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
