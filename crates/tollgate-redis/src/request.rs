//! From what is asked to the script that decides it.
#![deny(clippy::wildcard_enum_match_arm, reason = "a new algorithm must be handled in every match")]

use smallvec::SmallVec;
use tollgate_core::adaptive::Pace;
use tollgate_core::{Action, Align, Group, Rule, RuleParts, WaitParts};
use tollgate_policy::Ask;

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

    pub(crate) fn numbers(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|number| self.number(*number));
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
    /// The cost it is tested for: its own, and those of earlier asks that name the same key and decide with it.
    pub(crate) tested: u64,
    pub(crate) action: Action,
    pub(crate) group: Group,
    /// Whether a denial carries a key over that was written by other numbers.
    pub(crate) has_one_tier: bool,
    /// Whether it is denied whatever its rule says.
    pub(crate) is_denied: bool,
    /// Which of the keys it has.
    pub(crate) key: usize,
    /// Whether other asks that name its key may be charged between its test and its own charge.
    pub(crate) is_repeated: bool,
}

impl Limit {
    fn new(ask: &Ask<'_>, key: usize) -> Self {
        let (full, rule) = (ask.rule, ask.rule.at_reduced_rate(ask.pace));
        let parts = rule.parts();
        let tag = tag(&full.parts(), &parts);
        // A caller that cannot hold a slot only tests whether there is one. A rate has no slots.
        let action = match (ask.action, rule.kind().has_permits()) {
            (Action::Charge | Action::ChargeInFull, true) => Action::Peek,
            (Action::Hold, false) => Action::Charge,
            (action, _) => action,
        };
        let &Ask { pace, cost, group, has_one_tier, is_denied, .. } = ask;
        let (tested, is_repeated) = (cost, false);
        Self {
            rule,
            parts,
            full,
            tag,
            pace,
            cost,
            tested,
            action,
            group,
            has_one_tier,
            is_denied,
            key,
            is_repeated,
        }
    }

    /// Whether it takes something from its key.
    const fn is_charge(&self) -> bool {
        matches!(self.action, Action::Charge | Action::ChargeInFull | Action::Hold)
    }

    /// Applies earlier asks of the same key: this ask takes the numbers of the first of them, and is tested with all their costs.
    fn follow(&mut self, earlier: &[Self]) {
        let same = || earlier.iter().filter(|limit| limit.key == self.key);
        let Some(first) = same().next() else { return };
        let is_peek = !self.is_charge() || (self.cost == 0 && self.action != Action::ChargeInFull);
        if !is_peek && self.group != Group::Independent {
            let charged = same().filter(|limit| limit.is_charge() && limit.group != Group::Independent);
            self.tested = charged.fold(self.cost, |sum, limit| sum.saturating_add(limit.cost));
        }
        (self.rule, self.parts, self.full) = (first.rule, first.parts, first.full);
        (self.tag, self.pace) = (first.tag.clone(), first.pace);
        self.is_repeated = true;
    }

    /// Whether one that was denied a moment ago can be denied again without a call, and one that was not has nothing to add:
    /// all must allow, nothing is given back, and nothing counts what is denied.
    pub(crate) fn can_be_denied_before(&self) -> bool {
        let is_asked = match self.rule.kind().has_permits() {
            true => self.action != Action::Refund,
            false => matches!(self.action, Action::Charge | Action::Hold),
        };
        is_asked
            && self.group == Group::All
            && !self.rule.counts_denied()
            && !self.is_denied
            && self.cost <= self.rule.capacity()
    }

    /// Whether what it says is remembered, in case it is a denial. A place may be given back at any time.
    pub(crate) fn is_remembered(&self) -> bool {
        let is_charged =
            matches!(self.action, Action::Charge | Action::Hold) && !self.rule.kind().has_permits();
        is_charged && self.group != Group::Independent && !self.rule.counts_denied() && self.cost > 0
    }

