//! One request on its way through: decided, held, given its turn, sent on, answered.

use axum::http::{HeaderMap, Method, StatusCode, Uri};
use bytes::Bytes;
use tollgate::{Nanos, NoSlot, Timestamp, Turn, Weight};
use tollgate_policy::{
    PROBLEM_JSON, Permits, Policy, PolicyInForce, Request, RequestAttributes, RequestFault, UpstreamHeaders,
    Verdict, denial_body, has_detours, headers, host_name,
};

use super::Gateway;
use super::behind::Behind;
use super::forward::{self, Carried, Peer, Sender};
use super::front::{BodyError, Front, read_ahead, unless_gone};
use super::h1::{Framing, Kind, Lines, Timer};
use super::metrics::{Ended, SlowClient, UpstreamError};
use super::pressure::ClientId;
use super::refusal::Refusal;
use super::slots::{Ask, Taken};
use super::upstream::{AnswerBody, Answered, Call, CallError, Connected, InFlight, call};
use crate::http::problem::Problem;
use crate::metrics::Protocol;
use crate::service::unix_time;
use crate::telemetry::{GatewaySpan, TRACEPARENT, TraceParent, Tracing};

/// The head of a request, in which nothing is left to be doubted.
#[derive(Debug)]
pub(super) struct Asked<'r, H> {
    pub(super) method: &'r Method,
    pub(super) uri: &'r Uri,
    pub(super) headers: &'r H,
    pub(super) host: &'r str,
    pub(super) framing: Framing, // of its body
    pub(super) peer: &'r Peer,
    pub(super) is_tls: bool,
    /// What the client wants to speak from now on, and may.
    pub(super) upgrade: Option<&'r [u8]>,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: ReplyHeaders,
    /// What the client is told of the limits.
    pub(super) told: Vec<(&'static str, String)>,
    /// What the client is told of the body's length. None where nothing is said of it.
    pub(super) framing: Option<Framing>,
    pub(super) body: ReplyBody,
    pub(super) held: Held,
}

#[derive(Debug)]
pub(super) enum ReplyHeaders {
    /// The application's, of which some are not handed on.
    Upstream(Lines),
    Own(HeaderMap),
}

#[derive(Debug)]
pub(super) enum ReplyBody {
    Full(Bytes),
    Upstream(AnswerBody),
    /// From now on both speak something else.
    Upgraded(Connected),
}

/// What is held until the answer has been read, or the client has left.
#[derive(Debug, Default)]
pub(super) struct Held {
    _permits: Permits,
    taken: Option<Taken>,
    in_flight: Option<InFlight>,
}

impl Held {
    /// A connection that is open for hours takes no slot from those who ask and go.
    pub(super) fn release_slot(&mut self) {
        self.taken = None;
    }
}

/// A request that the limits let pass.
struct Passed {
    allowed: Allowed,
    upstream_headers: UpstreamHeaders,
    tenant: String,
    weight: Weight,
    head: Vec<u8>, // as the application gets it
    client: ClientId,
}

/// The verdict on such a request.
struct Allowed {
    permits: Permits,
    told: Vec<(&'static str, String)>, // headers for the client
    turn: Option<Turn>,                // in the delay queue
    delay: Nanos,
    decided_at: Timestamp,
    cost: u64,
}

/// A request on its way to the application.
struct Outgoing<'p, 't> {
    head: &'p [u8],
    client: ClientId,
    span: Option<&'p mut GatewaySpan<'t>>,
}

impl Gateway {
    /// Carries a request to the application and its answer back. None when the client has left.
    pub(super) async fn exchange<F: Front, H: Carried>(
        &self,
        behind: &Behind,
        asked: &Asked<'_, H>,
        front: &mut F,
        timer: &mut Option<Timer>,
    ) -> Option<Reply> {
        let mut span = self.span(asked.headers);
        let reply = self.exchange_traced(behind, asked, front, timer, &mut span).await?;
        if let Some(span) = &mut span {
            span.set_outcome(reply.ended().as_str(), reply.status.as_u16());
        }
        Some(reply)
    }

    /// The span of a request, if the request is traced.
    fn span<H: Carried>(&self, headers: &H) -> Option<GatewaySpan<'_>> {
        let telemetry = self.service.telemetry.as_ref()?;
        let clock = self.service.engine.clock();
        telemetry.begin_gateway(TraceParent::of(headers.values(TRACEPARENT)), clock.now(), clock)
    }

