//! A small seeded generator, so that a failing random test can be run again from its seed.

/// SplitMix64 (Steele, Lea, Flood 2014): one word of state, every seed is good.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The same seed always gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `bound`, which is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        let wide = u128::from(self.bits()) * u128::from(bound);
        u64::try_from(wide >> 64).expect("the high half of a product of two words")
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "between {low} and {high} there is nothing");
        match (high - low).checked_add(1) {
            Some(span) => low + self.below(span),
            None => self.bits(),
        }
    }

    /// True in `part` of `whole` cases.
    pub fn chance(&mut self, part: u64, whole: u64) -> bool {
        self.below(whole) < part
    }

    /// One of the choices, of which there is at least one.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let place = usize::try_from(self.below(choices.len() as u64)).expect("below a length");
        &choices[place]
    }

    /// A number from `low` to `high` whose order of magnitude is even: as many between 10 and 20 as
    /// between 1000 and 2000.
    pub fn log_uniform(&mut self, low: u64, high: u64) -> u64 {
        let bits = |number: u64| u64::from(u64::BITS - number.leading_zeros());
        let length = self.between(bits(low), bits(high));
        // All numbers of that many bits, as far as they lie in the range.
        let smallest = if length == 0 { 0 } else { 1 << (length - 1) };
        let largest = if length == 0 { 0 } else { smallest + (smallest - 1) };
        self.between(smallest.max(low), largest.min(high))
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let (mut one, mut other) = (Random::new(7), Random::new(7));
        assert!((0..100).all(|_| one.bits() == other.bits()));
        assert_ne!(Random::new(8).bits(), Random::new(7).bits());
    }

    #[test]
    fn every_number_of_a_range_comes_and_no_other() {
        let mut random = Random::new(1);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[usize::try_from(random.between(3, 7)).unwrap() - 3] += 1;
        }
        assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
        assert_eq!(random.between(9, 9), 9);
        random.between(0, u64::MAX);
    }

    #[test]
    fn log_uniform_numbers_stay_in_range_and_reach_every_magnitude() {
        let mut random = Random::new(2);
        let mut lengths = std::collections::BTreeSet::new();
        for _ in 0..10_000 {
            let number = random.log_uniform(3, 1_000_000);
            assert!((3..=1_000_000).contains(&number));
            lengths.insert(number.ilog2());
        }
        assert_eq!(lengths, (1..=19).collect());
        assert_eq!(random.log_uniform(0, 0), 0);
    }
}
