//! What leases need of a store: draws and returns of one key, and tasks in the background.

use std::sync::Arc;
use std::time::Duration;

use tollgate::adaptive::Pace;
use tollgate::lease::{Draw, Grant};
use tollgate::{Action, Group, Nanos, Rule, Timestamp};

use super::{Ask, Later, Unavailable};

/// A store that nodes can draw grants from.
pub trait LeaseStore: Send + Sync {
    /// Refuses a rule whose grants it cannot compute exactly. Such a rule is decided exactly.
    ///
    /// # Errors
    ///
    /// What is wrong with the rule.
    fn require_lease(&self, rule: &Rule) -> Result<(), String>;

    /// A number that grows whenever a connection is made or lost. While it stays the same, so does the [`primary`](Self::primary) of
    /// every key. It is read for each decision.
    fn connections(&self) -> u64;

    /// The primary that has a key now.
    ///
    /// # Errors
    ///
    /// If there is no connection to it.
    fn primary(&self, key: &LeasedKey) -> Result<PrimaryId, Unavailable>;

    /// Draws units of a key. The store charges it at most once, and only the primary that it names does.
    ///
    /// An error says nothing about whether the store has charged it.
    fn draw(&self, call: DrawCall) -> Later<'static, Result<Drawn, Unavailable>>;

    /// Returns units of a key. They are lost if this fails.
    fn give_back(&self, call: ReturnCall) -> Later<'static, Result<(), Unavailable>>;

    /// How long a request waits for a grant.
    fn deadline(&self) -> Duration;

    /// Runs a task in the background.
    fn spawn(&self, task: Later<'static, ()>);

    /// Ends after a time.
    fn sleep(&self, span: Duration) -> Later<'static, ()>;
}

/// Names a connection to the primary of some keys. No other connection of this process has the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PrimaryId(pub u64);

/// A key of a limit that is leased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasedKey {
    /// The name of the limit.
    pub limit: Box<str>,
    /// The values of the key, part by part.
    pub key: Box<[Box<[u8]>]>,
    /// The hash tag, as in [`Ask::tag`].
    pub tag: Box<[u8]>,
    /// The rule that grants are drawn under, at full pace.
    pub rule: Rule,
    /// The multiplier of its rate (`adaptive_rates`).
    pub pace: Pace,
}

impl LeasedKey {
    /// The key of an ask.
    pub fn new(ask: &Ask<'_>) -> Self {
        Self {
            limit: ask.limit.as_ref().into(),
            key: ask.key.iter().map(|part| Box::from(*part)).collect(),
            tag: ask.tag.into(),
            rule: ask.rule,
            pace: ask.pace,
        }
    }

    /// An ask that charges the key, as the only ask of a request.
    pub fn ask(&self, cost: u64) -> Ask<'_> {
        Ask {
            limit: (&*self.limit).into(),
            key: self.key.iter().map(|part| &**part).collect(),
            tag: &self.tag,
            rule: self.rule,
            pace: self.pace,
            cost,
            action: Action::Charge,
            group: Group::All,
            is_denied: false,
            has_one_tier: true,
        }
    }
}

/// A draw of units.
#[derive(Clone, Debug)]
pub struct DrawCall {
    /// Of which key.
    pub key: Arc<LeasedKey>,
    /// How many.
    pub draw: Draw,
    /// The primary that it is meant for.
    pub primary: PrimaryId,
    /// How long the answer may take.
    pub deadline: Duration,
}

/// The answer to a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// What the draw got.
    pub grant: Grant,
    /// When it was charged, by the clock of the store.
    pub charged: Timestamp,
}

/// A return of units.
#[derive(Clone, Debug)]
pub struct ReturnCall {
    /// Of which key.
    pub key: Arc<LeasedKey>,
    /// Names the grant. No other grant of this process has the same number.
    pub grant: u64,
    /// How many.
    pub units: u64,
    /// When they were charged, by the clock of the store. For a dated grant, this is its date.
    pub charged: Timestamp,
    /// How long after that the return counts.
    pub life: Nanos,
    /// The primary that they were drawn from. Others reject the return.
    pub primary: PrimaryId,
}
