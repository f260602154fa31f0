//! Rate limiting for axum, tonic and hyper: a [tower layer](TollgateLayer) over a Tollgate policy, or over a few rules
//! written in Rust.
//!
//! ```no_run
//! use std::net::SocketAddr;
//! use std::path::Path;
//!
//! use axum::extract::ConnectInfo;
//! use axum::{Router, routing::get};
//! use tollgate_policy::{Engine, Policy};
//! use tollgate_tower::TollgateLayer;
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let file = Path::new("tollgate.yaml");
//! let engine = Engine::new(Policy::read(file, &std::fs::read_to_string(file)?)?)?;
//! let layer = TollgateLayer::new(engine)
//!     .peer(|request| request.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip()));
//!
//! let app = Router::new().route("/", get(|| async { "hello" })).layer(layer);
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//! axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What becomes of a request
//!
//! All limits of the policy that apply to it are asked, and charged together or not at all.
//!
//! - If they allow, it goes on to the service, and the answer carries the `RateLimit` headers that the policy asks for.
//! - If they allow with a delay (`max_wait`, or a leaky bucket), it waits for its turn. A client that leaves gives its turn up,
//!   and all requests behind it go sooner. With an engine over a store, every request waits for its whole delay.
//! - If one denies, the service is not called. The answer is 429 with `Retry-After` and a body of
//!   `application/problem+json`. For gRPC it is `RESOURCE_EXHAUSTED`, with the same words and headers, for its clients do
//!   not understand a 429.
//! - Places of a concurrency limit are held until the answer has ended, whole with its last frame, or its client has
//!   left. An answer that turns the connection into something else, such as a WebSocket, ends with its head.
//! - Errors of the service are passed on as they are.
//! - Give one layer all limits, with a `match` where they do not apply to all. Layers in one another charge one after the
//!   other, and the outermost's headers replace those of the rest.
//! - To more than 32 limits at once there is no decision, and the answer is a 500 that names them.
//!
//! With states in memory, a request is decided while the service is called, without waiting and without a task. With an
//! engine [over a store](tollgate_policy::Engine::with_store) the layer waits for the store. Delayed requests wait by the
//! engine's clock, on any runtime. In a test, [moving the clock](tollgate::Clock::advance) is enough.
//!
//! # What limits see
//!
//! | attribute | from |
//! |---|---|
//! | `method`, `path`, `host` | the request. Behind axum's `nest`, a path is without what was nested under: put the layer on the outermost router |
//! | `ip` | the address that [`peer`](TollgateLayer::peer) returns. If `identity.client_ip` of the policy trusts it as a proxy, the client's address from the proxy's header |
//! | `tenant`, `user` | the headers that `identity` of the policy names |
//! | `header.…` | that header |
//! | any | the function given to [`attribute`](TollgateLayer::attribute), which counts before all others |
//!
//! A request that applications read in more than one way is answered with 400, or gRPC's `INVALID_ARGUMENT`, and a body that names
//! the fault. The service is not called and nothing is charged. Where a limit looks at `path`, such a request has a path that begins
//! with `//` or has a backslash or a control character in it, also escaped. Or it has a header twice that the policy reads, or one with `_` for
//! `-`, or more than a token in `Authorization` where the policy reads it. Where a limit looks at `host`, a
//! `Host` that is another than the host of the target is refused, too. Blanks around a value do not count, and an empty header is a
//! missing one.
//!
//! A client can write any header. Count by what it cannot choose: an address, or a user that has been authenticated.
//!
//! # Without a policy file
//!
//! A [`Limit`](tollgate_policy::Limit) is a rule of [`tollgate`] with a name and a key:
//!
//! ```
//! use tollgate::{Rate, TokenBucket};
//! use tollgate_policy::{Engine, Limit, Policy};
//! use tollgate_tower::TollgateLayer;
//!
//! let limit = Limit::new("per-key", TokenBucket::new(Rate::per_second(5)?, 10)?).key(["header.x-api-key"]);
//! let engine = Engine::new(Policy::from_limits([limit])?)?;
//! let layer = TollgateLayer::new(engine);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The policy is like one from a file. An application that needs a file later reads one, and changes nothing else.
//!
//! # tonic and hyper
//!
//! `tonic::transport::Server::builder().layer(layer)` puts all services of a server behind the limits; a call's `path` is
//! `/package.Service/Method`. Around any other `Service` of HTTP requests, such as one for hyper, there is
//! [`Layer::layer`](tower_layer::Layer::layer). `examples/axum.rs` and `examples/tonic.rs` are to be run and tried.
//!
//! # For other adapters
//!
//! The crate [`tollgate_policy`] has the code that the layer shares with the gateway and forward-auth of the server:
//!
//! - [`RequestAttributes`](tollgate_policy::RequestAttributes) reads a request.
//! - [`headers`](tollgate_policy::headers) and [`put_headers`](tollgate_policy::put_headers) report the limits to the client.
//! - [`denial_response`](tollgate_policy::denial_response) answers a request that the limits deny.
//! - [`refusal_response`](tollgate_policy::refusal_response) answers a request that applications read in more than one way.
#![forbid(unsafe_code)]

/// Compiles and runs the examples of the README. They are tested here because this crate can use all crates that they use.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod body;
mod decide;
mod future;
mod grpc;
mod layer;
mod service;

pub use self::body::ResponseBody;
pub use self::future::ResponseFuture;
pub use self::layer::TollgateLayer;
pub use self::service::Tollgate;
