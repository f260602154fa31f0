//! Rules that come with a call.

use tollgate::{AlgorithmKind, Rule};

use super::numbers::{Algorithm, Numbers, Wrong};
use crate::fault::Fault;
use crate::keys;
use crate::reader::Reader;
use crate::yaml;

/// The rule that a caller of `POST /v1/throttle` sends: an algorithm, and its numbers as a JSON object.
///
/// The numbers have the names and the text of the policy file. They are bounded more tightly than in the policy file, so that the
/// state of a key takes at most about 8 KiB. The caller bounds the length of the text.
///
/// ```
/// use tollgate_core::AlgorithmKind;
/// use tollgate_policy::sent_rule;
///
/// let rule = sent_rule(AlgorithmKind::TokenBucket, r#"{"rate": "5/s", "burst": 10}"#)?;
/// assert_eq!(rule.capacity(), 10);
/// let error = sent_rule(AlgorithmKind::TokenBucket, r#"{"rate": "fast"}"#).unwrap_err();
/// assert!(error.contains("write a rate as 5/s"), "{error}");
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
///
/// What is wrong, and what would be right.
pub fn sent_rule(kind: AlgorithmKind, numbers: &str) -> Result<Rule, String> {
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
        if let Some((message, help)) = algorithm.too_large_to_send(&numbers) {
            reader.fault(Fault::new(section.span.clone(), message).help(help));
        }
        let wrong = |wrong: Wrong| wrong.fault(section.span.clone()).map(|fault| reader.fault(fault));
        algorithm.rule(&numbers, None).map_err(wrong).ok()
    });
    match (made, reader.into_faults().first()) {
        (Some(rule), None) => Ok(rule),
        (_, Some(Fault { message, help: Some(help), .. })) => Err(format!("`{kind}`: {message}: {help}")),
        (_, Some(fault)) => Err(format!("`{kind}`: {}", fault.message)),
        (None, None) => Err(format!("`{kind}`: no numbers")),
    }
}
