// Sentences and words: what the numbers mean.

import { bytes, clock, count, counted, date, duration, percent, rate, shown, span } from "../format.js";
import { WINDOW, requestsOf } from "./series.js";

/** A value of the policy file, on one line. */
export function written(value) {
  if (Array.isArray(value)) return `[${value.map(written).join(", ")}]`;
  if (value !== null && typeof value === "object") return `{ ${fields(value)} }`;
  return shown(String(value));
}

function fields(object) {
  return Object.entries(object).map(([name, value]) => `${shown(name)}: ${written(value)}`).join(", ");
}

/** `token_bucket: { rate: 5/s, burst: 10 }`, as in the policy file. */
export function rule({ algorithm, numbers }) {
  return `${algorithm}: ${written(numbers)}`;
}

/** What other numbers a limit has besides those of its rule: `3 tiers`, `1 tenant with its own numbers`. */
export function variants({ tierCount, policy }) {
  const own = policy.tenants_with_own_numbers ?? 0;
  return [
    tierCount > 0 ? counted(tierCount, "tier") : null,
    own > 0 ? `${counted(own, "tenant")} with ${own === 1 ? "its" : "their"} own numbers` : null,
  ].filter((part) => part !== null);
}

/** The values of a key as one text. */
export function keyLabel(key) {
  if (key.length === 0) return "(everybody)";
  return key.map((value) => (value === "" ? "(empty)" : shown(value))).join(" / ");
}

/** The state of a limit: a mark, a word for its colour, and the text. */
export function limitState({ policy, rates, recent }) {
  const { allowed, denied } = recent.totals;
  if (allowed + denied === 0) return { kind: "unused", mark: "", text: "no request yet" };
  if (policy.shadow) {
    const text = rates.denied > 0 ? `would deny ${rate(rates.denied)}/s` : "would deny none";
    return { kind: rates.denied > 0 ? "would" : "quiet", mark: rates.denied > 0 ? "◌" : "", text: `shadow: ${text}` };
  }
  if (rates.denied > 0) return { kind: "denied", mark: "×", text: `denying ${rate(rates.denied)}/s` };
  if (rates.delayed > 0) return { kind: "delayed", mark: "◔", text: `delaying ${rate(rates.delayed)}/s` };
  if (rates.allowed > 0) return { kind: "quiet", mark: "", text: "allowing all" };
  return { kind: "quiet", mark: "", text: "no requests now" };
}

/** What is denied now, in one sentence. Names stand between backticks. */
export function pulse(model) {
  const { rates, isUsed, age, step } = model;
  const requests = rates ? requestsOf(rates) : 0;
  if (requests <= 0 && model.isMeasuring && (isUsed || model.hasRestarted)) {
    return `Started ${age === null ? `less than ${span(step)}` : span(Math.max(1, Math.floor(age)))} ago, measuring.`;
  }
  if (!isUsed) return "No request yet.";
  if (!rates) return "Measuring: rates are known in a second.";
  if (requests <= 0) return `No request in the last ${WINDOW} seconds.`;
  const all = `${counted(requests, "request", rate(requests))} per second`;
  if (rates.denied <= 0) {
    const delayed = rates.delayed > 0 ? `, ${rate(rates.delayed)} of them delayed` : "";
    return `${all}, none denied${delayed}.`;
  }
  const denying = [...model.active].filter(({ policy, rates: of }) => !policy.shadow && of.denied > 0);
  denying.sort((a, b) => b.rates.denied - a.rates.denied);
  const total = denying.reduce((sum, { rates: of }) => sum + of.denied, 0);
  const [first, second] = denying.map(({ name }) => `\`${name}\``);
  const by =
    !first ? ""
    : !second ? `, all by ${first}`
    : denying[0].rates.denied * 2 > total ? `, most by ${first}`
    : `, the most by ${first} and ${second}`;
  return `${rate(rates.denied)} of ${all} denied${by}.`;
}

/** The store in a few words, and whether all is well. */
export function storeState(model) {
  const { store, sources } = model;
  if (store.kind !== "redis") return { text: "Memory store", isWell: true };
  const down = store.shards.filter(({ is_up: isUp }) => !isUp);
  if (down.length > 0) {
    const part = store.shards.length > 1 ? ` on ${down.length} of ${store.shards.length} servers` : "";
    return { text: `Redis: fallback${part} since ${span(Math.max(...down.map(({ since }) => since)))}`, isWell: false };
  }
  if (store.mode === "lease" && sources.lease > 0 && store.calls > 0) {
    return { text: `Redis: lease, ${rate(sources.lease / store.calls)} decisions per call`, isWell: true };
  }
  return { text: `Redis: ${store.mode}`, isWell: true };
}

/** The store in one sentence. */
export function storeSentence(model) {
  const { store, keys } = model;
  const held = counted(keys, "key");
  if (store.kind !== "redis") {
    const bound = model.maxBytes ? ` of ${bytes(model.maxBytes)}` : "";
    const full = model.maxBytes && model.bytes / model.maxBytes >= 0.005 ? ` (${percent(model.bytes / model.maxBytes)})` : "";
    return `This process decides alone, in memory: ${held}, ${bytes(model.bytes)}${bound}${full}.`;
  }
  const down = store.shards.filter(({ is_up: isUp }) => !isUp).length;
  if (down === store.shards.length) return "Redis does not answer: `on_error` of the policy decides.";
  if (down > 0) return `${down} of ${counted(store.shards.length, "server")} ${down === 1 ? "does" : "do"} not answer: for their keys, \`on_error\` of the policy decides.`;
  if (store.mode === "lease") return "Tokens are drawn from Redis in advance and spent here: the total never exceeds a limit.";
  return "Redis decides every request exactly. Repeated denials are answered here.";
}

/** A time from now on: `now`, `in less than 1 ms`, `in 40 ms`, `in 3.4 s`, `in 12 s`. */
export function fromNow(seconds) {
  if (seconds <= 0) return "now";
  return `in ${seconds < 0.001 ? `less than ${duration(0.001)}` : seconds < 9.95 ? duration(seconds) : span(seconds)}`;
}

/** As [fromNow], and at what time, for a wait that is long enough to look at a clock. From one day on with the date. */
export function fromNowAt(seconds, now) {
  if (seconds < 9.95) return fromNow(seconds);
  const at = Math.ceil(now + seconds); // rounded up: a request at the time that is shown is allowed
  if (Math.round(seconds) < 86_400) return `${fromNow(seconds)}, at ${clock(at)}`;
  const day = date(at);
  return day === null ? fromNow(seconds) : `${fromNow(seconds)}, on ${day} at ${clock(at)}`;
}

/** When a denied request would be allowed. A wait that the service rounds to 0 is still a wait. */
export function allowedFromNow(retryAfter, now) {
  return fromNowAt(Math.max(retryAfter, 1e-6), now);
}

/** A count that may be too high by `error`, never too low: `757`, or `≤ 757`. */
export function atMost(times, error) {
  return `${error > 0 ? "≤\u202f" : ""}${count(times)}`;
}
