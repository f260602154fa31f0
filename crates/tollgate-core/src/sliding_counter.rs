//! Sliding window, counted: one counter a sub-window instead of one entry a request.
//!
//! Time is counted in pieces of 1/N ns. A sub-window is W/N ns long and so has exactly W pieces: `window`
//! is the length of the window in nanoseconds and of a sub-window in pieces, and an N that does not divide
//! W loses nothing.

use std::time::Duration;

use crate::adaptive::Pace;
use crate::fixed_window::{checked_window, phase};
use crate::{Algorithm, Nanos, Outcome, RuleError, RuleParts, Status, Timestamp};

/// How the sub-window that is leaving weighs. [`SlidingCounter`] has an example.
///
/// `full` is what the N newest sub-windows hold, `old` what the one before them holds, of which a part still
/// lies in the window of length W; w = W/N, and e is how far `now` is into the current sub-window.
///
/// | mode | allowed iff | in any span of W at most |
/// |---|---|---|
/// | `Strict` | `old + full + cost <= limit` | `limit`; acts as a window of up to W + w |
/// | `Interpolate` | `old * (w-e)/w + full + cost <= limit` | `2 * limit - 1`, yet only `limit` in W - w |
/// | `Lenient` | `full + cost <= limit` | `2 * limit` |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// By the part of it that is still in the window, as if its requests had come evenly.
    Interpolate,
    /// Fully: never more than the limit in any span of the window.
    Strict,
    /// Not at all.
    Lenient,
}

/// At most about `limit` in any span of `window`: a few counters instead of a log.
///
/// - Promise and formula: see [`Mode`].
/// - Memory: 40 bytes a key for one sub-window, and 8 a sub-window above that.
/// - Overshoot: none in strict mode, up to `limit - 1` by interpolation, up to `limit` in lenient mode.
/// - Choose another: for small limits the exact [`SlidingLog`](crate::SlidingLog) costs little more.
#[doc = include_str!("sliding_counter/example.md")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlidingCounter {
    limit: u64,   // never zero
    window: u64,  // nanoseconds; also the pieces in a sub-window; never zero
    buckets: u64, // N; never zero
    mode: Mode,
    phase: u64, // how far into a window the clock's zero lies; below `window`
}

/// What each of the newest N + 1 sub-windows holds. [`SlidingCounter`] has an example.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    newest: u64,        // number of the newest sub-window that was charged
    ring: Ring,         // sub-window i is at i mod (N + 1)
    carried: Timestamp, // when the counts were last carried over from sub-windows with other edges
}

/// Two counters in place, more on the heap: N = 1 is by far the most common.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ring {
    Two([u64; 2]),
    More(Box<[u64]>),
}

impl Ring {
    #[inline]
    fn slots(&mut self) -> &mut [u64] {
        match self {
            Self::Two(ring) => ring,
            Self::More(ring) => ring,
        }
    }
}

impl Default for Ring {
    fn default() -> Self {
        Self::Two([0; 2])
    }
}

/// A key's counts as they stand in one sub-window.
#[derive(Clone, Copy)]
struct View {
    index: u64, // the sub-window
    into: u64,  // e, in pieces
    old: u64,
    full: u64,
}

impl SlidingCounter {
    /// At most `limit` in `window`, cut into `buckets` sub-windows aligned to the clock's zero unless
    /// [`started_at`](Self::started_at) says otherwise.
    ///
    /// Refuses zero for any, a limit above 2^62, sub-windows shorter than a nanosecond and more than
    /// 65536 of them: every decision adds them up, so a few dozen are the sensible number.
    /// [`SlidingCounter`] has an example.
    pub fn new(limit: u64, window: Duration, buckets: u32, mode: Mode) -> Result<Self, RuleError> {
        if limit == 0 {
            return Err(RuleError::ZeroCapacity { what: "limit" });
        }
        if limit > MAX_LIMIT {
            return Err(RuleError::TooLarge { what: "limit", found: limit, most: MAX_LIMIT });
        }
        let window = checked_window(window)?;
        let most = u32::try_from(window).unwrap_or(u32::MAX).min(MAX_BUCKETS);
        if buckets == 0 || buckets > most {
            return Err(RuleError::Buckets { found: buckets, most });
        }
        Ok(Self { limit, window, buckets: buckets.into(), mode, phase: 0 })
    }

    /// As [`FixedWindow::started_at`](crate::FixedWindow::started_at), which has an example.
    #[must_use]
    pub fn started_at(self, since_epoch: Duration) -> Self {
        Self { phase: phase(since_epoch, self.window), ..self }
    }

    pub(crate) const fn window(&self) -> Nanos {
        Nanos::new(self.window)
    }

    /// The length of a sub-window, rounded down.
    pub(crate) const fn sub_window(&self) -> Nanos {
        Nanos::new(self.window / self.buckets)
    }

