//! The numbers of a limit, of its tiers and of single tenants, and the rule they make.
#![deny(clippy::wildcard_enum_match_arm, reason = "a new algorithm must be handled in every match")]

use std::ops::Range;
use std::time::Duration;

use tollgate::{
    AlgorithmKind, Align, BucketParts, BurstCredits, Concurrency, FixedWindow, LeakyBucket, MaxWait, Mode,
    Nanos, Rate, Rule, RuleError, RuleParts, SlidingCounter, SlidingLog, TokenBucket, WaitParts,
};

use crate::fault::Fault;
use crate::keys::{self, Key};
use crate::quantity::{self, RateAndBurst};
use crate::reader::{Reader, Section, TO_BLOCK, quoted};
use crate::yaml::Node;

/// An algorithm with what does not differ between tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    TokenBucket,
    LeakyBucket,
    FixedWindow { align: Align, counts_denied: bool },
    SlidingLog { exact_up_to: u64 },
    SlidingCounter { buckets: u32, mode: Mode },
    BurstCredits,
    Concurrency,
}

/// How long, and how many, a bucket holds back instead of refusing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    pub(crate) max_wait: Duration,
    pub(crate) max_waiting: u32,
}

/// Numbers, of which some may be left to others to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    rate: Option<RateAndBurst>,
    burst: Option<u64>,
    queue: Option<u64>,
    limit: Option<u64>,
    window: Option<Duration>,
    peak: Option<Peak>,
    burst_for: Option<Duration>,
    credits: Option<u64>,
    lease: Option<Duration>,
    written: Vec<(&'static str, String)>, // the file's own text for those that came from the environment
}

/// The rate in bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peak {
    Times(u64),
    Rate(Rate),
}

/// The default of `exact_up_to`: a larger limit uses the strict counter in place of a log.
const EXACT_UP_TO: u64 = 10_000;

/// The parts of the strict counter that stands in for a log: it acts as a window longer by a thirty-second.
const STRICT_BUCKETS: u32 = 32;

/// The parts of a sliding counter that a caller may choose. Each takes 8 bytes per key.
const MOST_SENT_BUCKETS: u32 = 256;

/// The limit of a sliding log that a caller may choose. Each entry takes 8 bytes per key.
const MOST_SENT_LOG: u64 = 1000;

/// The counter that stands in for a log, as messages name it.
pub(super) fn strict_counter() -> String {
    format!("{} (strict, {STRICT_BUCKETS} buckets)", AlgorithmKind::SlidingCounter)
}

impl Algorithm {
    /// Reads the map of an algorithm. A setting that cannot be read is reported and has its default here.
    pub(crate) fn read(reader: &Reader<'_>, kind: AlgorithmKind, section: &Section<'_>) -> Self {
        let count = |key: &str, default: u64| {
            section.get(key).and_then(|node| reader.positive(node, &format!("`{key}`"))).unwrap_or(default)
        };
        match kind {
            AlgorithmKind::TokenBucket => Self::TokenBucket,
            AlgorithmKind::LeakyBucket => Self::LeakyBucket,
            AlgorithmKind::FixedWindow => {
                let align = section.word(reader, "align").unwrap_or(0);
                Self::FixedWindow { align: [Align::Epoch, Align::First][align], counts_denied: false }
            }
            AlgorithmKind::SlidingLog => Self::SlidingLog { exact_up_to: count("exact_up_to", EXACT_UP_TO) },
            AlgorithmKind::SlidingCounter => {
                let mode = section.word(reader, "mode").unwrap_or(0);
                let buckets = u32::try_from(count("buckets", 1)).unwrap_or(u32::MAX);
                Self::SlidingCounter { buckets, mode: [Mode::Interpolate, Mode::Strict, Mode::Lenient][mode] }
            }
            AlgorithmKind::BurstCredits => Self::BurstCredits,
            AlgorithmKind::Concurrency => Self::Concurrency,
        }
    }

