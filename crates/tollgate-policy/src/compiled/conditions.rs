//! Which requests something applies to. Attributes are known by their place.

use super::attributes::{NameId, Names, Values};
use super::index::IndexEntry;
use crate::environment_values::EnvironmentValues;
use crate::policy::{Match, Pattern, Patterns};

/// The conditions of a `match`, all of which must hold.
#[derive(Debug)]
pub(crate) struct Conditions(Vec<Condition>);

/// An attribute must be there and match one of several patterns.
#[derive(Debug)]
pub(crate) struct Condition {
    attribute: NameId,
    patterns: Patterns,
    host: Option<String>, // the attribute's name, where the port counts
}

impl Conditions {
    pub(crate) fn new(applies_to: &Match, names: &Names) -> Self {
        let condition = |condition: &crate::policy::Condition| {
            let attribute =
                names.place(&condition.attribute).expect("every attribute of the policy has a place");
            let has_port = condition.patterns.iter().any(Pattern::has_port);
            let host = has_port.then(|| condition.attribute.clone());
            Condition { attribute, patterns: condition.patterns.clone(), host }
        };
        Self(applies_to.conditions().iter().map(condition).collect())
    }

    /// The conditions as an index files them, under this place.
    pub(super) fn index_entry(&self, place: u32) -> IndexEntry<'_> {
        let conditions = self.0.iter().map(|condition| (condition.attribute, &*condition.patterns));
        IndexEntry { place, conditions: conditions.collect() }
    }

    /// Whether a request matches. A missing attribute matches nothing, not even `*`.
    pub(crate) fn hold(&self, values: &Values<'_>) -> bool {
        self.0.iter().all(|condition| condition.holds(values))
    }

    /// The first that does not hold.
    pub(crate) fn broken(&self, values: &Values<'_>) -> Option<&Condition> {
        self.0.iter().find(|condition| !condition.holds(values))
    }
}

impl Condition {
    fn holds(&self, values: &Values<'_>) -> bool {
        let value = match &self.host {
            Some(host) => values.as_it_came(host),
            None => values.get(self.attribute),
        };
        value.is_some_and(|value| self.patterns.match_value(value))
    }

    /// Why it does not hold, in words.
    pub(crate) fn why(
        &self,
        names: &Names,
        values: &Values<'_>,
        environment_values: &EnvironmentValues,
    ) -> String {
        let shown = |pattern: &Pattern| format!("`{}`", environment_values.as_written(pattern.written()));
        let patterns: Vec<String> = self.patterns.iter().map(shown).collect();
        let (name, patterns) = (names.name(self.attribute), patterns.join(" or "));
        match values.get(self.attribute) {
            Some(value) => format!("`{name}` is `{value}`, which does not match {patterns}"),
            None => format!("`{name}` is missing; it would have to match {patterns}"),
        }
    }
}
