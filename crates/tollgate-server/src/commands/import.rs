//! `tollgate import`: a policy file made from the files of another rate limiter.

use std::path::Path;

use crate::source::read_envoy;

/// Prints the policy that does what files of envoyproxy/ratelimit did.
pub(crate) fn envoy(path: &Path, count_denied: bool, max_policy_bytes: u64) -> Result<(), String> {
    let import = read_envoy(path, count_denied, max_policy_bytes)?;
    for warning in &import.warnings {
        eprintln!("warning: {warning}");
    }
    print!("{}", import.policy);
    Ok(())
}
