// Charts over time, at most the last 15 minutes, drawn by uPlot. All share one crosshair, which the pointer or the arrow keys move. Above a chart
// stand its title and a legend with the numbers: those of now, or those at the crosshair.

import { clock, element, setText } from "../format.js";
import { colour } from "../theme.js";

let shown = 900; // seconds, the same for all charts, which share a crosshair
const MARKS = { allowed: "●", delayed: "◔", denied: "×", shadow: "◌" };

/** Seconds between the times on an axis. */
const INTERVALS = [5, 10, 15, 30, 60, 120, 180, 300, 600];

const charts = new Set();

/** Sets how many seconds all charts show. They are drawn with it when they get their next data. */
export function showSeconds(seconds) {
  shown = seconds;
}

/** Diagonal lines, so that an area is known without its colour. */
function hatch(context, name) {
  const scale = devicePixelRatio;
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6 * scale;
  const drawing = tile.getContext("2d");
  drawing.fillStyle = `${colour(name)}40`;
  drawing.fillRect(0, 0, tile.width, tile.height);
  drawing.strokeStyle = colour(name);
  drawing.lineWidth = scale;
  for (const offset of [-6, 0, 6]) {
    drawing.moveTo(offset * scale, 6 * scale);
    drawing.lineTo((offset + 6) * scale, 0);
  }
  drawing.stroke();
  return context.createPattern(tile, "repeat");
}

function ceiling(most, least) {
  const value = Math.max(most ?? 0, least);
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * power >= value * 1.05) * power || value * 1.2;
}

/** The places of values between two gaps, which no line shows. */
function isolated(values) {
  const isGap = (i) => (values[i] ?? null) === null;
  return values.flatMap((value, i) => (value !== null && isGap(i - 1) && isGap(i + 1) ? [i] : []));
}

export class Chart {
  #plot = null;
  #data = null; // times, columns, and what is drawn
  #now = [];
  #isStale = false;

