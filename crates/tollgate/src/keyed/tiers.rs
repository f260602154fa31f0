//! Sets of numbers that a limiter decides by, and how they change.

use std::sync::Arc;

use tollgate_core::Rule;

use super::KeyedLimiter;
use crate::table::TierId;

/// One of several sets of numbers that a limiter decides by, such as those of a price plan. See
/// [`add_tier`](KeyedLimiter::add_tier).
///
/// ```
/// use std::collections::HashMap;
/// use tollgate::{KeyedLimiter, Rate, TokenBucket};
///
/// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(1)?, 1)?);
/// let tiers = HashMap::from([
///     ("pro", limiter.add_tier(TokenBucket::new(Rate::per_second(10)?, 20)?)?),
///     ("enterprise", limiter.add_tier(TokenBucket::new(Rate::per_second(100)?, 200)?)?),
/// ]);
/// assert_eq!(limiter.ask("acme").tier(tiers["pro"]).check().status.remaining, 19);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    pub(super) id: TierId,
    pub(super) limit: u64, // of which limiter
    pub(super) table: u64, // in the table of this number
}

/// What a tier decides by: a rule, and how soon its tenants are slowed under load.
///
/// ```
/// use tollgate::{Numbers, Rate, Shed, TokenBucket};
///
/// let rule = TokenBucket::new(Rate::per_second(10)?, 20)?;
/// let free = Numbers { rule: rule.into(), shed: Shed::First };
/// assert_eq!(Numbers::from(rule), Numbers { shed: Shed::Exempt, ..free });
/// # Ok::<(), tollgate::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// The rule, at full pace.
    pub rule: Rule,
    /// How soon it is slowed under load.
    pub shed: Shed,
}

/// A rule that is never slowed.
impl<R: Into<Rule>> From<R> for Numbers {
    fn from(rule: R) -> Self {
        Self { rule: rule.into(), shed: Shed::default() }
    }
}

/// How soon the tenants of a tier are slowed under load.
///
/// ```
/// use tollgate::Shed;
///
/// assert_eq!(Shed::default(), Shed::Exempt);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shed {
    /// Never.
    #[default]
    Exempt,
    /// As the load says.
    Normal,
    /// Before others: by the square of what the load says.
    First,
}

impl KeyedLimiter {
    /// Adds a set of numbers for some of the keys, which are never slowed under load. They should be of the same
    /// algorithm: under another, a key starts afresh.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(1)?, 1)?);
    /// let pro = limiter.add_tier(TokenBucket::new(Rate::per_second(100)?, 50)?)?;
    /// assert_eq!(limiter.ask("alice").tier(pro).check().status.remaining, 49);
    /// assert_eq!(limiter.check("bob").status.remaining, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the table has 65535 rules in use, of all its limiters and tiers.
    pub fn add_tier(&self, rule: impl Into<Rule>) -> Result<Tier, TooManyRules> {
        Ok(self.add_tiers(&[rule.into().into()])?[0])
    }

    /// Adds any number of tiers in one step, all or none, and tells them in the order of their numbers: ten thousand
    /// take little longer than one.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Numbers, Rate, Shed, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(1)?, 1)?);
    /// let bursts = [20, 200].map(|burst| TokenBucket::new(Rate::per_second(10).unwrap(), burst).unwrap());
    /// let numbers = bursts.map(|bucket| Numbers { rule: bucket.into(), shed: Shed::Normal });
    /// let tiers = limiter.add_tiers(&numbers)?;
    /// assert_eq!(limiter.ask("acme").tier(tiers[1]).check().status.remaining, 199);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the table would have more than 65535 rules in use, of all its limiters and tiers.
    pub fn add_tiers(&self, numbers: &[Numbers]) -> Result<Vec<Tier>, TooManyRules> {
        let ids = self.table.add_tiers(numbers).ok_or(TooManyRules)?;
        self.owner.tiers.lock().extend(&ids);
        let tier = |id| Tier { id, limit: self.limit, table: self.table.number };
        Ok(ids.into_iter().map(tier).collect())
    }

    /// Changes the numbers of the limiter. Each key keeps its tokens, or its count; nobody gets a fresh burst. Under
    /// another algorithm keys start afresh.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1)?, 10)?);
    /// let _ = limiter.ask("alice").cost(8).check();
    /// limiter.set_rule(TokenBucket::new(Rate::per_hour(60)?, 100)?)?;
    /// assert_eq!(limiter.remaining("alice"), 2); // of 100 now, which she gets to at 60 an hour
    /// assert_eq!(limiter.remaining("bob"), 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the table has 65535 rules in use, of all its limiters and tiers.
    pub fn set_rule(&self, rule: impl Into<Rule>) -> Result<(), TooManyRules> {
        self.set_tier(self.tier, rule)
    }

