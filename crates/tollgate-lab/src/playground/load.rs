//! The timeline that all rules share, and what reaches the backend on it.

use super::run::Run;
use super::traffic::{SECOND, Traffic};

/// The most bins of a timeline.
const MOST_BINS: u64 = 240;

/// The steps on which the end of a timeline may lie, so that it is a short number.
const STEPS_OF_DURATION: u64 = 50;

/// How long the timeline is, and how it is cut into bins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timeline {
    pub(super) duration: u64, // nanoseconds
    pub(super) bin: u64,      // nanoseconds
}

impl Timeline {
    /// The timeline of a run, which is at least `least` nanoseconds long.
    pub(super) fn of(traffic: &Traffic, runs: &[Run], least: u64) -> Self {
        let last = traffic.events.last().map_or(0, |event| event.at);
        let last = runs.iter().map(Run::last_release).fold(last, u64::max);
        let longest = runs.iter().map(Run::window_for_most).max().unwrap_or(SECOND);
        let Self { duration, .. } = Self::ending_after(if last == 0 { longest } else { last });
        Self::lasting(duration.max(least))
    }

    fn lasting(duration: u64) -> Self {
        Self { duration, bin: tidy(duration.div_ceil(MOST_BINS)) }
    }

    fn ending_after(last: u64) -> Self {
        let end = last.saturating_add((last / 32).max(1));
        let step = tidy(end.div_ceil(STEPS_OF_DURATION));
        let duration = end.div_ceil(step).saturating_mul(step);
        Self::lasting(duration)
    }

    /// A count of zero for each bin.
    pub(super) fn bins(self) -> Vec<u64> {
        vec![0; usize::try_from(self.duration.div_ceil(self.bin)).unwrap_or(1)]
    }

    /// The bin of a moment.
    pub(super) fn place(self, at: u64) -> usize {
        (at.min(self.duration - 1) / self.bin) as usize // at most `MOST_BINS`
    }
}

/// The smallest of 1, 2, 2.5 and 5 times a power of ten that is not below.
fn tidy(nanos: u64) -> u64 {
    let mut power = 1_u64;
    loop {
        for (times, over) in [(1, 1), (2, 1), (5, 2), (5, 1)] {
            let step = power.saturating_mul(times) / over;
            if step >= nanos && power.is_multiple_of(over) {
                return step;
            }
        }
        power = power.saturating_mul(10);
    }
}

/// The most cost in any span of a length, with the first and the last time in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Most {
    pub(super) cost: u64,
    pub(super) span: Option<(u64, u64)>,
}

/// Finds the busiest span of `window`, which is half open: of two releases that are exactly as far apart, one is out. Releases are in
/// the order of their times.
pub(super) fn most(releases: &[(u64, u64)], window: u64) -> Most {
    let (mut most, mut cost, mut first) = (Most::default(), 0, 0);
    for (at, more) in releases {
        cost += more;
        while at - releases[first].0 >= window {
            cost -= releases[first].1;
            first += 1;
        }
        if cost > most.cost {
            most = Most { cost, span: Some((releases[first].0, *at)) };
        }
    }
    most
}

/// The cost of the releases of the last `window` at any moment, as the points of a line with steps. A release is out of the window when
/// it is exactly as old as the window, as in [`most`].
pub(super) fn received(releases: &[(u64, u64)], window: u64, duration: u64) -> Vec<(u64, u64)> {
    let (mut points, mut sum, mut next, mut oldest) = (vec![(0, 0)], 0, 0, 0);
    loop {
        let comes = releases.get(next).map(|(at, _)| *at);
        let leaves = releases[..next].get(oldest).map(|(at, _)| at.saturating_add(window));
        let Some(at) = comes.into_iter().chain(leaves).min().filter(|at| *at <= duration) else { break };
        points.push((at, sum));
        while next < releases.len() && releases[next].0 == at {
            sum += releases[next].1;
            next += 1;
        }
        while oldest < next && releases[oldest].0.saturating_add(window) == at {
            sum -= releases[oldest].1;
            oldest += 1;
        }
        points.push((at, sum));
    }
    points.push((duration, sum));
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timelines_end_at_short_numbers_and_have_about_two_hundred_bins() {
        for last in [1, 7, 1_600_000_000, 61_234_567_891, 86_400 * SECOND, LAST] {
            let Timeline { duration, bin } = Timeline::ending_after(last);
            assert!(duration > last && duration - last <= last / 8 + 2, "{last}: {duration}");
            let bins = duration.div_ceil(bin);
            assert!((100..=MOST_BINS).contains(&bins) || duration < 100, "{last}: {bins}");
            assert_eq!(Timeline { duration, bin }.place(u64::MAX) as u64, bins - 1);
        }
        assert_eq!(Timeline::ending_after(1_600_000_000).duration, 1_650_000_000);
    }

    const LAST: u64 = 150 * 365 * 86_400 * SECOND;

    #[test]
    fn the_busiest_span_is_half_open() {
        let releases = [(0, 3), (4, 2), (10, 4), (13, 1)];
        assert_eq!(most(&releases, 10), Most { cost: 7, span: Some((4, 13)) });
        assert_eq!(most(&releases, 11), Most { cost: 9, span: Some((0, 10)) });
        assert_eq!(most(&releases, 4), Most { cost: 5, span: Some((10, 13)) });
        assert_eq!(most(&[], 4), Most::default());
    }

    #[test]
    fn what_is_received_leaves_after_the_window() {
        let releases = [(1, 3), (1, 1), (4, 2), (11, 4)];
        let points = received(&releases, 10, 20);
        assert_eq!(
            points,
            [(0, 0), (1, 0), (1, 4), (4, 4), (4, 6), (11, 6), (11, 6), (14, 6), (14, 4), (20, 4)]
        );
        for window in 1..15 {
            let highest = received(&releases, window, 20).into_iter().map(|(_, sum)| sum).max();
            assert_eq!(highest, Some(most(&releases, window).cost), "window {window}");
        }
        assert_eq!(received(&[], 10, 20), [(0, 0), (20, 0)]);
    }
}
