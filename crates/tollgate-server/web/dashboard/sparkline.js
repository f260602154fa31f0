// A small picture of the last 15 minutes for a row of the limits table: a line of requests, and a hatched area of denials.

import { svgElement } from "../format.js";
import { MOST_STEPS } from "./series.js";

const WIDTH = 120;
const HEIGHT = 24;
const STEPS_PER_POINT = 3;

/** The most requests in groups of steps, aligned at the newest. Null where nothing was measured. */
function points(steps, read) {
  const all = [];
  for (let end = steps.length; end > 0 && all.length < MOST_STEPS / STEPS_PER_POINT; end -= STEPS_PER_POINT) {
    const group = steps.slice(Math.max(0, end - STEPS_PER_POINT), end).filter((step) => step !== null);
    all.unshift(group.length === 0 ? null : Math.max(...group.map(read)));
  }
  return all;
}

function path(values, most, isArea) {
  const last = MOST_STEPS / STEPS_PER_POINT - 1;
  const x = (i) => (((last - (values.length - 1 - i)) / last) * WIDTH).toFixed(1);
  const y = (value) => (HEIGHT - 1 - (value / most) * (HEIGHT - 3)).toFixed(1);
  let drawn = "";
  for (let i = 0; i < values.length; i += 1) {
    if (values[i] === null) continue;
    const begins = i === 0 || values[i - 1] === null;
    const ends = i === values.length - 1 || values[i + 1] === null;
    if (isArea && begins) drawn += `M${x(i)} ${HEIGHT}L${x(i)} ${y(values[i])}`;
    else drawn += `${begins ? "M" : "L"}${x(i)} ${y(values[i])}`;
    if (isArea && ends) drawn += `L${x(i)} ${HEIGHT}Z`;
  }
  return drawn;
}

export function sparkline() {
  const requests = svgElement("path", { class: "spark-requests" });
  const denied = svgElement("path", { class: "spark-denied", fill: "url(#hatch)" });
  const svg = svgElement("svg", {
    class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true",
  }, denied, requests);
  return {
    node: svg,
    /** Draws the steps of a limit. */
    draw(steps, isShadow) {
      const all = points(steps, (step) => step.allowed + step.denied);
      const most = Math.max(1, ...all);
      requests.setAttribute("d", path(all, most, false));
      const refused = points(steps, (step) => step.denied);
      denied.setAttribute("d", refused.some((value) => value > 0) ? path(refused, most, true) : "");
      svg.classList.toggle("is-shadow", isShadow);
    },
  };
}

/** The pattern that areas of denials refer to, once per page. */
export function hatchPattern() {
  const pattern = svgElement("pattern", { id: "hatch", width: 4, height: 4, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svgElement("rect", { width: 4, height: 4, class: "hatch-ground" }), svgElement("line", { x1: 0, y1: 0, x2: 0, y2: 4, class: "hatch-line" }));
  return svgElement("svg", { width: 0, height: 0, class: "hatch", "aria-hidden": "true" }, svgElement("defs", {}, pattern));
}
