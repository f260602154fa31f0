//! The engine as the suite of asks drives it. Every call of the engine is in this file.

use std::collections::HashMap;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate::{AlgorithmKind, Clock, Decision, Outcome, Retry, Timestamp};
use tollgate_policy::{
    CellNumbers, CellRequest, Described, Engine, Hits, LimitVerdict, Override, Permits, Policy, Request,
    SentRule, StoreSettings, Throttled, Verdict,
};
use tollgate_testkit::answer;
use tollgate_testkit::asks::{self, Action, Attributes, Call, LimitAnswer, Reply, Subject};

/// Waits for the engine.
pub(crate) trait Wait {
    /// The output of a future.
    fn wait<T>(&self, future: impl Future<Output = T>) -> T;
}

/// For an engine that answers at once.
pub(crate) struct AtOnce;

impl Wait for AtOnce {
    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("the engine should answer at once"),
        }
    }
}

/// An engine under test.
pub(crate) struct EngineSubject<W> {
    engine: Engine,
    wait: W,
    /// Called with the time of each call (ns).
    set_time: Box<dyn Fn(u64)>,
    permits: HashMap<u64, Permits>,
}

/// A policy of the suite as the engine reads it.
pub(crate) fn policy(policy: &asks::Policy) -> Policy {
    let text = policy.yaml();
    Policy::read(Path::new("policy.yaml"), &text).unwrap_or_else(|faults| panic!("{faults}\n{text}"))
}

/// An engine in memory. For every other policy the table has one shard, so that all keys of a call share it.
pub(crate) fn in_memory(of: &asks::Policy) -> EngineSubject<AtOnce> {
    let mut policy = policy(of);
    if let StoreSettings::Memory(memory) = &mut policy.store
        && policy.limits.len().is_multiple_of(2)
    {
        memory.max_keys = Some(500);
    }
    let engine = Engine::with_clock(policy, Clock::manual()).unwrap();
    EngineSubject::new(engine, AtOnce, Box::new(|_| {}))
}

impl<W> EngineSubject<W> {
    pub(crate) fn new(engine: Engine, wait: W, set_time: Box<dyn Fn(u64)>) -> Self {
        Self { engine, wait, set_time, permits: HashMap::new() }
    }
}

impl<W: Wait> Subject for EngineSubject<W> {
    fn call(&mut self, now: u64, call: &Call) -> Reply {
        (self.set_time)(now);
        let clock = self.engine.clock();
        clock.advance(Duration::from_nanos(now - clock.now().as_nanos()));
        let (engine, wait, policy) = (&self.engine, &self.wait, self.engine.policy());
        let now = Timestamp::from_nanos(now);
        match call {
            Call::Check { attributes, cost } => {
                let attributes = borrowed(attributes);
                let request = Request { attributes: &attributes, cost: Some(*cost) };
                reply_of(&wait.wait(policy.check(&request, now).wait()).unwrap())
            }
            Call::Hold { attributes, cost, permit } => {
                let attributes = borrowed(attributes);
                let request = Request { attributes: &attributes, cost: Some(*cost) };
                let mut verdict = wait.wait(policy.acquire(&request, now).wait()).unwrap();
                let permits = verdict.take_permits();
                assert!(verdict.is_allowed() || permits.is_empty(), "a denied request holds permits");
                self.permits.insert(*permit, permits);
                reply_of(&verdict)
            }
            Call::Release { permit } => {
                if let Some(permits) = self.permits.remove(permit) {
                    wait.wait(permits.release()).unwrap();
                }
                Reply { outcome: Ok(0), answers: Vec::new(), reported: None }
            }
            Call::Explain { attributes, cost } => {
                let attributes = borrowed(attributes);
                let request = Request { attributes: &attributes, cost: Some(*cost) };
                let explanation = wait.wait(policy.explain(&request, now).wait()).unwrap();
                let applying = explanation.limits.iter().filter(|limit| limit.applies);
                let answers = applying.map(|limit| answer(&limit.limit.name, limit.decision, None)).collect();
                Reply { outcome: Ok(0), answers, reported: None }
            }
            Call::Sent { key, rule, cost } => {
                let (algorithm, numbers) = rule.algorithm();
                let algorithm = AlgorithmKind::from_name(algorithm).unwrap();
                let sent = SentRule { key, algorithm, numbers: &numbers, cost: *cost };
                alone("throttle", wait.wait(engine.throttle(&sent, now).wait()).unwrap())
            }
            Call::Cell { key, max_burst, count, period_seconds, cost } => {
                let numbers = CellNumbers { max_burst: *max_burst, count: *count, period: *period_seconds };
                let request = CellRequest { key: key.as_bytes(), numbers, quantity: *cost };
                alone("cell", wait.wait(engine.throttle_cell(&request, now).wait()).unwrap())
            }
            Call::Describe(descriptors) => {
                let attributes: Vec<Vec<(&str, &str)>> = descriptors
                    .iter()
                    .map(|of| {
                        let domain = [("domain", asks::Policy::DOMAIN)].into_iter();
                        domain.chain(borrowed(&of.attributes)).collect()
                    })
                    .collect();
                let described: Vec<Described<'_>> = descriptors
                    .iter()
                    .zip(&attributes)
                    .map(|(of, attributes)| described(of, attributes))
                    .collect();
                let verdict = wait.wait(policy.check_descriptors(&described, now).wait()).unwrap();
                let mut answers = Vec::new();
                for (given, descriptor) in verdict.descriptors().zip(descriptors) {
                    answers.extend(given.limits().map(limit_answer));
                    let name = descriptor.sent.map(|sent| format!("sent {}s", sent.seconds));
                    let sent = given.sent().zip(name);
                    answers.extend(sent.map(|(sent, name)| LimitAnswer {
                        is_known: sent.is_known,
                        ..answer(&name, sent.decision, None)
                    }));
                }
                answers.extend(verdict.shadow().map(limit_answer));
                Reply { outcome: outcome(verdict.outcome()), answers, reported: None }
            }
        }
    }
}

