//! How a call of a script gets to the right server and back, or fails in time.
//!
//! | file | subject |
//! |---|---|
//! | `settings.rs` | what a link is made of, and what is refused |
//! | `script.rs` | scripts, and calls of them as commands |
//! | `error.rs` | why a call has no answer, and whether it ran |
//! | `password.rs`, `tls.rs` | passwords and certificates, and the files they are in |
//! | `connector.rs` | connections: TCP, TLS, AUTH |
//! | `examine.rs` | whether a server takes charges |
//! | `shard.rs` | one shard: its connection, its breaker, and the task that keeps both |
//! | `sentinel.rs`, `cluster.rs`, `slot.rs` | where the servers are, and which has a key |
//! | `health.rs`, `told.rs` | what is told of it, and how often |
//!
//! **A call is sent twice only when it is certain that it did not run.** The client library's own clusters, sentinels and
//! reconnecting connections repeat commands by themselves, so none of them is used: each server has one plain connection
//! over which all calls are pipelined, and everything else is done here.
//!
//! **A call costs no more time than its deadline, and none at all while its shard is known to be away.** See `shard.rs`.

mod cluster;
mod connector;
mod error;
mod examine;
mod health;
mod password;
mod script;
mod sentinel;
mod settings;
mod shard;
mod slot;
mod task;
mod tls;
mod told;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{ServerError, Value};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

pub use self::error::LinkError;
pub use self::health::{BreakerState, ShardHealth};
pub use self::password::Password;
pub use self::script::{Call, Script};
pub use self::settings::{Settings, SettingsError, Tls, Topology};
pub(crate) use self::shard::PROBE;

use self::cluster::Cluster;
use self::connector::Address;
use self::error::Refusal;
use self::sentinel::Sentinels;
use self::shard::{Common, Failure, Finder, Shard};
use self::slot::slot_of;
use self::task::{Task, jittered};

/// A call is sent at most so often: once as usual, with the source, and when a slot is on its way, wherever it is sent.
const MOST_ATTEMPTS: u32 = 16;

/// How long a call waits, on average, before it is sent again to a slot that is on its way.
const TRY_AGAIN: Duration = Duration::from_micros(1500);

/// A link to the servers of one store. What it does in the background ends when it is dropped.
pub struct Link {
    common: Arc<Common>,
    route: Route,
}

enum Route {
    One(Arc<Shard>),
    Cluster { cluster: Arc<Cluster>, _keeper: Task },
}

impl fmt::Debug for Link {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Link").field("health", &self.health()).finish_non_exhaustive()
    }
}

