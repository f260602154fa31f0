//! The one place where the listeners of all protocols have calls decided. Each decision is timed and counted here. Checks and
//! Envoy calls are also recorded; calls that bring their rule are not.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::HeaderMap;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use tollgate::{Decision, Timestamp};
use tollgate_policy::{
    Answer, CellRequest, Described, Hits, NotDecided, PolicyInForce, Request, SentRule, Source,
    ThrottleError, Throttled, TooManyLimits, Verdict,
};

use crate::metrics::{Protocol, RequestOutcome};
use crate::service::{MOST_AT_ONCE, Service};
use crate::telemetry::{DecisionSpan, Tracing};

/// Decides calls of one protocol at one reading of the clock. While calls are recorded, the clock is read again for each check.
///
/// On drop, counts the time that the decisions without a wait took, with one more reading of the clock for all of them.
pub(crate) struct Calls<'s> {
    service: &'s Service,
    protocol: Protocol,
    now: Timestamp,
    tracing: Tracing,
    decided: AtomicU64, // at once
}

impl<'s> Calls<'s> {
    /// Calls that came at `now`.
    pub(crate) const fn at(service: &'s Service, protocol: Protocol, now: Timestamp) -> Self {
        Self { service, protocol, now, tracing: Tracing::Caller(None), decided: AtomicU64::new(0) }
    }

    /// Exports the decisions as spans of this trace.
    pub(crate) fn traced(mut self, tracing: Tracing) -> Self {
        self.tracing = tracing;
        self
    }

    /// The time at which the calls came. While calls are recorded, they are decided a little later.
    pub(crate) const fn now(&self) -> Timestamp {
        self.now
    }

