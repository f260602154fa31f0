//! The commands, and the small ones among them.

use std::ops::Range;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tollgate_policy::Unavailable;

use super::later::Later;
use super::reply::Reply;
use super::session::Session;
use super::{check, hello, hints, throttle, transaction, ttl};
use crate::calls::Calls;
use crate::service::{Service, unix_time};

/// One request, and where its answer goes.
pub(super) struct Asked<'a> {
    pub(super) session: &'a mut Session,
    pub(super) service: &'a Arc<Service>,
    pub(super) calls: &'a Calls<'a>,
    pub(super) arguments: Arguments<'a>,
    pub(super) reply: Reply<'a>,
    pub(super) later: &'a mut Later, // where it goes instead, if a store has to be waited for
}

/// The arguments of a request, the command first.
#[derive(Clone, Copy)]
pub(super) struct Arguments<'a> {
    input: &'a [u8],
    places: &'a [Range<usize>],
}

impl<'a> Arguments<'a> {
    pub(super) const fn new(input: &'a [u8], places: &'a [Range<usize>]) -> Self {
        Self { input, places }
    }

    pub(super) const fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn get(&self, place: usize) -> Option<&'a [u8]> {
        self.places.get(place).map(|place| &self.input[place.clone()])
    }

    fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        self.places.iter().map(|place| &self.input[place.clone()])
    }

    fn is(&self, place: usize, word: &str) -> bool {
        self.get(place).is_some_and(|argument| argument.eq_ignore_ascii_case(word.as_bytes()))
    }
}

/// A whole number as people write it.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A command: how many arguments it has, itself included, or as many at least where that is negative; whether its first
/// argument is a key; whether a stranger may ask it.
struct Command {
    name: &'static str,
    arity: i32,
    has_key: bool,
    for_strangers: bool,
    run: fn(&mut Asked<'_>),
}

const fn command(name: &'static str, arity: i32, run: fn(&mut Asked<'_>)) -> Command {
    Command { name, arity, has_key: false, for_strangers: false, run }
}

const COMMANDS: [Command; 24] = [
    // `session` answers it, in batches. Here it comes only from a client that has yet to give the password.
    Command { has_key: true, ..command("cl.throttle", -5, refuse_stranger) },
    command("tollgate.check", -1, check::check),
    Command { has_key: true, ..command("del", -2, del) },
    Command { has_key: true, ..command("unlink", -2, del) },
    Command { has_key: true, ..command("exists", -2, ttl::exists) },
    Command { has_key: true, ..command("ttl", 2, ttl::ttl) },
    Command { has_key: true, ..command("pttl", 2, ttl::pttl) },
    command("multi", 1, transaction::multi),
    command("exec", 1, transaction::exec),
    command("discard", 1, transaction::discard),
    Command { for_strangers: true, ..command("hello", -1, hello::hello) },
    Command { for_strangers: true, ..command("auth", -2, hello::auth) },
    Command { for_strangers: true, ..command("reset", 1, hello::reset) },
    Command { for_strangers: true, ..command("quit", -1, quit) },
    command("ping", -1, ping),
    command("echo", 2, echo),
    command("select", 2, select),
    command("client", -2, client),
    command("command", -1, command_),
    command("config", -2, config),
    command("info", -1, info),
    command("dbsize", 1, dbsize),
    command("time", 1, time),
    command("role", 1, role),
];

/// Answers one request.
pub(super) fn answer(asked: &mut Asked<'_>) {
    let name = asked.arguments.get(0).unwrap_or_default();
    if asked.session.refused_transaction.is_some() && !transaction::is_end(name) {
        return asked.reply.error(hints::not_run());
    }
    let Some(command) = COMMANDS.iter().find(|command| name.eq_ignore_ascii_case(command.name.as_bytes()))
    else {
        return unknown(name, asked);
    };
    if throttle::is_meant(name) {
        return refuse_stranger(asked); // whatever its arguments
    }
    let (count, arity) = (asked.arguments.len(), command.arity.unsigned_abs() as usize);
    if count < arity || command.arity > 0 && count > arity {
        return wrong_number(asked, command.name);
    }
    if asked.session.is_stranger && !command.for_strangers {
        return refuse_stranger(asked);
    }
    (command.run)(asked);
}

fn refuse_stranger(asked: &mut Asked<'_>) {
    asked.reply.error("NOAUTH Authentication required.");
}

fn wrong_number(asked: &mut Asked<'_>, name: &str) {
    asked.reply.error(format_args!("ERR wrong number of arguments for '{name}' command"));
}

