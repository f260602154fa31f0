//! Which limits are decided by grants that nodes draw from the store.

use std::fmt;

use tollgate::lease::{NoLease, Terms};
use tollgate::{Nanos, Rule};

use super::{Limit, Policy, StoreSettings};
use crate::quantity::duration_text;

/// Why the store decides each request of a limit, although its mode is `lease`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhyExact {
    /// The limit has `mode: exact`.
    Mode,
    /// The rule cannot be leased.
    Rule(NoLease),
    /// The store cannot compute grants of the rule.
    Store(String),
}

impl fmt::Display for WhyExact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |span: &Nanos| duration_text((*span).into());
        match self {
            Self::Mode => f.write_str("mode: exact"),
            Self::Rule(NoLease::Algorithm(kind)) => write!(f, "{kind} cannot be leased"),
            Self::Rule(NoLease::MaxWait) => f.write_str("max_wait cannot be leased"),
            Self::Rule(NoLease::Burst { found, least }) => write!(f, "burst {found} is below {least}"),
            Self::Rule(NoLease::Window { found, least }) => {
                write!(f, "window {} is shorter than {}, 5 x sync", time(found), time(least))
            }
            Self::Rule(NoLease::CountsDenied) => f.write_str("count_denied cannot be leased"),
            Self::Store(why) => f.write_str(why),
        }
    }
}

impl Policy {
    /// The terms on which nodes draw grants of a limit for one of its rules. None if no limit is leased, because the store is not
    /// Redis with `mode: lease`.
    ///
    /// # Errors
    ///
    /// Why the store decides each request. `require_lease` returns an error for rules whose grants the store cannot compute.
    pub fn lease_terms(
        &self,
        limit: &Limit,
        rule: &Rule,
        require_lease: impl Fn(&Rule) -> Result<(), String>,
    ) -> Option<Result<Terms, WhyExact>> {
        let StoreSettings::Redis(redis) = &self.store else { return None };
        let sync = Nanos::saturating_from(redis.lease?);
        if limit.is_exact {
            return Some(Err(WhyExact::Mode));
        }
        let terms = rule.lease_terms(sync).map_err(WhyExact::Rule);
        Some(terms.and_then(|terms| require_lease(rule).map_err(WhyExact::Store).map(|()| terms)))
    }

    /// Whether nodes draw grants from the store.
    pub fn has_leases(&self) -> bool {
        matches!(&self.store, StoreSettings::Redis(redis) if redis.lease.is_some())
    }

    /// Whether a limit is decided by grants under all of its rules.
    pub(super) fn is_leased(
        &self,
        limit: &Limit,
        require_lease: impl Fn(&Rule) -> Result<(), String>,
    ) -> bool {
        let own = self.tenants.rules_of(&limit.name);
        let mut rules = std::iter::once(&limit.rule).chain(limit.tiers.values()).chain(own);
        rules.all(|rule| matches!(self.lease_terms(limit, rule, &require_lease), Some(Ok(_))))
    }
}
