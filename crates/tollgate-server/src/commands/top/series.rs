//! What is computed from totals: rates of the last seconds, and the requests in each step of the last minutes.

use std::collections::VecDeque;

use super::frame::{Step, Totals};

/// The seconds over which rates are means. Over a single second, rates and the order of rows would jump.
pub(super) const WINDOW: f64 = 5.0;

/// The most samples. A frame comes each second, so this is more than a window has.
const MOST_SAMPLES: usize = 16;

/// The most steps: 15 minutes of 5 seconds.
pub(super) const MOST_STEPS: usize = 180;

/// Totals at the times of the last frames.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent(VecDeque<Sample>);

/// Totals that were the same in all frames between two times.
#[derive(Clone, Copy, Debug)]
struct Sample {
    from: f64,
    until: f64,
    totals: Totals,
}

/// Requests per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) allowed: f64,
    pub(super) delayed: f64,
    pub(super) denied: f64,
    pub(super) errors: f64,
    pub(super) newly_denied: f64,
    pub(super) tokens: f64,
}

impl Rates {
    pub(super) fn requests(&self) -> f64 {
        self.allowed + self.denied + self.errors
    }

    /// The share of requests that were denied. None without requests.
    pub(super) fn denied_share(&self) -> Option<f64> {
        (self.requests() > 0.0).then(|| self.denied / self.requests())
    }
}

impl Recent {
    /// Totals as they are known at the beginning.
    pub(super) fn starting(now: f64, totals: Totals) -> Self {
        Self(VecDeque::from([Sample { from: now, until: now, totals }]))
    }

    /// The last totals.
    pub(super) fn totals(&self) -> Totals {
        self.0.back().map(|sample| sample.totals).unwrap_or_default()
    }

    /// Adds totals. After a restart of the service they are smaller, and rates begin again.
    pub(super) fn add(&mut self, now: f64, totals: Totals) {
        match self.0.back_mut() {
            Some(last) if totals.are_below(&last.totals) || now < last.until => {
                *self = Self::starting(now, totals);
            }
            Some(last) if last.totals == totals => last.until = now,
            _ => self.0.push_back(Sample { from: now, until: now, totals }),
        }
        // The one before the window is where its rates begin.
        while self.0.len() > MOST_SAMPLES || self.0.get(1).is_some_and(|next| next.from <= now - WINDOW) {
            self.0.pop_front();
        }
    }

    /// The means of the window that ends now. None when there was only one frame.
    pub(super) fn rates(&self, now: f64) -> Option<Rates> {
        let begin = now - WINDOW;
        // Frames are not exactly a second apart.
        let is_before = |sample: &&Sample| sample.from <= begin + 0.5;
        let base = self.0.iter().rev().find(is_before).or_else(|| self.0.front())?;
        let span = now - begin.clamp(base.from, base.until);
        if span < 0.5 {
            return None;
        }
        let (last, first) = (self.totals(), base.totals);
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / span;
        Some(Rates {
            allowed: rate(last.allowed, first.allowed),
            delayed: rate(last.delayed, first.delayed),
            denied: rate(last.denied, first.denied),
            errors: rate(last.errors, first.errors),
            newly_denied: rate(last.newly_denied, first.newly_denied),
            tokens: rate(last.tokens, first.tokens),
        })
    }
}

/// The requests of the last steps, the oldest first. None is a step in which nothing was measured.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    pub(super) all: VecDeque<Option<Step>>,
    base: Totals, // at the end of the last step
}

impl Steps {
    /// The steps that the service has sent.
    pub(super) fn starting(steps: Vec<Option<Step>>, totals: Totals) -> Self {
        let skipped = steps.len().saturating_sub(MOST_STEPS);
        Self { all: steps.into_iter().skip(skipped).collect(), base: totals }
    }

