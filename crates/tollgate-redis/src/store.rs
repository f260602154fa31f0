//! The store: asks scripts, tells what they mean, and remembers who was denied.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use redis::Value;
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tollgate_core::{Action, Decision, Outcome, Rule, Status};
use tollgate_policy::{
    Ask, Decisions, KeyState, Later, LeaseStore, LimitDecision, LimitDecisions, Permits as HeldPermits,
    Redis, Source, Store, StoredPermit, Unavailable,
};

use crate::convert::Replaced;
use crate::denied::{Asked, Denied, Found};
use crate::link::{Call, Link, LinkError, PROBE, Script, Settings, SettingsError, ShardHealth};
use crate::nodes;
use crate::numbers::require;
use crate::open::{OpenError, settings};
use crate::replay::{self, Answer, Replayed};
use crate::request::{Limit, Prepared, Texts, Which};
use crate::scripts::Scripts;

mod lease;
mod permits;

pub use self::permits::is_permit;
use self::permits::{Permits, held};

/// A request is asked so often at most: again whenever a key turns out to be written by other numbers, those of another
/// tier or an older policy. It is rare that somebody else changes the key in between, and rarer twice.
const MOST_ATTEMPTS: u32 = 32;

/// States in Redis, shared by all who use the same servers. Clones are the same store.
#[derive(Clone)]
pub struct RedisStore(Arc<Inner>);

struct Inner {
    link: Link,
    scripts: Scripts,
    denied: Denied,
    deadline: Duration,
    nodes: Arc<AtomicU32>,
    id: u64, // of this process
    permits: Permits,
    runtime: Handle,
    clock: Option<AtomicU64>, // a test's, in microseconds
}

impl RedisStore {
    /// The store that a policy file asks for. Begins to connect, on the tokio runtime that this is called on, and returns at
    /// once. Until there is a connection, and whenever there is none, it gives no answer.
    ///
    /// # Errors
    ///
    /// When the settings make no sense, or a password cannot be read.
    pub fn open(redis: &Redis) -> Result<Self, OpenError> {
        let store = Self::build(settings(redis)?, None)?;
        match redis.nodes {
            Some(nodes) => store.0.nodes.store(u32::try_from(nodes).unwrap_or(u32::MAX), Ordering::Relaxed),
            None => store.count_nodes(),
        }
        Ok(store)
    }

    /// A store of these settings, as [`open`](Self::open).
    ///
    /// # Errors
    ///
    /// When the settings make no sense.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        let store = Self::build(settings, None)?;
        store.count_nodes();
        Ok(store)
    }

    fn count_nodes(&self) {
        tokio::spawn(nodes::keep_telling(Arc::downgrade(&self.0.nodes), self.downgrade()));
    }

    /// A store whose time is told by [`set_time`](Self::set_time): for tests, which cannot wait.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_manual_clock(settings: Settings) -> Result<Self, SettingsError> {
        Self::build(settings, Some(AtomicU64::new(1)))
    }

    fn build(settings: Settings, clock: Option<AtomicU64>) -> Result<Self, SettingsError> {
        let (deadline, scripts) = (settings.deadline, Scripts::new());
        let link = Link::new(settings)?;
        scripts.all().into_iter().for_each(|script| link.learn(script));
        let mut id = [0; 8];
        getrandom::fill(&mut id).expect("the system has randomness");
        Ok(Self(Arc::new(Inner {
            link,
            scripts,
            denied: Denied::new(deadline),
            deadline,
            nodes: Arc::new(AtomicU32::new(1)),
            id: u64::from_ne_bytes(id),
            permits: Permits::default(),
            runtime: Handle::current(), // without one, there is no link
            clock,
        })))
    }

    /// Sets the time of a store with a manual clock, in microseconds since the epoch.
    ///
    /// # Panics
    ///
    /// When it has none.
    pub fn set_time(&self, micros: u64) {
        self.0.clock.as_ref().expect("a manual clock").store(micros, Ordering::Relaxed);
    }

    /// Waits until all servers can be reached, at most so long, and tells whether they can.
    pub async fn ready(&self, within: Duration) -> bool {
        self.0.link.ready(within).await
    }

    /// How each shard does.
    pub fn health(&self) -> Vec<ShardHealth> {
        self.0.link.health()
    }

    pub(crate) fn downgrade(&self) -> WeakStore {
        WeakStore(Arc::downgrade(&self.0))
    }

    /// Tells the servers that this process lives, and how many do.
    pub(crate) async fn tell_living(&self) -> Result<u32, LinkError> {
        let mut args = Texts::default();
        args.time(None);
        args.text(format!("{:016x}", self.0.id).as_bytes());
        args.number(u64::try_from(nodes::COUNTED_FOR.as_micros()).expect("minutes"));
        args.number(nodes::MOST_NODES.into());
        let answer = self.0.call(&self.0.scripts.nodes, &[nodes::KEY], &args).await?;
        match answer {
            Value::Int(count) => Ok(u32::try_from(count).unwrap_or(1).max(1)),
            _ => Ok(1),
        }
    }
}