    /// Decides a request, and passes the verdict to `then`.
    #[inline]
    pub(crate) fn check<'a, T: Send + 'a>(
        &self,
        policy: &'a PolicyInForce<'_>,
        request: &Request<'a>,
        then: impl FnOnce(Verdict<'a>) -> T + Send + 'a,
    ) -> Answer<'a, Result<T, TooManyLimits>>
    where
        's: 'a,
    {
        self.decide(policy, request, false, then)
    }

    /// [`check`](Self::check) for a caller that can hold permits.
    pub(crate) fn acquire<'a, T: Send + 'a>(
        &self,
        policy: &'a PolicyInForce<'_>,
        request: &Request<'a>,
        then: impl FnOnce(Verdict<'a>) -> T + Send + 'a,
    ) -> Answer<'a, Result<T, TooManyLimits>>
    where
        's: 'a,
    {
        self.decide(policy, request, true, then)
    }

    #[inline]
    fn decide<'a, T: Send + 'a>(
        &self,
        policy: &'a PolicyInForce<'_>,
        request: &Request<'a>,
        can_hold: bool,
        then: impl FnOnce(Verdict<'a>) -> T + Send + 'a,
    ) -> Answer<'a, Result<T, TooManyLimits>>
    where
        's: 'a,
    {
        let (service, protocol, request, tracing) = (self.service, self.protocol, *request, self.tracing);
        self.timed(service.in_order(self.now, |now| {
            let count = move |verdict: Verdict<'a>| {
                service.count_check(policy, &request, &verdict, protocol);
                service.trace_verdict(tracing, protocol, &verdict, now);
                then(verdict)
            };
            match can_hold {
                true => policy.acquire_with(&request, now, count),
                false => policy.check_with(&request, now, count),
            }
        }))
    }

    /// Decides several requests in order, or none if one cannot be decided. A shared store is asked about many of them at once.
    pub(crate) async fn check_each(
        &self,
        policy: &PolicyInForce<'_>,
        requests: &[Request<'_>],
        mut each: impl FnMut(&Verdict<'_>) + Send,
    ) -> Result<(), TooManyLimits> {
        policy.require_few(requests)?;
        for (place, request) in requests.iter().enumerate() {
            match self.check(policy, request, |verdict| each(&verdict)).now() {
                Some(checked) => checked?,
                None => return self.check_each_later(policy, &requests[place..], each).await,
            }
        }
        Ok(())
    }

    async fn check_each_later(
        &self,
        policy: &PolicyInForce<'_>,
        requests: &[Request<'_>],
        mut each: impl FnMut(&Verdict<'_>) + Send,
    ) -> Result<(), TooManyLimits> {
        let (mut requests, mut asked) = (requests.iter(), FuturesOrdered::new());
        loop {
            // They are asked in their order, whichever is answered first.
            let room = MOST_AT_ONCE - asked.len();
            let check = |request| self.check(policy, request, |verdict| verdict).wait();
            asked.extend(requests.by_ref().take(room).map(check));
            match asked.next().await {
                Some(verdict) => each(&verdict?),
                None => return Ok(()),
            }
        }
    }

    /// Decides the descriptors of one Envoy call together, and passes the verdict to `then`.
    pub(crate) fn check_descriptors<'a, T: Send + 'a>(
        &self,
        policy: &'a PolicyInForce<'_>,
        requests: &'a [Described<'a>],
        then: impl FnOnce(Verdict<'a>) -> T + Send + 'a,
    ) -> Answer<'a, Result<T, NotDecided>>
    where
        's: 'a,
    {
        let (service, protocol, tracing) = (self.service, self.protocol, self.tracing);
        self.timed(service.in_order(self.now, |now| {
            policy.check_descriptors_with(requests, now, move |verdict| {
                service.count_descriptors(&verdict, protocol);
                service.trace_verdict(tracing, protocol, &verdict, now);
                then(verdict)
            })
        }))
    }

    /// Decides a request by the rule that comes with it.
    pub(crate) fn throttle<'a>(&self, sent: &SentRule<'a>) -> Answer<'a, Result<Throttled, ThrottleError>>
    where
        's: 'a,
    {
        let cost = sent.cost;
        self.throttled(self.service.engine.throttle(sent, self.now), cost)
    }

    /// Decides a call of `CL.THROTTLE`.
    pub(crate) fn throttle_cell<'a>(
        &self,
        request: &CellRequest<'a>,
    ) -> Answer<'a, Result<Throttled, ThrottleError>>
    where
        's: 'a,
    {
        let cost = request.quantity;
        self.throttled(self.service.engine.throttle_cell(request, self.now), cost)
    }

    /// Counts and exports a decision by a rule that came with the call.
    fn throttled<'a>(
        &self,
        throttled: Answer<'a, Result<Throttled, ThrottleError>>,
        cost: u64,
    ) -> Answer<'a, Result<Throttled, ThrottleError>>
    where
        's: 'a,
    {
        let (service, protocol, tracing, now) = (self.service, self.protocol, self.tracing, self.now);
        self.timed(throttled.map(move |throttled| {
            throttled.inspect(|throttled| {
                service.count_throttled(throttled, cost, protocol);
                service.trace_sent(tracing, protocol, &throttled.decision, throttled.source, now);
            })
        }))
    }

    /// Decides calls of `CL.THROTTLE` at once, each by itself and in order. None, and nothing is decided, if a store has to be waited
    /// for: then each is decided by [`throttle_cell`](Self::throttle_cell).
    pub(crate) fn throttle_cells(
        &self,
        requests: &[CellRequest<'_>],
        mut each: impl FnMut(Result<Decision, ThrottleError>) + Send,
    ) -> Option<()> {
        let (mut counts, mut peeks, mut errors) = ([0; 2], [0; 2], 0); // allowed, denied
        let mut calls = requests.iter();
        let (service, protocol, tracing, now) = (self.service, self.protocol, self.tracing, self.now);
        let count = |decision: Result<Decision, ThrottleError>| {
            match (&decision, calls.next()) {
                (Ok(decision), call) => {
                    service.trace_sent(tracing, protocol, decision, Source::Memory, now);
                    let outcome = usize::from(!decision.is_allowed());
                    counts[outcome] += 1;
                    peeks[outcome] += u64::from(call.is_some_and(|call| call.quantity == 0));
                }
                (Err(_), _) => errors += 1,
            }
            each(decision);
        };
        self.service.engine.throttle_cells(requests, self.now, count).now()?;
        let metrics = &self.service.metrics;
        metrics.count_sent(protocol, counts);
        metrics.count_source(Source::Memory, counts[0] + counts[1]);
        metrics.count_requests(protocol, RequestOutcome::allow, counts[0] - peeks[0]);
        metrics.count_requests(protocol, RequestOutcome::deny, counts[1] - peeks[1]);
        metrics.count_requests(protocol, RequestOutcome::error, errors);
        self.add_decided(counts[0] + counts[1]);
        Some(())
    }

    /// Counts a call that cannot be decided.
    pub(crate) fn count_error(&self) {
        self.service.metrics.count_error(self.protocol);
    }

    /// Counts the time of a decision. A decision without a wait is counted on drop, a decision of a store when it arrives.
    fn timed<'a, T: Send + 'a, E: Send + 'a>(
        &self,
        answer: Answer<'a, Result<T, E>>,
    ) -> Answer<'a, Result<T, E>>
    where
        's: 'a,
    {
        let (service, now) = (self.service, self.now);
        match answer {
            Answer::Now(decided) => {
                self.add_decided(u64::from(decided.is_ok()));
                Answer::Now(decided)
            }
            Answer::Later(later) => Answer::Later(Box::pin(async move {
                let decided = later.await;
                if decided.is_ok() {
                    service.count_time(now, 1);
                }
                decided
            })),
        }
    }

    fn add_decided(&self, decisions: u64) {
        // Only one thread has it at a time.
        self.decided.store(self.decided.load(Ordering::Relaxed) + decisions, Ordering::Relaxed);
    }
}

impl Drop for Calls<'_> {
    fn drop(&mut self) {
        let decided = *self.decided.get_mut();
        if decided > 0 {
            self.service.count_time(self.now, decided);
        }
    }
}

impl Service {
    /// Calls that are decided now.
    pub(crate) fn calls(&self, protocol: Protocol) -> Calls<'_> {
        Calls::at(self, protocol, self.engine.clock().now())
    }

    /// Decides in the order of the record, if there is one, so that the record can be decided again. Calls that wait for a store are
    /// recorded in the order of its answers.
    #[inline]
    fn in_order<T>(&self, now: Timestamp, decide: impl FnOnce(Timestamp) -> T) -> T {
        match &self.recorder {
            None => decide(now),
            Some(recorder) => recorder.in_order(|| decide(self.engine.clock().now())),
        }
    }

    /// Records and counts a check. A peek is not counted as a request.
    fn count_check(
        &self,
        policy: &PolicyInForce<'_>,
        request: &Request<'_>,
        verdict: &Verdict<'_>,
        protocol: Protocol,
    ) {
        if let Some(recorder) = &self.recorder {
            self.count_lost(recorder.write(policy, request, verdict));
        }
        self.metrics.observe(verdict, protocol);
        self.metrics.count_source(verdict.source(), 1);
        if request.cost != Some(0) {
            self.metrics.count_decided(protocol, verdict.is_allowed());
        }
    }

    /// Records and counts an Envoy call. It is not counted as a request if all its descriptors peek or refund.
    fn count_descriptors(&self, verdict: &Verdict<'_>, protocol: Protocol) {
        if let Some(recorder) = &self.recorder {
            self.count_lost(recorder.write_descriptors(verdict));
        }
        self.metrics.observe(verdict, protocol);
        let mut charges = false;
        for descriptor in verdict.descriptors() {
            self.metrics.observe_descriptor(&descriptor);
            if let Some(sent) = descriptor.sent() {
                self.metrics.observe_sent(&sent.decision, protocol);
            }
            charges |= !matches!(descriptor.hits(), Hits::Charge(0) | Hits::Refund(_));
        }
        if verdict.descriptors().len() > 0 {
            self.metrics.count_source(verdict.source(), 1);
        }
        if charges {
            self.metrics.count_decided(protocol, verdict.is_allowed());
        }
    }

    /// Counts a decision by a rule that came with the call.
    fn count_throttled(&self, throttled: &Throttled, cost: u64, protocol: Protocol) {
        self.metrics.observe_sent(&throttled.decision, protocol);
        self.metrics.count_source(throttled.source, 1);
        if cost > 0 {
            self.metrics.count_decided(protocol, throttled.decision.is_allowed());
        }
    }

    /// Exports a decision as a span, if its request is traced.
    #[inline]
    fn trace_verdict(&self, tracing: Tracing, protocol: Protocol, verdict: &Verdict<'_>, began: Timestamp) {
        let Some(telemetry) = &self.telemetry else { return };
        telemetry.add_decision(tracing, began, || DecisionSpan {
            protocol: protocol.as_str(),
            outcome: if verdict.is_allowed() { "allow" } else { "deny" },
            source: verdict.source().as_str(),
            // A collector may belong to somebody else: values of the environment stay here.
            limit: verdict.reported().map(|limit| {
                let name = self.engine.policy().environment_values.as_written(limit.name()).to_owned();
                name.into()
            }),
            began,
            ended: self.engine.clock().now(),
        });
    }

    /// Exports a decision by a rule that came with the call, if the call is traced.
    #[inline]
    fn trace_sent(
        &self,
        tracing: Tracing,
        protocol: Protocol,
        decision: &Decision,
        source: Source,
        began: Timestamp,
    ) {
        let Some(telemetry) = &self.telemetry else { return };
        telemetry.add_decision(tracing, began, || DecisionSpan {
            protocol: protocol.as_str(),
            outcome: if decision.is_allowed() { "allow" } else { "deny" },
            source: source.as_str(),
            limit: None,
            began,
            ended: self.engine.clock().now(),
        });
    }

    /// How the decisions of a request with these headers are traced.
    pub(crate) fn tracing(&self, headers: &HeaderMap) -> Tracing {
        match &self.telemetry {
            Some(_) => Tracing::of_headers(headers),
            None => Tracing::Off,
        }
    }

    /// Counts a decision that is not in the record.
    fn count_lost(&self, is_written: bool) {
        if !is_written {
            self.metrics.record_lost();
        }
    }

    /// Counts the time that decisions have taken since `then`.
    fn count_time(&self, then: Timestamp, decisions: u64) {
        self.metrics.took(self.engine.clock().now().since(then), decisions);
    }
}
