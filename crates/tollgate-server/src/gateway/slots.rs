//! How many requests the application gets at once, and who is next.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use tollgate::adaptive::{Aimd, Bounds, Gradient2, Vegas, Windowed};
use tollgate::{AdaptiveLimiter, Clock, FairSemaphore, Flight, Nanos, NoSlot, Slot, Timestamp, Weight};
use tollgate_policy::{Adaptive, FairQueue, Gateway as Settings, Work};

use crate::hot_keys::{Hit, HotBy, HotKeys, Hottest};

/// As many wait in all.
const MOST_WAITING: usize = 100_000;

/// A slow answer counts as dropped by AIMD, which learns from nothing else.
const AIMD_TIMEOUT: Duration = Duration::from_secs(5);

/// What a tenant's requests take is remembered in so many places, by hash. Two who share one are taken for the slower.
const ESTIMATES: usize = 4096;

/// The slots of the application.
#[derive(Debug)]
pub(super) struct Slots {
    kind: Kind,
    max_wait: Nanos,
    by: Option<String>, // the attribute that identifies a tenant
    work: Work,
    hasher: RandomState,
    estimates: Arc<[AtomicU64]>, // microseconds that requests of a tenant take, rather too many than too few
    usual: AtomicU64,            // microseconds that a request takes
    used: Arc<HotKeys>,          // microseconds for which tenants had slots: their tokens
}

#[derive(Debug)]
enum Kind {
    Fixed(FairSemaphore),
    Adaptive(AdaptiveLimiter),
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// How the slots are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct SlotsView {
    in_use: usize,
    limit: u64,
    waiting: usize,
    is_adaptive: bool,
}

/// For how long tenants had slots.
#[derive(Clone, Debug)]
pub(crate) struct SlotTime {
    /// The attribute that identifies a tenant.
    pub(crate) by: String,
    /// In microseconds.
    pub(crate) tenants: Hottest,
}

/// Who asks for a slot, and what for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) tenant: &'a str,
    pub(super) weight: Weight,
    pub(super) cost: u64,
}

/// There is no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) why: NoSlot,
    /// When there may be one.
    pub(super) retry_after: Duration,
}

impl Slots {
    /// As the policy has it: none where requests are not held back.
    pub(super) fn new(settings: &Settings, has_costs: bool, clock: Clock) -> Option<Arc<Self>> {
        let slots = settings.slots?;
        let mut builder = FairSemaphore::builder(count(slots.max)).max_waiting(MOST_WAITING).clock(clock);
        if let Some(queue) = &settings.fair_queue {
            builder = builder.max_waiting_each(count(queue.per_key));
        }
        let bounds = Bounds::new(slots.min, slots.max).expect("bounds that were checked");
        let kind = match slots.adaptive {
            None => Kind::Fixed(builder.build()),
            Some(adaptive) => {
                // Begin in the middle: what is too much is found out at once, what is too little as well.
                let initial = slots.min.midpoint(slots.max).min(20).max(slots.min);
                Kind::Adaptive(match adaptive {
                    Adaptive::Gradient => {
                        builder.build_adaptive(Windowed::new(Gradient2::new(initial, bounds)))
                    }
                    Adaptive::Vegas => {
                        builder.build_adaptive(Windowed::new(Vegas::new(initial, bounds, seed())))
                    }
                    Adaptive::Aimd => builder.build_adaptive(Windowed::new(
                        Aimd::new(initial, bounds, 900, AIMD_TIMEOUT).expect("a ratio below one"),
                    )),
                })
            }
        };
        Some(Arc::new(Self::with(kind, settings, has_costs)))
    }

    /// As other settings have it. Those who have a slot, or wait for one, count as before, unless another controller is asked for, or
    /// other bounds of one: then there are new slots, beside theirs.
    pub(super) fn following(
        &self,
        before: &Settings,
        settings: &Settings,
        has_costs: bool,
    ) -> Option<Arc<Self>> {
        let slots = settings.slots?;
        let kind = match &self.kind {
            Kind::Fixed(semaphore) if slots.adaptive.is_none() => {
                semaphore.set_slots(count(slots.max));
                Kind::Fixed(semaphore.clone())
            }
            Kind::Adaptive(limiter) if before.slots == Some(slots) => Kind::Adaptive(limiter.clone()),
            _ => return Self::new(settings, has_costs, self.semaphore().clock().clone()),
        };
        let slots = Self::with(kind, settings, has_costs);
        let each = settings.fair_queue.as_ref().map_or(usize::MAX, |queue| count(queue.per_key));
        slots.semaphore().set_max_waiting_each(each);
        Some(Arc::new(Self {
            hasher: self.hasher.clone(),
            estimates: Arc::clone(&self.estimates),
            used: Arc::clone(&self.used),
            usual: AtomicU64::new(self.usual.load(Ordering::Relaxed)),
            ..slots
        }))
    }

    fn with(kind: Kind, settings: &Settings, has_costs: bool) -> Self {
        let queue = settings.fair_queue.as_ref();
        let work = if has_costs { Work::Cost } else { Work::Time };
        Self {
            kind,
            max_wait: Nanos::saturating_from(queue.map_or(FairQueue::MAX_WAIT, |queue| queue.max_wait)),
            by: queue.map(|queue| queue.by.clone()),
            work: queue.and_then(|queue| queue.work).unwrap_or(work),
            hasher: RandomState::new(),
            estimates: (0..ESTIMATES).map(|_| AtomicU64::new(0)).collect(),
            usual: AtomicU64::new(0),
            used: Arc::default(),
        }
    }