/// A store that others may drop meanwhile.
#[derive(Debug)]
pub(crate) struct WeakStore(std::sync::Weak<Inner>);

impl WeakStore {
    pub(crate) fn upgrade(&self) -> Option<RedisStore> {
        self.0.upgrade().map(RedisStore)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("link", &self.0.link).finish_non_exhaustive()
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("link", &self.link).finish_non_exhaustive()
    }
}

impl Inner {
    async fn call(&self, script: &Script, keys: &[&[u8]], args: &Texts) -> Result<Value, LinkError> {
        self.call_until(self.link.deadline(), script, keys, args).await
    }

    async fn call_until(
        &self,
        until: Instant,
        script: &Script,
        keys: &[&[u8]],
        args: &Texts,
    ) -> Result<Value, LinkError> {
        let args: SmallVec<[&[u8]; 32]> = args.iter().collect();
        self.link.call_until(Call { script, keys, args: &args }, until).await
    }

    async fn decide(self: &Arc<Self>, prepared: &Prepared) -> Result<Decisions, Unavailable> {
        let sent = Instant::now();
        let asked: SmallVec<[Asked; 4]> =
            prepared.limits.iter().map(|limit| self.denied.asked(prepared.key(limit), limit)).collect();
        if let Some(decisions) = self.denied_before(prepared, &asked, sent) {
            return Ok(decisions);
        }
        let permit =
            prepared.limits.iter().any(|limit| limit.action == Action::Hold).then(|| self.permits.next());
        let id = permit.as_deref().unwrap_or_default();
        let answer = self.ask(prepared, id.as_bytes()).await;
        let now = Instant::now();
        let has_same_keys = prepared.has_same_keys();
        for (place, (limit, asked)) in prepared.limits.iter().zip(asked).enumerate() {
            match &answer {
                Ok(replayed) if limit.is_remembered() && !has_same_keys => {
                    self.denied.note(asked, &replayed.each[place].decision, sent, now);
                }
                Ok(_) if !matches!(limit.action, Action::Refund | Action::ChargeInFull) && !has_same_keys => {
                }
                // A refund or a charge in full changes the wait. Without the store, only the policy decides.
                _ => self.denied.forget(asked),
            }
        }
        match answer {
            Ok(Replayed { passes, each }) => {
                let allow = |place: usize| passes && each[place].decision.is_allowed();
                let permits = held(prepared, id, allow);
                Ok(Decisions { source: Source::Store, each, permits })
            }
            Err(error) => {
                if error.may_have_run() {
                    self.give_up(prepared, id);
                }
                Err(self.unavailable(error))
            }
        }
    }

    /// The decisions of a request that a cached denial denies, without a call. The cache is used only if every limit must allow
    /// the request, and if no cost is above the capacity of its limit: that denial has no wait, and would be the one to report.
    fn denied_before(&self, prepared: &Prepared, asked: &[Asked], now: Instant) -> Option<Decisions> {
        let limits = &prepared.limits;
        // A test's clock does not go on while nobody asks.
        if self.clock.is_some() || prepared.has_same_keys() || !limits.iter().all(Limit::can_be_denied_before)
        {
            return None;
        }
        let mut found: SmallVec<[Option<Decision>; 4]> = SmallVec::new();
        for (limit, asked) in limits.iter().zip(asked) {
            found.push(match self.denied.find(*asked, now) {
                Found::Denied(decision) if limit.is_remembered() => Some(decision),
                Found::Nothing | Found::Denied(_) => None,
                // If it is one limit's turn to ask, the whole request asks: other limits may deny for longer.
                Found::Ask => return None,
            });
        }
        if found.iter().all(Option::is_none) {
            return None;
        }
        let decision = |(limit, found): (&Limit, &Option<Decision>)| match found {
            Some(decision) => {
                LimitDecision { decision: *decision, key_state: KeyState::Stored { more_after: None } }
            }
            // The store was not asked about it.
            None => {
                let status = Status { remaining: limit.rule.capacity(), ..Status::default() };
                let decision = Decision { outcome: Outcome::ALLOW, status };
                LimitDecision { decision, key_state: KeyState::Unknown }
            }
        };
        let each: LimitDecisions = limits.iter().zip(&found).map(decision).collect();
        Some(Decisions { source: Source::DeniedCache, each, permits: Vec::new() })
    }

