//! From what is asked to the script that decides it.
#![deny(clippy::wildcard_enum_match_arm, reason = "a new algorithm must be handled in every match")]

use smallvec::SmallVec;
use tollgate_core::adaptive::Pace;
use tollgate_core::{Align, Rule, RuleParts, WaitParts};
use tollgate_policy::{Ask, Does, Part};

use crate::convert::Replaced;
use crate::key::write_key;
use crate::numbers::{MICRO, MOST, Schedule, Span, Tag, lingers, mode_letter, script_letter, tag};

/// What is sent with a call: texts, one after the other in one buffer.
#[derive(Debug)]
pub(crate) struct Texts {
    bytes: Vec<u8>,
    ends: SmallVec<[u32; 16]>,
}

impl Default for Texts {
    /// With room for what is usual: to grow costs more than all that is written.
    fn default() -> Self {
        Self { bytes: Vec::with_capacity(192), ends: SmallVec::new() }
    }
}

impl Texts {
    pub(crate) fn with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push(u32::try_from(self.bytes.len()).expect("less than 4 GB are asked for at once"));
    }

    pub(crate) fn text(&mut self, text: &[u8]) {
        self.with(|bytes| bytes.extend_from_slice(text));
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.text(itoa::Buffer::new().format(number).as_bytes());
    }

    /// The time, where a test tells it; else nothing, and the server's own is used.
    pub(crate) fn time(&mut self, micros: Option<u64>) {
        match micros {
            Some(micros) => self.number(micros),
            None => self.text(b""),
        }
    }

    /// Where the last text stands before, if it does. Then it is taken back.
    fn repeated(&mut self) -> Option<usize> {
        let last = self.ends.len().checked_sub(1)?;
        let same = self.iter().take(last).position(|earlier| Some(earlier) == self.iter().last())?;
        self.ends.pop();
        self.bytes.truncate(self.ends.last().copied().unwrap_or_default() as usize);
        Some(same)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start as usize..end as usize])
    }
}

/// Which script decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// The short one, of buckets that are charged together.
    Buckets,
    /// The one for everything.
    Plan,
}

/// One limit of a request, ready to be sent and to be replayed.
#[derive(Debug)]
pub(crate) struct Limit {
    /// The rule at the pace of the request.
    pub(crate) rule: Rule,
    /// The numbers of that rule.
    pub(crate) parts: RuleParts,
    /// The rule of the policy, at full pace.
    pub(crate) full: Rule,
    pub(crate) tag: Tag,
    pub(crate) pace: Pace,
    pub(crate) cost: u64,
    pub(crate) does: Does,
    pub(crate) part: Part,
    /// Whether a denial carries a key over that was written by other numbers.
    pub(crate) has_one_tier: bool,
    /// Whether it is denied whatever its rule says.
    pub(crate) is_blocked: bool,
}

impl Limit {
    fn new(ask: &Ask<'_>) -> Self {
        let (full, rule) = (ask.rule, ask.rule.at_reduced_rate(ask.pace));
        let parts = rule.parts();
        let tag = tag(&full.parts(), &parts);
        // A caller that cannot hold a permit only looks whether there is one.
        let only_looks = rule.kind().has_permits() && matches!(ask.does, Does::Charge | Does::ChargeInFull);
        let does = if only_looks { Does::Preview } else { ask.does };
        let (pace, cost, part) = (ask.pace, ask.cost, ask.part);
        let (has_one_tier, is_blocked) = (ask.has_one_tier, ask.is_blocked);
        Self { rule, parts, full, tag, pace, cost, does, part, has_one_tier, is_blocked }
    }

    /// Pays for another of the same key. What one gives back and the other is charged is not set off: it is charged. One that
    /// only looks adds nothing. Where one is charged in full, so is the other.
    fn join(&mut self, other: &Self) {
        let looks = |limit: &Self| limit.cost == 0 || limit.does == Does::Preview;
        let other_alone = match (looks(self), looks(other)) {
            (true, true) => other.cost > self.cost,
            (is_looking, other_looks) if is_looking || other_looks => is_looking,
            _ => self.does == Does::Refund && other.does != Does::Refund,
        };
        let in_full = !looks(other) || looks(self);
        if in_full && other.does == Does::ChargeInFull && self.does != Does::Refund {
            self.does = Does::ChargeInFull;
        }
        if other_alone {
            (self.does, self.cost) = (other.does, other.cost);
        } else if !looks(other) && (self.does == Does::Refund) == (other.does == Does::Refund) {
            self.cost = self.cost.saturating_add(other.cost);
        }
        if other.part == Part::All {
            self.part = Part::All;
        }
        self.has_one_tier &= other.has_one_tier;
        self.is_blocked |= other.is_blocked;
    }

    /// Whether one that was denied a moment ago can be denied again without a call, and one that was not has nothing to add:
    /// all must allow, nothing is given back, and nothing counts what is denied.
    pub(crate) fn can_be_denied_before(&self) -> bool {
        let is_asked = match self.rule.kind().has_permits() {
            true => self.does != Does::Refund,
            false => matches!(self.does, Does::Charge | Does::Hold),
        };
        is_asked
            && self.part == Part::All
            && !self.rule.counts_denied()
            && !self.is_blocked
            && self.cost <= self.rule.capacity()
    }

