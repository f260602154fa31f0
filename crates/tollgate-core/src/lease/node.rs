//! What one node holds of one key.

use super::demand::Demand;
use super::{Draw, Grant, Mark, Terms};
use crate::{Nanos, Retry, Timestamp};

/// The most grants that a node holds of one key, with the one that it draws: one that is spent, and one that comes after it.
const MOST_GRANTS: usize = 2;

/// What one node holds of one key, and what it does next.
///
/// It does no I/O and reads no clock. The caller asks [`take`](Self::take) for each request, sends what
/// [`next_step`](Self::next_step) returns, and says how that went. `now` is a clock of the node that never steps back and counts
/// the time in which the machine was suspended.
///
/// ```
/// use tollgate_core::lease::{Lease, Step, Take};
/// use tollgate_core::{Nanos, Rate, Rule, State, Timestamp, TokenBucket};
///
/// let rule = Rule::from(TokenBucket::new(Rate::per_second(1000)?, 1000)?);
/// let mut lease = Lease::new(rule.lease_terms(Nanos::new(100_000_000)).unwrap());
/// let (mut store, at) = (State::default(), |us: u64| Timestamp::from_nanos(us * 1000));
/// // The first requests come one by one, so the store decides them.
/// assert_eq!(lease.take(1, at(0)), Take::Exact);
/// // Then they come so often that the node draws a grant.
/// while lease.take(1, at(500)) == Take::Exact {}
/// let Some(Step::Draw { id, draw }) = lease.next_step(at(500)) else { panic!("no draw") };
/// let grant = rule.grant(&mut store, &draw, at(800));
/// assert!(lease.accept_grant(id, &grant, at(800), at(1000)));
/// assert!(matches!(lease.take(1, at(1000)), Take::Taken(_)));
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    terms: Terms,
    demand: Demand,
    held: Vec<HeldGrant>, // oldest first, at most `MOST_GRANTS`; one that is spent stays until its place is needed
    in_flight: Option<DrawId>,
    given_up: Vec<DrawId>, // the newest that may still be answered, at most `MOST_GRANTS`
    draws: u64,            // sent so far
    answered: u64,         // the number of the newest draw that was answered
    waiting_cost: u64,     // the highest cost that waits for a draw
    denied: Option<(Timestamp, u64)>, // until when the store has nothing, for costs from this on
    scarce_until: Option<Timestamp>, // until when the store has too little for a grant that no request waits for
    round_trip: Nanos,
    last_start: Nanos, // of the newest grant
    primary: u64,      // counts the changes of the primary
    mark: Option<Mark>,
    has_to_present: bool, // the primary may not know the mark
    owed: u64,
    lapsed: u64, // units that were granted and can no longer be spent or returned, since `take_lapsed`
    is_closed: bool,
}

/// A grant that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct HeldGrant {
    id: GrantId,
    units: u64, // left
    most: u64,  // that were granted
    from: Timestamp,
    until: Timestamp,
    give_back_at: Option<Timestamp>, // when what is left goes back to the store
    charged: Timestamp,              // or dated, by the clock of the store
    primary: u64,
}

/// Names a draw, and knows when it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DrawId {
    number: u64,
    cost: u64,       // that waits for it
    owed: u64,       // that it has the store charge
    is_single: bool, // it asks for one cost, and for no more
    sent: Timestamp,
    primary: u64,
}

/// Names a grant of one [`Lease`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GrantId(pub(super) u64);

impl GrantId {
    /// No other grant of the same [`Lease`] has this number.
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// The result of [`Lease::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a denied request must not go ahead"]
pub enum Take {
    /// It passes. Its cost was taken from this grant.
    Taken(GrantId),
    /// It is denied. Units for it come after this time.
    Denied(Nanos),
    /// It has to wait for a draw: for the one in flight, or for the one that [`Lease::next_step`] returns now.
    Wait,
    /// The store has to decide it: requests for this key are too rare for a grant, or no grant has enough units for its cost.
    Exact,
}

/// What a node sends to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A draw. [`Lease::accept_grant`] takes its answer.
    Draw {
        /// To be given back with the answer.
        id: DrawId,
        /// The draw.
        draw: Draw,
    },
    /// Units that are not needed. There is no answer.
    Return {
        /// The grant that they are from.
        id: GrantId,
        /// How many.
        units: u64,
        /// When they were charged, by the clock of the store. For a dated grant, this is its date.
        charged: Timestamp,
    },
}

