//! The shortest sequence of calls that still shows a difference.

use super::policy::Scope;
use super::random_calls::Case;

/// Leaves out calls, and then limits, while the case still `differs`.
pub(super) fn smallest(case: &Case, differs: &mut dyn FnMut(&Case) -> bool) -> Case {
    let mut smallest = case.clone();
    // Half of the calls at once, then a quarter, down to single calls.
    let mut length = smallest.calls.len() / 2;
    while length > 0 {
        let mut place = 0;
        while place < smallest.calls.len() {
            let mut shorter = smallest.clone();
            shorter.calls.drain(place..(place + length).min(smallest.calls.len()));
            if differs(&shorter) {
                smallest = shorter;
            } else {
                place += length;
            }
        }
        length /= 2;
    }
    for place in (0..smallest.policy.limits.len()).rev() {
        let mut smaller = smallest.clone();
        let removed = smaller.policy.limits.remove(place);
        for limit in &mut smaller.policy.limits {
            if let Scope::Descriptor { replaces, .. } = &mut limit.scope {
                replaces.retain(|name| *name != removed.name);
            }
        }
        if !smaller.policy.limits.is_empty() && differs(&smaller) {
            smallest = smaller;
        }
    }
    smallest
}
