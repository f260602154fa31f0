// The timeline of one lane: arrivals as symbols, what the mechanism holds, and what the backend receives.

import { cleared, hatched, ink, line, short, shortTime, symbol } from "./paint.js";
import { ROW, ticks } from "./timeline.js";
import { upTo } from "./run.js";

/** The heights of the bands of a lane, from the top. The band of arrivals is as high as their rows are. */
export function bandsOf(arrivals) {
  return { level: [arrivals + 6, arrivals + 46], backend: [arrivals + 52, arrivals + 88], height: arrivals + 88 };
}

const UNITS = {
  tokens: "tokens", tat: "TAT ahead", queue: "in the queue", used: "used in the window", in_window: "in the log",
  estimate: "estimate", credits: "credits",
};

/** Draws a lane. `stack` is where the symbols go, which is the same in all lanes. */
export function drawLane(canvas, rule, view, stack) {
  const drawn = cleared(canvas);
  if (!drawn) return;
  const { pen, width } = drawn;
  const band = { pen, width, view, rule, bands: bandsOf(stack.height) };
  grid(band);
  drawLevel(band);
  drawBackend(band);
  drawArrivals(band, stack);
}

function grid({ pen, width, view, rule, bands }) {
  for (const time of ticks(view, width)) {
    const x = Math.round(view.x(time, width)) + 0.5;
    line(pen, [[x, 0], [x, bands.height]], "line", { width: 0.5 });
  }
  if (!rule.edges) return;
  const edges = rule.edges.slice(upTo(rule.edges, view.from), upTo(rule.edges, view.to));
  if (edges.length * 6 > width) return;
  for (const edge of edges) {
    const x = Math.round(view.x(edge, width)) + 0.5;
    line(pen, [[x, 0], [x, bands.level[1]]], "muted", { dash: [3, 3] });
  }
}

function drawArrivals({ pen, width, view, rule }, { from, to, radius, places, height }) {
  if (places) places.forEach(([x, up], place) => symbol(pen, rule.outcomes[from + place], x, height - up, radius));
  else drawColumns(pen, rule.run.arrivals.at, rule.outcomes, from, to, { view, width, height });
}

/** Draws bars where there are too many arrivals for symbols: how many were allowed, delayed and denied, or all of them. */
export function drawColumns(pen, at, outcomes, from, to, { view, width, height }) {
  const step = 4;
  const fills = { allowed: ink("allowed"), delayed: ink("delayed"), denied: hatched(pen, "denied"), all: ink("muted") };
  const bins = Array.from({ length: Math.ceil(width / step) }, () => ({ allowed: 0, delayed: 0, denied: 0, all: 0 }));
  for (let number = from; number < to; number += 1) {
    bins[Math.min(bins.length - 1, Math.floor(view.x(at[number], width) / step))][outcomes?.[number] ?? "all"] += 1;
  }
  const sum = (bin) => bin.allowed + bin.delayed + bin.denied + bin.all;
  const most = Math.max(1, ...bins.map(sum));
  bins.forEach((bin, place) => {
    let y = height;
    for (const [outcome, number] of Object.entries(bin)) {
      const tall = (number / most) * height;
      pen.fillStyle = fills[outcome];
      pen.fillRect(place * step, (y -= tall), step - 1, tall);
    }
  });
}

/** Where the symbol of an arrival is in a lane, or null. */
export function symbolAt({ from, places, height }, number) {
  const [x, up] = (number === null ? null : places?.[number - from]) ?? [];
  return x === undefined ? null : [x, height - up];
}

/** The points of a curve in the view, with one before and one behind it. */
function visible(curve, column, view) {
  const first = Math.max(0, upTo(curve.t, view.from) - 1);
  const last = Math.min(curve.t.length, upTo(curve.t, view.to) + 1);
  const points = [];
  for (let point = first; point < last; point += 1) points.push([curve.t[point], column[point]]);
  return points;
}

/** Fills what is below a line. */
function area(pen, points, bottom, fill, alpha = 1) {
  pen.beginPath();
  pen.moveTo(points[0][0], bottom);
  for (const [x, y] of points) pen.lineTo(x, y);
  pen.lineTo(points.at(-1)[0], bottom);
  pen.fillStyle = fill;
  pen.globalAlpha = alpha;
  pen.fill();
  pen.globalAlpha = 1;
}