  /**
   * Makes a chart in `parent`. A series has a `label`, and the `name` of its colour. It may have a `dash`, and an `isOptional` one is left
   * out while it is 0. If it `isStacked`, each area stands on the one before. `format` writes a number. The axis reaches at least
   * `least`, or exactly `most`.
   */
  constructor(parent, { title, series, format, height = 120, isStacked = false, least = 1, most = null }) {
    Object.assign(this, { series, format, height, isStacked, least, most });
    this.values = series.map(() => element("b"));
    this.legends = series.map(({ label, name, dash }, i) => element("span", { className: `legend ${name}` },
      element("span.mark", { "aria-hidden": "true" }, MARKS[name] ?? (dash ? "┄" : "—")), `${label} `, this.values[i]));
    this.time = element("span.legend", {});
    this.box = element("div", {
      className: "plot", tabIndex: 0, role: "slider", "aria-label": `${title}: arrow keys move through time`,
      "aria-valuemin": 0, "aria-valuemax": 0, "aria-valuenow": 0, "aria-valuetext": "now",
    });
    this.box.style.height = `${height}px`;
    this.node = element("figure", {}, element("figcaption", {}, element("h3", {}, title), ...this.legends, this.time), this.box);
    parent.append(this.node);
    this.box.addEventListener("keydown", (event) => this.#key(event));
    this.box.addEventListener("blur", () => this.#plot?.setCursor({ left: -10, top: -10 }));
    new ResizeObserver(() => this.#resize()).observe(this.box);
    charts.add(this);
  }

  /** Removes what uPlot keeps for charts that are gone. */
  destroy() {
    this.#plot?.destroy();
    charts.delete(this);
    this.node.remove();
  }

  /** The numbers of now, shown while there is no crosshair. */
  setNow(values) {
    this.#now = values;
    if (!Number.isInteger(this.#plot?.cursor.idx)) this.#legend(values, "");
  }

  /** Sets times and a list of numbers for each series. Null is a gap. The chart ends at the time `until`. */
  set(times, columns, until = times.at(-1) ?? 0) {
    let below = times.map(() => 0);
    const stack = (column) => (below = column.map((value, i) => (value === null ? null : value + (below[i] ?? 0))));
    // The lowest line is drawn last, so that an area without height does not hide it.
    this.#data = { times, columns, until, drawn: [times, ...(this.isStacked ? columns.map(stack).reverse() : columns)] };
    this.series.forEach(({ isOptional }, i) => isOptional && (this.legends[i].hidden = !columns[i].some((value) => value > 0)));
    this.#draw();
    const last = Math.max(0, times.length - 1);
    this.box.setAttribute("aria-valuemax", last);
    if (document.activeElement !== this.box) this.box.setAttribute("aria-valuenow", last);
  }

  #draw() {
    const width = this.box.clientWidth;
    this.#isStale = document.hidden || width === 0;
    if (this.#isStale) return;
    this.#plot ??= new uPlot(this.#options(width), [[]], this.box);
    this.#plot.setData(this.#data.drawn);
  }

  #resize() {
    const width = this.box.clientWidth;
    if (width === 0 || !this.#data) return;
    if (this.#isStale) this.#draw();
    if (this.#plot.width !== width) this.#plot.setSize({ width, height: this.height });
  }

  /** Draws again, in the colours of the theme. */
  redraw() {
    if (this.#isStale) this.#draw();
    else this.#plot?.redraw(false, true);
  }

  #options(width) {
    const { height, isStacked } = this;
    const axis = {
      font: "12px system-ui, sans-serif", stroke: () => colour("muted"), ticks: { show: false }, grid: { stroke: () => colour("line"), width: 1 },
    };
    const area = (name) => (u) => (name === "denied" ? hatch(u.ctx, name) : `${colour(name)}30`);
    const series = this.series.map(({ name, dash }, i) => {
      const stroke = () => (this.legends[i].hidden ? "transparent" : colour(name));
      const points = { show: false, filter: (u, number) => isolated(this.#data.drawn[number]), size: 5, width: 1, stroke, fill: stroke };
      return { stroke, width: 1.5, dash, points, fill: isStacked && i === 0 ? area(name) : undefined };
    });
    if (isStacked) series.reverse();
    const bands = isStacked ? series.slice(1).map((of, i) => ({ series: [i + 1, i + 2], fill: area(this.series.at(-1 - i).name) })) : [];
    return {
      width, height, padding: [8, 16, 0, 0], legend: { show: false }, series: [{}, ...series], bands,
      cursor: { y: false, drag: { x: false, y: false }, sync: { key: "time", scales: ["x", null] }, points: { size: 6 } },
      scales: {
        x: { range: () => [this.#data.until - shown, this.#data.until] },
        y: { range: (u, low, high) => [0, this.most ?? ceiling(high, this.least)] },
      },
      axes: [
        { ...axis, size: 24, space: 72, incrs: INTERVALS, values: (u, times, i, space, step) => times.map((time) => (step < 60 ? clock(time) : clock(time).slice(0, 5))) },
        { ...axis, size: 56, space: height < 150 ? 20 : 32, values: (u, values) => values.map((value) => this.format(value)) },
      ],
      hooks: { setCursor: [(u) => this.#pointed(u.cursor.idx)] },
    };
  }

  #pointed(index) {
    if (!Number.isInteger(index) || !this.#data) return this.#legend(this.#now, "");
    const time = clock(this.#data.times[index]);
    const text = this.#legend(this.#data.columns.map((of) => of[index]), time);
    this.box.setAttribute("aria-valuenow", index);
    this.box.setAttribute("aria-valuetext", `${time}: ${text}`);
  }

  /** Shows numbers in the legend. Returns them as text. */
  #legend(values, time) {
    setText(this.time, time);
    return this.series.map(({ label }, i) => {
      const isKnown = values[i] !== null && values[i] !== undefined;
      setText(this.values[i], isKnown ? this.format(values[i]) : "–");
      return `${label} ${isKnown ? this.format(values[i]) : "no data"}`;
    }).join(", ");
  }

  #key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -12, ArrowUp: 12, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || !this.#plot || this.#data.times.length === 0) return;
    event.preventDefault();
    const last = this.#data.times.length - 1;
    const index = Math.min(Math.max((this.#plot.cursor.idx ?? last) + step, 0), last);
    this.#plot.setCursor({ left: this.#plot.valToPos(this.#data.times[index], "x"), top: 0 });
  }
}

const redrawAll = () => charts.forEach((chart) => chart.redraw());
document.addEventListener("themechange", redrawAll);
document.addEventListener("visibilitychange", () => !document.hidden && redrawAll());

/** One column of steps, divided by `divisor`. Null where nothing was measured. */
export function column(steps, read, divisor = 1) {
  return steps.map((step) => {
    const value = step === null ? null : read(step);
    return value === null || value === undefined ? null : value / divisor;
  });
}

/** What was allowed at once, after a delay, and denied, per second. */
export function outcomes({ all }, step) {
  return [
    column(all, ({ allowed, delayed }) => allowed - delayed, step),
    column(all, ({ delayed }) => delayed, step),
    column(all, ({ denied }) => denied, step),
  ];
}
