//! An application behind the gateway: hyper serves it, and it writes down what it gets.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) at: Instant,
    pub(crate) request: String, // method and target
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
}

impl Arrived {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Work that the application has finished.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    /// When it was finished.
    pub(crate) at: Instant,
    /// How long a worker was busy with it, as measured: more than was asked for on a machine that stalls.
    pub(crate) worked: Duration,
    /// The requests for `/sleep` inside the application when this one arrived: waiting for a worker, or at work.
    pub(crate) ahead: usize,
}

/// An application that runs until it is dropped.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    runtime: Option<Runtime>,
}

struct State {
    arrived: Mutex<Vec<Arrived>>,
    served: Mutex<Vec<Served>>,
    connections: AtomicUsize, // so far
    inside: AtomicUsize,      // waiting for a worker, or at work
    most_inside: AtomicUsize,
    workers: Semaphore, // as many requests are worked on at once
}

impl Backend {
    pub(crate) fn start() -> Self {
        Self::with_workers(Semaphore::MAX_PERMITS)
    }

    /// An application that works on so many requests at once, and lets the others wait.
    pub(crate) fn with_workers(workers: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .on_thread_start(goes_first)
            .enable_all()
            .build()
            .unwrap();
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            arrived: Mutex::default(),
            served: Mutex::default(),
            connections: AtomicUsize::new(0),
            inside: AtomicUsize::new(0),
            most_inside: AtomicUsize::new(0),
            workers: Semaphore::new(workers),
        });
        let serving = Arc::clone(&state);
        runtime.spawn(async { serve(TcpListener::from_std(listener).unwrap(), serving).await });
        Self { address, state, runtime: Some(runtime) }
    }

    /// What has arrived so far.
    pub(crate) fn arrived(&self) -> Vec<Arrived> {
        self.state.arrived.lock().clone()
    }

    pub(crate) fn count_arrived(&self) -> usize {
        self.state.arrived.lock().len()
    }

    /// What has arrived so far, without the first `from`.
    pub(crate) fn arrived_from(&self, from: usize) -> Vec<Arrived> {
        self.state.arrived.lock()[from..].to_vec()
    }

    /// Says how many have arrived, also from another thread.
    pub(crate) fn watch(&self) -> impl Fn() -> usize + Send + use<> {
        let state = Arc::clone(&self.state);
        move || state.arrived.lock().len()
    }

    /// The work that is finished so far.
    pub(crate) fn served(&self) -> Vec<Served> {
        self.state.served.lock().clone()
    }

    /// The part of their time that this many workers worked, in a span of time.
    pub(crate) fn busy(&self, from: Instant, until: Instant, workers: usize) -> f64 {
        let served = self.state.served.lock();
        let in_span = served.iter().filter(|served| (from..until).contains(&served.at));
        let worked: Duration = in_span.map(|served| served.worked).sum();
        worked.as_micros() as f64 / (workers as f64 * (until - from).as_micros() as f64)
    }

    /// How many connections it has been asked over.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// The most requests for `/sleep` that were inside the application at once, since the start or since this was forgotten.
    pub(crate) fn most_inside(&self) -> usize {
        self.state.most_inside.load(Ordering::Relaxed)
    }

    pub(crate) fn forget_most_inside(&self) {
        self.state.most_inside.store(0, Ordering::Relaxed);
    }

    /// Works on more requests at once, or on fewer.
    pub(crate) fn add_workers(&self, workers: usize) {
        self.state.workers.add_permits(workers);
    }

    pub(crate) fn take_workers(&self, workers: usize) {
        let state = Arc::clone(&self.state);
        let taking = async move { state.workers.acquire_many(workers as u32).await.unwrap().forget() };
        self.runtime.as_ref().unwrap().spawn(taking);
    }
}

/// The application is elsewhere, really, with cores of its own: as far as this may be done here, it need not wait for one.
fn goes_first() {
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), -15);
}

impl Drop for Backend {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(listener: TcpListener, state: Arc<State>) {
    while let Ok((stream, _)) = listener.accept().await {
        state.connections.fetch_add(1, Ordering::Relaxed);
        stream.set_nodelay(true).unwrap();
        let state = Arc::clone(&state);
        let service = service_fn(move |request| answer(Arc::clone(&state), request));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// `/sleep/20` answers after 20 ms of work, `/status/503` with 503, `/bytes/1000` with as many bytes, `/chunks/3` in as many
/// pieces; anything else with what it was asked.
async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Answer>, Infallible> {
    let at = Instant::now();
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let text = |value: &hyper::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let arrived = Arrived {
        at,
        request: format!("{} {}", head.method, head.uri),
        headers: head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
        body,
    };
    let told = format!("{} {}", arrived.request, arrived.body.len());
    state.arrived.lock().push(arrived);
    let mut parts = head.uri.path().trim_start_matches('/').split('/');
    let what = parts.next().unwrap_or_default();
    let number: u64 = parts.next().and_then(|number| number.parse().ok()).unwrap_or(0);
    let mut response = Response::new(Answer::from(told));
    match what {
        "sleep" => {
            let inside = Inside::enter(&state);
            let worker = state.workers.acquire().await.unwrap();
            let began = Instant::now();
            tokio::time::sleep(Duration::from_millis(number)).await;
            drop(worker);
            let (at, ahead) = (Instant::now(), inside.ahead);
            drop(inside);
            state.served.lock().push(Served { at, worked: at - began, ahead });
        }
        "status" => *response.status_mut() = hyper::StatusCode::from_u16(number as u16).unwrap(),
        "bytes" => *response.body_mut() = Answer::from("x".repeat(number as usize)),
        "chunks" => *response.body_mut() = Answer { whole: None, pieces: number },
        "hop" => {
            for (name, value) in
                [("connection", "x-secret"), ("x-secret", "1"), ("keep-alive", "5"), ("x-kept", "2")]
            {
                response.headers_mut().append(name, value.parse().unwrap());
            }
        }
        _ => {}
    }
    Ok(response)
}

/// A request that is inside the application until this is dropped, also when its client leaves.
struct Inside<'s> {
    state: &'s State,
    ahead: usize,
}

impl<'s> Inside<'s> {
    fn enter(state: &'s State) -> Self {
        let ahead = state.inside.fetch_add(1, Ordering::Relaxed);
        state.most_inside.fetch_max(ahead + 1, Ordering::Relaxed);
        Self { state, ahead }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.state.inside.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A body of one piece, or of several that come 20 ms after each other.
pub(crate) struct Answer {
    whole: Option<Full<Bytes>>,
    pieces: u64,
}

impl From<String> for Answer {
    fn from(text: String) -> Self {
        Self { whole: Some(Full::new(text.into())), pieces: 0 }
    }
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        if let Some(whole) = &mut self.whole {
            return std::pin::Pin::new(whole).poll_frame(context);
        }
        if self.pieces == 0 {
            return std::task::Poll::Ready(None);
        }
        self.pieces -= 1;
        std::task::Poll::Ready(Some(Ok(hyper::body::Frame::data(Bytes::from_static(b"a piece of it, ")))))
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.whole.as_ref().map_or_else(hyper::body::SizeHint::default, hyper::body::Body::size_hint)
    }
}
