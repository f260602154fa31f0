// Sentences and words: what the numbers mean.

import { bytes, count, percent, rate, span } from "../format.js";
import { WINDOW, requestsOf } from "./series.js";

/** A value of the policy file, on one line. */
export function written(value) {
  if (Array.isArray(value)) return `[${value.map(written).join(", ")}]`;
  if (value !== null && typeof value === "object") return `{ ${fields(value)} }`;
  return String(value);
}

function fields(object) {
  return Object.entries(object).map(([name, value]) => `${name}: ${written(value)}`).join(", ");
}

/** `token_bucket: { rate: 5/s, burst: 10 }`, as in the policy file. */
export function rule({ algorithm, numbers }) {
  return `${algorithm}: ${written(numbers)}`;
}

/** The values of a key as one text. */
export function keyLabel(key) {
  if (key.length === 0) return "(everybody)";
  return key.map((value) => (value === "" ? "(empty)" : value)).join(" / ");
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
  return { kind: "quiet", mark: "", text: "quiet" };
}

/** What is denied now, in one sentence. Names stand between backticks. */
export function pulse(model) {
  if (!model.isUsed) return "No request yet.";
  const { rates } = model;
  if (!rates) return "Measuring: rates are known in a second.";
  const requests = requestsOf(rates);
  if (requests <= 0) return `No request in the last ${WINDOW} seconds.`;
  if (rates.denied <= 0) {
    const delayed = rates.delayed > 0 ? `, ${rate(rates.delayed)} of them delayed` : "";
    return `${rate(requests)} requests per second, none denied${delayed}.`;
  }
  const denying = [...model.active].filter(({ policy, rates: of }) => !policy.shadow && of.denied > 0);
  denying.sort((a, b) => b.rates.denied - a.rates.denied);
  const all = denying.reduce((sum, { rates: of }) => sum + of.denied, 0);
  const [first, second] = denying.map(({ name }) => `\`${name}\``);
  const by =
    !first ? ""
    : !second ? `, all by ${first}`
    : denying[0].rates.denied * 2 > all ? `, most by ${first}`
    : `, the most by ${first} and ${second}`;
  return `${rate(rates.denied)} of ${rate(requests)} requests per second denied${by}.`;
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
  const held = `${count(keys)} ${keys === 1 ? "key" : "keys"}`;
  if (store.kind !== "redis") {
    const bound = model.maxBytes ? ` of ${bytes(model.maxBytes)}` : "";
    const full = model.maxBytes && model.bytes / model.maxBytes >= 0.005 ? ` (${percent(model.bytes / model.maxBytes)})` : "";
    return `This process decides alone, in memory: ${held}, ${bytes(model.bytes)}${bound}${full}.`;
  }
  const down = store.shards.filter(({ is_up: isUp }) => !isUp).length;
  if (down === store.shards.length) return "Redis does not answer: `on_error` of the policy decides.";
  if (down > 0) return `${down} of ${store.shards.length} servers do not answer: for their keys, \`on_error\` of the policy decides.`;
  if (store.mode === "lease") return "Tokens are drawn from Redis in advance and spent here: the total never exceeds a limit.";
  return "Redis decides every request exactly. Repeated denials are answered here.";
}

/** Moments as `in 3 s, at 12:05:09`. */
export function isSoon(seconds) {
  return seconds < 0.05 ? "now" : `in ${seconds < 9.95 ? `${Math.max(0.1, seconds).toFixed(1)}\u202fs` : span(seconds)}`;
}
