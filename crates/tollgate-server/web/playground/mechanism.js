// The pictures of mechanisms at the play head: tank, queue, window, log, counters, ruler.

import { cleared, hatched, ink, label, line, short, shortTime } from "./paint.js";

/** Draws the mechanism of a rule at a moment. If the decision `selected` is of that moment, just after it. Returns the same in words. */
export function drawMechanism(canvas, rule, time, selected) {
  const drawn = cleared(canvas);
  if (!drawn) return "";
  const width = Math.min(drawn.width, 200);
  drawn.pen.translate((drawn.width - width) / 2, 0);
  const level = rule.level(time, selected);
  const of = `${short(level.value)} of ${short(rule.curve.max)}`;
  return DRAWINGS[rule.curve.what]({ ...drawn, width, rule, time, selected, of, ...level });
}

const DRAWINGS = {
  tokens: drawBucket, credits: drawCredits, queue: drawQueue, used: drawWindow, in_window: drawLog, estimate: drawCounter, tat: drawRuler,
};

const isStrict = (rule) => rule.policy.includes("mode: strict");

function title(pen, width, text) {
  label(pen, text, width / 2, 8, { name: "text", align: "center", bold: true });
}

function foot(pen, width, height, left, right) {
  label(pen, left, 0, height - 7);
  label(pen, right, width, height - 7, { align: "right" });
}

function fill(pen, name, alpha, ...rectangle) {
  pen.fillStyle = name === "hatched" ? hatched(pen, "allowed") : ink(name);
  pen.globalAlpha = alpha;
  pen.fillRect(...rectangle);
  pen.globalAlpha = 1;
}

function frame(pen, ...rectangle) {
  pen.strokeStyle = ink("text");
  pen.lineWidth = 1.5;
  pen.strokeRect(...rectangle);
}

/** The arrow along which something flows. */
function arrow(pen, [fromX, fromY], [toX, toY]) {
  const [across, down] = [Math.sign(toX - fromX) * 4, Math.sign(toY - fromY) * 4];
  line(pen, [[fromX, fromY], [toX, toY]], "muted", { width: 1.5 });
  line(pen, [[toX - across - down, toY - down - across], [toX, toY], [toX - across + down, toY - down + across]], "muted", { width: 1.5 });
}

function tank(pen, { left, wide, bottom, value, most, name, rate, foot: below }) {
  const top = 26;
  const middle = left + wide / 2;
  const y = (units) => bottom - (Math.min(units, most) / most) * (bottom - top - 4);
  label(pen, `+${short(rate)}/s`, middle, 6, { align: "center" });
  arrow(pen, [middle, 13], [middle, 22]);
  fill(pen, name, 0.22, left, y(value), wide, bottom - y(value));
  if (value > 0) line(pen, [[left, y(value)], [left + wide, y(value)]], name, { width: 2 });
  for (let unit = 1; unit < most && most <= 20; unit += 1) line(pen, [[left, y(unit)], [left + 5, y(unit)]], "muted");
  line(pen, [[left, top], [left, bottom], [left + wide, bottom], [left + wide, top]], "text", { width: 1.5 });
  const hasRoom = bottom - y(value) > 24;
  label(pen, short(value), middle, hasRoom ? y(value) + 12 : y(value) - 10, { name: "text", align: "center", bold: true });
  label(pen, below, middle, bottom + 12, { align: "center" });
}

function drawBucket({ pen, width, height, rule, value, of }) {
  const { max } = rule.curve;
  tank(pen, { left: width / 2 - 38, wide: 76, bottom: height - 20, value, most: max, name: "allowed", rate: rule.rate, foot: `of ${short(max)} tokens` });
  return `${of} tokens, ${short(rule.rate)} more per second`;
}

