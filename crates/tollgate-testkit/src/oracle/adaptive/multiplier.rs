//! The shared multiplier on every tenant's rate, and the slower clock it is applied through.

use super::fraction;
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Pow, ToPrimitive, Zero};

/// How loaded one control interval was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Over the high mark: the multiplier is cut to 0.8 of itself.
    High,
    /// Between the marks: it stays.
    Between,
    /// Under the low mark: it grows by 0.05.
    Low,
}

/// One multiplier on every rate, between its floor and 1.
///
/// It is applied as slower time: a bucket of shed class k is asked at V, the integral of m^k (not
/// below the floor) over real time, so that a change of m hands out nothing. The whole history is
/// kept and integrated anew on every question.
#[derive(Clone, Debug)]
pub struct RateMultiplier {
    floor: BigRational,
    /// Since when, and the multiplier from then on; in order of time, the first since 0.
    history: Vec<(u64, BigRational)>,
}

impl RateMultiplier {
    /// Starts at 1 and never falls below `floor`, which lies between 0 (excluded) and 1.
    pub fn new(floor: BigRational) -> Self {
        assert!(floor > BigRational::zero() && floor <= BigRational::one(), "a floor in (0, 1]");
        Self { floor, history: vec![(0, BigRational::one())] }
    }

    /// Ends one control interval at `now`. A time before the last change counts as that of the
    /// change.
    pub fn step(&mut self, now: u64, load: Load) {
        let (since, multiplier) = self.history.last().expect("begins with 1 at 0");
        let next = match load {
            Load::High => multiplier * fraction(4, 5),
            Load::Between => return,
            Load::Low => multiplier + fraction(1, 20),
        };
        let next = next.clamp(self.floor.clone(), BigRational::one());
        if next != *multiplier {
            self.history.push((now.max(*since), next));
        }
    }

    /// The multiplier in force.
    pub fn value(&self) -> &BigRational {
        &self.history.last().expect("begins with 1 at 0").1
    }

    /// What a shed class takes of it: m^shed, not below the floor; class 0 is exempt.
    pub fn factor(&self, shed: u32) -> BigRational {
        self.factor_of(self.value(), shed)
    }

    /// The virtual clock of a shed class: the integral of its factor from 0 to `now`.
    pub fn virtual_time(&self, shed: u32, now: u64) -> BigRational {
        let ends = self.history.iter().skip(1).map(|(since, _)| *since).chain([u64::MAX]);
        let mut passed = BigRational::zero();
        for ((since, multiplier), end) in self.history.iter().zip(ends) {
            let span = end.min(now).saturating_sub(*since);
            passed += self.factor_of(multiplier, shed) * BigInt::from(span);
        }
        passed
    }

    /// The real wait that a wait on the virtual clock takes while the multiplier stays as it is,
    /// rounded up.
    pub fn real_wait(&self, shed: u32, virtual_wait: u64) -> u64 {
        let wait = BigRational::from_integer(BigInt::from(virtual_wait)) / self.factor(shed);
        wait.ceil().to_integer().to_u64().unwrap_or(u64::MAX)
    }

    fn factor_of(&self, multiplier: &BigRational, shed: u32) -> BigRational {
        if shed == 0 {
            return BigRational::one();
        }
        multiplier.clone().pow(shed).max(self.floor.clone())
    }
}