    pub(crate) const fn kind(self) -> AlgorithmKind {
        match self {
            Self::TokenBucket => AlgorithmKind::TokenBucket,
            Self::LeakyBucket => AlgorithmKind::LeakyBucket,
            Self::FixedWindow { .. } => AlgorithmKind::FixedWindow,
            Self::SlidingLog { .. } => AlgorithmKind::SlidingLog,
            Self::SlidingCounter { .. } => AlgorithmKind::SlidingCounter,
            Self::BurstCredits => AlgorithmKind::BurstCredits,
            Self::Concurrency => AlgorithmKind::Concurrency,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        self.kind().name()
    }

    /// Whether an algorithm can delay requests: whether a limit may have a `max_wait`.
    pub(super) const fn can_delay(kind: AlgorithmKind) -> bool {
        match kind {
            AlgorithmKind::TokenBucket | AlgorithmKind::LeakyBucket => true,
            AlgorithmKind::FixedWindow
            | AlgorithmKind::SlidingLog
            | AlgorithmKind::SlidingCounter
            | AlgorithmKind::BurstCredits
            | AlgorithmKind::Concurrency => false,
        }
    }

    /// The algorithm with `count_denied` as given. None where it cannot count denied requests.
    pub(super) fn counting_denied(self, counts_denied: bool) -> Option<Self> {
        match self {
            Self::FixedWindow { align, .. } => Some(Self::FixedWindow { align, counts_denied }),
            Self::TokenBucket
            | Self::LeakyBucket
            | Self::SlidingLog { .. }
            | Self::SlidingCounter { .. }
            | Self::BurstCredits
            | Self::Concurrency => (!counts_denied).then_some(self),
        }
    }

    /// What is wrong with a rule that is sent with a call, and what would be right, where its states would take more than about
    /// 8 KiB per key. Any caller can send rules, for any number of keys.
    pub(super) fn too_large_to_send(self, numbers: &Numbers) -> Option<(String, String)> {
        match self {
            Self::SlidingCounter { buckets, .. } => (buckets > MOST_SENT_BUCKETS).then(|| {
                let help = format!("a rule sent with a call has at most {MOST_SENT_BUCKETS}");
                (format!("{buckets} buckets"), help)
            }),
            Self::SlidingLog { .. } => numbers.limit.filter(|limit| *limit > MOST_SENT_LOG).map(|limit| {
                let other = AlgorithmKind::SlidingCounter;
                let help = format!(
                    "a log sent with a call has at most {MOST_SENT_LOG} entries; use `{other}` above that"
                );
                (format!("a limit of {limit}"), help)
            }),
            Self::TokenBucket
            | Self::LeakyBucket
            | Self::FixedWindow { .. }
            | Self::BurstCredits
            | Self::Concurrency => None,
        }
    }

    /// Whether a rule that it has made is one of another algorithm: a counter in place of a log.
    pub(super) const fn is_replaced(self, rule: &Rule) -> bool {
        matches!((self, rule), (Self::SlidingLog { .. }, Rule::SlidingCounter(_)))
    }

    /// The names of its numbers, which may differ between tiers.
    fn numbers(self) -> impl Iterator<Item = &'static str> {
        let own = keys::settings(self.kind()).iter().map(|key| key.name);
        own.filter(|name| keys::NUMBERS.iter().any(|key| key.name == *name))
    }

