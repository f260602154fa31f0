//! Asks the limits about a request.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use smallvec::SmallVec;
use tollgate::{DelayQueue, Wait};
use tollgate_policy::{
    Answer, Attributes, Engine, Permits, Policy, Request, RequestAttributes, Verdict, cut_value,
    denial_response, error_response, headers, refusal_response,
};

use crate::grpc;

pub(crate) type Peer = dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync;
pub(crate) type Value = dyn for<'r> Fn(&'r Parts) -> Option<Cow<'r, str>> + Send + Sync;
pub(crate) type Cost = dyn Fn(&Parts) -> Option<u64> + Send + Sync;

/// Decides requests: the engine, its delayed requests, and the functions that read more from a request than the policy does.
#[derive(Clone)]
pub(crate) struct Decider {
    pub(crate) engine: Arc<Engine>,
    delay_queue: DelayQueue,
    pub(crate) peer: Arc<Peer>,
    pub(crate) attributes: Vec<(String, Arc<Value>)>,
    pub(crate) cost: Option<Arc<Cost>>,
}

/// The decision on a request.
pub(crate) enum Decided {
    Passes(Passed),
    /// It passes when its turn has come.
    Delayed(Wait, Passed),
    Refused(Response<Bytes>),
}

/// The headers and the permits that go with the answer to a request that passes.
#[derive(Default)]
pub(crate) struct Passed {
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) permits: Permits, // until the answer ends
}

impl Decider {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        let delay_queue = DelayQueue::new(engine.clock().clone());
        Self { engine, delay_queue, peer: Arc::new(peer), attributes: Vec::new(), cost: None }
    }

    /// Decides a request. None, and nothing is decided, if it has to be waited for and is not to be.
    pub(crate) async fn decide(&self, request: &Parts, waiting: Waiting) -> Option<Decided> {
        let policy = self.engine.policy();
        let peer = (self.peer)(request).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let reading = RequestAttributes::new(&policy, &request.method, &request.uri, &request.headers, peer);
        let own =
            self.attributes.iter().filter_map(|(name, value)| Some((&**name, cut_value(value(request)?))));
        let read = match reading.attributes(&policy) {
            Ok(read) => read,
            Err(fault) => {
                let refused = refusal_response(&fault, &request.method, StatusCode::BAD_REQUEST);
                return Some(refuse(request, refused));
            }
        };
        let attributes: Attributes<'_> = own.chain(read).collect();
        let attributes: SmallVec<[(&str, &str); 8]> =
            attributes.iter().map(|(name, value)| (*name, &**value)).collect();
        let cost = self.cost.as_ref().and_then(|cost| cost(request));
        let now = self.engine.clock().now();
        self.delay_queue.wake_due(now);
        let asked = Request { attributes: &attributes, cost };
        let answer = policy.acquire_with(&asked, now, |verdict| self.decided(&policy, verdict, request));
        let decided = match (answer, waiting) {
            (Answer::Now(decided), _) => decided,
            (Answer::Later(later), Waiting::Allowed) => later.await,
            (Answer::Later(_), Waiting::Forbidden) => return None,
        };
        Some(decided.unwrap_or_else(|error| {
            // Only a change of the policy helps.
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            refuse(request, error_response(&error.to_string(), &request.method, status))
        }))
    }

    fn decided(&self, policy: &Policy, mut verdict: Verdict<'_>, request: &Parts) -> Decided {
        if !verdict.is_allowed() {
            let status = StatusCode::TOO_MANY_REQUESTS;
            let denial = denial_response(policy, &verdict, unix_time(), &request.method, status);
            return refuse(request, denial);
        }
        let headers = headers(&policy.headers, &verdict, unix_time());
        let passed = Passed { headers, permits: verdict.take_permits() };
        let delay = verdict.delay();
        if delay.is_zero() {
            return Decided::Passes(passed);
        }
        Decided::Delayed(self.delay_queue.wait(verdict.turn(), delay, verdict.decided_at()), passed)
    }
}

/// Whether a decision may be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    Allowed,
    Forbidden,
}

fn refuse(request: &Parts, refused: Response<Bytes>) -> Decided {
    Decided::Refused(match grpc::content_type(&request.headers) {
        Some(content_type) => grpc::refusal(refused, content_type),
        None => refused,
    })
}

/// Who is at the other end of the connection, where somebody has put that into the extensions of a request.
fn peer(request: &Parts) -> Option<IpAddr> {
    let address = request.extensions.get::<SocketAddr>().map(SocketAddr::ip);
    address.or_else(|| request.extensions.get::<IpAddr>().copied())
}

/// The time of day, which some response headers have. It decides nothing.
#[expect(clippy::disallowed_methods, reason = "only response headers have the time of day")]
fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
