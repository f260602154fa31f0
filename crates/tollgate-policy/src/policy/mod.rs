//! The policy file, read and checked.

mod checks;
mod cluster;
mod descriptor;
mod files;
mod from_limits;
mod gateway;
mod lease;
mod limit;
mod match_groups;
mod matching;
mod numbers;
mod sent_rule;
mod settings;
mod store;
mod telemetry;
mod tenants;
mod tenants_file;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;

use tollgate::Weight;

pub use self::checks::Change;
pub use self::descriptor::{Descriptor, Entry, Envoy, Uncounted};
pub use self::files::UnusableFile;
pub use self::gateway::{Adaptive, AdaptiveRates, FairQueue, Gateway, MinRate, Slots, Timeouts, Work};
pub use self::lease::WhyExact;
use self::limit::ReadLimit;
pub use self::limit::{KeyPart, Limit, OnError, WhenMissing};
pub use self::matching::Match;
pub(crate) use self::matching::{Condition, Literal, Pattern, PatternIndex, Patterns, Position, View};
pub use self::sent_rule::sent_rule;
pub use self::settings::{
    AddressHeader, ClientIp, Dashboard, Headers, Identity, Ietf, Listen, Record, Tls, Trust, UpstreamHeaders,
    XRateLimit,
};
pub use self::store::{MaxBytes, Memory, Redis, RedisTls, Sentinel, StoreSettings};
pub use self::telemetry::Telemetry;
pub use self::tenants::{OwnLimits, Tenant, Tenants};
use self::tenants::{TenantReader, known_limits};
pub use self::tenants_file::TenantsFileError;
use crate::environment_values::EnvironmentValues;
use crate::fault::{Fault, Faults};
use crate::keys;
use crate::reader::{Reader, Section, nearest, quoted_names};
use crate::yaml::{self, Node};

/// Limits, and all that goes with them. By default there is none, and every request passes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// Where to listen.
    pub listen: Option<Listen>,
    /// Names, besides those of the loopback, by which callers reach listeners that are bound to it.
    pub hosts: Vec<String>,
    /// A certificate for all listeners.
    pub tls: Option<Tls>,
    /// A file with the password of RESP clients.
    pub resp_password_file: Option<String>,
    /// A file with the token of admin calls.
    pub admin_token_file: Option<String>,
    /// Whether the service has a dashboard and a playground.
    pub dashboard: Dashboard,
    /// Which headers answers carry.
    pub headers: Headers,
    /// Where the state of keys is kept.
    pub store: StoreSettings,
    /// Where attributes come from.
    pub identity: Identity,
    /// Classes of tenants, by name.
    pub tiers: HashMap<String, Tier>,
    /// The tier of tenants that have none.
    pub default_tier: Option<String>,
    /// Tenants that differ from the rest, by name: those of the policy file and those of the tenants file.
    pub tenants: Tenants,
    /// A file with more tenants.
    pub tenants_file: Option<String>,
    /// What requests cost: the first that matches.
    pub costs: Vec<Cost>,
    /// The limits, in the order they are told.
    pub limits: Vec<Limit>,
    /// Envoy descriptors that no limit counts.
    pub descriptors: Vec<Uncounted>,
    /// How Envoy is answered.
    pub envoy: Envoy,
    /// The reverse proxy.
    pub gateway: Option<Gateway>,
    /// One multiplier on every rate.
    pub adaptive_rates: Option<AdaptiveRates>,
    /// Where decisions are written to.
    pub record: Option<Record>,
    /// Where traces and metrics are exported to.
    pub telemetry: Option<Telemetry>,
    /// Values that came from the environment, which are not shown.
    pub environment_values: EnvironmentValues,
}

/// A class of tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Its share in the fair queue.
    pub weight: Weight,
    /// How hard adaptive rates press.
    pub shed: u8,
}

/// What some requests cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The requests.
    pub applies_to: Match,
    /// What they cost.
    pub cost: u64,
}