    /// The attribute that identifies a tenant.
    pub(super) fn by(&self) -> Option<&str> {
        self.by.as_deref()
    }

    fn semaphore(&self) -> &FairSemaphore {
        match &self.kind {
            Kind::Fixed(semaphore) => semaphore,
            Kind::Adaptive(limiter) => limiter.semaphore(),
        }
    }

    /// Waits for a slot.
    pub(super) async fn take(self: &Arc<Self>, ask: Ask<'_>) -> Result<Taken, Refused> {
        let semaphore = self.semaphore();
        let asked = semaphore.clock().now();
        let place = self.hasher.hash_one(ask.tenant) as usize % ESTIMATES;
        let cost = match self.work {
            Work::Cost => ask.cost,
            Work::Time => self.estimates[place].load(Ordering::Relaxed).max(1),
        };
        let request = semaphore.ask(ask.tenant).weight(ask.weight).cost(cost);
        let slot = request.deadline(asked.after(self.max_wait)).acquire().await;
        let slot = slot.map_err(|why| Refused { why, retry_after: self.retry_after() })?;
        let began = semaphore.clock().now();
        let held = match &self.kind {
            Kind::Fixed(_) => Held::Slot(slot),
            Kind::Adaptive(limiter) => Held::Flight(limiter.begin(slot)),
        };
        Ok(Taken {
            held: Some(held),
            slots: Arc::clone(self),
            // A copy, because the slot is given back when the answer ends, and the request may be gone by then.
            tenant: self.by.is_some().then(|| ask.tenant.into()),
            place,
            cost,
            began,
            waited: began.since(asked),
        })
    }

    /// When those who wait now, or are being served, will have been served, about.
    fn retry_after(&self) -> Duration {
        let (slots, before) = (self.limit().max(1), (self.waiting() + self.in_use()) as u64);
        let micros = before.saturating_mul(self.usual.load(Ordering::Relaxed)) / slots;
        Duration::from_micros(micros).clamp(Duration::from_secs(1), Duration::from_secs(60))
    }

    /// How many there are now.
    pub(super) fn limit(&self) -> u64 {
        match &self.kind {
            Kind::Fixed(semaphore) => semaphore.slots() as u64,
            Kind::Adaptive(limiter) => limiter.limit(),
        }
    }

    pub(super) fn in_use(&self) -> usize {
        self.semaphore().slots_in_use()
    }

    pub(super) fn waiting(&self) -> usize {
        self.semaphore().waiting()
    }

    /// How they are now.
    pub(super) fn view(&self) -> SlotsView {
        SlotsView {
            in_use: self.in_use(),
            limit: self.limit(),
            waiting: self.waiting(),
            is_adaptive: matches!(self.kind, Kind::Adaptive(_)),
        }
    }

    /// The tenants that had slots for the longest time in the last five to ten minutes. None without a fair queue.
    pub(super) fn slot_time(&self, most: usize) -> Option<SlotTime> {
        let now = self.semaphore().clock().now();
        Some(SlotTime { by: self.by.clone()?, tenants: self.used.hottest(HotBy::Tokens, most, now) })
    }

    fn count(&self, tenant: &str, micros: u64, now: Timestamp) {
        let hit = Hit { tokens: micros, is_denied: false, is_newly_denied: false };
        self.used.count(self.hasher.hash_one(tenant), || [tenant].into_iter().collect(), hit, now);
    }

    /// Learns how long a request took.
    fn learn(&self, place: usize, micros: u64) {
        let estimate = &self.estimates[place];
        let before = estimate.load(Ordering::Relaxed);
        // A hundredth less with each, so that what was slow once is forgotten.
        estimate.store(micros.max(before - before.div_ceil(100)), Ordering::Relaxed);
        let usual = self.usual.load(Ordering::Relaxed);
        let usual = if usual == 0 { micros } else { (usual * 31 + micros) / 32 };
        self.usual.store(usual, Ordering::Relaxed);
    }
}

fn seed() -> u64 {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).expect("the system has randomness");
    u64::from_ne_bytes(seed)
}

/// A slot, given back when it is dropped: the work it was is then known.
#[derive(Debug)]
pub(super) struct Taken {
    held: Option<Held>,
    slots: Arc<Slots>,
    tenant: Option<Box<str>>, // None where all requests are one tenant's
    place: usize,
    cost: u64,
    began: Timestamp,
    pub(super) waited: Nanos,
}

#[derive(Debug)]
enum Held {
    Slot(Slot),
    Flight(Flight),
}

impl Taken {
    /// The application has answered, or has been found unable to: from that the number of slots is learnt. The slot is held
    /// on, until the answer has been read.
    pub(super) fn answered(&mut self, is_dropped: bool) {
        self.held = self.held.take().map(|held| match held {
            Held::Slot(slot) => Held::Slot(slot),
            Held::Flight(flight) => Held::Slot(flight.answered(is_dropped)),
        });
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let slots = &self.slots;
        let slot = match self.held.take() {
            Some(Held::Slot(slot)) => slot,
            Some(Held::Flight(flight)) => flight.into_slot(),
            None => return,
        };
        let now = slots.semaphore().clock().now();
        let micros = now.since(self.began).get() / 1000;
        slots.learn(self.place, micros);
        if let Some(tenant) = &self.tenant {
            slots.count(tenant, micros, now);
        }
        slot.finish(match slots.work {
            Work::Cost => self.cost,
            Work::Time => micros.max(1),
        });
    }
}
