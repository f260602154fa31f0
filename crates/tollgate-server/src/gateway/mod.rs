//! The reverse proxy: limits requests, holds them back, shares what the application can do, and carries them there.
//!
//! The way of a request: `h1/server.rs` or `h2.rs` read it from a client; `exchange.rs` asks the limits, waits for its time and
//! its slot (`slots.rs`); `forward.rs` writes its head anew; `upstream/` carries it to the application and its answer back.

mod behind;
mod exchange;
mod forward;
mod front;
mod h1;
mod h2;
mod metrics;
mod pressure;
mod progress;
mod refusal;
mod slots;
mod upstream;

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::io::{AsyncRead, AsyncWrite};
use tollgate_policy::{LoadSource, Policy};

use self::behind::Behind;
pub(crate) use self::metrics::{GatewayMetrics, GatewayView};
use self::pressure::{EVERY, Pressure};
pub(crate) use self::slots::SlotTime;
use crate::connections::Activity;
use crate::listener::{Connection, Speak};
use crate::retired::Retired;
use crate::service::Service;

/// The gateway.
pub(crate) struct Gateway {
    service: Arc<Service>,
    behind: ArcSwap<Behind>,
    /// Dropping it closes connections.
    retired: Retired<Behind>,
    metrics: GatewayMetrics,
    pressure: Pressure,
}

impl Gateway {
    /// As the policy in force has it: none where it has none.
    pub(crate) fn new(service: Arc<Service>) -> Option<Arc<Self>> {
        let behind = Arc::new(Behind::new(&service.engine.policy(), service.engine.clock().clone())?);
        let metrics = service.metrics.gateway.clone()?;
        metrics.watch(Arc::clone(&behind));
        let behind = ArcSwap::new(behind);
        let gateway = Arc::new_cyclic(|gateway: &Weak<Self>| {
            let gateway = Weak::clone(gateway);
            service.on_reload(move |policy| {
                if let Some(gateway) = gateway.upgrade() {
                    gateway.follow(policy);
                }
            });
            Self { service, behind, retired: Retired::default(), metrics, pressure: Pressure::new() }
        });
        Some(gateway)
    }

    /// Another policy is in force. One without a gateway leaves this one as it is.
    fn follow(&self, policy: &Policy) {
        if let Some(behind) = self.behind.load().following(policy) {
            let behind = Arc::new(behind);
            self.metrics.watch(Arc::clone(&behind));
            self.retired.push(self.behind.swap(behind));
        }
    }

    /// How long a connection may be quiet.
    fn idle(&self) -> Duration {
        self.behind.load().settings.timeouts.idle
    }

    /// What is behind it now.
    fn behind(&self) -> Arc<Behind> {
        self.behind.load_full()
    }

    /// Tells the engine how loaded the application is, for as long as it runs.
    pub(crate) async fn watch_load(&self) {
        loop {
            // Processes that began together do not stay in step.
            let jitter = Duration::from_millis(u64::from(random_byte()) / 8);
            tokio::time::sleep(EVERY - Duration::from_millis(16) + jitter).await;
            let marks = self.service.engine.policy().adaptive_rates;
            if let Some(marks) = marks {
                let now = self.service.engine.clock().now();
                self.service.engine.press(LoadSource::Gateway, self.pressure.tell(marks), now);
            }
        }
    }

    /// What is to be done every second.
    pub(crate) fn tick(&self) {
        self.behind.load().upstreams.iter().for_each(upstream::Upstream::sweep);
        self.retired.drop_unused();
    }
}

fn random_byte() -> u8 {
    let mut byte = [0];
    getrandom::fill(&mut byte).expect("the system has randomness");
    byte[0]
}

/// Speaks HTTP/1.1 or HTTP/2, whichever the client begins with.
#[derive(Clone)]
pub(crate) struct Front(pub(crate) Arc<Gateway>);

impl Speak for Front {
    const NAME: &'static str = "gateway";

    async fn speak<S>(
        self,
        stream: S,
        connection: Connection,
        activity: Arc<Activity>,
        stop: impl Future<Output = ()> + Send,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        h1::serve(&self.0, stream, connection, &activity, stop).await;
    }
}
