// The set-up of a run: the lanes with their numbers, and where the arrivals come from. Data only, nothing here decides.

/** The algorithms that a lane can show. `rule` turns the numbers of the sliders into those of a policy file. */
export const KINDS = {
  token_bucket: { title: "Token bucket", algorithm: "token_bucket", rule: (n) => ({ rate: rateText(n), burst: n.burst }) },
  gcra: { title: "GCRA", algorithm: "token_bucket", view: "gcra", rule: (n) => ({ rate: rateText(n), burst: n.burst }) },
  leaky_bucket: { title: "Leaky queue", algorithm: "leaky_bucket", rule: (n) => ({ rate: rateText(n), queue: n.burst }) },
  fixed_window: { title: "Fixed window", algorithm: "fixed_window", rule: windowed },
  sliding_log: { title: "Sliding log", algorithm: "sliding_log", rule: windowed },
  sliding_counter: { title: "Sliding counter", algorithm: "sliding_counter", rule: windowed },
  sliding_counter_strict: {
    title: "Strict counter", algorithm: "sliding_counter",
    rule: (n) => ({ ...windowed(n), buckets: 10, mode: "strict" }),
  },
  burst_credits: {
    title: "Burst credits", algorithm: "burst_credits",
    rule: (n) => ({ rate: rateText(n), peak: "2x", credits: 3 * n.burst }),
  },
};

export const MOST_ARRIVALS = 10_000;
export const MOST_LANES = 12;

function windowed(numbers) {
  return { limit: numbers.rate, window: timeText(numbers.window) };
}

const PERIODS = { 1: "s", 60: "min", 3600: "h", 86_400: "day" };

/** `10/5s`, `3/s`, `100/min`. */
function rateText({ rate, window }) {
  return `${rate}/${PERIODS[window] ?? timeText(window)}`;
}

/** `5s`, `500ms`. */
function timeText(seconds) {
  return Number.isInteger(seconds) ? `${seconds}s` : `${Math.round(seconds * 1e6) / 1e3}ms`;
}

/** The seconds of a time such as `5s`, `500ms`, `min` of a ready-made story. */
function secondsOf(text) {
  const [, amount, unit] = /^([\d.]*)\s*(ms|s|min|h|day)$/.exec(text) ?? [];
  const units = { ms: 0.001, s: 1, min: 60, h: 3600, day: 86_400 };
  return (amount === "" ? 1 : Number(amount)) * units[unit];
}

/** The lane that a rule of a story asks for, with numbers as the sliders have them. */
function laneOf(rule) {
  const algorithm = Object.keys(rule).find((key) => Object.values(KINDS).some((kind) => kind.algorithm === key));
  const numbers = rule[algorithm];
  const kind = rule.view === "gcra" ? "gcra"
    : numbers.mode === "strict" ? "sliding_counter_strict"
    : algorithm;
  const [amount, period] = numbers.rate ? numbers.rate.split("/") : [numbers.limit, numbers.window];
  const own = { rate: Number(amount), window: secondsOf(period), burst: numbers.burst ?? numbers.queue ?? null };
  return { kind, on: true, by: rule.by ?? "global", name: rule.name ?? null, own };
}

/** The set-up of a story: its own lanes in their order, then the other algorithms, which are off. */
export function setupOfStory(story) {
  const lanes = story.request.rules.map(laneOf);
  const withBurst = lanes.find(({ own }) => own.burst !== null)?.own;
  const numbers = { ...lanes[0].own, burst: withBurst?.burst ?? lanes[0].own.rate };
  for (const lane of lanes) {
    const { rate, window, burst } = lane.own;
    const isShared = rate === numbers.rate && window === numbers.window && (burst ?? numbers.burst) === numbers.burst;
    lane.own = isShared ? null : { rate, window, burst: burst ?? numbers.burst };
  }
  return { lanes: withAllKinds(lanes), numbers, cost: 1, watch: null, source: { story: story.name } };
}

/** Some lanes, then the algorithms that they lack, which are off. */
export function withAllKinds(lanes) {
  const missing = Object.keys(KINDS).filter((kind) => !lanes.some((lane) => lane.kind === kind));
  const by = lanes.every((lane) => lane.by === "client") ? "client" : "global";
  return [...lanes, ...missing.map((kind) => ({ kind, on: false, by, name: null, own: null }))];
}

export function numbersOf(setup, lane) {
  return lane.own ?? setup.numbers;
}

export function titleOf(lane) {
  return lane.name ? lane.name[0].toUpperCase() + lane.name.slice(1) : KINDS[lane.kind].title;
}

function ruleOf(setup, lane) {
  const { algorithm, view, rule } = KINDS[lane.kind];
  const request = { [algorithm]: rule(numbersOf(setup, lane)), by: lane.by };
  if (view) request.view = view;
  if (lane.name) request.name = lane.name;
  return request;
}

/** The lanes that take part, with their place among all lanes. */
export function activeLanes(setup) {
  return setup.lanes.map((lane, place) => ({ ...lane, place })).filter(({ on }) => on);
}

/** The body of `POST /v1/playground`, without sentences. */
export function requestOf(setup, traffic) {
  const rules = activeLanes(setup).map((lane) => ruleOf(setup, lane));
  if (setup.source.scenario && setup.cost === 1) return { rules, scenario: setup.source.scenario };
  const arrivals = traffic.at.map((at, number) => {
    const arrival = { at, cost: traffic.cost[number] * setup.cost };
    const client = traffic.clients[traffic.client[number]];
    if (client) arrival.client = client;
    return arrival;
  });
  const request = { rules, arrivals };
  if (traffic.start > 0) request.start = traffic.start;
  if (traffic.until > 0) request.until = traffic.until;
  return request;
}

/** Columns of arrivals: `at` and `cost`, and `client` as a place in `clients`. The timeline is at least `until` long. */
export function trafficOfStory({ request: { arrivals } }) {
  const clients = [...new Set(arrivals.map(({ client }) => client ?? ""))];
  const numbered = arrivals.map(({ at, cost = 1, client = "" }) => ({ at, cost, client: clients.indexOf(client) }));
  return columns({ start: 0, until: 0 }, numbered, clients);
}

export function trafficOfReply({ start, arrivals, clients }) {
  return { start, until: 0, at: arrivals.at, cost: arrivals.cost, client: arrivals.client, clients };
}

export const NO_TRAFFIC = { start: 0, until: 10, at: [], cost: [], client: [], clients: [""] };

const tidy = (seconds) => Math.round(seconds * 1e9) / 1e9;

const rows = ({ at, cost, client }) => at.map((time, number) => ({ at: time, cost: cost[number], client: client[number] }));

/** Arrivals with some more of them, in the order of their times. */
export function withArrivals(traffic, more, name) {
  const clients = [...new Set([...traffic.clients, name])];
  const added = more.map(({ at, cost }) => ({ at: tidy(at), cost, client: clients.indexOf(name) }));
  return columns(traffic, [...rows(traffic), ...added].sort((a, b) => a.at - b.at), clients);
}

export function withoutArrival(traffic, number) {
  return columns(traffic, rows(traffic).toSpliced(number, 1), traffic.clients);
}

function columns({ start, until }, arrivals, clients) {
  const column = (name) => arrivals.map((arrival) => arrival[name]);
  return { start, until, at: column("at"), cost: column("cost"), client: column("client"), clients };
}
