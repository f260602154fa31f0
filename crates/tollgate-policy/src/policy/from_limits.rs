//! Limits and policies that are made in code, without a policy file.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use tollgate::Rule;

use super::limit::{KeyPart, Limit, RuleTemplate, key_fault, name_fault, same_name_fault};
use super::matching::Match;
use super::{Policy, WhenMissing};
use crate::fault::{Fault, Faults};

impl Limit {
    /// A limit on all requests, which share one key. [`key`](Self::key) gives each user or address its own.
    ///
    /// Clients see the name in headers and answers. [`Policy::from_limits`] checks it, and has an example.
    pub fn new(name: impl Into<String>, rule: impl Into<Rule>) -> Self {
        let rule = rule.into();
        Self {
            name: name.into(),
            applies_to: Match::default(),
            key: Vec::new(),
            descriptor: None,
            rule,
            tiers: HashMap::new(),
            shadow: false,
            when_missing: WhenMissing::default(),
            on_error: None,
            is_exact: false,
            template: RuleTemplate::of(&rule),
            written: Vec::new(),
        }
    }

    /// Sets the attributes that the limit counts by, as `key` in a policy file does. For example: `ip`, `method`, `path`, `host`,
    /// a header such as `header.x-api-key`, or `user|ip` for the first of several that a request has.
    ///
    /// ```
    /// use tollgate::{Rate, TokenBucket};
    /// use tollgate_policy::Limit;
    ///
    /// let limit = Limit::new("searches", TokenBucket::new(Rate::per_second(5)?, 10)?).key(["user|ip", "path"]);
    /// assert_eq!(limit.key.len(), 2);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    #[must_use]
    pub fn key<I: IntoIterator<Item: AsRef<str>>>(mut self, attributes: I) -> Self {
        self.key = attributes.into_iter().map(|part| KeyPart::parse(part.as_ref())).collect();
        self
    }
}

impl Policy {
    /// A policy that has these limits. All other settings have their defaults and can be set as fields.
    ///
    /// It is a policy like one from a file: a request is charged by all of its limits or by none, and clients get the same
    /// headers and answers.
    ///
    /// ```
    /// use tollgate::{Concurrency, Rate, TokenBucket};
    /// use tollgate_policy::{Engine, Limit, Policy};
    ///
    /// let per_address = Limit::new("per-address", TokenBucket::new(Rate::per_second(5)?, 10)?).key(["ip"]);
    /// let in_flight = Limit::new("in-flight", Concurrency::new(100, None)?);
    /// let engine = Engine::new(Policy::from_limits([per_address, in_flight])?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// All faults that a policy file with these limits would have: a name or a key that cannot be one, or two limits of one name.
    ///
    /// ```
    /// use tollgate::{Concurrency, RuleError};
    /// use tollgate_policy::{Limit, Policy};
    ///
    /// let faults = Policy::from_limits([Limit::new("in flight", Concurrency::new(100, None)?)]).unwrap_err();
    /// assert_eq!(faults.iter().next().unwrap().message, "`in flight` cannot be a name");
    /// # Ok::<(), RuleError>(())
    /// ```
    pub fn from_limits(limits: impl IntoIterator<Item = Limit>) -> Result<Self, Faults> {
        let limits: Vec<Limit> = limits.into_iter().collect();
        let (mut source, mut names) = (Source::default(), HashSet::new());
        for limit in &limits {
            source.text.push_str("Limit::new(");
            let span = source.push(&limit.name);
            match name_fault(&limit.name, span.clone()) {
                Some(fault) => source.faults.push(fault),
                None if names.insert(limit.name.as_str()) => {}
                None => source.faults.push(same_name_fault(&limit.name, span)),
            }
            source.text.push_str(", …).key([");
            for (index, part) in limit.key.iter().enumerate() {
                source.text.push_str(if index > 0 { ", " } else { "" });
                let text = part.to_string();
                let span = source.push(&text);
                source.faults.extend(key_fault(part, &text, span));
            }
            source.text.push_str("])\n");
        }
        match source.faults.is_empty() {
            true => Ok(Self { limits, ..Self::default() }),
            false => Err(Faults {
                file: "limits".to_owned(),
                source: source.text,
                faults: source.faults,
                line_numbers: None,
            }),
        }
    }
}

/// The limits as text, in which faults have their place.
#[derive(Default)]
struct Source {
    text: String,
    faults: Vec<Fault>,
}

impl Source {
    /// Adds a string in quotes, and returns its place.
    fn push(&mut self, string: &str) -> Range<usize> {
        let start = self.text.len();
        self.text.push_str(&format!("{string:?}"));
        start..self.text.len()
    }
}

#[cfg(test)]
mod tests;
