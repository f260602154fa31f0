// What is computed from totals: rates of the last seconds, and the requests in each step of the last 15 minutes.
// `tollgate top` computes the same.

/** The seconds over which rates are means. Over a single second, rates and the order of rows would jump. */
export const WINDOW = 5;

/** The most steps: 15 minutes of 5 seconds. */
export const MOST_STEPS = 180;

/** The fewest steps that charts show: a minute. */
export const LEAST_STEPS = 12;

const MOST_SAMPLES = 16;
const COUNTS = ["allowed", "delayed", "denied", "errors", "newly_denied", "tokens"];

/** The counts of a frame. Counts that it does not have are 0. */
export function totalsOf(counts) {
  const totals = {};
  for (const name of COUNTS) totals[name] = counts?.[name] ?? 0;
  return totals;
}

export function requestsOf({ allowed, denied, errors }) {
  return allowed + denied + errors;
}

/** Whether any count is smaller than before, as after a restart of the service. */
export function areSmaller(now, before) {
  return COUNTS.some((name) => now[name] < before[name]);
}

/** The rates of a step, which are shown until two frames are known. Null if nothing was measured. */
export function ratesOf(step, seconds) {
  return step ? Object.fromEntries(COUNTS.map((name) => [name, (step[name] ?? 0) / seconds])) : null;
}

function areEqual(a, b) {
  return COUNTS.every((name) => a[name] === b[name]);
}

/** Totals at the times of the last frames. */
export class Recent {
  constructor(now, totals) {
    this.samples = [{ from: now, until: now, totals }]; // equal totals of successive frames are one sample
  }

  get totals() {
    return this.samples.at(-1).totals;
  }

  /** Adds totals. After a restart of the service, rates begin again. */
  add(now, totals) {
    const last = this.samples.at(-1);
    if (areSmaller(totals, last.totals) || now < last.until) this.samples = [{ from: now, until: now, totals }];
    else if (areEqual(totals, last.totals)) last.until = now;
    else this.samples.push({ from: now, until: now, totals });
    // The sample before the window is where its rates begin.
    while (this.samples.length > MOST_SAMPLES || (this.samples.length > 1 && this.samples[1].from <= now - WINDOW)) {
      this.samples.shift();
    }
  }

  /** Notes that the totals were the same until a time. */
  lasted(until) {
    const last = this.samples.at(-1);
    last.until = Math.max(last.until, until);
  }

  /** The means of the window that ends now. Null when there was only one frame. */
  rates(now) {
    const begin = now - WINDOW;
    // Frames are not exactly a second apart.
    const base = this.samples.findLast(({ from }) => from <= begin + 0.5) ?? this.samples[0];
    const span = now - Math.min(Math.max(begin, base.from), base.until);
    if (span < 0.5) return null;
    const rates = {};
    for (const name of COUNTS) rates[name] = Math.max(0, this.totals[name] - base.totals[name]) / span;
    return rates;
  }
}

/** What happened in each of the last steps, the oldest first. Null is a step in which nothing was measured. */
export class Steps {
  constructor(steps, totals) {
    this.all = (steps ?? []).slice(-MOST_STEPS);
    this.base = totals; // at the end of the last step
  }

  /** Ends a step. `missed` is the number of steps before it in which nothing was measured. */
  end(missed, now, more) {
    const step = { ...more };
    for (const name of COUNTS) step[name] = Math.max(0, now[name] - this.base[name]);
    this.base = now;
    for (let gap = 0; gap < Math.min(missed, MOST_STEPS); gap += 1) this.all.push(null);
    this.all.push(step);
    if (this.all.length > MOST_STEPS) this.all.splice(0, this.all.length - MOST_STEPS);
  }

  /** Whether nothing is to be kept: no step is known, and nothing has happened. */
  isUnused(now) {
    return this.all.length === 0 && areEqual(this.base, now);
  }
}
