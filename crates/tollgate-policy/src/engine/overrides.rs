//! Limits that come with a descriptor, in place of the policy's.

use std::fmt;
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard};
use smallvec::SmallVec;
use tollgate::adaptive::Pace;
use tollgate::{Align, FixedWindow, KeyedLimiter, Request, Rule, Timestamp};

use super::in_force::Parts;
use super::throttle::{Nodes, Rules, ThrottleError};
use crate::store::{Ask, Does, Part};

/// A limit that Envoy sends with a descriptor: so many in each window, which begins with the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Override {
    /// How many. 0 lets nothing pass.
    pub limit: u32,
    /// How long a window is.
    pub window: Duration,
}

/// An override, as the limits of its domain count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SentLimit {
    pub(super) of: Override,
    pub(super) counts_denied: bool,
}

impl SentLimit {
    /// Its rule. No rule has a limit of 0: requests to that are blocked.
    pub(super) fn rule(self) -> Result<Rule, ThrottleError> {
        let rule = FixedWindow::new(u64::from(self.of.limit).max(1), self.of.window, Align::Epoch)
            .map_err(|error| ThrottleError::Rule(error.to_string()))?;
        Ok(if self.counts_denied { rule.counting_denied().into() } else { rule.into() })
    }

    /// What is asked of a store for it, under the key that the attributes make.
    pub(super) fn stored_ask<'a>(
        self,
        attributes: &[(&'a str, &'a str)],
        cost: u64,
        does: Does,
        rule: Rule,
        part: Part,
    ) -> Ask<'a> {
        Ask {
            // Another limit has the same count, another window has its own.
            limit: format!("*sent-{}s", self.of.window.as_secs()).into(),
            key: attributes.iter().flat_map(|(key, value)| [key.as_bytes(), value.as_bytes()]).collect(),
            tag: attributes.first().map_or(&[], |(_, domain)| domain.as_bytes()),
            rule,
            pace: Pace::FULL,
            cost,
            does,
            part,
            has_one_tier: false,
            is_blocked: self.of.limit == 0,
        }
    }
}

/// The limiter of all of them, in the table of the policy's limits, with which they are decided together.
pub(super) struct Overrides(RwLock<Rules<SentLimit>>);

/// The rules of some of them, which stay as they are while this is held.
pub(super) struct KnownOverrides<'o>(RwLockReadGuard<'o, Rules<SentLimit>>);

impl Overrides {
    pub(super) fn new(limiter: KeyedLimiter, nodes: Option<Nodes>) -> Self {
        Self(RwLock::new(Rules::new(limiter, nodes)))
    }

    /// Makes all of these known, and keeps them.
    pub(super) fn known(
        &self,
        overrides: impl Iterator<Item = SentLimit> + Clone,
        now: Timestamp,
    ) -> Result<KnownOverrides<'_>, ThrottleError> {
        let rules = self.0.read();
        let is_known = |of: &SentLimit| rules.known.get(of).inspect(|known| known.use_at(now)).is_some();
        if overrides.clone().all(|of| is_known(&of)) {
            return Ok(KnownOverrides(rules));
        }
        drop(rules);
        let mut rules = self.0.write();
        for of in overrides.clone() {
            rules.add(of, of.rule()?, now)?;
        }
        // Where one of them had to make room for another, there are too many.
        if !overrides.clone().all(|of| rules.known.contains_key(&of)) {
            return Err(ThrottleError::TooManyRules);
        }
        Ok(KnownOverrides(parking_lot::RwLockWriteGuard::downgrade(rules)))
    }
}

impl KnownOverrides<'_> {
    /// A request of some cost to the key that the attributes make, for windows of this length: another limit has the
    /// same count, another window has its own.
    pub(super) fn ask(&self, sent: SentLimit, attributes: &[(&str, &str)], cost: u64) -> Request<'_> {
        let parts: SmallVec<[&str; 8]> = attributes.iter().flat_map(|(key, value)| [*key, *value]).collect();
        let known = self.0.known.get(&sent).expect("made known, and kept");
        let ask = self.0.limiter.ask(&(sent.of.window, Parts(&parts))).tier(known.tier).cost(cost);
        if sent.of.limit == 0 { ask.blocked() } else { ask }
    }
}

impl fmt::Debug for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Overrides(..)")
    }
}
