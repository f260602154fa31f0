//! `GET /v1/events`: what the dashboard and `tollgate top` show, as server-sent events.
//!
//! A stream is a follower of [`Dashboard`](crate::dashboard::Dashboard). Its frames are sent in pieces, so that the connection
//! copies a large one bit by bit.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use axum::response::Response;
use futures_util::stream;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;

use super::problem::Problem;
use super::query::query_pairs;
use super::{Answer, reply, require_admin};
use crate::connections::Activity;
use crate::dashboard::{FollowError, Following, Frame, KeyNames};
use crate::listener::Connection;
use crate::service::Service;

/// The path. The HTTP server gives its requests a handle of their connection.
pub(super) const EVENTS: &str = "/v1/events";

/// The header with the number of a stream.
const STREAM: &str = "tollgate-stream";

/// The largest piece of a frame.
const PIECE: usize = 16 << 10;

pub(super) async fn handle(State(service): State<Arc<Service>>, request: Request<Body>) -> Answer {
    if !query_pairs(request.uri().query())?.is_empty() {
        return Err(Problem::bad_request("`GET /v1/events` takes no query: it has the events of all limits"));
    }
    let names = match require_admin(&service, &request) {
        Ok(()) => KeyNames::Clear,
        // A caller with a wrong token gets an error, and not hidden names without a reason.
        Err(refused) if request.headers().contains_key(header::AUTHORIZATION) => return Err(refused),
        Err(_) => KeyNames::Hashed,
    };
    let extensions = request.extensions();
    let connection = *extensions.get::<Connection>().expect("every request knows its connection");
    let activity = extensions.get::<Arc<Activity>>().map(Arc::clone);
    let following = service.follow_dashboard(names, activity).map_err(|refused| {
        let mut problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, refused.to_string());
        if refused == FollowError::Full {
            problem = problem.with_retry_after(5);
        }
        problem
    })?;
    let caller = Caller { headers: request.headers().clone(), is_loopback: connection.is_loopback };
    let number = following.number();
    let state = Events { following, caller, rest: Bytes::new(), has_started: false };
    let body = Body::from_stream(stream::unfold(state, Events::next));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Without this header, nginx buffers the events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    headers.insert(STREAM, number.into());
    Ok(response)
}

/// `POST /v1/events?stream=N`: the client of a stream reports that it reads.
pub(super) async fn acknowledge(State(service): State<Arc<Service>>, request: Request<Body>) -> Answer {
    let query = query_pairs(request.uri().query())?;
    let number = match query.as_slice() {
        [(name, number)] if name == "stream" => number.parse().ok(),
        _ => None,
    };
    let number = number.ok_or_else(|| {
        Problem::bad_request("send `?stream=N` with the number in the header `tollgate-stream` of the stream")
    })?;
    Ok(reply(&json!({ "open": service.dashboard.acknowledge(number) })))
}

/// The caller of a stream, whose rights are checked again after a reload.
struct Caller {
    headers: HeaderMap,
    is_loopback: bool,
}

/// What is left to be sent.
struct Events {
    following: Following,
    caller: Caller,
    rest: Bytes,
    has_started: bool,
}

impl Events {
    /// The next piece. None when the stream ends.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        self.following.take();
        while self.rest.is_empty() {
            self.rest = self.next_frame().await?;
            self.following.take();
        }
        let piece = self.rest.split_to(self.rest.len().min(PIECE));
        Some((Ok(piece), self))
    }

    async fn next_frame(&mut self) -> Option<Bytes> {
        if !self.has_started {
            self.has_started = true;
            return self.start().await;
        }
        let names = self.following.names();
        match self.following.frames.recv().await.as_deref() {
            Ok(Frame::Tick(frames)) => Some(frames[names as usize].clone().unwrap_or_default()),
            // The admin token may be another one now. A follower that has missed frames may have missed `Restart`.
            Ok(Frame::Restart) | Err(RecvError::Lagged(_))
                if names == KeyNames::Clear && !self.is_admin() =>
            {
                None
            }
            // The follower has missed frames, or another policy is in force.
            Ok(Frame::Restart) | Err(RecvError::Lagged(_)) => self.start().await,
            Err(RecvError::Closed) => None,
        }
    }

    /// Everything. With thousands of limits this takes milliseconds, so it runs on a thread for blocking work.
    async fn start(&self) -> Option<Bytes> {
        let (service, names) = (Arc::clone(self.following.service()), self.following.names());
        // One at a time: the others find what the first has made, and wait without a thread.
        let _turn = self.following.service().dashboard.starting.lock().await;
        tokio::task::spawn_blocking(move || service.dashboard.start(&service, names)).await.ok()
    }

    fn is_admin(&self) -> bool {
        let Caller { headers, is_loopback } = &self.caller;
        self.following.service().admin.allows(headers, *is_loopback).is_ok()
    }
}
