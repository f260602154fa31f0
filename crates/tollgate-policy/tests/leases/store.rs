//! A store in this process that grants units by the rules of the core, in virtual time. It answers when a test runs its tasks.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tollgate::{Action, Clock, Decision, Group, Nanos, Rule, Timestamp};
use tollgate_core::{PermitId, State};
use tollgate_policy::{
    Ask, Decisions, DrawCall, Drawn, KeyState, Later, LeaseStore, LeasedKey, LimitDecision, PrimaryId,
    ReturnCall, Source, Store, StoredPermit, Unavailable,
};

pub(super) const DEADLINE: Duration = Duration::from_millis(5);

pub(super) struct GrantStore {
    clock: Clock,
    states: Mutex<HashMap<String, State>>,
    tasks: Mutex<Vec<Later<'static, ()>>>,
    is_down: AtomicBool,
    is_slow: AtomicBool, // draws are not answered
    connections: AtomicU64,
    pub(super) checks: AtomicU64,         // calls of `decide`
    charged: Mutex<HashMap<String, u64>>, // by these, for each limit
    pub(super) draws: Mutex<Vec<DrawCall>>,
    pub(super) returns: Mutex<Vec<ReturnCall>>,
    this: std::sync::Weak<Self>,
}

impl std::fmt::Debug for GrantStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GrantStore")
    }
}

fn name(ask: &Ask<'_>) -> String {
    format!("{}:{:?}", ask.limit, ask.key)
}

impl GrantStore {
    pub(super) fn new(clock: Clock) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            clock,
            states: Mutex::default(),
            tasks: Mutex::default(),
            is_down: AtomicBool::new(false),
            is_slow: AtomicBool::new(false),
            connections: AtomicU64::new(1),
            checks: AtomicU64::new(0),
            charged: Mutex::default(),
            draws: Mutex::default(),
            returns: Mutex::default(),
            this: this.clone(),
        })
    }

    pub(super) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, SeqCst);
        self.connections.fetch_add(1, SeqCst);
    }

    pub(super) fn set_slow(&self, is_slow: bool) {
        self.is_slow.store(is_slow, SeqCst);
    }

    /// What has been charged.
    pub(super) fn states(&self) -> HashMap<String, State> {
        self.states.lock().clone()
    }

    /// The units of a limit that were charged for single requests.
    pub(super) fn charged(&self, limit: &str) -> u64 {
        self.charged.lock().get(limit).copied().unwrap_or(0)
    }

    pub(super) fn state(&self, limit: &str) -> State {
        let states = self.states.lock();
        let mut of = states.iter().filter(|(name, _)| name.starts_with(&format!("{limit}:")));
        of.next().map_or_else(State::default, |(_, state)| state.clone())
    }

    /// Runs tasks until none goes on.
    pub(super) fn run(&self) {
        loop {
            let tasks = std::mem::take(&mut *self.tasks.lock());
            let before = tasks.len();
            let mut context = Context::from_waker(Waker::noop());
            let waiting: Vec<_> = tasks
                .into_iter()
                .filter_map(|mut task| task.as_mut().poll(&mut context).is_pending().then_some(task))
                .collect();
            let is_over = waiting.len() == before;
            let mut new = self.tasks.lock();
            let has_new = !new.is_empty();
            new.extend(waiting);
            if is_over && !has_new {
                return;
            }
        }
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn require_up(&self) -> Result<(), Unavailable> {
        if !self.is_down.load(SeqCst) {
            return Ok(());
        }
        let second = Duration::from_secs(1);
        Err(Unavailable { why: "it is down".to_owned(), out_for: second, retry_after: second })
    }

    fn decide_now(&self, asks: &[Ask<'_>]) -> Result<Decisions, Unavailable> {
        self.require_up()?;
        self.checks.fetch_add(1, SeqCst);
        let (mut states, now) = (self.states.lock(), self.now());
        let test = |states: &HashMap<String, State>, ask: &Ask<'_>| {
            let state = states.get(&name(ask)).cloned().unwrap_or_default();
            let outcome = ask.rule.at_reduced_rate(ask.pace).test(&state, ask.cost, now);
            Decision { outcome, status: ask.rule.status(&state, now) }
        };
        let decisions: Vec<Decision> = asks.iter().map(|ask| test(&states, ask)).collect();
        let denies =
            |(ask, decision): (&Ask<'_>, &Decision)| ask.group == Group::All && !decision.is_allowed();
        let passes = !asks.iter().zip(&decisions).any(denies);
        for (ask, decision) in asks.iter().zip(&decisions) {
            let is_charged = passes || ask.group == Group::Independent;
            if ask.action == Action::Charge && decision.is_allowed() && is_charged {
                ask.rule.spend(states.entry(name(ask)).or_default(), PermitId(0), ask.cost, now);
                *self.charged.lock().entry(ask.limit.to_string()).or_default() += ask.cost;
            }
        }
        let key_state = KeyState::Stored { more_after: None };
        let each = decisions.into_iter().map(|decision| LimitDecision { decision, key_state });
        Ok(Decisions { source: Source::Store, each: each.collect(), permits: Vec::new() })
    }

    fn draw_now(&self, call: &DrawCall) -> Result<Drawn, Unavailable> {
        self.require_up()?;
        let (mut states, now) = (self.states.lock(), self.now());
        let ask = call.key.ask(1);
        let state = states.entry(name(&ask)).or_default();
        let grant = ask.rule.at_reduced_rate(ask.pace).grant(state, &call.draw, now);
        Ok(Drawn { grant, charged: now })
    }
}

impl Store for GrantStore {
    fn decide<'a>(&'a self, asks: &'a [Ask<'_>]) -> Later<'a, Result<Decisions, Unavailable>> {
        // Not at the first poll, so that a caller can leave meanwhile.
        let mut is_sent = false;
        Box::pin(poll_fn(move |_| {
            if !std::mem::replace(&mut is_sent, true) {
                return Poll::Pending;
            }
            Poll::Ready(self.decide_now(asks))
        }))
    }

    fn release<'a>(&'a self, _: &'a [StoredPermit]) -> Later<'a, Result<bool, Unavailable>> {
        unreachable!("there are no permits")
    }

    fn release_later(&self, _: Vec<StoredPermit>) {}

    fn forget<'a>(&'a self, ask: &'a Ask<'_>) -> Later<'a, Result<bool, Unavailable>> {
        let was_known = self.states.lock().remove(&name(ask)).is_some();
        Box::pin(std::future::ready(Ok(was_known)))
    }

    fn require(&self, _: &Rule) -> Result<(), String> {
        Ok(())
    }

    fn nodes(&self) -> u32 {
        2
    }

    fn leases(self: Arc<Self>) -> Option<Arc<dyn LeaseStore>> {
        Some(self)
    }
}

