//! Counts over time, of however long a time: bins grow wider as it goes on.

/// As many bins at the most, and half as many at least once the time is long.
const MOST: usize = 1024;

/// Counts over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// The time of a bin, in nanoseconds.
    pub width: u64,
    /// What each holds.
    pub bins: Vec<u64>,
}

impl Series {
    /// Bins of so many nanoseconds, to begin with.
    pub fn new(width: u64) -> Self {
        Self { width: width.max(1), bins: Vec::new() }
    }

    /// Adds at a time since the start.
    pub fn add(&mut self, at: u64, count: u64) {
        let mut bin = at / self.width;
        while bin >= MOST as u64 {
            self.widen();
            bin = at / self.width;
        }
        let bin = bin as usize;
        if bin >= self.bins.len() {
            self.bins.resize(bin + 1, 0);
        }
        self.bins[bin] += count;
    }

    /// Makes bins so wide at least, by powers of two.
    pub fn widen_to(&mut self, width: u64) {
        while self.width < width {
            self.widen();
        }
    }

    fn widen(&mut self) {
        self.bins = self.bins.chunks(2).map(|pair| pair.iter().sum()).collect();
        self.width = self.width.saturating_mul(2);
    }

    /// The most in a bin.
    pub fn most(&self) -> u64 {
        self.bins.iter().copied().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_when_bins_grow() {
        let mut series = Series::new(1);
        for at in 0..100_000 {
            series.add(at, 1);
        }
        assert!(series.bins.len() <= MOST && series.bins.len() >= MOST / 2);
        assert_eq!(series.bins.iter().sum::<u64>(), 100_000);
        assert_eq!(series.most(), series.width);
        let mut other = Series::new(1);
        other.add(0, 5);
        other.widen_to(series.width);
        assert_eq!((other.width, other.bins), (series.width, vec![5]));
    }
}