    /// When the newest sub-window ends that was charged.
    pub(crate) fn newest_end(&self, counts: &Counts) -> Timestamp {
        self.start(counts.newest + 1)
    }

    /// The units that were charged in the newest sub-window.
    pub(crate) fn newest_used(&self, counts: &Counts) -> u64 {
        counts.held(counts.newest, self.buckets)
    }

    /// Has at least `used` charged in the sub-window that ends at `end`, if that is not over.
    pub(crate) fn present(&self, counts: &mut Counts, end: Timestamp, used: u64, now: Timestamp) {
        let index = self.locate(end).0.saturating_sub(1);
        if used > 0 && index >= self.locate(now).0.max(counts.newest) {
            let known = counts.open(index, self.buckets);
            *known = used.max(*known);
        }
    }

    pub(crate) const fn parts(&self) -> RuleParts {
        let Self { limit, mode, .. } = *self;
        RuleParts::SlidingCounter { limit, window: self.window(), buckets: self.buckets as u32, mode }
    }

    /// With the limit that is left at a pace.
    pub(crate) fn at_pace(self, pace: Pace) -> Self {
        Self { limit: pace.of(self.limit), ..self }
    }

    /// Bytes on the heap that a charge may add: a ring of this rule's length, where there is none yet.
    pub(crate) fn heap_growth(&self, counts: &Counts) -> usize {
        if self.buckets == 1 || counts.fits(self.buckets) {
            return 0;
        }
        (self.buckets as usize + 1) * size_of::<u64>()
    }

    #[inline]
    fn allows(&self, view: View, cost: u64) -> bool {
        self.weighed(view) + cost <= self.limit
    }

    /// What the window holds by this mode's reckoning, rounded up: whole costs fit under a whole limit
    /// exactly when they fit with the fraction.
    #[inline]
    fn weighed(&self, view: View) -> u64 {
        match self.mode {
            Mode::Strict => view.old + view.full,
            Mode::Lenient => view.full,
            Mode::Interpolate => mul_div_ceil(view.old, self.window - view.into, self.window) + view.full,
        }
    }

    /// How many sub-windows count: all that are kept, unless the last of them has no weight.
    #[inline]
    fn lasts(&self) -> u64 {
        if self.mode == Mode::Lenient { self.buckets } else { self.buckets + 1 }
    }

    /// The counts as they stand at `now`. A moment before the newest sub-window counts as its start.
    #[inline]
    fn view(&self, counts: &Counts, now: Timestamp) -> View {
        let (index, into) = self.locate(now);
        let (index, into) = if index < counts.newest { (counts.newest, 0) } else { (index, into) };
        let (old, full) = counts.sums(index, self.buckets);
        View { index, into, old, full }
    }

    /// The view at the start of the next sub-window: the oldest of `full` becomes `old`.
    #[inline]
    fn roll(&self, counts: &Counts, view: View) -> View {
        let index = view.index + 1;
        let old = index.checked_sub(self.buckets).map_or(0, |i| counts.held(i, self.buckets));
        View { index, into: 0, old, full: view.full - old }
    }

    /// The sub-window of `now` and the pieces into it.
    #[inline]
    fn locate(&self, now: Timestamp) -> (u64, u64) {
        // In 64 bits for the first 584/N years of the clock; division in 128 is several times slower.
        let aligned =
            now.as_nanos().checked_add(self.phase).and_then(|nanos| nanos.checked_mul(self.buckets));
        if let Some(pieces) = aligned {
            return ((pieces / self.window).min(LAST), pieces % self.window);
        }
        let (pieces, window) = (self.pieces(now), u128::from(self.window));
        (u64::try_from(pieces / window).map_or(LAST, |index| index.min(LAST)), (pieces % window) as u64)
    }

    /// The wait from `now` until `into` pieces of sub-window `index` have passed.
    #[inline]
    fn until(&self, now: Timestamp, index: u64, into: u64) -> Nanos {
        let target = u128::from(index) * u128::from(self.window) + u128::from(into);
        let pieces = target.saturating_sub(self.pieces(now));
        Nanos::new(div_ceil(pieces, self.buckets))
    }

    /// The first moment of sub-window `index`; zero if it began before the clock.
    #[inline]
    fn start(&self, index: u64) -> Timestamp {
        Timestamp::default().after(self.until(Timestamp::default(), index, 0))
    }

    #[inline]
    fn pieces(&self, now: Timestamp) -> u128 {
        (u128::from(now.as_nanos()) + u128::from(self.phase)) * u128::from(self.buckets)
    }
}

/// `a * b / c`, rounded up; only where that is at most `a` or `b`, so that it fits.
#[inline]
fn mul_div_ceil(a: u64, b: u64, c: u64) -> u64 {
    div_ceil(u128::from(a) * u128::from(b), c)
}

