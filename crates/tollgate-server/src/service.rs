//! What all listeners share: the engine, and what is seen of its decisions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use tollgate::{Clock, DelayQueue, Nanos, Timestamp, Turn};
use tollgate_policy::{
    Answer, Described, Engine, Hits, NotDecided, Permits, Policy, PolicyInForce, Request, Throttled,
    Together, TooManyLimits, Verdict,
};

use crate::admin::Admin;
use crate::connections::Connections;
use crate::held::Held;
use crate::hot_keys::KeyMask;
use crate::metrics::{Metrics, Protocol};
use crate::record::Recorder;
use crate::reload::Reloader;
use crate::resp::Password;
use crate::store::Health;

/// As many requests that came together are asked of a shared store at once.
pub(crate) const MOST_AT_ONCE: usize = 64;

/// Who is told of a policy that comes into force.
type Follow = Box<dyn Fn(&Policy) + Send + Sync>;

/// What all listeners share.
pub(crate) struct Service {
    pub(crate) engine: Arc<Engine>,
    pub(crate) metrics: Metrics,
    pub(crate) held: Held,
    pub(crate) delay_queue: DelayQueue,
    on_reload: OnceLock<Follow>,
    pub(crate) admin: Admin,
    pub(crate) key_mask: KeyMask,
    pub(crate) resp_password: Password,
    pub(crate) connections: Arc<Connections>,
    pub(crate) reloader: Reloader,
    pub(crate) store: Option<Arc<dyn Health>>, // where states are kept, if not in this process
    recorder: Option<Recorder>,
    draining: AtomicBool,
}

impl Service {
    /// Starts to decide by a policy, with states in the store if there is one. What it could not do is told in words.
    pub(crate) fn new(
        policy: Policy,
        reloader: Reloader,
        store: Option<Arc<dyn Health>>,
    ) -> Result<Self, String> {
        Self::with_clock(policy, reloader, store, Clock::new())
    }

    /// [`new`](Self::new), with a clock that a test can move.
    pub(crate) fn with_clock(
        policy: Policy,
        reloader: Reloader,
        store: Option<Arc<dyn Health>>,
        clock: Clock,
    ) -> Result<Self, String> {
        let admin = Admin::new(policy.admin_token_file.as_deref())?;
        let resp_password = Password::new(policy.resp_password_file.as_deref())?;
        let record = policy.record.clone();
        let (max, max_per_address) = policy
            .listen
            .as_ref()
            .map_or((None, None), |listen| (listen.max_connections, listen.max_connections_per_address));
        let connections = Arc::new(Connections::new(max, max_per_address));
        let engine = match store.clone() {
            None => Engine::with_clock(policy, clock),
            Some(store) => Engine::with_store(policy, clock, store),
        };
        let engine = Arc::new(engine.map_err(|error| error.to_string())?);
        let delay_queue = DelayQueue::new(engine.clock().clone());
        let metrics = Metrics::new(&engine, store.as_ref(), &delay_queue, &connections);
        metrics.reloaded(Ok(unix_time()));
        let recorder =
            record.map(|record| Recorder::start(&record, engine.clock(), metrics.record())).transpose()?;
        Ok(Self {
            engine,
            metrics,
            held: Held::new(store.clone()),
            delay_queue,
            on_reload: OnceLock::new(),
            admin,
            key_mask: KeyMask::default(),
            resp_password,
            connections,
            reloader,
            store,
            recorder,
            draining: AtomicBool::new(false),
        })
    }

    /// Has somebody told of each policy that comes into force.
    pub(crate) fn on_reload(&self, follow: impl Fn(&Policy) + Send + Sync + 'static) {
        let _ = self.on_reload.set(Box::new(follow));
    }

    /// Tells them.
    pub(crate) fn has_reloaded(&self) {
        if let Some(follow) = self.on_reload.get() {
            follow(&self.engine.policy());
        }
    }

    /// Waits for the turn of a request that was allowed with a delay. Dropping the future gives the turn to the next request.
    pub(crate) fn wait_for_turn(
        &self,
        turn: Option<Turn>,
        delay: Nanos,
        decided_at: Timestamp,
    ) -> impl Future<Output = ()> + use<> {
        // The timers of tokio take a third of the context switches: see "Delayed requests" in docs/design.md.
        self.delay_queue.wait_with(turn, delay, decided_at, tokio::time::sleep)
    }

