//! One table for the states of any number of limiters.

mod paced;
mod plan;
mod prefetch;
mod rules;
mod segments;
mod shard;
mod slab;
mod slot;

use std::sync::Arc;

use tollgate_core::adaptive::Pace;
use tollgate_core::{Action, Decision, Group, Nanos, PermitId, Rule, Status, Timestamp};

use self::plan::Locked;
pub(crate) use self::plan::{MOST_LIMITS, USUAL_LIMITS};
pub(crate) use self::prefetch::Prefetcher;
pub(crate) use self::rules::TierId;
use self::rules::{Rules, UsedNumbers};
pub(crate) use self::shard::Ask;
use self::shard::{Place, Shard, UNBOUNDED};
use crate::line::{Lines, MOST_WAITING};
use crate::sync::{AtomicU64, Lock, Mutex, Ordering};
use crate::{Clock, Numbers, Secret};

/// What becomes of a new key when as many as may be are remembered, and all of them are in use; and of one that
/// would take more bytes than are left.
///
/// What had to be done is counted in [`Stats`]. A key that is already remembered and would keep more, such as
/// another entry in its log, for which no bytes are left, drives nobody out: it is denied, or let through where
/// that is the choice.
///
/// ```
/// use tollgate::{KeyedLimiter, Rate, TokenBucket, WhenFull};
///
/// let rule = TokenBucket::new(Rate::per_hour(1)?, 1)?;
/// let limiter = KeyedLimiter::builder(rule).max_keys(1).when_full(WhenFull::Deny).build();
/// assert!(limiter.check("alice").is_allowed());
/// assert!(!limiter.check("bob").is_allowed()); // no room, though he has spent nothing
/// assert_eq!(limiter.stats().refused, 1);
/// # Ok::<(), tollgate::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The key that loses least is forgotten: of sixteen, among those that could still spend, the one that has used
    /// the smallest part of its limit. A key that is being limited, or holds permits, is never forgiven; where a few
    /// hundred all are so, the newcomer is denied.
    #[default]
    Evict,
    /// The newcomer is denied.
    Deny,
    /// The newcomer is let through and not remembered.
    Allow,
}

/// What a table holds, and what it had to do to stay within its bounds.
///
/// ```
/// use tollgate::{KeyedLimiter, Rate, TokenBucket};
///
/// let rule = TokenBucket::new(Rate::per_hour(1)?, 10)?;
/// let limiter = KeyedLimiter::builder(rule).max_keys(100).build();
/// for user in 0..150 {
///     let _ = limiter.check(&user);
/// }
/// let stats = limiter.stats();
/// assert_eq!((stats.keys, stats.evictions, stats.refused), (100, 50, 0));
/// # Ok::<(), tollgate::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys remembered, those no longer used but not yet swept included.
    pub keys: usize,
    /// Bytes that keys take, with the room kept for more, as they were asked for: what the system's allocator
    /// adds is not known here.
    pub bytes: usize,
    /// Keys in use that were forgotten to make room.
    pub evictions: u64,
    /// Requests for which there was no room: denied, or under [`WhenFull::Allow`] let through and not remembered.
    pub refused: u64,
    /// The most slots that one request has swept, looked at for eviction, moved or made; in a plan, each of its
    /// requests. A few thousand at most, whatever happens: it is here to show that no decision does a sweep's work.
    pub most_touched: usize,
}

/// How a table is made.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) max_keys: usize,
    pub(crate) max_bytes: Option<usize>,
    pub(crate) max_waiting: usize,
    pub(crate) when_full: WhenFull,
    pub(crate) clock: Clock,
    pub(crate) secret: Secret,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_keys: 10_000_000,
            max_bytes: None,
            max_waiting: MOST_WAITING,
            when_full: WhenFull::default(),
            clock: Clock::new(),
            secret: Secret::random(),
        }
    }
}

/// Shards of keys, each behind a lock.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) number: u64, // no other table has it
    shards: Box<[Padded]>,
    pub(crate) clock: Clock,
    pub(crate) secret: Secret,
    pub(crate) lines: Lines,  // before its keys
    rules: Mutex<Arc<Rules>>, // as every shard has them, or is about to
    permits: AtomicU64,       // given so far
    limits: AtomicU64,        // limiters made so far
}

/// On a cache line of its own, lest a lock slow its neighbours down.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Lock<Shard>);