/// Division in 64 bits where the numbers allow, as they nearly always do: in 128 it is a call.
#[inline]
fn div_ceil(a: u128, b: u64) -> u64 {
    match u64::try_from(a) {
        Ok(a) => a.div_ceil(b),
        Err(_) => u64::try_from(a.div_ceil(b.into())).unwrap_or(u64::MAX),
    }
}

/// The most sub-windows.
const MAX_BUCKETS: u32 = 1 << 16;

/// The last sub-window there is, so that those after it can still be numbered. Only sub-windows of a
/// nanosecond or two come that far, after 292 years.
const LAST: u64 = 1 << 63;

/// The largest limit: three counts of it still add up in 64 bits.
const MAX_LIMIT: u64 = 1 << 62;

impl Counts {
    /// Counts whose newest sub-window has the number `newest`; sub-window i is in `ring` at i modulo its length.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Counts, Mode, Rule, SlidingCounter, State, Timestamp};
    ///
    /// let rule = Rule::from(SlidingCounter::new(10, Duration::from_nanos(60), 1, Mode::Strict)?);
    /// let counts = Counts::of_ring(4, &[3, 2]); // 3 in the fifth, 2 in the one before
    /// assert_eq!((counts.newest(), counts.ring()), (4, &[3, 2][..]));
    /// assert_eq!(rule.status(&State::Counts(counts), Timestamp::from_nanos(245)).remaining, 5);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn of_ring(newest: u64, ring: &[u64]) -> Self {
        let ring = match ring {
            &[a, b] => Ring::Two([a, b]),
            ring => Ring::More(ring.into()),
        };
        Self { newest, ring, carried: Timestamp::default() }
    }

    /// The number of the newest sub-window. [`of_ring`](Self::of_ring) has an example.
    pub const fn newest(&self) -> u64 {
        self.newest
    }

    /// What each sub-window holds. [`of_ring`](Self::of_ring) has an example.
    pub fn ring(&self) -> &[u64] {
        match &self.ring {
            Ring::Two(ring) => ring,
            Ring::More(ring) => ring,
        }
    }

    /// The bytes it keeps on the heap, as [`State::heap_bytes`](crate::State::heap_bytes) counts them.
    ///
    /// ```
    /// assert_eq!(tollgate_core::Counts::default().heap_bytes(), 0);
    /// ```
    pub fn heap_bytes(&self) -> usize {
        match &self.ring {
            Ring::Two(_) => 0,
            Ring::More(ring) => size_of_val(&ring[..]),
        }
    }

    /// `old` and `full` as seen from sub-window `index`, which is not before the newest.
    #[inline]
    fn sums(&self, index: u64, buckets: u64) -> (u64, u64) {
        let passed = index - self.newest;
        match &self.ring {
            _ if passed > buckets => (0, 0),
            Ring::Two(ring) => {
                let [newest, before] =
                    [ring[(self.newest % 2) as usize], ring[((self.newest + 1) % 2) as usize]];
                if passed == 0 { (before, newest) } else { (newest, 0) }
            }
            Ring::More(ring) => {
                // The slots after the newest hold the oldest: first those that have left since.
                let slot = |i: u64| ring[((self.newest + i) % ring.len() as u64) as usize];
                let left: u64 = (1..=passed).map(slot).sum();
                let old = slot(passed + 1);
                (old, ring.iter().sum::<u64>() - left - old)
            }
        }
    }

    /// What sub-window `i` holds; nothing if it is newer than the newest or older than the ring.
    #[inline]
    fn held(&self, i: u64, buckets: u64) -> u64 {
        if i > self.newest || self.newest - i > buckets {
            return 0;
        }
        match &self.ring {
            Ring::Two(ring) => ring[(i % 2) as usize],
            Ring::More(ring) => ring[(i % ring.len() as u64) as usize],
        }
    }

    /// The counter of sub-window `index`, which becomes the newest: those between start again at 0.
    ///
    /// The ring has a slot for each of `buckets + 1`. It is made here; one of another length, which nobody
    /// converted, starts afresh.
    fn open(&mut self, index: u64, buckets: u64) -> &mut u64 {
        let slots = buckets + 1;
        if !self.fits(buckets) {
            let ring =
                if buckets == 1 { Ring::default() } else { Ring::More(vec![0; slots as usize].into()) };
            *self = Self { newest: index, ring, carried: self.carried };
        }
        let ring = self.ring.slots();
        let passed = (index - self.newest).min(slots);
        for i in (index - passed + 1)..=index {
            ring[(i % slots) as usize] = 0;
        }
        self.newest = index;
        &mut ring[(index % slots) as usize]
    }

    /// Takes `given` out of sub-window `i`, which holds as much. With nothing left anywhere the key is unused;
    /// otherwise the newest stays where it is, so that a clock stepping back finds no older time to go on from.
    fn take(&mut self, i: u64, given: u64) {
        let ring = self.ring.slots();
        ring[(i % ring.len() as u64) as usize] -= given;
        if ring.iter().all(|&count| count == 0) {
            *self = Self::default();
        }
    }

    /// The newest of the last `lasts` sub-windows that holds anything.
    #[inline]
    fn newest_held(&self, lasts: u64, buckets: u64) -> Option<u64> {
        (0..lasts).map_while(|back| self.newest.checked_sub(back)).find(|&i| self.held(i, buckets) > 0)
    }

    /// Whether the ring is one of so many sub-windows.
    #[inline]
    fn fits(&self, buckets: u64) -> bool {
        match &self.ring {
            Ring::Two(_) => buckets == 1,
            Ring::More(ring) => ring.len() as u64 == buckets + 1,
        }
    }
}