    /// The numbers without which it makes no rule.
    const fn required(self) -> &'static [&'static str] {
        match self {
            Self::TokenBucket => &["rate"],
            Self::LeakyBucket => &["rate", "queue"],
            Self::FixedWindow { .. } | Self::SlidingLog { .. } | Self::SlidingCounter { .. } => {
                &["limit", "window"]
            }
            Self::BurstCredits => &["rate", "peak", "burst_for"],
            Self::Concurrency => &["limit"],
        }
    }

    /// The rule that these numbers make.
    pub(crate) fn rule(self, numbers: &Numbers, holding: Option<Holding>) -> Result<Rule, Wrong> {
        let need = |value: Option<u64>| value.ok_or(Wrong::Incomplete);
        let rate = || numbers.rate.map(|rate| rate.rate).ok_or(Wrong::Incomplete);
        let window = || numbers.window.ok_or(Wrong::Incomplete);
        // A rule holds at least 1. Where the limit is 0, `Numbers::is_blocked` decides, and no rule is asked.
        let limit = || need(numbers.limit).map(|limit| limit.max(1));
        Ok(match self {
            Self::TokenBucket => hold(TokenBucket::new(rate()?, numbers.burst()?)?, holding)?,
            Self::LeakyBucket => hold(LeakyBucket::new(rate()?, need(numbers.queue)?)?, holding)?,
            Self::FixedWindow { align, counts_denied } => {
                let rule = FixedWindow::new(limit()?, window()?, align)?;
                if counts_denied { rule.counting_denied().into() } else { rule.into() }
            }
            Self::SlidingLog { exact_up_to } if limit()? > exact_up_to => {
                SlidingCounter::new(limit()?, window()?, STRICT_BUCKETS, Mode::Strict)?.into()
            }
            Self::SlidingLog { .. } => SlidingLog::new(limit()?, window()?)?.into(),
            Self::SlidingCounter { buckets, mode } => {
                SlidingCounter::new(limit()?, window()?, buckets, mode)?.into()
            }
            Self::BurstCredits => {
                let peak = match numbers.peak.ok_or(Wrong::Incomplete)? {
                    Peak::Rate(peak) => peak,
                    Peak::Times(times) => {
                        let tokens = rate()?.tokens().checked_mul(times).ok_or(Wrong::Peak)?;
                        Rate::new(tokens, rate()?.period())?
                    }
                };
                match (numbers.burst_for, numbers.credits) {
                    (Some(burst_for), None) => BurstCredits::lasting(rate()?, peak, burst_for)?.into(),
                    (None, Some(credits)) => BurstCredits::new(rate()?, peak, credits)?.into(),
                    (None, None) | (Some(_), Some(_)) => return Err(Wrong::Incomplete),
                }
            }
            Self::Concurrency => Concurrency::new(limit()?, numbers.lease)?.into(),
        })
    }
}

fn hold<B>(bucket: B, holding: Option<Holding>) -> Result<Rule, Wrong>
where
    B: tollgate::Holds + Into<Rule>,
    MaxWait<B>: Into<Rule>,
{
    Ok(match holding {
        None => bucket.into(),
        Some(Holding { max_wait, max_waiting }) => MaxWait::new(bucket, max_wait, max_waiting)?.into(),
    })
}

/// Why numbers make no rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// A number is missing, could not be read, or contradicts another. That was reported when the numbers were read.
    Incomplete,
    /// Too large to be a rate.
    Peak,
    Rule(RuleError),
}

impl From<RuleError> for Wrong {
    fn from(error: RuleError) -> Self {
        Self::Rule(error)
    }
}

impl Wrong {
    /// The fault to report for the map at `span`, if it was not reported before.
    pub(crate) fn fault(&self, span: Range<usize>) -> Option<Fault> {
        match self {
            Self::Incomplete => None,
            Self::Peak => Some(Fault::new(span, "the peak is too fast").help("write a smaller factor")),
            Self::Rule(error) => Some(Fault::new(span, error.to_string())),
        }
    }
}