    async fn exchange_traced<F: Front, H: Carried>(
        &self,
        behind: &Behind,
        asked: &Asked<'_, H>,
        front: &mut F,
        timer: &mut Option<Timer>,
        span: &mut Option<GatewaySpan<'_>>,
    ) -> Option<Reply> {
        let passed = match self.decide(behind, asked, span.as_ref()).await {
            Ok(passed) => passed,
            Err(refused) => return Some(*refused),
        };
        let Passed { allowed, upstream_headers, tenant, weight, head, client } = passed;
        let Allowed { permits, mut told, turn, delay, decided_at, cost } = allowed;
        let mut held = Held { _permits: permits, ..Held::default() };
        if !delay.is_zero() {
            let turn = self.service.wait_for_turn(turn, delay, decided_at);
            let Some(()) = unless_gone(front, turn).await else {
                self.metrics.ended(Ended::gone);
                return None;
            };
        }
        if let Some(slots) = &behind.slots {
            if matches!(asked.framing, Framing::Length(_)) {
                let ahead = read_ahead(front, timer, behind.settings.timeouts.idle).await;
                if let Err(error) = ahead.map_err(CallError::Body) {
                    self.count_failed(&error);
                    return Some(Reply { told, ..Refusal::not_answered(&error)?.into() });
                }
            }
            let ask = Ask { tenant: &tenant, weight, cost };
            let Some(taken) = unless_gone(front, slots.take(ask)).await else {
                self.metrics.ended(Ended::gone);
                return None;
            };
            match taken {
                Ok(taken) => {
                    self.metrics.queued(taken.waited);
                    self.pressure.waited(taken.waited);
                    held.taken = Some(taken);
                }
                Err(refused) => {
                    self.metrics.ended(Ended::no_slot);
                    self.metrics.got_no_slot(refused.why);
                    // A tenant that fills its own queue says nothing of the others.
                    if refused.why != NoSlot::TooManyOfTenant {
                        self.pressure.waited(Nanos::new(u64::MAX));
                    }
                    return Some(Reply { told, ..Refusal::no_slot(refused).into() });
                }
            }
        }
        let outgoing = Outgoing { head: &head, client, span: span.as_mut() };
        Some(match self.forward(behind, asked, outgoing, &mut held, front, timer).await {
            Ok(answered) => {
                if asked.framing == Framing::Chunked {
                    // A stream in both directions: the client need not send while the application answers.
                    front.upload().release();
                }
                if upstream_headers == UpstreamHeaders::Keep {
                    leave_out_sent(&mut told, answered.headers());
                }
                Reply::answered(asked.method, answered, told, held)
            }
            Err(error) => Reply { told, ..Refusal::not_answered(&error)?.into() },
        })
    }

