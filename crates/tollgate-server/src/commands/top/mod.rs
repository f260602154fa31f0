//! `tollgate top`: the state of a service in a terminal.
//!
//! The service sends frames (`frame`) once a second over a stream (`stream`, `client`). They make the `model`, which `view` draws.
//! `app` is the state of the screen, which `keys` change.

mod app;
mod client;
mod frame;
mod keys;
mod model;
mod screen;
mod series;
mod stream;
mod text;
mod view;

use std::io::{ErrorKind, IsTerminal as _, Read as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::{sleep, timeout};

use self::app::{App, Connection, Effect};
use self::client::Server;
use self::frame::{Hot, HotLists, LimitHistory};
use self::keys::Keys;
use self::screen::Screen;
use self::series::Steps;
use self::stream::{Events, Update};

/// How to watch a service.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  tollgate serve --demo &\n  tollgate top\n\nThe key `?` lists the keys. Programs read GET /metrics instead."
)]
pub(crate) struct Top {
    /// Where the service speaks HTTP: http://HOST:PORT or https://HOST
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    url: String,
    /// A file with the token for admin calls, which shows the names of keys. Without it, a service that has a token shows hashes
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// How long the service may take to send its first frame.
const FIRST_FRAME: Duration = Duration::from_secs(10);

/// After this time, Escape is a key and not the beginning of one.
const ESCAPE: Duration = Duration::from_millis(50);

/// The number of ticks between two loads of the keys and the history of a limit.
const DETAIL_EVERY: u32 = 5;

/// The name of a limit with its history and keys, or why they are missing.
type DetailAnswer = (String, Result<(Steps, HotLists), String>);

/// Shows a service until the user quits.
pub(crate) fn run(options: &Top) -> Result<(), String> {
    let server = Server::new(&options.url, options.token_file.clone())?;
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(format!(
            "tollgate top needs a terminal for its input and output. Programs read the same numbers from {}/metrics",
            text::shown(&server.url)
        ));
    }
    if std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
        return Err("tollgate top needs a terminal that can move its cursor, and TERM is `dumb`".to_owned());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("tollgate top cannot start: {error}"))?;
    let result = runtime.block_on(watch(server));
    // The name of a host may still be looked up on another thread.
    runtime.shutdown_background();
    result
}

async fn watch(server: Server) -> Result<(), String> {
    // Faults of the URL, the token and the service end the command before it takes over the screen.
    let mut events = Events::open(&server).await?;
    let first = timeout(FIRST_FRAME, events.next()).await;
    let first = first.map_err(|_| format!("{} sends no events", server.url))??;
    let has_color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut app = App::new(&text::shown(server.address()), now(), has_color);
    app.add(first);

    let failed = |error: std::io::Error| format!("the terminal cannot be used: {error}");
    let on = |kind| signal(kind).map_err(|error| format!("signals cannot be received: {error}"));
    let mut terminate = on(SignalKind::terminate())?;
    let mut interrupt = on(SignalKind::interrupt())?;
    let mut hangup = on(SignalKind::hangup())?;
    let mut resized = on(SignalKind::window_change())?;
    let mut continued = on(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))?;

    let (updates, mut from_service) = mpsc::channel(4);
    tokio::spawn(stream::follow(server.clone(), events, updates));
    let (details, mut from_details) = mpsc::channel(4);
    let mut screen = Screen::open().map_err(failed)?;
    let mut input = read_input();
    let (mut keys, mut ticks) = (Keys::default(), 0_u32);
    loop {
        screen.draw(&mut app).map_err(failed)?;
        let is_lost = matches!(app.connection, Connection::Lost { .. });
        tokio::select! {
            update = from_service.recv() => match update.ok_or("the connection to the service was closed")? {
                Update::Frame(frame) => {
                    app.add(frame);
                    ticks += 1;
                    if ticks.is_multiple_of(DETAIL_EVERY) {
                        ask_for_detail(&server, &app, &details);
                    }
                }
                Update::Connected => app.connected(now()),
                Update::Lost(why) => app.lost(now(), &why),
            },
            Some((name, answer)) = from_details.recv() => app.add_detail(&name, answer),
            bytes = input.recv() => {
                let Some(bytes) = bytes else { return Ok(()) }; // the terminal is gone
                for key in pressed(&mut keys, &bytes, &mut input).await {
                    match app.press(key) {
                        Effect::Nothing => {}
                        Effect::Quit => return Ok(()),
                        Effect::Suspend => screen.suspend().map_err(failed)?,
                        Effect::Redraw => screen.redraw().map_err(failed)?,
                        Effect::LoadDetail => ask_for_detail(&server, &app, &details),
                    }
                }
            }
            _ = resized.recv() => {}
            _ = continued.recv() => screen.resume().map_err(failed)?,
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = hangup.recv() => return Ok(()),
            () = sleep(Duration::from_secs(1)), if is_lost => {} // to count the seconds
        }
    }
}

impl Screen {
    fn draw(&mut self, app: &mut App) -> std::io::Result<()> {
        let now = now();
        self.terminal.draw(|frame| view::draw(frame, app, now)).map(|_| ())
    }
}

/// The keys in `bytes`. Waits for the rest of the last key, if it is not complete.
async fn pressed(keys: &mut Keys, bytes: &[u8], input: &mut Receiver<Vec<u8>>) -> Vec<keys::Key> {
    let mut pressed = keys.read(bytes);
    while keys.is_amid_key() {
        match timeout(ESCAPE, input.recv()).await {
            Ok(Some(more)) => pressed.extend(keys.read(&more)),
            _ => pressed.extend(keys.end()),
        }
    }
    pressed
}

/// Reads what the user types, on a thread of its own. The channel closes when the terminal is gone.
fn read_input() -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(8);
    std::thread::spawn(move || {
        let mut buffer = [0; 1024];
        loop {
            match std::io::stdin().lock().read(&mut buffer) {
                Ok(0) => return,
                Ok(length) if sender.blocking_send(buffer[..length].to_vec()).is_err() => return,
                Err(error) if error.kind() != ErrorKind::Interrupted => return,
                _ => {}
            }
        }
    });
    receiver
}

/// Asks for the keys and the history of the limit that is shown.
fn ask_for_detail(server: &Server, app: &App, answers: &Sender<DetailAnswer>) {
    let Some(detail) = &app.detail else { return };
    let (server, name, answers) = (server.clone(), detail.name.clone(), answers.clone());
    tokio::spawn(async move {
        let answer = detail_of(&server, &name).await;
        let _ = answers.send((name, answer)).await; // an error: the user has quit
    });
}

async fn detail_of(server: &Server, name: &str) -> Result<(Steps, HotLists), String> {
    let query = utf8_percent_encode(name, NON_ALPHANUMERIC);
    let history: LimitHistory = server.json(&format!("/v1/history?limit={query}")).await?;
    let mut hot: Hot = server.json(&format!("/v1/hot?limit={query}")).await?;
    let mut hot = hot.limits.remove(name).unwrap_or_default();
    model::make_shown(&mut hot);
    Ok((model::sent_steps(history.steps), hot))
}

#[expect(clippy::disallowed_methods, reason = "the edge: connections are lost and opened in real time")]
fn now() -> Instant {
    Instant::now()
}