/// Tables made so far.
static TABLES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// The number of asks whose slots are prefetched together: about as many cache misses as a processor has under way at once.
pub(crate) const BATCH: usize = 16;

/// The most shards, and the fewest keys and bytes worth one.
const MOST_SHARDS: usize = 64;
const KEYS_A_SHARD: usize = 256;
const BYTES_A_SHARD: usize = 64 << 10;

impl Table {
    pub(crate) fn new(settings: Settings) -> Self {
        let max_bytes = settings.max_bytes.unwrap_or(UNBOUNDED).max(BYTES_A_SHARD);
        let worth = (settings.max_keys / KEYS_A_SHARD).min(max_bytes / BYTES_A_SHARD);
        let shards = worth.clamp(1, MOST_SHARDS);
        let shard = |i| {
            // The parts of the bounds add up to the bounds.
            let max_keys = settings.max_keys / shards + usize::from(i < settings.max_keys % shards);
            let max_bytes = match max_bytes {
                UNBOUNDED => UNBOUNDED,
                max_bytes => max_bytes / shards - size_of::<Padded>(),
            };
            let place = Place { number: i, of: shards };
            Padded(Lock::new(Shard::new(place, max_keys, max_bytes, settings.when_full)))
        };
        Self {
            number: TABLES.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            shards: (0..shards).map(shard).collect(),
            clock: settings.clock,
            secret: settings.secret,
            lines: Lines::new(settings.max_waiting),
            rules: Mutex::default(),
            permits: AtomicU64::new(0),
            limits: AtomicU64::new(0),
        }
    }

    /// Adds tiers, all or none. None where there are as many rules as can be told apart.
    pub(crate) fn add_tiers(&self, tiers: &[Numbers]) -> Option<Vec<TierId>> {
        if tiers.is_empty() {
            return Some(Vec::new());
        }
        let tiers: Vec<Numbers> = tiers.iter().map(|numbers| self.align(*numbers)).collect();
        self.change_rules(|_| tiers.len(), |rules| rules.add_tiers(&tiers))
    }

    /// Changes the numbers of tiers, all or none. Keys are converted as they are next asked for.
    pub(crate) fn set_tiers(&self, tiers: &[(TierId, Numbers)]) -> Option<()> {
        let tiers: Vec<_> = tiers.iter().map(|(tier, numbers)| (*tier, self.align(*numbers))).collect();
        self.change_rules(|rules| rules.changed(&tiers), |rules| rules.set_tiers(&tiers))
    }

    /// Changes the rule of a tier.
    pub(crate) fn set_rule(&self, tier: TierId, rule: Rule) -> Option<()> {
        let rule = self.clock.align(rule);
        let change = |rules: &Rules| [(tier, Numbers { rule, ..rules.numbers(tier) })];
        self.change_rules(|rules| rules.changed(&change(rules)), |rules| rules.set_tiers(&change(rules)))
    }

    /// Removes tiers for which nobody can ask any more.
    pub(crate) fn remove_tiers(&self, tiers: &[TierId]) {
        self.change_rules(
            |_| 0,
            |rules| {
                rules.remove_tiers(tiers);
                Some(())
            },
        );
    }

    /// Changes the paces of the shed classes from now on.
    pub(crate) fn set_paces(&self, paces: [Pace; 3]) {
        self.change_rules(|_| 0, |rules| rules.set_paces(paces, self.clock.now()));
    }

    /// The rule that a tier was told to decide by.
    pub(crate) fn rule(&self, tier: TierId) -> Rule {
        self.rules.lock().numbers(tier).rule
    }

    /// Numbers whose windows begin on the minute of this table's clock.
    fn align(&self, numbers: Numbers) -> Numbers {
        Numbers { rule: self.clock.align(numbers.rule), ..numbers }
    }

    #[inline]
    pub(crate) fn check(&self, ask: &Ask, now: Timestamp) -> Decision {
        self.shard(ask.hash).lock().check(ask, now)
    }

    /// Has the slot of a key fetched from memory, without waiting for it.
    pub(crate) fn prefetch(&self, hash: u64) {
        self.shard(hash).lock().prefetch(hash);
    }

    /// How a key stands, charging nothing.
    pub(crate) fn status(&self, ask: &Ask, now: Timestamp) -> Status {
        self.shard(ask.hash).lock().status(ask, now)
    }

