//! One request on its way through the layer: decided, delayed, passed to the service, answered.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tollgate::Wait;
use tollgate_policy::put_headers;
use tower_service::Service;

use crate::body::ResponseBody;
use crate::decide::{Decided, Passed};

/// The answer of a store that has to be waited for, with the request it is about.
pub(crate) type Deciding = Pin<Box<dyn Future<Output = (Parts, Decided)> + Send>>;

pin_project! {
    /// The future of [`Tollgate`](crate::Tollgate). A request that is dropped while it is delayed gives its turn to the next.
    /// The limits keep the charges of a request that is dropped later.
    #[must_use = "futures do nothing unless awaited"]
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B, S::Future>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, B, F> {
        Deciding { deciding: Deciding, next: Option<(S, B)> },
        Delayed { wait: Wait, next: Option<(S, Request<B>)>, passed: Passed },
        Called { #[pin] answer: F, passed: Passed },
        Refused { answer: Option<Response<Bytes>> },
    }
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    /// A request about which a store is being asked, and which `inner` gets if it passes.
    pub(crate) fn deciding(deciding: Deciding, inner: S, body: B) -> Self {
        Self { state: State::Deciding { deciding, next: Some((inner, body)) } }
    }

    pub(crate) fn refused(answer: Response<Bytes>) -> Self {
        Self { state: State::Refused { answer: Some(answer) } }
    }

    /// A request that `inner` gets when its turn has come.
    pub(crate) fn delayed(wait: Wait, passed: Passed, inner: S, request: Request<B>) -> Self {
        Self { state: State::Delayed { wait, next: Some((inner, request)), passed } }
    }

    /// A request that has been handed on.
    pub(crate) fn called(passed: Passed, answer: S::Future) -> Self {
        Self { state: State::Called { answer, passed } }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body,
{
    type Output = Result<Response<ResponseBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProjection::Deciding { deciding, next } => {
                    let (head, decided) = ready!(deciding.as_mut().poll(context));
                    let (mut inner, body) = next.take().expect(ONCE);
                    let request = Request::from_parts(head, body);
                    match decided {
                        Decided::Passes(passed) => Self::called(passed, inner.call(request)),
                        Decided::Delayed(wait, passed) => Self::delayed(wait, passed, inner, request),
                        Decided::Refused(answer) => Self::refused(answer),
                    }
                }
                StateProjection::Delayed { wait, next, passed } => {
                    ready!(Pin::new(wait).poll(context));
                    let (mut inner, request) = next.take().expect(ONCE);
                    Self::called(std::mem::take(passed), inner.call(request))
                }
                StateProjection::Called { answer, passed } => {
                    let answer = ready!(answer.poll(context));
                    let Passed { headers, permits } = std::mem::take(passed);
                    return Poll::Ready(answer.map(|mut answer| {
                        put_headers(headers, answer.headers_mut());
                        answer.map(|body| ResponseBody::holding(body, permits))
                    }));
                }
                StateProjection::Refused { answer } => {
                    return Poll::Ready(Ok(answer.take().expect(ONCE).map(ResponseBody::own)));
                }
            };
            state.set(next.state);
        }
    }
}

/// The panic message for a future that is polled after it has ended.
const ONCE: &str = "a future that is done is not polled again";

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Deciding { .. } => "deciding",
            State::Delayed { .. } => "delayed",
            State::Called { .. } => "called",
            State::Refused { .. } => "refused",
        };
        f.debug_struct("ResponseFuture").field("state", &state).finish_non_exhaustive()
    }
}
