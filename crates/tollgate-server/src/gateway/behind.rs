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
        Some(Self { settings, upstreams, slots, clock })
    }

    /// As another policy has it. Places that are in both keep their connections and what is known of them.
    pub(super) fn following(&self, policy: &Policy) -> Option<Self> {
        let settings = policy.gateway.clone()?;
        let has_costs = !policy.costs.is_empty();
        let upstreams = Arc::new(self.upstreams.following(&settings.upstreams));
        let slots = match &self.slots {
            Some(slots) => slots.following(&self.settings, &settings, has_costs),
            None => Slots::new(&settings, has_costs, self.clock.clone()),
        };
        Some(Self { settings, upstreams, slots, clock: self.clock.clone() })
    }
}