fn described<'a>(of: &asks::Descriptor, attributes: &'a [(&'a str, &'a str)]) -> Described<'a> {
    let hits = match of.action {
        Action::Charge => Hits::Charge(of.cost),
        Action::ChargeInFull => Hits::ChargeInFull(of.cost),
        Action::Refund => Hits::Refund(of.cost),
        Action::Hold | Action::Peek => panic!("descriptors cannot {:?}", of.action),
    };
    let window = |sent: asks::SentLimit| Duration::from_secs(sent.seconds);
    Described { attributes, hits, limit: of.sent.map(|of| Override { limit: of.limit, window: window(of) }) }
}

fn borrowed(attributes: &Attributes) -> Vec<(&str, &str)> {
    attributes.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

fn reply_of(verdict: &Verdict<'_>) -> Reply {
    let answers: Vec<LimitAnswer> = verdict.limits().chain(verdict.shadow()).map(limit_answer).collect();
    let reported = verdict.reported().map(|limit| limit.name().to_owned());
    Reply {
        outcome: outcome(verdict.outcome()),
        reported: answers.iter().position(|answer| Some(&answer.name) == reported.as_ref()),
        answers,
    }
}

fn limit_answer(limit: LimitVerdict<'_, '_>) -> LimitAnswer {
    let is_known = limit.is_known();
    LimitAnswer { is_known, ..answer(limit.name(), limit.decision(), Some(limit.is_charged())) }
}

fn alone(name: &str, throttled: Throttled) -> Reply {
    let answers = vec![throttled_answer(name, throttled)];
    Reply { outcome: outcome(throttled.decision.outcome), answers, reported: None }
}

fn throttled_answer(name: &str, throttled: Throttled) -> LimitAnswer {
    LimitAnswer { is_known: throttled.is_known, ..answer(name, throttled.decision, None) }
}

fn answer(name: &str, decision: Decision, is_charged: Option<bool>) -> LimitAnswer {
    let status = decision.status;
    let answer = answer::Answer::new(outcome(decision.outcome), status.remaining, status.reset_after.get());
    LimitAnswer { name: name.to_owned(), answer, is_charged, is_known: true }
}

fn outcome(outcome: Outcome) -> Result<u64, answer::Retry> {
    match outcome {
        Outcome::Allow { delay } => Ok(delay.get()),
        Outcome::Deny { retry: Retry::After(wait) } => Err(answer::Retry::After(wait.get())),
        Outcome::Deny { retry: Retry::Unknown } => Err(answer::Retry::Unknown),
        Outcome::Deny { retry: Retry::Never } => Err(answer::Retry::Never),
    }
}