fn unknown(name: &[u8], asked: &mut Asked<'_>) {
    // A web page that was made to send its form here: nothing it says is to be done.
    if [&b"POST"[..], b"Host:"].iter().any(|word| name.eq_ignore_ascii_case(word)) {
        asked.session.is_closing = true;
        return;
    }
    let shown = String::from_utf8_lossy(&name[..name.len().min(128)]);
    if let Some(hint) = hints::hint(name) {
        return asked.reply.error(format_args!("ERR unknown command '{shown}'. {hint}"));
    }
    let mut arguments = String::new();
    for argument in asked.arguments.iter().skip(1) {
        if arguments.len() >= 128 {
            break;
        }
        let shown = &argument[..argument.len().min(128 - arguments.len())];
        arguments.push_str(&format!("'{}' ", String::from_utf8_lossy(shown)));
    }
    asked.reply.error(format_args!("ERR unknown command '{shown}', with args beginning with: {arguments}"));
}

fn quit(asked: &mut Asked<'_>) {
    asked.reply.ok();
    asked.session.is_closing = true;
}

fn ping(asked: &mut Asked<'_>) {
    match (asked.arguments.get(1), asked.arguments.len()) {
        (None, _) => asked.reply.simple("PONG"),
        (Some(message), 2) => asked.reply.bulk(message),
        _ => wrong_number(asked, "ping"),
    }
}

fn echo(asked: &mut Asked<'_>) {
    asked.reply.bulk(asked.arguments.get(1).unwrap_or_default());
}

fn select(asked: &mut Asked<'_>) {
    match asked.arguments.get(1).and_then(integer) {
        Some(0) => asked.reply.ok(),
        Some(_) => asked.reply.error("ERR DB index is out of range"),
        None => asked.reply.error("ERR value is not an integer or out of range"),
    }
}

/// `DEL key …`: forgets what `CL.THROTTLE` has of these keys.
fn del(asked: &mut Asked<'_>) {
    let mut forgotten = 0;
    for place in 1..asked.arguments.len() {
        let key = asked.arguments.get(place).unwrap_or_default();
        match asked.service.engine.reset_cell(key).now() {
            Some(was_known) => forgotten += usize::from(was_known.unwrap_or_default()),
            None => return del_later(asked, place),
        }
    }
    asked.reply.count(forgotten);
}

/// Forgets the keys from an argument on in a store.
fn del_later(asked: &mut Asked<'_>, from: usize) {
    let keys = asked.arguments.iter().skip(from);
    let (service, version) = (Arc::clone(asked.service), asked.reply.version);
    let keys: Vec<Box<[u8]>> = keys.map(Into::into).collect();
    asked.later.push(keys.len(), async move {
        let mut out = Vec::new();
        let reply = &mut Reply { out: &mut out, version };
        match forget(&service, &keys).await {
            Ok(forgotten) => reply.count(forgotten),
            Err(unavailable) => reply.error(format_args!("ERR {unavailable}")),
        }
        out
    });
}

/// Forgets keys in a shared store, all at once: how many it had.
async fn forget(service: &Service, keys: &[Box<[u8]>]) -> Result<usize, Unavailable> {
    let mut asked: FuturesUnordered<_> =
        keys.iter().map(|key| service.engine.reset_cell(key).wait()).collect();
    let mut forgotten = 0;
    while let Some(was_known) = asked.next().await {
        forgotten += usize::from(was_known?);
    }
    Ok(forgotten)
}

/// All keys that are remembered, of the policy's limits too.
fn dbsize(asked: &mut Asked<'_>) {
    asked.reply.count(asked.service.engine.stats().keys);
}

/// What a primary without replicas answers.
fn role(asked: &mut Asked<'_>) {
    asked.reply.array(3);
    asked.reply.bulk(b"master");
    asked.reply.integer(0);
    asked.reply.array(0);
}

fn time(asked: &mut Asked<'_>) {
    let time = unix_time();
    asked.reply.array(2);
    asked.reply.bulk(time.as_secs().to_string().as_bytes());
    asked.reply.bulk(time.subsec_micros().to_string().as_bytes());
}

fn info(asked: &mut Asked<'_>) {
    let (redis, ours) = (hello::REDIS_VERSION, env!("CARGO_PKG_VERSION"));
    asked.reply.text(&format!(
        "# Server\r\nredis_version:{redis}\r\nredis_mode:standalone\r\ntollgate_version:{ours}\r\n\r\n\
         # Persistence\r\nloading:0\r\n\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n"
    ));
}