impl Policy {
    /// Reads a policy from the text of a file, and the tenants file that it names. The name of the file is for messages, and
    /// relative paths are relative to it.
    ///
    /// # Errors
    ///
    /// All that is wrong with the policy file, or else with the tenants file.
    pub fn read(file: &Path, source: &str) -> Result<Self, Faults> {
        Self::read_with(file, source, &|name| std::env::var(name).ok())
    }

    /// [`read`](Self::read), with the values of `${NAME}` from `environment`.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn read_with(
        file: &Path,
        source: &str,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Faults> {
        let (mut policy, tenants_file) = Self::read_text(file, source, environment)?;
        match policy.read_tenants_file() {
            Ok(()) => Ok(policy),
            Err(TenantsFileError::Faults(faults)) => Err(faults),
            Err(TenantsFileError::Unusable(unusable)) => {
                let fault = Fault::new(tenants_file, format!("{}: {}", unusable.path, unusable.error));
                Err(Self::faults_of(file, source, vec![fault]))
            }
        }
    }

    /// [`read`](Self::read) without the tenants file. [`read_tenants_file`](Self::read_tenants_file) reads it.
    ///
    /// # Errors
    ///
    /// All that is wrong with the policy file.
    pub fn read_without_tenants_file(file: &Path, source: &str) -> Result<Self, Faults> {
        Self::read_text(file, source, &|name| std::env::var(name).ok()).map(|(policy, _)| policy)
    }

