//! One limit: a named rule, the requests it applies to, and what it counts by.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use tollgate::{AlgorithmKind, Rule};

use super::descriptor::{Descriptor, Entry};
use super::matching::Match;
use super::numbers::{Algorithm, Holding, Numbers, strict_counter};
use super::unknown_tier;
use crate::fault::Fault;
use crate::keys;
use crate::quantity::duration_text;
use crate::reader::{Reader, Section, quoted};
use crate::yaml::Node;

/// A limit of the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// Its name, in answers and headers.
    pub name: String,
    /// The requests it applies to.
    pub applies_to: Match,
    /// What it counts by, part by part; none for one key for everybody.
    pub key: Vec<KeyPart>,
    /// The Envoy descriptor it applies to, and counts by the values of.
    pub descriptor: Option<Descriptor>,
    /// Its rule, for those who have no other.
    pub rule: Rule,
    /// The rule of those tiers that have another.
    pub tiers: HashMap<String, Rule>,
    /// Whether it only watches.
    pub shadow: bool,
    /// What a request does that lacks an attribute of the key.
    pub when_missing: WhenMissing,
    /// What is decided when the store gives no answer, where that differs from the store's own word.
    pub on_error: Option<OnError>,
    /// Whether the store decides each request even if its mode is `lease`.
    pub is_exact: bool,
    pub(super) template: RuleTemplate,
    pub(super) written: Vec<(&'static str, String)>, // the file's own text for waits that came from the environment
}

/// How the rules of a limit are made: the algorithm, and the numbers of the limit and of its tiers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RuleTemplate {
    pub(super) algorithm: Algorithm,
    pub(super) holding: Option<Holding>,
    pub(super) numbers: Numbers,
    pub(super) tier_numbers: HashMap<String, Numbers>,
}

/// A limit of the file, or what could be read of one with faults: other parts of the file may refer to it.
#[derive(Debug)]
pub(super) enum ReadLimit {
    Valid(Box<Limit>),
    Faulty(Box<FaultyLimit>),
}

/// What could be read of a limit with faults.
#[derive(Debug)]
pub(super) struct FaultyLimit {
    name: Option<String>,
    descriptor: Option<Descriptor>,
    template: Option<RuleTemplate>,
}

impl ReadLimit {
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Valid(limit) => Some(&limit.name),
            Self::Faulty(limit) => limit.name.as_deref(),
        }
    }

    pub(super) const fn descriptor(&self) -> Option<&Descriptor> {
        match self {
            Self::Valid(limit) => limit.descriptor.as_ref(),
            Self::Faulty(limit) => limit.descriptor.as_ref(),
        }
    }

    pub(super) fn valid(self) -> Option<Limit> {
        match self {
            Self::Valid(limit) => Some(*limit),
            Self::Faulty(_) => None,
        }
    }

    /// How its rules are made. None where it has no algorithm.
    pub(super) fn template(&self) -> Option<&RuleTemplate> {
        match self {
            Self::Valid(limit) => Some(&limit.template),
            Self::Faulty(limit) => limit.template.as_ref(),
        }
    }
}

/// A part of a key: the first of these attributes that a request has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPart(pub Vec<String>);

impl KeyPart {
    /// Reads one or more attributes, such as `user|ip`.
    pub(super) fn parse(text: &str) -> Self {
        Self(text.split('|').map(|name| name.trim().to_owned()).collect())
    }
}

impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("|"))
    }
}

/// What a request does that lacks an attribute of a limit's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenMissing {
    /// It counts under the empty value, with all others that lack it.
    #[default]
    Share,
    /// The limit does not apply.
    Skip,
    /// It is denied.
    Deny,
}

/// What is decided when the store gives no answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The request passes.
    #[default]
    Allow,
    /// It is denied.
    Deny,
    /// This process decides by itself.
    Local,
}

impl OnError {
    pub(crate) fn read(reader: &Reader<'_>, section: &Section<'_>) -> Option<Self> {
        section.word(reader, "on_error").map(|place| [Self::Allow, Self::Deny, Self::Local][place])
    }
}

