//! An engine by files of envoyproxy/ratelimit, asked as Envoy asks.

use std::path::Path;
use std::time::Duration;

use tollgate::{Clock, Timestamp};
use tollgate_policy::{Described, Engine, Hits, Policy, import_envoy};

/// A service that has read some files.
pub(crate) struct Files {
    pub(crate) engine: Engine,
    pub(crate) now: Timestamp,
}

/// What a descriptor is told: whether it is within its limit, and what that limit is and has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Unmatched,
    Unlimited,
    Ok(u64, u64),
    Over(u64, u64),
    Shadow(u64, u64),
}

pub(crate) use Told::{Ok as Within, Over, Shadow, Unlimited, Unmatched};

pub(crate) type Entries<'a> = &'a [(&'a str, &'a str)];

impl Files {
    pub(crate) fn new(files: &[&str]) -> Self {
        Self::with(files, false, "")
    }

    pub(crate) fn with(files: &[&str], count_denied: bool, settings: &str) -> Self {
        let files: Vec<_> = files
            .iter()
            .enumerate()
            .map(|(i, file)| (format!("{i}.yaml").into(), (*file).to_owned()))
            .collect();
        let import = import_envoy(&files, count_denied).unwrap_or_else(|faults| panic!("{}", faults[0]));
        let policy = format!("{}{settings}", import.policy);
        let policy = Policy::read(Path::new("policy.yaml"), &policy)
            .unwrap_or_else(|faults| panic!("{faults}\n{policy}"));
        let clock = Clock::manual_from(Duration::from_secs(1_700_000_000));
        Self { engine: Engine::with_clock(policy, clock).unwrap(), now: Timestamp::from_nanos(0) }
    }

    pub(crate) fn later(&mut self, seconds: u64) {
        self.now = Timestamp::from_nanos(self.now.as_nanos() + seconds * 1_000_000_000);
    }

    pub(crate) fn ask(&self, domain: &str, descriptors: &[Entries<'_>]) -> (bool, Vec<Told>) {
        self.hit(domain, descriptors, &vec![Hits::Usual; descriptors.len()])
    }

    pub(crate) fn hit(&self, domain: &str, descriptors: &[Entries<'_>], hits: &[Hits]) -> (bool, Vec<Told>) {
        let attributes: Vec<Vec<(&str, &str)>> = descriptors
            .iter()
            .map(|entries| [("domain", domain)].into_iter().chain(entries.iter().copied()).collect())
            .collect();
        let described: Vec<Described<'_>> = attributes
            .iter()
            .zip(hits)
            .map(|(attributes, hits)| Described { attributes, hits: *hits, limit: None })
            .collect();
        let policy = self.engine.policy();
        let together = policy.check_descriptors(&described, self.now).now().unwrap().unwrap();
        let told = together.descriptors().map(|answer| {
            let numbers = |limit: &tollgate_policy::LimitVerdict<'_, '_>| {
                (limit.capacity(), limit.decision().status.remaining)
            };
            match (answer.limits().next(), answer.shadow().next()) {
                (Some(limit), _) if limit.is_allowed() => Within(numbers(&limit).0, numbers(&limit).1),
                (Some(limit), _) => Over(numbers(&limit).0, numbers(&limit).1),
                (None, Some(limit)) => Shadow(numbers(&limit).0, numbers(&limit).1),
                (None, None) if answer.is_unlimited() => Unlimited,
                (None, None) => Unmatched,
            }
        });
        (together.is_allowed(), told.collect())
    }

    /// One descriptor alone.
    pub(crate) fn one(&self, domain: &str, entries: Entries<'_>) -> Told {
        self.ask(domain, &[entries]).1[0]
    }
}

/// Messages to phone numbers, of two kinds.
pub(crate) const MESSAGING: &str = "
domain: messaging
descriptors:
  # Only allow 5 marketing messages a day
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        rate_limit: { unit: day, requests_per_unit: 5 }
  # Only allow 100 messages a day to any unique phone number
  - key: to_number
    rate_limit: { unit: day, requests_per_unit: 100 }
";