function drawCredits({ pen, width, height, rule, value, second, of }) {
  const { max, max2 } = rule.curve;
  const [wide, bottom] = [width / 2 - 8, height - 20];
  const peak = Number(/peak: ([\d.]+)x/.exec(rule.policy)?.[1] ?? 1);
  tank(pen, { left: 1, wide, bottom, value, most: max, name: "allowed", rate: rule.rate, foot: "credits" });
  tank(pen, { left: width - wide - 1, wide, bottom, value: second, most: max2, name: "good", rate: rule.rate * peak, foot: "peak" });
  return `${of} credits, ${short(second)} of ${short(max2)} peak tokens`;
}

/** Places of a queue. The request that leaves next is at the right, and its place becomes free gradually. */
function drawQueue({ pen, width, height, rule, value }) {
  const { max } = rule.curve;
  const places = Math.min(max, 60);
  const right = width - 20;
  const [top, tall] = [20, height - 40];
  const across = Math.min(places, Math.ceil(Math.sqrt((places * right) / tall)));
  const size = Math.min(18, right / across, tall / Math.ceil(places / across));
  const taken = (value * places) / max;
  for (let place = 0; place < places; place += 1) {
    const [x, y] = [right - ((place % across) + 1) * size, top + Math.floor(place / across) * size];
    pen.strokeStyle = ink("line");
    pen.lineWidth = 1;
    pen.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    if (place >= taken - 1e-9) continue;
    pen.beginPath();
    pen.arc(x + size / 2, y + size / 2, Math.max(1.5, size / 2 - 2), 0, 2 * Math.PI);
    pen.fillStyle = ink("delayed");
    pen.globalAlpha = place === 0 ? 0.3 + 0.7 * (taken % 1 || 1) : 1;
    pen.fill();
    pen.globalAlpha = 1;
  }
  arrow(pen, [right + 4, top + size / 2], [width - 2, top + size / 2]);
  const [caption, pace] = [`${Math.ceil(value - 1e-9)} of ${short(max)} places`, `one per ${shortTime(1 / rule.rate)}`];
  title(pen, width, caption);
  label(pen, pace, width, height - 7, { align: "right" });
  return `${caption} taken, ${pace} leaves`;
}

function drawWindow({ pen, width, height, rule, time, value, of }) {
  const { max } = rule.curve;
  const isFull = value >= max;
  const words = `${of}${isFull ? ": full" : " used"}`;
  title(pen, width, words);
  const [top, tall] = [26, height - 76];
  fill(pen, isFull ? "denied" : "allowed", 0.3, 1, top, ((width - 2) * Math.min(value, max)) / max, tall);
  for (let unit = 1; unit < max && max <= 40; unit += 1) {
    const x = 1 + (unit / max) * (width - 2);
    line(pen, [[x, top], [x, top + tall]], "line");
  }
  frame(pen, 1, top, width - 2, tall);
  const edges = rule.edgesAround(time);
  if (!edges) return words;
  for (const x of [1, width - 1]) line(pen, [[x, top], [x, height - 18]], "muted", { dash: [3, 3] });
  const [y, now] = [height - 32, 1 + ((time - edges[0]) / (edges[1] - edges[0])) * (width - 2)];
  line(pen, [[1, y], [width - 1, y]], "line");
  line(pen, [[1, y], [now, y]], "text", { width: 2 });
  dot(pen, now, y);
  foot(pen, width, height, shortTime(edges[0]), shortTime(edges[1]));
  return words;
}

function dot(pen, x, y) {
  pen.beginPath();
  pen.arc(x, y, 3.5, 0, 2 * Math.PI);
  pen.fillStyle = ink("text");
  pen.fill();
}