    /// Changes the rule of a tier, as [`set_rule`](Self::set_rule) does that of the limiter. It stays in its [`Shed`]
    /// class.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1)?, 1)?);
    /// let pro = limiter.add_tier(TokenBucket::new(Rate::per_hour(1)?, 20)?)?;
    /// let _ = limiter.ask("alice").tier(pro).check();
    /// limiter.set_tier(pro, TokenBucket::new(Rate::per_hour(1)?, 50)?)?;
    /// assert_eq!(limiter.ask("alice").tier(pro).peek().remaining, 19);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the table has 65535 rules in use, of all its limiters and tiers.
    ///
    /// # Panics
    ///
    /// When the tier is another limiter's.
    pub fn set_tier(&self, tier: Tier, rule: impl Into<Rule>) -> Result<(), TooManyRules> {
        self.table.set_rule(self.own(tier), rule.into()).ok_or(TooManyRules)
    }

    /// Changes the numbers of any tiers of limiters in one table in one step, all or none, as
    /// [`set_tier`](Self::set_tier) does those of one: no request is decided by some of them and not by others. Keys
    /// of a tier that already has its numbers notice nothing. Of a tier named twice the last numbers hold.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Numbers, Rate, TokenBucket};
    ///
    /// let users = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1)?, 1)?);
    /// let tenants = users.another(TokenBucket::new(Rate::per_hour(1)?, 10)?)?;
    /// let five = Numbers::from(TokenBucket::new(Rate::per_hour(1)?, 5)?);
    /// let fifty = Numbers::from(TokenBucket::new(Rate::per_hour(1)?, 50)?);
    /// KeyedLimiter::set_tiers(&[(&users, users.base_tier(), five), (&tenants, tenants.base_tier(), fifty)])?;
    /// assert_eq!((users.remaining("alice"), tenants.remaining("acme")), (5, 50));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the table would have more than 65535 rules in use, of all its limiters and tiers. Nothing has changed
    /// then.
    ///
    /// # Panics
    ///
    /// When the limiters are not of one table ([`another`](Self::another)), or a tier is not of the limiter beside it.
    pub fn set_tiers(changes: &[(&Self, Tier, Numbers)]) -> Result<(), TooManyRules> {
        let Some((Self { table, .. }, ..)) = changes.first() else { return Ok(()) };
        let change = |(limiter, tier, numbers): &(&Self, Tier, Numbers)| {
            let same = Arc::ptr_eq(&limiter.table, table);
            assert!(
                same,
                "limiters that are changed together must be of one table: make them with `another`"
            );
            (limiter.own(*tier), *numbers)
        };
        let changes: Vec<_> = changes.iter().map(change).collect();
        table.set_tiers(&changes).ok_or(TooManyRules)
    }

    /// The numbers that the limiter was made with, as a tier: for callers who have one for every key.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(1)?, 5)?);
    /// let pro = limiter.add_tier(TokenBucket::new(Rate::per_second(100)?, 50)?)?;
    /// let tier_of = |user: &str| if user == "alice" { pro } else { limiter.base_tier() };
    /// assert_eq!(limiter.ask("bob").tier(tier_of("bob")).check().status.remaining, 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn base_tier(&self) -> Tier {
        self.tier
    }

    /// The rule in force for a tier, such as for a header that tells the limit: as it was told, at whatever pace it
    /// goes ([`set_paces`](Self::set_paces)).
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(1)?, 5)?);
    /// assert_eq!(limiter.rule_of(limiter.base_tier()).capacity(), 5);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// When the tier is another limiter's.
    pub fn rule_of(&self, tier: Tier) -> Rule {
        self.table.rule(self.own(tier))
    }

    /// The tier's number, if it is this limiter's.
    pub(super) fn own(&self, tier: Tier) -> TierId {
        let owner = (tier.table, tier.limit);
        assert_eq!(owner, (self.table.number, self.limit), "a tier belongs to the limiter it was added to");
        tier.id
    }
}

/// A table cannot tell more rules apart: 65535, those in force and those that keys in use were last charged by.
///
/// ```
/// assert!(tollgate::TooManyRules.to_string().contains("share rules between limiters or tiers"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyRules;

impl std::fmt::Display for TooManyRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "the table has 65535 rules in use, which is the most; share rules between limiters or tiers",
        )
    }
}

impl std::error::Error for TooManyRules {}

#[cfg(test)]
mod tests;
