// A small picture of the time that the charts show, for a row of the limits table: a line of requests, and a hatched area of denials.

import { svgElement } from "../format.js";

const WIDTH = 120;
const HEIGHT = 24;
const MOST_POINTS = 60;

/** The most requests in groups of steps, aligned at the newest. Null where nothing was measured. */
function points(steps, shown, read) {
  const all = [];
  const size = Math.ceil(shown / MOST_POINTS);
  for (let end = steps.length; end > steps.length - shown && end > 0; end -= size) {
    const group = steps.slice(Math.max(0, end - size), end).filter((step) => step !== null);
    all.unshift(group.length === 0 ? null : Math.max(...group.map(read)));
  }
  return all;
}

function path(values, most, last, isArea) {
  const x = (i) => (((last - (values.length - 1 - i)) / last) * WIDTH).toFixed(1);
  const y = (value) => (HEIGHT - 1 - (value / most) * (HEIGHT - 3)).toFixed(1);
  let drawn = "";
  for (let i = 0; i < values.length; i += 1) {
    if (values[i] === null) continue;
    const begins = i === 0 || values[i - 1] === null;
    const ends = i === values.length - 1 || values[i + 1] === null;
    if (begins && ends) {
      // A single step is as wide as a point.
      const [from, to] = [-1, 1].map((by) => (Number(x(i)) + by).toFixed(1));
      drawn += isArea ? `M${from} ${HEIGHT}V${y(values[i])}H${to}V${HEIGHT}Z` : `M${from} ${y(values[i])}H${to}`;
      continue;
    }
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
    /** Draws the steps of a limit. The width is the time of `shown` steps. */
    draw(steps, shown, isShadow) {
      const all = points(steps, shown, (step) => step.allowed + step.denied);
      const last = Math.ceil(shown / Math.ceil(shown / MOST_POINTS)) - 1;
      const most = Math.max(1, ...all);
      requests.setAttribute("d", path(all, most, last, false));
      const refused = points(steps, shown, (step) => step.denied);
      denied.setAttribute("d", refused.some((value) => value > 0) ? path(refused, most, last, true) : "");
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
