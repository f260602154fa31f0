//! Recorded traffic through a policy: the engine of the service decides, by the times of the log.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use tollgate::{Clock, Nanos, Timestamp};
use tollgate_policy::{
    ClientIp, Described, Engine, Hits, LimitVerdict, Override, Policy, PolicyInForce, Request, StoreSettings,
    Verdict, normal_path,
};

use crate::LabError;
use crate::algorithms::Event;
use crate::cases::IN_MEMORY;
use crate::log::{Entry, Logs, Progress, RecordedDescriptor};
use crate::ordered::{Consumer, Keep, Seen, in_order};

/// As many differences from what was recorded are told in full.
const TOLD: usize = 10;

/// As many keys of denied requests are counted by name.
const MOST_KEYS: usize = 1_000_000;

/// What a policy did.
#[derive(Debug)]
pub struct PolicyReplayed {
    /// What was seen on the way.
    pub seen: Seen,
    /// Requests that passed.
    pub allowed: u64,
    /// Requests that did not.
    pub denied: u64,
    /// The cost of those that passed.
    pub allowed_cost: u64,
    /// The limits of the policy, in its order.
    pub limits: Vec<LimitReplayed>,
    /// Keys that were denied, and how often: the limit's name, the values of its key.
    pub keys_denied: HashMap<(String, String), u64>,
    /// How the decisions differ from those that were recorded.
    pub differences: Differences,
}

/// What a limit did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitReplayed {
    /// Its name.
    pub name: String,
    /// Whether it only watches.
    pub shadow: bool,
    /// Requests that it let pass.
    pub allowed: u64,
    /// Requests that it denied, or would have.
    pub denied: u64,
}

/// How decisions differ from those that were recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Decisions that were recorded.
    pub compared: u64,
    /// Of which so many came out otherwise.
    pub count: u64,
    /// The first of them, in words.
    pub first: Vec<String>,
    /// Whether the first of them was recorded as stricter than it is replayed. A replay begins with full limits, so that this is how a
    /// record without its beginning differs.
    pub may_lack_beginning: bool,
}

/// One decision of a policy.
#[derive(Clone, Copy, Debug)]
pub struct PolicyDecision<'d> {
    /// When, in nanoseconds since the Unix epoch.
    pub at: u64,
    /// What was known of the request.
    pub attributes: &'d [(String, String)],
    /// What it cost.
    pub cost: u64,
    /// Whether it passed.
    pub is_allowed: bool,
    /// How long it was told to wait, in nanoseconds.
    pub retry_after: Option<u64>,
    /// How long it was held.
    pub delay: u64,
}

/// Told of every decision.
pub type EachPolicyDecision<'d> = dyn FnMut(PolicyDecision<'_>) -> Result<(), LabError> + 'd;

/// Replays logs through a policy, as if the service had run at the time: in memory, with nobody else. What a record has been decided
/// to be is compared. Attributes may be given other names, as pairs of a new name and the one in the log.
///
/// # Errors
///
/// When the logs cannot be read, or the policy cannot be put in force.
pub fn replay_policy(
    logs: &Logs,
    policy: &Policy,
    renamed: &[(String, String)],
    progress: &mut dyn FnMut(Progress),
    mut each: Option<&mut EachPolicyDecision<'_>>,
) -> Result<PolicyReplayed, LabError> {
    let policy = Policy { store: StoreSettings::default(), ..policy.clone() };
    let engine = Engine::with_clock(policy.clone(), Clock::manual())?; // before the log is read
    let in_force = engine.policy();
    let asked = RefCell::new(Vec::new());
    let mut keep = Attributes {
        policy: &in_force,
        renamed,
        is_there: vec![false; renamed.len()],
        asked: &asked,
        numbers: HashMap::new(),
        pairs: Vec::new(),
        text: Vec::new(),
    };
    let can_restart = each.is_none();
    let logs = &logs.with_client_ip(&policy.identity.client_ip);
    let (deciding, seen) = in_order(logs, can_restart, &mut keep, progress, &mut |start| {
        let clock = Clock::manual_from(Duration::from_nanos(start));
        let limits = policy.limits.iter().map(|limit| LimitReplayed {
            name: limit.name.clone(),
            shadow: limit.shadow,
            ..LimitReplayed::default()
        });
        Ok(Deciding {
            engine: Engine::with_clock(policy.clone(), clock)?,
            start,
            asked: &asked,
            each: each.take(),
            allowed: 0,
            denied: 0,
            allowed_cost: 0,
            limits: limits.collect(),
            keys_denied: HashMap::new(),
            differences: Differences::default(),
        })
    })?;
    if let Some((to, from)) =
        renamed.iter().zip(&keep.is_there).find_map(|(pair, there)| (!there).then_some(pair))
    {
        return Err(LabError::Asked(format!(
            "no request has a column or an attribute `{from}` to take `{to}` from"
        )));
    }
    let Deciding { allowed, denied, allowed_cost, limits, keys_denied, differences, .. } = deciding;
    Ok(PolicyReplayed { seen, allowed, denied, allowed_cost, limits, keys_denied, differences })
}

