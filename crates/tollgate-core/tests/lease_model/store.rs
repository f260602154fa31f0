//! The store: the grants of the core, and the guard of returns.

use tollgate_core::lease::{Draw, Grant};
use tollgate_core::{PermitId, Rule, State, Status, Tat, Timestamp};

use super::model::{GrantName, at, life, rule};

/// What the store keeps of the key. A write replaces all of it, as a script does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Key {
    tat: Tat,
    /// The numbers of the last write.
    numbers: u8,
    /// The grants that were returned, until their names expire. They are few, so they do not expire here.
    returned: Vec<GrantName>,
}

/// The store. It keeps one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Store {
    key: Key,
    /// The key before the last write, and the grant that the write charged. A failover forgets the write.
    last_write: Option<(Key, Option<GrantName>)>,
}

/// What a store answers to a draw.
pub(super) struct Answer {
    pub(super) grant: Grant,
    pub(super) charged: Timestamp,
    /// The draw has charged more or less than the units of its grant.
    pub(super) differs: bool,
}

impl Key {
    fn state(&self) -> State {
        if self.tat == Tat::default() { State::Unused } else { State::Bucket(self.tat) }
    }

    fn set(&mut self, state: &State) {
        self.tat = if let State::Bucket(tat) = state { *tat } else { Tat::default() };
    }

    /// The rule of these numbers, with the key converted to it.
    fn convert(&mut self, numbers: u8, now: Timestamp) -> (Rule, State) {
        let (old, new, mut state) = (rule(self.numbers), rule(numbers), self.state());
        if self.numbers != numbers {
            new.convert(&old, &mut state, now);
        }
        self.numbers = numbers;
        (new, state)
    }
}

impl Store {
    fn write(&mut self, key: Key, name: Option<GrantName>) {
        self.last_write = Some((std::mem::replace(&mut self.key, key), name));
    }

    pub(super) fn draw(&mut self, name: GrantName, numbers: u8, draw: &Draw, halves: u8) -> Answer {
        let (mut key, now) = (self.key.clone(), at(halves));
        let (rule, mut state) = key.convert(numbers, now);
        let mut expected = state.clone();
        let grant = rule.grant(&mut state, draw, now);
        rule.spend(&mut expected, PermitId(0), grant.units, now);
        let differs = state != expected;
        key.set(&state);
        self.write(key, Some(name));
        // The status is for headers only.
        Answer { grant: Grant { status: Status::default(), ..grant }, charged: now, differs }
    }

    /// LE-4: once, before the life ends by the clock of the store, and under the present numbers.
    pub(super) fn take_back(
        &mut self,
        name: GrantName,
        numbers: u8,
        units: u64,
        charged: Timestamp,
        halves: u8,
    ) {
        let (mut key, now) = (self.key.clone(), at(halves));
        if key.returned.contains(&name) || numbers != key.numbers || now >= charged.after(life()) {
            return;
        }
        key.returned.push(name);
        let (rule, mut state) = key.convert(numbers, now);
        rule.refund(&mut state, units, charged, now);
        key.set(&state);
        self.write(key, None);
    }

    pub(super) fn reset(&mut self) {
        let key = Key { tat: Tat::default(), ..self.key.clone() };
        self.write(key, None);
    }

    /// Forgets the last write. Returns the grant that it charged.
    pub(super) fn fail_over(&mut self) -> Option<GrantName> {
        let (key, name) = self.last_write.take()?;
        self.key = key;
        name
    }

    /// Without this, a failover could forget the last write.
    pub(super) fn forget_last_write(&mut self) {
        self.last_write = None;
    }

    pub(super) fn is_unused(&self) -> bool {
        self.key.tat == Tat::default()
    }

    pub(super) const fn has_written(&self) -> bool {
        self.last_write.is_some()
    }
}
