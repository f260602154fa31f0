//! Who is there, and which version is spoken: `HELLO`, `AUTH`, `RESET`.

use super::commands::{Asked, integer};
use super::password::Attempt;
use super::reply::Version;
use super::session::Session;

/// The version of Redis that we say to be: clients choose by it what they may ask.
pub(super) const REDIS_VERSION: &str = "7.4.0";

const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// `HELLO [version [AUTH user password] [SETNAME name]]`.
pub(super) fn hello(asked: &mut Asked<'_>) {
    if let Err(error) = switch(asked) {
        return asked.reply.error(error);
    }
    asked.reply.version = asked.session.version;
    let (id, version) = (asked.session.id, asked.session.version);
    let reply = &mut asked.reply;
    reply.map(7);
    for (name, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    for (name, value) in [("proto", version as i64), ("id", id.cast_signed())] {
        reply.bulk(name.as_bytes());
        reply.integer(value);
    }
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
}

/// Does all that was asked for, or nothing.
fn switch(asked: &mut Asked<'_>) -> Result<(), String> {
    let version = match asked.arguments.get(1).map(integer) {
        None => asked.session.version,
        Some(Some(2)) => Version::Two,
        Some(Some(3)) => Version::Three,
        Some(Some(_)) => return Err("NOPROTO unsupported protocol version".to_owned()),
        Some(None) => return Err("ERR Protocol version is not an integer or out of range".to_owned()),
    };
    let (mut login, mut name, mut at) = (None, None, 2);
    while let Some(option) = asked.arguments.get(at) {
        let next = |by: usize| asked.arguments.get(at + by);
        match (next(1), next(2)) {
            (Some(user), Some(password)) if option.eq_ignore_ascii_case(b"AUTH") => {
                login = Some((user, password));
                at += 3;
            }
            (Some(given), _) if option.eq_ignore_ascii_case(b"SETNAME") => {
                name = Some(given);
                at += 2;
            }
            _ => {
                let option = String::from_utf8_lossy(option);
                return Err(format!("ERR Syntax error in HELLO option '{option}'"));
            }
        }
    }
    if let Some((user, password)) = login {
        authenticate(asked, user, password)?;
    }
    if asked.session.is_stranger {
        return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH \
                    <user> <pass> option can be used to authenticate the client and select the RESP protocol version at \
                    the same time"
            .to_owned());
    }
    if let Some(name) = name {
        asked.session.set_name(name)?;
    }
    asked.session.version = version;
    Ok(())
}

/// `AUTH [user] password`.
pub(super) fn auth(asked: &mut Asked<'_>) {
    let (user, password) = match (asked.arguments.get(1), asked.arguments.get(2), asked.arguments.get(3)) {
        (Some(password), None, _) => (None, password),
        (Some(user), Some(password), None) => (Some(user), password),
        _ => return asked.reply.error("ERR syntax error"),
    };
    if user.is_none() && !asked.service.resp_password.is_set() {
        return asked.reply.error(
            "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
             configuration is correct?",
        );
    }
    match authenticate(asked, user.unwrap_or(b"default"), password) {
        Ok(()) => asked.reply.ok(),
        Err(error) => asked.reply.error(error),
    }
}

/// Accepts a client that has the password. Failed attempts are limited per address: beyond the limit, the password is not checked and
/// the connection is closed.
fn authenticate(asked: &mut Asked<'_>, user: &[u8], password: &[u8]) -> Result<(), String> {
    let is_user = user == b"default";
    match asked.service.resp_password.attempt(password, asked.session.peer.ip(), asked.calls.now()) {
        Attempt::Right if is_user => {
            asked.session.is_stranger = false;
            Ok(())
        }
        Attempt::Right | Attempt::Wrong => Err(WRONG.to_owned()),
        Attempt::TooMany { retry_after } => {
            asked.session.is_closing = true;
            Err(format!(
                "ERR too many failed attempts to authenticate from this address; try again in {retry_after} seconds"
            ))
        }
    }
}

/// `RESET`: as if just connected.
pub(super) fn reset(asked: &mut Asked<'_>) {
    *asked.session = Session::new(asked.session.id, asked.session.peer, asked.service);
    asked.reply.version = asked.session.version;
    asked.reply.simple("RESET");
}
