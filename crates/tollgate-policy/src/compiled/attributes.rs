//! The attributes of a request, by the names that a policy looks at.

use smallvec::SmallVec;

use crate::host::{host_name, is_host_attribute};
use crate::policy::Entry;

/// Every attribute that the policy looks at, each once, in order.
#[derive(Debug, Default)]
pub(crate) struct Names {
    names: Vec<String>,
    hosts: SmallVec<[NameId; 2]>, // those that are hosts
}

/// The place of an attribute among them.
pub(crate) type NameId = u16;

/// What a request has of each.
#[derive(Default)]
pub(crate) struct Values<'a> {
    by_name: SmallVec<[Option<&'a str>; 8]>,
    all: &'a [(&'a str, &'a str)], // as they came
}

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
        Self { names, hosts }
    }

    /// The place of a name, if the policy looks at it.
    pub(crate) fn place(&self, name: &str) -> Option<NameId> {
        let place = self.names.binary_search_by(|known| order(known, name)).ok()?;
        NameId::try_from(place).ok()
    }

    pub(crate) fn name(&self, id: NameId) -> &str {
        &self.names[usize::from(id)]
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
        let mut values: SmallVec<[Option<&'a str>; 8]> = SmallVec::from_elem(None, self.names.len());
        for (name, value) in attributes {
            if let Some(place) = self.place(name) {
                let value = if self.hosts.contains(&place) { host_name(value) } else { value };
                values[usize::from(place)].get_or_insert(value);
            }
        }
        if let Some(place) = self.place(TIER) {
            values[usize::from(place)] = tier;
        }
        Values { by_name: values, all: attributes }
    }
}

/// By length first: most names differ in it, and it is compared at once.
fn order(a: &str, b: &str) -> std::cmp::Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

impl<'a> Values<'a> {
    pub(crate) fn get(&self, id: NameId) -> Option<&'a str> {
        self.by_name[usize::from(id)]
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
