//! Sets of numbers that a limiter decides by, and how they change.

use std::sync::Arc;

use tollgate_core::Rule;

use super::KeyedLimiter;
use crate::table::TierCell;

/// One of several sets of numbers that a limiter decides by, such as those of a price plan. See
/// [`add_tier`](KeyedLimiter::add_tier).
///
/// ```
/// use std::collections::HashMap;
/// use tollgate::{KeyedLimiter, Rate, TokenBucket};
///
/// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(1)?, 1)?);
/// let tiers = HashMap::from([
///     ("pro", limiter.add_tier(TokenBucket::new(Rate::per_second(10)?, 20)?)),
///     ("enterprise", limiter.add_tier(TokenBucket::new(Rate::per_second(100)?, 200)?)),
/// ]);
/// assert_eq!(limiter.ask("acme").tier(&tiers["pro"]).check().status.remaining, 19);
/// # Ok::<(), tollgate::RuleError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tier {
    pub(super) cell: Arc<TierCell>,
    limit: u64, // of which limiter
    table: u64, // in the table of this number
}

impl Tier {
    pub(super) fn new(cell: TierCell, limit: u64, table: u64) -> Self {
        Self { cell: Arc::new(cell), limit, table }
    }
}

impl PartialEq for Tier {
    /// Whether they are one handle, or clones of it.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.cell, &other.cell)
    }
}

