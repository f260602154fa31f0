//! `tollgate serve`: starts everything, waits, stops everything.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tollgate_policy::{Dashboard, Listen, Policy};

use crate::cli::Serve;
use crate::reload::{LOOK_EVERY, Reloader};
use crate::service::Service;
use crate::source::{Source, file_faults};
use crate::tls::Acceptors;
use crate::{demo, gateway, grpc, http, listener, logs, resp, store, tls};

/// Where to listen when nobody says.
const DEFAULT: Listen = Listen {
    http: Some(loopback(8080)),
    grpc: Some(loopback(8081)),
    resp: Some(loopback(6380)),
    gateway: None,
    max_connections: None,
    max_connections_per_address: None,
    idle: None,
};

/// And where the gateway does, if the policy has one.
const DEFAULT_GATEWAY: SocketAddr = loopback(8000);

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// So many connections may come in one moment, if the system allows it; to one more, its client finds no way for a second. The
/// runtime's own choice is 128, which a thousand clients that reconnect together exceed.
const BACKLOG: u32 = 4096;

/// How long what is still to be written is waited for at the end: a disk that hangs must not keep the process.
const FINISH_WITHIN: Duration = Duration::from_secs(5);

/// Runs the service until it is told to stop.
pub(crate) fn run(options: &Serve) -> Result<(), String> {
    let source = Source::new(options);
    logs::start(options);
    let policy = source.read()?;
    let environment_values = policy.environment_values.clone();
    logs::hide(&environment_values);
    run_policy(options, source, policy).map_err(|error| environment_values.hide(&error).into_owned())
}

fn run_policy(options: &Serve, source: Source, policy: Policy) -> Result<(), String> {
    tracing::info!(policy = %source, version = env!("CARGO_PKG_VERSION"), "starting");
    raise_open_files();
    let files = file_faults(&policy);
    if !files.is_empty() {
        return Err(files.join("\n"));
    }
    let tls = policy.tls.as_ref().map(tls::acceptors).transpose()?;
    let listen = match (options.listen, policy.listen) {
        (None, listen) => {
            listen.unwrap_or(Listen { gateway: policy.gateway.as_ref().map(|_| DEFAULT_GATEWAY), ..DEFAULT })
        }
        // Whoever says where HTTP is spoken has the rest from the policy only; one with a gateway means it to be there.
        (http, Some(listen)) => Listen { http, ..listen },
        (http, None) => {
            Listen { http, gateway: policy.gateway.as_ref().map(|_| DEFAULT_GATEWAY), ..Listen::default() }
        }
    };
    let (mut warnings, started) = (policy.warnings(), policy.clone());
    let environment_values = policy.environment_values.clone();
    if listen.grpc.is_none() && policy.limits.iter().any(|limit| limit.descriptor.is_some()) {
        warnings
            .push("there are limits by Envoy descriptors and no `listen.grpc`: Envoy cannot ask".to_owned());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("the runtime could not be started: {error}"))?;
    let result = runtime.block_on(async {
        let store = store::open(&policy).await?;
        let service = Arc::new(Service::new(policy, Reloader::new(source, started), store)?);
        match service.engine.max_bytes() {
            Some(max_bytes) => tracing::info!(max_bytes, "the memory of keys is bounded"),
            None => tracing::info!("the memory of keys is unlimited"),
        }
        for warning in warnings {
            tracing::warn!("{}", environment_values.hide_numbers(&warning));
        }
        serve(&service, options, listen, tls).await
    });
    // Whoever still reads a file that does not come is not waited for.
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
}