    /// Whether what it says is remembered, in case it is a denial. A place may be given back at any time.
    pub(crate) fn is_remembered(&self) -> bool {
        let is_charged = matches!(self.does, Does::Charge | Does::Hold) && !self.rule.kind().has_permits();
        is_charged && self.part != Part::Alone && !self.rule.counts_denied() && self.cost > 0
    }

    /// Whether the short script will do. That takes how long a key lingers from its numbers, which must be those of the tag.
    fn is_plain(&self) -> bool {
        matches!(self.rule, Rule::TokenBucket(_) | Rule::LeakyBucket(_))
            && self.pace == Pace::FULL
            && matches!(self.does, Does::Charge | Does::Hold)
            && self.part == Part::All
            && !self.is_blocked
            && (1..=self.rule.capacity()).contains(&self.cost)
    }

    /// Whether anything is given back: as [`Rule::refund`] does it. The places of a queue have their times; a bucket takes
    /// back what it could have charged at once. A log could tell what was charged just now only by its time.
    const fn gives_back(&self, fits: bool) -> bool {
        match self.rule {
            Rule::TokenBucket(_) | Rule::TokenBucketMaxWait(_) | Rule::BurstCredits(_) => fits,
            Rule::FixedWindow(_) | Rule::SlidingCounter(_) => true,
            Rule::LeakyBucket(_)
            | Rule::LeakyBucketMaxWait(_)
            | Rule::SlidingLog(_)
            | Rule::Concurrency(_) => false,
        }
    }

    /// The most that a key holds of requests that are charged in full. This is a multiple of the limit at full pace: usage is
    /// not dropped because the limit is smaller for now.
    pub(crate) fn most_in_full(&self) -> u64 {
        self.full.capacity().saturating_mul(2)
    }

    /// The limit of a window, as a script takes it.
    const fn limit_of(&self, limit: u64) -> u64 {
        if self.is_blocked { 0 } else { limit }
    }

    /// What plan.lua is told of it.
    fn write(&self, id: &[u8], to: &mut Texts) {
        let fits = self.cost <= self.rule.capacity() && !self.is_blocked;
        let does = match self.does {
            Does::ChargeInFull if self.cost == 0 => b'p', // denied by what is there already
            Does::ChargeInFull if fits => b'f',
            Does::ChargeInFull => b'g',
            _ if self.cost == 0 => b'z',
            Does::Refund if self.gives_back(fits) => b'r',
            Does::Refund => b'z',
            Does::Preview if !fits => b'x',
            Does::Preview => b'p',
            Does::Charge | Does::Hold if !fits => b'n',
            Does::Charge | Does::Hold => b'c',
        };
        let part = match self.part {
            Part::All => b'a',
            Part::OneOf => b'o',
            Part::Alone => b's',
        };
        let script = script_letter(self.parts.kind());
        let mut head = |more: &[u8]| {
            to.with(|bytes| {
                bytes.extend_from_slice(&[script, part, does]);
                bytes.extend_from_slice(more);
            });
        };
        // What does not fit is denied; only counts look at how much it is, that of denied requests or to be given back.
        let (in_full, most) = (matches!(does, b'f' | b'g'), self.most_in_full());
        let spent = match fits {
            true => self.cost,
            _ if in_full => self.cost.min(most),
            false => 0,
        };
        let clipped = self.cost.min(MOST);
        match self.parts {
            RuleParts::TokenBucket { bucket, waits, .. } | RuleParts::LeakyBucket { bucket, waits } => {
                let schedule = Schedule::new(bucket);
                head(match (waits.is_some(), self.has_one_tier) {
                    (true, true) => b"wk",
                    (true, false) => b"w",
                    (false, true) => b"-k",
                    (false, false) => b"",
                });
                to.text(&self.tag);
                let (cost, tolerance) = (schedule.span(spent), schedule.tolerance());
                let Some(WaitParts { max_wait, max_waiting }) = waits else {
                    schedule.write_with_debt(&[cost, tolerance], in_full, to);
                    return to.number(lingers(&self.parts));
                };
                let wait = max_wait.get() / MICRO;
                // How far the schedule may reach, and how far nobody waits: in a bucket up to its tolerance, in a queue only
                // whoever is first.
                let [reach, free] = if matches!(self.rule, Rule::TokenBucketMaxWait(_)) {
                    [Span { whole: tolerance.whole + wait, ..tolerance }, tolerance]
                } else {
                    [tolerance, cost]
                };
                schedule.write_with_debt(&[cost, reach], in_full, to);
                schedule.write(&[free], to);
                to.number(wait);
                to.number(max_waiting.into());
            }
            RuleParts::BurstCredits { base, peak } => {
                head(if self.has_one_tier { b"k" } else { b"" });
                to.text(&self.tag);
                for schedule in [base, peak].map(Schedule::new) {
                    let cost = if in_full { self.cost.min(schedule.most_in_full()) } else { spent };
                    let cost = schedule.span(cost);
                    schedule.write_with_debt(&[cost, schedule.tolerance()], in_full, to);
                }
            }
            RuleParts::FixedWindow { limit, window, align, counts_denied } => {
                let begins = if align == Align::Epoch { b'e' } else { b'f' };
                head(&[begins, if counts_denied { b'd' } else { b'-' }]);
                to.text(&self.tag);
                to.number(self.limit_of(limit));
                to.number(clipped);
                to.number(window.get() / MICRO);
            }
            RuleParts::SlidingLog { limit, window } => {
                head(if self.has_one_tier { b"k" } else { b"-" });
                to.text(&self.tag);
                to.number(self.limit_of(limit));
                to.number(spent);
                to.number(window.get() / MICRO);
                if in_full {
                    to.number(most);
                }
            }
            RuleParts::SlidingCounter { limit, window, buckets, mode } => {
                head(mode_letter(mode).as_bytes());
                to.text(&self.tag);
                to.number(self.limit_of(limit));
                to.number(clipped);
                to.number(window.get() / MICRO);
                to.number(buckets.into());
            }
            RuleParts::Concurrency { limit, lease } => {
                head(b"");
                to.number(limit);
                to.number(spent);
                to.number(lease.map_or(0, |lease| lease.get() / MICRO));
                to.text(id);
            }
        }
    }
}

