//! Requests at random moments (Poisson), at random nodes.

use super::settings::ClusterSettings;
use crate::random::Random;

/// All requests in the order of their times, and the same for each scheme.
///
/// What many nodes get independently of each other is as if one stream were dealt to them by chance. So one stream is enough.
#[derive(Debug)]
pub(super) struct Arrivals {
    random: Random,
    at: f64,
    mean: f64,
    nodes: u64,
    first_share: Option<u64>, // the share of the first node, in parts of `WHOLE`
}

const WHOLE: u64 = 1 << 53;

impl Arrivals {
    pub(super) fn new(settings: &ClusterSettings) -> Self {
        Self {
            random: Random::new(settings.seed ^ 0x6172_7269),
            at: 0.0,
            mean: 1e9 / settings.demand(),
            nodes: u64::from(settings.nodes),
            first_share: settings.skew.map(|share| (share * WHOLE as f64) as u64),
        }
    }

    /// The time and the node of the next request.
    pub(super) fn next(&mut self) -> (u64, usize) {
        self.at += self.random.gap(self.mean);
        let node = match self.first_share {
            Some(share) if self.random.below(WHOLE) < share || self.nodes == 1 => 0,
            Some(_) => 1 + self.random.below(self.nodes - 1),
            None => self.random.below(self.nodes),
        };
        (self.at as u64, node as usize)
    }
}
