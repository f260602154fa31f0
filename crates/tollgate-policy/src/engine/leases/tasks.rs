//! Calls to the store about leases: draws and returns, in the background.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tollgate::lease::DrawId;

use super::Leases;
use crate::store::{DrawCall, Drawn, ReturnCall, Unavailable};

/// A call of the store about a lease.
#[derive(Debug)]
pub(super) enum LeaseCall {
    Draw(DrawId, DrawCall),
    Return(ReturnCall),
}

/// A call, and the entry that it is for.
#[derive(Debug)]
pub(super) struct EntryCall {
    pub(super) hash: u64,
    pub(super) serial: u64,
    pub(super) call: LeaseCall,
}

/// How often an entry is looked at, at most, in case something is due.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

impl Leases {
    /// Runs a call in the background, and those that follow from it.
    pub(super) fn start(self: &Arc<Self>, call: EntryCall) {
        let leases = Arc::clone(self);
        self.store.spawn(Box::pin(async move {
            let mut next = Some(call);
            while let Some(call) = next {
                next = leases.run(call).await;
            }
        }));
    }

    /// Runs a call. Returns the next one of the same entry.
    async fn run(&self, EntryCall { hash, serial, call }: EntryCall) -> Option<EntryCall> {
        match call {
            LeaseCall::Draw(id, call) => {
                let answer = self.store.draw(call).await;
                self.take_answer(hash, serial, id, answer)
            }
            LeaseCall::Return(call) => {
                // Units that could not be returned have lapsed, and nobody waits for them.
                let _ = self.store.give_back(call).await;
                self.next_call(hash, serial)
            }
        }
    }

    fn take_answer(
        &self,
        hash: u64,
        serial: u64,
        id: DrawId,
        answer: Result<Drawn, Unavailable>,
    ) -> Option<EntryCall> {
        let now = self.clock.now();
        let (wait, next) = {
            let mut shard = self.shard(hash).lock();
            let entry = shard.entries.get_mut(&hash).filter(|entry| entry.serial == serial)?;
            let wait = entry.answer(id, answer.as_ref(), now);
            let next = answer.is_ok().then(|| self.call_of(entry, hash, now)).flatten();
            (wait, next)
        };
        if let Some(wait) = wait {
            wait.end(answer.map(|_| ()));
        }
        next
    }

    fn next_call(&self, hash: u64, serial: u64) -> Option<EntryCall> {
        let mut shard = self.shard(hash).lock();
        let entry = shard.entries.get_mut(&hash).filter(|entry| entry.serial == serial)?;
        self.call_of(entry, hash, self.clock.now())
    }

    /// Looks after an entry for as long as it is there: returns units whose life ends, and removes the entry when nobody needs it.
    pub(super) fn watch(self: &Arc<Self>, hash: u64, serial: u64) {
        let leases = Arc::downgrade(self);
        let store = Arc::clone(&self.store);
        self.store.spawn(Box::pin(async move {
            while let Some(pause) = pause(&leases, hash, serial) {
                store.sleep(pause).await;
                let Some(leases) = leases.upgrade() else { return };
                let mut next = leases.maintain_entry(hash, serial);
                while let Some(call) = next {
                    next = leases.run(call).await;
                }
            }
        }));
    }

    /// Removes an entry if nobody needs it. Otherwise returns what is due.
    fn maintain_entry(&self, hash: u64, serial: u64) -> Option<EntryCall> {
        let now = self.clock.now();
        let wait = {
            let mut shard = self.shard(hash).lock();
            let entry = shard.entries.get_mut(&hash).filter(|entry| entry.serial == serial)?;
            let next = self.call_of(entry, hash, now);
            entry.count_lapsed(now);
            if next.is_some() || !entry.lease.is_idle(now) {
                return next.or_else(|| self.charge_owed(entry, hash, now));
            }
            self.remove(&mut shard, hash).and_then(|entry| entry.end())
        };
        // Their draw was given up, because the primary or the numbers of the key have changed. They ask again.
        if let Some(wait) = wait {
            wait.end(Ok(()));
        }
        None
    }
}

/// How long nothing is due. None if the entry is gone.
fn pause(leases: &Weak<Leases>, hash: u64, serial: u64) -> Option<Duration> {
    let leases = leases.upgrade()?;
    let shard = leases.shard(hash).lock();
    let entry = shard.entries.get(&hash).filter(|entry| entry.serial == serial)?;
    let life = Duration::from(entry.lease.terms().life());
    let due = entry.lease.next_return().map(|at| Duration::from(at.since(leases.clock.now())));
    Some(due.map_or(life, |due| due.min(life)).max(SHORTEST_PAUSE))
}