    /// What [`check`](Self::check) would answer, charging nothing.
    pub(crate) fn preview(&self, ask: &Ask, now: Timestamp) -> Decision {
        self.shard(ask.hash).lock().preview(ask, now)
    }

    /// As [`check`](Self::check), but denies what would have to be held back, until it would not.
    pub(crate) fn check_at_once(&self, ask: &Ask, now: Timestamp) -> Decision {
        self.shard(ask.hash).lock().check_at_once(ask, now)
    }

    pub(crate) fn reset(&self, hash: u64) -> bool {
        let was_there = self.shard(hash).lock().reset(hash);
        self.lines.call(hash);
        was_there
    }

    /// Gives back what was charged, as far as it still counts. How much that is.
    pub(crate) fn refund(&self, ask: &Ask, charged: Timestamp, now: Timestamp) -> u64 {
        let given = self.shard(ask.hash).lock().refund(ask, charged, now);
        self.lines.call(ask.hash);
        given
    }

    /// Gives up a place whose turn has not come, and returns by how much those behind it go sooner.
    pub(crate) fn withdraw(&self, ask: &Ask, now: Timestamp) -> Nanos {
        let sooner = self.shard(ask.hash).lock().withdraw(ask, now);
        self.lines.call(ask.hash);
        sooner
    }

    /// All who wait go later by this, the last of them then.
    pub(crate) fn postpone(&self, ask: &Ask, by: Nanos, last_turn: Timestamp, now: Timestamp) {
        self.shard(ask.hash).lock().postpone(ask, by, last_turn, now);
    }

    /// Decides asks at one instant, by their groups and actions. Calls `each` with the index of each ask and its decision.
    /// Returns the asks that now hold a slot. Asks that decide together are decided while all their shards are locked.
    /// Independent asks are decided one after the other.
    #[inline]
    pub(crate) fn decide(
        &self,
        asks: impl Iterator<Item = Ask> + Clone,
        now: Timestamp,
        mut each: impl FnMut(usize, Decision),
    ) -> Vec<Ask> {
        let mut holding = Vec::new();
        let mut deciding = asks.clone().enumerate().filter(|(_, ask)| ask.group != Group::Independent);
        let is_alone = {
            let mut deciding = deciding.clone();
            deciding.next();
            deciding.next().is_none()
        };
        let passes = if is_alone {
            let alone = deciding.next().map(|(i, ask)| {
                let decision = self.decide_alone(&ask, true, now, &mut holding);
                each(i, decision);
                decision.is_allowed()
            });
            alone.unwrap_or(true)
        } else if deciding.clone().count() <= USUAL_LIMITS {
            self.decide_together::<USUAL_LIMITS>(deciding, now, &mut each, &mut holding)
        } else {
            self.decide_together::<MOST_LIMITS>(deciding, now, &mut each, &mut holding)
        };
        let mut independent = asks.enumerate().filter(|(_, ask)| ask.group == Group::Independent).peekable();
        while independent.peek().is_some() {
            independent.clone().take(BATCH).for_each(|(_, ask)| self.prefetch(ask.hash));
            for (i, ask) in independent.by_ref().take(BATCH) {
                each(i, self.decide_alone(&ask, passes, now, &mut holding));
            }
        }
        holding
    }

    #[inline]
    fn decide_alone(&self, ask: &Ask, passes: bool, now: Timestamp, holding: &mut Vec<Ask>) -> Decision {
        if ask.is_usual() && ask.action == Action::Charge {
            return self.check(ask, now); // which is quicker
        }
        let ask = self.with_permit(*ask);
        let mut shard = self.shard(ask.hash).lock();
        let decision = shard.decide(&ask, passes, now, |outcome| outcome);
        if passes && decision.is_allowed() && shard.gives_slot(&ask) {
            holding.push(ask);
        }
        drop(shard);
        if ask.action == Action::Refund {
            self.lines.call(ask.hash);
        }
        decision
    }

