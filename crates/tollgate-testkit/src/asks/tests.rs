//! The suite accepts the model and rejects models with planted mistakes.

mod faulty;
mod faulty_fallback;

use std::panic::{AssertUnwindSafe, catch_unwind};

use self::faulty::{Fault, Faulty};
use self::faulty_fallback::{FallbackFault, FaultyFallback};
use super::differences::Known;
use super::random_calls::random_case;
use super::{
    Action, Ask, BackEnd, Decide as _, Expected, Fallback, FixedDenial, Group, Key, Model, OnError, Policy,
    Rule, known_differences_are_still_there, promises, random_calls_equal_the_model,
};
use crate::answer::Retry;
use crate::conformance;
use crate::random::Random;

fn subject(fault: Option<Fault>) -> impl FnMut(&Policy) -> Expected<Faulty> {
    move |policy| Expected::new(policy, Faulty::new(fault))
}

const BACK_ENDS: [BackEnd; 3] = [BackEnd::Memory, BackEnd::Redis, BackEnd::Fallback];

#[test]
fn the_model_keeps_every_promise() {
    promises::are_kept(&mut |policy: &Policy| Expected::new(policy, Model::new(1)));
    promises::are_kept(&mut |policy: &Policy| Expected::new(policy, Model::new(1000)));
    promises::are_kept(&mut subject(None));
    promises::without_a_store(&mut |policy: &Policy| Expected::new(policy, Fallback::new()));
    promises::without_a_store(&mut without_a_store(None));
}

#[test]
fn random_calls_of_the_model_equal_the_model() {
    for back_end in BACK_ENDS {
        let mut fresh = |policy: &Policy| Expected::new(policy, back_end.model());
        random_calls_equal_the_model(back_end, &mut fresh, 1, 20);
    }
}

/// The promise that each mistake breaks.
const FAULTS: [(Fault, &str); 21] = [
    (Fault::ShadowsDecide, "a_shadow_denies_nothing"),
    (Fault::ShadowsNeedAPass, "a_shadow_is_charged_by_itself"),
    (Fault::AnyOfMustAllAllow, "any_of_charges_only_those_that_allow"),
    (Fault::AnyOfNeverDenies, "any_of_denies_with_the_shortest_wait"),
    (Fault::AllIsAnyOf, "all_limits_are_charged_or_none"),
    (Fault::ReportsTheLongestOfAnyOf, "any_of_denies_with_the_shortest_wait"),
    (Fault::ChargesUntilDenied, "all_limits_are_charged_or_none"),
    (Fault::RefundsOnDenial, "a_refund_is_not_done_on_a_denial"),
    (Fault::ForgetsRefunds, "a_refund_is_done_if_the_request_passes"),
    (Fault::PeeksCharge, "a_peek_writes_nothing"),
    (Fault::IgnoresMissing, "a_missing_attribute_charges_nobody"),
    (Fault::MissingChargesOthers, "a_missing_attribute_charges_nobody"),
    (Fault::IgnoresBlocked, "blocked_charges_nobody"),
    (Fault::ForgetsDenied, "count_denied_counts_on_every_denial"),
    (Fault::CountsOnlyOwnDenials, "count_denied_counts_on_every_denial"),
    (Fault::InFullNeedsAPass, "in_full_is_charged_on_every_denial"),
    (Fault::HoldsOnDenial, "a_hold_of_a_denied_request_keeps_no_slot"),
    (Fault::ShadowHoldsOnDenial, "a_shadow_hold_keeps_a_slot_only_if_the_request_passes"),
    (Fault::ForgetsReleases, "a_release_gives_the_slots_back"),
    (Fault::ClipsCosts, "cost_above_the_capacity_is_denied_for_ever"),
    (Fault::ForgetsTheSecondOfAKey, "the_same_key_twice_is_charged_twice"),
];

fn holds(check: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(check)).is_ok()
}

#[test]
fn every_planted_mistake_breaks_its_promise() {
    for (fault, name) in FAULTS {
        let promises = promises::all::<Expected<Faulty>>();
        let (_, promise) = promises.into_iter().find(|(known, _)| *known == name).expect(name);
        assert!(!holds(|| promise(&mut subject(Some(fault)))), "`{name}` accepts {fault:?}");
        assert!(!holds(|| promises::are_kept(&mut subject(Some(fault)))), "the promises accept {fault:?}");
    }
}

#[test]
fn random_calls_find_every_planted_mistake() {
    for (fault, _) in FAULTS {
        let run = || random_calls_equal_the_model(BackEnd::Memory, &mut subject(Some(fault)), 1, 1000);
        assert!(!holds(run), "random calls accept {fault:?}");
    }
}

fn without_a_store(fault: Option<FallbackFault>) -> impl FnMut(&Policy) -> Expected<FaultyFallback> {
    move |policy| Expected::new(policy, FaultyFallback::new(fault))
}

