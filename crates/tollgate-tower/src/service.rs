//! A service behind limits.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::body::ResponseBody;
use crate::decide::{Decided, Decider, Waiting};
use crate::future::ResponseFuture;

/// A service behind limits: what [`TollgateLayer`](crate::TollgateLayer) makes of one.
#[derive(Clone)]
pub struct Tollgate<S> {
    inner: S,
    decider: Arc<Decider>,
}

impl<S> Tollgate<S> {
    pub(crate) fn new(inner: S, decider: Arc<Decider>) -> Self {
        Self { inner, decider }
    }
}

impl<S: Clone> Tollgate<S> {
    /// The service that has said it is ready. Its clone, which stays, has not: it must not be called in its stead.
    fn take_ready(&mut self) -> S {
        let clone = self.inner.clone();
        std::mem::replace(&mut self.inner, clone)
    }
}

impl<S, B, R> Service<Request<B>> for Tollgate<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: Body<Data: From<Bytes>>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (head, body) = request.into_parts();
        let Some(decided) = at_once(self.decider.decide(&head, Waiting::Forbidden)) else {
            let decider = Arc::clone(&self.decider);
            let deciding = Box::pin(async move {
                let decided = decider.decide(&head, Waiting::Allowed).await;
                (head, decided.expect("it may wait"))
            });
            return ResponseFuture::deciding(deciding, self.take_ready(), body);
        };
        let request = Request::from_parts(head, body);
        match decided {
            Decided::Passes(passed) => ResponseFuture::called(passed, self.inner.call(request)),
            Decided::Delayed(wait, passed) => {
                ResponseFuture::delayed(wait, passed, self.take_ready(), request)
            }
            Decided::Refused(answer) => {
                drop(self.take_ready()); // with the place it may have reserved for the request
                ResponseFuture::refused(answer)
            }
        }
    }
}

/// The output of a future that waits for nothing.
fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("waiting is forbidden"),
    }
}

impl<S: fmt::Debug> fmt::Debug for Tollgate<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tollgate").field("inner", &self.inner).finish_non_exhaustive()
    }
}