    /// Decides a request in the table of this process, and lets it be seen.
    pub(crate) fn check<'a>(
        &self,
        policy: &'a PolicyInForce<'_>,
        request: &Request<'a>,
        now: Timestamp,
        protocol: Protocol,
    ) -> Result<Verdict<'a>, TooManyLimits> {
        let plan = policy.plan(request)?;
        Ok(self.decide_here(policy, request, now, protocol, |now| (plan.check(now), ())).0)
    }

    /// [`check`](Self::check), wherever states are kept.
    pub(crate) async fn decide<'a>(
        &self,
        policy: &'a PolicyInForce<'_>,
        request: &Request<'a>,
        now: Timestamp,
        protocol: Protocol,
    ) -> Result<Verdict<'a>, TooManyLimits> {
        if !self.engine.is_shared() {
            return self.check(policy, request, now, protocol);
        }
        // In a box, here and below, lest requests that wait for nobody carry about the room that waiting takes.
        Box::pin(async {
            let verdict = policy.plan(request)?.decide(now).await;
            self.note(policy, request, &verdict, protocol);
            Ok(verdict)
        })
        .await
    }

    /// Decides several requests in order, or none if one cannot be decided, and lets them be seen. A shared store is asked
    /// of many at once.
    pub(crate) async fn decide_each<'a>(
        &self,
        policy: &'a PolicyInForce<'_>,
        requests: &[Request<'a>],
        now: Timestamp,
        protocol: Protocol,
        mut each: impl FnMut(&Verdict<'a>),
    ) -> Result<(), TooManyLimits> {
        policy.require_few(requests)?;
        let mut requests = requests.iter();
        if !self.engine.is_shared() {
            return requests.try_for_each(|request| {
                each(&self.check(policy, request, now, protocol)?);
                Ok(())
            });
        }
        let mut asked = FuturesOrdered::new();
        loop {
            // They are asked in their order, whichever is answered first.
            let room = MOST_AT_ONCE - asked.len();
            asked.extend(
                requests.by_ref().take(room).map(|request| self.decide(policy, request, now, protocol)),
            );
            match asked.next().await {
                Some(verdict) => each(&verdict?),
                None => return Ok(()),
            }
        }
    }

    /// Decides a request and takes permits, wherever they are kept, and lets it be seen.
    pub(crate) async fn hold<'a>(
        &self,
        policy: &'a PolicyInForce<'_>,
        request: &Request<'a>,
        now: Timestamp,
        protocol: Protocol,
    ) -> Result<(Verdict<'a>, Permits), TooManyLimits> {
        if !self.engine.is_shared() {
            let plan = policy.plan_with_permits(request)?;
            let (verdict, permits) =
                self.decide_here(policy, request, now, protocol, |now| plan.acquire(now));
            return Ok((verdict, permits.into()));
        }
        Box::pin(async {
            let (verdict, permits) = policy.plan_with_permits(request)?.hold(now).await;
            self.note(policy, request, &verdict, protocol);
            Ok((verdict, permits))
        })
        .await
    }

    /// Decides the descriptors of one request of Envoy together in the table of this process, and lets them be seen.
    pub(crate) fn check_together<'a>(
        &self,
        policy: &'a PolicyInForce<'_>,
        requests: &[Described<'a>],
        now: Timestamp,
        protocol: Protocol,
    ) -> Result<Together<'a>, NotDecided> {
        let together = match &self.recorder {
            None => policy.check_together(requests, now)?,
            Some(recorder) => recorder.in_order(|| {
                let together = policy.check_together(requests, self.engine.clock().now())?;
                self.count_lost(recorder.write_together(&together));
                Ok::<_, NotDecided>(together)
            })?,
        };
        self.observe_together(&together, protocol);
        Ok(together)
    }

    /// [`check_together`](Self::check_together), wherever states are kept.
    pub(crate) async fn decide_together<'a>(
        &self,
        policy: &'a PolicyInForce<'_>,
        requests: &[Described<'a>],
        now: Timestamp,
        protocol: Protocol,
    ) -> Result<Together<'a>, NotDecided> {
        if !self.engine.is_shared() {
            return self.check_together(policy, requests, now, protocol);
        }
        let together = Box::pin(policy.decide_together(requests, now)).await?;
        if let Some(recorder) = &self.recorder {
            self.count_lost(recorder.in_order(|| recorder.write_together(&together)));
        }
        self.observe_together(&together, protocol);
        Ok(together)
    }

    /// Decides in the table of this process.
    fn decide_here<'a, T>(
        &self,
        policy: &PolicyInForce<'_>,
        request: &Request<'a>,
        now: Timestamp,
        protocol: Protocol,
        decide: impl FnOnce(Timestamp) -> (Verdict<'a>, T),
    ) -> (Verdict<'a>, T) {
        let decided = match &self.recorder {
            None => decide(now),
            // What is recorded is recorded in the order it was decided in, so that it can be decided again.
            Some(recorder) => recorder.in_order(|| {
                let decided = decide(self.engine.clock().now());
                self.count_lost(recorder.write(policy, request, &decided.0));
                decided
            }),
        };
        self.observe(request, &decided.0, protocol);
        decided
    }

    /// Records what a shared store has decided, in the order of its answers, and lets it be seen.
    fn note(
        &self,
        policy: &PolicyInForce<'_>,
        request: &Request<'_>,
        verdict: &Verdict<'_>,
        protocol: Protocol,
    ) {
        if let Some(recorder) = &self.recorder {
            self.count_lost(recorder.in_order(|| recorder.write(policy, request, verdict)));
        }
        self.observe(request, verdict, protocol);
    }

    /// Counts a decision, and the request, if it is more than a peek.
    fn observe(&self, request: &Request<'_>, verdict: &Verdict<'_>, protocol: Protocol) {
        self.metrics.observe_request(verdict, protocol);
        if request.cost != Some(0) {
            self.metrics.count_decided(protocol, verdict.is_allowed());
        }
    }

    /// Counts a decision by a rule that came with the request, and the request, if it is more than a peek.
    pub(crate) fn observe_throttled(&self, throttled: &Throttled, cost: u64, protocol: Protocol) {
        self.metrics.observe_sent(&throttled.decision, protocol);
        self.metrics.count_source(throttled.source, 1);
        if cost > 0 {
            self.metrics.count_decided(protocol, throttled.decision.is_allowed());
        }
    }

    /// Counts the decisions of a call's descriptors, and the call, unless all of its descriptors give hits back.
    fn observe_together(&self, together: &Together<'_>, protocol: Protocol) {
        for answer in &together.answers {
            self.metrics.observe(&answer.verdict, protocol);
            self.metrics.observe_descriptor(answer);
            if let Some(sent) = &answer.overridden {
                self.metrics.observe_sent(&sent.decision, protocol);
            }
        }
        let charges =
            |answer: &Answer<'_>| !matches!(answer.request().hits, Hits::Charge(0) | Hits::Refund(_));
        if together.answers.iter().any(charges) {
            self.metrics.count_decided(protocol, together.is_allowed());
        }
        if let Some(answer) = together.answers.first() {
            self.metrics.count_source(answer.verdict.source(), 1); // one store decides all of them
        }
    }

    /// Counts a decision that is not in the record.
    fn count_lost(&self, is_written: bool) {
        if !is_written {
            self.metrics.record_lost();
        }
    }

    /// Lets be seen how long so many decisions took that were made since `then`. The clock is read once for all of them.
    pub(crate) fn took(&self, then: Timestamp, decisions: u64) {
        self.metrics.took(self.engine.clock().now().since(then), decisions);
    }

    /// Whether the process is about to end.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Waits until nothing is left to be written.
    pub(crate) fn finish(&self) {
        if let Some(recorder) = &self.recorder {
            recorder.finish();
        }
    }

    /// What is to be done every second.
    pub(crate) fn tick(&self) {
        let now = self.engine.clock().now();
        self.engine.relax(now);
        self.engine.share();
        self.held.forget_ended(now);
        self.connections.tick();
        if let Some(recorder) = &self.recorder {
            recorder.flush();
        }
    }
}

/// The time of day.
#[expect(
    clippy::disallowed_methods,
    reason = "headers and records tell the time of day; nothing is decided by it"
)]
pub(crate) fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