impl Lease {
    /// Holds nothing yet.
    pub const fn new(terms: Terms) -> Self {
        Self {
            terms,
            demand: Demand::NONE,
            held: Vec::new(),
            in_flight: None,
            given_up: Vec::new(),
            draws: 0,
            answered: 0,
            waiting_cost: 0,
            denied: None,
            scarce_until: None,
            round_trip: Nanos::ZERO,
            last_start: Nanos::ZERO,
            primary: 0,
            mark: None,
            has_to_present: false,
            owed: 0,
            lapsed: 0,
            is_closed: false,
        }
    }

    /// Holds nothing yet, and knows how many units requests ask for per second.
    pub fn with_demand(terms: Terms, per_second: u64, now: Timestamp) -> Self {
        Self { demand: Demand::of(per_second, now), ..Self::new(terms) }
    }

    /// The terms that the grants are drawn on.
    pub const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The units that are held, whether they may be spent yet or not.
    pub fn units(&self) -> u64 {
        self.held.iter().map(|grant| grant.units).sum()
    }

    /// The units that may be spent now.
    pub fn units_now(&self, now: Timestamp) -> u64 {
        let now = self.held.iter().filter(|grant| grant.from <= now && now < grant.until);
        now.map(|grant| grant.units).sum()
    }

    /// The units that have lapsed since the last call: they were granted, and were neither spent nor returned in time.
    pub fn take_lapsed(&mut self) -> u64 {
        std::mem::take(&mut self.lapsed)
    }

    /// Whether nothing would be lost with it: it holds nothing, waits for nothing, owes nothing, and requests are rare.
    pub fn is_idle(&self, now: Timestamp) -> bool {
        let is_held = |grant: &HeldGrant| grant.units > 0 && now < grant.until;
        // A closed lease has no more draws that could charge what it owes.
        let owes = self.owed > 0 && !self.is_closed;
        self.in_flight.is_none() && !owes && self.is_rare(now) && !self.held.iter().any(is_held)
    }

    /// When units have to be returned, if requests do not spend them. [`next_step`](Self::next_step) then returns them.
    pub fn next_return(&self) -> Option<Timestamp> {
        let unspent = self.held.iter().filter(|grant| grant.units > 0);
        unspent.filter_map(|grant| grant.give_back_at).min()
    }

    /// Whether a draw was sent that has neither been answered nor given up.
    pub const fn has_draw_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Takes the cost of a request from one grant.
    pub fn take(&mut self, cost: u64, now: Timestamp) -> Take {
        self.demand.arrive(cost, now);
        self.take_again(cost, now)
    }

    /// [`take`](Self::take) of a request that has waited, and has been counted before.
    pub fn take_again(&mut self, cost: u64, now: Timestamp) -> Take {
        self.drop_ended(now);
        let mut enough = self.held.iter_mut().filter(|grant| now < grant.until && grant.units >= cost);
        if let Some(grant) = enough.find(|grant| grant.from <= now) {
            grant.units -= cost;
            return Take::Taken(grant.id);
        }
        if let Some((until, from_cost)) = self.denied
            && now < until
            && cost >= from_cost
        {
            return Take::Denied(until.since(now));
        }
        // A late answer may have left a grant whose date comes after its life.
        let later = self
            .held
            .iter()
            .filter(|grant| now < grant.from && grant.from < grant.until && grant.units >= cost);
        if let Some(from) = later.map(|grant| grant.from).min() {
            return Take::Denied(from.since(now));
        }
        if self.in_flight.is_none() && (!self.can_draw(now) || self.is_rare(now)) {
            return Take::Exact;
        }
        self.waiting_cost = self.waiting_cost.max(cost);
        Take::Wait
    }

    /// Puts units back into the grant they were taken from. Returns how many: none if the grant is gone, and fewer if the node
    /// would hold more than it may.
    pub fn put_back(&mut self, id: GrantId, cost: u64) -> u64 {
        let (units, most_held) = (self.units(), self.terms.most_held());
        let Some(grant) = self.held.iter_mut().find(|grant| grant.id == id) else { return 0 };
        // A grant for a high cost may be larger than that.
        let room = most_held.max(grant.most).saturating_sub(units);
        let given = cost.min(grant.most - grant.units).min(room);
        grant.units += given;
        given
    }

    /// What to send to the store now, if anything. It counts as sent.
    pub fn next_step(&mut self, now: Timestamp) -> Option<Step> {
        self.drop_ended(now);
        if let Some(step) = self.give_back(now) {
            return Some(step);
        }
        let is_denied =
            self.denied.is_some_and(|(until, cost)| now < until && self.waiting_cost.max(1) >= cost);
        let is_scarce = self.scarce_until.is_some_and(|until| now < until);
        let is_short = !self.is_rare(now) && !is_scarce && self.lasts(now) <= self.reach();
        let needs_draw = self.can_draw(now) && !is_denied && (self.waiting_cost > 0 || is_short);
        if !needs_draw {
            return None;
        }
        let cost = std::mem::take(&mut self.waiting_cost);
        let demand = self.demand.per_second(now).max(1);
        Some(self.draw(Draw { sync: self.terms.sync(), demand, ..Draw::of_cost(cost) }, now))
    }