/// What is known of a request beside its attributes.
#[derive(Clone, Copy, Debug)]
struct Known {
    asked: u32,
    cost: Option<u64>,
    recorded: Option<Told>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    is_allowed: bool,
    retry_after: Option<u64>,
    delay: u64,
}

impl Told {
    fn is_stricter_than(self, other: Self) -> bool {
        // A denial without a wait is for ever.
        let wait = |told: Self| told.retry_after.unwrap_or(u64::MAX);
        match (self.is_allowed, other.is_allowed) {
            (true, true) => self.delay > other.delay,
            (false, false) => wait(self) > wait(other),
            (is_allowed, _) => !is_allowed,
        }
    }
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.is_allowed, self.retry_after) {
            (true, _) if self.delay == 0 => f.write_str("allowed"),
            (true, _) => write!(f, "allowed after {} ns", self.delay),
            (false, Some(retry)) => write!(f, "denied for {retry} ns"),
            (false, None) => f.write_str("denied"),
        }
    }
}

/// What was asked, as often as it was asked the same.
#[derive(Debug)]
enum Asked {
    One(Vec<(String, String)>),
    Together(Vec<AskedDescriptor>),
}

#[derive(Debug)]
struct AskedDescriptor {
    entries: Vec<(String, String)>,
    hits: Hits,
    limit: Option<Override>,
}

/// Takes of each request what the policy looks at.
struct Attributes<'p> {
    policy: &'p PolicyInForce<'p>,
    renamed: &'p [(String, String)],
    is_there: Vec<bool>, // whether a request had what each is taken from
    asked: &'p RefCell<Vec<Asked>>,
    numbers: HashMap<Box<[u8]>, u32>,
    pairs: Vec<(String, String)>,
    text: Vec<u8>, // what tells one from another
}

impl Keep<Known> for Attributes<'_> {
    fn keep(&mut self, entry: &Entry<'_>, client: &mut Vec<u8>) -> Known {
        client.extend_from_slice(entry.client());
        let recorded = entry.recorded();
        let descriptors = recorded.map_or(&[][..], |recorded| &recorded.descriptors);
        self.text.clear();
        self.pairs.clear();
        if descriptors.is_empty() {
            self.take_attributes(entry);
            for (name, value) in &self.pairs {
                write_parts(&mut self.text, [name, value]);
            }
        } else {
            for RecordedDescriptor { entries, cost, refund, in_full, limit } in descriptors {
                let numbers = format!("{cost} {refund:?} {in_full} {limit:?} {}", entries.len());
                self.text.extend_from_slice(numbers.as_bytes());
                entries.iter().for_each(|(name, value)| write_parts(&mut self.text, [name, value]));
            }
        }
        let asked = match self.numbers.get(&*self.text) {
            Some(number) => *number,
            None => self.add(descriptors),
        };
        let recorded = recorded.map(|recorded| Told {
            is_allowed: recorded.allowed,
            retry_after: recorded.retry_after(),
            delay: recorded.delay(),
        });
        Known { asked, cost: entry.cost, recorded }
    }
}