impl Eq for Tier {}

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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
    /// Adds a set of numbers for some of the keys. They should be of the same algorithm: under another, a key starts afresh.
    ///
    /// A tier lives as long as its handle. Adding, changing or dropping a tier copies nothing, so it takes as long
    /// with a million tiers as with one.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Numbers, Rate, Shed, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(1)?, 1)?);
    /// let pro = limiter.add_tier(TokenBucket::new(Rate::per_second(100)?, 50)?);
    /// let free = TokenBucket::new(Rate::per_second(10)?, 20)?;
    /// let free = limiter.add_tier(Numbers { rule: free.into(), shed: Shed::First });
    /// assert_eq!(limiter.ask("alice").tier(&pro).check().status.remaining, 49);
    /// assert_eq!(limiter.ask("acme").tier(&free).check().status.remaining, 19);
    /// assert_eq!(limiter.check("bob").status.remaining, 0);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn add_tier(&self, numbers: impl Into<Numbers>) -> Tier {
        let cell = TierCell::new(self.table.align(numbers.into()), &self.life);
        Tier::new(cell, self.limit, self.table.number)
    }

    /// Returns a new handle of the same tier, with other numbers. Requests with the new handle are decided by the new
    /// numbers, and requests with the old handle by the old numbers. Use it to change many tiers at one instant
    /// without a lock: prepare the new handles, then publish them together.
    ///
    /// A key that was last charged by the old numbers keeps its tokens under the new ones.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1)?, 10)?);
    /// let old = limiter.base_tier();
    /// let new = limiter.with_numbers(old, TokenBucket::new(Rate::per_hour(1)?, 100)?);
    /// assert_eq!(limiter.ask("alice").tier(&new).cost(4).check().status.remaining, 96);
    /// assert_eq!(limiter.ask("bob").tier(old).check().status.remaining, 9);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// When the tier is another limiter's.
    #[must_use]
    pub fn with_numbers(&self, tier: &Tier, numbers: impl Into<Numbers>) -> Tier {
        let cell = self.own(tier).successor(self.table.align(numbers.into()));
        Tier::new(cell, self.limit, self.table.number)
    }

    /// Changes the numbers of the limiter. Each key keeps its tokens, or its count; nobody gets a fresh burst. Under
    /// another algorithm keys start afresh.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1)?, 10)?);
    /// let _ = limiter.ask("alice").cost(8).check();
    /// limiter.set_rule(TokenBucket::new(Rate::per_hour(60)?, 100)?);
    /// assert_eq!(limiter.remaining("alice"), 2); // of 100 now, which she gets to at 60 an hour
    /// assert_eq!(limiter.remaining("bob"), 100);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn set_rule(&self, rule: impl Into<Rule>) {
        self.set_tier(&self.tier, rule);
    }

    /// Changes the rule of a tier, as [`set_rule`](Self::set_rule) does that of the limiter. It stays in its [`Shed`]
    /// class.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1)?, 1)?);
    /// let pro = limiter.add_tier(TokenBucket::new(Rate::per_hour(1)?, 20)?);
    /// let _ = limiter.ask("alice").tier(&pro).check();
    /// limiter.set_tier(&pro, TokenBucket::new(Rate::per_hour(1)?, 50)?);
    /// assert_eq!(limiter.ask("alice").tier(&pro).peek().remaining, 19);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// When the tier is another limiter's.
    pub fn set_tier(&self, tier: &Tier, rule: impl Into<Rule>) {
        let numbers = Numbers { rule: rule.into(), ..self.own(tier).numbers() };
        Self::set_tiers(&[(self, tier, numbers)]);
    }

    /// Changes the numbers of several tiers at one instant, as [`set_tier`](Self::set_tier) does for one tier. The
    /// limiters must be in one table. No request is decided by some of the new numbers and some of the old ones. A
    /// tier that already has its new numbers stays as it is. If a tier is named twice, the last numbers apply.
    ///
    /// All requests wait until it is done, for some 50 ns per tier. To change thousands, use
    /// [`with_numbers`](Self::with_numbers).
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Numbers, Rate, TokenBucket};
    ///
    /// let users = KeyedLimiter::new(TokenBucket::new(Rate::per_hour(1)?, 1)?);
    /// let tenants = users.another(TokenBucket::new(Rate::per_hour(1)?, 10)?);
    /// let five = Numbers::from(TokenBucket::new(Rate::per_hour(1)?, 5)?);
    /// let fifty = Numbers::from(TokenBucket::new(Rate::per_hour(1)?, 50)?);
    /// KeyedLimiter::set_tiers(&[(&users, users.base_tier(), five), (&tenants, tenants.base_tier(), fifty)]);
    /// assert_eq!((users.remaining("alice"), tenants.remaining("acme")), (5, 50));
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// When the limiters are not of one table ([`another`](Self::another)), or a tier is not of the limiter beside it.
    pub fn set_tiers(changes: &[(&Self, &Tier, Numbers)]) {
        let Some((Self { table, .. }, ..)) = changes.first() else { return };
        for (limiter, tier, _) in changes {
            let same = Arc::ptr_eq(&limiter.table, table);
            assert!(
                same,
                "limiters that are changed together must be of one table: make them with `another`"
            );
            limiter.own(tier);
        }
        table.set_tiers(changes.iter().map(|(_, tier, numbers)| (&*tier.cell, *numbers)));
    }

    /// The numbers that the limiter was made with, as a tier: for callers who have one for every key.
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Rate, TokenBucket};
    ///
    /// let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(1)?, 5)?);
    /// let pro = limiter.add_tier(TokenBucket::new(Rate::per_second(100)?, 50)?);
    /// let tier_of = |user: &str| if user == "alice" { &pro } else { limiter.base_tier() };
    /// assert_eq!(limiter.ask("bob").tier(tier_of("bob")).check().status.remaining, 4);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub const fn base_tier(&self) -> &Tier {
        &self.tier
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
    pub fn rule_of(&self, tier: &Tier) -> Rule {
        self.own(tier).numbers().rule
    }

    /// What the table has of a tier, which must be this limiter's.
    #[inline]
    pub(super) fn own<'t>(&self, tier: &'t Tier) -> &'t Arc<TierCell> {
        let owner = (tier.table, tier.limit);
        assert_eq!(owner, (self.table.number, self.limit), "a tier belongs to the limiter it was added to");
        &tier.cell
    }
}

#[cfg(test)]
mod tests;
