//! Rules that come with a call.
#![deny(clippy::wildcard_enum_match_arm, reason = "a new algorithm must be handled in every match")]

use std::collections::HashMap;

use tollgate::{AlgorithmKind, Rule};

use super::limit::RuleTemplate;
use super::numbers::{Algorithm, Numbers};
use crate::fault::Fault;
use crate::keys;
use crate::reader::{Reader, Section, quoted};
use crate::yaml;

/// A rule that comes with a request: the name of its algorithm, and its numbers as JSON has them.
///
/// # Errors
///
/// What is wrong, and what would be right.
pub(crate) fn sent_rule(algorithm: &str, numbers: &str) -> Result<(&'static str, Rule), String> {
    let Some(kind) = AlgorithmKind::from_name(algorithm) else {
        let all = quoted(AlgorithmKind::ALL.iter().map(|kind| kind.name()));
        return Err(format!("unknown algorithm `{algorithm}`: it is one of {all}"));
    };
    // What a caller sends names nothing of ours.
    let as_it_is = |name: &str| Some(format!("${{{name}}}"));
    let reader = Reader::new(&as_it_is);
    let made = yaml::parse(numbers).map_err(|fault| reader.fault(fault)).ok().and_then(|node| {
        let section = reader.section(&node, keys::settings(kind))?;
        if let Some(node) = section.get("exact_up_to") {
            let fault = Fault::new(node.span.clone(), "`exact_up_to` cannot be sent");
            reader.fault(fault.help("how much memory a key may take is the policy file's to say"));
        }
        let algorithm = Algorithm::read(&reader, kind, &section);
        Numbers::require_all(&reader, algorithm, &section);
        let numbers = Numbers::read(&reader, Some(algorithm), &section);
        if let Some(node) = section.get("limit").filter(|_| numbers.is_blocked()) {
            let fault = Fault::new(node.span.clone(), "`limit` of 0");
            reader.fault(fault.help("a rule that is sent with a call allows at least 1"));
        }
        refuse_large_states(&reader, algorithm, &numbers, &section);
        let template = RuleTemplate { algorithm, holding: None, numbers, tier_numbers: HashMap::new() };
        template.rule(&reader, &template.numbers, None, &section)
    });
    match (made, reader.into_faults().first()) {
        (Some(rule), None) => Ok((kind.name(), rule)),
        (_, Some(Fault { message, help: Some(help), .. })) => Err(format!("`{kind}`: {message}: {help}")),
        (_, Some(fault)) => Err(format!("`{kind}`: {}", fault.message)),
        (None, None) => Err(format!("`{kind}`: no numbers")),
    }
}

/// The parts of a sliding counter that a caller may choose. Each takes 8 bytes per key.
const MOST_SENT_BUCKETS: u32 = 256;

/// The limit of a sliding log that a caller may choose. Each entry takes 8 bytes per key.
const MOST_SENT_LOG: u64 = 1000;

/// Refuses rules whose states would take more than about 8 KiB per key: any caller can send rules, and any number of keys.
fn refuse_large_states(reader: &Reader<'_>, algorithm: Algorithm, numbers: &Numbers, section: &Section<'_>) {
    let (message, help) = match algorithm {
        Algorithm::SlidingCounter { buckets, .. } if buckets > MOST_SENT_BUCKETS => {
            (format!("{buckets} buckets"), format!("a rule sent with a call has at most {MOST_SENT_BUCKETS}"))
        }
        Algorithm::SlidingLog { .. } if numbers.limit > Some(MOST_SENT_LOG) => (
            format!("a limit of {}", numbers.limit.unwrap_or_default()),
            format!(
                "a log sent with a call has at most {MOST_SENT_LOG} entries; use `{}` above that",
                AlgorithmKind::SlidingCounter
            ),
        ),
        Algorithm::SlidingCounter { .. } | Algorithm::SlidingLog { .. } => return,
        // The state of a key has the same size for any numbers, or grows with the permits that are held.
        Algorithm::TokenBucket
        | Algorithm::LeakyBucket
        | Algorithm::FixedWindow { .. }
        | Algorithm::BurstCredits
        | Algorithm::Concurrency => return,
    };
    reader.fault(Fault::new(section.span.clone(), message).help(help));
}