impl LeaseStore for GrantStore {
    fn require_lease(&self, _: &Rule) -> Result<(), String> {
        Ok(())
    }

    fn connections(&self) -> u64 {
        self.connections.load(SeqCst)
    }

    fn primary(&self, _: &LeasedKey) -> Result<PrimaryId, Unavailable> {
        self.require_up()?;
        Ok(PrimaryId(self.connections()))
    }

    fn draw(&self, call: DrawCall) -> Later<'static, Result<Drawn, Unavailable>> {
        let store = self.this.upgrade().unwrap();
        store.draws.lock().push(call.clone());
        let late = Nanos::saturating_from(call.deadline);
        let until = store.now().after(late);
        Box::pin(poll_fn(move |_| {
            if !store.is_slow.load(SeqCst) {
                return Poll::Ready(store.draw_now(&call));
            }
            let unavailable =
                Unavailable { why: "no answer".to_owned(), out_for: Duration::ZERO, retry_after: DEADLINE };
            if store.now() >= until { Poll::Ready(Err(unavailable)) } else { Poll::Pending }
        }))
    }

    fn give_back(&self, call: ReturnCall) -> Later<'static, Result<(), Unavailable>> {
        let (store, ask) = (self.this.upgrade().unwrap(), call.key.ask(1));
        let mut states = store.states.lock();
        if let Some(state) = states.get_mut(&name(&ask)) {
            ask.rule.refund(state, call.units, call.charged, store.now());
        }
        store.returns.lock().push(call.clone());
        Box::pin(std::future::ready(Ok(())))
    }

    fn deadline(&self) -> Duration {
        DEADLINE
    }

    fn spawn(&self, task: Later<'static, ()>) {
        self.tasks.lock().push(task);
    }

    fn sleep(&self, span: Duration) -> Later<'static, ()> {
        let (clock, until) = (self.clock.clone(), self.now().after(Nanos::saturating_from(span)));
        Box::pin(poll_fn(move |_| if clock.now() >= until { Poll::Ready(()) } else { Poll::Pending }))
    }
}