    /// Ends a step. `missed` is the number of steps before it in which nothing was measured.
    pub(super) fn end(&mut self, missed: usize, now: Totals, remaining_p50: Option<f64>) {
        let before = std::mem::replace(&mut self.base, now);
        let step = Step {
            allowed: now.allowed.saturating_sub(before.allowed),
            delayed: now.delayed.saturating_sub(before.delayed),
            denied: now.denied.saturating_sub(before.denied),
            errors: now.errors.saturating_sub(before.errors),
            newly_denied: now.newly_denied.saturating_sub(before.newly_denied),
            remaining_p50,
        };
        let gap = std::iter::repeat_n(None, missed.min(MOST_STEPS));
        for step in gap.chain([Some(step)]) {
            if self.all.len() >= MOST_STEPS {
                self.all.pop_front();
            }
            self.all.push_back(step);
        }
    }

    /// Whether nothing is to be kept: no step is known, and nothing has happened.
    pub(super) fn is_unused(&self, now: Totals) -> bool {
        self.all.is_empty() && self.base == now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(allowed: u64) -> Totals {
        Totals { allowed, ..Totals::default() }
    }

    #[test]
    fn rates_are_means_of_five_seconds() {
        let mut recent = Recent::starting(100.0, totals(1000));
        assert_eq!(recent.rates(100.0), None, "one frame has no rate");
        for second in 1..=10_u32 {
            recent.add(100.0 + f64::from(second), totals(1000 + 20 * u64::from(second)));
            assert_eq!(recent.rates(100.0 + f64::from(second)).unwrap().allowed, 20.0, "{second}");
        }
        assert!(recent.0.len() <= 7, "{recent:?}");
    }

    #[test]
    fn frames_that_come_early_or_late_do_not_change_rates() {
        let mut recent = Recent::starting(0.0, totals(0));
        for (number, now) in [1.01, 1.99, 3.02, 3.98, 5.01, 5.99, 7.0, 8.03].into_iter().enumerate() {
            #[expect(clippy::cast_sign_loss, reason = "times after 0")]
            let total = (now * 100.0) as u64;
            recent.add(now, totals(total));
            let rate = recent.rates(now).unwrap().allowed;
            assert!((rate - 100.0).abs() < 2.0, "frame {number}: {rate}");
        }
    }

    #[test]
    fn requests_after_a_quiet_time_are_not_spread_over_it() {
        let mut recent = Recent::starting(0.0, totals(7));
        for second in 1..60 {
            recent.add(f64::from(second), totals(7));
        }
        recent.add(60.0, totals(57));
        assert_eq!(recent.rates(60.0).unwrap().allowed, 10.0);
        for second in 61..66 {
            recent.add(f64::from(second), totals(57));
        }
        assert_eq!(recent.rates(65.0).unwrap().allowed, 0.0);
    }

    #[test]
    fn a_restart_of_the_service_begins_again() {
        let mut recent = Recent::starting(0.0, totals(1_000_000));
        recent.add(1.0, totals(1_000_100));
        recent.add(2.0, totals(3));
        assert_eq!(recent.rates(2.0), None);
        recent.add(3.0, totals(13));
        assert_eq!(recent.rates(3.0).unwrap().allowed, 10.0);
        // A clock that is set back is no reason for a rate of thousands.
        recent.add(1.0, totals(14));
        assert_eq!(recent.rates(1.0), None);
    }

    #[test]
    fn steps_are_bounded_and_missed_ones_are_gaps() {
        let mut steps = Steps::starting(vec![None; 500], totals(0));
        assert_eq!(steps.all.len(), MOST_STEPS);
        steps.end(0, totals(5), Some(0.5));
        steps.end(2, totals(9), None);
        let last: Vec<_> = steps.all.iter().rev().take(4).map(|step| step.map(|step| step.allowed)).collect();
        assert_eq!(last, [Some(4), None, None, Some(5)]);
        steps.end(usize::MAX, totals(9), None);
        assert_eq!(steps.all.len(), MOST_STEPS);
    }
}
