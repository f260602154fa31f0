//! The rules of deciding as named promises. Their numbers are written by hand, without the model.

mod caller;
mod charges;
mod denials;
mod fallback;
mod groups;
mod slots;

pub use charges::*;
pub use denials::*;
pub use fallback::*;
pub use groups::*;
pub use slots::*;

use super::{Fresh, Subject};

/// One promise. It panics if the subject breaks it.
pub type Promise<S> = for<'f> fn(Fresh<'f, S>);

macro_rules! named {
    ($subject:ident: $($promise:ident),* $(,)?) => {
        vec![$((stringify!($promise), $promise::<$subject> as Promise<$subject>)),*]
    };
}

/// Every promise, by name.
pub fn all<S: Subject>() -> Vec<(&'static str, Promise<S>)> {
    named![S:
        a_peek_writes_nothing,
        all_limits_are_charged_or_none,
        the_same_key_twice_is_charged_twice,
        a_refund_is_done_if_the_request_passes,
        a_refund_is_not_done_on_a_denial,
        in_full_is_charged_on_every_denial,
        in_full_is_charged_to_a_bucket_on_every_denial,
        in_full_of_cost_0_is_denied_above_the_limit,
        a_sent_rule_is_one_charge,
        a_sent_limit_replaces_the_limits_of_the_policy,
        the_strictest_sent_limit_of_a_call_holds,
        a_peek_is_not_reported_as_a_charge,
        a_missing_attribute_charges_nobody,
        blocked_charges_nobody,
        count_denied_counts_on_every_denial,
        cost_above_the_capacity_is_denied_for_ever,
        the_longest_wait_is_reported,
        the_longest_delay_is_the_delay,
        a_shadow_denies_nothing,
        a_shadow_is_charged_by_itself,
        a_shadow_of_a_denied_request_gives_nothing_back,
        any_of_charges_only_those_that_allow,
        any_of_denies_with_the_shortest_wait,
        any_of_is_not_charged_if_another_denies,
        no_limit_is_charged_if_every_any_of_denies,
        a_shadow_quota_counts_as_one_that_allows,
        shadow_mode_denies_nothing,
        a_replaced_descriptor_is_not_charged,
        a_hold_takes_as_many_slots_as_it_costs,
        a_release_gives_the_slots_back,
        a_lease_gives_the_slots_back,
        a_check_takes_no_slot,
        a_hold_of_a_denied_request_keeps_no_slot,
        a_shadow_hold_keeps_a_slot_only_if_the_request_passes,
    ]
}

/// Checks every promise on unused subjects.
///
/// # Panics
///
/// At the first promise that is broken. Its name is the last that was printed.
pub fn are_kept<S: Subject>(fresh: Fresh<'_, S>) {
    each_is_kept(all(), fresh);
}

/// Every promise about a store that gives no answer, by name.
pub fn all_without_a_store<S: Subject>() -> Vec<(&'static str, Promise<S>)> {
    named![S:
        on_error_deny_denies_until_the_store_is_tried_again,
        on_error_deny_charges_no_share,
        on_error_allow_allows_any_cost,
        a_share_starts_empty_and_refills,
        a_limit_without_a_share_is_denied,
        a_fixed_denial_needs_no_store,
    ]
}

/// Checks every promise about a store that gives no answer, on unused subjects.
///
/// # Panics
///
/// At the first promise that is broken. Its name is the last that was printed.
pub fn without_a_store<S: Subject>(fresh: Fresh<'_, S>) {
    each_is_kept(all_without_a_store(), fresh);
}

fn each_is_kept<S: Subject>(promises: Vec<(&'static str, Promise<S>)>, fresh: Fresh<'_, S>) {
    for (name, promise) in promises {
        println!("promise: {name}");
        promise(fresh);
    }
}