impl Limit {
    pub(super) fn read(
        reader: &Reader<'_>,
        section: &Section<'_>,
        place: usize,
        tiers: &[String],
    ) -> ReadLimit {
        let name = section.require(reader, "name", "per-tenant").and_then(|node| name(reader, node));
        let descriptor = section.get("descriptor").map(|node| Descriptor::read(reader, node, place));
        let key = if descriptor.is_some() {
            Self::refuse_beside_descriptor(reader, section);
            Some(Vec::new())
        } else {
            Self::refuse_without_descriptor(reader, section);
            section.require(reader, "key", "[tenant]").map(|node| Self::read_key(reader, node))
        };
        let applies_to = section.get("match").map(|node| Match::read(reader, node)).unwrap_or_default();
        let shadow = section.get("shadow").and_then(|node| reader.flag(node)).unwrap_or(false);
        let when_missing = Self::when_missing(reader, section);
        let on_error = OnError::read(reader, section);
        let is_exact = section.word(reader, "mode").is_some();
        let (mut template, rule) = RuleTemplate::read(reader, section).unzip();
        let tier_rules = Self::tiers(reader, section, template.as_mut(), tiers);
        let is_whole = descriptor.as_ref().is_none_or(Option::is_some);
        match (name, key, template, rule.flatten()) {
            (Some(name), Some(key), Some(template), Some(rule)) if is_whole => {
                ReadLimit::Valid(Box::new(Self {
                    name,
                    applies_to,
                    key,
                    descriptor: descriptor.flatten(),
                    rule,
                    tiers: tier_rules,
                    shadow,
                    when_missing,
                    on_error,
                    is_exact,
                    template,
                    written: Self::written_waits(reader, section),
                }))
            }
            (name, _, template, _) => {
                ReadLimit::Faulty(Box::new(FaultyLimit { name, descriptor: descriptor.flatten(), template }))
            }
        }
    }

    /// The rules of the tiers with numbers of their own.
    fn tiers(
        reader: &Reader<'_>,
        section: &Section<'_>,
        mut template: Option<&mut RuleTemplate>,
        tiers: &[String],
    ) -> HashMap<String, Rule> {
        let mut rules = HashMap::new();
        for (tier, name, node) in section.get("tiers").map_or(Vec::new(), |node| reader.named(node)) {
            if tiers.binary_search(&tier).is_err() {
                reader.fault(unknown_tier(name.span.clone(), &tier, tiers));
            }
            let Some(template) = template.as_deref_mut() else {
                if let Some(section) = reader.section(node, keys::NUMBERS) {
                    Numbers::read(reader, None, &section);
                }
                continue;
            };
            if let Some((rule, _, numbers)) = template.rule_of(reader, node, &template.numbers) {
                rules.insert(tier.clone(), rule);
                template.tier_numbers.insert(tier, numbers);
            }
        }
        rules
    }

    /// The rule for a tier, if it has one.
    pub fn rule_for(&self, tier: Option<&str>) -> &Rule {
        tier.and_then(|tier| self.tiers.get(tier)).unwrap_or(&self.rule)
    }

    /// Whether nothing passes with the numbers of a tier, or with the limit's own: the limit is 0, or the descriptor is
    /// `blocked`. The rule says nothing of it.
    pub fn is_blocked(&self, tier: Option<&str>) -> bool {
        self.has_blocked_descriptor() || self.template.numbers_of(tier).is_blocked()
    }

    /// Whether its descriptor blocks whatever the numbers are.
    pub(crate) fn has_blocked_descriptor(&self) -> bool {
        self.descriptor.as_ref().is_some_and(|descriptor| descriptor.blocked)
    }

    /// Whether the numbers of this limit and of its tiers decide like those of another.
    pub(super) fn decides_like(&self, other: &Self) -> bool {
        let blocks_like = |tier: Option<&str>| self.is_blocked(tier) == other.is_blocked(tier);
        self.rule == other.rule
            && self.tiers == other.tiers
            && blocks_like(None)
            && self.tiers.keys().all(|tier| blocks_like(Some(tier)))
    }