async fn serve(
    service: &Arc<Service>,
    options: &Serve,
    listen: Listen,
    tls: Option<Acceptors>,
) -> Result<(), String> {
    let refused = |error: std::io::Error| format!("signals cannot be waited for: {error}");
    let mut hangup = signal(SignalKind::hangup()).map_err(refused)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(refused)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(refused)?;
    // All listeners are bound before any accepts.
    let http = bind("http", listen.http)?;
    let grpc = bind("grpc", listen.grpc)?;
    let resp = bind("resp", listen.resp)?;
    let gateway = bind("gateway", listen.gateway)?;
    let (stop, stopped) = watch::channel(false);
    let stopped = move || {
        let mut stopped = stopped.clone();
        async move { _ = stopped.wait_for(|stopped| *stopped).await }
    };
    let connections = &service.connections;
    tracing::info!(
        max_connections = connections.max(),
        max_connections_per_address = connections.max_per_address(),
        "connections are bounded"
    );
    let mut listeners = tokio::task::JoinSet::new();
    let urls = [("http", &http), ("grpc", &grpc), ("redis", &resp)]
        .map(|(scheme, listener)| announce(scheme, scheme, listener.as_ref()?, tls.is_some()));
    if service.reloader.source.is_built_in() {
        suggest(&urls);
    }
    if let Some(listener) = http {
        listeners.spawn(listener::serve(
            listener,
            tls.as_ref().map(|tls| tls.http.clone()),
            http::Http::new(Arc::clone(service)),
            Arc::clone(service),
            stopped(),
        ));
    }
    let (serving, is_serving) = watch::channel(true);
    if let Some(listener) = grpc {
        let grpc = grpc::grpc(Arc::clone(service), listen.idle, is_serving);
        let tls = tls.as_ref().map(|tls| tls.grpc.clone());
        listeners.spawn(listener::serve(listener, tls, grpc, Arc::clone(service), stopped()));
    }
    if let Some(listener) = resp {
        let resp = resp::Resp::new(Arc::clone(service));
        let tls = tls.as_ref().map(|tls| tls.resp.clone());
        listeners.spawn(listener::serve(listener, tls, resp, Arc::clone(service), stopped()));
    }
    if let Some(telemetry) = &service.telemetry {
        telemetry.export_metrics(service);
    }
    tokio::spawn(service.run_delay_queue());
    let behind = gateway::Gateway::new(Arc::clone(service));
    if let (Some(listener), Some(behind)) = (gateway, &behind) {
        announce_gateway(&listener, tls.is_some(), &service.engine.policy());
        let (front, watched) = (gateway::Front(Arc::clone(behind)), Arc::clone(behind));
        tokio::spawn(async move { watched.watch_load().await });
        let tls = tls.map(|tls| tls.gateway);
        listeners.spawn(listener::serve(listener, tls, front, Arc::clone(service), stopped()));
    }
    if let Some(url) = urls[0].as_ref().filter(|_| service.engine.policy().dashboard == Dashboard::On) {
        println!("dashboard {url}/, playground {url}/playground, in a terminal: tollgate top --url {url}");
    }
    if options.demo {
        println!("demo: a dozen tenants send requests, which the dashboard shows");
        tokio::spawn(demo::run(Arc::clone(service)));
    }
    let mut look = tokio::time::interval(LOOK_EVERY);
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let signal = loop {
        tokio::select! {
            _ = hangup.recv() => reload(service, "SIGHUP"),
            _ = look.tick() => if service.reloader.has_changed() { reload(service, "the file has changed") },
            _ = tick.tick() => {
                service.tick();
                if let Some(gateway) = &behind {
                    gateway.tick();
                }
            }
            _ = terminate.recv() => break "SIGTERM",
            _ = interrupt.recv() => break "SIGINT",
        }
    };
    tracing::info!(signal, "stopping: what is under way is finished");
    service.drain();
    let _ = serving.send(false);
    let _ = stop.send(true);
    drop(serving); // and with it the streams that tell of health
    while listeners.join_next().await.is_some() {}
    if tokio::time::timeout(FINISH_WITHIN, service.engine.return_leases()).await.is_err() {
        tracing::warn!("the store did not take back what this process had leased: it lapses");
    }
    let finishing = Arc::clone(service);
    let finished = tokio::task::spawn_blocking(move || finishing.finish());
    if tokio::time::timeout(FINISH_WITHIN, finished).await.is_err() {
        tracing::error!("the end of the record is lost: the disk does not take it");
    }
    tracing::info!("stopped");
    Ok(())
}

fn bind(name: &str, address: Option<SocketAddr>) -> Result<Option<TcpListener>, String> {
    let Some(address) = address else { return Ok(None) };
    listen_on(address).map(Some).map_err(|error| {
        let or = if name == "http" { "--listen 127.0.0.1:PORT, or " } else { "" };
        format!("listen.{name} {address}: {error}; choose another with {or}`listen: {{ {name}: … }}` in the policy file")
    })
}

pub(crate) fn listen_on(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?; // a port on which this service just ran
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Reloads, without anybody waiting for it. What comes of it is logged.
fn reload(service: &Arc<Service>, why: &'static str) {
    let service = Arc::clone(service);
    tokio::task::spawn_blocking(move || service.reload(why));
}

/// Opens as many files as may be: every connection is one, and many systems begin with a thousand.
fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the number of open files stays as it is");
    }
}

/// Says where it listens, as a URL.
fn announce(protocol: &str, scheme: &str, listener: &TcpListener, is_tls: bool) -> Option<String> {
    let address = listener.local_addr().ok()?;
    let url = format!("{scheme}{}://{address}", if is_tls { "s" } else { "" });
    tracing::info!(%address, protocol, tls = is_tls, "listening");
    println!("tollgate listens on {url}");
    Some(url)
}

/// Says where the gateway listens, and what is behind it.
fn announce_gateway(listener: &TcpListener, is_tls: bool, policy: &Policy) {
    announce("gateway", "http", listener, is_tls);
    if let Some(gateway) = &policy.gateway {
        let upstreams = gateway.upstreams.join(", ");
        println!("  and carries requests from there to {}", policy.environment_values.hide(&upstreams));
    }
}

/// Says what to try with the built-in policy.
fn suggest([http, _, redis]: &[Option<String>; 3]) {
    let Some(url) = http else { return };
    println!(
        "
No --config FILE: a built-in policy runs, for trying things. A few calls to begin with:

  curl {url}/v1/check -d '{{\"attributes\": {{\"tenant\": \"acme\", \"user\": \"42\", \"path\": \"/api/trips\"}}}}'
  curl {url}/v1/throttle -d '{{\"key\": \"alice\", \"token_bucket\": {{\"rate\": \"5/s\", \"burst\": 20}}}}'
  curl {url}/v1/limits"
    );
    if let Some(url) = redis {
        println!("  redis-cli -u {url} CL.THROTTLE alice 15 30 60");
    }
    println!();
}
