//! A place that is given back when it is dropped.

use std::fmt;
use std::sync::Arc;

use tollgate_core::PermitId;

use crate::limiter::Sole;
use crate::table::{HeldSlot, Table};

/// A place in a concurrency limit, given back when it is dropped.
///
/// Under a rule with a lease the place is free after that time, whether or not the permit is still held; dropping
/// it then frees nobody else's place.
///
/// ```
/// use tollgate::{Concurrency, Limiter};
///
/// let limiter = Limiter::new(Concurrency::new(2, None)?);
/// let first = limiter.acquire().unwrap();
/// let second = limiter.acquire().unwrap();
/// assert!(limiter.acquire().is_err());
/// drop(first);
/// assert_eq!(limiter.remaining(), 1);
/// # drop(second);
/// # Ok::<(), tollgate::RuleError>(())
/// ```
#[must_use = "the place is given back at once unless the permit is kept"]
pub struct Permit(Option<Held>); // none once it has been given back

enum Held {
    Key { table: Arc<Table>, slot: HeldSlot },
    Sole { sole: Arc<Sole>, id: PermitId },
}

impl Permit {
    pub(crate) const fn keyed(table: Arc<Table>, slot: HeldSlot) -> Self {
        Self(Some(Held::Key { table, slot }))
    }

    pub(crate) const fn sole(sole: Arc<Sole>, id: PermitId) -> Self {
        Self(Some(Held::Sole { sole, id }))
    }

    /// Gives the place back now, and tells whether it was still held: not where its lease has ended, the key was
    /// reset, or the rule was none that gives places.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, Concurrency, KeyedLimiter};
    ///
    /// let rule = Concurrency::new(2, Some(Duration::from_secs(30)))?;
    /// let limiter = KeyedLimiter::builder(rule).clock(Clock::manual()).build();
    /// let permits = [limiter.ask("alice").acquire().unwrap(), limiter.ask("alice").acquire().unwrap()];
    /// let released = permits.map(|permit| {
    ///     limiter.clock().advance(Duration::from_secs(20));
    ///     permit.release()
    /// });
    /// assert_eq!(released, [true, false]); // after 20 seconds, and after 40
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn release(mut self) -> bool {
        self.give_back()
    }

    fn give_back(&mut self) -> bool {
        match self.0.take() {
            Some(Held::Key { table, slot }) => table.release(&slot, table.clock.now()),
            Some(Held::Sole { sole, id }) => sole.release(id),
            None => false,
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit(..)")
    }
}
