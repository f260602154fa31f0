//! `tollgate check`: whether a policy file is right, and what stands in it.

use std::path::Path;

use tollgate::Rule;
use tollgate_policy::{
    EngineError, EnvironmentValues, Gateway, KeyPart, Limit, Policy, Redis, RedisTls, Sentinel, Slots,
    StoreSettings,
};
use tollgate_redis::RedisStore;

use super::table;
use crate::source::{file_faults, read_policy_and_tenants_file, shown_tenants_file};

/// Refuses what `tollgate serve` refuses. With `skip_files`, files that cannot be used are warnings.
pub(crate) fn run(
    file: &Path,
    against: Option<&Path>,
    skip_files: bool,
    max_policy_bytes: u64,
) -> Result<(), String> {
    let (policy, tenants_fault) = read_policy_and_tenants_file(file, max_policy_bytes)?;
    let environment_values = &policy.environment_values;
    let before = against.map(|file| read_policy_and_tenants_file(file, max_policy_bytes)).transpose()?;
    let (before, old_tenants_fault) = before.unzip();
    let mut refused: Vec<String> = store_faults(&policy)
        .iter()
        .map(|why| format!("{}: {}", file.display(), environment_values.hide_numbers(why)))
        .collect();
    let mut files = file_faults(&policy);
    for fault in [tenants_fault, old_tenants_fault.flatten()].into_iter().flatten() {
        let fault = shown_tenants_file(&fault);
        if !files.contains(&fault) {
            files.push(fault);
        }
    }
    if !skip_files && !files.is_empty() {
        // A fault of a line is shown with `error:` already.
        let is_headed = |why: &str| why.starts_with("error:");
        refused.extend(
            files.iter().map(|why| if is_headed(why) { why.clone() } else { format!("error: {why}") }),
        );
        // A line can be faulty only in a file that can be read.
        if files.iter().any(|why| !is_headed(why)) {
            refused.push("help: pass --skip-files where secrets are not mounted".to_owned());
        }
    }
    refused.extend(crate::telemetry::require_support(&policy).err().map(|why| format!("error: {why}")));
    if !refused.is_empty() {
        return Err(refused.join("\n"));
    }
    print!("{}", table(&rows(&policy)));
    println!();
    println!("{}: {}", file.display(), summary(&policy));
    if let Some(gateway) = &policy.gateway {
        println!("{}", environment_values.hide(&carries(gateway)));
    }
    if policy.has_leases() {
        println!(
            "lease: in total, leased limits are never exceeded. The excess is the most above the limit's own bound in any span of time"
        );
    }
    for warning in policy.warnings() {
        println!("warning: {}", environment_values.hide_numbers(&warning));
    }
    for file in files {
        println!("warning: {file}");
    }
    for note in policy.notes() {
        println!("note: {}", environment_values.hide(&note));
    }
    if let Some(before) = before {
        for (limit, change) in policy.changes_from(&before) {
            let limit = before.environment_values.as_written(environment_values.as_written(&limit));
            println!("limit `{limit}` {change}");
        }
        for name in policy.sections_changed_from(&before) {
            println!("`{name}` has changed");
        }
    }
    Ok(())
}

/// What the gateway does, in a line.
fn carries(gateway: &Gateway) -> String {
    let mut line = format!("gateway: carries requests to {}", gateway.upstreams.join(", "));
    match gateway.slots {
        None => line.push_str(", as many at once as come"),
        Some(Slots { max, adaptive: None, .. }) => line.push_str(&format!(", {max} at once")),
        Some(Slots { min, max, .. }) => line.push_str(&format!(", {min} to {max} at once")),
    }
    if let Some(queue) = &gateway.fair_queue {
        line.push_str(&format!(", shared by {}, each with up to {} that wait", queue.by, queue.per_key));
    }
    line
}

/// What the start would refuse: settings of the store, and limits that it cannot keep.
fn store_faults(policy: &Policy) -> Vec<String> {
    let StoreSettings::Redis(redis) = &policy.store else { return Vec::new() };
    // A file that is missing is reported on its own, and hides no other fault.
    let has_files = !policy.unusable_files().iter().any(|file| file.key.starts_with("store."));
    let redis = if has_files { Redis::clone(redis) } else { without_files(redis) };
    let settings = RedisStore::check(&redis).err().map(|error| error.to_string());
    let limits = policy.store_faults(tollgate_redis::require, tollgate_redis::require_lease);
    let limits = (!limits.is_empty()).then(|| EngineError::Store(limits).to_string());
    settings.into_iter().chain(limits).collect()
}

/// The settings of a store without the files that they name. A user goes with its password.
fn without_files(redis: &Redis) -> Redis {
    let has_password = redis.password_file.is_some();
    let sentinel = redis.sentinel.clone().map(|sentinel| match sentinel.password_file {
        Some(_) => Sentinel { username: None, password_file: None, ..sentinel },
        None => sentinel,
    });
    Redis {
        username: redis.username.clone().filter(|_| !has_password),
        password_file: None,
        tls: redis.tls.as_ref().map(|_| RedisTls::default()),
        sentinel,
        ..redis.clone()
    }
}

