//! Tenants that differ from the rest: their tiers, their weights, and numbers of their own.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::{Index, Range};
use std::sync::Arc;

use indexmap::IndexMap;
use tollgate::{Rule, Weight};

use super::limit::{ReadLimit, RuleTemplate};
use super::numbers::Numbers;
use super::{unknown_tier, weight};
use crate::fault::Fault;
use crate::keys;
use crate::reader::{Reader, nearest, quoted_names};
use crate::yaml::{Node, Value};

/// Tenants that differ from the rest, by name. Clones share the list, so that a copy of a policy costs the same with a million
/// tenants as with none.
#[derive(Clone, Debug, Default)]
pub struct Tenants(Arc<List>);

#[derive(Clone, Debug, Default)]
struct List {
    by_name: IndexMap<String, Tenant>,
    by_limit: HashMap<Arc<str>, Vec<u32>>, // the places in `by_name` of the tenants with numbers of their own
}

/// A tenant that differs from the rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenant {
    /// Its tier. None for the default tier.
    pub tier: Option<Arc<str>>,
    /// Its share in the fair queue, where that differs from the share of its tier.
    pub weight: Option<Weight>,
    /// Rules of its own, by limit.
    pub limits: OwnLimits,
    pub(super) is_in_file: bool, // whether it is a line of the tenants file
}

/// The rules that a tenant has of its own, by limit. Tenants with equal numbers share them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnLimits(Box<[Arc<OwnNumbers>]>); // in order of the limits' names

/// The numbers that a tenant has of a limit.
#[derive(Debug, PartialEq)]
pub(super) struct OwnNumbers {
    limit: Arc<str>,
    rule: Rule,
    numbers: Numbers, // with those of the tier and of the limit, where the tenant has none
    own: Numbers,     // only those that are written for the tenant
}

impl Tenants {
    /// The tenant of this name.
    pub fn get(&self, name: &str) -> Option<&Tenant> {
        self.0.by_name.get(name)
    }

    /// Where [`iter`](Self::iter) has the tenant of this name.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.0.by_name.get_index_of(name)
    }

    /// Whether there is a tenant of this name.
    pub fn contains_key(&self, name: &str) -> bool {
        self.0.by_name.contains_key(name)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.by_name.len()
    }

    /// Whether there are no tenants.
    pub fn is_empty(&self) -> bool {
        self.0.by_name.is_empty()
    }

    /// All of them with their names: those of the policy file, then those of the tenants file, in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&String, &Tenant)> + Clone {
        self.0.by_name.iter()
    }

    /// All of them.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &Tenant> + Clone {
        self.0.by_name.values()
    }

    /// Those with numbers of their own of a limit, in the order of [`iter`](Self::iter). Other tenants are not looked at.
    pub fn with_numbers_of(&self, limit: &str) -> impl ExactSizeIterator<Item = (&String, &Tenant)> + Clone {
        let places = self.0.by_limit.get(limit).map_or(&[][..], Vec::as_slice);
        places.iter().map(|place| {
            let tenant = self.0.by_name.get_index(*place as usize);
            tenant.unwrap_or_else(|| unreachable!("tenants are never removed from a list"))
        })
    }

    /// The rules that tenants have of their own of a limit.
    pub fn rules_of<'t>(&'t self, limit: &'t str) -> impl Iterator<Item = &'t Rule> + Clone {
        self.with_numbers_of(limit).filter_map(move |(_, tenant)| tenant.limits.get(limit))
    }

    /// Whether the tenants file has another line for a tenant than it had in the list before. A line that is only formatted
    /// in another way is the same line, and so is one whose limit has changed.
    pub(crate) fn has_other_line(&self, tenant: &str, before: &Self) -> bool {
        match (self.line(tenant), before.line(tenant)) {
            (Some(now), Some(before)) => now.tier != before.tier || !now.limits.is_written_as(&before.limits),
            (now, before) => now.is_some() != before.is_some(),
        }
    }

    /// The tenant of this name, if it is a line of the tenants file.
    fn line(&self, tenant: &str) -> Option<&Tenant> {
        self.get(tenant).filter(|tenant| tenant.is_in_file)
    }

    /// Those that are in the policy file itself.
    pub(super) fn without_file(&self) -> IndexMap<String, Tenant> {
        let in_policy = self.iter().filter(|(_, tenant)| !tenant.is_in_file);
        in_policy.map(|(name, tenant)| (name.clone(), tenant.clone())).collect()
    }
}

