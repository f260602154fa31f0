//! Tests of a policy, for people's own CI: requests at given times, and what is expected of each, on a clock that stands still between.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_saphyr::Spanned;
use tollgate::{Clock, Nanos, Timestamp};
use tollgate_policy::{Engine, Policy, Request, StoreSettings, Verdict, normal_path, quantity};

use crate::LabError;

/// The latest time of a test, in nanoseconds: a hundred years.
const LATEST: u64 = 100 * 365 * 86_400 * 1_000_000_000;

/// The most requests that one line of a test stands for.
const MOST_TIMES: u64 = 1_000_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CasesFile {
    tests: Vec<CaseFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile {
    name: String,
    requests: Vec<Spanned<StepFile>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepFile {
    at: Option<String>,
    after: Option<String>,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
    cost: Option<u64>,
    #[serde(default = "once")]
    times: u64,
    expect: Expect,
    limit: Option<String>,
    retry_after: Option<String>,
    delay: Option<String>,
    remaining: Option<u64>,
}

const fn once() -> u64 {
    1
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Expect {
    Allowed,
    Denied,
}

/// How the tests of a policy went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Names of tests that passed.
    pub passed: Vec<String>,
    /// Names of tests that failed, and how.
    pub failed: Vec<(String, String)>,
}

/// Runs the tests of a file, each with a policy that nobody has asked yet. Times count from the beginning of a test, which is
/// midnight, 1 January 2026, UTC.
///
/// # Errors
///
/// When the file cannot be read or makes no sense, or the policy cannot be put in force.
pub fn run_cases(policy: &Policy, file: &Path) -> Result<Outcomes, LabError> {
    let text =
        std::fs::read_to_string(file).map_err(|error| LabError::Read { file: file.to_owned(), error })?;
    let refused = |why: String| LabError::Asked(format!("{}: {why}", file.display()));
    let read: CasesFile = serde_saphyr::from_str(&text).map_err(|error| LabError::yaml(file, &error))?;
    if read.tests.is_empty() {
        return Err(refused("`tests` has none in it".to_owned()));
    }
    let policy = Policy { store: StoreSettings::default(), ..policy.clone() };
    let mut outcomes = Outcomes::default();
    if let Some(empty) = read.tests.iter().find(|case| case.requests.is_empty()) {
        return Err(refused(format!("test `{}` has no requests", empty.name)));
    }
    for case in read.tests {
        let mut running = Running::new(&policy)?;
        let mut failed = None;
        for step in &case.requests {
            let line = step.referenced.line();
            let at = |why: String| LabError::Refused { file: file.to_owned(), line, why };
            if let Err(why) = running.step(&step.value).map_err(at)? {
                failed = Some(format!("{}:{line}: {why}", file.display()));
                break;
            }
        }
        match failed {
            Some(why) => outcomes.failed.push((case.name, why)),
            None => outcomes.passed.push(case.name),
        }
    }
    Ok(outcomes)
}

/// Midnight, 1 January 2026.
const BEGIN: Duration = Duration::from_secs(1_767_225_600);

struct Running {
    engine: Engine,
    now: u64,
}

/// Why a verdict is there at once.
pub(crate) const IN_MEMORY: &str = "the lab keeps states in memory";

impl Running {
    fn new(policy: &Policy) -> Result<Self, LabError> {
        Ok(Self { engine: Engine::with_clock(policy.clone(), Clock::manual_from(BEGIN))?, now: 0 })
    }

    /// One line of a test: an error where it makes no sense, and else what is otherwise than expected, if anything is.
    fn step(&mut self, step: &StepFile) -> Result<Result<(), String>, String> {
        let nanos = |text: &str| -> Result<u64, String> {
            Ok(u64::try_from(quantity::duration(text)?.as_nanos()).unwrap_or(u64::MAX))
        };
        self.now = match (&step.at, &step.after) {
            (Some(_), Some(_)) => return Err("say `at` or `after`, not both".to_owned()),
            (Some(at), None) => {
                let at = nanos(at)?;
                if at < self.now {
                    return Err("time does not go back: `at` is before that of the request above".to_owned());
                }
                at
            }
            (None, Some(after)) => self.now.saturating_add(nanos(after)?),
            (None, None) => self.now,
        };
        if self.now > LATEST {
            return Err("a test takes a hundred years at the most".to_owned());
        }
        if !(1..=MOST_TIMES).contains(&step.times) {
            return Err(format!("`times` is 1 to {MOST_TIMES}"));
        }
        let retry_after = step.retry_after.as_deref().map(nanos).transpose()?;
        let delay = step.delay.as_deref().map(nanos).transpose()?;
        let policy = self.engine.policy();
        if let Some(unknown) =
            step.limit.as_ref().filter(|name| policy.limits.iter().all(|limit| limit.name != **name))
        {
            return Err(format!("the policy has no limit `{unknown}`"));
        }
        let attributes: Vec<(&str, String)> = step
            .attributes
            .iter()
            .map(|(name, value)| {
                (&**name, if name == "path" { normal_path(value).into_owned() } else { value.clone() })
            })
            .collect();
        let pairs: Vec<(&str, &str)> = attributes.iter().map(|(name, value)| (*name, &**value)).collect();
        let request = Request { attributes: &pairs, cost: step.cost };
        for number in 1..=step.times {
            let verdict = policy.check(&request, Timestamp::from_nanos(self.now)).now();
            let verdict = verdict.expect(IN_MEMORY).map_err(|error| error.to_string())?;
            let is_last = number == step.times;
            let expected = Expected { step, retry_after, delay, is_last };
            if let Err(why) = expected.compare(&verdict) {
                let of = if step.times > 1 {
                    format!("request {number} of {}: ", step.times)
                } else {
                    String::new()
                };
                return Ok(Err(format!("{of}{why}")));
            }
        }
        Ok(Ok(()))
    }
}

struct Expected<'s> {
    step: &'s StepFile,
    retry_after: Option<u64>,
    delay: Option<u64>,
    is_last: bool, // what remains, and how long it takes, is told of the last
}

impl Expected<'_> {
    fn compare(&self, verdict: &Verdict<'_>) -> Result<(), String> {
        let step = self.step;
        let expects_allowed = step.expect == Expect::Allowed;
        if verdict.is_allowed() != expects_allowed {
            return Err(format!(
                "expected {}, and it is {}",
                if expects_allowed { "allowed" } else { "denied" },
                told(verdict)
            ));
        }
        let limit = step.limit.as_deref();
        if let Some(name) = limit {
            let is_it = |limit: &tollgate_policy::LimitVerdict<'_, '_>| {
                limit.name() == name && limit.is_allowed() == expects_allowed
            };
            if !verdict.limits().any(|limit| is_it(&limit)) {
                return Err(format!("expected limit `{name}` to say so, and it is {}", told(verdict)));
            }
        }
        if !self.is_last {
            return Ok(());
        }
        let text = |nanos: Option<u64>| {
            nanos.map_or_else(
                || "none".to_owned(),
                |nanos| quantity::duration_text(Duration::from_nanos(nanos)),
            )
        };
        let retry = verdict.retry_after().map(Nanos::get);
        if self.retry_after.is_some() && self.retry_after != retry {
            return Err(format!(
                "expected retry_after {}, and it is {}",
                text(self.retry_after),
                text(retry)
            ));
        }
        let delay = Some(verdict.delay().get());
        if self.delay.is_some() && self.delay != delay {
            return Err(format!("expected delay {}, and it is {}", text(self.delay), text(delay)));
        }
        if let Some(expected) = step.remaining {
            let of = |verdict: &tollgate_policy::LimitVerdict<'_, '_>| {
                limit.is_none_or(|name| verdict.name() == name)
            };
            let remaining = verdict.limits().filter(of).map(|limit| limit.decision().status.remaining).min();
            if remaining != Some(expected) {
                let found = remaining
                    .map_or_else(|| "there is no limit".to_owned(), |found| format!("it is {found}"));
                return Err(format!("expected remaining {expected}, and {found}"));
            }
        }
        Ok(())
    }
}

fn told(verdict: &Verdict<'_>) -> String {
    if verdict.is_allowed() {
        return "allowed".to_owned();
    }
    let denying =
        verdict.limits().filter(|limit| !limit.is_allowed()).map(|limit| format!("`{}`", limit.name()));
    format!("denied by {}", denying.collect::<Vec<_>>().join(", "))
}
