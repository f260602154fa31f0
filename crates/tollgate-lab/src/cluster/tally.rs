//! What is measured while a scheme runs.

use super::Scheme;
use super::outcome::{Call, Calls, SchemeOutcome, Shares, Waits, WorstSpan};
use super::settings::ClusterSettings;
use crate::series::Series;

/// The width of a bin over time.
const BIN: u64 = 100_000_000;

/// What is measured while a scheme runs.
#[derive(Debug)]
pub(super) struct ClusterTally {
    asked: Vec<u64>,    // by node
    admitted: Vec<u64>, // by node
    denied: u64,
    unanswered: u64,
    calls: Calls,
    waits: WaitCounts,
    excess: Excess,
    pub(super) returned: u64,
    pub(super) lapsed: u64,
    admitted_over_time: Series,
    calls_over_time: Series,
}

impl ClusterTally {
    pub(super) fn new(settings: &ClusterSettings) -> Self {
        let nodes = settings.nodes as usize;
        Self {
            asked: vec![0; nodes],
            admitted: vec![0; nodes],
            denied: 0,
            unanswered: 0,
            calls: Calls::default(),
            waits: WaitCounts::default(),
            excess: Excess::new(settings.rate, settings.burst),
            returned: 0,
            lapsed: 0,
            admitted_over_time: Series::new(BIN),
            calls_over_time: Series::new(BIN),
        }
    }

    /// A request comes to a node.
    pub(super) fn arrive(&mut self, node: usize) {
        self.asked[node] += 1;
    }

    /// The store charges something for the first time. The limit counts from then on.
    pub(super) fn begin(&mut self, now: u64) {
        self.excess.began.get_or_insert(now);
    }

    pub(super) fn admit(&mut self, node: usize, arrived: u64, now: u64) {
        self.admitted[node] += 1;
        self.admitted_over_time.add(now, 1);
        self.excess.admit(now);
        self.waits.add(now - arrived);
    }

    pub(super) fn deny(&mut self, arrived: u64, now: u64) {
        self.denied += 1;
        self.waits.add(now - arrived);
    }

    pub(super) fn give_up(&mut self, arrived: u64, at: u64) {
        self.unanswered += 1;
        self.waits.add(at - arrived);
    }

    pub(super) fn call(&mut self, call: Call, now: u64) {
        self.calls.add(call);
        self.calls_over_time.add(now, 1);
    }

    pub(super) fn outcome(self, scheme: Scheme, settings: &ClusterSettings) -> SchemeOutcome {
        let requests: u64 = self.asked.iter().sum();
        let admitted: u64 = self.admitted.iter().sum();
        let come = u128::from(settings.rate) * u128::from(settings.duration) / 1_000_000_000;
        let allowed = (u128::from(settings.burst) + come).min(u128::from(requests)).max(1);
        SchemeOutcome {
            scheme,
            requests,
            admitted,
            denied: self.denied,
            unanswered: self.unanswered,
            undecided: requests - admitted - self.denied - self.unanswered,
            limit_use: admitted as f64 / allowed as f64,
            over: self.excess.total(),
            worst_span: self.excess.worst_span(),
            calls: self.calls,
            waits: self.waits.summary(),
            shares: shares(&self.admitted, &self.asked),
            returned: self.returned,
            lapsed: self.lapsed,
            admitted_over_time: self.admitted_over_time,
            calls_over_time: self.calls_over_time,
        }
    }
}

/// The admitted part of the requests at each node. Nodes without requests are left out.
fn shares(admitted: &[u64], asked: &[u64]) -> Shares {
    let asked_some = admitted.iter().zip(asked).filter(|(_, asked)| **asked > 0);
    let parts: Vec<f64> = asked_some.map(|(admitted, asked)| *admitted as f64 / *asked as f64).collect();
    let sum: f64 = parts.iter().sum();
    let squares: f64 = parts.iter().map(|part| part * part).sum();
    if squares == 0.0 {
        return Shares::default();
    }
    Shares {
        jain: sum * sum / (parts.len() as f64 * squares),
        lowest: parts.iter().copied().fold(1.0, f64::min),
        highest: parts.iter().copied().fold(0.0, f64::max),
    }
}

/// By how much the admitted units exceed what the limit allows: since the first charge, and in any span of time.
///
/// `level` is what was admitted so far, minus what has come so far. It falls with time and rises with each unit. The excess of a span is
/// the rise of the level in it, minus the burst. So the lowest level before each unit is all that has to be remembered.
#[derive(Debug)]
struct Excess {
    rate: i128,
    burst: i128,
    began: Option<u64>,
    admitted: i128,
    highest: i128, // level, in units of `1 / WHOLE`
    lowest: Option<(i128, u64)>,
    worst: (i128, WorstSpan), // the rise of the level
}

const WHOLE: i128 = 1_000_000_000;

impl Excess {
    fn new(rate: u64, burst: u64) -> Self {
        Self {
            rate: i128::from(rate),
            burst: i128::from(burst),
            began: None,
            admitted: 0,
            highest: 0,
            lowest: None,
            worst: (0, WorstSpan::default()),
        }
    }

