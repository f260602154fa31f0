//! What all listeners share: the engine, and what is seen of its decisions.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate::{Clock, DelayQueue, Nanos, Timestamp, Turn};
use tollgate_policy::{Engine, Policy};

use crate::admin::Admin;
use crate::connections::Connections;
use crate::dashboard::Dashboard;
use crate::held::Held;
use crate::hot_keys::KeyMask;
use crate::metrics::Metrics;
use crate::record::Recorder;
use crate::reload::Reloader;
use crate::resp::Password;
use crate::store::Health;
use crate::telemetry::{self, Telemetry};
use crate::timer::delay_timer;

/// As many requests that came together are asked of a shared store at once.
pub(crate) const MOST_AT_ONCE: usize = 64;

/// The seconds between two searches for old hot keys.
const HOT_KEYS_EVERY: u64 = 60;

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
    pub(crate) dashboard: Dashboard,
    pub(crate) resp_password: Password,
    pub(crate) connections: Arc<Connections>,
    pub(crate) reloader: Reloader,
    pub(crate) store: Option<Arc<dyn Health>>, // where states are kept, if not in this process
    pub(crate) recorder: Option<Recorder>,
    pub(crate) telemetry: Option<Arc<Telemetry>>,
    draining: AtomicBool,
    ticks: AtomicU64, // so far
}

impl Service {
    /// Starts to decide by a policy, with states in the store if there is one. What it could not do is told in words.
    pub(crate) fn new(
        policy: Policy,
        reloader: Reloader,
        store: Option<Arc<dyn Health>>,
    ) -> Result<Self, String> {
        let clock = match store {
            Some(_) => tollgate_redis::clock_with_suspended_time(), // leases count it
            None => Clock::new(),
        };
        Self::with_clock(policy, reloader, store, clock)
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
        telemetry::require_support(&policy)?;
        let telemetry = policy.telemetry.as_ref().map(Telemetry::start).transpose()?.map(Arc::new);
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
        let held = Held::new(store.clone());
        let metrics = Metrics::new(
            &engine,
            store.as_ref(),
            &delay_queue,
            &connections,
            held.counts(),
            telemetry.as_ref(),
        );
        metrics.reloaded(Ok(unix_time()));
        let recorder =
            record.map(|record| Recorder::start(&record, engine.clock(), metrics.record())).transpose()?;
        Ok(Self {
            engine,
            metrics,
            held,
            delay_queue,
            on_reload: OnceLock::new(),
            admin,
            key_mask: KeyMask::default(),
            dashboard: Dashboard::default(),
            resp_password,
            connections,
            reloader,
            store,
            recorder,
            telemetry,
            draining: AtomicBool::new(false),
            ticks: AtomicU64::new(0),
        })
    }

    /// Has somebody told of each policy that comes into force.
    pub(crate) fn on_reload(&self, follow: impl Fn(&Policy) + Send + Sync + 'static) {
        let _ = self.on_reload.set(Box::new(follow));
    }

    /// Tells them.
    pub(crate) fn has_reloaded(&self) {
        self.dashboard.policy_changed();
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
        // Requests in a line use these timers only before `run_delay_queue` is polled: see "Delayed requests" in docs/design.md.
        self.delay_queue.wait_with(turn, delay, decided_at, tokio::time::sleep)
    }

    /// Wakes all delayed requests with one timer, for as long as it is polled.
    pub(crate) fn run_delay_queue(&self) -> impl Future<Output = ()> + use<> {
        self.delay_queue.run_with(delay_timer())
    }

    /// Whether the process is about to end.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.dashboard.close();
    }

    /// Waits until nothing is left to be written.
    pub(crate) fn finish(&self) {
        if let Some(recorder) = &self.recorder {
            recorder.finish();
        }
        if let Some(telemetry) = &self.telemetry {
            telemetry.finish();
        }
    }

    /// What is to be done every second.
    pub(crate) fn tick(&self) {
        let now = self.engine.clock().now();
        self.engine.relax(now);
        self.engine.maintain();
        self.held.forget_ended(now);
        self.connections.tick();
        self.metrics.drop_retired();
        if self.ticks.fetch_add(1, Ordering::Relaxed).is_multiple_of(HOT_KEYS_EVERY) {
            self.metrics.forget_old_hot_keys(now);
        }
        if let Some(recorder) = &self.recorder {
            recorder.flush();
        }
        self.dashboard.tick(self);
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

/// A time in seconds, as the JSON of the API has it.
#[expect(clippy::disallowed_methods, reason = "a wire format")]
pub(crate) fn json_seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}
