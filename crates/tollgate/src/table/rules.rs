//! The rules that keys are decided by: tiers, which name the rule in force, and rules that come with requests.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use tollgate_core::adaptive::{Pace, VirtualClock};
use tollgate_core::{Rule, Timestamp};

use crate::Numbers;
use crate::sync::{AtomicU64, Mutex, Ordering};

/// The ID of a set of numbers. No two sets of a table have the same.
///
/// The rules of tiers are counted and have even IDs. Rules that come with a request have odd IDs, with 63 bits of a
/// hash under the secret of the table. Among a million such rules, the chance that any two have the same ID is about
/// one in twenty million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RuleId(u64);

impl RuleId {
    pub(super) const NONE: Self = Self(0);
}

/// A set of numbers that keys can be charged by. It never changes.
#[derive(Debug)]
pub(crate) struct TableRule {
    pub(super) id: RuleId,
    pub(super) numbers: Numbers,
    pub(super) tier: u64, // of which tier; 0 for a rule that came with a request
    pub(super) limiter: Weak<LimiterLife>,
    pub(super) is_replaced: AtomicBool,
}

impl TableRule {
    /// Whether its limiter was dropped, so that no request can name its keys. A permit of such a key may still be
    /// released.
    pub(super) fn is_gone(&self) -> bool {
        self.limiter.strong_count() == 0
    }
}

/// Lives as long as a limiter does.
#[derive(Debug, Default)]
pub(crate) struct LimiterLife;

/// A set of numbers of a limiter, which can be replaced by others.
pub(crate) struct TierCell {
    current: AtomicU64, // the ID of the rule
    rule: Mutex<Arc<TableRule>>,
}

/// Rules and tiers made so far, in all tables.
static MADE: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);

fn next_number() -> u64 {
    MADE.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

impl TierCell {
    /// A tier of a limiter.
    pub(crate) fn new(numbers: Numbers, limiter: &Arc<LimiterLife>) -> Self {
        Self::of_tier(next_number(), numbers, Arc::downgrade(limiter))
    }

    fn of_tier(tier: u64, numbers: Numbers, limiter: Weak<LimiterLife>) -> Self {
        let id = RuleId(next_number() << 1);
        let rule = TableRule { id, numbers, tier, limiter, is_replaced: AtomicBool::new(false) };
        Self { current: AtomicU64::new(id.0), rule: Mutex::new(Arc::new(rule)) }
    }

    /// The same tier with other numbers, for those who ask by the new cell. Those who ask by this one go by the old numbers.
    pub(crate) fn successor(&self, numbers: Numbers) -> Self {
        let old = self.rule();
        Self::of_tier(old.tier, numbers, old.limiter.clone())
    }

    #[inline]
    pub(crate) fn id(&self) -> RuleId {
        RuleId(self.current.load(Ordering::Acquire))
    }

    pub(crate) fn numbers(&self) -> Numbers {
        self.rule().numbers
    }

    fn rule(&self) -> Arc<TableRule> {
        Arc::clone(&self.rule.lock())
    }

    /// Puts other numbers in force.
    pub(crate) fn set(&self, numbers: Numbers) {
        let mut rule = self.rule.lock();
        if rule.numbers == numbers {
            return;
        }
        let next = Self::of_tier(rule.tier, numbers, rule.limiter.clone()).rule();
        self.current.store(next.id.0, Ordering::Release);
        let old = std::mem::replace(&mut *rule, next);
        drop(rule);
        old.is_replaced.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

impl Drop for TierCell {
    fn drop(&mut self) {
        self.rule.lock().is_replaced.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

impl fmt::Debug for TierCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TierCell").field(&self.numbers()).finish()
    }
}

/// A rule that comes with requests, such as one that a client sends with each call: see
/// [`KeyedLimiter::request_rule`](crate::KeyedLimiter::request_rule).
#[derive(Clone, Copy, Debug)]
pub struct RequestRule {
    id: RuleId,
    rule: Rule,
}

impl RequestRule {
    /// `hash` must be that of the limiter and the rule.
    pub(crate) const fn new(hash: u64, rule: Rule) -> Self {
        Self { id: RuleId(hash | 1), rule }
    }

    /// The rule.
    pub const fn rule(&self) -> &Rule {
        &self.rule
    }
}

/// An [`AskRule`] that is kept.
#[derive(Clone, Debug)]
pub(crate) enum KeptRule {
    Tier(Arc<TierCell>),
    Sent(Box<RequestRule>, Arc<LimiterLife>),
}

impl KeptRule {
    pub(crate) fn as_ask(&self) -> AskRule<'_> {
        match self {
            Self::Tier(tier) => AskRule::Tier(tier),
            Self::Sent(sent, limiter) => AskRule::Sent(sent, limiter),
        }
    }
}

/// What a request is decided by.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AskRule<'a> {
    /// Nothing: no request has it.
    None,
    /// The numbers in force of a tier.
    Tier(&'a Arc<TierCell>),
    /// A rule that came with the request, and the limiter it was sent to.
    Sent(&'a RequestRule, &'a Arc<LimiterLife>),
}

impl AskRule<'_> {
    #[inline]
    pub(crate) fn id(&self) -> RuleId {
        match self {
            Self::None => RuleId::NONE,
            Self::Tier(tier) => tier.id(),
            Self::Sent(sent, _) => sent.id,
        }
    }

    pub(crate) fn keep(&self) -> KeptRule {
        match *self {
            Self::None => unreachable!("every request has a rule"),
            Self::Tier(tier) => KeptRule::Tier(Arc::clone(tier)),
            Self::Sent(sent, limiter) => KeptRule::Sent(Box::new(*sent), Arc::clone(limiter)),
        }
    }

    pub(super) fn make(&self) -> Arc<TableRule> {
        match self {
            Self::None => unreachable!("every request has a rule"),
            Self::Tier(tier) => tier.rule(),
            Self::Sent(sent, limiter) => {
                let (numbers, limiter) = (Numbers::from(sent.rule), Arc::downgrade(limiter));
                let is_replaced = AtomicBool::new(false);
                Arc::new(TableRule { id: sent.id, numbers, tier: 0, limiter, is_replaced })
            }
        }
    }
}

/// The pace of each shed class, from when on.
#[derive(Debug, Default)]
pub(crate) struct Paces(pub(super) Option<[VirtualClock; 3]>); // none until a pace was first changed

impl Paces {
    /// Other paces from `now` on. None if they are what they were.
    pub(crate) fn changed(&self, paces: [Pace; 3], now: Timestamp) -> Option<Self> {
        let mut clocks = self.0.unwrap_or_default();
        if paces == clocks.each_ref().map(VirtualClock::pace) {
            return None;
        }
        clocks.iter_mut().zip(paces).for_each(|(clock, pace)| clock.set_pace(now, pace));
        Some(Self(Some(clocks)))
    }
}