impl Link {
    /// Begins to connect, on the tokio runtime that this is called on, and returns at once.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        let plan = settings.read()?;
        if Handle::try_current().is_err() {
            return Err(SettingsError::NoRuntime);
        }
        let common = Arc::new(Common {
            connector: plan.connector,
            deadline: settings.deadline,
            is_cluster: matches!(settings.topology, Topology::Cluster),
            scripts: Mutex::default(),
            connections: AtomicU64::new(0),
            changed: Notify::new(),
            rediscover: Notify::new(),
        });
        let route = match settings.topology {
            Topology::Cluster => {
                let cluster = Arc::new(Cluster::new(plan.addresses, Arc::clone(&common)));
                Route::Cluster { _keeper: Task::spawn(Arc::clone(&cluster).keep()), cluster }
            }
            Topology::Single => {
                let address = plan.addresses[0].clone();
                let (name, finder) = (address.to_string(), Finder::At(address.clone()));
                Route::One(Shard::start(&name, Some(address), finder, Arc::clone(&common)))
            }
            Topology::Sentinel { master, .. } => {
                let connector = plan.to_sentinels.expect("this topology has sentinels");
                let name = master.clone();
                let finder = Finder::Sentinels(Sentinels { addresses: plan.addresses, connector, master });
                Route::One(Shard::start(&name, None, finder, Arc::clone(&common)))
            }
        };
        Ok(Self { common, route })
    }

    /// Has servers told of a script whenever a connection to them is made, so that its first call finds it there. A script
    /// that a server did not know when it was called is remembered as well.
    pub fn learn(&self, script: &Script) {
        self.common.learn(script);
    }

    /// Waits until all shards can be reached, at most so long, and tells whether they can.
    pub async fn ready(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        loop {
            let mut changed = std::pin::pin!(self.common.changed.notified());
            changed.as_mut().enable();
            if self.is_up() {
                return true;
            }
            if timeout_at(until, changed).await.is_err() {
                return self.is_up();
            }
        }
    }

    /// Runs a script where its keys are.
    ///
    /// The deadline of the settings begins now, and everything is done within it. What fails may have run, unless
    /// [`LinkError::may_have_run`] denies it.
    ///
    /// # Panics
    ///
    /// When the call has no key.
    pub async fn call(&self, call: Call<'_>) -> Result<Value, LinkError> {
        self.call_until(call, self.deadline()).await
    }

    /// The deadline of what begins now.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.common.deadline
    }

    /// The same as a part of something that has begun before.
    ///
    /// # Panics
    ///
    /// When the call has no key.
    pub async fn call_until(&self, call: Call<'_>, deadline: Instant) -> Result<Value, LinkError> {
        assert!(!call.keys.is_empty(), "a script is called where its keys are");
        let shard = self.owner(call.keys[0])?;
        let command = call.evalsha();
        match shard.send(&command, deadline).await {
            Ok(answer) => Ok(answer),
            Err(Failure::Link(error)) => Err(error),
            // Boxed, since it is seldom needed and would make every call's future larger.
            Err(Failure::Server { error, generation }) => {
                Box::pin(self.recover(call, shard, error, generation, deadline)).await
            }
        }
    }

    /// A number that grows whenever a connection is made or lost, or a slot of a cluster gets another server. While it stays the
    /// same, so does the [`primary`](Self::primary) of every key.
    pub fn connections(&self) -> u64 {
        self.common.connections.load(Acquire)
    }

    /// The number of the present connection to the server that has a key. No other connection of this process has it.
    pub fn primary(&self, key: &[u8]) -> Result<u64, LinkError> {
        self.owner(key)?.primary()
    }

    /// Runs a script where its keys are, if the connection to there is still the one of this number. The call is never sent
    /// elsewhere. It is sent again only with the source, if the server did not know the script.
    ///
    /// # Panics
    ///
    /// When the call has no key.
    pub async fn call_primary(
        &self,
        primary: u64,
        call: Call<'_>,
        deadline: Instant,
    ) -> Result<Value, LinkError> {
        assert!(!call.keys.is_empty(), "a script is called where its keys are");
        let shard = self.owner(call.keys[0])?;
        let (mut command, mut has_source) = (call.evalsha(), false);
        loop {
            let (error, generation) = match shard.send_to(primary, &command, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(Failure::Link(error)) => return Err(error),
                Err(Failure::Server { error, generation }) => (error, generation),
            };
            match Refusal::of(&error) {
                Refusal::NoScript if !has_source && Instant::now() < deadline => {
                    shard.counters().count_repair();
                    self.common.learn(call.script);
                    (command, has_source) = (call.eval(), true);
                }
                Refusal::Moved(_) => {
                    self.common.rediscover.notify_one();
                    return Err(shard.failed(&error));
                }
                Refusal::Ask(_) | Refusal::TryAgain => return Err(shard.failed(&error)),
                Refusal::CannotCharge => {
                    shard.trip(&error, generation);
                    return Err(shard.failed(&error));
                }
                Refusal::NoScript | Refusal::Final => return Err(shard.refused(&error)),
            }
        }
    }

    /// How each shard does.
    pub fn health(&self) -> Vec<ShardHealth> {
        match &self.route {
            Route::One(shard) => vec![shard.health()],
            Route::Cluster { cluster, .. } => cluster.health(),
        }
    }

    fn is_up(&self) -> bool {
        match &self.route {
            Route::One(shard) => shard.is_up(),
            Route::Cluster { cluster, .. } => cluster.is_up(),
        }
    }

    /// The shard that has a key. The clone counts a reference: the map may change while a call is under way.
    fn owner(&self, key: &[u8]) -> Result<Arc<Shard>, LinkError> {
        match &self.route {
            Route::One(shard) => Ok(Arc::clone(shard)),
            Route::Cluster { cluster, .. } => cluster.owner(slot_of(key)),
        }
    }

    /// Does what a server's error asks for, as long as that proves that the script did not run and there is time.
    async fn recover(
        &self,
        call: Call<'_>,
        mut shard: Arc<Shard>,
        mut error: ServerError,
        mut generation: u64,
        deadline: Instant,
    ) -> Result<Value, LinkError> {
        let (mut needs_source, mut is_asking) = (false, false);
        for _ in 1..MOST_ATTEMPTS {
            match Refusal::of(&error) {
                Refusal::NoScript if !needs_source => {
                    shard.counters().count_repair();
                    self.common.learn(call.script);
                    needs_source = true;
                }
                refusal @ (Refusal::Moved(to) | Refusal::Ask(to)) => {
                    is_asking = matches!(refusal, Refusal::Ask(_));
                    let Some(next) = self.redirected(&shard, to) else { return Err(shard.refused(&error)) };
                    if !is_asking {
                        self.common.rediscover.notify_one();
                    }
                    shard.counters().count_redirect();
                    next.first_connection(deadline).await;
                    shard = next;
                }
                Refusal::TryAgain => {
                    let pause = jittered(TRY_AGAIN);
                    if Instant::now() + pause >= deadline {
                        return Err(shard.refused(&error));
                    }
                    sleep(pause).await;
                    is_asking = false;
                    shard = self.owner(call.keys[0])?;
                }
                Refusal::CannotCharge => {
                    shard.trip(&error, generation);
                    let next = self.owner(call.keys[0])?;
                    if Arc::ptr_eq(&next, &shard) {
                        return Err(shard.failed(&error)); // where else it could go is found out in the background
                    }
                    is_asking = false;
                    shard = next;
                }
                Refusal::NoScript | Refusal::Final => return Err(shard.refused(&error)),
            }
            if Instant::now() >= deadline {
                return Err(shard.refused(&error));
            }
            let command = if needs_source { call.eval() } else { call.evalsha() };
            let answer = if is_asking {
                shard.send_asking(command, deadline).await
            } else {
                shard.send(&command, deadline).await
            };
            (error, generation) = match answer {
                Ok(answer) => return Ok(answer),
                Err(Failure::Link(error)) => return Err(error),
                Err(Failure::Server { error, generation }) => (error, generation),
            };
        }
        Err(shard.refused(&error))
    }

    /// The server that one sends us to, if there are several.
    fn redirected(&self, from: &Shard, to: &str) -> Option<Arc<Shard>> {
        let Route::Cluster { cluster, .. } = &self.route else { return None };
        let to = Address::read(to, &from.address()?.host)?;
        cluster.at(&to)
    }
}
