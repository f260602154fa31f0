//! `tollgate explain`: which limits apply to a request, and why.

use std::path::Path;

use tollgate::{Decision, Outcome, Retry};
use tollgate_policy::{Engine, Explained, Policy, Request};

use super::{check, table};
use crate::source::read_policy;

pub(crate) fn run(file: &Path, cost: Option<u64>, attributes: &[(String, String)]) -> Result<(), String> {
    // What is not built has no part in what limits say.
    let Policy { limits, tiers, default_tier, tenants, costs, adaptive_rates, environment_values, .. } =
        read_policy(file)?;
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
    let explanation = policy.explain(&Request { attributes: &attributes, cost }, engine.clock().now());
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
        rows.push(vec![name, applies.to_owned(), would, why(limit, explanation.tier)]);
    }
    print!("{}", table(&rows));
    Ok(())
}

fn why(limit: &Explained<'_>, tier: Option<&str>) -> String {
    if !limit.applies {
        return limit.why.clone();
    }
    let key = if limit.key.is_empty() { "everybody".to_owned() } else { limit.key.join(" / ") };
    let numbers = check::numbers(limit.limit, tier);
    format!("{}; counts by `{key}`; {} {numbers}", limit.why, limit.limit.algorithm_name())
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