    fn admit(&mut self, now: u64) {
        let began = *self.began.get_or_insert(now);
        let level = self.admitted * WHOLE - self.rate * i128::from(now.saturating_sub(began));
        let (lowest, from) = match self.lowest {
            Some(lowest) if lowest.0 <= level => lowest,
            _ => (level, now),
        };
        self.lowest = Some((lowest, from));
        self.admitted += 1;
        let level = level + WHOLE;
        self.highest = self.highest.max(level);
        if level - lowest > self.worst.0 {
            self.worst = (level - lowest, WorstSpan { over: 0, from, to: now });
        }
    }

    /// Whole units, one begun counted as one.
    fn above_burst(&self, level: i128) -> u64 {
        let above = (level - self.burst * WHOLE).max(0);
        u64::try_from((above + WHOLE - 1) / WHOLE).unwrap_or(u64::MAX)
    }

    fn total(&self) -> u64 {
        self.above_burst(self.highest)
    }

    fn worst_span(&self) -> WorstSpan {
        let (rise, span) = self.worst;
        WorstSpan { over: self.above_burst(rise), ..span }
    }
}

/// How often requests waited for how long, in classes whose bounds are at most 1/64 apart.
#[derive(Debug, Default)]
struct WaitCounts {
    counts: Vec<u64>,
    waited: u64,
    longest: u64,
}

/// Classes per power of two: 64.
const CLASS_BITS: u32 = 6;

impl WaitCounts {
    fn add(&mut self, wait: u64) {
        if wait == 0 {
            return;
        }
        let class = class(wait);
        if class >= self.counts.len() {
            self.counts.resize(class + 1, 0);
        }
        self.counts[class] += 1;
        self.waited += 1;
        self.longest = self.longest.max(wait);
    }

    fn summary(&self) -> Waits {
        Waits {
            requests: self.waited,
            median: self.quantile(50),
            p99: self.quantile(99),
            longest: self.longest,
        }
    }

    /// The wait that this many of 100 requests did not exceed.
    fn quantile(&self, of_hundred: u64) -> u64 {
        let rank = (u128::from(self.waited) * u128::from(of_hundred)).div_ceil(100);
        let mut sum = 0;
        for (class, count) in self.counts.iter().enumerate() {
            sum += u128::from(*count);
            if *count > 0 && sum >= rank {
                return longest_of(class).min(self.longest);
            }
        }
        0
    }
}

/// The class of a wait: the position of its highest bit, and the six bits below it.
const fn class(wait: u64) -> usize {
    let Some(shift) = (u64::BITS - wait.leading_zeros()).checked_sub(CLASS_BITS + 1) else {
        return wait as usize;
    };
    (((shift as u64) << CLASS_BITS) + (wait >> shift)) as usize
}

/// The longest wait of a class.
const fn longest_of(class: usize) -> u64 {
    let class = class as u64;
    let shift = (class >> CLASS_BITS).saturating_sub(1);
    let first = class - (shift << CLASS_BITS);
    (first << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wait_is_in_a_class_that_ends_at_most_a_sixty_fourth_later() {
        for wait in (1..100_000).chain((17..63).map(|bit| (1 << bit) + 12_345)) {
            let longest = longest_of(class(wait));
            assert!(wait <= longest && longest - wait <= wait / 64, "{wait}: {longest}");
            assert_eq!(class(longest) + 1, class(longest + 1), "{wait}");
        }
    }

    #[test]
    fn quantiles_are_of_those_that_waited() {
        let mut waits = WaitCounts::default();
        (0..1000).for_each(|_| waits.add(0));
        (1..=100).for_each(|wait| waits.add(wait));
        assert_eq!(waits.summary(), Waits { requests: 100, median: 50, p99: 99, longest: 100 });
        assert_eq!(WaitCounts::default().summary(), Waits::default());
    }

    /// Beside a slow model that looks at every span.
    #[test]
    fn the_worst_span_is_that_of_all_spans() {
        let mut random = crate::random::Random::new(3);
        for _ in 0..200 {
            let (rate, burst) = (1 + random.below(2_000_000_000), 1 + random.below(5));
            let mut excess = Excess::new(rate, burst);
            let (mut now, mut times) = (0, Vec::new());
            for _ in 0..60 {
                now += random.below(3);
                times.push(now);
                excess.admit(now);
            }
            let over = |from: usize, to: usize| {
                let units = (to - from + 1) as i128 * WHOLE;
                let come = i128::from(rate) * i128::from(times[to] - times[from]);
                let over = units - come - i128::from(burst) * WHOLE;
                u64::try_from((over.max(0) + WHOLE - 1) / WHOLE).unwrap()
            };
            let spans = (0..60).flat_map(|from| (from..60).map(move |to| (from, to)));
            assert_eq!(excess.worst_span().over, spans.map(|(from, to)| over(from, to)).max().unwrap());
            assert_eq!(excess.total(), (0..60).map(|to| over(0, to)).max().unwrap());
        }
    }

    #[test]
    fn jains_index_is_one_for_equal_parts() {
        let equal = shares(&[10, 20, 0], &[100, 200, 0]);
        assert_eq!((equal.jain, equal.lowest, equal.highest), (1.0, 0.1, 0.1));
        assert_eq!(shares(&[10, 0], &[10, 10]), Shares { jain: 0.5, lowest: 0.0, highest: 1.0 });
        assert_eq!(shares(&[0], &[10]), Shares::default());
    }
}
