//! The attributes of a request, by the names that a policy looks at.

use smallvec::SmallVec;

use crate::host::{host_name, is_host_attribute};
use crate::policy::Entry;

/// Every attribute that the policy looks at, each once, in order.
#[derive(Debug, Default)]
pub(crate) struct Names {
    names: Vec<String>,
    hosts: SmallVec<[NameId; 2]>, // those that are hosts
    tier: Option<NameId>,
}

/// The place of an attribute among them.
pub(crate) type NameId = u32;

/// The values of a request, by the attributes that the policy looks at.
#[derive(Default)]
pub(crate) struct Values<'a> {
    by_name: SmallVec<[Option<&'a str>; 8]>, // one for each name, if there are few names
    present: Option<Box<PresentValues<'a>>>, // if there are many names
    all: &'a [(&'a str, &'a str)],           // as they came
}

/// The values that a request has, in order of their names.
type PresentValues<'a> = SmallVec<[(NameId, &'a str); 8]>;

/// With more names, only the values that a request has are kept. Otherwise each request would take time by the number of names.
const MOST_NAMES_EACH: usize = 32;

/// Who is asking, where a policy tells tenants apart.
pub(crate) const TENANT: &str = "tenant";
/// The class of the tenant: derived, never taken from the caller.
pub(crate) const TIER: &str = "tier";

impl Names {
    pub(crate) fn new(names: impl Iterator<Item = String>) -> Self {
        let mut names: Vec<String> = names.collect();
        names.sort_unstable_by(|a, b| order(a, b));
        names.dedup();
        let hosts = (0..).zip(&names).filter(|(_, name)| is_host_attribute(name)).map(|(id, _)| id).collect();
        let mut names = Self { names, hosts, tier: None };
        names.tier = names.place(TIER);
        names
    }

    /// The place of a name, if the policy looks at it.
    pub(crate) fn place(&self, name: &str) -> Option<NameId> {
        let place = self.names.binary_search_by(|known| order(known, name)).ok()?;
        NameId::try_from(place).ok()
    }

    pub(crate) fn name(&self, id: NameId) -> &str {
        &self.names[id as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// What a request has of each, a host without its port. Of a name that comes twice, the first counts.
    #[inline(always)] // the result is large, and this is part of every check
    pub(crate) fn values<'a>(
        &self,
        attributes: &'a [(&'a str, &'a str)],
        tier: Option<&'a str>,
    ) -> Values<'a> {
        if self.names.len() > MOST_NAMES_EACH {
            return self.present_values(attributes, tier);
        }
        let mut values: SmallVec<[Option<&'a str>; 8]> = SmallVec::from_elem(None, self.names.len());
        for (name, value) in attributes {
            if let Some(place) = self.place(name) {
                let value = if self.hosts.contains(&place) { host_name(value) } else { value };
                values[place as usize].get_or_insert(value);
            }
        }
        if let Some(place) = self.tier {
            values[place as usize] = tier;
        }
        Values { by_name: values, present: None, all: attributes }
    }

    /// [`values`](Self::values) where there are many names.
    #[cold]
    fn present_values<'a>(&self, attributes: &'a [(&'a str, &'a str)], tier: Option<&'a str>) -> Values<'a> {
        let of_attribute = |(name, value): &(&'a str, &'a str)| {
            let place = self.place(name).filter(|place| Some(*place) != self.tier)?;
            Some((place, if self.hosts.contains(&place) { host_name(value) } else { value }))
        };
        let mut present: PresentValues<'a> = attributes.iter().filter_map(of_attribute).collect();
        present.extend(self.tier.zip(tier));
        present.sort_by_key(|(place, _)| *place); // stable: the first of a name stays first
        present.dedup_by_key(|(place, _)| *place);
        Values { by_name: SmallVec::new(), present: Some(Box::new(present)), all: attributes }
    }
}

/// By length first: most names differ in it, and it is compared at once.
fn order(a: &str, b: &str) -> std::cmp::Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

impl<'a> Values<'a> {
    #[inline]
    pub(crate) fn get(&self, id: NameId) -> Option<&'a str> {
        match self.by_name.get(id as usize) {
            Some(value) => *value,
            None => self.get_present(id),
        }
    }

    #[cold]
    fn get_present(&self, id: NameId) -> Option<&'a str> {
        let present = self.present.as_ref()?;
        let place = present.binary_search_by_key(&id, |(known, _)| *known).ok()?;
        Some(present[place].1)
    }

    /// The attributes that the request has, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NameId, &'a str)> {
        let by_name = (0..).zip(&self.by_name).filter_map(|(id, value)| Some((id, (*value)?)));
        by_name.chain(self.present.iter().flat_map(|present| present.iter().copied()))
    }

    /// The attributes as they came.
    pub(crate) const fn all(&self) -> &'a [(&'a str, &'a str)] {
        self.all
    }

    /// The value of an attribute as it came, a host with its port.
    pub(crate) fn as_it_came(&self, name: &str) -> Option<&'a str> {
        self.all.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// What it has of the entries of an Envoy descriptor, in order: they follow `domain`. Values that share one count are left
    /// out. A key stands before its value where the entry has a `*` in its key, and everywhere if a key differs from that of its
    /// entry: `a_x` finds the rule of key `a` and value `x`, and has a count of its own.
    pub(crate) fn of_entries<'e>(
        &'e self,
        entries: &'e [Entry],
    ) -> impl Iterator<Item = &'a str> + Clone + 'e {
        let sent = self.all.get(1..).unwrap_or_default();
        let differs =
            entries.iter().zip(sent).any(|(entry, (key, _))| !entry.has_key_star() && *key != entry.key);
        entries.iter().enumerate().flat_map(move |(i, entry)| {
            let (key, value) = self.all.get(i + 1).copied().unwrap_or_default();
            let key = (entry.has_key_star() || differs).then_some(key);
            key.into_iter().chain((!entry.share_threshold).then_some(value))
        })
    }
}
