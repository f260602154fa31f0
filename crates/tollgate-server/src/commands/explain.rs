//! `tollgate explain`: which limits apply to a request, and why.

use std::path::Path;

use tollgate::{Decision, Outcome, Retry};
use tollgate_policy::{Engine, Explained, Policy, Request};

use super::{check, table};
use crate::source::read_policy;

pub(crate) fn run(
    file: &Path,
    cost: Option<u64>,
    attributes: &[(String, String)],
    max_policy_bytes: u64,
) -> Result<(), String> {
    // The store, the listeners and the files do not affect what a limit decides.
    let Policy { limits, tiers, default_tier, tenants, costs, adaptive_rates, environment_values, .. } =
        read_policy(file, max_policy_bytes)?;
    let policy = Policy {
        limits,
        tiers,
        default_tier,
        tenants,
        costs,
        adaptive_rates,
        environment_values,
        ..Policy::default()
    };
    let engine = Engine::new(policy).map_err(|error| format!("{}: {error}", file.display()))?;
    let attributes: Vec<(&str, &str)> = attributes.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let policy = engine.policy();
    let request = Request { attributes: &attributes, cost };
    let explanation = policy.explain(&request, engine.clock().now()).now();
    let explanation = explanation.expect("the states are in memory").map_err(|error| error.to_string())?;
    match explanation.tier {
        Some(tier) => {
            println!("A request of cost {}, tier {tier}, when nobody has spent anything:\n", explanation.cost)
        }
        None => println!("A request of cost {}, when nobody has spent anything:\n", explanation.cost),
    }
    let mut rows = vec![["LIMIT", "APPLIES", "WOULD DECIDE", "WHY"].map(str::to_owned).to_vec()];
    for limit in &explanation.limits {
        let applies = match (limit.applies, limit.limit.shadow) {
            (true, false) => "yes",
            (true, true) => "shadow",
            (false, _) => "no",
        };
        let would = if limit.applies { would(limit) } else { String::new() };
        let name = policy.environment_values.as_written(&limit.limit.name).to_owned();
        let tenant = attributes.iter().find(|(name, _)| *name == "tenant").map(|(_, value)| *value);
        let numbers = numbers(&policy, limit, tenant, explanation.tier);
        rows.push(vec![name, applies.to_owned(), would, why(&policy, limit, &numbers)]);
    }
    print!("{}", table(&rows));
    Ok(())
}

/// The numbers that a limit has for a request: those of the tenant, else of its tier, else of the limit.
fn numbers(policy: &Policy, limit: &Explained<'_>, tenant: Option<&str>, tier: Option<&str>) -> String {
    let tenant = tenant.and_then(|tenant| policy.tenants.get(tenant));
    match tenant.filter(|tenant| tenant.limits.contains_key(&limit.limit.name)) {
        Some(tenant) => check::joined(tenant.numbers(&limit.limit.name)),
        None => check::numbers(limit.limit, tier),
    }
}

fn why(policy: &Policy, limit: &Explained<'_>, numbers: &str) -> String {
    if !limit.applies {
        return limit.why.clone();
    }
    let key = if limit.key.is_empty() { "everybody".to_owned() } else { limit.key.join(" / ") };
    let why = format!("{}; counts by `{key}`; {} {numbers}", limit.why, limit.limit.algorithm_name());
    match limit.limit.replacement(limit.rule) {
        Some(replacement) => {
            format!("{why}; uses {}", policy.environment_values.hide_numbers(&replacement))
        }
        None => why,
    }
}

fn would(limit: &Explained<'_>) -> String {
    let Decision { outcome, status } = limit.decision;
    match outcome {
        Outcome::Allow { delay } if delay.is_zero() => format!("allow, {} left before", status.remaining),
        Outcome::Allow { delay } => format!("allow after {delay}"),
        Outcome::Deny { retry: Retry::After(wait) } => format!("deny for {wait}"),
        // A rule holds at least 1: only `limit: 0` and `blocked` make it 0.
        Outcome::Deny { .. } if limit.capacity == 0 => "deny: the limit blocks every request".to_owned(),
        Outcome::Deny { .. } => format!("deny: it holds {}", limit.capacity),
    }
}
