//! The layer, and the functions that read more from a request than the policy does.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;
use tollgate_policy::Engine;
use tower_layer::Layer;

use crate::decide::Decider;
use crate::service::Tollgate;

/// Puts services behind the limits of an [`Engine`].
///
/// ```
/// use axum::{Router, routing::get};
/// use tollgate::{Rate, TokenBucket};
/// use tollgate_policy::{Engine, Limit, Policy};
/// use tollgate_tower::TollgateLayer;
///
/// let limit = Limit::new("everybody", TokenBucket::new(Rate::per_second(5)?, 10)?);
/// let layer = TollgateLayer::new(Engine::new(Policy::from_limits([limit])?)?);
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Clones, and the services they make, share the engine, all limits and the [queue](tollgate::DelayQueue) of delayed requests.
#[derive(Clone)]
pub struct TollgateLayer {
    decider: Arc<Decider>,
}

impl TollgateLayer {
    /// A layer that decides by an engine. Other code may use the engine, too.
    ///
    /// To put several services behind one engine, clone the layer. Two layers that are made of one engine have two queues of
    /// delayed requests, and a client that leaves one of them moves no request of the other.
    pub fn new(engine: impl Into<Arc<Engine>>) -> Self {
        Self { decider: Arc::new(Decider::new(engine.into())) }
    }

    /// Sets the function that returns the address at the other end of a request's connection. If the policy trusts this
    /// address as a proxy, it reads the client's address from the proxy's header.
    ///
    /// Default: the `SocketAddr` or the `IpAddr` among the request's extensions. A request without either counts as one from
    /// 0.0.0.0, and limits by `ip` count all such requests together.
    ///
    /// ```
    /// # use std::net::SocketAddr;
    /// # use axum::extract::ConnectInfo;
    /// # use tollgate_policy::{Engine, Policy};
    /// # use tollgate_tower::TollgateLayer;
    /// # use tonic::transport::server::TcpConnectInfo;
    /// # let layer = || TollgateLayer::new(Engine::new(Policy::default()).unwrap());
    /// // For axum, served by `into_make_service_with_connect_info::<SocketAddr>()`:
    /// let axum = layer().peer(|request| {
    ///     request.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip())
    /// });
    /// // For tonic's own server (over TLS it is `TlsConnectInfo<TcpConnectInfo>`, which has one inside):
    /// let tonic = layer().peer(|request| {
    ///     request.extensions.get::<TcpConnectInfo>()?.remote_addr().map(|address| address.ip())
    /// });
    /// ```
    pub fn peer(mut self, peer: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.decider).peer = Arc::new(peer);
        self
    }

    /// Adds an attribute that only the application knows, such as a user that an earlier layer has authenticated.
    ///
    /// Its value counts before the value of a header. Of several functions for one name, the first with a value counts. A
    /// function that returns `None` adds nothing.
    ///
    /// ```
    /// # use tollgate_policy::{Engine, Policy};
    /// # use tollgate_tower::TollgateLayer;
    /// # let engine = Engine::new(Policy::default()).unwrap();
    /// #[derive(Clone)]
    /// struct User(String);
    ///
    /// let layer = TollgateLayer::new(engine)
    ///     .attribute("user", |request| request.extensions.get::<User>().map(|user| user.0.as_str().into()));
    /// ```
    pub fn attribute(
        mut self,
        name: impl Into<String>,
        value: impl for<'r> Fn(&'r Parts) -> Option<Cow<'r, str>> + Send + Sync + 'static,
    ) -> Self {
        Arc::make_mut(&mut self.decider).attributes.push((name.into(), Arc::new(value)));
        self
    }

    /// Sets the function that returns the cost of a request. Where it returns `None`, the policy sets the cost.
    ///
    /// ```
    /// # use tollgate_policy::{Engine, Policy};
    /// # use tollgate_tower::TollgateLayer;
    /// # let engine = Engine::new(Policy::default()).unwrap();
    /// let layer = TollgateLayer::new(engine).cost(|request| request.uri.path().starts_with("/export").then_some(10));
    /// ```
    pub fn cost(mut self, cost: impl Fn(&Parts) -> Option<u64> + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.decider).cost = Some(Arc::new(cost));
        self
    }

    /// The engine that decides, for example to reload its policy or to look at keys.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.decider.engine
    }
}

impl<S> Layer<S> for TollgateLayer {
    type Service = Tollgate<S>;

    fn layer(&self, inner: S) -> Tollgate<S> {
        Tollgate::new(inner, Arc::clone(&self.decider))
    }
}

impl fmt::Debug for TollgateLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attributes: Vec<&str> = self.decider.attributes.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("TollgateLayer").field("attributes", &attributes).finish_non_exhaustive()
    }
}
