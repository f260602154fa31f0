//! Whether a server takes charges: it is asked, and tried by a script that does what every call does.
//!
//! The same is asked before calls are sent to a server and when it has answered one with an error, so that what opens the
//! breaker also keeps it open: a server cannot seem well to the one and refuse the other.

use std::sync::LazyLock;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, ServerError, Value};

use super::connector::{ask_all, text};
use super::error::{Refusal, text_of};
use super::script::{Call, Script};
use super::slot::tag_of;

/// Does what every decision does: a server may let us in and refuse it (`NOPERM`, `OOM`, `MISCONF`, `NOREPLICAS`). Nothing
/// stays: the key is deleted before anybody can see it, or expires where deleting is not allowed. Without a key, only
/// whether scripts run is tried.
static TRIAL: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "redis.call('TIME')
if KEYS[1] then
  redis.call('GET', KEYS[1])
  redis.call('SET', KEYS[1], '', 'PX', 1000)
  redis.pcall('DEL', KEYS[1])
end
return 1",
    )
});

/// What a server is asked for.
pub(super) struct Examination<'a> {
    pub(super) is_cluster: bool,
    pub(super) slot: Option<usize>,   // of a cluster: one that the server has
    pub(super) scripts: &'a [Script], // that it is told: then the first calls find them there
    pub(super) within: Duration,
}

impl Examination<'_> {
    /// Has a server show that it takes charges; the reason where it does not.
    pub(super) async fn of(&self, connection: &mut MultiplexedConnection) -> Result<(), String> {
        let mut questions = Pipeline::new();
        questions.cmd("PING").cmd("ROLE");
        if self.is_cluster {
            questions.cmd("CLUSTER").arg("INFO");
        }
        // Where scripts may not be loaded beforehand they are with the first call.
        for script in self.scripts {
            questions.add_command(script.load());
        }
        let key = self.trial_key();
        let keys: Vec<&[u8]> = key.iter().map(|key| key.as_bytes()).collect();
        let trial = Call { script: &TRIAL, keys: &keys, args: &[] };
        questions.add_command(TRIAL.load()).add_command(trial.evalsha());
        let answers = ask_all(connection, &questions, self.within).await?;
        let [ping, role, rest @ .., tried] = &answers[..] else { return Err("too few answers".to_owned()) };
        if let Value::ServerError(error) = ping {
            return Err(format!("PING is answered `{}`", text_of(error)));
        }
        is_primary(role)?;
        if self.is_cluster {
            is_whole(&rest[0])?;
        }
        match tried {
            Value::ServerError(error) if Refusal::of(error) == Refusal::NoScript => {
                let mut again = Pipeline::new();
                again.add_command(trial.eval());
                took(&ask_all(connection, &again, self.within).await?[0])
            }
            tried => took(tried),
        }
    }

    /// A key that the server has.
    fn trial_key(&self) -> Option<String> {
        if !self.is_cluster {
            return Some("tollgate:{trial}".to_owned());
        }
        self.slot.map(|slot| format!("tollgate:{{{}}}:trial", tag_of(slot)))
    }
}

fn is_primary(role: &Value) -> Result<(), String> {
    match role {
        Value::Array(parts) => match parts.first().and_then(text) {
            Some("master") => Ok(()),
            Some("slave") => Err("it is a replica, not a primary".to_owned()),
            role => Err(format!("it is a {}, not a primary", role.unwrap_or("stranger"))),
        },
        Value::ServerError(error) => Err(format!("ROLE is answered `{}`", text_of(error))),
        _ => Err("ROLE is answered with something else".to_owned()),
    }
}

fn is_whole(info: &Value) -> Result<(), String> {
    match info {
        Value::ServerError(error) => Err(format!("CLUSTER INFO is answered `{}`", text_of(error))),
        info if text(info).is_some_and(|info| info.contains("cluster_state:ok")) => Ok(()),
        _ => Err("its cluster is down".to_owned()),
    }
}

fn took(tried: &Value) -> Result<(), String> {
    match tried {
        Value::ServerError(error) if !is_of_the_slot(error) => {
            Err(format!("it takes no charges: {}", text_of(error)))
        }
        _ => Ok(()),
    }
}

/// The slot has left the server, or is about to: others are none the worse. Whether the cluster is whole was asked before.
fn is_of_the_slot(error: &ServerError) -> bool {
    error.code() == "CLUSTERDOWN"
        || matches!(Refusal::of(error), Refusal::Moved(_) | Refusal::Ask(_) | Refusal::TryAgain)
}
