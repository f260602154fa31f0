use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;

use super::*;
use crate::policy::Policy;

/// How many sets of numbers were read: tenants that share them count once.
pub(in crate::policy) fn numbers_read(tenants: &Tenants) -> usize {
    let own = tenants.values().flat_map(|tenant| tenant.limits.0.iter());
    own.map(Arc::as_ptr).collect::<HashSet<_>>().len()
}

fn read(source: &str) -> Policy {
    Policy::read(Path::new("policy.yaml"), source).unwrap_or_else(|faults| panic!("{faults}"))
}

const LIMITS: &str = "
tiers: { free: {}, pro: {} }
default_tier: free
limits:
  - { name: a, key: [tenant], token_bucket: { rate: 5/s, burst: 10 }, tiers: { pro: { burst: 20 } } }
  - { name: b, key: [tenant], token_bucket: { rate: 5/s, burst: 10 } }
tenants:
";

#[test]
fn equal_numbers_of_tenants_are_read_once() {
    let mut source = LIMITS.to_owned();
    for i in 0..300 {
        let tier = if i % 2 == 0 { "tier: pro, " } else { "" };
        let _ = writeln!(
            source,
            "  t{i}: {{ {tier}limits: {{ a: {{ rate: {}/s }}, b: {{ burst: 7 }} }} }}",
            i % 3 + 1
        );
    }
    let policy = read(&source);
    // Three rates of `a` and one burst of `b`, each in two tiers.
    assert_eq!((policy.tenants.len(), numbers_read(&policy.tenants)), (300, 8));
    assert_eq!(policy.tenants["t0"].numbers("a"), [("rate", "1/s".to_owned()), ("burst", "20".to_owned())]);
    assert_eq!(policy.tenants["t3"].numbers("a"), [("rate", "1/s".to_owned()), ("burst", "10".to_owned())]);
}

#[test]
fn numbers_from_the_environment_are_not_shared_by_their_text() {
    let source = format!(
        "{LIMITS}  x: {{ limits: {{ a: {{ rate: '${{R}}' }} }} }}\n  y: {{ limits: {{ a: {{ rate: '${{R}}' }} }} }}"
    );
    let policy = Policy::read_with(Path::new("policy.yaml"), &source, &|_| Some("3/s".to_owned())).unwrap();
    assert_eq!(numbers_read(&policy.tenants), 2);
    assert_eq!(policy.tenants["y"].numbers("a")[0], ("rate", "${R}".to_owned()));
}

#[test]
fn a_copy_of_a_policy_shares_its_tenants() {
    let policy = read(&format!("{LIMITS}  x: {{ tier: pro }}"));
    assert!(Arc::ptr_eq(&policy.tenants.0, &policy.clone().tenants.0));
    assert_eq!(policy.tenants, read(&format!("{LIMITS}  x: {{ tier: pro }}")).tenants);
    assert_ne!(policy.tenants, read(&format!("{LIMITS}  x: {{ tier: free }}")).tenants);
}

#[test]
fn tenants_with_numbers_of_a_limit_are_found_without_the_others() {
    let policy = read(&format!(
        "{LIMITS}  x: {{ tier: pro }}\n  y: {{ limits: {{ b: {{ burst: 7 }}, a: {{ burst: 3 }} }} }}\n  z: {{ limits: {{ b: {{ burst: 8 }} }} }}"
    ));
    let names =
        |limit: &str| policy.tenants.with_numbers_of(limit).map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(
        (names("a"), names("b"), names("c")),
        (vec!["y".to_owned()], vec!["y".to_owned(), "z".to_owned()], vec![])
    );
    assert_eq!(policy.tenants.rules_of("b").map(Rule::capacity).collect::<Vec<_>>(), [7, 8]);
    assert_eq!(policy.tenants.place("z"), Some(2));
    assert_eq!(policy.tenants["y"].limits.iter().map(|(limit, _)| limit).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn a_fault_lists_some_of_many_names() {
    let mut source = "tenants: { t: { limits: { nothing-like-it: { burst: 7 } } } }\nlimits:\n".to_owned();
    for i in 0..1000 {
        let _ = writeln!(source, "  - {{ name: a{i}, key: [tenant], token_bucket: {{ rate: 5/s }} }}");
    }
    let faults = Policy::read(Path::new("policy.yaml"), &source).expect_err("a fault");
    let help = faults.iter().next().and_then(|fault| fault.help.clone()).unwrap();
    assert!(
        help.starts_with("the limits are `a0`, `a1`, ") && help.ends_with(", `a19` and 980 more"),
        "{help}"
    );
}