    /// Asks the limits, and makes ready what is to be sent.
    async fn decide<H: Carried>(
        &self,
        behind: &Behind,
        asked: &Asked<'_, H>,
        span: Option<&GatewaySpan<'_>>,
    ) -> Result<Passed, Box<Reply>> {
        let service = &*self.service;
        let policy = service.engine.policy();
        let refused = |fault: RequestFault| -> Box<Reply> {
            self.count_refused();
            Box::new(Refusal::new(StatusCode::BAD_REQUEST, &fault.detail()).into())
        };
        require_one_reading(&policy, asked).map_err(refused)?;
        let mut seen = RequestAttributes::new(&policy, asked.method, asked.uri, asked.headers, asked.peer.ip);
        seen.host = Some(asked.host.into()); // the only host that the application gets
        let attributes = seen.attributes(&policy).map_err(refused)?;
        let pairs: smallvec::SmallVec<[(&str, &str); 8]> =
            attributes.iter().map(|(name, value)| (*name, &**value)).collect();
        let value = |wanted: &str| {
            let value = pairs.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value)?;
            Some(if wanted == "host" { host_name(value) } else { value })
        };
        let request = Request { attributes: &pairs, cost: None };
        let tracing = span.map_or(Tracing::Off, |span| Tracing::Within(span.as_parent()));
        let calls = service.calls(Protocol::gateway).traced(tracing);
        service.delay_queue.wake_due(calls.now());
        let method = asked.method;
        let allowed = |mut verdict: Verdict<'_>| {
            if !verdict.is_allowed() {
                return Err(Box::new(denied(&policy, &verdict, method)));
            }
            Ok(Allowed {
                permits: verdict.take_permits(),
                told: headers(&policy.headers, &verdict, unix_time()),
                turn: verdict.turn(),
                delay: verdict.delay(),
                decided_at: verdict.decided_at(),
                cost: verdict.cost(),
            })
        };
        let decided = calls.acquire(&policy, &request, allowed).wait().await;
        drop(calls);
        let decided = decided.map_err(|error| {
            self.count_refused();
            let detail = Problem::from(error);
            Box::new(Refusal::new(detail.status(), detail.detail()).into())
        })?;
        let allowed = decided.inspect_err(|_| self.metrics.ended(Ended::denied))?;
        let by = behind.slots.as_ref().and_then(|slots| slots.by());
        let trace = span.map(GatewaySpan::for_upstream);
        let sender = Sender { peer: asked.peer, chain: &seen.chain, is_tls: asked.is_tls, trace };
        let mut head = Vec::with_capacity(1024);
        let parts = (asked.method, asked.uri, asked.headers);
        forward::write_request(&policy, parts, asked.host, asked.framing, asked.upgrade, sender, &mut head);
        Ok(Passed {
            allowed,
            upstream_headers: policy.headers.upstream,
            tenant: by.and_then(value).unwrap_or_default().to_owned(),
            weight: policy.weight(value("tenant")),
            head,
            // A client can make up names: only those of the policy are clients of their own.
            client: self
                .pressure
                .client(value("tenant").filter(|tenant| policy.tenants.contains_key(tenant)), seen.client()),
        })
    }

    /// Sends a request to the place that is best, or to the next if nobody is there.
    async fn forward<F: Front, H: Carried>(
        &self,
        behind: &Behind,
        asked: &Asked<'_, H>,
        Outgoing { head, client, mut span }: Outgoing<'_, '_>,
        held: &mut Held,
        front: &mut F,
        timer: &mut Option<Timer>,
    ) -> Result<Answered, CallError> {
        let clock = self.service.engine.clock();
        let to_send = Call {
            head,
            method: asked.method,
            framing: asked.framing,
            is_upgrade: asked.upgrade.is_some(),
            timeouts: behind.settings.timeouts,
        };
        let mut tried = smallvec::SmallVec::<[usize; 4]>::new();
        let mut error = CallError::Closed;
        while let Some((place, at)) = behind.upstreams.pick(clock.now(), &tried) {
            let began = clock.now();
            let result = call(&to_send, &at, front, timer).await;
            let now = clock.now();
            if let Some(span) = &mut span {
                span.set_upstream_call(began, now);
            }
            error = match result {
                Ok(answered) => {
                    at.succeeded();
                    self.metrics.upstream_answered(now.since(began));
                    self.pressure.answered(client, is_failure(answered.status()));
                    if let Some(taken) = &mut held.taken {
                        taken.answered(is_overload(&answered));
                    }
                    held.in_flight = Some(at);
                    self.metrics.ended(Ended::forwarded);
                    return Ok(answered);
                }
                Err(error) => error,
            };
            let Some(kind) = UpstreamError::of(&error) else { break };
            self.metrics.upstream_failed(kind);
            self.pressure.answered(client, true);
            at.failed(&error, now);
            if !matches!(error, CallError::Unreachable(_)) {
                break; // it may have been done
            }
            tried.push(place);
        }
        let is_upstreams = UpstreamError::of(&error).is_some();
        if let (Some(taken), true) = (&mut held.taken, is_upstreams) {
            taken.answered(true);
        }
        self.count_failed(&error);
        Err(error)
    }

    /// Counts a request that is refused before the limits decide.
    pub(super) fn count_refused(&self) {
        self.metrics.ended(Ended::refused);
        self.service.metrics.count_error(Protocol::gateway);
    }

    /// Counts a request without an answer.
    fn count_failed(&self, error: &CallError) {
        if let CallError::Body(BodyError::TooSlow) = error {
            self.metrics.slow_client(SlowClient::upload);
        }
        self.metrics.ended(match error {
            CallError::Gone | CallError::Body(BodyError::Gone) => Ended::gone,
            CallError::Body(_) => Ended::refused,
            _ => Ended::failed,
        });
    }
}

