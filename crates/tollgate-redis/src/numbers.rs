//! What scripts are told of a rule, and which rules they cannot hold.
//!
//! Lua counts in doubles, which are exact up to 2^53. So times are microseconds since the epoch, now about 1.8 * 10^15, and
//! what lies between two of them is counted in pieces, of which a rule says how many make one. Nothing here computes what
//! a rule decides: the numbers are those of [`Rule::parts`].
#![deny(clippy::wildcard_enum_match_arm, reason = "a new algorithm must be handled in every match")]

use smallvec::SmallVec;
use tollgate_core::{AlgorithmKind, Align, BucketParts, Mode, Nanos, Rule, RuleParts, WaitParts};

/// No number and no span may be larger: the time and a span must fit what doubles hold exactly.
pub(crate) const MOST: u64 = 1 << 52;

/// As far as a schedule may reach with its debt, in microseconds. A schedule of the core reaches at most 2^62 ns without one.
const LONGEST_REACH: u64 = (1 << 62) / MICRO + 1;

/// Longer lists would keep the server from its other work for too long.
const MOST_IN_LOG: u64 = 100_000;
const MOST_SUB_WINDOWS: u32 = 256;
const MOST_WAITING: u32 = 1000;
pub(crate) const MOST_PLACES: u64 = 100_000;

/// Nanoseconds in a microsecond.
pub(crate) const MICRO: u64 = 1000;

/// A span as scripts take it: whole microseconds, and pieces of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) whole: u64,
    pub(crate) part: u64,
}

/// The schedule of a bucket, counted in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) per: u64, // pieces in a microsecond
    interval: u64,
    capacity: u64,
}

impl Schedule {
    pub(crate) const fn new(bucket: BucketParts) -> Self {
        Self { per: bucket.per_nano * MICRO, interval: bucket.interval, capacity: bucket.capacity }
    }

    /// What a cost takes up. At most the capacity, so that it fits.
    pub(crate) const fn span(&self, cost: u64) -> Span {
        self.of_pieces(cost * self.interval)
    }

    pub(crate) const fn tolerance(&self) -> Span {
        self.span(self.capacity)
    }

    /// The most units of a schedule that requests are charged to in full: one capacity above the capacity.
    pub(crate) const fn most_in_full(&self) -> u64 {
        self.capacity.saturating_mul(2)
    }

    /// How far such a schedule may reach.
    pub(crate) fn reach_in_full(&self) -> Span {
        let span = self.span(self.most_in_full());
        Span { whole: span.whole.min(LONGEST_REACH), ..span }
    }

    pub(crate) const fn of_pieces(&self, pieces: u64) -> Span {
        Span { whole: pieces / self.per, part: pieces % self.per }
    }
}

/// The letter under which plan.lua finds the file of an algorithm. Both buckets have one file, bucket.lua.
pub(crate) const fn script_letter(kind: AlgorithmKind) -> u8 {
    match kind {
        AlgorithmKind::TokenBucket | AlgorithmKind::LeakyBucket => b'b',
        AlgorithmKind::FixedWindow
        | AlgorithmKind::SlidingLog
        | AlgorithmKind::SlidingCounter
        | AlgorithmKind::BurstCredits
        | AlgorithmKind::Concurrency => kind.letter(),
    }
}

/// What is written beside a state, so that it is known by which numbers it is to be read.
pub(crate) type Tag = SmallVec<[u8; 64]>;

/// The tag of a rule that is decided as `paced` for now. Only what matters to its states: another limit on a window does not
/// change what was counted in it.
///
/// At a reduced rate, `@` and the intervals of its schedules follow: `t10000000/1x10@19531250/1`. A state without them was
/// written at the full rate.
pub(crate) fn tag(full: &RuleParts, paced: &RuleParts) -> Tag {
    let mut tag = Tag::new();
    write_full(&mut tag, full);
    let mut before = b'@';
    for bucket in schedules(paced).filter(|_| paced != full) {
        write_number(&mut tag, before, bucket.interval);
        write_number(&mut tag, b'/', bucket.per_nano);
        before = b',';
    }
    tag
}

/// The schedules of a rule: none for windows and permits.
pub(crate) fn schedules(parts: &RuleParts) -> impl Iterator<Item = BucketParts> {
    let [first, second] = match *parts {
        RuleParts::TokenBucket { bucket, .. } | RuleParts::LeakyBucket { bucket, .. } => [Some(bucket), None],
        RuleParts::BurstCredits { base, peak } => [Some(base), Some(peak)],
        RuleParts::FixedWindow { .. }
        | RuleParts::SlidingLog { .. }
        | RuleParts::SlidingCounter { .. }
        | RuleParts::Concurrency { .. } => [None, None],
    };
    first.into_iter().chain(second)
}