/** A tick per arrival that still counts. Ticks move to the left and out. */
function drawLog({ pen, width, height, rule, time, selected, of }) {
  const [top, tall, from] = [26, height - 60, time - rule.window];
  fill(pen, "line", 0.5, 1, top, width - 2, tall);
  frame(pen, 1, top, width - 2, tall);
  const { at } = rule.run.arrivals;
  for (const number of rule.allowedBetween(from, time, selected)) {
    const x = 1 + ((at[number] - from) / rule.window) * (width - 2);
    line(pen, [[x, top + 6], [x, top + tall - 6]], "allowed", { width: 2 });
  }
  title(pen, width, of);
  arrow(pen, [width / 2 + 14, height - 22], [width / 2 - 14, height - 22]);
  foot(pen, width, height, `${shortTime(rule.window)} ago`, "now");
  return `${of} in the last ${shortTime(rule.window)}`;
}

/** Two bars: the count of the window before, with the part that still counts hatched, and the count of the current window. */
function drawCounter({ pen, width, height, rule, time, counter, of }) {
  const edges = rule.edgesAround(time);
  const passed = edges ? Math.min(1, Math.max(0, (time - edges[0]) / (edges[1] - edges[0]))) : 1 - counter.weight;
  const [top, bottom, half] = [40, height - 18, width / 2];
  const most = Math.max(rule.curve.max, counter.old, counter.full);
  const y = (units) => bottom - (units / most) * (bottom - top);
  const start = isStrict(rule) ? 0 : half * passed;
  const now = half + half * passed;
  fill(pen, "line", 0.6, start, top - 6, now - start, bottom - top + 6);
  const shaded = Math.max(start, 4);
  fill(pen, "hatched", 1, shaded, y(counter.old), Math.max(0, half - 4 - shaded), bottom - y(counter.old));
  fill(pen, "allowed", 0.35, half + 4, y(counter.full), half - 8, bottom - y(counter.full));
  for (const [x, units] of [[4, counter.old], [half + 4, counter.full]]) {
    if (units > 0) line(pen, [[x, bottom], [x, y(units)], [x + half - 8, y(units)], [x + half - 8, bottom]], "allowed");
  }
  line(pen, [[0, y(rule.curve.max)], [width, y(rule.curve.max)]], "muted", { dash: [3, 3] });
  line(pen, [[0, bottom], [width, bottom]], "text", { width: 1.5 });
  line(pen, [[now, top - 6], [now, bottom]], "text", { width: 1.5 });
  const sum = `${counter.old}${isStrict(rule) ? "" : ` × ${short(counter.weight)}`} + ${counter.full}`;
  title(pen, width, sum);
  label(pen, `= ${of}`, width / 2, 23, { name: "text", align: "center", bold: true });
  label(pen, isStrict(rule) ? "leaving" : "before", half / 2, height - 7, { align: "center" });
  label(pen, isStrict(rule) ? "newest" : "current", half * 1.5, height - 7, { align: "center" });
  return `${sum} = ${of}`;
}

/** A ruler from now to the farthest that the theoretical arrival time may lie ahead. */
function drawRuler({ pen, width, height, rule, value }) {
  const { max } = rule.curve;
  const [top, tall] = [38, 32];
  const x = (ahead) => 1 + (ahead / max) * (width - 2);
  fill(pen, "allowed", 0.22, 1, top, x(value) - 1, tall);
  frame(pen, 1, top, width - 2, tall);
  for (let unit = 1; unit < rule.capacity && rule.capacity <= 40; unit += 1) {
    const mark = x((unit / rule.capacity) * max);
    line(pen, [[mark, top + tall], [mark, top + tall - 7]], "muted");
  }
  line(pen, [[x(value), top - 8], [x(value), top + tall]], "allowed", { width: 2.5 });
  const words = `TAT is now + ${shortTime(value)}`;
  title(pen, width, words);
  label(pen, "now", 0, top + tall + 12);
  label(pen, `+ ${shortTime(max)}`, width, top + tall + 12, { align: "right" });
  label(pen, `one token: ${shortTime(max / rule.capacity)}`, width / 2, height - 7, { align: "center" });
  return `${words}, at most + ${shortTime(max)}`;
}