impl Numbers {
    /// Reads the numbers of a map and reports what is wrong with each: it cannot be read, it is 0, it contradicts another,
    /// or the algorithm does not have it.
    pub(crate) fn read(reader: &Reader<'_>, algorithm: Option<Algorithm>, section: &Section<'_>) -> Self {
        fn get<T>(section: &Section<'_>, key: &str, read: impl FnOnce(&Node) -> Option<T>) -> Option<T> {
            section.get(key).and_then(read)
        }
        let positive = |key: &str| get(section, key, |node| positive_count(reader, node, key));
        let time = |key: &str| get(section, key, |node| positive_time(reader, node, key));
        let peak = |text: &str| match text.trim().ends_with('x') {
            true => quantity::factor(text).map(Peak::Times),
            false => match quantity::rate(text)? {
                RateAndBurst { rate, burst: None } => Ok(Peak::Rate(rate)),
                RateAndBurst { burst: Some(_), .. } => {
                    Err("a peak has no burst: write a rate such as 50/s".into())
                }
            },
        };
        let mut numbers = Self {
            rate: get(section, "rate", |node| reader.rate(node)),
            burst: positive("burst"),
            queue: positive("queue"),
            limit: get(section, "limit", |node| reader.count(node)),
            window: time("window"),
            peak: get(section, "peak", |node| reader.quantity(node, peak)),
            burst_for: time("burst_for"),
            credits: positive("credits"),
            lease: time("lease"),
            written: Vec::new(),
        };
        if let (Some(_), Some(node)) = (section.get("burst_for"), section.get("credits")) {
            let fault = Fault::new(node.span.clone(), "both `burst_for` and `credits`");
            reader.fault(fault.help("write one of them"));
        }
        if let Some(algorithm) = algorithm {
            numbers.require_of(reader, algorithm, section);
        }
        numbers.refuse_dropped_burst(reader, algorithm, section);
        if reader.has_environment_values() {
            let written =
                |key: &Key| Some((key.name, section.get(key.name).and_then(|node| reader.written(node))?));
            numbers.written = keys::NUMBERS.iter().filter_map(written).collect();
        }
        numbers
    }

    /// The algorithm and the numbers of a rule that was made in code.
    pub(crate) fn of_rule(rule: &Rule) -> (Algorithm, Option<Holding>, Self) {
        let waits = |waits: Option<WaitParts>| {
            waits
                .map(|WaitParts { max_wait, max_waiting }| Holding { max_wait: max_wait.into(), max_waiting })
        };
        let windows = |limit: u64, window: Nanos| Self {
            limit: Some(limit),
            window: Some(window.into()),
            ..Self::default()
        };
        let rate = |bucket: &BucketParts| rate_of(bucket).map(|rate| RateAndBurst { rate, burst: None });
        match rule.parts() {
            RuleParts::TokenBucket { bucket, keeps_arrival_time: _, waits: parts } => {
                let numbers = Self { rate: rate(&bucket), burst: Some(bucket.capacity), ..Self::default() };
                (Algorithm::TokenBucket, waits(parts), numbers)
            }
            RuleParts::LeakyBucket { bucket, waits: parts } => {
                let numbers = Self { rate: rate(&bucket), queue: Some(bucket.capacity), ..Self::default() };
                (Algorithm::LeakyBucket, waits(parts), numbers)
            }
            RuleParts::FixedWindow { limit, window, align, counts_denied } => {
                (Algorithm::FixedWindow { align, counts_denied }, None, windows(limit, window))
            }
            // A log that is made in code stays a log, at any size.
            RuleParts::SlidingLog { limit, window } => {
                (Algorithm::SlidingLog { exact_up_to: u64::MAX }, None, windows(limit, window))
            }
            RuleParts::SlidingCounter { limit, window, buckets, mode } => {
                (Algorithm::SlidingCounter { buckets, mode }, None, windows(limit, window))
            }
            RuleParts::BurstCredits { base, peak } => {
                let numbers = Self {
                    rate: rate(&base),
                    peak: rate_of(&peak).map(Peak::Rate),
                    credits: Some(base.capacity),
                    ..Self::default()
                };
                (Algorithm::BurstCredits, None, numbers)
            }
            RuleParts::Concurrency { limit, lease } => {
                let numbers =
                    Self { limit: Some(limit), lease: lease.map(Duration::from), ..Self::default() };
                (Algorithm::Concurrency, None, numbers)
            }
        }
    }

    /// Whether nothing passes, because the limit is 0.
    pub(crate) fn is_blocked(&self) -> bool {
        self.limit == Some(0)
    }