impl From<IndexMap<String, Tenant>> for Tenants {
    fn from(by_name: IndexMap<String, Tenant>) -> Self {
        let mut by_limit: HashMap<Arc<str>, Vec<u32>> = HashMap::new();
        for (place, tenant) in (0..).zip(by_name.values()) {
            for numbers in &tenant.limits.0 {
                match by_limit.get_mut(&numbers.limit) {
                    Some(places) => places.push(place),
                    None => _ = by_limit.insert(Arc::clone(&numbers.limit), vec![place]),
                }
            }
        }
        Self(Arc::new(List { by_name, by_limit }))
    }
}

impl Extend<(String, Tenant)> for Tenants {
    fn extend<I: IntoIterator<Item = (String, Tenant)>>(&mut self, tenants: I) {
        let mut by_name = std::mem::take(&mut Arc::make_mut(&mut self.0).by_name);
        by_name.extend(tenants);
        *self = by_name.into();
    }
}

impl PartialEq for Tenants {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.by_name == other.0.by_name
    }
}

impl Index<&str> for Tenants {
    type Output = Tenant;

    fn index(&self, name: &str) -> &Tenant {
        &self.0.by_name[name]
    }
}

impl Tenant {
    /// The numbers of its own that it has of a limit, each with its name, as the file would have them.
    pub fn numbers(&self, limit: &str) -> Vec<(&'static str, String)> {
        self.limits.find(limit).map_or(Vec::new(), |own| own.numbers.pairs())
    }

    /// Whether nothing passes with its own numbers of a limit, because they have `limit: 0`. The rule does not show this.
    pub fn is_blocked(&self, limit: &str) -> bool {
        self.limits.find(limit).is_some_and(|own| own.numbers.is_blocked())
    }
}

impl OwnLimits {
    pub(super) fn new(mut numbers: Vec<Arc<OwnNumbers>>) -> Self {
        numbers.sort_unstable_by(|a, b| a.limit.cmp(&b.limit));
        Self(numbers.into())
    }

    /// The rule of a limit.
    pub fn get(&self, limit: &str) -> Option<&Rule> {
        self.find(limit).map(|own| &own.rule)
    }

    /// Whether there is a rule of a limit.
    pub fn contains_key(&self, limit: &str) -> bool {
        self.find(limit).is_some()
    }

    /// Whether the tenant has no rules of its own.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, with the names of their limits, in order of the names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Rule)> + Clone {
        self.0.iter().map(|own| (&*own.limit, &own.rule))
    }

    /// Whether the same numbers are written, whatever the limits and tiers add to them.
    fn is_written_as(&self, other: &Self) -> bool {
        self.0.iter().map(|own| (&own.limit, &own.own)).eq(other.0.iter().map(|own| (&own.limit, &own.own)))
    }

    fn find(&self, limit: &str) -> Option<&OwnNumbers> {
        let place = self.0.binary_search_by(|own| (*own.limit).cmp(limit)).ok()?;
        Some(&self.0[place])
    }
}

impl Index<&str> for OwnLimits {
    type Output = Rule;

    fn index(&self, limit: &str) -> &Rule {
        self.get(limit).expect("a limit that the tenant has numbers of")
    }
}

/// Reads tenants, of the policy file and of the tenants file. Equal numbers are read once.
pub(super) struct TenantReader<'p> {
    tiers: HashMap<&'p str, (u32, Arc<str>)>,
    tier_names: &'p [String],
    default_tier: Option<u32>,
    limits: HashMap<&'p str, KnownLimit<'p>>,
    limit_names: Vec<&'p str>, // in the order of the file
    shared: HashMap<(u32, Option<u32>), HashMap<String, Arc<OwnNumbers>>>, // by limit and tier, then by the text
}

struct KnownLimit<'p> {
    place: u32,
    name: Arc<str>,
    template: Option<&'p RuleTemplate>, // none where the limit is faulty
}

/// One of the tiers, by its number and name.
#[derive(Clone, Debug)]
pub(super) struct KnownTier {
    number: u32,
    pub(super) name: Arc<str>,
}

impl<'p> TenantReader<'p> {
    pub(super) fn new(
        tier_names: &'p [String],
        default_tier: Option<&str>,
        limits: impl Iterator<Item = (&'p str, Option<&'p RuleTemplate>)>,
    ) -> Self {
        let tiers =
            (0..).zip(tier_names).map(|(number, name)| (name.as_str(), (number, Arc::from(name.as_str()))));
        let tiers: HashMap<&str, (u32, Arc<str>)> = tiers.collect();
        let (mut known, mut limit_names) = (HashMap::new(), Vec::new());
        for (place, (name, template)) in (0..).zip(limits) {
            // Where two limits have one name, which is a fault, the first counts.
            known.entry(name).or_insert_with(|| KnownLimit { place, name: Arc::from(name), template });
            limit_names.push(name);
        }
        Self {
            default_tier: default_tier.and_then(|tier| tiers.get(tier)).map(|(number, _)| *number),
            tiers,
            tier_names,
            limits: known,
            limit_names,
            shared: HashMap::new(),
        }
    }