    /// Whether the short script will do. That takes how long a key lingers from its numbers, which must be those of the tag.
    fn is_plain(&self) -> bool {
        matches!(self.rule, Rule::TokenBucket(_) | Rule::LeakyBucket(_))
            && self.pace == Pace::FULL
            && matches!(self.action, Action::Charge | Action::Hold)
            && self.group == Group::All
            && !self.is_denied
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

    /// Writes the arguments of this ask for plan.lua. If other asks have the same key, the ask is written twice: with the cost to
    /// test, and with the cost to charge. An independent ask is written once, because it is tested right before its charge.
    fn write(&self, id: &[u8], are_keys_named: bool, to: &mut Texts) {
        self.write_once(self.tested, id, are_keys_named, to);
        if self.is_repeated && self.group != Group::Independent {
            self.write_once(self.cost, id, false, to);
        }
    }

    /// Writes the head and the numbers of this ask at a cost.
    pub(crate) fn write_once(&self, cost: u64, id: &[u8], is_key_named: bool, to: &mut Texts) {
        let fits = cost <= self.rule.capacity() && (!self.is_denied || self.action == Action::Refund);
        let action = match self.action {
            Action::ChargeInFull if cost == 0 && self.is_denied => b'd',
            Action::ChargeInFull if cost == 0 => b'p', // denied by what is there already
            Action::ChargeInFull if fits => b'f',
            Action::ChargeInFull => b'g',
            _ if cost == 0 => b'z',
            Action::Refund if self.gives_back(fits) => b'r',
            Action::Refund => b'z',
            Action::Peek if !fits => b'x',
            Action::Peek => b'p',
            Action::Charge | Action::Hold if !fits => b'n',
            Action::Charge => b'c',
            Action::Hold => b'h',
        };
        let group = match self.group {
            Group::All => b'a',
            Group::AnyOf => b'o',
            Group::Independent => b's',
        };
        let group = if self.is_repeated { group.to_ascii_uppercase() } else { group };
        let script = script_letter(self.parts.kind());
        let mut head = |more: &[u8]| {
            to.with(|bytes| {
                bytes.extend_from_slice(&[script, group, action]);
                bytes.extend_from_slice(more);
            });
            if is_key_named {
                to.number(self.key as u64 + 1);
            }
        };
        // What does not fit is denied; only counts look at how much it is, that of denied requests or to be given back.
        let (in_full, most) = (matches!(action, b'f' | b'g'), self.most_in_full());
        let spent = match fits {
            true => cost,
            _ if in_full => cost.min(most),
            false => 0,
        };
        let clipped = cost.min(MOST);
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
                    let cost = if in_full { cost.min(schedule.most_in_full()) } else { spent };
                    let cost = schedule.span(cost);
                    schedule.write_with_debt(&[cost, schedule.tolerance()], in_full, to);
                }
            }
            RuleParts::FixedWindow { limit, window, align, counts_denied } => {
                let begins = if align == Align::Epoch { b'e' } else { b'f' };
                head(&[begins, if counts_denied { b'd' } else { b'-' }]);
                to.text(&self.tag);
                to.number(limit);
                to.number(clipped);
                to.number(window.get() / MICRO);
            }
            RuleParts::SlidingLog { limit, window } => {
                head(if self.has_one_tier { b"k" } else { b"-" });
                to.text(&self.tag);
                to.number(limit);
                to.number(spent);
                to.number(window.get() / MICRO);
                if in_full {
                    to.number(most);
                }
            }
            RuleParts::SlidingCounter { limit, window, buckets, mode } => {
                head(mode_letter(mode).as_bytes());
                to.text(&self.tag);
                to.number(limit);
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

/// A request, ready to be sent.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) keys: Texts,
    /// One per ask, in order.
    pub(crate) limits: SmallVec<[Limit; 1]>, // they are large, and moved with the future that asks
}

impl Prepared {
    pub(crate) fn new(asks: &[Ask<'_>]) -> Self {
        let (mut keys, mut limits, mut distinct) = (Texts::default(), SmallVec::<[Limit; 1]>::new(), 0);
        for ask in asks {
            keys.with(|bytes| write_key(ask, bytes));
            let key = keys.repeated().unwrap_or(distinct);
            let mut limit = Limit::new(ask, key);
            if key < distinct {
                limit.follow(&limits);
                // An independent ask is decided after the others, also after those that come later.
                let same = limits.iter_mut().filter(|limit| limit.key == key);
                same.for_each(|limit| limit.is_repeated |= limit.group == Group::Independent);
            }
            distinct = distinct.max(key + 1);
            limits.push(limit);
        }
        Self { keys, limits }
    }

    /// Whether two asks name one key.
    pub(crate) fn has_same_keys(&self) -> bool {
        self.limits.iter().any(|limit| limit.is_repeated)
    }

    /// The key of a limit.
    pub(crate) fn key(&self, limit: &Limit) -> &[u8] {
        self.keys.iter().nth(limit.key).expect("every limit has a key")
    }

    /// The script that decides it, and what it is told. `now` is the store's own unless a test says otherwise; `id` is that
    /// of the permits it is given.
    pub(crate) fn arguments(&self, now: Option<u64>, id: &[u8], replaced: &[Replaced]) -> (Which, Texts) {
        let mut texts = Texts::default();
        let has_same_keys = self.has_same_keys();
        if replaced.is_empty() && !has_same_keys && self.limits.iter().all(Limit::is_plain) {
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
        write_beginning(now, has_same_keys, replaced, &mut texts);
        for (place, limit) in self.limits.iter().enumerate() {
            let own = limit.is_repeated.then(|| format!("{}-{place:x}", String::from_utf8_lossy(id)));
            limit.write(own.as_deref().map_or(id, str::as_bytes), has_same_keys, &mut texts);
        }
        self.write_replaced(replaced, &mut texts);
        (Which::Plan, texts)
    }

    /// Writes the converted states, which come last.
    pub(crate) fn write_replaced(&self, replaced: &[Replaced], to: &mut Texts) {
        for one in replaced {
            let keeps =
                self.limits.iter().filter(|limit| limit.key == one.key).all(|limit| limit.has_one_tier);
            to.text(format!("{}{}", one.key + 1, if keeps { "k" } else { "" }).as_bytes());
            to.text(&one.held);
            to.text(one.numbers.as_bytes());
        }
    }
}

/// Writes what the arguments of all scripts with rules.lua begin with: the time, and how many states are converted.
pub(crate) fn write_beginning(now: Option<u64>, has_same_keys: bool, replaced: &[Replaced], to: &mut Texts) {
    to.time(now);
    to.with(|bytes| {
        bytes.extend_from_slice(if has_same_keys { b"k" } else { b"-" });
        if !replaced.is_empty() {
            bytes.extend_from_slice(replaced.len().to_string().as_bytes());
        }
    });
}
