//! Scenarios of one's own, in a small file.

use std::path::Path;

use serde::Deserialize;
use tollgate_policy::quantity;

use super::{Group, MOST_CLIENTS, Pattern, Scenario};
use crate::LabError;
use crate::algorithms::Limit;

/// The most requests a client may make at once.
const MOST_AT_ONCE: u64 = 1_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioFile {
    name: Option<String>,
    #[serde(default)]
    about: String,
    limit: u64,
    window: String,
    #[serde(default)]
    by: By,
    #[serde(rename = "for")]
    duration: String,
    #[serde(default = "one")]
    seed: u64,
    clients: Vec<GroupFile>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum By {
    #[default]
    Client,
    Global,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupFile {
    name: String,
    #[serde(default = "one")]
    count: u64,
    #[serde(default = "one")]
    cost: u64,
    from: Option<String>,
    until: Option<String>,
    rate: Option<String>,
    #[serde(default)]
    even: bool,
    burst: Option<u64>,
    every: Option<String>,
    at: Option<Vec<String>>,
}

const fn one() -> u64 {
    1
}

/// Reads a scenario.
///
/// # Errors
///
/// When the file cannot be read, or makes no sense: what, where, and what would be right.
pub fn read_scenario(file: &Path) -> Result<Scenario, LabError> {
    let text =
        std::fs::read_to_string(file).map_err(|error| LabError::Read { file: file.to_owned(), error })?;
    scenario_of_text(&text, file)
}

/// Reads the text of a scenario file. Errors name `file`, which is not opened.
///
/// # Errors
///
/// When the text is not a valid scenario.
pub(crate) fn scenario_of_text(text: &str, file: &Path) -> Result<Scenario, LabError> {
    let refused = |why: String| LabError::Asked(format!("{}: {why}", file.display()));
    let read: ScenarioFile = serde_saphyr::from_str(text).map_err(|error| LabError::yaml(file, &error))?;
    let nanos = |what: &str, text: &str| {
        let span = quantity::duration(text).map_err(|why| refused(format!("`{what}: {text}`: {why}")))?;
        Ok::<u64, LabError>(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    };
    let duration = nanos("for", &read.duration)?;
    let window = nanos("window", &read.window)?;
    let mut groups = Vec::new();
    for group in read.clients {
        let of = |why: &str| refused(format!("clients `{}`: {why}", group.name));
        if !(1..=MOST_CLIENTS).contains(&group.count) {
            return Err(of(&format!("`count` is 1 to {MOST_CLIENTS}")));
        }
        let burst = group.burst.unwrap_or(1);
        if !(1..=MOST_AT_ONCE).contains(&burst) {
            return Err(of(&format!("`burst` is 1 to {MOST_AT_ONCE}")));
        }
        let pattern = match (&group.rate, &group.every, &group.at) {
            (Some(rate), None, None) if group.burst.is_none() => {
                let rate = quantity::rate(rate).map_err(|why| of(&why))?.rate;
                let interval = rate.period().as_nanos() as f64 / rate.tokens() as f64;
                if group.even { Pattern::Even { interval } } else { Pattern::Random { interval } }
            }
            (None, Some(every), None) => Pattern::Bursts { burst, every: nanos("every", every)? },
            (None, None, Some(at)) => {
                let at = at.iter().map(|at| nanos("at", at)).collect::<Result<Vec<u64>, LabError>>()?;
                Pattern::Together { burst, at }
            }
            _ => {
                return Err(of(
                    "say one of `rate: 5/s`, `burst: 6` with `every: 30s`, and `burst: 6` with `at: [10s, 20s]`",
                ));
            }
        };
        let time = |what: &str, text: &Option<String>, other: u64| {
            text.as_ref().map_or(Ok(other), |text| nanos(what, text))
        };
        groups.push(Group {
            from: time("from", &group.from, 0)?,
            until: time("until", &group.until, duration)?.min(duration),
            name: group.name,
            count: group.count,
            cost: group.cost,
            pattern,
        });
    }
    let name = file.file_stem().map_or_else(|| "scenario".into(), |name| name.to_string_lossy());
    let scenario = Scenario {
        name: read.name.unwrap_or_else(|| name.into_owned()),
        about: read.about,
        limit: Limit { limit: read.limit, window: std::time::Duration::from_nanos(window) },
        is_global: matches!(read.by, By::Global),
        duration,
        groups,
        seed: read.seed,
    };
    scenario.check().map_err(refused)?;
    Ok(scenario)
}