fn write_full(tag: &mut Tag, parts: &RuleParts) {
    tag.push(parts.kind().letter());
    match parts {
        RuleParts::TokenBucket { bucket, waits, .. } | RuleParts::LeakyBucket { bucket, waits } => {
            write_bucket(tag, bucket);
            write_waits(tag, waits.as_ref());
        }
        RuleParts::BurstCredits { base, peak } => {
            write_bucket(tag, base);
            tag.push(b',');
            write_bucket(tag, peak);
        }
        RuleParts::FixedWindow { window, align, .. } => {
            write_digits(tag, window.get());
            tag.push(if *align == Align::Epoch { b'e' } else { b'f' });
        }
        RuleParts::SlidingLog { window, .. } => write_digits(tag, window.get()),
        RuleParts::SlidingCounter { window, buckets, mode, .. } => {
            write_digits(tag, window.get());
            write_number(tag, b'/', (*buckets).into());
            tag.extend_from_slice(mode_letter(*mode).as_bytes());
        }
        RuleParts::Concurrency { .. } => {}
    }
}

fn write_bucket(tag: &mut Tag, bucket: &BucketParts) {
    write_digits(tag, bucket.interval);
    write_number(tag, b'/', bucket.per_nano);
    write_number(tag, b'x', bucket.capacity);
}

fn write_waits(tag: &mut Tag, waits: Option<&WaitParts>) {
    if let Some(waits) = waits {
        write_number(tag, b'+', waits.max_wait.get());
        write_number(tag, b'x', waits.max_waiting.into());
    }
}

fn write_number(tag: &mut Tag, before: u8, number: u64) {
    tag.push(before);
    write_digits(tag, number);
}

