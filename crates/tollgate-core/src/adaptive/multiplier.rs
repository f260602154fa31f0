//! One multiplier on all rates while the upstream is overloaded.

use crate::{Nanos, RuleError};

/// What one control interval saw.
///
/// ```
/// use tollgate_core::adaptive::{Load, RateMultiplier};
///
/// let mut multiplier = RateMultiplier::new(100)?;
/// let paces = [Load::Low, Load::High, Load::Between, Load::Low].map(|load| {
///     multiplier.observe(load);
///     multiplier.pace().as_f64()
/// });
/// assert_eq!(paces, [1.0, 0.8, 0.8, 0.85]);
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Above the high mark.
    High,
    /// Between the marks: hold.
    Between,
    /// Below the low mark.
    Low,
}

/// How fast time goes for a class of tenants: at most 1, never 0.
///
/// ```
/// use tollgate_core::adaptive::{Load, Pace, RateMultiplier};
///
/// let mut multiplier = RateMultiplier::new(100)?;
/// multiplier.observe(Load::High);
/// assert!(multiplier.pace() < Pace::FULL);
/// assert_eq!(multiplier.pace().of(50), 40);
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pace(u64); // 10^-9

impl Pace {
    /// Time as it is.
    ///
    /// ```
    /// assert_eq!(tollgate_core::adaptive::Pace::FULL.as_f64(), 1.0);
    /// ```
    pub const FULL: Self = Self(Self::UNIT);

    pub(super) const UNIT: u64 = 1_000_000_000;

    /// The pace in billionths, which is how it is kept.
    ///
    /// ```
    /// assert_eq!(tollgate_core::adaptive::Pace::FULL.billionths(), 1_000_000_000);
    /// ```
    pub const fn billionths(self) -> u64 {
        self.0
    }

    /// For metrics and plots.
    ///
    /// ```
    /// use tollgate_core::adaptive::{Load, RateMultiplier};
    ///
    /// let mut multiplier = RateMultiplier::new(100)?;
    /// multiplier.observe(Load::High);
    /// assert_eq!(multiplier.pace().as_f64(), 0.8);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / Self::UNIT as f64
    }

    /// A window's limit at this pace, rounded down; at least 1, so that nobody is shut out for good,
    /// even of a limit of 0, which no rule has.
    ///
    /// ```
    /// use tollgate_core::adaptive::{Load, RateMultiplier};
    ///
    /// let mut multiplier = RateMultiplier::new(100)?;
    /// multiplier.observe(Load::High);
    /// assert_eq!([0, 1, 9, 10].map(|limit| multiplier.pace().of(limit)), [1, 1, 7, 8]);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn of(self, limit: u64) -> u64 {
        let scaled = u128::from(limit) * u128::from(self.0) / u128::from(Self::UNIT);
        (scaled as u64).max(1) // at most `limit`, so it fits
    }

    /// How far a clock at this pace goes in `span`, rounded down.
    ///
    /// ```
    /// use tollgate_core::Nanos;
    /// use tollgate_core::adaptive::{Load, RateMultiplier};
    ///
    /// let mut multiplier = RateMultiplier::new(100)?;
    /// multiplier.observe(Load::High);
    /// assert_eq!([0, 1, 10].map(|span| multiplier.pace().of_span(Nanos::new(span)).get()), [0, 0, 8]);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn of_span(self, span: Nanos) -> Nanos {
        let scaled = u128::from(span.get()) * u128::from(self.0) / u128::from(Self::UNIT);
        Nanos::new(scaled as u64) // at most `span`, so it fits
    }

    const fn times(self, other: Self) -> Self {
        Self(self.0 * other.0 / Self::UNIT) // both at most 10^9
    }
}

/// The shared multiplier: down fast (x 0.8), up slowly (+ 0.05), never below its floor.
///
/// ```
/// use tollgate_core::adaptive::{Load, Pace, RateMultiplier};
///
/// let mut multiplier = RateMultiplier::new(100)?;
/// (0..10).for_each(|_| multiplier.observe(Load::High));
/// assert_eq!(multiplier.pace().as_f64(), 0.107_374_182);
/// (0..18).for_each(|_| multiplier.observe(Load::Low));
/// assert_eq!(multiplier.pace(), Pace::FULL);
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateMultiplier {
    now: Pace,
    floor: Pace,
}

impl RateMultiplier {
    const DOWN: Pace = Pace(800_000_000);
    const UP: u64 = 50_000_000;

    /// Starts at 1. `floor` is in thousandths; 100 is usual.
    ///
    /// Refuses a floor of 0, at which nothing could pass, and one above 1000.
    ///
    /// ```
    /// use tollgate_core::adaptive::{Load, Pace, RateMultiplier};
    ///
    /// assert_eq!([0, 1001].map(|floor| RateMultiplier::new(floor).is_err()), [true, true]);
    /// let mut multiplier = RateMultiplier::new(1000)?; // never slows anybody
    /// multiplier.observe(Load::High);
    /// assert_eq!(multiplier.pace(), Pace::FULL);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn new(floor: u32) -> Result<Self, RuleError> {
        if !(1..=1000).contains(&floor) {
            return Err(RuleError::Factor { what: "floor", found: floor, least: 1, most: 1000 });
        }
        Ok(Self { now: Pace::FULL, floor: Pace(u64::from(floor) * (Pace::UNIT / 1000)) })
    }

    /// Moves by one control interval. At the floor a high load changes nothing, at 1 a low one.
    ///
    /// ```
    /// use tollgate_core::adaptive::{Load, RateMultiplier};
    ///
    /// let mut multiplier = RateMultiplier::new(700)?;
    /// let paces = [Load::High; 3].map(|load| {
    ///     multiplier.observe(load);
    ///     multiplier.pace().as_f64()
    /// });
    /// assert_eq!(paces, [0.8, 0.7, 0.7]);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn observe(&mut self, load: Load) {
        self.now = match load {
            Load::High => self.now.times(Self::DOWN).max(self.floor),
            Load::Between => self.now,
            Load::Low => Pace(self.now.0 + Self::UP).min(Pace::FULL),
        };
    }

    /// The pace of tenants of ordinary standing: [`Pace::FULL`] until the first high load.
    ///
    /// ```
    /// use tollgate_core::adaptive::{Pace, RateMultiplier};
    ///
    /// assert_eq!(RateMultiplier::new(100)?.pace(), Pace::FULL);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub const fn pace(&self) -> Pace {
        self.now
    }

    /// The pace of a shed class: the multiplier to the power of `shed`, not below the floor. 0 is
    /// exempt, 1 ordinary, 2 is pressed first.
    ///
    /// ```
    /// use tollgate_core::adaptive::{Load, RateMultiplier};
    ///
    /// let mut multiplier = RateMultiplier::new(100)?;
    /// multiplier.observe(Load::High);
    /// let paces = [0, 1, 2, 99].map(|shed| multiplier.pace_of(shed).as_f64());
    /// assert_eq!(paces, [1.0, 0.8, 0.64, 0.1]);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn pace_of(&self, shed: u8) -> Pace {
        (0..shed).fold(Pace::FULL, |pace, _| pace.times(self.now)).max(self.floor)
    }
}