    /// A draw of exactly one cost, for a request that [`take`](Self::take) has left to the store. It counts as sent. If there is no
    /// room for its grant, another grant goes back first: call it again after each return.
    ///
    /// Returns nothing while another draw is in flight.
    pub fn draw_single(&mut self, cost: u64, now: Timestamp) -> Option<Step> {
        if self.in_flight.is_some() || self.is_closed {
            return None;
        }
        if !self.has_place()
            && let Some(smallest) = self.held.iter_mut().min_by_key(|grant| (grant.units == 0, grant.units))
        {
            smallest.give_back_at = Some(now);
        }
        if let Some(step) = self.give_back(now) {
            return Some(step);
        }
        Some(self.draw(Draw::of_cost(cost), now))
    }

    /// Sends a draw.
    fn draw(&mut self, draw: Draw, now: Timestamp) -> Step {
        self.draws += 1;
        let (cost, owed, is_single) = (draw.cost, self.owed, draw.demand == 0);
        let id = DrawId { number: self.draws, cost, owed, is_single, sent: now, primary: self.primary };
        self.in_flight = Some(id);
        let mark = if self.has_to_present { self.mark } else { None };
        Step::Draw { id, draw: Draw { owed, mark, ..draw } }
    }

    /// Takes the answer to a draw, which the store charged at `charged` by its own clock. Requests that wait should ask again. Returns
    /// whether units were added. None are added if the answer comes too late or for a second time: then its units are lost.
    pub fn accept_grant(&mut self, id: DrawId, grant: &Grant, charged: Timestamp, now: Timestamp) -> bool {
        if id.number <= self.answered || id.primary != self.primary {
            self.lapsed += if id.number > self.answered { grant.units } else { 0 };
            return false;
        }
        self.answered = id.number;
        self.given_up.retain(|draw| draw.number > id.number);
        self.end_draw(id);
        (self.mark, self.has_to_present) = (Some(grant.mark), false);
        self.owed = self.owed.saturating_sub(id.owed);
        self.note_round_trip(now.since(id.sent));
        self.denied = match grant.retry {
            Some(Retry::After(wait)) => Some((now.after(wait), id.cost.max(1))),
            _ => None,
        };
        // Another draw would get nothing either, unless it is for the cost of a request.
        if grant.units == 0 && grant.retry.is_none() && !id.is_single {
            self.scarce_until = Some(now.after(self.terms.sync()));
        } else if grant.units > id.cost {
            self.scarce_until = None;
        }
        let Grant { units, start, end, .. } = *grant;
        let life_ends = id.sent.after(start).after(self.terms.life());
        let until = end.map_or(life_ends, |end| id.sent.after(end).min(life_ends));
        if units == 0 || now >= until || !self.has_place() || self.is_closed {
            self.lapsed += units;
            return false;
        }
        if self.held.len() == MOST_GRANTS {
            self.held.retain(|grant| grant.units > 0);
        }
        self.last_start = start;
        // A return counts only before the life ends, by the clock of the store. The life of a dated grant begins with its date: a node
        // that returned it a life after the draw would return units that it could not spend yet.
        let margin = Nanos::new(2 * self.round_trip.get());
        let give_back_at = (!start.is_zero() || id.is_single)
            .then(|| Timestamp::from_nanos(life_ends.as_nanos().saturating_sub(margin.get())));
        // Requests that have read the clock before the answer came may spend it, too.
        let received = if start.is_zero() { Timestamp::from_nanos(0) } else { now };
        let from = received.after(start);
        self.held.push(HeldGrant {
            id: GrantId(id.number),
            units,
            most: units,
            from,
            until,
            give_back_at,
            charged: charged.after(start),
            primary: self.primary,
        });
        true
    }

    /// Says that no answer to a draw came in time. The store may have charged it or not. Requests that wait should ask again.
    ///
    /// The answer still counts if it comes while the grant lives. Until then the draw counts as a held grant, so that the node
    /// holds no more than [`Terms::most_held`].
    pub fn give_up_draw(&mut self, id: DrawId) {
        if self.in_flight == Some(id) && (id.cost > 0 || !id.is_single) {
            self.given_up.truncate(MOST_GRANTS - 1);
            self.given_up.insert(0, id);
        }
        self.end_draw(id);
    }

