// The common time axis: which part of it is shown, where a moment lies, and how symbols that meet are stacked.

import { cleared, ink, label, line, shortTime } from "./paint.js";

/** The part of the timeline that is shown. */
export class View {
  constructor(from, to, duration) {
    this.duration = duration;
    const length = Math.min(Math.max(to - from, duration / 5000, 1e-6), duration);
    this.from = Math.min(Math.max(0, from), duration - length);
    this.to = this.from + length;
  }

  get length() {
    return this.to - this.from;
  }

  x(time, width) {
    return ((time - this.from) / this.length) * width;
  }

  time(x, width) {
    return this.from + (x / width) * this.length;
  }

  has(time) {
    return time >= this.from && time <= this.to;
  }

  zoomed(factor, around) {
    const length = this.length / factor;
    const from = around - ((around - this.from) / this.length) * length;
    return new View(from, from + length, this.duration);
  }

  /** The same length, so that a moment lies at a part of it. */
  showing(time, part) {
    const from = time - part * this.length;
    return new View(from, from + this.length, this.duration);
  }
}

/** Steps of an axis: 1, 2 or 5 times a power of ten, with enough room for labels. */
export function ticks(view, width) {
  const least = (view.length * 64) / Math.max(64, width);
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((times) => times * power).find((candidate) => candidate >= least);
  const times = [];
  for (let number = Math.ceil(view.from / step - 1e-9); number * step <= view.to + 1e-9 * step; number += 1) {
    times.push(Number((number * step).toPrecision(12)));
  }
  return times;
}

export function drawAxis(canvas, view) {
  const drawn = cleared(canvas);
  if (!drawn) return;
  const { pen, width, height } = drawn;
  line(pen, [[0, 0.5], [width, 0.5]], "line");
  for (const time of ticks(view, width)) {
    const x = view.x(time, width);
    line(pen, [[x, 0], [x, 5]], "muted");
    const align = x < 12 ? "left" : x > width - 20 ? "right" : "center";
    label(pen, time === 0 ? "0" : shortTime(time), x, height - 6, { align });
  }
}

/** The whole timeline in small: what arrived, and the part that is shown. */
export function drawOverview(canvas, run, view) {
  const drawn = cleared(canvas);
  if (!drawn) return;
  const { pen, width, height } = drawn;
  const [left, right] = [view.from, view.to].map((time) => (time / run.duration) * width);
  pen.fillStyle = ink("line");
  pen.globalAlpha = 0.6;
  pen.fillRect(left, 0, Math.max(2, right - left), height);
  pen.globalAlpha = 1;
  const most = Math.max(1, ...run.offered);
  const bar = (width * run.bin) / run.duration;
  pen.fillStyle = ink("muted");
  run.offered.forEach((cost, place) => {
    if (cost === 0) return;
    const tall = Math.max(2, (cost / most) * (height - 4));
    pen.fillRect(place * bar, height - tall, Math.max(1, bar - 0.5), tall);
  });
  line(pen, [[0, height - 0.5], [width, height - 0.5]], "line");
}

/** Radii of symbols, the largest first. */
const RADII = [4, 3, 2.4];

/** The height of the row of a client, and the most clients that have rows of their own. */
export const ROW = 13;
const MOST_ROWS = 5;

/**
 * Where the symbols of the arrivals in a view go, in pixels from the left and from the lower edge of their band. A few clients have a row each.
 * Otherwise symbols that meet are stacked. Where there are too many for that, there are no `places`, and they are to be counted per column.
 */
export function stackOf(run, view, width, hasRows = true) {
  const height = 36;
  const { at, client } = run.arrivals;
  const from = firstFrom(run, view.from);
  const to = run.countUpTo(view.to);
  if (hasRows && run.clients.length > 1 && run.clients.length <= MOST_ROWS && to - from <= 1000) {
    const rows = [...run.clients].sort((a, b) => b.localeCompare(a, "en", { numeric: true })); // from below
    const last = rows.map(() => -Infinity);
    let meetings = 0;
    const places = [];
    for (let number = from; number < to; number += 1) {
      const [x, row] = [view.x(at[number], width), rows.indexOf(run.clients[client[number]])];
      if (x - last[row] < 5) meetings += 1;
      last[row] = x;
      places.push([x, (row + 0.5) * ROW]);
    }
    if (meetings * 5 < places.length) return { from, to, height: rows.length * ROW, rows: width > 320 ? rows : [], radius: 4, places };
  }
  for (const radius of RADII) {
    const pitch = 2 * radius + 0.8;
    const places = stacked(at, from, to, (time) => view.x(time, width), Math.floor(height / pitch), pitch);
    if (places) return { from, to, height, rows: [], radius, places: places.map(([x, row]) => [x, (row + 0.5) * pitch]) };
  }
  return { from, to, height, rows: [], radius: 0, places: null };
}

function stacked(times, from, to, xOf, rows, apart) {
  if (to - from > 4000) return null;
  const ends = new Array(rows).fill(-Infinity);
  const places = [];
  for (let number = from; number < to; number += 1) {
    const x = xOf(times[number]);
    const row = ends.findIndex((end) => end + apart <= x + 0.01);
    if (row === -1) return null;
    ends[row] = x;
    places.push([x, row]);
  }
  return places;
}

/** The first arrival that is not before a moment. */
function firstFrom(run, time) {
  let first = run.countUpTo(time);
  while (first > 0 && run.arrivals.at[first - 1] === time) first -= 1;
  return first;
}