    /// Whether it counts by anything, or has one key for everybody.
    pub fn has_keys(&self) -> bool {
        let of_descriptor = self.descriptor.iter().flat_map(|descriptor| &descriptor.entries);
        !self.key.is_empty() || of_descriptor.into_iter().any(Entry::has_many)
    }

    /// Whether each of its keys belongs to one tenant, and so to one tier at a time.
    pub(crate) fn counts_by_tenant(&self) -> bool {
        // `tenant|user` takes other values where there is no tenant, which callers of another tier may have chosen.
        self.key.iter().any(|part| part.0.as_slice() == ["tenant"])
    }

    /// The part of its key by which a cluster keeps together what one request needs: the tenant, else the first.
    pub(crate) fn tag(&self) -> Option<usize> {
        let tenant = self.key.iter().position(|part| part.0.as_slice() == ["tenant"]);
        tenant.or((!self.key.is_empty()).then_some(0))
    }

    /// What a cluster keeps its keys by: a part of the key, of a descriptor its domain. None where it has one key for all.
    pub(super) fn kept_by(&self) -> Option<String> {
        match &self.descriptor {
            Some(_) => Some("domain".to_owned()),
            None => self.tag().map(|part| self.key[part].to_string()),
        }
    }

    /// Whether a request is known to be possible to which both apply. Of several descriptors that Envoy asks about at once, only
    /// the request itself tells.
    pub(super) fn may_apply_with(&self, other: &Self) -> bool {
        match (&self.descriptor, &other.descriptor) {
            (None, None) => !self.applies_to.excludes(&other.applies_to),
            (Some(descriptor), None) => other.may_apply_to(descriptor),
            (None, Some(descriptor)) => self.may_apply_to(descriptor),
            (Some(_), Some(_)) => false, // one at most is found for a descriptor
        }
    }

    /// Whether it may apply to a descriptor by its attributes, which are the domain and the entries.
    fn may_apply_to(&self, descriptor: &Descriptor) -> bool {
        let asked = descriptor.as_match();
        let has_any_key = descriptor.entries.iter().any(Entry::has_key_star);
        let has = |name: &str| {
            name == "tier" || has_any_key || asked.conditions().iter().any(|known| known.attribute == name)
        };
        let has_key = || self.key.iter().all(|part| part.0.iter().any(|name| has(name)));
        !self.rule.kind().has_permits() // Envoy could not release one
            && self.applies_to.conditions().iter().all(|condition| has(&condition.attribute))
            && !self.applies_to.excludes(&asked)
            && (self.when_missing != WhenMissing::Skip || has_key())
    }

    /// Whether it holds places for as long as nobody gives them back.
    pub(crate) fn has_no_lease(&self) -> bool {
        matches!(&self.rule, Rule::Concurrency(rule) if rule.lease().is_none())
    }

    /// Whether the keys of this limit go on under another of the next policy: it has the same name, algorithm and key.
    pub(crate) fn continues_as(&self, next: &Self) -> bool {
        self.name == next.name && self.starts_afresh_as(next).is_none()
    }

