// The state of a key, drawn as the algorithm's own picture: a bucket, a queue, a window, a log, or slots.

import { count, element, rate, svgElement } from "../format.js";
import { fromNow } from "./words.js";

const WIDTH = 304;
const UNITS = { ms: 0.001, s: 1, sec: 1, min: 60, m: 60, h: 3600, hour: 3600, d: 86_400, day: 86_400 };

/** What an algorithm counts: the unit of what is left. */
export function unit(algorithm, number = 2) {
  const words = { leaky_bucket: "place", concurrency: "slot", token_bucket: "token" };
  return `${words[algorithm] ?? "request"}${number === 1 ? "" : "s"}`;
}

/** Seconds of a duration as the policy writes it. Null if it is unknown. */
export function seconds(text) {
  const [, number, name] = /^([\d.]+)\s*([a-z]+)$/.exec(text ?? "") ?? [];
  return number && UNITS[name] ? Number(number) * UNITS[name] : null;
}

const text = (x, y, content, more = {}) => svgElement("text", { x, y, ...more }, content);
const box = (x, y, width, height, more = {}) => svgElement("rect", { x, y, width: Math.max(0, width), height: Math.max(0, height), rx: 4, ...more });

function drawn(height, label, ...parts) {
  return svgElement("svg", { class: "picture", viewBox: `14 0 ${WIDTH} ${height}`, role: "img", "aria-label": label }, ...parts);
}

/** A bucket: the level is what is left. */
function bucket({ limit, remaining, numbers, algorithm }, label) {
  const level = limit > 0 ? Math.min(1, remaining / limit) : 0;
  const [top, height] = [28, 128];
  const refill = numbers.rate ? `refills ${numbers.rate}` : "refills";
  return drawn(176, label,
    text(80, 16, `↓ ${refill}`, { class: "small", "text-anchor": "middle" }),
    box(16, top + height * (1 - level), 128, height * level, { class: "filled", rx: 2 }),
    svgElement("path", { class: "outline", d: `M16 ${top}V${top + height - 8}q0 8 8 8h112q8 0 8-8V${top}` }),
    text(168, top + 16, `${count(limit)} when full`, { class: "small" }),
    text(168, top + 64, count(remaining), { class: "large" }),
    text(168, top + 88, `${unit(algorithm, remaining)} left`, { class: "small" }),
    svgElement("line", { class: "tick", x1: 144, x2: 160, y1: top, y2: top }));
}

/** One cell per request or slot, filled if it is in use. Above 100, a cell stands for several. */
function cells({ limit, remaining }, label, caption, isRound) {
  const shown = Math.max(1, Math.min(limit, 100));
  const each = limit / shown;
  const used = Math.min(shown, Math.ceil((limit - remaining) / each));
  const perRow = Math.min(shown, 20);
  const size = Math.min(24, 288 / perRow);
  const rows = Math.ceil(shown / perRow);
  const parts = Array.from({ length: shown }, (_, i) =>
    box(16 + (i % perRow) * size, 8 + Math.floor(i / perRow) * size, size - 3, size - 3, { rx: isRound ? size / 2 : 2, class: i < used ? "used" : "free" }));
  const note = each > 1 ? `, ${rate(each)} per cell` : "";
  return drawn(rows * size + 40, label, ...parts, text(16, rows * size + 28, `${count(limit - remaining)} of ${count(limit)} ${caption}${note}`, { class: "small" }));
}

/** A queue: the requests that wait, and the opening at its end. */
function queue({ limit, remaining, numbers }, label) {
  const used = limit > 0 ? (limit - remaining) / limit : 1;
  return drawn(104, label,
    box(16, 32, 240, 32, { class: "ground" }), box(256 - 240 * used, 32, 240 * used, 32, { class: "used" }),
    text(264, 52, `→ ${numbers.rate ?? ""}`, { class: "small" }), text(16, 20, `room for ${count(limit)}`, { class: "small" }),
    text(16, 84, `${count(limit - remaining)} ahead of the next request`, { class: "small" }));
}

/** A fixed window: how much of its time is over, and how much of its count is used. */
function fixedWindow({ limit, remaining, resetAfter, numbers }, label) {
  const length = seconds(numbers.window);
  const over = length ? Math.min(1, Math.max(0, 1 - resetAfter / length)) : null;
  const used = limit > 0 ? (limit - remaining) / limit : 1;
  const now = 16 + 288 * (over ?? 0);
  return drawn(136, label,
    box(16, 24, 288, 64, { class: "ground" }), box(16, 24 + 64 * (1 - used), 288, 64 * used, { class: "used", rx: 0 }),
    over === null || remaining === limit ? "" : svgElement("line", { class: "tick", x1: now, x2: now, y1: 16, y2: 96 }),
    over === null || remaining === limit ? "" : text(Math.min(Math.max(now, 32), 288), 12, "now", { class: "small", "text-anchor": "middle" }),
    text(16, 112, `${count(limit - remaining)} of ${count(limit)} used`, { class: "small" }),
    text(304, 112, remaining === limit ? `window of ${numbers.window ?? "?"}` : `next window ${fromNow(resetAfter)}`, { class: "small", "text-anchor": "end" }));
}

/** The picture of a state: `{ algorithm, limit, remaining, resetAfter, numbers }`. */
export function picture(state) {
  const { algorithm, limit, remaining } = state;
  if (limit === 0) return element("p", {}, "Blocked: the limit is 0.");
  const label = `${algorithm}: ${count(remaining)} of ${count(limit)} ${unit(algorithm)} left`;
  switch (algorithm) {
    case "leaky_bucket": return queue(state, label);
    case "fixed_window": return fixedWindow(state, label);
    case "sliding_log": return cells(state, label, "in the log");
    case "sliding_counter": return cells(state, label, "counted in the sliding window");
    case "concurrency": return cells(state, label, "slots in use", true);
    default: return bucket(state, label);
  }
}
