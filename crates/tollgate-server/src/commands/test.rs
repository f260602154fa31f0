//! `tollgate test`: whether a policy decides as its tests expect.

use std::path::Path;

use tollgate_lab::run_cases;

use super::lab::{counted, say};
use crate::source::read_policy;

pub(crate) fn run(policy: &Path, tests: &Path, max_policy_bytes: u64) -> Result<(), String> {
    let policy = read_policy(policy, max_policy_bytes)?;
    let outcomes = run_cases(&policy, tests).map_err(|error| error.to_string())?;
    let mut text: String = outcomes.passed.iter().map(|name| format!("ok      {name}\n")).collect();
    for (name, why) in &outcomes.failed {
        text.push_str(&format!("FAILED  {name}\n        {why}\n"));
    }
    say(&format!("{text}{} passed, {} failed\n", outcomes.passed.len(), outcomes.failed.len()))?;
    match outcomes.failed.len() {
        0 => Ok(()),
        failed => Err(format!("{}: {} failed", tests.display(), counted(failed as u64, "test"))),
    }
}