fn write_digits(tag: &mut Tag, number: u64) {
    tag.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// For how many microseconds a plain bucket is kept after it is as new: as long as it takes to fill, and a minute at most.
///
/// It saves most writes of when a key expires, which cost the server half as much again as those of what it holds. Whoever
/// writes that says `tat + lingers`, or later. That is not before the next multiple of `lingers` after the `tat`; so
/// whoever finds a schedule in the same stretch between two multiples as it will be in has nothing to say. All that
/// write a state of the same tag have the same number: this one, which buckets.lua works out for itself.
pub(crate) fn lingers(parts: &RuleParts) -> u64 {
    const LONGEST: u64 = 60_000_000;
    match parts {
        RuleParts::TokenBucket { bucket, waits: None, .. }
        | RuleParts::LeakyBucket { bucket, waits: None } => {
            Schedule::new(*bucket).tolerance().whole.clamp(1, LONGEST)
        }
        RuleParts::TokenBucket { waits: Some(_), .. }
        | RuleParts::LeakyBucket { waits: Some(_), .. }
        | RuleParts::FixedWindow { .. }
        | RuleParts::SlidingLog { .. }
        | RuleParts::SlidingCounter { .. }
        | RuleParts::BurstCredits { .. }
        | RuleParts::Concurrency { .. } => 0,
    }
}

/// The rule that wrote a tag, at full pace and as it was decided. What a tag does not contain is taken from `now`, the rule in
/// force at full pace: it does not matter to states.
pub(crate) fn rules_of(tag: &str, now: &RuleParts) -> Option<(Rule, Rule)> {
    let (full, rates) = tag.split_once('@').map_or((tag, None), |(full, rates)| (full, Some(rates)));
    let mut parts = full_parts_of(full, now)?;
    let full = Rule::from_parts(&parts).ok()?;
    let Some(rates) = rates else { return Some((full, full)) };
    let set = |bucket: &mut BucketParts, rate: &str| {
        let (interval, per_nano) = rate.split_once('/')?;
        (bucket.interval, bucket.per_nano) = (interval.parse().ok()?, per_nano.parse().ok()?);
        Some(())
    };
    match &mut parts {
        RuleParts::TokenBucket { bucket, .. } | RuleParts::LeakyBucket { bucket, .. } => set(bucket, rates)?,
        RuleParts::BurstCredits { base, peak } => {
            let (of_base, of_peak) = rates.split_once(',')?;
            set(base, of_base)?;
            set(peak, of_peak)?;
        }
        RuleParts::FixedWindow { .. }
        | RuleParts::SlidingLog { .. }
        | RuleParts::SlidingCounter { .. }
        | RuleParts::Concurrency { .. } => return None,
    }
    Some((full, Rule::from_parts(&parts).ok()?))
}

/// The numbers of a tag without a rate.
fn full_parts_of(tag: &str, now: &RuleParts) -> Option<RuleParts> {
    let number = |text: &str| text.parse::<u64>().ok();
    let bucket = |text: &str| {
        let (interval, rest) = text.split_once('/')?;
        let (per_nano, capacity) = rest.split_once('x')?;
        Some(BucketParts {
            interval: number(interval)?,
            per_nano: number(per_nano)?,
            capacity: number(capacity)?,
        })
    };
    let waiting = |text: &str| {
        let Some((schedule, waits)) = text.split_once('+') else { return Some((bucket(text)?, None)) };
        let (max_wait, max_waiting) = waits.split_once('x')?;
        let waits =
            WaitParts { max_wait: Nanos::new(number(max_wait)?), max_waiting: max_waiting.parse().ok()? };
        Some((bucket(schedule)?, Some(waits)))
    };
    let rest = tag.strip_prefix(char::from(now.kind().letter()))?;
    Some(match *now {
        RuleParts::TokenBucket { keeps_arrival_time, .. } => {
            let (bucket, waits) = waiting(rest)?;
            RuleParts::TokenBucket { bucket, keeps_arrival_time, waits }
        }
        RuleParts::LeakyBucket { .. } => {
            let (bucket, waits) = waiting(rest)?;
            RuleParts::LeakyBucket { bucket, waits }
        }
        RuleParts::BurstCredits { .. } => {
            let (base, peak) = rest.split_once(',')?;
            RuleParts::BurstCredits { base: bucket(base)?, peak: bucket(peak)? }
        }
        RuleParts::FixedWindow { limit, counts_denied, .. } => {
            let (window, align) = rest.split_at_checked(rest.len().checked_sub(1)?)?;
            let align = if align == "e" { Align::Epoch } else { Align::First };
            RuleParts::FixedWindow { limit, window: Nanos::new(number(window)?), align, counts_denied }
        }
        RuleParts::SlidingCounter { limit, .. } => {
            let (rest, mode) = rest.split_at_checked(rest.len().checked_sub(1)?)?;
            let mode = [Mode::Interpolate, Mode::Strict, Mode::Lenient]
                .into_iter()
                .find(|of| mode_letter(*of) == mode)?;
            let (window, buckets) = rest.split_once('/')?;
            let (window, buckets) = (Nanos::new(number(window)?), buckets.parse().ok()?);
            RuleParts::SlidingCounter { limit, window, buckets, mode }
        }
        // sliding_log.lua converts a log by itself, and permits need no conversion.
        RuleParts::SlidingLog { .. } | RuleParts::Concurrency { .. } => return None,
    })
}

/// Refuses a rule that scripts cannot hold exactly, and says why.
pub(crate) fn require(rule: &Rule) -> Result<(), String> {
    match rule.parts() {
        RuleParts::TokenBucket { bucket, waits, .. } | RuleParts::LeakyBucket { bucket, waits } => {
            require_bucket(&bucket)?;
            let Some(WaitParts { max_wait, max_waiting }) = waits else { return Ok(()) };
            require_whole("max_wait", max_wait)?;
            require_most("max_waiting", max_waiting.into(), MOST_WAITING.into())
        }
        RuleParts::BurstCredits { base, peak } => {
            require_bucket(&base)?;
            require_bucket(&peak)
        }
        RuleParts::FixedWindow { limit, window, .. } => {
            require_whole("window", window)?;
            require_most("limit", limit, MOST)
        }
        RuleParts::SlidingLog { limit, window } => {
            require_whole("window", window)?;
            require_most("limit", limit, MOST_IN_LOG)
        }
        RuleParts::SlidingCounter { limit, window, buckets, .. } => {
            require_whole("window", window)?;
            require_most("limit", limit, MOST)?;
            let most = u64::from(MOST_SUB_WINDOWS).min(window.get() / MICRO);
            require_most("number of sub-windows", buckets.into(), most)?;
            // Pieces of 1/N us are counted within a window.
            let longest = Nanos::new(MOST / u64::from(buckets)).get().saturating_mul(MICRO);
            if window.get() > longest {
                return Err(format!("a window of {buckets} sub-windows is too long for the store"));
            }
            Ok(())
        }
        RuleParts::Concurrency { limit, lease } => {
            require_most("limit", limit, MOST_PLACES)?;
            let Some(lease) = lease else {
                return Err("a concurrency limit needs a `lease` here: a place whose holder dies would never be free \
                            again, for nobody"
                    .to_owned());
            };
            require_whole("lease", lease)
        }
    }
}

fn require_bucket(bucket: &BucketParts) -> Result<(), String> {
    let reach = u128::from(bucket.interval) * u128::from(bucket.capacity);
    if reach > u128::from(MOST) * u128::from(bucket.per_nano * MICRO) {
        return Err("it takes more than 142 years to fill, which the store cannot count".to_owned());
    }
    Ok(())
}

fn require_whole(what: &str, span: Nanos) -> Result<(), String> {
    if !span.get().is_multiple_of(MICRO) {
        return Err(format!("a {what} of {} ns: the store counts in whole microseconds", span.get()));
    }
    require_most(what, span.get() / MICRO, MOST)
}

fn require_most(what: &str, found: u64, most: u64) -> Result<(), String> {
    if found > most {
        Err(format!("a {what} of {found}: {most} is the most that the store keeps"))
    } else {
        Ok(())
    }
}

/// The letter of a mode.
pub(crate) const fn mode_letter(mode: Mode) -> &'static str {
    match mode {
        Mode::Interpolate => "i",
        Mode::Strict => "s",
        Mode::Lenient => "l",
    }
}