    /// Says that a draw could not be sent, so that no answer can come. Requests that wait should ask again.
    pub fn cancel_draw(&mut self, id: DrawId) {
        self.end_draw(id);
    }

    /// Says that another server answers from now on, which may have forgotten some writes. A draw in flight is lost: requests that
    /// wait should ask again.
    pub fn change_primary(&mut self) {
        self.primary += 1;
        (self.in_flight, self.waiting_cost) = (None, 0);
        self.given_up.clear();
        self.has_to_present = self.mark.is_some();
        self.held.iter_mut().for_each(|grant| grant.give_back_at = None);
    }

    /// Goes by other numbers. Grants of the old ones are no longer spent.
    pub fn change_terms(&mut self, terms: Terms) {
        let lapsed = self.lapsed + self.units();
        let Self { demand, draws, primary, owed, .. } = self;
        *self = Self {
            lapsed,
            demand: *demand,
            draws: *draws,
            answered: *draws,
            primary: *primary,
            owed: *owed,
            ..Self::new(terms)
        };
    }

    /// Notes units that were spent while the store gave no answer. The next draw has the store charge them.
    pub const fn owe(&mut self, units: u64) {
        self.owed = self.owed.saturating_add(units);
    }

    /// Whether units that [`owe`](Self::owe) noted are still to be charged.
    pub const fn owes(&self) -> bool {
        self.owed > 0
    }

    /// Draws no more. [`next_step`](Self::next_step) then returns what is left to the store.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Forgets grants whose life has ended, except if they can still be returned.
    pub fn drop_ended(&mut self, now: Timestamp) {
        let lapsed = &mut self.lapsed;
        self.held.retain(|grant| {
            let stays = now < grant.until || grant.give_back_at.is_some();
            *lapsed += if stays { 0 } else { grant.units };
            stays
        });
    }

    /// Ends a draw. Requests that wait ask again, and then say what they cost.
    fn end_draw(&mut self, id: DrawId) {
        if self.in_flight == Some(id) {
            (self.in_flight, self.waiting_cost) = (None, 0);
        }
    }

    /// Whether a draw may be sent. If a grant is held that may be spent later, its units are enough until then.
    fn can_draw(&self, now: Timestamp) -> bool {
        self.in_flight.is_none()
            && !self.is_closed
            && self.places() + self.may_be_answered(now) < MOST_GRANTS
            && self.held.iter().all(|grant| grant.from <= now)
    }

    /// The draws that were given up, and whose grants could still be spent.
    fn may_be_answered(&self, now: Timestamp) -> usize {
        self.given_up.iter().filter(|draw| now < draw.sent.after(self.terms.life())).count()
    }

    /// Whether another grant may be held.
    fn has_place(&self) -> bool {
        self.places() < MOST_GRANTS
    }

    /// The grants that are held and not spent.
    fn places(&self) -> usize {
        self.held.iter().filter(|grant| grant.units > 0).count()
    }

    /// Whether so few requests come that a draw would be of no use before the next.
    fn is_rare(&self, now: Timestamp) -> bool {
        u128::from(self.demand.per_second(now)) * u128::from(self.terms.sync().get()) < 2_000_000_000
    }

    /// How long what is held lasts at the present demand.
    fn lasts(&self, now: Timestamp) -> Nanos {
        let per_second = self.demand.per_second(now);
        let end = self.held.iter().fold(now, |end, grant| {
            end.max(grant.from).after(Demand::lasting(grant.units, per_second)).min(grant.until.max(end))
        });
        end.since(now)
    }

    /// A draw is sent when what is held lasts no longer than this.
    fn reach(&self) -> Nanos {
        Nanos::new(self.last_start.get().saturating_add(3 * self.round_trip.get()))
    }

    fn note_round_trip(&mut self, found: Nanos) {
        let known = self.round_trip.get();
        self.round_trip = if known == 0 { found } else { Nanos::new(known - known / 4 + found.get() / 4) };
    }

    /// Gives one grant back that is no longer needed.
    fn give_back(&mut self, now: Timestamp) -> Option<Step> {
        let is_over = |grant: &HeldGrant| self.is_closed || grant.give_back_at.is_some_and(|at| now >= at);
        while let Some(place) = self.held.iter().position(is_over) {
            let HeldGrant { id, units, charged, primary, .. } = self.held.remove(place);
            if units > 0 && primary == self.primary {
                return Some(Step::Return { id, units, charged });
            }
            self.lapsed += units;
        }
        None
    }
}