    /// Reports each number that the algorithm needs and the map does not have.
    pub(crate) fn require_all(reader: &Reader<'_>, algorithm: Algorithm, section: &Section<'_>) {
        for name in algorithm.required() {
            if section.get(name).is_some() || *name == "burst_for" && section.get("credits").is_some() {
                continue;
            }
            let example = match *name {
                "rate" => "5/s",
                "window" => "60s",
                "peak" => "10x",
                "burst_for" => "30s",
                _ => "100",
            };
            let fault = Fault::new(section.span.clone(), format!("`{name}` is missing"));
            reader.fault(fault.help(format!("write `{name}: {example}`")));
        }
    }

    /// Refuses a burst in the rate, as in `5/s burst 3`, where it would have no effect.
    fn refuse_dropped_burst(&self, reader: &Reader<'_>, algorithm: Option<Algorithm>, section: &Section<'_>) {
        let (Some(node), Some(RateAndBurst { burst: Some(in_rate), .. })) = (section.get("rate"), self.rate)
        else {
            return;
        };
        let fault = |message: String| Fault::new(node.span.clone(), message);
        match algorithm {
            Some(algorithm @ Algorithm::LeakyBucket) => reader.fault(
                fault(format!("a {} has no burst", algorithm.name()))
                    .help("write the rate alone; `queue` bounds how many requests may wait"),
            ),
            Some(algorithm @ Algorithm::BurstCredits) => reader.fault(
                fault(format!("{} has no burst", algorithm.name()))
                    .help("write the rate alone; `burst_for` or `credits` bounds a burst"),
            ),
            None
            | Some(
                Algorithm::TokenBucket
                | Algorithm::FixedWindow { .. }
                | Algorithm::SlidingLog { .. }
                | Algorithm::SlidingCounter { .. }
                | Algorithm::Concurrency,
            ) => {
                if section.get("burst").is_some() {
                    reader
                        .fault(fault("two bursts, one in `rate` and one in `burst`".to_owned()).help(
                            format!("write the rate without ` burst {in_rate}`, or leave `burst` out"),
                        ));
                }
            }
        }
    }

    /// Whether some of them came from the environment.
    pub(crate) fn are_from_environment(&self) -> bool {
        !self.written.is_empty()
    }

