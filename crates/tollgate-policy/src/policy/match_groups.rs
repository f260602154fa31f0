//! Which of many matches may hold for one request, of which only some attributes are known.
//!
//! A match may hold if its conditions on the known attributes hold. Matches that are the same in these conditions make one group, and
//! an index finds the few groups that the values of the attributes may fit.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::{Match, Patterns};
use crate::compiled::{AttributeValues, IndexEntry, MatchIndex, NameId};

/// Matches, grouped by the conditions that they have on some attributes.
#[derive(Debug, Default)]
pub(super) struct MatchGroups<'p> {
    names: HashMap<&'p str, NameId>,
    matches: Vec<Conditions<'p>>,
    by_attributes: HashMap<Attributes, Groups<'p>>,
    #[cfg(test)]
    compared: usize,
}

type Attributes = SmallVec<[NameId; 4]>;
type Conditions<'p> = SmallVec<[(NameId, &'p Patterns); 4]>;

/// The groups for one set of known attributes.
#[derive(Debug, Default)]
struct Groups<'p> {
    groups: Vec<Group<'p>>,
    index: MatchIndex,
}

#[derive(Debug)]
struct Group<'p> {
    conditions: Conditions<'p>,
    members: Vec<u32>,
}

/// The known values, in order of their attributes.
struct KnownValues<'s>(SmallVec<[(NameId, &'s str); 4]>);

impl<'s> AttributeValues<'s> for KnownValues<'s> {
    fn get(&self, attribute: NameId) -> Option<&'s str> {
        self.0.iter().find(|(known, _)| *known == attribute).map(|(_, value)| *value)
    }

    fn iter(&self) -> impl Iterator<Item = (NameId, &'s str)> {
        self.0.iter().copied()
    }
}

impl<'p> MatchGroups<'p> {
    pub(super) fn new(matches: impl Iterator<Item = &'p Match>) -> Self {
        let mut groups = Self::default();
        for each in matches {
            let mut conditions = Conditions::new();
            for condition in each.conditions() {
                let next = groups.names.len() as NameId;
                let name = *groups.names.entry(condition.attribute.as_str()).or_insert(next);
                conditions.push((name, &condition.patterns));
            }
            groups.matches.push(conditions);
        }
        groups
    }

    /// Groups of matches that may hold for a request with these attributes, and perhaps others. Each group has the places of its
    /// matches, in order.
    pub(super) fn may_hold(&mut self, attributes: &[(&str, String)]) -> impl Iterator<Item = &[u32]> {
        let mut values = KnownValues(SmallVec::new());
        for (name, value) in attributes {
            if let Some(&name) = self.names.get(name) {
                values.0.push((name, value.as_str()));
            }
        }
        values.0.sort_by_key(|(name, _)| *name); // stable: if a name comes twice, its first value counts
        values.0.dedup_by_key(|(name, _)| *name);
        let names: Attributes = values.0.iter().map(|(name, _)| *name).collect();
        let matches = &self.matches;
        let groups = self.by_attributes.entry(names).or_insert_with_key(|names| Groups::new(matches, names));
        let candidates = groups.index.candidates(&values);
        #[cfg(test)]
        {
            self.compared += candidates.len();
        }
        let groups: Vec<&[u32]> = candidates
            .iter()
            .map(|&place| &groups.groups[place as usize])
            .filter(|group| group.holds(&values))
            .map(|group| group.members.as_slice())
            .collect();
        groups.into_iter()
    }
}

impl<'p> Groups<'p> {
    fn new(matches: &[Conditions<'p>], known: &Attributes) -> Self {
        let mut groups: Vec<Group<'p>> = Vec::new();
        let mut by_conditions: HashMap<Conditions<'p>, usize> = HashMap::new();
        for (place, conditions) in (0..).zip(matches) {
            let is_known = |(name, _): &&(NameId, &Patterns)| known.contains(name);
            let conditions: Conditions<'p> = conditions.iter().filter(is_known).copied().collect();
            let number = *by_conditions.entry(conditions).or_insert_with_key(|conditions| {
                groups.push(Group { conditions: conditions.clone(), members: Vec::new() });
                groups.len() - 1
            });
            groups[number].members.push(place);
        }
        let entry = |(place, group): (u32, &Group<'p>)| {
            let conditions = group.conditions.iter().map(|(name, patterns)| (*name, &***patterns));
            IndexEntry { place, conditions: conditions.collect() }
        };
        let index = MatchIndex::new((0..).zip(&groups).map(entry));
        Self { groups, index }
    }
}

impl Group<'_> {
    fn holds(&self, values: &KnownValues<'_>) -> bool {
        let holds = |(name, patterns): &(NameId, &Patterns)| {
            values.get(*name).is_none_or(|value| patterns.match_value(value))
        };
        self.conditions.iter().all(holds)
    }
}

#[cfg(test)]
mod tests;
