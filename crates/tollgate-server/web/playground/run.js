// The answer of the service, with functions that look up a moment. A curve is straight between two points.

/** The number of values that are at most `limit`, in a sorted column. */
export function upTo(column, limit) {
  let [low, high] = [0, column.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] <= limit) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** One rule of a run. */
export class RuleRun {
  constructor(reply, lane, run) {
    Object.assign(this, reply);
    this.lane = lane;
    this.run = run;
    // With a state per client there is no limit for all clients together.
    const perWindow = reply.by === "client" && run.clients.length > 1 ? null : reply.rate * reply.window_for_most;
    const hasBurst = reply.algorithm === "token_bucket" || reply.algorithm === "burst_credits";
    // A bucket passes its burst on top of its rate, so that its rate is no limit of a window.
    this.limit = hasBurst ? null : perWindow;
    this.rateLine = hasBurst ? perWindow : null;
    const { allowed, delay } = reply.decisions;
    this.never = new Set(reply.decisions.never);
    this.outcomes = allowed.map((isAllowed, number) => (!isAllowed ? "denied" : delay[number] > 0 ? "delayed" : "allowed"));
    this.tallies = { allowed: prefix(allowed, Boolean), delayed: prefix(delay, (time) => time > 0) };
    let most = 0;
    this.mostSoFar = reply.received.y.map((sum) => (most = Math.max(most, sum)));
  }

  /** How the first arrivals went. */
  tally(count) {
    const allowed = this.tallies.allowed[count];
    return { allowed, delayed: this.tallies.delayed[count], denied: count - allowed };
  }

  /** The most that the backend received in a window up to a moment. */
  mostUpTo(time) {
    return this.mostSoFar[Math.max(0, upTo(this.received.t, time) - 1)];
  }

  isOfWatched(number) {
    return this.by === "global" || this.run.arrivals.client[number] === this.run.watched;
  }

  /** What the mechanism holds at a moment. If the decision `selected` is of that moment, just after it. */
  level(time, selected) {
    const { t, y, y2 } = this.curve;
    let after = Math.max(0, upTo(t, time) - 1);
    if (selected !== null && this.run.arrivals.at[selected] === time && this.isOfWatched(selected)) {
      let point = after;
      while (t[point] === time && y[point] !== this.decisions.after[selected]) point -= 1;
      if (t[point] === time) after = point;
    }
    const next = Math.min(after + 1, t.length - 1);
    const part = t[next] > t[after] && time > t[after] ? (time - t[after]) / (t[next] - t[after]) : 0;
    const between = (column) => column[after] + (column[next] - column[after]) * part;
    const counter = this.counter && {
      old: this.counter.old[after], full: this.counter.full[after], weight: between(this.counter.weight),
    };
    return { value: between(y), second: y2 ? between(y2) : null, counter };
  }

  /** The window or sub-window around a moment, or null. */
  edgesAround(time) {
    if (!this.edges) return null;
    const next = upTo(this.edges, time);
    const width = this.window / (this.counter && this.edges.length > 1 ? Math.round(this.window / (this.edges[1] - this.edges[0])) : 1);
    if (next === 0) return [this.edges[0] - width, this.edges[0]];
    return [this.edges[next - 1], this.edges[next] ?? this.edges[next - 1] + width];
  }

  /** The numbers of allowed arrivals of the drawn state whose time is in `(from, to]`. */
  allowedBetween(from, to, selected) {
    const { at, cost } = this.run.arrivals;
    const last = selected !== null && at[selected] === to ? selected + 1 : upTo(at, to);
    const numbers = [];
    for (let number = upTo(at, from); number < last; number += 1) {
      if (this.decisions.allowed[number] && cost[number] > 0 && this.isOfWatched(number)) numbers.push(number);
    }
    return numbers;
  }
}

function prefix(column, isCounted) {
  const sums = new Uint32Array(column.length + 1);
  column.forEach((value, number) => (sums[number + 1] = sums[number] + (isCounted(value) ? 1 : 0)));
  return sums;
}

/** A reply. `lanes` are those of the set-up that were sent, in their order. */
export class Run {
  constructor(reply, lanes, watch) {
    Object.assign(this, reply);
    this.count = reply.arrivals.at.length;
    this.watched = watch === null ? mostFrequent(reply) : reply.clients.indexOf(watch);
    this.rules = reply.rules.map((rule, place) => new RuleRun(rule, lanes[place], this));
  }

  /** Takes over the sentences of a reply, which begin with those of arrival `from`. */
  setSentences({ rules }, from) {
    this.sentences = { from, rules: rules.map(({ sentences }) => sentences) };
  }

  /** How many arrivals there were up to a moment. */
  countUpTo(time) {
    return upTo(this.arrivals.at, time);
  }

  /** Whether the rules decided an arrival differently. */
  isDisputed(number) {
    const [first, ...others] = this.rules;
    return others.some((rule) => rule.decisions.allowed[number] !== first?.decisions.allowed[number]);
  }

  /** The next disputed arrival from one on, in a direction, or null. */
  disputed(from, direction) {
    for (let number = from; number >= 0 && number < this.count; number += direction) {
      if (this.isDisputed(number)) return number;
    }
    return null;
  }

  /** The sentence for a decision of a rule, or null if the page has not asked for it yet. */
  sentence(place, number) {
    return this.sentences.rules[place]?.[number - this.sentences.from] ?? null;
  }

  client(number) {
    return this.clients[this.arrivals.client[number]] ?? "";
  }
}

/** The client whose state the service draws by default. */
function mostFrequent({ clients, arrivals }) {
  const counts = clients.map(() => 0);
  for (const client of arrivals.client) counts[client] += 1;
  return Math.max(0, counts.indexOf(Math.max(...counts, 0)));
}