    /// Why the keys of this limit start afresh under the one of the same name in the next policy, if they do.
    pub(crate) fn starts_afresh_as(&self, next: &Self) -> Option<&'static str> {
        let entries =
            |limit: &Self| limit.descriptor.as_ref().map(|of| (of.domain.clone(), of.entries.clone()));
        if self.algorithm_name() != next.algorithm_name() {
            Some("its algorithm changed")
        } else if self.key != next.key {
            Some("its key changed")
        } else if entries(self) != entries(next) {
            Some("its descriptor changed")
        } else {
            None
        }
    }

    /// Its numbers, each with its name, as the file would have them: of a tier, or of all.
    pub fn numbers(&self, tier: Option<&str>) -> Vec<(&'static str, String)> {
        let mut pairs = self.template.numbers_of(tier).pairs();
        if let Some(Holding { max_wait, max_waiting }) = self.template.holding {
            let written = |name: &str| {
                self.written.iter().find(|(written, _)| *written == name).map(|(_, written)| written.clone())
            };
            pairs.push(("max_wait", written("max_wait").unwrap_or_else(|| duration_text(max_wait))));
            pairs.push(("max_waiting", written("max_waiting").unwrap_or_else(|| max_waiting.to_string())));
        }
        pairs
    }

    /// Whether some of its numbers came from the environment.
    pub fn has_numbers_from_environment(&self) -> bool {
        self.template.numbers.are_from_environment()
    }

    /// What the algorithm is called in the file.
    pub const fn algorithm_name(&self) -> &'static str {
        self.template.algorithm.name()
    }

    /// The algorithm that decides by one of this limit's rules, named as in the file: that of the limit, of a tier or of a
    /// tenant. It is not [`algorithm_name`](Self::algorithm_name) where a `sliding_log` is above `exact_up_to`.
    pub const fn algorithm_in_use(&self, rule: &Rule) -> &'static str {
        if self.template.algorithm.is_replaced(rule) { rule.kind().name() } else { self.algorithm_name() }
    }

    /// Which algorithm decides by a rule of this limit in place of the one in the file, and why. None where that one does. Pass
    /// the text through [`EnvironmentValues::hide_numbers`](crate::EnvironmentValues::hide_numbers) before it is shown.
    pub fn replacement(&self, rule: &Rule) -> Option<String> {
        let exact_up_to = self.exact_up_to_of(rule)?;
        let limit = rule.capacity();
        Some(format!(
            "{} in place of {}: limit {limit} is above exact_up_to {exact_up_to}",
            strict_counter(),
            self.algorithm_name()
        ))
    }

    /// The bound of the log that a rule of this limit is above.
    pub(super) fn exact_up_to_of(&self, rule: &Rule) -> Option<u64> {
        let Algorithm::SlidingLog { exact_up_to } = self.template.algorithm else { return None };
        self.template.algorithm.is_replaced(rule).then_some(exact_up_to)
    }

    /// Whether the section of a limit has an algorithm.
    pub(super) fn has_algorithm(section: &Section<'_>) -> bool {
        AlgorithmKind::ALL.iter().any(|kind| section.get(kind.name()).is_some())
    }

    /// An Envoy descriptor is both what a limit applies to and what it counts by.
    fn refuse_beside_descriptor(reader: &Reader<'_>, section: &Section<'_>) {
        for key in ["match", "key", "when_missing", "unlimited"] {
            if let Some(node) = section.get(key) {
                let fault = Fault::new(node.span.clone(), format!("`{key}` beside `descriptor`"));
                reader.fault(
                    fault.help("a descriptor says which requests it applies to and counts by its values"),
                );
            }
        }
    }

    /// Only a descriptor can be unlimited.
    fn refuse_without_descriptor(reader: &Reader<'_>, section: &Section<'_>) {
        if let Some(node) = section.get("unlimited") {
            let fault = Fault::new(node.span.clone(), "`unlimited` without a `descriptor`");
            reader.fault(fault.help("leave the limit out: a request that no limit applies to passes"));
        }
    }

    fn written_waits(reader: &Reader<'_>, section: &Section<'_>) -> Vec<(&'static str, String)> {
        let written = |key| Some((key, section.get(key).and_then(|node| reader.written(node))?));
        ["max_wait", "max_waiting"].into_iter().filter_map(written).collect()
    }

    fn read_key(reader: &Reader<'_>, node: &Node) -> Vec<KeyPart> {
        let mut parts = Vec::new();
        for node in reader.list(node) {
            let Some(text) = reader.text(node) else { continue };
            let part = KeyPart::parse(&text);
            key_fault(&part, &text, node.span.clone()).into_iter().for_each(|fault| reader.fault(fault));
            parts.push(part);
        }
        parts
    }

    fn when_missing(reader: &Reader<'_>, section: &Section<'_>) -> WhenMissing {
        let place = section.word(reader, "when_missing");
        [WhenMissing::Share, WhenMissing::Skip, WhenMissing::Deny][place.unwrap_or(0)]
    }
}

