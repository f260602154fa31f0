//! `tollgate playground`: the playground on a loopback port, without a service, or a story as an animated SVG.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tollgate_lab::playground::{animation, stories};
use tollgate_policy::Policy;

use crate::http::Http;
use crate::listener;
use crate::reload::Reloader;
use crate::serve::listen_on;
use crate::service::Service;
use crate::source::Source;

/// How to serve the playground.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tollgate playground\n  tollgate playground --svg boundary-attack > boundary-attack.svg"
)]
pub(crate) struct Playground {
    /// The loopback address to listen on. Port 0 takes a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0", value_parser = loopback)]
    listen: SocketAddr,
    /// Print a story as an animated SVG, and exit. An unknown name lists the stories
    #[arg(long, value_name = "STORY")]
    svg: Option<String>,
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        text.parse().map_err(|_| "write an address as 127.0.0.1:8090 or [::1]:8090".to_owned())?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => {
            Err("the playground has no access control: use a loopback address such as 127.0.0.1:8090"
                .to_owned())
        }
    }
}

pub(crate) fn run(options: &Playground) -> Result<(), String> {
    if let Some(name) = &options.svg {
        return print_story(name);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("the runtime could not be started: {error}"))?;
    runtime.block_on(serve(options.listen))
}

fn print_story(name: &str) -> Result<(), String> {
    let story = stories().iter().find(|story| story.name == name).ok_or_else(|| {
        let names: Vec<String> = stories().iter().map(|story| format!("`{}`", story.name)).collect();
        format!("error: there is no story `{name}`\nhelp: the stories are {}", names.join(", "))
    })?;
    print!("{}", animation(story));
    Ok(())
}

async fn serve(address: SocketAddr) -> Result<(), String> {
    let refused = |error: std::io::Error| format!("signals cannot be received: {error}");
    let mut terminate = signal(SignalKind::terminate()).map_err(refused)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(refused)?;
    let policy = Policy::default();
    let reloader = Reloader::new(Source::default(), policy.clone());
    let service = Arc::new(Service::new(policy, reloader, None)?);
    let listener =
        listen_on(address).map_err(|error| format!("error: cannot listen on {address}: {error}"))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    println!("The playground is at http://{address}/playground (Ctrl-C ends it)");
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let http = Http::playground(Arc::clone(&service));
    listener::serve(listener, None, http, service, stop).await;
    Ok(())
}
