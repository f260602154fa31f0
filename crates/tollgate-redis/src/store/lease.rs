//! Draws and returns of leases, each to the primary that it names and to no other.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::{Instant, sleep};
use tollgate_core::Rule;
use tollgate_policy::{DrawCall, Drawn, Later, LeaseStore, LeasedKey, PrimaryId, ReturnCall, Unavailable};

use super::{Inner, MOST_ATTEMPTS, NoAnswer, RedisStore};
use crate::convert::Replaced;
use crate::draw::{PreparedDraw, PreparedReturn, require_lease};
use crate::key::write_key;
use crate::link::{Call, LinkError, Script};
use crate::replay::{Answer, read_drawn};
use crate::request::Texts;

impl LeaseStore for RedisStore {
    fn require_lease(&self, rule: &Rule) -> Result<(), String> {
        require_lease(rule)
    }

    fn connections(&self) -> u64 {
        self.0.link.connections()
    }

    fn primary(&self, key: &LeasedKey) -> Result<PrimaryId, Unavailable> {
        let mut name = Vec::new();
        write_key(&key.ask(1), &mut name);
        self.0.link.primary(&name).map(PrimaryId).map_err(|error| self.0.unavailable(error.into()))
    }

    fn draw(&self, call: DrawCall) -> Later<'static, Result<Drawn, Unavailable>> {
        let store = Arc::clone(&self.0);
        Box::pin(async move { store.draw(&call).await.map_err(|error| store.unavailable(error)) })
    }

    fn give_back(&self, call: ReturnCall) -> Later<'static, Result<(), Unavailable>> {
        let store = Arc::clone(&self.0);
        Box::pin(async move { store.give_back(&call).await.map_err(|error| store.unavailable(error)) })
    }

    fn deadline(&self) -> Duration {
        self.0.deadline
    }

    fn spawn(&self, task: Later<'static, ()>) {
        self.0.runtime.spawn(task);
    }

    fn sleep(&self, span: Duration) -> Later<'static, ()> {
        let _runtime = self.0.runtime.enter();
        Box::pin(sleep(span))
    }
}

impl Inner {
    /// Asks the script until it has decided. It decides once: before that, it may only report a state that other numbers wrote.
    async fn draw(&self, call: &DrawCall) -> Result<Drawn, NoAnswer> {
        let until = Instant::now() + call.deadline;
        let prepared = PreparedDraw::new(&call.key, call.draw);
        let [limit] = &prepared.ask.limits[..] else { unreachable!("a draw is of one key") };
        require_lease(&limit.rule).map_err(NoAnswer::Misread)?;
        let (key, mut replaced) = (prepared.ask.key(limit), Vec::<Replaced>::new());
        let near = self.time().unwrap_or_else(wall_clock);
        for _ in 0..MOST_ATTEMPTS {
            let args = prepared.arguments(self.time(), near, &replaced);
            let answer = self.call_primary(call.primary, &self.scripts.grant, &[key], &args, until).await?;
            let answer = read_drawn(&prepared.ask, &prepared.draw, answer);
            match answer.map_err(|error| NoAnswer::Misread(error.to_string()))? {
                Answer::Decided(drawn) => return Ok(drawn),
                Answer::OtherNumbers { held, now, .. } => replaced = vec![Replaced::new(limit, held, now)],
            }
            if Instant::now() >= until {
                break;
            }
        }
        Err(NoAnswer::Misread("the numbers of a key change faster than it can be asked".to_owned()))
    }

    async fn give_back(&self, call: &ReturnCall) -> Result<(), NoAnswer> {
        let until = self.link.deadline();
        let prepared = PreparedReturn::new(call, self.id);
        let (args, limit) = (prepared.arguments(self.time()), &prepared.ask.limits[0]);
        require_lease(&limit.rule).map_err(NoAnswer::Misread)?;
        let key = prepared.ask.key(limit);
        let script = &self.scripts.give_back;
        let answer = self.call_primary(call.primary, script, &[key, &prepared.guard], &args, until).await;
        // The wait of a denial is shorter now, also if no answer came.
        self.denied.forget(self.denied.asked(key, limit));
        answer?;
        Ok(())
    }

    async fn call_primary(
        &self,
        PrimaryId(primary): PrimaryId,
        script: &Script,
        keys: &[&[u8]],
        args: &Texts,
        until: Instant,
    ) -> Result<redis::Value, LinkError> {
        let args: SmallVec<[&[u8]; 32]> = args.iter().collect();
        self.link.call_primary(primary, Call { script, keys, args: &args }, until).await
    }
}

/// The time of this machine, in microseconds since the epoch.
#[expect(clippy::disallowed_methods, reason = "schedules are read by it, to within some years")]
fn wall_clock() -> u64 {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
}