impl RuleTemplate {
    /// The template of a rule that was made in code.
    pub(super) fn of(rule: &Rule) -> Self {
        let (algorithm, holding, numbers) = Numbers::of_rule(rule);
        Self { algorithm, holding, numbers, tier_numbers: HashMap::new() }
    }

    /// The one algorithm that a limit has, and the rule that its numbers make. None without an algorithm.
    fn read(reader: &Reader<'_>, section: &Section<'_>) -> Option<(Self, Option<Rule>)> {
        let mut written =
            AlgorithmKind::ALL.iter().filter_map(|kind| Some((*kind, section.get(kind.name())?)));
        let Some((kind, node)) = written.next() else {
            Self::read_without_algorithm(reader, section);
            return None;
        };
        let (algorithm, numbers, own) = Self::algorithm(reader, kind, node);
        for (second, node) in written {
            let message = format!("a limit with two algorithms, `{kind}` and `{second}`");
            reader.fault(Fault::new(node.span.clone(), message).help("make it two limits: both must allow"));
            Self::algorithm(reader, second, node);
        }
        let algorithm = Self::count_denied(reader, section, algorithm);
        let holding = Self::holding(reader, section, algorithm);
        let template = Self { algorithm, holding, numbers, tier_numbers: HashMap::new() };
        let rule = template.rule(reader, &template.numbers, None, &own);
        Some((template, rule))
    }

    /// An algorithm with its numbers, and the map that has them.
    fn algorithm<'n>(
        reader: &Reader<'_>,
        kind: AlgorithmKind,
        node: &'n Node,
    ) -> (Algorithm, Numbers, Section<'n>) {
        let keys = keys::settings(kind);
        match reader.section(node, keys) {
            Some(own) => {
                let algorithm = Algorithm::read(reader, kind, &own);
                Numbers::require_all(reader, algorithm, &own);
                (algorithm, Numbers::read(reader, Some(algorithm), &own), own)
            }
            None => {
                let own = Section::empty(node.span.clone(), keys);
                (Algorithm::read(reader, kind, &own), Numbers::default(), own)
            }
        }
    }

    fn read_without_algorithm(reader: &Reader<'_>, section: &Section<'_>) {
        if keys::NOT_BUILT.iter().all(|(name, _)| section.get(name).is_none()) {
            let fault = Fault::new(section.span.clone(), "a limit without an algorithm");
            let all = quoted(AlgorithmKind::ALL.iter().map(|kind| kind.name()));
            reader.fault(fault.help(format!("give it one of {all}")));
        }
        section.get("count_denied").map(|node| reader.flag(node));
        section.get("max_wait").map(|node| reader.time(node));
        section.get("max_waiting").map(|node| reader.positive(node, "`max_waiting`"));
    }

    /// The numbers of a tier, or of all.
    fn numbers_of(&self, tier: Option<&str>) -> &Numbers {
        tier.and_then(|tier| self.tier_numbers.get(tier)).unwrap_or(&self.numbers)
    }

    /// The rule of a tier or a tenant, the numbers that are written for it, and all of its numbers: `base` has those that it leaves
    /// out.
    fn rule_of(&self, reader: &Reader<'_>, node: &Node, base: &Numbers) -> Option<(Rule, Numbers, Numbers)> {
        let section = reader.section(node, keys::NUMBERS)?;
        let own = Numbers::read(reader, Some(self.algorithm), &section);
        let numbers = own.or(base);
        let rule = self.rule(reader, &numbers, Some(base), &section)?;
        Some((rule, own, numbers))
    }

    /// The rule of a tenant with numbers of its own, these numbers alone, and all of its numbers. Its tier has the numbers that it
    /// leaves out, then the limit.
    pub(super) fn tenant_rule(
        &self,
        reader: &Reader<'_>,
        node: &Node,
        tier: Option<&str>,
    ) -> Option<(Rule, Numbers, Numbers)> {
        self.rule_of(reader, node, self.numbers_of(tier))
    }

    /// The rule that numbers make. What is wrong with `base` already is not reported again.
    pub(super) fn rule(
        &self,
        reader: &Reader<'_>,
        numbers: &Numbers,
        base: Option<&Numbers>,
        section: &Section<'_>,
    ) -> Option<Rule> {
        let make = |numbers: &Numbers| self.algorithm.rule(numbers, self.holding);
        match make(numbers) {
            Ok(rule) => Some(rule),
            Err(wrong) => {
                let is_new = base.is_none_or(|base| make(base).as_ref() != Err(&wrong));
                if let Some(fault) = wrong.fault(section.span.clone()).filter(|_| is_new) {
                    reader.fault(fault);
                }
                None
            }
        }
    }

    fn count_denied(reader: &Reader<'_>, section: &Section<'_>, algorithm: Algorithm) -> Algorithm {
        let Some(node) = section.get("count_denied") else { return algorithm };
        let counts_denied = reader.flag(node).unwrap_or(false);
        algorithm.counting_denied(counts_denied).unwrap_or_else(|| {
            let message = format!("a {} cannot count denied requests", algorithm.name());
            let help = format!("only {} can", AlgorithmKind::FixedWindow);
            reader.fault(Fault::new(node.span.clone(), message).help(help));
            algorithm
        })
    }

    fn holding(reader: &Reader<'_>, section: &Section<'_>, algorithm: Algorithm) -> Option<Holding> {
        let waits = ["max_wait", "max_waiting"].map(|key| section.get(key));
        if !Algorithm::can_delay(algorithm.kind()) {
            let can = AlgorithmKind::ALL.iter().filter(|kind| Algorithm::can_delay(**kind));
            let can = can.map(|kind| kind.name()).collect::<Vec<_>>().join(" and ");
            for node in waits.into_iter().flatten() {
                let message = format!("a {} cannot hold requests back", algorithm.name());
                reader.fault(Fault::new(node.span.clone(), message).help(format!("only {can} can")));
            }
            return None;
        }
        let [Some(max_wait), max_waiting] = waits else {
            if let Some(node) = waits[1] {
                let fault = Fault::new(node.span.clone(), "`max_waiting` without `max_wait`");
                reader.fault(fault.help("write `max_wait: 500ms`, too"));
            }
            return None;
        };
        let max_waiting =
            max_waiting.map_or(Some(MAX_WAITING), |node| reader.positive(node, "`max_waiting`"));
        let max_wait = reader.time(max_wait);
        let max_waiting = u32::try_from(max_waiting?).unwrap_or(u32::MAX);
        Some(Holding { max_wait: max_wait?, max_waiting })
    }
}