    /// The policy of a text, and where it names the tenants file.
    fn read_text(
        file: &Path,
        source: &str,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(Self, Range<usize>), Faults> {
        let faults = |faults| Self::faults_of(file, source, faults);
        let node = yaml::parse(source).map_err(|fault| faults(vec![fault]))?;
        if let Some(fault) = yaml::config_map_fault(&node).or_else(|| yaml::envoy_file_fault(&node)) {
            return Err(faults(vec![fault]));
        }
        let reader = Reader::new(environment);
        let policy = Self::from_node(&reader, &node, file);
        let environment_values = reader.environment_values();
        let found = reader.into_faults();
        match policy {
            Some(policy) if found.is_empty() => {
                let tenants_file = node.get("tenants_file").map_or(0..0, |node| node.span.clone());
                Ok((Self { environment_values, ..policy }, tenants_file))
            }
            _ => Err(faults(found)),
        }
    }

    fn faults_of(file: &Path, source: &str, faults: Vec<Fault>) -> Faults {
        let file = file.display().to_string();
        Faults { file, source: source.to_owned(), faults, line_numbers: None }
    }

    fn from_node(reader: &Reader<'_>, node: &Node, file: &Path) -> Option<Self> {
        let section = reader.section(node, keys::POLICY)?;
        let get = |key: &str| section.get(key);
        let path = |node: &Node| settings::path(reader, node, file);
        let (tiers, tier_names) = Self::tiers(reader, &section);
        let default_tier = get("default_tier").and_then(|node| known_tier(reader, node, &tier_names));
        let (limits, descriptors) = Self::limits(reader, &section, &tier_names);
        let tenants = get("tenants").map_or_else(Tenants::default, |node| {
            let limits = known_limits(&limits);
            TenantReader::new(&tier_names, default_tier.as_deref(), limits).tenants(reader, node)
        });
        let (listen, hosts) = get("listen").and_then(|node| Listen::read(reader, node)).unzip();
        let policy = Self {
            listen,
            hosts: hosts.unwrap_or_default(),
            tls: get("tls").and_then(|node| Tls::read(reader, node, file)),
            resp_password_file: get("resp_password_file").and_then(path),
            admin_token_file: get("admin").and_then(|node| settings::admin(reader, node, file)),
            dashboard: get("dashboard").map_or_else(Dashboard::default, |node| Dashboard::read(reader, node)),
            headers: get("headers").map_or_else(Headers::default, |node| Headers::read(reader, node)),
            store: get("store")
                .map_or_else(StoreSettings::default, |node| StoreSettings::read(reader, node, file)),
            identity: get("identity").map_or_else(Identity::default, |node| Identity::read(reader, node)),
            tenants,
            tenants_file: get("tenants_file").and_then(path),
            costs: Self::costs(reader, &section),
            descriptors,
            envoy: get("envoy").map_or_else(Envoy::default, |node| Envoy::read(reader, node)),
            gateway: get("gateway").and_then(|node| Gateway::read(reader, node)),
            adaptive_rates: get("adaptive_rates").and_then(|node| AdaptiveRates::read(reader, node)),
            record: get("record").and_then(|node| Record::read(reader, node, file)),
            telemetry: get("telemetry").and_then(|node| Telemetry::read(reader, node)),
            environment_values: EnvironmentValues::default(),
            tiers,
            default_tier,
            limits: limits.into_iter().filter_map(ReadLimit::valid).collect(),
        };
        Self::require_gateway_listener(reader, &section);
        Some(policy)
    }

    /// The tiers, and the names of all in order, also of those with faults.
    fn tiers(reader: &Reader<'_>, section: &Section<'_>) -> (HashMap<String, Tier>, Vec<String>) {
        let tiers = section.get("tiers").map_or(Vec::new(), |node| reader.named(node));
        let tier = |(name, _, node): (String, &Node, &Node)| {
            let section = reader.section(node, keys::TIER)?;
            let shed = section.get("shed").map_or(Some(1), |node| {
                let shed = reader.count(node)?;
                if shed > 2 {
                    let fault = Fault::new(node.span.clone(), format!("`shed` of {shed}"));
                    reader.fault(fault.help("0 is exempt, 1 normal, 2 first"));
                }
                u8::try_from(shed).ok()
            });
            let weight = weight(reader, &section).unwrap_or(Weight::ONE);
            let tier = Tier { weight, shed: shed? };
            for key in ["weight", "shed"] {
                if let Some(node) = section.get(key) {
                    reader.keep_number(format!("tiers.{name}.{key}"), node);
                }
            }
            Some((name, tier))
        };
        let mut names: Vec<String> = tiers.iter().map(|(name, ..)| name.clone()).collect();
        names.sort();
        (tiers.into_iter().filter_map(tier).collect(), names)
    }

    /// The limits, and the descriptors that stand among them and nobody counts.
    fn limits(
        reader: &Reader<'_>,
        section: &Section<'_>,
        tiers: &[String],
    ) -> (Vec<ReadLimit>, Vec<Uncounted>) {
        let nodes = section.get("limits").map_or(&[][..], |node| reader.list(node));
        let (mut limits, mut uncounted): (Vec<ReadLimit>, Vec<Uncounted>) = (Vec::new(), Vec::new());
        let (mut names, mut paths) = (HashSet::new(), HashSet::new());
        for (place, node) in nodes.iter().enumerate() {
            let Some(section) = reader.section(node, keys::LIMIT) else { continue };
            let descriptor = if section.get("descriptor").is_some() && !Limit::has_algorithm(&section) {
                uncounted.extend(Uncounted::read(reader, &section, place));
                uncounted.last().map(|uncounted| &uncounted.descriptor)
            } else {
                let limit = Limit::read(reader, &section, place, tiers);
                if let Some(name) = limit.name().filter(|name| !names.insert((*name).to_owned())) {
                    reader.fault(limit::same_name_fault(name, node.span.clone()));
                }
                limits.push(limit);
                limits.last().and_then(ReadLimit::descriptor)
            };
            if let Some(descriptor) = descriptor.filter(|descriptor| descriptor.place == place) {
                let path: Vec<String> = descriptor.path().collect();
                let message = format!("two descriptors of `{}` are `{}`", descriptor.domain, path.join(", "));
                if !paths.insert((descriptor.domain.clone(), path)) {
                    let fault = Fault::new(node.span.clone(), message);
                    reader.fault(fault.help("key and value are compared as `key_value`: make it one limit"));
                }
            }
        }
        (limits, uncounted)
    }

    fn costs(reader: &Reader<'_>, section: &Section<'_>) -> Vec<Cost> {
        let nodes = section.get("costs").map_or(&[][..], |node| reader.list(node));
        let cost = |node: &Node| {
            let section = reader.section(node, keys::COST)?;
            let cost = section.require(reader, "cost", "10").and_then(|node| reader.count(node));
            let applies_to = section.get("match").map(|node| Match::read(reader, node)).unwrap_or_default();
            Some(Cost { applies_to, cost: cost? })
        };
        nodes.iter().filter_map(cost).collect()
    }

    /// This policy with the limits of another besides.
    ///
    /// # Errors
    ///
    /// When both have a limit of the same name, or the same descriptor: which, in words.
    pub fn with_limits_of(mut self, mut other: Self) -> Result<Self, String> {
        let after = self.limits.len() + self.descriptors.len();
        let limits = other.limits.iter_mut().filter_map(|limit| limit.descriptor.as_mut());
        let uncounted = other.descriptors.iter_mut().map(|uncounted| &mut uncounted.descriptor);
        limits.chain(uncounted).for_each(|descriptor| descriptor.place += after);
        let own: HashSet<&str> = self.limits.iter().map(|limit| limit.name.as_str()).collect();
        if let Some(Limit { name, .. }) = other.limits.iter().find(|limit| own.contains(limit.name.as_str()))
        {
            return Err(format!("two limits are called `{name}`: rename the one in the policy file"));
        }
        self.environment_values.extend(other.environment_values);
        self.limits.append(&mut other.limits);
        self.descriptors.append(&mut other.descriptors);
        let of_limits = self.limits.iter().filter_map(|limit| limit.descriptor.as_ref());
        let mut seen = HashSet::new();
        for descriptor in of_limits.chain(self.descriptors.iter().map(|uncounted| &uncounted.descriptor)) {
            let path: Vec<String> = descriptor.path().collect();
            if !seen.insert((descriptor.domain.clone(), path.clone())) {
                let (domain, path) = (&descriptor.domain, path.join(", "));
                return Err(format!("two descriptors of `{domain}` are `{path}`: leave one out"));
            }
        }
        Ok(self)
    }

    fn require_gateway_listener(reader: &Reader<'_>, section: &Section<'_>) {
        // By what is written, also where the address cannot be read.
        let has_listener = section.get("listen").map(|listen| listen.get("gateway").is_some());
        let (message, help, node) = match (section.get("gateway"), has_listener) {
            (Some(node), Some(false)) => {
                ("a gateway that listens nowhere", "write `listen: { gateway: 127.0.0.1:8000 }`, too", node)
            }
            (None, Some(true)) => {
                let node = section.get("listen").unwrap_or_else(|| unreachable!("it has a listener"));
                ("a listener for a gateway that is not there", "write a `gateway:` section, too", node)
            }
            _ => return,
        };
        reader.fault(Fault::new(node.span.clone(), message).help(help));
    }
}

fn weight(reader: &Reader<'_>, section: &Section<'_>) -> Option<Weight> {
    let node = section.get("weight")?;
    let weight = reader.positive(node, "a weight")?;
    let weight = u32::try_from(weight).ok().and_then(Weight::new);
    if weight.is_none() {
        reader.fault(Fault::new(node.span.clone(), "the weight is too large").help("at most 4294967295"));
    }
    weight
}

fn known_tier(reader: &Reader<'_>, node: &Node, tiers: &[String]) -> Option<String> {
    let tier = reader.text(node)?;
    if tiers.binary_search(&tier).is_err() {
        reader.fault(unknown_tier(node.span.clone(), &tier, tiers));
        return None;
    }
    Some(tier)
}

fn unknown_tier(span: Range<usize>, tier: &str, tiers: &[String]) -> Fault {
    let names = || tiers.iter().map(String::as_str);
    let fault = Fault::new(span, format!("unknown tier `{tier}`"));
    fault.help(match nearest(tier, names()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("the tiers are {}", quoted_names(names())),
    })
}

#[cfg(test)]
mod tests;
