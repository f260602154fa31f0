//! The connections of all listeners: how many there may be, and which are closed when there are too many.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::sync::Notify;

/// How long a new connection waits for an idle one to close.
const WAIT: Duration = Duration::from_millis(200);

/// When the bound is reached, one part in this many is closed at once, so that the search for idle connections is rare.
const CLOSED_FRACTION: usize = 32;

/// The connections of all listeners.
#[derive(Debug)]
pub(crate) struct Connections {
    max: usize,
    max_per_address: usize,
    open: Mutex<OpenConnections>,
    freed: Notify,
    seconds: AtomicU32, // since the start, counted by `tick`
    refused: [AtomicU64; 2],
    closed_idle: AtomicU64,
    failed: AtomicU64, // to be accepted
}

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    all: HashMap<u64, Arc<Activity>>,
    by_address: HashMap<IpAddr, usize>,
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionRefusal {
    /// There are as many connections as there may be, and too few of them are idle.
    Total,
    /// The peer has as many as one address may have.
    Address,
}

impl ConnectionRefusal {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Address => "address",
        }
    }
}

impl Connections {
    /// Bounds as configured. By default three quarters of the open files that the process may have, and half of that for one address.
    pub(crate) fn new(max: Option<u64>, max_per_address: Option<u64>) -> Self {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let default = files.unwrap_or(1 << 20) / 4 * 3;
        let max = max.unwrap_or(default).max(1);
        let max_per_address = max_per_address.unwrap_or(max / 2).max(1);
        Self {
            max: usize::try_from(max).unwrap_or(usize::MAX),
            max_per_address: usize::try_from(max_per_address).unwrap_or(usize::MAX),
            open: Mutex::default(),
            freed: Notify::new(),
            seconds: AtomicU32::new(0),
            refused: Default::default(),
            closed_idle: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    pub(crate) const fn max(&self) -> usize {
        self.max
    }

    pub(crate) const fn max_per_address(&self) -> usize {
        self.max_per_address
    }

    /// Counts a connection that could not be accepted.
    pub(crate) fn count_failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a second.
    pub(crate) fn tick(&self) {
        self.seconds.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection. When the bound is reached, the connections that have been idle for longest are closed, and the new one
    /// waits for one of them to end.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        peer: IpAddr,
        is_exempt: bool,
    ) -> Result<ConnectionGuard, ConnectionRefusal> {
        let mut result = self.try_admit(peer, is_exempt);
        if matches!(result, Err(ConnectionRefusal::Total)) {
            self.close_idle();
            let until = tokio::time::Instant::now() + WAIT;
            // A connection may have ended before this one came: the first sign of one says nothing.
            while matches!(result, Err(ConnectionRefusal::Total))
                && tokio::time::timeout_at(until, self.freed.notified()).await.is_ok()
            {
                result = self.try_admit(peer, is_exempt);
            }
        }
        if let Err(full) = result {
            self.refused[full as usize].fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    pub(crate) fn try_admit(
        self: &Arc<Self>,
        peer: IpAddr,
        is_exempt: bool,
    ) -> Result<ConnectionGuard, ConnectionRefusal> {
        let address = (!is_exempt).then(|| peer_network(peer));
        let mut open = self.open.lock();
        let OpenConnections { next, all, by_address } = &mut *open;
        if let Some(address) = address {
            let count = by_address.get(&address).copied().unwrap_or(0);
            if count >= self.max_per_address {
                return Err(ConnectionRefusal::Address);
            }
            if all.len() >= self.max {
                return Err(ConnectionRefusal::Total);
            }
            by_address.insert(address, count + 1);
        } else if all.len() >= self.max {
            return Err(ConnectionRefusal::Total);
        }
        let (number, activity) = (*next, Arc::new(Activity::new(Arc::clone(self))));
        *next += 1;
        all.insert(number, Arc::clone(&activity));
        Ok(ConnectionGuard { connections: Arc::clone(self), number, address, activity })
    }

    /// Asks the connections that have been idle for longest to close.
    fn close_idle(&self) {
        let open = self.open.lock();
        let idle =
            |activity: &&Arc<Activity>| activity.is_idle() && !activity.is_closing.load(Ordering::Relaxed);
        let mut idle: Vec<&Arc<Activity>> = open.all.values().filter(idle).collect();
        let count = (self.max / CLOSED_FRACTION).max(1).min(idle.len());
        if count == 0 {
            return;
        }
        idle.select_nth_unstable_by_key(count - 1, |activity| activity.last.load(Ordering::Relaxed));
        idle[..count].iter().for_each(|activity| activity.close());
        self.closed_idle.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// The address by which peers are counted: of IPv6, the network of one subscriber.
pub(crate) fn peer_network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        address => address,
    }
}

/// Counts a connection until this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionGuard {
    connections: Arc<Connections>,
    number: u64,
    address: Option<IpAddr>, // none where it does not count
    pub(crate) activity: Arc<Activity>,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let mut open = self.connections.open.lock();
        open.all.remove(&self.number);
        if let Some(address) = self.address {
            match open.by_address.get_mut(&address) {
                Some(count) if *count > 1 => *count -= 1,
                _ => _ = open.by_address.remove(&address),
            }
        }
        drop(open);
        self.connections.freed.notify_one();
    }
}

/// What a connection is doing. Its own task writes it with every request, others read it when connections are to be closed.
#[derive(Debug)]
pub(crate) struct Activity {
    connections: Arc<Connections>,
    in_flight: AtomicU32,
    begun: AtomicU32, // requests so far, in a number that wraps
    last: AtomicU32,  // second in which a request began or ended
    is_closing: AtomicBool,
    closing: Notify,
    aborted: Notify,
}

impl Activity {
    fn new(connections: Arc<Connections>) -> Self {
        let last = AtomicU32::new(connections.seconds.load(Ordering::Relaxed));
        Self {
            connections,
            in_flight: AtomicU32::new(0),
            begun: AtomicU32::new(0),
            last,
            is_closing: AtomicBool::new(false),
            closing: Notify::new(),
            aborted: Notify::new(),
        }
    }

    /// A request is under way until the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.touch();
        InFlight(Arc::clone(self))
    }

    /// A request came, and was answered at once.
    pub(crate) fn touch(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.last.store(self.connections.seconds.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// How many requests are under way.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight() == 0
    }

    /// How many requests have begun so far, in a number that wraps.
    pub(crate) fn begun(&self) -> u32 {
        self.begun.load(Ordering::Relaxed)
    }

    fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
        self.closing.notify_one();
    }

    /// Ends the connection, whatever is under way on it.
    pub(crate) fn abort(&self) {
        self.aborted.notify_one();
    }

    /// Waits until the connection is to end at once.
    pub(crate) async fn aborted(&self) {
        self.aborted.notified().await;
    }

    /// Waits until the connection is asked to close.
    pub(crate) async fn closing(&self) {
        self.closing.notified().await;
    }
}

/// A request that is under way on a connection.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Activity>);

impl Drop for InFlight {
    fn drop(&mut self) {
        let Activity { connections, in_flight, last, .. } = &*self.0;
        last.store(connections.seconds.load(Ordering::Relaxed), Ordering::Relaxed);
        in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is shown of connections in the metrics.
#[derive(Debug)]
pub(crate) struct ConnectionMetrics(pub(crate) Arc<Connections>);

impl Collector for ConnectionMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Connections { open, refused, closed_idle, failed, .. } = &*self.0;
        let gauge = ConstGauge::new(open.lock().all.len() as u64);
        gauge.encode(encoder.encode_descriptor(
            "connections",
            "Open connections",
            None,
            gauge.metric_type(),
        )?)?;
        let mut family = encoder.encode_descriptor(
            "connections_refused",
            "Connections that were closed at once, because there were too many",
            None,
            MetricType::Counter,
        )?;
        for full in [ConnectionRefusal::Total, ConnectionRefusal::Address] {
            let counter = ConstCounter::new(refused[full as usize].load(Ordering::Relaxed));
            counter.encode(family.encode_family(&[("reason", full.as_str())])?)?;
        }
        let mut counter = |name: &str, help: &str, value: &AtomicU64| {
            let counter = ConstCounter::new(value.load(Ordering::Relaxed));
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)
        };
        counter(
            "connections_closed_idle",
            "Idle connections that were closed to make room for others",
            closed_idle,
        )?;
        counter(
            "connections_failed",
            "Connections that could not be accepted, usually because no file descriptor was free",
            failed,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn connections(max: u64, max_per_address: u64) -> Arc<Connections> {
        Arc::new(Connections::new(Some(max), Some(max_per_address)))
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_stays_within_its_bound() {
        let connections = connections(10, 2);
        let (one, other) = (address("192.0.2.1"), address("192.0.2.2"));
        let places = [connections.admit(one, false).await, connections.admit(one, false).await];
        assert!(places.iter().all(Result::is_ok));
        assert_eq!(connections.admit(one, false).await.unwrap_err(), ConnectionRefusal::Address);
        assert!(connections.admit(other, false).await.is_ok());
        assert!(connections.admit(one, true).await.is_ok(), "a proxy of ours is exempt");
        drop(places);
        assert!(connections.admit(one, false).await.is_ok());
        assert!(connections.open.lock().by_address.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_of_one_ipv6_network_are_one_peer() {
        let connections = connections(10, 1);
        let _place = connections.admit(address("2001:db8::1"), false).await.unwrap();
        assert_eq!(
            connections.admit(address("2001:db8::ffff:2"), false).await.unwrap_err(),
            ConnectionRefusal::Address
        );
        assert!(connections.admit(address("2001:db8:0:1::1"), false).await.is_ok());
        let _place = connections.admit(address("::ffff:192.0.2.1"), false).await.unwrap();
        assert_eq!(
            connections.admit(address("192.0.2.1"), false).await.unwrap_err(),
            ConnectionRefusal::Address
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_that_was_idle_for_longest_makes_room() {
        let connections = connections(3, 10);
        let peer = address("192.0.2.1");
        let busy = connections.admit(peer, false).await.unwrap();
        let _in_flight = busy.activity.begin();
        connections.tick();
        let oldest = connections.admit(peer, false).await.unwrap();
        connections.tick();
        let newest = connections.admit(peer, false).await.unwrap();
        let asked = Arc::clone(&oldest.activity);
        let closes = async {
            asked.closing().await;
            drop(oldest);
        };
        let (place, ()) = tokio::join!(connections.admit(peer, false), closes);
        assert!(place.is_ok());
        assert!(!newest.activity.is_closing.load(Ordering::Relaxed));
        assert!(!busy.activity.is_closing.load(Ordering::Relaxed));
        assert_eq!(connections.closed_idle.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_ended_before_do_not_end_the_wait() {
        let connections = connections(2, 10);
        let peer = address("192.0.2.1");
        let idle = connections.admit(peer, false).await.unwrap();
        drop(connections.admit(peer, false).await.unwrap());
        let other = connections.admit(peer, false).await.unwrap();
        let _in_flight = other.activity.begin();
        let asked = Arc::clone(&idle.activity);
        let closes = async {
            asked.closing().await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            drop(idle);
        };
        let (admitted, ()) = tokio::join!(connections.admit(peer, false), closes);
        assert!(admitted.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_idle_connection_the_new_one_is_refused_and_counted() {
        let connections = connections(1, 1);
        let place = connections.admit(address("192.0.2.1"), false).await.unwrap();
        let _in_flight = place.activity.begin();
        assert_eq!(
            connections.admit(address("192.0.2.2"), false).await.unwrap_err(),
            ConnectionRefusal::Total
        );
        assert_eq!(connections.refused[ConnectionRefusal::Total as usize].load(Ordering::Relaxed), 1);
    }
}
