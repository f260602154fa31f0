//! `/v1/playground`: rules on arrivals, decision by decision, without touching any state of the service.
//!
//! `POST` decides, `GET` lists the ready-made stories. An evaluation takes CPU time that no limit of the policy covers, so it has bounds
//! of its own: two at once, 50 ms of CPU each, on threads that only get the time that the threads of the service leave.

use std::convert::Infallible;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::response::Response;
use futures_util::stream;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use tokio::sync::oneshot;
use tollgate_lab::playground::{PlaygroundError, PlaygroundRequest, play, playable_scenarios, stories};

use super::pages::require_dashboard;
use super::problem::Problem;
use super::{Answer, json, reply};
use crate::connections::Activity;
use crate::service::Service;

/// The most evaluations at once.
const MOST_AT_ONCE: usize = 2;

/// The most CPU time of an evaluation, from the parsing of the body to the end of the reply.
const MOST_CPU: Duration = Duration::from_millis(50);

/// The most bytes of a reply.
const MOST_REPLY: usize = 16 << 20;

/// The path. The HTTP server gives its requests a handle of their connection.
pub(super) const PLAYGROUND: &str = "/v1/playground";

/// The most bytes of replies that clients have not read yet. Above that, calls are refused.
const MOST_UNREAD: usize = 64 << 20;

/// How long a client may take to read its reply. Then its connection is closed.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// The size of the pieces in which replies are sent. The connection keeps a copy of a piece or two.
const PIECE: usize = 64 << 10;

/// The niceness with which a thread yields to all others.
const NICEST: i32 = 19;

/// The bytes of replies that clients have not read yet.
static UNREAD: AtomicUsize = AtomicUsize::new(0);

/// A reply that its client has not read yet, by its bytes.
struct Unread(usize);

impl Unread {
    fn new(bytes: usize) -> Self {
        UNREAD.fetch_add(bytes, Ordering::Relaxed);
        Self(bytes)
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        UNREAD.fetch_sub(self.0, Ordering::Relaxed);
    }
}

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
    let activity = request.extensions().get::<Arc<Activity>>().map(Arc::clone);
    let body = json::body(request).await?;
    if UNREAD.load(Ordering::Relaxed) > MOST_UNREAD {
        let detail = "too many replies of the playground wait to be read: try again later";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).with_retry_after(5));
    }
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
    let reply = result.await.unwrap_or_else(|_| Err(internal("the evaluation ended without a reply")))?;
    Ok(in_pieces(reply, activity))
}

/// A reply that is sent in pieces, and whose connection is closed if its client does not read it in time.
fn in_pieces(reply: Bytes, activity: Option<Arc<Activity>>) -> Response {
    let length = reply.len();
    let unread = Arc::new(Unread::new(length));
    if let Some(activity) = activity {
        let waiting = Arc::downgrade(&unread);
        tokio::spawn(async move {
            tokio::time::sleep(READ_WITHIN).await;
            if waiting.strong_count() > 0 {
                activity.abort();
            }
        });
    }
    let pieces = stream::unfold((reply, unread), async |(mut rest, unread)| {
        let piece = rest.split_to(rest.len().min(PIECE));
        (!piece.is_empty()).then_some((Ok::<_, Infallible>(piece), (rest, unread)))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CONTENT_LENGTH, length.into());
    response
}

fn internal(detail: &str) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
}

fn evaluate_body(body: &Bytes) -> Result<Bytes, Problem> {
    let is_in_time = || {
        let used = clock_gettime(ClockId::ThreadCPUTime);
        Duration::try_from(used).is_ok_and(|used| used < MOST_CPU)
    };
    let request: PlaygroundRequest = json::parse(body)?;
    let played = play(&request, &mut { is_in_time }).map_err(|error| refusal(&error))?;
    let mut written = BoundedReply { bytes: Vec::new(), is_in_time: &is_in_time };
    serde_json::to_writer(&mut written, &played).map_err(|_| refusal(&PlaygroundError::Budget))?;
    Ok(written.bytes.into())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_counts_as_unread_until_its_last_piece_is_sent() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let reply = Bytes::from(vec![b' '; 3 * PIECE + 1]);
            let response = in_pieces(reply.clone(), None);
            assert_eq!(response.headers()[header::CONTENT_LENGTH], reply.len().to_string());
            assert_eq!(UNREAD.load(Ordering::Relaxed), reply.len());
            let read = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
            assert_eq!((read, UNREAD.load(Ordering::Relaxed)), (reply.clone(), 0));
            // A client that leaves.
            drop(in_pieces(reply, None));
            assert_eq!(UNREAD.load(Ordering::Relaxed), 0);
        });
    }
}
