//! Registries of the rules that come with calls. Each keeps at most 4096 rules; the table of this process keeps their keys.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tollgate::{KeyedLimiter, Rule, Tier, Timestamp};

/// Why a call with a rule was not decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ThrottleError {
    /// The rule is invalid: what is wrong, and what would be right.
    #[error("{0}")]
    Rule(String),
    /// As many rules as the table can tell apart are in use.
    #[error("too many different rules are in use: write them in the policy file, as tiers of a limit")]
    TooManyRules,
}

/// The most rules in one registry. If it is full, the least recently used rules are removed.
const MOST_RULES: usize = 4096;

/// The number of processes among which a rule is divided during an outage of the store that they share. None without a store.
pub(super) type Nodes = Arc<AtomicU32>;

/// The rules of one limiter, by the names that calls give them.
pub(super) struct SentRules<N> {
    pub(super) limiter: KeyedLimiter,
    known: RwLock<KnownRules<N>>,
    nodes: Option<Nodes>,
}

/// The rules that are known. Their tiers are theirs as long as this is locked.
pub(super) struct KnownRules<N> {
    rules: HashMap<N, KnownRule>,
    spare: Vec<Tier>,
}

pub(super) struct KnownRule {
    pub(super) tier: Tier,
    pub(super) rule: Rule, // as it was sent: the table may have a share of it
    last_used: AtomicU64,
}

impl KnownRule {
    fn use_at(&self, now: Timestamp) {
        self.last_used.store(now.as_nanos(), Ordering::Relaxed);
    }
}

impl<N: Eq + Hash + Clone> SentRules<N> {
    pub(super) fn new(limiter: KeyedLimiter, nodes: Option<Nodes>) -> Self {
        let known = KnownRules { rules: HashMap::new(), spare: Vec::new() };
        Self { limiter, known: RwLock::new(known), nodes }
    }

    /// Does something with a rule, which stays known meanwhile. If it is not known yet, `make` makes it.
    pub(super) fn with<Q: Hash + Eq + ?Sized, T>(
        &self,
        name: &Q,
        now: Timestamp,
        make: impl FnOnce() -> Result<(N, Rule), ThrottleError>,
        then: impl FnOnce(&KnownRule) -> T,
    ) -> Result<T, ThrottleError>
    where
        N: Borrow<Q>,
    {
        let known = self.known.read();
        if let Some(rule) = known.get(name, now) {
            return Ok(then(rule));
        }
        drop(known);
        let known = self.add(std::iter::once(make()?), now)?;
        Ok(then(known.get(name, now).ok_or(ThrottleError::TooManyRules)?))
    }

    /// The known rules, with all of these among them.
    pub(super) fn with_all(
        &self,
        rules: impl Iterator<Item = (N, Rule)> + Clone,
        now: Timestamp,
    ) -> Result<RwLockReadGuard<'_, KnownRules<N>>, ThrottleError> {
        let known = self.known.read();
        if rules.clone().all(|(name, _)| known.get(&name, now).is_some()) {
            return Ok(known);
        }
        drop(known);
        self.add(rules, now)
    }

    /// The rules that are known.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, KnownRules<N>> {
        self.known.read()
    }

    fn add(
        &self,
        rules: impl Iterator<Item = (N, Rule)> + Clone,
        now: Timestamp,
    ) -> Result<RwLockReadGuard<'_, KnownRules<N>>, ThrottleError> {
        let mut known = self.known.write();
        for (name, rule) in rules.clone() {
            let share = |nodes: &Nodes| rule.share_of(nodes.load(Ordering::Relaxed));
            let local = self.nodes.as_ref().map_or(rule, share);
            known.add(&self.limiter, name, rule, local, now)?;
        }
        // If one of them was forgotten for another, there are too many.
        if !rules.clone().all(|(name, _)| known.rules.contains_key(&name)) {
            return Err(ThrottleError::TooManyRules);
        }
        Ok(RwLockWriteGuard::downgrade(known))
    }
}

impl<N: Eq + Hash> KnownRules<N> {
    /// A rule, which is marked as used.
    pub(super) fn get<Q: Hash + Eq + ?Sized>(&self, name: &Q, now: Timestamp) -> Option<&KnownRule>
    where
        N: Borrow<Q>,
    {
        self.rules.get(name).inspect(|known| known.use_at(now))
    }

    fn add(
        &mut self,
        limiter: &KeyedLimiter,
        name: N,
        rule: Rule,
        local: Rule,
        now: Timestamp,
    ) -> Result<(), ThrottleError> {
        if self.rules.contains_key(&name) {
            return Ok(());
        }
        if self.rules.len() >= MOST_RULES {
            self.forget_some();
        }
        let tier = match self.spare.pop() {
            None => limiter.add_tier(local),
            Some(tier) => limiter.set_tier(tier, local).map(|()| tier).inspect_err(|_| self.spare.push(tier)),
        };
        let tier = tier.map_err(|_| ThrottleError::TooManyRules)?;
        self.rules.insert(name, KnownRule { tier, rule, last_used: AtomicU64::new(now.as_nanos()) });
        Ok(())
    }

    /// Forgets an eighth of the rules, those that have not been used for the longest time. Their keys stay, and are converted to the
    /// next rule they are asked under.
    fn forget_some(&mut self) {
        let mut times: Vec<u64> =
            self.rules.values().map(|known| known.last_used.load(Ordering::Relaxed)).collect();
        let eighth = times.len() / 8;
        let (_, &mut until, _) = times.select_nth_unstable(eighth);
        let mut left = eighth + 1;
        let spare = &mut self.spare;
        self.rules.retain(|_, known| {
            let stays = left == 0 || known.last_used.load(Ordering::Relaxed) > until;
            if !stays {
                spare.push(known.tier);
                left -= 1;
            }
            stays
        });
    }
}

impl<N> fmt::Debug for SentRules<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SentRules(..)")
    }
}
