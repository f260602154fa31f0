//! `tollgate serve`: starts everything, waits, stops everything.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tollgate_policy::Policy;

use crate::cli::Serve;
use crate::commands::read_policy;
use crate::reload::{LOOK_EVERY, Reloader};
use crate::service::Service;
use crate::{demo, http, logs, tls};

/// What runs when no policy file is given.
const BUILT_IN: &str = include_str!("built_in.yaml");

/// Where HTTP is spoken, unless the policy says otherwise.
const HTTP: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

/// Runs the service until it is told to stop.
pub(crate) fn run(options: &Serve) -> Result<(), String> {
    let policy = match &options.config {
        Some(file) => read_policy(file)?,
        None => Policy::read(Path::new("built-in policy"), BUILT_IN).map_err(|faults| faults.to_string())?,
    };
    logs::start(options);
    let acceptor = policy.tls.as_ref().map(tls::acceptor).transpose()?;
    let address = options.listen.or_else(|| policy.listen.map_or(Some(HTTP), |listen| listen.http));
    let (warnings, started) = (policy.warnings(), policy.clone());
    let service = Arc::new(Service::new(policy, Reloader::new(options.config.clone(), started))?);
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("the runtime could not be started: {error}"))?;
    let result = runtime.block_on(serve(&service, options, address, acceptor));
    // Whoever still reads a file that does not come is not waited for.
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
}

async fn serve(
    service: &Arc<Service>,
    options: &Serve,
    address: Option<SocketAddr>,
    acceptor: Option<TlsAcceptor>,
) -> Result<(), String> {
    let refused = |error: std::io::Error| format!("signals cannot be waited for: {error}");
    let mut hangup = signal(SignalKind::hangup()).map_err(refused)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(refused)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(refused)?;
    // All listeners are bound before any accepts.
    let listener = match address {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    let (stop, stopped) = watch::channel(false);
    let stopped = move || {
        let mut stopped = stopped.clone();
        async move { _ = stopped.wait_for(|stopped| *stopped).await }
    };
    let mut listeners = tokio::task::JoinSet::new();
    if let Some(listener) = listener {
        let local = listener.local_addr().map_err(|error| error.to_string())?;
        announce(options, local, acceptor.is_some());
        listeners.spawn(http::serve(listener, acceptor, http::router(Arc::clone(service)), stopped()));
    }
    if options.demo {
        println!("demo: a dozen tenants send requests, to be seen in /metrics and /v1/hot");
        tokio::spawn(demo::run(Arc::clone(service)));
    }
    let mut look = tokio::time::interval(LOOK_EVERY);
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let signal = loop {
        tokio::select! {
            _ = hangup.recv() => reload(service, "SIGHUP"),
            _ = look.tick() => if service.reloader.has_changed() { reload(service, "the file has changed") },
            _ = tick.tick() => service.tick(),
            _ = terminate.recv() => break "SIGTERM",
            _ = interrupt.recv() => break "SIGINT",
        }
    };
    tracing::info!(signal, "stopping: what is under way is finished");
    service.drain();
    let _ = stop.send(true);
    while listeners.join_next().await.is_some() {}
    let finishing = Arc::clone(service);
    let _ = tokio::task::spawn_blocking(move || finishing.finish()).await;
    tracing::info!("stopped");
    Ok(())
}

async fn bind(address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|error| {
        format!("listen.http {address}: {error}; choose another with --listen 127.0.0.1:PORT, or `listen: {{ http: … }}` in the policy file")
    })
}

/// Reloads, without anybody waiting for it. What comes of it is logged.
fn reload(service: &Arc<Service>, why: &'static str) {
    let service = Arc::clone(service);
    tokio::task::spawn_blocking(move || service.reload(why));
}

/// Says where it listens and what to try.
fn announce(options: &Serve, address: SocketAddr, is_tls: bool) {
    let url = format!("{}://{address}", if is_tls { "https" } else { "http" });
    tracing::info!(%address, tls = is_tls, policy = %options.config.as_deref().map_or("built in".into(), Path::to_string_lossy), version = env!("CARGO_PKG_VERSION"), "listening");
    println!("tollgate listens on {url}");
    if options.config.is_none() {
        println!(
            "
No --config FILE: a built-in policy runs, for trying things. Three calls to begin with:

  curl {url}/v1/check -d '{{\"attributes\": {{\"tenant\": \"acme\", \"user\": \"42\", \"path\": \"/api/trips\"}}}}'
  curl {url}/v1/throttle -d '{{\"key\": \"alice\", \"token_bucket\": {{\"rate\": \"5/s\", \"burst\": 20}}}}'
  curl {url}/v1/limits
"
        );
    }
}
