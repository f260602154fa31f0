//! What all listeners share: the engine, and what is seen of its decisions.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate::{Permit, Timestamp};
use tollgate_policy::{Engine, Policy, PolicyInForce, Request, TooManyLimits, Verdict};

use crate::admin::Admin;
use crate::held::Held;
use crate::metrics::{Metrics, Protocol};
use crate::record::Recorder;
use crate::reload::Reloader;

/// What all listeners share.
pub(crate) struct Service {
    pub(crate) engine: Arc<Engine>,
    pub(crate) metrics: Metrics,
    pub(crate) held: Held,
    pub(crate) admin: Admin,
    pub(crate) reloader: Reloader,
    recorder: Option<Recorder>,
    hasher: RandomState,
    draining: AtomicBool,
}

impl Service {
    /// Starts to decide by a policy. What it could not do is told in words.
    pub(crate) fn new(policy: Policy, reloader: Reloader) -> Result<Self, String> {
        let admin = Admin::new(policy.admin_token_file.as_deref())?;
        let record = policy.record.clone();
        let engine = Arc::new(Engine::new(policy).map_err(|error| error.to_string())?);
        let metrics = Metrics::new(&engine);
        metrics.reloaded(Ok(unix_time()));
        let recorder = record.map(|record| Recorder::start(&record, engine.clock())).transpose()?;
        Ok(Self {
            engine,
            metrics,
            held: Held::default(),
            admin,
            reloader,
            recorder,
            hasher: RandomState::new(),
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
        self.decide(policy, request, now, protocol, |now| Ok((policy.check(request, now)?, ())))
            .map(|(verdict, ())| verdict)
    }

    /// Decides a request and takes permits, and lets it be seen.
    pub(crate) fn acquire<'a>(
        &self,
        policy: &'a PolicyInForce<'_>,
        request: &Request<'a>,
        now: Timestamp,
        protocol: Protocol,
    ) -> Result<(Verdict<'a>, Vec<Permit>), TooManyLimits> {
        self.decide(policy, request, now, protocol, |now| policy.acquire(request, now))
    }

    fn decide<'a, T>(
        &self,
        policy: &PolicyInForce<'_>,
        request: &Request<'a>,
        now: Timestamp,
        protocol: Protocol,
        decide: impl FnOnce(Timestamp) -> Result<(Verdict<'a>, T), TooManyLimits>,
    ) -> Result<(Verdict<'a>, T), TooManyLimits> {
        let decided = match &self.recorder {
            None => decide(now)?,
            // What is recorded is recorded in the order it was decided in, so that it can be decided again.
            Some(recorder) => recorder.in_order(|| {
                let decided = decide(self.engine.clock().now())?;
                if !recorder.write(policy, request, &decided.0) {
                    self.metrics.record_lost();
                }
                Ok(decided)
            })?,
        };
        let took = self.engine.clock().now().since(now);
        self.metrics.observe(&decided.0, protocol, took.into(), |key| self.hasher.hash_one(key));
        Ok(decided)
    }

    /// Whether the process is about to end.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
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
