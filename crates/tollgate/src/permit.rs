//! A place that is given back when it is dropped.

use std::fmt;
use std::sync::Arc;

use tollgate_core::PermitId;

use crate::limiter::Sole;
use crate::table::{Ask, Table};

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
pub struct Permit(Held);

enum Held {
    Key { table: Arc<Table>, ask: Ask },
    Sole { sole: Arc<Sole>, id: PermitId },
}

impl Permit {
    pub(crate) const fn keyed(table: Arc<Table>, ask: Ask) -> Self {
        Self(Held::Key { table, ask })
    }

    pub(crate) const fn sole(sole: Arc<Sole>, id: PermitId) -> Self {
        Self(Held::Sole { sole, id })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        match &self.0 {
            Held::Key { table, ask } => table.release(ask, table.clock.now()),
            Held::Sole { sole, id } => sole.release(*id),
        };
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit(..)")
    }
}