#[test]
fn every_planted_mistake_of_the_fallback_is_found() {
    for (fault, name) in [
        (FallbackFault::AllowsWhatIsDenied, "on_error_deny_denies_until_the_store_is_tried_again"),
        (FallbackFault::DeniesWhatIsAllowed, "on_error_allow_allows_any_cost"),
        (FallbackFault::ChargesBesideADenial, "on_error_deny_charges_no_share"),
        (FallbackFault::SharesStartFull, "a_share_starts_empty_and_refills"),
        (FallbackFault::SharesAreWhole, "a_share_starts_empty_and_refills"),
        (FallbackFault::ForgetsFixedDenials, "a_fixed_denial_needs_no_store"),
    ] {
        let promises = promises::all_without_a_store::<Expected<FaultyFallback>>();
        let (_, promise) = promises.into_iter().find(|(known, _)| *known == name).expect(name);
        assert!(!holds(|| promise(&mut without_a_store(Some(fault)))), "`{name}` accepts {fault:?}");
        let run =
            || random_calls_equal_the_model(BackEnd::Fallback, &mut without_a_store(Some(fault)), 1, 100);
        assert!(!holds(run), "random calls accept {fault:?}");
    }
}

/// A failure shows no call that it does not need.
#[test]
fn a_difference_is_shown_by_the_shortest_sequence_of_calls() {
    let run =
        || random_calls_equal_the_model(BackEnd::Memory, &mut subject(Some(Fault::PeeksCharge)), 1, 100);
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("a difference");
    let message = panic.downcast_ref::<String>().expect("a text");
    let calls = message.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
    assert!(calls.count() <= 2, "{message}");
    assert_eq!(message.matches("- { name:").count(), 1, "{message}");
}

/// The model has none of the differences, so all rows are reported.
#[test]
fn a_known_difference_that_has_ended_is_reported() {
    let mut fresh = |policy: &Policy| Expected::new(policy, Model::new(BackEnd::Redis.tick()));
    let check = || known_differences_are_still_there(BackEnd::Redis, &mut fresh, 2);
    let panic = catch_unwind(AssertUnwindSafe(check)).expect_err("rows that are not needed");
    let message = panic.downcast_ref::<String>().expect("a text");
    assert!(Known::of(BackEnd::Redis).names().all(|name| message.contains(name)), "{message}");
}

/// A suite that left out most calls would prove little.
#[test]
fn most_random_calls_are_compared() {
    for back_end in BACK_ENDS {
        let (mut random, mut left_out, mut all) = (Random::new(1), 0, 0);
        for _ in 0..100 {
            let case = random_case(&mut random, back_end, 100);
            let known =
                case.calls.iter().filter(|(_, call)| Known::of(back_end).has(call, &case.policy.asks(call)));
            left_out += known.count();
            all += case.calls.len();
        }
        assert!(left_out * 8 < all, "{left_out} of {all} calls are left out on {back_end:?}");
    }
}

fn ask(limit: &str, cost: u64, action: Action, group: Group) -> Ask {
    let rule = Rule::Rate(conformance::Rule::FixedWindow { limit: 10, window: 1000 });
    let key = Key { limit: limit.to_owned(), value: String::new() };
    Ask { key, rule, action, cost, group, denial: None, permit: 0, on_error: OnError::Allow, is_listed: true }
}

#[test]
fn the_model_answers_by_hand() {
    let mut model = Model::new(1);
    let asks = [
        ask("a", 4, Action::Charge, Group::All),
        ask("a", 4, Action::Charge, Group::All),
        ask("b", 11, Action::ChargeInFull, Group::AnyOf),
        ask("c", 1, Action::Charge, Group::AnyOf),
        ask("d", 2, Action::Refund, Group::All),
        ask("a", 3, Action::Charge, Group::Independent),
    ];
    let decided = model.decide(100, &asks);
    let answers: Vec<_> = decided
        .answers
        .iter()
        .map(|given| (given.answer.allowed, given.answer.remaining, given.is_charged))
        .collect();
    assert_eq!(
        answers,
        [
            (true, 6, true),
            (true, 2, true),
            (false, 0, true),
            (true, 9, true),
            (true, 10, false),
            (false, 2, false)
        ]
    );
    assert_eq!((decided.outcome, decided.reported), (Ok(0), Some(1)));
    let blocked = Ask { denial: Some(FixedDenial::Blocked), ..ask("c", 1, Action::Charge, Group::All) };
    let decided = model.decide(100, &[blocked, ask("b", 1, Action::Charge, Group::All)]);
    assert_eq!((decided.outcome, decided.reported), (Err(Retry::Never), Some(0)));
    assert_eq!(decided.answers[1].answer.retry, Some(Retry::After(900)));
}