function drawLevel({ pen, width, view, rule, bands }) {
  const [top, bottom] = bands.level;
  const { curve } = rule;
  const y = (value, most) => bottom - (value / most) * (bottom - top - 2);
  const drawCurve = (column, most, name, isFilled) => {
    const points = visible(curve, column, view).map(([time, value]) => [view.x(time, width), y(value, most)]);
    if (isFilled) area(pen, points, bottom, ink(name), 0.16);
    line(pen, points, name, { width: 1.5, dash: isFilled ? [] : [4, 3] });
  };
  line(pen, [[0, y(curve.max, curve.max)], [width, y(curve.max, curve.max)]], "muted", { dash: [2, 3] });
  line(pen, [[0, bottom + 0.5], [width, bottom + 0.5]], "line");
  drawCurve(curve.y, curve.max, curve.what === "queue" ? "delayed" : "allowed", true);
  if (curve.y2) drawCurve(curve.y2, curve.max2, "good", false);
}

/** The words in a lane: text, whether at the right, and the height of their middle. */
export function labelsOf({ curve, limit, rateLine, most, policy, window_for_most: span }, { height, rows }) {
  const { level, backend } = bandsOf(height);
  const highest = curve.what === "tat" ? `at most ${shortTime(curve.max)}` : `of ${short(curve.max)}`;
  const labels = rows.map((name, row) => [name, false, height - (row + 0.5) * ROW]);
  labels.push([UNITS[curve.what], false, level[0] + 10], [highest, true, level[0] + 10], [`backend, last ${shortTime(span)}`, false, backend[0] + 8]);
  const lineAt = limit ?? rateLine;
  if (lineAt !== null) {
    const line = backend[1] - (lineAt / scaleOf(lineAt, most)) * (backend[1] - backend[0] - 2);
    const text = limit === null ? `rate ${/rate: ([^ ,]+)/.exec(policy)[1]}` : `limit ${short(limit)}`;
    labels.push([text, true, most > lineAt * 1.4 && backend[1] - line > 16 ? line + 9 : line - 8]);
  }
  return labels;
}

const scaleOf = (lineAt, most) => Math.max((lineAt ?? 0) * 1.4, most, 1);

/** What the backend received in the last window, with the limit or the rate as a line. The part above the limit is hatched. */
function drawBackend({ pen, width, view, rule, bands }) {
  const [top, bottom] = bands.backend;
  const { received, limit, rateLine } = rule;
  const y = (value) => bottom - (value / scaleOf(limit ?? rateLine, rule.most)) * (bottom - top - 2);
  const points = visible(received, received.y, view).map(([time, sum]) => [view.x(time, width), y(sum)]);
  area(pen, points, bottom, ink("muted"), 0.28);
  line(pen, points, "muted", { width: 1.25 });
  line(pen, [[0, bottom + 0.5], [width, bottom + 0.5]], "line");
  if (rateLine !== null) line(pen, [[0, y(rateLine)], [width, y(rateLine)]], "muted", { dash: [1, 3] });
  if (limit === null) return;
  if (rule.most > limit) {
    pen.save();
    pen.beginPath();
    pen.rect(0, top - 2, width, y(limit) - top + 2);
    pen.clip();
    area(pen, points, bottom, ink("panel"));
    area(pen, points, bottom, hatched(pen, "denied"));
    line(pen, points, "denied", { width: 1.5 });
    pen.restore();
  }
  line(pen, [[0, y(limit)], [width, y(limit)]], "text", { dash: [5, 3] });
}

/** The arrival whose symbol is nearest to a point, or the nearest in time. Null where there is none. */
export function arrivalAt(stack, run, view, width, x, y) {
  if (stack.places) {
    let [nearest, least] = [null, 14 ** 2];
    stack.places.forEach(([left, up], place) => {
      const distance = (left - x) ** 2 + (y > stack.height ? 0 : (stack.height - up - y) ** 2);
      if (distance <= least) [nearest, least] = [stack.from + place, distance];
    });
    if (nearest !== null) return nearest;
  }
  return run.count === 0 ? null : Math.max(0, run.countUpTo(view.time(x, width)) - 1);
}