/// Lengths before texts, so that no two are alike that differ.
fn write_parts(text: &mut Vec<u8>, parts: [&str; 2]) {
    for part in parts {
        text.extend_from_slice(&(part.len() as u64).to_le_bytes());
        text.extend_from_slice(part.as_bytes());
    }
}

impl Attributes<'_> {
    /// What the policy looks at, in the form in which the service would see it.
    fn take_attributes(&mut self, entry: &Entry<'_>) {
        let (policy, pairs, renamed, is_there) =
            (self.policy, &mut self.pairs, self.renamed, &mut self.is_there);
        let is_recorded = entry.recorded().is_some();
        entry.attributes(|name, value| {
            let mut add = |name: &str| {
                // What the policy does not look at would make every row of a table another request.
                if !policy.looks_at(name) {
                    return;
                }
                let text = String::from_utf8_lossy(value);
                let value = match name {
                    _ if is_recorded => text.into_owned(), // as the service saw it
                    "path" => normal_path(&text).into_owned(),
                    "ip" => client_address(&policy.identity.client_ip, &text),
                    _ => text.into_owned(),
                };
                pairs.push((name.to_owned(), value));
            };
            add(name);
            for ((to, from), is_there) in renamed.iter().zip(is_there.iter_mut()) {
                if from == name {
                    *is_there = true;
                    add(to);
                }
            }
        });
    }

    fn add(&mut self, descriptors: &[RecordedDescriptor<'_>]) -> u32 {
        let mut all = self.asked.borrow_mut();
        let number = u32::try_from(all.len()).expect("fewer than four thousand million kinds of requests");
        all.push(if descriptors.is_empty() {
            Asked::One(self.pairs.clone())
        } else {
            Asked::Together(descriptors.iter().map(AskedDescriptor::of).collect())
        });
        self.numbers.insert(self.text.as_slice().into(), number);
        number
    }
}

impl AskedDescriptor {
    fn of(recorded: &RecordedDescriptor<'_>) -> Self {
        let owned = |(name, value): &(Cow<'_, str>, Cow<'_, str>)| (name.to_string(), value.to_string());
        let limit =
            recorded.limit.map(|(limit, seconds)| Override { limit, window: Duration::from_secs(seconds) });
        Self {
            entries: recorded.entries.iter().map(owned).collect(),
            hits: match recorded.refund {
                Some(refund) => Hits::Refund(refund),
                None if recorded.in_full => Hits::ChargeInFull(recorded.cost),
                None => Hits::Charge(recorded.cost),
            },
            limit,
        }
    }
}

/// A client as the service tells it apart: an address in its normal form, of IPv6 its network. A log may have names, too.
pub(crate) fn client_address(client_ip: &ClientIp, text: &str) -> String {
    text.parse::<IpAddr>().map_or_else(|_| text.to_owned(), |address| client_ip.attribute(address))
}

/// A policy on its way through a log.
struct Deciding<'a, 'e> {
    engine: Engine,
    start: u64,
    asked: &'a RefCell<Vec<Asked>>,
    each: Option<&'a mut EachPolicyDecision<'e>>,
    allowed: u64,
    denied: u64,
    allowed_cost: u64,
    limits: Vec<LimitReplayed>,
    keys_denied: HashMap<(String, String), u64>,
    differences: Differences,
}

impl Consumer<Known> for Deciding<'_, '_> {
    fn take(&mut self, events: &[Event], known: &[Known]) -> Result<(), LabError> {
        let asked = self.asked;
        let asked = asked.borrow();
        for (event, known) in events.iter().zip(known) {
            let (told, cost) = match &asked[known.asked as usize] {
                Asked::One(attributes) => {
                    let (told, cost) = self.decide(event, known, attributes)?;
                    self.tell(event, attributes, cost, told)?;
                    (told, cost)
                }
                Asked::Together(descriptors) => {
                    let (told, cost) = self.decide_descriptors(event, descriptors)?;
                    let entries = descriptors.iter().flat_map(|asked| asked.entries.iter().cloned());
                    self.tell(event, &entries.collect::<Vec<_>>(), cost, told)?;
                    (told, cost)
                }
            };
            if told.is_allowed {
                self.allowed += 1;
                self.allowed_cost = self.allowed_cost.saturating_add(cost);
            } else {
                self.denied += 1;
            }
            self.compare(event, known, told);
        }
        Ok(())
    }
}

