//! Rules that come with a call.

use std::collections::HashMap;

use tollgate::Rule;

use super::limit::RuleTemplate;
use super::numbers::{Algorithm, Numbers};
use crate::fault::Fault;
use crate::reader::{Reader, Section, quoted};
use crate::yaml;

/// A rule that comes with a request: the name of its algorithm, and its numbers as JSON has them.
///
/// # Errors
///
/// What is wrong, and what would be right.
pub(crate) fn sent_rule(algorithm: &str, numbers: &str) -> Result<(&'static str, Rule), String> {
    let Some((name, keys)) = Algorithm::ALL.iter().find(|(name, _)| *name == algorithm) else {
        let all = quoted(Algorithm::ALL.iter().map(|(name, _)| *name));
        return Err(format!("unknown algorithm `{algorithm}`: it is one of {all}"));
    };
    // What a caller sends names nothing of ours.
    let as_it_is = |name: &str| Some(format!("${{{name}}}"));
    let reader = Reader::new(&as_it_is);
    let made = yaml::parse(numbers).map_err(|fault| reader.fault(fault)).ok().and_then(|node| {
        let section = reader.section(&node, keys)?;
        if let Some(node) = section.get("exact_up_to") {
            let fault = Fault::new(node.span.clone(), "`exact_up_to` cannot be sent");
            reader.fault(fault.help("how much memory a key may take is the policy file's to say"));
        }
        let algorithm = Algorithm::read(&reader, name, &section);
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
        (Some(rule), None) => Ok((name, rule)),
        (_, Some(Fault { message, help: Some(help), .. })) => Err(format!("`{name}`: {message}: {help}")),
        (_, Some(fault)) => Err(format!("`{name}`: {}", fault.message)),
        (None, None) => Err(format!("`{name}`: no numbers")),
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
                "a log sent with a call has at most {MOST_SENT_LOG} entries; use `sliding_counter` above that"
            ),
        ),
        _ => return,
    };
    reader.fault(Fault::new(section.span.clone(), message).help(help));
}
