//! `/v1/playground`: rules on arrivals, decision by decision, without touching any state of the service.
//!
//! `POST` decides, `GET` lists the ready-made stories. An evaluation takes CPU time that no limit of the policy covers, so it has bounds
//! of its own: two at once, 50 ms of CPU each, on threads that only get the time that the threads of the service leave.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use tokio::sync::oneshot;
use tollgate_lab::playground::{PlaygroundError, PlaygroundRequest, play, playable_scenarios, stories};

use super::pages::require_dashboard;
use super::problem::Problem;
use super::{Answer, json, json_body, reply};
use crate::service::Service;

/// The most evaluations at once.
const MOST_AT_ONCE: usize = 2;

/// The most CPU time of an evaluation, from the parsing of the body to the end of the reply.
const MOST_CPU: Duration = Duration::from_millis(50);

/// The most bytes of a reply.
const MOST_REPLY: usize = 16 << 20;

/// The niceness with which a thread yields to all others.
const NICEST: i32 = 19;

/// How many evaluations run.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// One of the evaluations that run.
struct Running;

impl Running {
    fn begin() -> Option<Self> {
        let begin = |running: usize| (running < MOST_AT_ONCE).then_some(running + 1);
        RUNNING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, begin).ok().map(|_| Self)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) async fn list(State(service): State<Arc<Service>>) -> Answer {
    require_dashboard(&service)?;
    Ok(reply(&json!({ "stories": stories(), "scenarios": playable_scenarios() })))
}

pub(super) async fn evaluate(State(service): State<Arc<Service>>, request: Request<Body>) -> Answer {
    require_dashboard(&service)?;
    let body = json::body(request).await?;
    let running = Running::begin().ok_or_else(|| {
        let detail = format!("{MOST_AT_ONCE} playground calls run, which is the maximum: try again");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).with_retry_after(1)
    })?;
    let (done, result) = oneshot::channel();
    // A thread of its own: the niceness of a pooled thread would remain.
    let started = std::thread::Builder::new().name("playground".to_owned()).spawn(move || {
        // If the system refuses this, evaluations compete with decisions.
        let _ = rustix::process::setpriority_process(None, NICEST);
        let answer = evaluate_body(&body);
        drop(running);
        let _ = done.send(answer); // an error: the caller has left
    });
    started.map_err(|error| internal(&format!("no thread could be started: {error}")))?;
    result.await.unwrap_or_else(|_| Err(internal("the evaluation ended without a reply")))
}

fn internal(detail: &str) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
}

fn evaluate_body(body: &Bytes) -> Result<Response, Problem> {
    let is_in_time = || {
        let used = clock_gettime(ClockId::ThreadCPUTime);
        Duration::try_from(used).is_ok_and(|used| used < MOST_CPU)
    };
    let request: PlaygroundRequest = json::parse(body)?;
    let played = play(&request, &mut { is_in_time }).map_err(|error| refusal(&error))?;
    let mut written = BoundedReply { bytes: Vec::new(), is_in_time: &is_in_time };
    serde_json::to_writer(&mut written, &played).map_err(|_| refusal(&PlaygroundError::Budget))?;
    Ok(json_body(written.bytes))
}

fn refusal(error: &PlaygroundError) -> Problem {
    let status = match error {
        PlaygroundError::Budget => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::BAD_REQUEST,
    };
    Problem::new(status, error.to_string())
}

/// A reply that ends at the bounds of size and CPU time.
struct BoundedReply<'b> {
    bytes: Vec<u8>,
    is_in_time: &'b dyn Fn() -> bool,
}

/// The CPU time is checked once per this many bytes.
const LOOK_EVERY: usize = 64 << 10;

impl Write for BoundedReply<'_> {
    fn write(&mut self, new: &[u8]) -> io::Result<usize> {
        let before = self.bytes.len();
        let after = before + new.len();
        let is_due = before / LOOK_EVERY != after / LOOK_EVERY;
        if after > MOST_REPLY || is_due && !(self.is_in_time)() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.bytes.extend_from_slice(new);
        Ok(new.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