impl Deciding<'_, '_> {
    fn decide(
        &mut self,
        event: &Event,
        known: &Known,
        attributes: &[(String, String)],
    ) -> Result<(Told, u64), LabError> {
        let pairs: Vec<(&str, &str)> = attributes.iter().map(|(name, value)| (&**name, &**value)).collect();
        let policy = self.engine.policy();
        let request = Request { attributes: &pairs, cost: known.cost };
        let now = Timestamp::from_nanos(event.at - self.start);
        let verdict = policy.check(&request, now).now().expect(IN_MEMORY);
        let verdict = verdict.map_err(|error| LabError::Asked(error.to_string()))?;
        Ok((note(&mut self.limits, &mut self.keys_denied, &verdict), verdict.cost()))
    }

    fn tell(
        &mut self,
        event: &Event,
        attributes: &[(String, String)],
        cost: u64,
        told: Told,
    ) -> Result<(), LabError> {
        let Told { is_allowed, retry_after, delay } = told;
        let decision = PolicyDecision { at: event.at, attributes, cost, is_allowed, retry_after, delay };
        self.each.as_mut().map_or(Ok(()), |each| each(decision))
    }

    fn decide_descriptors(
        &mut self,
        event: &Event,
        descriptors: &[AskedDescriptor],
    ) -> Result<(Told, u64), LabError> {
        let pairs: Vec<Vec<(&str, &str)>> = descriptors
            .iter()
            .map(|asked| asked.entries.iter().map(|(name, value)| (&**name, &**value)).collect())
            .collect();
        let asked = descriptors.iter().zip(&pairs);
        let requests: Vec<Described<'_>> = asked
            .map(|(asked, attributes)| Described { attributes, hits: asked.hits, limit: asked.limit })
            .collect();
        let policy = self.engine.policy();
        let now = Timestamp::from_nanos(event.at - self.start);
        let verdict = policy.check_descriptors(&requests, now).now().expect(IN_MEMORY);
        let verdict = verdict.map_err(|error| LabError::Asked(error.to_string()))?;
        let cost = verdict.descriptors().map(|descriptor| descriptor.cost()).max().unwrap_or(0);
        Ok((note(&mut self.limits, &mut self.keys_denied, &verdict), cost))
    }

    fn compare(&mut self, event: &Event, known: &Known, told: Told) {
        let Some(recorded) = known.recorded else { return };
        self.differences.compared += 1;
        if recorded == told {
            return;
        }
        if self.differences.count == 0 {
            self.differences.may_lack_beginning = recorded.is_stricter_than(told);
        }
        self.differences.count += 1;
        if self.differences.first.len() < TOLD {
            let at = format!("{}.{:09}", event.at / 1_000_000_000, event.at % 1_000_000_000);
            self.differences.first.push(format!("at {at}: recorded as {recorded}, replayed as {told}"));
        }
    }
}

/// Counts the decisions of a verdict.
fn note(
    limits: &mut [LimitReplayed],
    keys_denied: &mut HashMap<(String, String), u64>,
    verdict: &Verdict<'_>,
) -> Told {
    for limit in verdict.limits().chain(verdict.shadow()) {
        note_limit(limits, keys_denied, &limit);
    }
    Told {
        is_allowed: verdict.is_allowed(),
        retry_after: verdict.retry_after().map(Nanos::get),
        delay: verdict.delay().get(),
    }
}

fn note_limit(
    limits: &mut [LimitReplayed],
    keys_denied: &mut HashMap<(String, String), u64>,
    verdict: &LimitVerdict<'_, '_>,
) {
    let Some(limit) = limits.iter_mut().find(|limit| limit.name == verdict.name()) else { return };
    if verdict.is_allowed() {
        limit.allowed += 1;
        return;
    }
    limit.denied += 1;
    let place = (limit.name.clone(), verdict.key().join(" "));
    if keys_denied.len() < MOST_KEYS || keys_denied.contains_key(&place) {
        *keys_denied.entry(place).or_default() += 1;
    }
}