    /// Asks the script until it has decided: for a key that was written by other numbers, it is told what to read it as.
    async fn ask(&self, prepared: &Prepared, id: &[u8]) -> Result<Replayed, NoAnswer> {
        let keys: SmallVec<[&[u8]; 8]> = prepared.keys.iter().collect();
        let (until, mut replaced) = (self.link.deadline(), Vec::<Replaced>::new());
        for _ in 0..MOST_ATTEMPTS {
            let (which, args) = prepared.arguments(self.time(), id, &replaced);
            let script = match which {
                Which::Buckets => &self.scripts.buckets,
                Which::Plan => &self.scripts.plan,
            };
            let answer = self.call_until(until, script, &keys, &args).await?;
            match replay::read(prepared, which, answer)
                .map_err(|error| NoAnswer::Misread(error.to_string()))?
            {
                Answer::Decided(replayed) => return Ok(replayed),
                Answer::OtherNumbers { key, held, now } => {
                    replaced.retain(|one| one.key != key);
                    let limit = prepared.limits.iter().find(|limit| limit.key == key);
                    replaced.extend(limit.map(|limit| Replaced::new(limit, held, now)));
                }
            }
            // What is sent after its time is charged, and nobody hears of it.
            if Instant::now() >= until {
                break;
            }
        }
        Err(NoAnswer::Misread("the numbers of a key change faster than it can be asked".to_owned()))
    }

    /// The time, where a test tells it.
    fn time(&self) -> Option<u64> {
        self.clock.as_ref().map(|clock| clock.load(Ordering::Relaxed))
    }

    async fn forget(&self, ask: &Ask<'_>) -> Result<bool, Unavailable> {
        let prepared = Prepared::new(std::slice::from_ref(ask));
        let key = prepared.keys.iter().next().expect("the key of the one that is asked of");
        let answer = self.call(&self.scripts.forget, &[key], &Texts::default()).await;
        self.denied.forget(self.denied.asked(key, &prepared.limits[0]));
        Ok(answer.map_err(|error| self.unavailable(error.into()))? == Value::Int(1))
    }

    fn unavailable(&self, error: NoAnswer) -> Unavailable {
        let (out_for, probe_in) = match &error {
            NoAnswer::Link(LinkError::Open { since, probe_at, .. }) => {
                (since.elapsed() + self.deadline, probe_at.saturating_duration_since(Instant::now()))
            }
            _ => (Duration::ZERO, Duration::ZERO),
        };
        // While a probe is under way, the next one is a whole interval away.
        let retry_after = if probe_in.is_zero() { PROBE } else { probe_in };
        Unavailable { why: error.to_string(), out_for, retry_after }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("{0}")]
    Misread(String),
}

impl NoAnswer {
    fn may_have_run(&self) -> bool {
        match self {
            Self::Link(error) => error.may_have_run(),
            Self::Misread(_) => true,
        }
    }
}

impl Store for RedisStore {
    fn decide<'a>(&'a self, asks: &'a [Ask<'_>]) -> Later<'a, Result<Decisions, Unavailable>> {
        let prepared = Prepared::new(asks);
        if !prepared.limits.iter().any(|limit| limit.action == Action::Hold) {
            return Box::pin(async move { self.0.decide(&prepared).await });
        }
        // The answer is waited for also if the caller leaves. The slots are released then.
        let store = self.clone();
        let deciding = tokio::spawn(async move {
            let mut decisions = store.0.decide(&prepared).await?;
            let permits = std::mem::take(&mut decisions.permits);
            Ok((decisions, HeldPermits::stored(Arc::new(store), permits)))
        });
        Box::pin(async move {
            let (mut decisions, permits) = match deciding.await {
                Ok(decided) => decided?,
                Err(error) => return Err(self.0.unavailable(NoAnswer::Misread(error.to_string()))),
            };
            decisions.permits = permits.in_store().unwrap_or_default().to_vec();
            permits.leave_in_store();
            Ok(decisions)
        })
    }

    fn release<'a>(&'a self, permits: &'a [StoredPermit]) -> Later<'a, Result<bool, Unavailable>> {
        Box::pin(self.0.release(permits))
    }

    fn release_later(&self, permits: Vec<StoredPermit>) {
        self.0.release_later(permits, true);
    }

    fn forget<'a>(&'a self, ask: &'a Ask<'_>) -> Later<'a, Result<bool, Unavailable>> {
        Box::pin(self.0.forget(ask))
    }

    fn require(&self, rule: &Rule) -> Result<(), String> {
        require(rule)
    }

    fn nodes(&self) -> u32 {
        self.0.nodes.load(Ordering::Relaxed)
    }

    fn leases(self: Arc<Self>) -> Option<Arc<dyn LeaseStore>> {
        Some(self)
    }
}