    /// Each number with its name, as the file would have it.
    pub(crate) fn pairs(&self) -> Vec<(&'static str, String)> {
        let time = |span: Option<Duration>| span.map(quantity::duration_text);
        let count = |count: Option<u64>| count.map(|count| count.to_string());
        let peak = self.peak.map(|peak| match peak {
            Peak::Times(times) => format!("{times}x"),
            Peak::Rate(rate) => quantity::rate_text(rate),
        });
        let has_written = |name: &str| self.written.iter().any(|(written, _)| *written == name);
        // A burst that comes with the rate would reveal it.
        let reveals_rate = self.burst.is_none() && has_written("rate");
        let burst = if self.rate.is_some() && self.peak.is_none() && self.queue.is_none() && !reveals_rate {
            self.burst().ok()
        } else {
            None
        };
        let pairs = [
            ("rate", self.rate.map(|rate| quantity::rate_text(rate.rate))),
            ("burst", count(burst)),
            ("queue", count(self.queue)),
            ("limit", count(self.limit)),
            ("window", time(self.window)),
            ("peak", peak),
            ("burst_for", time(self.burst_for)),
            ("credits", count(self.credits)),
            ("lease", time(self.lease)),
        ];
        let shown = |name: &'static str, value: String| {
            let written = self.written.iter().find(|(written, _)| *written == name);
            (name, written.map_or(value, |(_, written)| written.clone()))
        };
        pairs.into_iter().filter_map(|(name, value)| Some(shown(name, value?))).collect()
    }

    /// Refuses numbers that this algorithm does not have.
    fn require_of(&self, reader: &Reader<'_>, algorithm: Algorithm, section: &Section<'_>) {
        for (name, node) in section.entries() {
            let is_own = keys::settings(algorithm.kind()).iter().any(|key| key.name == name);
            if is_own || keys::NUMBERS.iter().all(|key| key.name != name) {
                continue; // unknown names were reported when the section was read
            }
            // `limit: 0` blocks a tier or a tenant, whatever the algorithm.
            if name == "limit" && self.is_blocked() {
                continue;
            }
            let message = format!("a {} has no `{name}`", algorithm.name());
            let known = quoted(algorithm.numbers());
            reader.fault(Fault::new(node.span.clone(), message).help(format!("its numbers are {known}")));
        }
    }

    /// These numbers, and where they are silent, those of `base`.
    #[must_use]
    pub(crate) fn or(&self, base: &Self) -> Self {
        // Of credits and how long they last, one is said.
        let says_credits = self.burst_for.is_some() || self.credits.is_some();
        let (burst_for, credits) =
            if says_credits { (self.burst_for, self.credits) } else { (base.burst_for, base.credits) };
        // Of each number, the text goes with the value.
        let overrides = |name: &str| match name {
            "rate" => self.rate.is_some(),
            "burst" => self.written_burst().is_some(),
            "queue" => self.queue.is_some(),
            "limit" => self.limit.is_some(),
            "window" => self.window.is_some(),
            "peak" => self.peak.is_some(),
            "lease" => self.lease.is_some(),
            _ => says_credits,
        };
        let inherited = base.written.iter().filter(|(name, _)| !overrides(name));
        Self {
            written: self.written.iter().chain(inherited).cloned().collect(),
            rate: self.rate.or(base.rate),
            burst: self.written_burst().or(base.written_burst()),
            queue: self.queue.or(base.queue),
            limit: self.limit.or(base.limit),
            window: self.window.or(base.window),
            peak: self.peak.or(base.peak),
            burst_for,
            credits,
            lease: self.lease.or(base.lease),
        }
    }

    /// The burst that is written, beside the rate or in it, or else the tokens of one period.
    fn burst(&self) -> Result<u64, Wrong> {
        let rate = self.rate.ok_or(Wrong::Incomplete)?;
        Ok(self.written_burst().unwrap_or_else(|| rate.rate.tokens().max(1)))
    }

    fn written_burst(&self) -> Option<u64> {
        self.burst.or(self.rate.and_then(|rate| rate.burst))
    }
}

/// The rate of a bucket: in tokens per second, minute, hour or day where that is a whole number, else in its smallest numbers.
fn rate_of(bucket: &BucketParts) -> Option<Rate> {
    let BucketParts { interval, per_nano, .. } = *bucket;
    let per = |seconds: u64| {
        let pieces = u128::from(per_nano) * u128::from(seconds) * 1_000_000_000;
        let is_whole = pieces.checked_rem(u128::from(interval)) == Some(0);
        let tokens = u64::try_from(pieces / u128::from(interval.max(1))).ok().filter(|_| is_whole)?;
        Rate::new(tokens, Duration::from_secs(seconds)).ok()
    };
    let in_units = [1, 60, 3600, 86_400].into_iter().find_map(per);
    in_units.or_else(|| Rate::new(per_nano, Duration::from_nanos(interval)).ok())
}

/// A count above 0. Only a `limit` may be 0.
fn positive_count(reader: &Reader<'_>, node: &Node, key: &str) -> Option<u64> {
    let count = reader.count(node)?;
    if count == 0 {
        let fault = Fault::new(node.span.clone(), format!("`{key}` of 0"));
        reader.fault(fault.help(format!("it must be at least 1; {TO_BLOCK}")));
        return None;
    }
    Some(count)
}

/// A time above 0.
fn positive_time(reader: &Reader<'_>, node: &Node, key: &str) -> Option<Duration> {
    let time = reader.time(node)?;
    if time.is_zero() {
        let fault = Fault::new(node.span.clone(), format!("`{key}` of 0"));
        reader.fault(fault.help("write a time above 0, such as 60s"));
        return None;
    }
    Some(time)
}