    /// The tenants of the policy file.
    pub(super) fn tenants(mut self, reader: &Reader<'_>, node: &Node) -> Tenants {
        let mut by_name = IndexMap::new();
        for (name, _, node) in reader.named(node) {
            let Some(section) = reader.section(node, keys::TENANT) else { continue };
            let tier = section.get("tier").and_then(|node| {
                let name = reader.text(node)?;
                self.tier(&name, node.span.clone()).map_err(|fault| reader.fault(fault)).ok()
            });
            let mut own = Vec::new();
            for (limit, key, node) in section.get("limits").map_or(Vec::new(), |node| reader.named(node)) {
                let text = text_of(node);
                own.extend(self.own(
                    reader,
                    (&limit, key.span.clone()),
                    tier.as_ref(),
                    text.as_deref(),
                    || Cow::Borrowed(node),
                ));
            }
            let weight = weight(reader, &section);
            let tier = tier.map(|tier| tier.name);
            by_name.insert(name, Tenant { tier, weight, limits: OwnLimits::new(own), is_in_file: false });
        }
        by_name.into()
    }

    /// The tier of this name.
    pub(super) fn tier(&self, name: &str, span: Range<usize>) -> Result<KnownTier, Fault> {
        match self.tiers.get(name) {
            Some((number, name)) => Ok(KnownTier { number: *number, name: Arc::clone(name) }),
            None => Err(unknown_tier(span, name, self.tier_names)),
        }
    }

    /// The numbers that a tenant of this tier has of a limit. Where a tenant of the tier had the same `text` of numbers before,
    /// they are shared and `node` is not asked for.
    pub(super) fn own<'n>(
        &mut self,
        reader: &Reader<'_>,
        (limit, span): (&str, Range<usize>),
        tier: Option<&KnownTier>,
        text: Option<&str>,
        node: impl FnOnce() -> Cow<'n, Node>,
    ) -> Option<Arc<OwnNumbers>> {
        let Some(known) = self.limits.get(limit) else {
            let names = || self.limit_names.iter().copied();
            let fault = Fault::new(span, format!("unknown limit `{limit}`"));
            reader.fault(fault.help(match nearest(limit, names()) {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => format!("the limits are {}", quoted_names(names())),
            }));
            return None;
        };
        let in_tier = tier.map(|tier| tier.number).or(self.default_tier);
        let shared = self.shared.entry((known.place, in_tier)).or_default();
        if let Some(numbers) = text.and_then(|text| shared.get(text)) {
            return Some(Arc::clone(numbers));
        }
        let in_tier = in_tier.map(|number| self.tier_names[number as usize].as_str());
        let faults = reader.fault_count();
        let node = node();
        let Some(template) = known.template else {
            let section = reader.section(&node, keys::NUMBERS)?;
            Numbers::read(reader, None, &section);
            return None;
        };
        let (rule, own, numbers) = template.tenant_rule(reader, &node, in_tier)?;
        if reader.fault_count() > faults {
            return None; // each tenant that has the fault is to report it
        }
        let numbers = Arc::new(OwnNumbers { limit: Arc::clone(&known.name), rule, numbers, own });
        if let Some(text) = text {
            shared.insert(text.to_owned(), Arc::clone(&numbers));
        }
        Some(numbers)
    }
}

/// The limits that were read, as [`TenantReader::new`] takes them.
pub(super) fn known_limits(limits: &[ReadLimit]) -> impl Iterator<Item = (&str, Option<&RuleTemplate>)> {
    limits.iter().filter_map(|limit| Some((limit.name()?, limit.template())))
}

/// One text for equal numbers. None where the value of an environment variable is part of them.
fn text_of(node: &Node) -> Option<String> {
    let Value::Map(entries) = &node.value else { return None };
    let mut text = String::new();
    for (key, value) in entries {
        let Value::Text(key) = &key.value else { return None };
        match &value.value {
            Value::Text(value) if !value.contains('$') => add_number(&mut text, key, value),
            Value::Integer(value) => add_number(&mut text, key, &value.to_string()),
            _ => return None,
        }
    }
    Some(text)
}

/// Adds a number to the text by which equal numbers are found.
pub(super) fn add_number(text: &mut String, key: &str, value: &str) {
    // The lengths keep two lists of numbers apart, whatever they contain.
    let _ = write!(text, "{}:{key}{}:{value}", key.len(), value.len());
}

#[cfg(test)]
pub(super) mod tests;
