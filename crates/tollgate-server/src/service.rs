//! What all listeners share: the engine, and what is seen of its decisions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate::{Clock, Permit, Timestamp};
use tollgate_policy::{
    Described, Engine, NotDecided, Policy, PolicyInForce, Request, Together, TooManyLimits, Verdict,
};

use crate::admin::Admin;
use crate::held::Held;
use crate::metrics::{Metrics, Protocol};
use crate::record::Recorder;
use crate::reload::Reloader;
use crate::resp::Password;

/// What all listeners share.
pub(crate) struct Service {
    pub(crate) engine: Arc<Engine>,
    pub(crate) metrics: Metrics,
    pub(crate) held: Held,
    pub(crate) admin: Admin,
    pub(crate) resp_password: Password,
    pub(crate) reloader: Reloader,
    recorder: Option<Recorder>,
    draining: AtomicBool,
}

impl Service {
    /// Starts to decide by a policy. What it could not do is told in words.
    pub(crate) fn new(policy: Policy, reloader: Reloader) -> Result<Self, String> {
        Self::with_clock(policy, reloader, Clock::new())
    }

    /// [`new`](Self::new), with a clock that a test can move.
    pub(crate) fn with_clock(policy: Policy, reloader: Reloader, clock: Clock) -> Result<Self, String> {
        let admin = Admin::new(policy.admin_token_file.as_deref())?;
        let resp_password = Password::new(policy.resp_password_file.as_deref())?;
        let record = policy.record.clone();
        let engine = Arc::new(Engine::with_clock(policy, clock).map_err(|error| error.to_string())?);
        let metrics = Metrics::new(&engine);
        metrics.reloaded(Ok(unix_time()));
        let recorder = record.map(|record| Recorder::start(&record, engine.clock())).transpose()?;
        Ok(Self {
            engine,
            metrics,
            held: Held::default(),
            admin,
            resp_password,
            reloader,
            recorder,
            draining: AtomicBool::new(false),
        })
    }

    /// Decides a request, and lets it be seen.
    pub(crate) fn check<'a>(
        &self,
        policy: &'a PolicyInForce<'_>,
        request: &Request<'a>,
        now: Timestamp,
        protocol: Protocol,
    ) -> Result<Verdict<'a>, TooManyLimits> {
        let plan = policy.plan(request)?;
        Ok(self.decide(policy, request, now, protocol, |now| (plan.check(now), ())).0)
    }

    /// Decides several requests in order, or none if one cannot be decided, and lets them be seen.
    pub(crate) fn check_each<'a>(
        &self,
        policy: &'a PolicyInForce<'_>,
        requests: &[Request<'a>],
        now: Timestamp,
        protocol: Protocol,
        mut each: impl FnMut(&Verdict<'a>),
    ) -> Result<(), TooManyLimits> {
        policy.require_few(requests)?;
        for request in requests {
            each(&self.check(policy, request, now, protocol)?);
        }
        Ok(())
    }

    /// Decides a request and takes permits, and lets it be seen.
    pub(crate) fn acquire<'a>(
        &self,
        policy: &'a PolicyInForce<'_>,
        request: &Request<'a>,
        now: Timestamp,
        protocol: Protocol,
    ) -> Result<(Verdict<'a>, Vec<Permit>), TooManyLimits> {
        let plan = policy.plan_with_permits(request)?;
        Ok(self.decide(policy, request, now, protocol, |now| plan.acquire(now)))
    }

    /// Decides the descriptors of one request of Envoy together, and lets them be seen.
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
                if !recorder.write_together(&together) {
                    self.metrics.record_lost();
                }
                Ok::<_, NotDecided>(together)
            })?,
        };
        for answer in &together.answers {
            self.metrics.observe(&answer.verdict, protocol);
            self.metrics.observe_descriptor(answer);
            if let Some(sent) = &answer.overridden {
                self.metrics.observe_sent(&sent.decision, protocol);
            }
        }
        Ok(together)
    }

    fn decide<'a, T>(
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
                if !recorder.write(policy, request, &decided.0) {
                    self.metrics.record_lost();
                }
                decided
            }),
        };
        self.metrics.observe(&decided.0, protocol);
        decided
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
        self.held.forget_ended(now);
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
