//! The scripts, put together when this crate is built.

use crate::link::Script;

/// All that are used.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) buckets: Script,
    pub(crate) plan: Script,
    pub(crate) grant: Script,
    pub(crate) give_back: Script,
    pub(crate) release: Script,
    pub(crate) forget: Script,
    pub(crate) nodes: Script,
}

const BUCKETS: &str = include_str!("scripts/buckets.lua");
const PLAN: &str = concat!(
    include_str!("scripts/clock.lua"),
    include_str!("scripts/rules.lua"),
    include_str!("scripts/bucket.lua"),
    include_str!("scripts/burst_credits.lua"),
    include_str!("scripts/fixed_window.lua"),
    include_str!("scripts/sliding_log.lua"),
    include_str!("scripts/sliding_counter.lua"),
    include_str!("scripts/concurrency.lua"),
    include_str!("scripts/plan.lua"),
);
const GRANT: &str = concat!(
    include_str!("scripts/clock.lua"),
    include_str!("scripts/rules.lua"),
    include_str!("scripts/bucket.lua"),
    include_str!("scripts/burst_credits.lua"),
    include_str!("scripts/fixed_window.lua"),
    include_str!("scripts/sliding_counter.lua"),
    include_str!("scripts/grant.lua"),
);
const GIVE_BACK: &str = concat!(
    include_str!("scripts/clock.lua"),
    include_str!("scripts/rules.lua"),
    include_str!("scripts/bucket.lua"),
    include_str!("scripts/burst_credits.lua"),
    include_str!("scripts/fixed_window.lua"),
    include_str!("scripts/sliding_counter.lua"),
    include_str!("scripts/give_back.lua"),
);
const RELEASE: &str = concat!(include_str!("scripts/clock.lua"), include_str!("scripts/release.lua"));
const NODES: &str = concat!(include_str!("scripts/clock.lua"), include_str!("scripts/nodes.lua"));

impl Scripts {
    pub(crate) fn new() -> Self {
        Self {
            buckets: Script::new(BUCKETS),
            plan: Script::new(PLAN),
            grant: Script::new(GRANT),
            give_back: Script::new(GIVE_BACK),
            release: Script::new(RELEASE),
            forget: Script::new("return redis.call('DEL', KEYS[1])"),
            nodes: Script::new(NODES),
        }
    }

    pub(crate) fn all(&self) -> [&Script; 7] {
        let Self { buckets, plan, grant, give_back, release, forget, nodes } = self;
        [buckets, plan, grant, give_back, release, forget, nodes]
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::AlgorithmKind;

    use super::*;
    use crate::numbers::script_letter;

    #[test]
    fn every_algorithm_has_a_script() {
        for kind in AlgorithmKind::ALL {
            let maker = format!("makers.{} = function()", char::from(script_letter(*kind)));
            assert_eq!(PLAN.matches(&maker).count(), 1, "{kind}: `{maker}`");
        }
    }
}
