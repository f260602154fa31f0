//! What is behind the gateway, as the policy in force has it.

use std::sync::Arc;

use tollgate::Clock;
use tollgate_policy::{Gateway as Settings, Policy};

use super::slots::Slots;
use super::upstream::Upstreams;

/// One request has the same of all this, also if another policy comes into force meanwhile.
#[derive(Debug)]
pub(super) struct Behind {
    pub(super) settings: Settings,
    has_costs: bool,
    pub(super) upstreams: Arc<Upstreams>,
    pub(super) slots: Option<Arc<Slots>>,
    pub(super) clock: Clock,
}

impl Behind {
    /// As a policy has it: none where it has no gateway.
    pub(super) fn new(policy: &Policy, clock: Clock) -> Option<Self> {
        let settings = policy.gateway.clone()?;
        let has_costs = !policy.costs.is_empty();
        let slots = Slots::new(&settings, has_costs, clock.clone());
        let upstreams = Arc::new(Upstreams::new(&settings.upstreams));
        Some(Self { settings, has_costs, upstreams, slots, clock })
    }

    /// As another policy has it. Places that are in both keep their connections and what is known of them. Slots stay those they are
    /// if only their number changes; otherwise there are new ones, beside those of requests that have one or wait for one by then.
    pub(super) fn following(&self, policy: &Policy) -> Option<Self> {
        let settings = policy.gateway.clone()?;
        let has_costs = !policy.costs.is_empty();
        let upstreams = Arc::new(self.upstreams.following(&settings.upstreams));
        let is_shared_alike = self.settings.fair_queue == settings.fair_queue && self.has_costs == has_costs;
        let slots = match &self.slots {
            Some(slots) if is_shared_alike && slots.follow(self.settings.slots, settings.slots) => {
                Some(Arc::clone(slots))
            }
            _ => Slots::new(&settings, has_costs, self.clock.clone()),
        };
        Some(Self { settings, has_costs, upstreams, slots, clock: self.clock.clone() })
    }
}
