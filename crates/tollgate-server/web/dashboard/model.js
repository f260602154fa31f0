// What is known of the service: made from the frames of its event stream, without a clock of its own.

import { LEAST_STEPS, MOST_STEPS, Recent, Steps, areSmaller, ratesOf, totalsOf } from "./series.js";

const NO_RATES = totalsOf({});
const MOST_HISTORIES = 1000;
const MOST_EVENTS = 50;

/** A tick has at most this many limits. A full tick may leave out others: a later tick has their counts. */
const FULL_TICK = 200;

export class Model {
  constructor() {
    this.hasStarted = false;
    this.limits = [];
    this.byName = new Map();
    this.events = [];
    this.restarts = []; // as events. The service does not know of them
    this.gauges = []; // of each step: slots, waits and the rate multiplier. The service keeps no history of them
  }

  /** Adds a frame. Returns whether a step has ended, so that charts have something new. */
  follow(event, frame) {
    if (event === "start") {
      this.#start(frame);
      return true;
    }
    return event === "tick" && this.hasStarted ? this.#tick(frame) : false;
  }

  limit(name) {
    return this.byName.get(name);
  }

  /** The times at which the last `count` steps ended. */
  stepTimes(count) {
    return Array.from({ length: count }, (_, i) => this.stepEnded - (count - 1 - i) * this.step);
  }