/// `CONFIG GET parameter …`: the two that benchmarks ask for.
fn config(asked: &mut Asked<'_>) {
    if !asked.arguments.is(1, "get") {
        return other_subcommand(asked, "CONFIG", &["get"]);
    }
    if asked.arguments.len() < 3 {
        return wrong_number(asked, "config|get");
    }
    let known = [("save", ""), ("appendonly", "no")];
    let is_asked =
        |name: &str| asked.arguments.iter().skip(2).any(|asked| asked.eq_ignore_ascii_case(name.as_bytes()));
    let found = known.map(|(name, value)| is_asked(name).then_some((name, value)));
    asked.reply.map(found.iter().flatten().count());
    for (name, value) in found.into_iter().flatten() {
        asked.reply.bulk(name.as_bytes());
        asked.reply.bulk(value.as_bytes());
    }
}

/// The subcommands of `CLIENT`. Most have no effect here, but client libraries send them.
const CLIENT: [&str; 8] = ["getname", "id", "info", "list", "no-evict", "no-touch", "setinfo", "setname"];

fn client(asked: &mut Asked<'_>) {
    let is = |word: &str| asked.arguments.is(1, word);
    match asked.arguments.len() {
        4 if is("setinfo") => asked.reply.ok(),
        3 if is("no-evict") || is("no-touch") => asked.reply.ok(),
        3 if is("setname") => match asked.session.set_name(asked.arguments.get(2).unwrap_or_default()) {
            Ok(()) => asked.reply.ok(),
            Err(error) => asked.reply.error(error),
        },
        2 if is("getname") => match &asked.session.name {
            Some(name) => asked.reply.bulk(name),
            None => asked.reply.null(),
        },
        2 if is("info") || is("list") => {
            let line = client_info(asked.session);
            asked.reply.text(&line);
        }
        2 if is("id") => asked.reply.integer(asked.session.id.cast_signed()),
        _ if is("tracking") || is("maint_notifications") => {
            asked.reply.error("ERR this server sends no notifications");
        }
        _ if is("kill") || is("pause") || is("unpause") => {
            asked.reply.error("ERR a client cannot close or pause other connections of this server");
        }
        _ => match CLIENT.into_iter().find(|name| is(name)) {
            Some(name) => wrong_number(asked, &format!("client|{name}")),
            None => other_subcommand(asked, "CLIENT", &CLIENT),
        },
    }
}

/// This connection, in the form of Redis. `CLIENT LIST` shows no other.
fn client_info(session: &Session) -> String {
    let name = String::from_utf8_lossy(session.name.as_deref().unwrap_or_default()).into_owned();
    let (id, address, version) = (session.id, session.peer, session.version as u8);
    format!("id={id} addr={address} name={name} flags=N db=0 user=default resp={version}\n")
}

/// `COMMAND [COUNT | LIST | DOCS … | INFO name …]`.
fn command_(asked: &mut Asked<'_>) {
    let is = |word: &str| asked.arguments.is(1, word);
    match asked.arguments.len() {
        1 => {
            asked.reply.array(COMMANDS.len());
            COMMANDS.iter().for_each(|command| describe(command, &mut asked.reply));
        }
        2 if is("count") => asked.reply.count(COMMANDS.len()),
        2 if is("list") => {
            asked.reply.array(COMMANDS.len());
            COMMANDS.iter().for_each(|command| asked.reply.bulk(command.name.as_bytes()));
        }
        _ if is("docs") => asked.reply.map(0),
        _ if is("info") => {
            asked.reply.array(asked.arguments.len() - 2);
            for name in asked.arguments.iter().skip(2) {
                let is_it = |command: &&Command| name.eq_ignore_ascii_case(command.name.as_bytes());
                match COMMANDS.iter().find(is_it) {
                    Some(command) => describe(command, &mut asked.reply),
                    None => asked.reply.null(),
                }
            }
        }
        _ => other_subcommand(asked, "COMMAND", &["count", "docs", "info", "list"]),
    }
}

/// Name, arity, flags, where keys are; then four lists that are empty here.
fn describe(command: &Command, reply: &mut Reply<'_>) {
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(command.arity.into());
    reply.array(1);
    reply.simple("fast");
    (0..3).for_each(|_| reply.integer(command.has_key.into()));
    (0..4).for_each(|_| reply.array(0));
}

/// `HELP`, which lists those there are, or none of them.
fn other_subcommand(asked: &mut Asked<'_>, command: &str, known: &[&str]) {
    if asked.arguments.is(1, "help") {
        asked.reply.array(known.len());
        return known.iter().for_each(|name| asked.reply.simple(name));
    }
    let name = asked.arguments.get(1).unwrap_or_default();
    let name = String::from_utf8_lossy(&name[..name.len().min(128)]);
    asked.reply.error(format_args!("ERR unknown subcommand '{name}'. Try {command} HELP."));
}
