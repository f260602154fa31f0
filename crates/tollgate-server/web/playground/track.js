// The arrivals above the lanes, where they are added and removed, and the overview with the play head.

import { drawColumns } from "./lane.js";
import { cleared, ink, label } from "./paint.js";
import { drawAxis, drawOverview, stackOf } from "./timeline.js";

const HEIGHT = 36;

export class Track {
  constructor(root, overview, { onAdd, onRemove }) {
    this.overview = overview;
    [this.canvas, this.axis, this.head] = ["#track-canvas", ".axis", ".head"].map((part) => root.querySelector(part));
    const place = ({ clientX, clientY }) => {
      const { left, top } = this.canvas.getBoundingClientRect();
      return [clientX - left, clientY - top];
    };
    this.canvas.addEventListener("click", (event) => {
      if (!this.stack) return;
      const [x, y] = place(event);
      const number = this.arrivalAt(x, y);
      if (number !== null) onRemove(number);
      else onAdd(Math.max(0, rounded(this.view.time(x, this.canvas.clientWidth), this.view.length)));
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (this.stack) this.canvas.style.cursor = this.arrivalAt(...place(event)) === null ? "copy" : "pointer";
    });
    this.canvas.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      onAdd(this.headAt);
    });
  }

  /** The arrival whose dot is under a point, or null. */
  arrivalAt(x, y) {
    const { places, from } = this.stack;
    const place = places ? places.findLastIndex(([left, up]) => Math.hypot(left - x, HEIGHT - up - y) <= 6) : -1;
    return place < 0 ? null : from + place;
  }

  draw(run, view) {
    this.view = view;
    drawOverview(this.overview, run, view);
    drawAxis(this.axis, view);
    const drawn = cleared(this.canvas);
    if (!drawn) return;
    const { pen, width } = drawn;
    const { cost } = run.arrivals;
    this.stack = stackOf(run, view, width, false);
    const { from, places, radius } = this.stack;
    if (!places) {
      drawColumns(pen, run.arrivals.at, null, from, this.stack.to, { view, width, height: HEIGHT });
      return;
    }
    places.forEach(([x, up], place) => {
      const number = from + place;
      pen.beginPath();
      pen.arc(x, HEIGHT - up, radius - 0.5, 0, 2 * Math.PI);
      pen.fillStyle = ink(cost[number] === 0 ? "panel" : "muted");
      pen.fill();
      pen.strokeStyle = ink("muted");
      pen.lineWidth = 1;
      pen.stroke();
      const room = (places[place + 1]?.[0] ?? width) - x;
      if (cost[number] !== 1 && room > 28) label(pen, cost[number] === 0 ? "peek" : `×${cost[number]}`, x + radius + 3, HEIGHT - up);
    });
  }

  moveHead(time, view) {
    this.headAt = time;
    this.head.hidden = !view.has(time);
    this.head.style.left = `${((time - view.from) / view.length) * 100}%`;
  }
}

/** A time as exact as a click is. */
function rounded(time, length) {
  const step = 10 ** Math.floor(Math.log10(length / 500));
  return Number((Math.round(time / step) * step).toPrecision(12));
}