/// Refuses what the gateway itself would make ambiguous by passing it on. The rest is in [`RequestAttributes::attributes`].
fn require_one_reading<H: Carried>(
    policy: &PolicyInForce<'_>,
    asked: &Asked<'_, H>,
) -> Result<(), RequestFault> {
    if has_detours(asked.uri.path()) {
        return Err(RequestFault::Detours);
    }
    // What `Connection` names is not passed on: the application would not see a header that the limits have read.
    let options = asked.headers.of(Kind::Connection).flat_map(|line| line.split(|byte| *byte == b','));
    for option in options {
        if let Some(name) = policy.reads_header(option.trim_ascii()) {
            return Err(RequestFault::ConnectionOption { name: name.to_owned() });
        }
    }
    Ok(())
}

/// The answer to a request that the limits deny. Under an attack it is the most frequent one: what it says goes straight into its
/// lines, without a map of headers between.
fn denied(policy: &Policy, verdict: &Verdict<'_>, method: &Method) -> Reply {
    let status = StatusCode::TOO_MANY_REQUESTS;
    let mut told = headers(&policy.headers, verdict, unix_time());
    told.push(("content-type", PROBLEM_JSON.to_owned()));
    let body = denial_body(verdict, method, status);
    Reply { told, ..Refusal { status, headers: HeaderMap::new(), body }.into() }
}

/// Leaves out our headers of each family of which the application has sent one to the client itself. The numbers of two limiters
/// in one family would contradict each other.
fn leave_out_sent(told: &mut Vec<(&'static str, String)>, answer: &Lines) {
    let sent = |family: &str| {
        let is_of = |name: &[u8]| {
            name.get(..family.len()).is_some_and(|start| start.eq_ignore_ascii_case(family.as_bytes()))
        };
        forward::carried_on(answer).any(|(name, _)| is_of(name))
    };
    for family in ["ratelimit", "x-ratelimit-", "retry-after"].into_iter().filter(|family| sent(family)) {
        told.retain(|(ours, _)| !ours.starts_with(family));
    }
}

/// Whether a status means that the application or a service behind it could not answer. A client can provoke others, such as 500 and 501.
const fn is_failure(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
}

/// Whether an answer tells of too much load.
fn is_overload(answered: &Answered) -> bool {
    matches!(answered.status(), StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
}

impl Reply {
    /// How the request ended.
    fn ended(&self) -> Ended {
        match self.status {
            _ if self.held.in_flight.is_some() => Ended::forwarded,
            StatusCode::TOO_MANY_REQUESTS => Ended::denied,
            StatusCode::SERVICE_UNAVAILABLE => Ended::no_slot,
            status if status.is_client_error() => Ended::refused,
            _ => Ended::failed,
        }
    }

    fn answered(method: &Method, answered: Answered, told: Vec<(&'static str, String)>, held: Held) -> Self {
        let (head, body) = match answered {
            Answered::Answer(head, body) => (head, ReplyBody::Upstream(body)),
            Answered::Upgraded(head, connected) => (head, ReplyBody::Upgraded(connected)),
        };
        let announced = head.headers.of(Kind::ContentLength).next();
        let length = announced.and_then(|length| std::str::from_utf8(length).ok()?.parse().ok());
        let length = length.map(Framing::Length);
        let is_bodiless = head.status == StatusCode::NO_CONTENT || head.status.is_informational();
        let says_only = *method == Method::HEAD || head.status == StatusCode::NOT_MODIFIED;
        let framing = match length {
            _ if is_bodiless => None,
            length if says_only => length,
            length => Some(length.unwrap_or(Framing::Chunked)),
        };
        Self { status: head.status, headers: ReplyHeaders::Upstream(head.headers), told, framing, body, held }
    }
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        Self {
            status: refusal.status,
            headers: ReplyHeaders::Own(refusal.headers),
            told: Vec::new(),
            framing: Some(Framing::Length(refusal.body.len() as u64)),
            body: ReplyBody::Full(refusal.body),
            held: Held::default(),
        }
    }
}