  #start(frame) {
    const totals = totalsOf(frame.requests);
    // After a restart of the service, rates and histories begin again.
    const started = frame.started ?? null; // older services do not have it
    const goesOn = this.hasStarted && frame.instance === this.instance && started === this.started && !areSmaller(totals, this.requests.totals);
    const before = goesOn ? this.byName : new Map();
    if (!goesOn) this.gauges = [];
    if (this.hasStarted && !goesOn) this.#noteRestart(frame);
    if (goesOn && frame.now - this.stepEnded > 2 * this.step) this.gauges.push({ at: frame.now - this.step, isGap: true });
    this.hasStarted = true;
    this.instance = frame.instance;
    this.started = started;
    this.version = frame.version;
    this.hasClearNames = frame.key_names === "clear";
    this.step = frame.step >= 1 ? frame.step : 5;
    this.tiers = frame.policy.tiers;
    this.defaultTier = frame.policy.default_tier;
    this.requests = goesOn ? this.requests : new Recent(frame.now, totals);
    this.history = new Steps(frame.history, totals);
    this.now = frame.now;
    this.stepEnded = frame.now;
    this.knownUntil = frame.now;
    this.active = new Set();
    this.events = [];
    this.slotTime = null;
    const counts = new Map(frame.limits.map((limit) => [limit.name, limit]));
    const histories = new Map(Object.entries(frame.histories));
    this.limits = frame.policy.limits.map((policy, number) => {
      const of = totalsOf(counts.get(policy.name));
      const recent = before.get(policy.name)?.recent ?? new Recent(frame.now, of);
      const steps = histories.get(policy.name);
      return {
        name: policy.name, number, policy, tierCount: Object.keys(policy.tiers).length > 0 ? Object.keys(this.tiers).length : 0, recent, rates: ratesOf(steps?.at(-1), this.step) ?? NO_RATES,
        history: new Steps(steps, of), hot: before.get(policy.name)?.hot ?? {},
        remainingP50: null, remainingP95: null,
      };
    });
    this.byName = new Map(this.limits.map((limit) => [limit.name, limit]));
    this.#add(frame);
  }

  #noteRestart({ now, instance, history, started }) {
    const text = instance === this.instance ? "The service was started again; history begins here" : `The instance ${instance} answers instead of ${this.instance}; the history is its own`;
    const at = started ?? Math.max(this.now, now - Math.max(0, (history?.length ?? 0) - 1) * this.step); // the first step begins empty
    this.restarts = [...this.restarts, { at, kind: "service", text }].slice(-MOST_EVENTS);
  }

  #tick(frame) {
    this.#add(frame);
    return this.#endStep();
  }

  #add(frame) {
    const { now } = frame;
    this.requests.add(now, totalsOf(frame.requests));
    this.rates = this.requests.rates(now) ?? ratesOf(this.history.all.at(-1), this.step);
    for (const counts of frame.limits) {
      const limit = this.byName.get(counts.name);
      if (!limit) continue; // `start` with its policy follows
      limit.recent.lasted(Math.min(this.knownUntil, this.now));
      limit.recent.add(now, totalsOf(counts));
      limit.remainingP50 = counts.remaining_p50;
      limit.remainingP95 = counts.remaining_p95;
      this.active.add(limit);
    }
    if (frame.limits.length < FULL_TICK) this.knownUntil = now;
    // The rates of all other limits are 0 and stay 0.
    for (const limit of this.active) {
      if (this.knownUntil === now) limit.recent.lasted(now);
      limit.rates = limit.recent.rates(now) ?? limit.rates;
      if (limit.rates.allowed + limit.rates.denied === 0) this.active.delete(limit);
    }
    for (const [name, lists] of Object.entries(frame.hot ?? {})) {
      const limit = this.byName.get(name);
      if (limit) limit.hot = lists;
    }
    const known = this.events.at(-1)?.number ?? -1; // `start` may have an event that a tick has too
    this.events = [...this.events, ...frame.events.filter(({ number }) => number > known)].slice(-MOST_EVENTS);
    this.slotTime = frame.slot_time ?? this.slotTime;
    for (const name of ["now", "decision", "delay", "keys", "bytes", "evictions", "refused", "multiplier", "sources", "store", "gateway", "recording"]) {
      this[name] = frame[name];
    }
    this.maxBytes = frame.max_bytes;
    this.sentRules = frame.sent_rules;
  }

  /** Ends the step of all histories when it is over. */
  #endStep() {
    const steps = Math.floor((this.now - this.stepEnded) / this.step);
    if (steps < 0) this.stepEnded = this.now; // the clock was set back
    if (steps < 1) return false;
    this.stepEnded += steps * this.step;
    this.history.end(steps - 1, this.requests.totals, { p50: this.decision?.p50, p99: this.decision?.p99 });
    let kept = this.limits.filter(({ history }) => history.all.length > 0).length;
    for (const limit of this.limits) {
      const { history, recent, remainingP50, remainingP95 } = limit;
      if (history.all.length === 0) {
        if (history.isUnused(recent.totals) || kept >= MOST_HISTORIES) continue;
        kept += 1;
      }
      const isUsed = recent.totals.allowed + recent.totals.denied > history.base.allowed + history.base.denied;
      history.end(steps - 1, recent.totals, {
        remaining_p50: isUsed ? remainingP50 : null, remaining_p95: isUsed ? remainingP95 : null,
      });
    }
    this.gauges.push({ at: this.stepEnded, gateway: this.gateway, multiplier: this.multiplier });
    this.gauges = this.gauges.slice(-MOST_STEPS);
    return true;
  }

  /** Whether any request has come since the service started. */
  get isUsed() {
    const { allowed, denied, errors } = this.requests.totals;
    return allowed + denied + errors + this.sentRules.allowed + this.sentRules.denied > 0;
  }

  get hasRestarted() {
    return this.restarts.length > 0;
  }

  /** Seconds since the service started. Null if it does not say when. */
  get age() {
    return this.started === null ? null : this.now - this.started;
  }

  /** Whether the first step of the service is not over. */
  get isMeasuring() {
    return this.age === null ? this.history.all.length <= 1 : this.age >= 0 && this.age < this.step;
  }

  /** The steps that charts show. Their time begins with the history while it is younger than 15 minutes. */
  get shownSteps() {
    return Math.min(Math.max(this.history.all.length, LEAST_STEPS), MOST_STEPS);
  }
}
