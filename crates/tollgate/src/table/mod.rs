//! One table for the states of any number of limiters.

mod ask;
mod paced;
mod plan;
mod prefetch;
mod rules;
mod segments;
mod shard;
mod shard_rules;
mod slab;
mod slot;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use smallvec::SmallVec;
use tollgate_core::adaptive::Pace;
use tollgate_core::{Action, Decision, Group, Nanos, PermitId, Status, Timestamp};

pub(crate) use self::ask::Ask;
use self::plan::Locked;
pub(crate) use self::plan::{MOST_LIMITS, USUAL_LIMITS};
pub(crate) use self::prefetch::Prefetcher;
use self::prefetch::prefetch_for_write;
use self::rules::Paces;
pub use self::rules::RequestRule;
pub(crate) use self::rules::{AskRule, KeptRule, LimiterLife, TierCell};
pub(crate) use self::shard::Part;
use self::shard::{Place, Shard, UNBOUNDED};
use crate::line::{Lines, MOST_WAITING};
use crate::sync::{AtomicU64, AtomicUsize, Lock, Mutex, Ordering};
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
    /// Rules that keys use or lately used. Each shard of the table counts its own rules, so a rule that is used in
    /// two shards counts twice.
    pub rules: usize,
    /// The most slots that one request has swept, looked at for eviction, moved or made; in a plan, each of its
    /// requests. A few thousand at most, whatever happens: it is here to show that no decision does a sweep's work.
    pub most_touched: usize,
}

/// How a table is made.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) max_keys: usize,
    pub(crate) max_bytes: Option<usize>,
    pub(crate) second_part: Option<Option<usize>>, // if there is one: its `max_bytes`
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
            second_part: None,
            max_waiting: MOST_WAITING,
            when_full: WhenFull::default(),
            clock: Clock::new(),
            secret: Secret::random(),
        }
    }
}

/// A slot of a concurrency limit that is held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldSlot {
    pub(crate) part: Part,
    pub(crate) hash: u64,
    pub(crate) permit: PermitId,
}