/// As many wait for a limit as this, unless it says otherwise.
const MAX_WAITING: u64 = 1000;

fn name(reader: &Reader<'_>, node: &Node) -> Option<String> {
    let name = reader.text(node)?;
    match name_fault(&name, node.span.clone()) {
        None => Some(name),
        Some(fault) => {
            reader.fault(fault);
            None
        }
    }
}

/// The fault of a name that headers could not carry.
pub(super) fn name_fault(name: &str, span: Range<usize>) -> Option<Fault> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._:/-".contains(c);
    if !name.is_empty() && name.len() <= 64 && name.chars().all(fits) {
        return None;
    }
    let fault = Fault::new(span, format!("`{name}` cannot be a name"));
    Some(fault.help("1 to 64 letters, digits and . _ : / -"))
}

/// The fault of a limit that has the name of another.
pub(super) fn same_name_fault(name: &str, span: Range<usize>) -> Fault {
    let fault = Fault::new(span, format!("two limits are called `{name}`"));
    fault.help("a limit is known by its name: give each its own")
}

/// The fault of a part of a key that was written as `text` and has an attribute without a name.
pub(super) fn key_fault(part: &KeyPart, text: &str, span: Range<usize>) -> Option<Fault> {
    part.0.iter().any(String::is_empty).then(|| {
        let fault = Fault::new(span, format!("`{text}` names an attribute without a name"));
        fault.help("write an attribute such as `user`, or `user|ip` for the first that is there")
    })
}