impl Schedule {
    /// [`write`](Self::write); where a request is charged in full, also how far the schedule may reach with its debt.
    fn write_with_debt(&self, spans: &[Span], in_full: bool, to: &mut Texts) {
        self.write(spans, to);
        if in_full {
            self.write(&[self.reach_in_full()], to);
        }
    }

    /// Spans as scripts take them: without pieces where none has any.
    fn write(&self, spans: &[Span], to: &mut Texts) {
        if spans.iter().all(|span| span.part == 0) {
            spans.iter().for_each(|span| to.number(span.whole));
        } else {
            let per = self.per;
            spans.iter().for_each(|span| to.text(format!("{}+{}/{per}", span.whole, span.part).as_bytes()));
        }
    }
}

/// An ask of a request, and the limit that it is decided as.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) limit: usize,
    pub(crate) does: Does,
    pub(crate) cost: u64,
}

/// A request, ready to be sent.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) keys: Texts,
    pub(crate) limits: SmallVec<[Limit; 1]>, // they are large, and moved with the future that asks
    /// The asks, in order.
    pub(crate) asks: SmallVec<[Asked; 4]>,
    pub(crate) is_denied: bool,
}

impl Prepared {
    pub(crate) fn new(asks: &[Ask<'_>], is_denied: bool) -> Self {
        let mut keys = Texts::default();
        let (mut limits, mut asked): (SmallVec<[Limit; 1]>, SmallVec<[Asked; 4]>) = Default::default();
        for ask in asks {
            keys.with(|bytes| write_key(ask, bytes));
            let limit = Limit::new(ask);
            // A key that is named twice pays for both, as one: two limits of a script may not stand for one state.
            let same = keys.repeated();
            let place = same.unwrap_or(limits.len());
            asked.push(Asked { limit: place, does: limit.does, cost: limit.cost });
            match same {
                Some(same) => limits[same].join(&limit),
                None => limits.push(limit),
            }
        }
        Self { keys, limits, asks: asked, is_denied }
    }

    /// Whether several asks are decided as this limit.
    pub(crate) fn is_shared(&self, limit: usize) -> bool {
        self.asks.iter().filter(|asked| asked.limit == limit).count() > 1
    }

    /// The script that decides it, and what it is told. `now` is the store's own unless a test says otherwise; `id` is that
    /// of the permits it is given.
    pub(crate) fn arguments(&self, now: Option<u64>, id: &[u8], replaced: &[Replaced]) -> (Which, Texts) {
        let mut texts = Texts::default();
        if !self.is_denied && replaced.is_empty() && self.limits.iter().all(Limit::is_plain) {
            for limit in &self.limits {
                let (RuleParts::TokenBucket { bucket, .. } | RuleParts::LeakyBucket { bucket, .. }) =
                    limit.parts
                else {
                    unreachable!("only buckets are plain");
                };
                texts.text(&limit.tag);
                let schedule = Schedule::new(bucket);
                schedule.write(&[schedule.span(limit.cost), schedule.tolerance()], &mut texts);
            }
            if let Some(now) = now {
                texts.number(now);
            }
            return (Which::Buckets, texts);
        }
        texts.time(now);
        texts.with(|bytes| {
            bytes.push(if self.is_denied { b'1' } else { b'0' });
            if !replaced.is_empty() {
                bytes.extend_from_slice(replaced.len().to_string().as_bytes());
            }
        });
        self.limits.iter().for_each(|limit| limit.write(id, &mut texts));
        for one in replaced {
            let keeps = if self.limits[one.place].has_one_tier { "k" } else { "" };
            texts.text(format!("{}{keeps}", one.place + 1).as_bytes());
            texts.text(&one.held);
            texts.text(one.numbers.as_bytes());
        }
        (Which::Plan, texts)
    }
}