    fn decide_together<const N: usize>(
        &self,
        deciding: impl Iterator<Item = (usize, Ask)>,
        now: Timestamp,
        each: &mut impl FnMut(usize, Decision),
        holding: &mut Vec<Ask>,
    ) -> bool {
        let (mut asks, mut places, mut len) = ([Ask::NOTHING; N], [0; N], 0);
        for (i, ask) in deciding {
            assert!(len < N, "at most {MOST_LIMITS} requests can be decided together");
            (asks[len], places[len]) = (self.with_permit(ask), i);
            len += 1;
        }
        let (asks, mut decisions) = (&asks[..len], [Decision::default(); N]);
        let mut plan = Locked::<N>::new(self, asks);
        let passes = plan.decide(now, &mut decisions[..len]);
        // An any-of limit that denies has given no slot.
        let holds =
            |i: usize| passes && asks[i].permit.is_some() && decisions[i].is_allowed() && plan.has_slot(i);
        holding.extend((0..len).filter(|&i| holds(i)).map(|i| asks[i]));
        drop(plan);
        for (i, ask) in asks.iter().enumerate() {
            if ask.action == Action::Refund {
                self.lines.call(ask.hash);
            }
            each(places[i], decisions[i]);
        }
        passes
    }

    /// The ask with a permit of its own, if it is to hold a slot and has none.
    #[inline]
    fn with_permit(&self, ask: Ask) -> Ask {
        match ask.action {
            Action::Hold if ask.permit.is_none() => Ask { permit: Some(self.next_permit()), ..ask },
            _ => ask,
        }
    }

    /// What tells the keys of a limiter from those of any other, before and after it.
    pub(crate) fn next_limit(&self) -> u64 {
        self.limits.fetch_add(1, Ordering::Relaxed)
    }

    /// An id that no permit has had.
    pub(crate) fn next_permit(&self) -> PermitId {
        PermitId(self.permits.fetch_add(1, Ordering::Relaxed))
    }

    /// Gives a permit back. False if it was not held any more.
    pub(crate) fn release(&self, ask: &Ask, now: Timestamp) -> bool {
        let was_held = self.shard(ask.hash).lock().release(ask, now);
        self.lines.call(ask.hash);
        was_held
    }

    #[cfg(test)]
    pub(crate) fn are_paced(&self) -> bool {
        self.rules.lock().are_paced()
    }

    #[cfg(test)]
    pub(crate) fn rule_sizes(&self) -> [usize; 2] {
        self.rules.lock().sizes()
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for shard in &self.shards {
            let shard = shard.0.lock();
            stats.keys += shard.keys();
            stats.bytes += shard.bytes() + size_of::<Padded>();
            stats.evictions += shard.evictions;
            stats.refused += shard.refused.get();
            stats.most_touched = stats.most_touched.max(shard.most_touched);
        }
        stats
    }

    /// Changes the rules in all shards at one instant, adding so many. Where many are kept that are no longer in
    /// force, those that no key was last charged by are forgotten first.
    fn change_rules<T>(
        &self,
        added: impl FnOnce(&Rules) -> usize,
        change: impl FnOnce(&mut Rules) -> Option<T>,
    ) -> Option<T> {
        let mut current = self.rules.lock();
        let mut rules = Rules::clone(&current);
        let added = added(&rules);
        if rules.is_crowded(added) {
            rules.forget_unused(&self.used_numbers());
            if rules.is_full(added) {
                // Keys that are no longer used stand in the way, and no request waits for this.
                self.sweep();
                rules.forget_unused(&self.used_numbers());
            }
        }
        let result = change(&mut rules)?;
        *current = Arc::new(rules);
        // All shards are locked before any is told, in the order that plans lock them: no plan sees half of a change.
        let mut shards: Vec<_> = self.shards.iter().map(|shard| shard.0.lock()).collect();
        shards.iter_mut().for_each(|shard| shard.rules = Arc::clone(&current));
        drop(shards);
        drop(current);
        self.lines.call_all();
        Some(result)
    }

    /// Forgets all keys that are no longer used.
    pub(crate) fn sweep(&self) {
        self.shards.iter().for_each(|shard| shard.0.lock().sweep(self.clock.now()));
    }

    /// The numbers of rules that keys were last charged by. Of those that are not in force it stays true while the
    /// rules are not changed: keys leave them, and none comes.
    fn used_numbers(&self) -> UsedNumbers {
        let mut used = UsedNumbers::default();
        self.shards.iter().for_each(|shard| shard.0.lock().add_used(&mut used));
        used
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Lock<Shard> {
        &self.shards[self.shard_number(hash)].0
    }

    #[inline]
    fn shard_number(&self, hash: u64) -> usize {
        Place::number(hash, self.shards.len())
    }
}