impl Algorithm for SlidingCounter {
    type State = Counts;

    #[inline]
    fn capacity(&self) -> u64 {
        self.limit
    }

    #[inline]
    fn test(&self, counts: &Counts, cost: u64, now: Timestamp) -> Outcome {
        if cost == 0 { Outcome::ALLOW } else { self.test_in_full(counts, cost, now) }
    }

    fn test_in_full(&self, counts: &Counts, cost: u64, now: Timestamp) -> Outcome {
        if cost > self.limit {
            return Outcome::NEVER;
        }
        let mut view = self.view(counts, now);
        if self.allows(view, cost) {
            return Outcome::ALLOW;
        }
        // Nothing changes within a sub-window but the weight of `old`, so go from edge to edge until
        // what is left over is `old`'s to free. After N + 1 edges everything has left, and the cost
        // alone is within the limit.
        while view.full + cost > self.limit || (self.mode == Mode::Strict && !self.allows(view, cost)) {
            view = self.roll(counts, view);
        }
        let excess = (view.old + view.full + cost).saturating_sub(self.limit);
        let into = match self.mode {
            Mode::Interpolate if excess > 0 => mul_div_ceil(self.window, excess, view.old),
            _ => 0,
        };
        Outcome::deny_for(self.until(now, view.index, into))
    }

    #[inline]
    fn spend(&self, counts: &mut Counts, cost: u64, now: Timestamp) {
        if cost == 0 {
            return;
        }
        let index = self.locate(now).0.max(counts.newest);
        *counts.open(index, self.buckets) += cost;
    }

    fn spend_in_full(&self, counts: &mut Counts, cost: u64, now: Timestamp) {
        if cost == 0 {
            return;
        }
        let index = self.locate(now).0.max(counts.newest);
        counts.open(index, self.buckets);
        // The sum of all counts must fit, as it does within the limit.
        let room = MAX_LIMIT.saturating_sub(counts.ring().iter().sum());
        *counts.open(index, self.buckets) += cost.min(room);
    }

    /// The count of the sub-window that `charged` lies in goes down, if it still counts; what is taken from the
    /// one that is leaving makes as little room as it weighs. Nothing for a charge that a clock stepping back
    /// had counted in a newer sub-window, unless its own holds something too, nor for one from before the
    /// sub-windows changed.
    fn refund(&self, counts: &mut Counts, cost: u64, charged: Timestamp, now: Timestamp) -> u64 {
        let index = self.locate(now).0.max(counts.newest);
        let stamped = self.locate(charged).0;
        let gone = index.saturating_sub(stamped) >= self.lasts();
        if gone || charged < counts.carried || !counts.fits(self.buckets) {
            return 0;
        }
        let given = counts.held(stamped, self.buckets).min(cost);
        if given > 0 {
            counts.take(stamped, given);
        }
        given
    }

    #[inline]
    fn status(&self, counts: &Counts, now: Timestamp) -> Status {
        let view = self.view(counts, now);
        let lasts = self.lasts();
        let newest = counts.newest_held(lasts, self.buckets);
        let reset_after = newest.map_or(Nanos::ZERO, |newest| self.until(now, newest + lasts, 0));
        Status { remaining: self.limit.saturating_sub(self.weighed(view)), reset_after }
    }

    /// The counts stay. Where the sub-windows change, all that still counts moves into the newest: it
    /// is remembered a little longer, never forgiven.
    fn convert(&self, old: &Self, counts: &mut Counts, now: Timestamp) {
        if (self.window, self.buckets, self.phase) == (old.window, old.buckets, old.phase) {
            return;
        }
        let view = old.view(counts, now);
        let now = now.max(old.start(view.index));
        let held = old.weighed(view);
        *counts = Counts { carried: now.max(counts.carried), ..Counts::default() };
        if held > 0 {
            *counts.open(self.locate(now).0, self.buckets) = held;
        } else {
            *counts = Counts::default();
        }
    }
}

#[cfg(test)]
mod tests;
