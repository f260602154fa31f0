//! Limits written in Rust, without a policy file.

use std::path::Path;

use serde_json::json;
use tollgate::Rule;
use tollgate_policy::{Faults, Policy};

/// Limits written in Rust, for those who need no policy file: plain rules, each with a name and what it counts by.
///
/// ```
/// use tollgate::{Concurrency, Rate, TokenBucket};
/// use tollgate_policy::Engine;
/// use tollgate_tower::{Limits, TollgateLayer};
///
/// let limits = Limits::new()
///     .limit("per-address", TokenBucket::new(Rate::per_second(5)?, 10)?, &["ip"])
///     .limit("in-flight", Concurrency::new(100, None)?, &[]);
/// let layer = TollgateLayer::new(Engine::new(limits.policy()?)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// What comes of them is a policy like any other, not a second kind of layer. So a request is charged by all of its
/// limits or by none, which layers one in another could not do; clients are told by the same headers and bodies; and an
/// application that outgrows its numbers in code reads a file instead, and changes nothing else.
#[derive(Clone, Debug, Default)]
pub struct Limits(Vec<(String, Rule, Vec<String>)>);

impl Limits {
    /// No limit yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a limit on all requests. Its name is told to clients. It counts by attributes, as `key` in a policy file:
    /// `ip`, `method`, `path`, `host`, a header such as `header.x-api-key`, the first of several as in `user|ip`, or one
    /// that the layer [is told](crate::TollgateLayer::attribute). By none, everybody shares one key.
    pub fn limit(mut self, name: &str, rule: impl Into<Rule>, key: &[&str]) -> Self {
        let key = key.iter().map(|&attribute| attribute.to_owned()).collect();
        self.0.push((name.to_owned(), rule.into(), key));
        self
    }

    /// The policy they make, to be told more if need be: its fields can be set.
    ///
    /// # Errors
    ///
    /// When two have one name, or a name or a key is none.
    ///
    /// ```
    /// use tollgate::{Concurrency, RuleError};
    /// use tollgate_tower::Limits;
    ///
    /// let faults = Limits::new().limit("in flight", Concurrency::new(100, None)?, &[]).policy().unwrap_err();
    /// assert_eq!(faults.iter().next().unwrap().message, "`in flight` cannot be a name");
    /// # Ok::<(), RuleError>(())
    /// ```
    pub fn policy(self) -> Result<Policy, Faults> {
        // Names and keys are for the reader of policy files to judge. A rule is valid once built, and takes the place of one
        // that stands for it in the text; what the limit could show of its numbers in the words of a file is that one's.
        let limits = self
            .0
            .iter()
            .map(|(name, _, key)| json!({ "name": name, "key": key, "token_bucket": { "rate": "1/s" } }));
        let text = json!({ "limits": limits.collect::<Vec<_>>() }).to_string();
        let as_it_is = |name: &str| Some(format!("${{{name}}}"));
        let mut policy = Policy::read_with(Path::new("limits"), &text, &as_it_is)?;
        for (limit, (_, rule, _)) in policy.limits.iter_mut().zip(self.0) {
            limit.rule = rule;
        }
        Ok(policy)
    }
}

#[cfg(test)]
mod tests;
