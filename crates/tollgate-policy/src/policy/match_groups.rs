//! Which of many matches may hold for one request, of which only some attributes are known.
//!
//! A match may hold if its conditions on the known attributes hold. Matches that are the same in these conditions make one group, and
//! an index finds the few groups that the values of the attributes may fit. Each set of known attributes has its own
//! groups. So that there are few sets, attributes that only a few matches look at are left out, and these matches are
//! tested one by one.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::{Match, Patterns};
use crate::compiled::{AttributeValues, IndexEntry, MatchIndex, NameId};

/// An attribute is rare if at most this many matches look at it.
const MOST_OF_RARE: usize = 16;

/// Matches, grouped by the conditions that they have on some attributes.
#[derive(Debug, Default)]
pub(super) struct MatchGroups<'p> {
    names: HashMap<&'p str, NameId>,
    matches: Vec<Conditions<'p>>,
    looking_at: Vec<Vec<u32>>, // for each attribute, the places of the matches that look at it
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

/// The matches that may hold for a request.
#[derive(Debug)]
pub(super) struct Held<'g> {
    groups: Vec<&'g [u32]>,
    broken: SmallVec<[u32; 4]>, // members of the groups that do not hold, each once
}

impl Held<'_> {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.groups.iter().map(|group| group.len()).sum::<usize>() - self.broken.len()
    }

    /// Their places, in order within each group. Of each group, only the places before the first one that does not fit.
    pub(super) fn places_while(&self, fits: impl Fn(u32) -> bool) -> impl Iterator<Item = u32> {
        let places = self.groups.iter().flat_map(move |group| {
            let end = group.iter().position(|&place| !fits(place)).unwrap_or(group.len());
            &group[..end]
        });
        places.copied().filter(|place| !self.broken.contains(place))
    }
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
        for (place, each) in (0..).zip(matches) {
            let mut conditions = Conditions::new();
            for condition in each.conditions() {
                let next = groups.names.len() as NameId;
                let name = *groups.names.entry(condition.attribute.as_str()).or_insert(next);
                conditions.push((name, &condition.patterns));
                groups.looking_at.resize_with(groups.names.len(), Vec::new);
                let looking_at = &mut groups.looking_at[name as usize];
                if looking_at.last() != Some(&place) {
                    looking_at.push(place);
                }
            }
            groups.matches.push(conditions);
        }
        groups
    }

    /// The matches that may hold for a request with these attributes, and perhaps others.
    pub(super) fn may_hold(&mut self, attributes: &[(&str, String)]) -> Held<'_> {
        let mut values = KnownValues(SmallVec::new());
        for (name, value) in attributes {
            if let Some(&name) = self.names.get(name) {
                values.0.push((name, value.as_str()));
            }
        }
        values.0.sort_by_key(|(name, _)| *name); // stable: if a name comes twice, its first value counts
        values.0.dedup_by_key(|(name, _)| *name);
        let is_rare = |name: NameId| self.looking_at[name as usize].len() <= MOST_OF_RARE;
        let names = || values.0.iter().map(|(name, _)| *name);
        let common: Attributes = names().filter(|name| !is_rare(*name)).collect();
        let mut broken: SmallVec<[u32; 4]> = SmallVec::new();
        for &place in names().filter(|name| is_rare(*name)).flat_map(|name| &self.looking_at[name as usize]) {
            #[cfg(test)]
            {
                self.compared += 1;
            }
            let conditions = &self.matches[place as usize];
            let (rare, common): (Conditions<'p>, Conditions<'p>) =
                conditions.iter().copied().partition(|(name, _)| is_rare(*name));
            if hold(&common, &values) && !hold(&rare, &values) && !broken.contains(&place) {
                broken.push(place);
            }
        }
        let matches = &self.matches;
        let groups = self.by_attributes.entry(common).or_insert_with_key(|names| Groups::new(matches, names));
        let candidates = groups.index.candidates(&values);
        #[cfg(test)]
        {
            self.compared += candidates.len();
        }
        let groups = candidates.iter().map(|&place| &groups.groups[place as usize]);
        let groups = groups.filter(|group| hold(&group.conditions, &values));
        Held { groups: groups.map(|group| group.members.as_slice()).collect(), broken }
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

/// Whether conditions hold, as far as the values are known.
fn hold(conditions: &Conditions<'_>, values: &KnownValues<'_>) -> bool {
    let holds = |(name, patterns): &(NameId, &Patterns)| {
        values.get(*name).is_none_or(|value| patterns.match_value(value))
    };
    conditions.iter().all(holds)
}

#[cfg(test)]
mod tests;
