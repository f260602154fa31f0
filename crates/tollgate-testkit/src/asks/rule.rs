//! The rules that asks are decided by.

use crate::answer::Answer;
use crate::conformance;
use crate::oracle::{Concurrency, LeakyQueue, Oracle, TokenBucket};

/// A rule of a policy file, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A rule that counts in time.
    Rate(conformance::Rule),
    /// A bucket that delays requests.
    Delaying {
        /// A token bucket or a leaky queue.
        bucket: conformance::Rule,
        /// The longest delay.
        max_wait: u64,
        /// The most requests that are delayed at once.
        max_waiting: u64,
    },
    /// A concurrency limit.
    Slots {
        /// How many slots it has.
        limit: u64,
        /// How long a slot is held at the longest.
        lease: Option<u64>,
    },
}

/// The state of one key.
#[derive(Debug)]
pub enum State {
    /// Of a rule that counts in time.
    Rate(Box<dyn Oracle>),
    /// Of a concurrency limit.
    Slots(Concurrency),
}

/// A number of a rule in the policy file.
type Field = (&'static str, String);

impl Rule {
    /// The state of an unused key.
    ///
    /// # Panics
    ///
    /// When a rule that is not a bucket delays.
    pub fn state(self) -> State {
        match self {
            Self::Rate(rule) => State::Rate(rule.oracle()),
            Self::Slots { limit, lease } => State::Slots(Concurrency::new(limit, lease)),
            Self::Delaying { bucket, max_wait, max_waiting } => State::Rate(match bucket {
                conformance::Rule::TokenBucket { tokens, period, burst } => {
                    Box::new(TokenBucket::new(tokens, period, burst).with_max_wait(max_wait, max_waiting))
                }
                conformance::Rule::LeakyQueue { tokens, period, capacity } => {
                    Box::new(LeakyQueue::new(tokens, period, capacity).with_max_wait(max_wait, max_waiting))
                }
                other => panic!("only buckets delay, not {other:?}"),
            }),
        }
    }

    /// The state of an unused key. A token bucket was empty at `since`.
    pub(super) fn empty_state(self, since: u64) -> State {
        let mut state = self.state();
        if matches!(self, Self::Rate(conformance::Rule::TokenBucket { .. })) {
            state.charge(since, self.capacity(), false, None);
        }
        state
    }

    /// The rule of one of `nodes` processes that share this rule while the store gives no answer. `None` where a process
    /// has no share.
    pub(super) fn share(self, nodes: u64) -> Option<Self> {
        use conformance::Rule as R;
        let part = |whole: u64| (whole / nodes).max(1);
        let bucket = |tokens: u64, period: u64, burst: u64| R::TokenBucket {
            tokens,
            period: period * nodes,
            burst: part(burst),
        };
        Some(Self::Rate(match self {
            Self::Slots { limit, lease } => {
                return (limit >= nodes).then_some(Self::Slots { limit: limit / nodes, lease });
            }
            Self::Rate(rule) | Self::Delaying { bucket: rule, .. } => match rule {
                R::TokenBucket { tokens, period, burst } => bucket(tokens, period, burst),
                R::LeakyQueue { tokens, period, capacity } => {
                    R::LeakyQueue { tokens, period: period * nodes, capacity: part(capacity) }
                }
                R::BurstCredits { tokens, period, .. } => bucket(tokens, period, rule.capacity()),
                R::FixedWindow { limit, window }
                | R::AnchoredWindow { limit, window }
                | R::CountingWindow { limit, window }
                | R::SlidingLog { limit, window }
                | R::SlidingCounter { limit, window, .. } => bucket(limit, window, limit),
            },
        }))
    }

    /// Multiplies the rate and the burst of a token bucket. Other rules stay as they are.
    #[cfg(test)]
    pub(super) fn times(mut self, times: u64) -> Self {
        if let Self::Rate(conformance::Rule::TokenBucket { tokens, burst, .. }) = &mut self {
            (*tokens, *burst) = (*tokens * times, *burst * times);
        }
        self
    }

    /// The largest cost that it can ever allow.
    pub fn capacity(self) -> u64 {
        match self {
            Self::Rate(rule) | Self::Delaying { bucket: rule, .. } => rule.capacity(),
            Self::Slots { limit, .. } => limit,
        }
    }

    /// Whether it is a concurrency limit.
    pub fn is_concurrency(self) -> bool {
        matches!(self, Self::Slots { .. })
    }

    /// Whether it counts denied requests.
    pub fn counts_denied(self) -> bool {
        matches!(self, Self::Rate(conformance::Rule::CountingWindow { .. }))
    }

    /// Whether the policy file has `limit` among its numbers.
    pub fn has_limit(self) -> bool {
        self.fields().1.iter().any(|(name, _)| *name == "limit")
    }

    /// The rule that stands for a limit of 0: a window of one request, which is never asked.
    #[must_use]
    pub fn blocked(mut self) -> Self {
        use conformance::Rule::{AnchoredWindow, CountingWindow, FixedWindow, SlidingCounter, SlidingLog};
        if let Self::Rate(
            FixedWindow { limit, .. }
            | AnchoredWindow { limit, .. }
            | CountingWindow { limit, .. }
            | SlidingLog { limit, .. }
            | SlidingCounter { limit, .. },
        )
        | Self::Slots { limit, .. } = &mut self
        {
            *limit = 1;
        }
        self
    }

    /// The algorithm as the policy file names it, and its numbers as a JSON object.
    pub fn algorithm(self) -> (&'static str, String) {
        let (name, fields) = self.fields();
        (name, json(&fields))
    }

    /// The lines of a limit of a policy file. With `limit: 0`, the limit is blocked.
    pub(super) fn yaml(self, is_blocked: bool) -> String {
        let (name, mut fields) = self.fields();
        if let (true, Some(limit)) = (is_blocked, fields.iter_mut().find(|(name, _)| *name == "limit")) {
            limit.1 = "0".to_owned();
        }
        let mut text = format!("{name}: {}", json(&fields));
        if let Self::Delaying { max_wait, max_waiting, .. } = self {
            text += &format!(", max_wait: {}, max_waiting: {max_waiting}", span(max_wait));
        }
        if self.counts_denied() {
            text += ", count_denied: true";
        }
        text
    }

    fn fields(self) -> (&'static str, Vec<Field>) {
        use conformance::Rule as R;
        let rate = |tokens: u64, period: u64| format!("\"{tokens}/{}\"", span(period));
        let window = |limit: u64, window: u64| vec![("limit", limit.to_string()), ("window", quoted(window))];
        match self {
            Self::Slots { limit, lease } => {
                let lease = lease.map(|lease| ("lease", quoted(lease)));
                ("concurrency", [("limit", limit.to_string())].into_iter().chain(lease).collect())
            }
            Self::Rate(rule) | Self::Delaying { bucket: rule, .. } => match rule {
                R::TokenBucket { tokens, period, burst } => {
                    ("token_bucket", vec![("rate", rate(tokens, period)), ("burst", burst.to_string())])
                }
                R::LeakyQueue { tokens, period, capacity } => {
                    ("leaky_bucket", vec![("rate", rate(tokens, period)), ("queue", capacity.to_string())])
                }
                R::FixedWindow { limit, window: length } | R::CountingWindow { limit, window: length } => {
                    ("fixed_window", window(limit, length))
                }
                R::AnchoredWindow { limit, window: length } => {
                    let mut fields = window(limit, length);
                    fields.push(("align", "\"first\"".to_owned()));
                    ("fixed_window", fields)
                }
                R::SlidingLog { limit, window: length } => ("sliding_log", window(limit, length)),
                R::SlidingCounter { limit, window: length, buckets, mode } => {
                    let mut fields = window(limit, length);
                    fields.push(("buckets", buckets.to_string()));
                    fields.push(("mode", format!("{:?}", format!("{mode:?}").to_lowercase())));
                    ("sliding_counter", fields)
                }
                // The policy file gives the peak a burst of the tokens of one period.
                R::BurstCredits { tokens, period, ceiling, peak_tokens, peak_period, peak_burst } => {
                    assert_eq!(peak_burst, peak_tokens, "the burst that the policy file gives the peak");
                    let (rate, peak) = (rate(tokens, period), rate(peak_tokens, peak_period));
                    ("burst_credits", vec![("rate", rate), ("peak", peak), ("credits", ceiling.to_string())])
                }
            },
        }
    }
}

fn span(nanos: u64) -> String {
    format!("{nanos}ns")
}

fn quoted(nanos: u64) -> String {
    format!("{:?}", span(nanos))
}

fn json(fields: &[Field]) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
    format!("{{{}}}", fields.join(", "))
}

impl State {
    /// Tests a cost without charging it.
    pub fn would(&self, now: u64, cost: u64, in_full: bool) -> Answer {
        match self {
            Self::Rate(oracle) if in_full => oracle.would_in_full(now, cost),
            Self::Rate(oracle) => oracle.would(now, cost),
            Self::Slots(slots) => slots.would(now, cost),
        }
    }

    /// Charges a cost that is due, also beyond the limit if it is charged in full or counted on a denial.
    /// Slots are taken under `permit`, if there is one.
    pub fn charge(&mut self, now: u64, cost: u64, in_full: bool, permit: Option<u64>) {
        match (self, permit) {
            (Self::Rate(oracle), _) if in_full || oracle.counts_denied() => oracle.charge_in_full(now, cost),
            (Self::Rate(oracle), _) => oracle.spend(now, cost),
            (Self::Slots(slots), Some(permit)) => {
                slots.acquire(now, permit, cost);
            }
            (Self::Slots(_), None) => {}
        }
    }

    /// Gives back what was charged at this moment.
    pub fn refund(&mut self, now: u64, cost: u64) {
        if let Self::Rate(oracle) = self {
            oracle.refund(now, cost, now);
        }
    }
}