/// Shards of keys, each behind a lock.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) number: u64, // no other table has it
    shards: Box<[Padded]>,  // those of the first part, then those of the second
    in_first: usize,
    busy: Box<[AtomicBool]>, // the shards that many plans wait for; apart from them, because all plans read it
    busy_shards: AtomicUsize, // how many of them are
    pub(crate) clock: Clock,
    pub(crate) secret: Secret,
    pub(crate) lines: Lines,  // before its keys
    paces: Mutex<Arc<Paces>>, // as every shard has them, or is about to
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
        let first = Self::shards_of(Part::First, &settings, settings.max_bytes);
        let second =
            settings.second_part.map(|max_bytes| Self::shards_of(Part::Second, &settings, max_bytes));
        let in_first = first.len();
        let shards: Box<[Padded]> = first.into_iter().chain(second.into_iter().flatten()).collect();
        Self {
            number: TABLES.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            in_first,
            busy: shards.iter().map(|_| AtomicBool::new(false)).collect(),
            busy_shards: AtomicUsize::new(0),
            shards,
            clock: settings.clock,
            secret: settings.secret,
            lines: Lines::new(settings.max_waiting),
            paces: Mutex::default(),
            permits: AtomicU64::new(0),
            limits: AtomicU64::new(0),
        }
    }

    fn shards_of(part: Part, settings: &Settings, max_bytes: Option<usize>) -> Vec<Padded> {
        let max_bytes = max_bytes.unwrap_or(UNBOUNDED).max(BYTES_A_SHARD);
        let worth = (settings.max_keys / KEYS_A_SHARD).min(max_bytes / BYTES_A_SHARD);
        let shards = worth.clamp(1, MOST_SHARDS);
        let shard = |i| {
            // The parts of the bounds add up to the bounds.
            let max_keys = settings.max_keys / shards + usize::from(i < settings.max_keys % shards);
            let max_bytes = match max_bytes {
                UNBOUNDED => UNBOUNDED,
                max_bytes => max_bytes / shards - size_of::<Padded>(),
            };
            let place = Place { part, number: i, of: shards };
            Padded(Lock::new(Shard::new(place, max_keys, max_bytes, settings.when_full)))
        };
        (0..shards).map(shard).collect()
    }

    /// Changes the numbers of tiers at one instant: no plan sees some of them changed and others not. Keys are converted when they
    /// are next charged.
    pub(crate) fn set_tiers<'t>(&self, tiers: impl Iterator<Item = (&'t TierCell, Numbers)>) {
        let tiers: Vec<_> = tiers.map(|(tier, numbers)| (tier, self.align(numbers))).collect();
        // All shards are locked, in the order that plans lock them.
        let shards: Vec<_> = self.shards.iter().map(|shard| shard.0.lock()).collect();
        tiers.into_iter().for_each(|(tier, numbers)| tier.set(numbers));
        drop(shards);
        self.lines.call_all();
    }

    /// Changes the paces of the shed classes from now on.
    pub(crate) fn set_paces(&self, paces: [Pace; 3]) {
        let mut current = self.paces.lock();
        let Some(paces) = current.changed(paces, self.clock.now()).map(Arc::new) else { return };
        *current = Arc::clone(&paces);
        let mut shards: Vec<_> = self.shards.iter().map(|shard| shard.0.lock()).collect();
        let old: Vec<_> = shards.iter_mut().map(|shard| shard.set_paces(Arc::clone(&paces))).collect();
        drop(shards);
        drop((current, old));
        self.lines.call_all();
    }

    pub(crate) fn has_second_part(&self) -> bool {
        self.in_first < self.shards.len()
    }

    /// Numbers whose windows begin on the minute of this table's clock.
    pub(crate) fn align(&self, numbers: Numbers) -> Numbers {
        Numbers { rule: self.clock.align(numbers.rule), ..numbers }
    }

    #[inline]
    pub(crate) fn check(&self, ask: &Ask<'_>, now: Timestamp) -> Decision {
        self.shard(ask).lock().check(ask, now)
    }

    /// Starts to fetch the cache line of the shard's lock for writing, and does not wait for it.
    #[inline]
    pub(crate) fn prefetch_lock(&self, ask: &Ask<'_>) {
        prefetch_for_write(&self.shards[self.shard_number(ask.part, ask.hash)]);
    }

    /// Starts to fetch the slot of a key from memory, and does not wait for it.
    pub(crate) fn prefetch(&self, ask: &Ask<'_>) {
        self.shard(ask).lock().prefetch(ask.hash);
    }

    /// How a key stands, charging nothing.
    pub(crate) fn status(&self, ask: &Ask<'_>, now: Timestamp) -> Status {
        self.shard(ask).lock().status(ask, now)
    }

    /// What [`check`](Self::check) would answer, charging nothing.
    pub(crate) fn preview(&self, ask: &Ask<'_>, now: Timestamp) -> Decision {
        self.shard(ask).lock().preview(ask, now)
    }

    /// As [`check`](Self::check), but denies what would have to be held back, until it would not.
    pub(crate) fn check_at_once(&self, ask: &Ask<'_>, now: Timestamp) -> Decision {
        self.shard(ask).lock().check_at_once(ask, now)
    }

    pub(crate) fn reset(&self, part: Part, hash: u64) -> bool {
        let was_there = self.shards[self.shard_number(part, hash)].0.lock().reset(hash);
        self.lines.call(hash);
        was_there
    }

    /// Gives back what was charged, as far as it still counts. How much that is.
    pub(crate) fn refund(&self, ask: &Ask<'_>, charged: Timestamp, now: Timestamp) -> u64 {
        let given = self.shard(ask).lock().refund(ask, charged, now);
        self.lines.call(ask.hash);
        given
    }

    /// Gives up a place whose turn has not come, and returns by how much those behind it go sooner.
    pub(crate) fn withdraw(&self, ask: &Ask<'_>, now: Timestamp) -> Nanos {
        let sooner = self.shard(ask).lock().withdraw(ask, now);
        self.lines.call(ask.hash);
        sooner
    }

    /// All who wait go later by this, the last of them then.
    pub(crate) fn postpone(&self, ask: &Ask<'_>, by: Nanos, last_turn: Timestamp, now: Timestamp) {
        self.shard(ask).lock().postpone(ask, by, last_turn, now);
    }

    /// Decides asks at one instant, by their groups and actions. Calls `each` with the index of each ask and its decision.
    /// Returns the slots that are held now. Asks that decide together are decided while all their shards are locked.
    /// Independent asks are decided one after the other.
    #[inline]
    pub(crate) fn decide<'a>(
        &self,
        asks: impl Iterator<Item = Ask<'a>> + Clone,
        now: Timestamp,
        mut each: impl FnMut(usize, Decision),
    ) -> Vec<HeldSlot> {
        let mut holding = Vec::new();
        if asks.size_hint() == (1, Some(1)) {
            // The way of most requests, without a list.
            asks.for_each(|ask| each(0, self.decide_alone(&ask, true, now, &mut holding)));
            return holding;
        }
        let mut deciding: SmallVec<[Ask<'a>; USUAL_LIMITS]> = SmallVec::new();
        let mut indices: SmallVec<[usize; USUAL_LIMITS]> = SmallVec::new();
        let mut has_independent = false;
        for (i, ask) in asks.clone().enumerate() {
            if ask.group == Group::Independent {
                has_independent = true;
            } else {
                deciding.push(ask);
                indices.push(i);
            }
        }
        let passes = match &mut deciding[..] {
            [] => true,
            [ask] => {
                let decision = self.decide_alone(ask, true, now, &mut holding);
                each(indices[0], decision);
                decision.is_allowed()
            }
            deciding if deciding.len() <= USUAL_LIMITS => {
                self.decide_together::<USUAL_LIMITS>(deciding, &mut indices, now, &mut each, &mut holding)
            }
            deciding => {
                self.decide_together::<MOST_LIMITS>(deciding, &mut indices, now, &mut each, &mut holding)
            }
        };
        if has_independent {
            let mut independent =
                asks.enumerate().filter(|(_, ask)| ask.group == Group::Independent).peekable();
            while independent.peek().is_some() {
                independent.clone().take(BATCH).for_each(|(_, ask)| self.prefetch(&ask));
                for (i, ask) in independent.by_ref().take(BATCH) {
                    each(i, self.decide_alone(&ask, passes, now, &mut holding));
                }
            }
        }
        holding
    }

    #[inline]
    fn decide_alone(
        &self,
        ask: &Ask<'_>,
        passes: bool,
        now: Timestamp,
        holding: &mut Vec<HeldSlot>,
    ) -> Decision {
        if ask.is_usual() && ask.action == Action::Charge {
            return self.check(ask, now); // which is quicker
        }
        let ask = self.with_permit(*ask);
        let (decision, has_slot) = self.shard(&ask).lock().decide(&ask, passes, now, |outcome| outcome);
        if has_slot {
            holding.extend(ask.held_slot());
        }
        if ask.action == Action::Refund {
            self.lines.call(ask.hash);
        }
        decision
    }

    /// `indices`: which asks of the caller they are.
    fn decide_together<const N: usize>(
        &self,
        asks: &mut [Ask<'_>],
        indices: &mut [usize],
        now: Timestamp,
        each: &mut impl FnMut(usize, Decision),
        holding: &mut Vec<HeldSlot>,
    ) -> bool {
        asks.iter_mut().for_each(|ask| *ask = self.with_permit(*ask));
        if self.is_any_busy() {
            self.put_busy_first(asks, indices);
        }
        let mut decisions = [Decision::default(); N];
        let decisions = &mut decisions[..asks.len()];
        let mut plan = Locked::<N>::new(self, asks);
        let passes = plan.decide(now, decisions);
        if passes {
            // An any-of limit that denies has given no slot.
            let held = (0..decisions.len()).filter(|&i| decisions[i].is_allowed() && plan.has_slot(i));
            holding.extend(held.filter_map(|i| plan.held_slot(i)));
        }
        plan.end(now);
        for ((ask, i), decision) in asks.iter().zip(indices).zip(decisions) {
            if ask.action == Action::Refund {
                self.lines.call(ask.hash);
            }
            each(*i, *decision);
        }
        passes
    }

    /// Puts asks in busy shards first, so that their shards are unlocked first. Asks of one shard stay in their order.
    fn put_busy_first(&self, asks: &mut [Ask<'_>], indices: &mut [usize]) {
        let mut busy = 0;
        for i in 0..asks.len() {
            if self.is_busy(self.shard_number(asks[i].part, asks[i].hash)) {
                asks[busy..=i].rotate_right(1);
                indices[busy..=i].rotate_right(1);
                busy += 1;
            }
        }
    }

    /// The ask with a permit of its own, if it is to hold a slot and has none.
    #[inline]
    fn with_permit<'a>(&self, ask: Ask<'a>) -> Ask<'a> {
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
    pub(crate) fn release(&self, slot: &HeldSlot, now: Timestamp) -> bool {
        let HeldSlot { part, hash, permit } = *slot;
        let was_held = self.shards[self.shard_number(part, hash)].0.lock().release(hash, permit, now);
        self.lines.call(hash);
        was_held
    }

    #[cfg(any(test, shuttle_model))]
    pub(crate) fn mark_busy_at_random(&self, mut is_busy: impl FnMut() -> bool) {
        for (number, shard) in self.shards.iter().enumerate() {
            let guard = shard.0.lock();
            self.set_busy(number, is_busy());
            drop(guard);
        }
    }

    #[cfg(test)]
    pub(crate) fn are_paced(&self) -> bool {
        self.shards[0].0.lock().are_paced()
    }

    /// The stats of one part, or of both.
    pub(crate) fn stats(&self, part: Option<Part>) -> Stats {
        let (first, second) = self.shards.split_at(self.in_first);
        let shards = match part {
            None => &self.shards[..],
            Some(Part::First) => first,
            Some(Part::Second) => second,
        };
        let mut stats = Stats::default();
        for shard in shards {
            let shard = shard.0.lock();
            stats.keys += shard.keys();
            stats.bytes += shard.bytes() + size_of::<Padded>();
            stats.evictions += shard.evictions;
            stats.refused += shard.refused.get();
            stats.rules += shard.rules();
            stats.most_touched = stats.most_touched.max(shard.most_touched);
        }
        stats
    }

    /// Forgets keys that are no longer used, looking at `most` slots or a few hundred more. Goes on where it last ended. A shard is
    /// locked for one segment at a time, which takes about a microsecond.
    pub(crate) fn sweep(&self, most: usize) {
        let now = self.clock.now();
        // In each round one segment of each shard, until all segments have had their turn.
        let (mut looked, mut round, mut rounds) = (0, 0, 1);
        while round < rounds && looked < most {
            for shard in &self.shards {
                let mut shard = shard.0.lock();
                rounds = shard.segments().max(rounds);
                looked += shard.sweep_next(now);
            }
            round += 1;
        }
    }

    #[inline]
    fn shard(&self, ask: &Ask<'_>) -> &Lock<Shard> {
        &self.shards[self.shard_number(ask.part, ask.hash)].0
    }

    /// Whether many plans wait for any shard.
    #[inline]
    fn is_any_busy(&self) -> bool {
        self.busy_shards.load(Ordering::Relaxed) > 0
    }

    /// Whether many plans wait for a shard.
    #[inline]
    fn is_busy(&self, shard: usize) -> bool {
        self.busy[shard].load(std::sync::atomic::Ordering::Relaxed)
    }

    fn set_busy(&self, shard: usize, is_busy: bool) {
        // The lock of the shard is held, so no other thread changes this one.
        if self.busy[shard].swap(is_busy, std::sync::atomic::Ordering::Relaxed) == is_busy {
            return;
        }
        match is_busy {
            true => self.busy_shards.fetch_add(1, Ordering::Relaxed),
            false => self.busy_shards.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// The number of the shard of a hash. Plans lock shards in this order.
    #[inline]
    fn shard_number(&self, part: Part, hash: u64) -> usize {
        match part {
            Part::First => Place::number(hash, self.in_first),
            Part::Second => self.in_first + Place::number(hash, self.shards.len() - self.in_first),
        }
    }
}