fn rows(policy: &Policy) -> Vec<Vec<String>> {
    let mut rows = vec![["LIMIT", "ALGORITHM", "NUMBERS", "KEY", "MATCH"].map(str::to_owned).to_vec()];
    if policy.has_leases() {
        rows[0].push("LEASE".to_owned());
    }
    let environment_values = &policy.environment_values;
    for limit in &policy.limits {
        let shadow = if limit.shadow { " (shadow)" } else { "" };
        rows.push(vec![
            format!("{}{shadow}", environment_values.as_written(&limit.name)),
            algorithm(limit, &limit.rule),
            numbers(limit, None),
            key(limit, environment_values),
            matches(limit, environment_values),
        ]);
        rows.last_mut().expect("the row of the limit").extend(lease(policy, limit, &limit.rule));
        // Named only where it is not the limit's.
        let other_algorithm = |rule: &Rule| {
            let is_same = limit.algorithm_in_use(rule) == limit.algorithm_in_use(&limit.rule);
            if is_same { String::new() } else { algorithm(limit, rule) }
        };
        let mut tiers: Vec<&String> = limit.tiers.keys().collect();
        tiers.sort_unstable();
        for tier in tiers {
            rows.push(vec![
                format!("  {tier}"),
                other_algorithm(&limit.tiers[tier]),
                numbers(limit, Some(tier)),
            ]);
        }
        let mut tenants: Vec<_> = policy.tenants.with_numbers_of(&limit.name).collect();
        tenants.sort_unstable_by_key(|(name, _)| *name);
        let shown = tenants.len().min(TENANTS_SHOWN);
        for (name, tenant) in &tenants[..shown] {
            let algorithm = other_algorithm(&tenant.limits[&limit.name]);
            rows.push(vec![format!("  tenant {name}"), algorithm, joined(tenant.numbers(&limit.name))]);
        }
        if tenants.len() > shown {
            rows.push(vec![format!("  and {} more tenants", tenants.len() - shown)]);
        }
    }
    rows
}

/// How a limit is leased, or why it is not. None if no limit is leased.
fn lease(policy: &Policy, limit: &Limit, rule: &Rule) -> Option<String> {
    Some(match policy.lease_terms(limit, rule, tollgate_redis::require_lease)? {
        Ok(terms) => match (terms.most_excess(1), terms.most_excess(u64::MAX)) {
            (0, 0) => "yes; no excess".to_owned(),
            (one, all) => format!("yes; excess {one} per process, {all} for all"),
        },
        Err(why) => format!("exact ({why})"),
    })
}

/// `sliding_log`; or `sliding_log (as sliding_counter)` where another algorithm decides.
fn algorithm(limit: &Limit, rule: &Rule) -> String {
    match (limit.algorithm_name(), limit.algorithm_in_use(rule)) {
        (name, in_use) if name == in_use => name.to_owned(),
        (name, in_use) => format!("{name} (as {in_use})"),
    }
}

/// The most tenants of a limit that are listed.
const TENANTS_SHOWN: usize = 5;

/// `rate 5/s, burst 10`.
pub(crate) fn numbers(limit: &Limit, tier: Option<&str>) -> String {
    joined(limit.numbers(tier))
}

pub(crate) fn joined(numbers: Vec<(&'static str, String)>) -> String {
    let numbers: Vec<String> = numbers.into_iter().map(|(name, value)| format!("{name} {value}")).collect();
    numbers.join(", ")
}

fn key(limit: &Limit, environment_values: &EnvironmentValues) -> String {
    match limit.key.as_slice() {
        [] if limit.has_keys() => "values of the descriptor".to_owned(),
        [] => "one for everybody".to_owned(),
        parts => {
            let shown = |part: &KeyPart| environment_values.as_written(&part.to_string()).to_owned();
            parts.iter().map(shown).collect::<Vec<_>>().join(", ")
        }
    }
}

fn matches(limit: &Limit, environment_values: &EnvironmentValues) -> String {
    if let Some(descriptor) = &limit.descriptor {
        return environment_values.hide(&format!("descriptor {descriptor}")).into_owned();
    }
    let any_case = limit.applies_to.ignores_case().then_some(" in any case");
    let any_slash =
        limit.applies_to.ignores_trailing_slash().then_some(" with or without a slash at the end");
    let condition = |attribute: &str, patterns: Vec<&str>| {
        let widened = [any_case, any_slash].into_iter().flatten().filter(|_| attribute == "path");
        format!("{attribute} {}{}", patterns.join(" or "), widened.collect::<String>())
    };
    let patterns = limit.applies_to.patterns();
    let conditions: Vec<String> = patterns
        .map(|(attribute, patterns)| {
            condition(attribute, patterns.map(|pattern| environment_values.as_written(pattern)).collect())
        })
        .collect();
    if conditions.is_empty() { "every request".to_owned() } else { conditions.join(", ") }
}

fn summary(policy: &Policy) -> String {
    let count = |number: usize, one: &str| format!("{number} {one}{}", if number == 1 { "" } else { "s" });
    format!(
        "valid; {}, {}, {}",
        count(policy.limits.len(), "limit"),
        count(policy.tiers.len(), "tier"),
        count(policy.tenants.len(), "tenant"),
    )
}
