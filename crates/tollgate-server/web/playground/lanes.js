// The lanes of a run: for each its name and counts, the picture of its mechanism, and its timeline.

import { element, setText } from "../format.js";
import { arrivalAt, bandsOf, drawLane, labelsOf, symbolAt } from "./lane.js";
import { drawMechanism } from "./mechanism.js";
import { SYMBOLS, short, shortTime } from "./paint.js";
import { titleOf } from "./setup.js";
import { stackOf } from "./timeline.js";

/** In the order of their counts: the delayed arrivals are some of the allowed ones. */
const OUTCOMES = ["allowed", "delayed", "denied"];

const GCRA_NOTE =
  "GCRA is a way to compute a token bucket: same decisions. TAT (theoretical arrival time): when the ruler would be empty.";

export class Lanes {
  constructor(root, { onSelect, onLane }) {
    Object.assign(this, { root, onSelect, onLane, lanes: [] });
  }

  /** Shows the rules of a run. Elements of lanes that stay are kept. */
  setRun(run) {
    this.run = run;
    const names = run.rules.map(({ lane }) => `${lane.place} ${titleOf(lane)}`).join();
    if (this.names !== names) {
      this.names = names;
      this.lanes = run.rules.map((rule, place) => this.build(rule, place));
      this.root.replaceChildren(...this.lanes.map(({ node }) => node));
    }
    this.lanes.forEach((lane, place) => {
      lane.rule = run.rules[place];
      lane.most.title = lane.rule.rateLine === null ? "" : "A bucket lets at most its burst and rate × window through in any window";
      setText(lane.policy, lane.rule.policy.replace(/^\w+: \{ | \}$/g, ""));
    });
  }

  build(rule, place) {
    const title = titleOf(rule.lane);
    const overlay = (className) => element("i", { className });
    const name = element("button", { type: "button", className: "lane-name", onclick: () => this.onLane(place) },
      element("kbd", {}, String(rule.lane.place + 1)), ` ${title}`);
    const policy = element("code", { className: "lane-policy" });
    const tallies = OUTCOMES.map(() => element("span"));
    const counts = OUTCOMES.map((outcome, number) => element("span", { className: outcome },
      element("span", { "aria-hidden": "true" }, `${outcome === "delayed" ? "(" : ""}${SYMBOLS[outcome]} `), tallies[number],
      outcome === "delayed" ? " of them delayed)" : element("span", { className: "screen-reader-only" }, ` ${outcome}, `)));
    const most = element("span", { className: "most" });
    const picture = element("canvas", { className: "mechanism", role: "img" });
    const canvas = element("canvas", { role: "img" });
    const [future, head, ring] = ["future", "head", "ring"].map(overlay);
    const labels = element("div", { "aria-hidden": "true" });
    const plot = element("div", { className: "plot" }, canvas, future, head, ring, labels);
    plot.addEventListener("click", (event) => {
      const { left, top } = canvas.getBoundingClientRect();
      this.onSelect(arrivalAt(this.stack, this.run, this.view, this.width, event.clientX - left, event.clientY - top), place);
    });
    const node = element("section", { className: "panel lane", "aria-label": title },
      element("div", { className: "lane-head" }, element("h2", {}, name), policy, element("p", { className: "lane-counts" }, counts, most)),
      rule.lane.kind === "gcra" ? element("p", { className: "muted small lane-note" }, GCRA_NOTE) : null,
      element("div", { className: "lane-body" }, picture, plot));
    return { node, name, policy, counts, tallies, most, picture, canvas, future, head, ring, labels };
  }

  /** The width of the timelines in pixels. */
  get width() {
    return this.lanes[0]?.canvas.clientWidth ?? 0;
  }

  /** Draws the timelines. */
  draw(view) {
    this.view = view;
    const { width } = this;
    if (width === 0) return;
    this.stack = stackOf(this.run, view, width);
    const { height } = bandsOf(this.stack.height);
    for (const lane of this.lanes) {
      lane.canvas.style.height = `${height}px`;
      lane.labels.replaceChildren(...labelsOf(lane.rule, this.stack).map(([text, isRight, middle]) => {
        const node = element("span", { className: isRight ? "tag right" : "tag" }, text);
        node.style.top = `${middle}px`;
        return node;
      }));
      drawLane(lane.canvas, lane.rule, view, this.stack);
    }
  }

  choose(chosen) {
    this.lanes.forEach(({ node, name }, place) => {
      node.classList.toggle("chosen", place === chosen);
      name.setAttribute("aria-current", String(place === chosen));
    });
  }

  /** Moves the play head: pictures, counts and what is still to come. */
  move(time, selected, isPlaying) {
    if (!this.stack) return;
    const part = Math.min(1, Math.max(0, (time - this.view.from) / this.view.length));
    const seen = selected !== null && this.run.arrivals.at[selected] === time ? selected + 1 : this.run.countUpTo(time);
    const symbol = symbolAt(this.stack, selected);
    for (const { rule, counts, tallies, most, picture, canvas, future, head, ring } of this.lanes) {
      future.style.left = head.style.left = `${part * 100}%`;
      head.hidden = !this.view.has(time);
      ring.hidden = !symbol;
      if (symbol) [ring.style.left, ring.style.top] = symbol.map((pixels) => `${pixels}px`);
      const tally = rule.tally(seen);
      OUTCOMES.forEach((outcome, number) => setText(tallies[number], String(tally[outcome])));
      counts[1].hidden = rule.delayed === 0;
      const sum = rule.mostUpTo(time);
      const isOver = rule.limit !== null && sum > rule.limit;
      const later = sum < rule.most ? `, later ${short(rule.most)}` : "";
      setText(most, `most in any ${shortTime(rule.window_for_most)}: ${short(sum)}${later}${boundOf(rule)}${isOver ? " ▲" : ""}`);
      most.classList.toggle("denied", isOver);
      const words = drawMechanism(picture, rule, time, selected);
      if (isPlaying) continue;
      picture.setAttribute("aria-label", words);
      canvas.setAttribute("aria-label",
        `${rule.allowed} allowed, ${rule.denied} denied, ${rule.delayed} delayed. The table of decisions has those around the selected one.`);
    }
  }
}

/** How much can pass in any window: the limit of windows, logs and queues, or the burst and what the rate adds to it. */
function boundOf({ limit, rateLine, algorithm, capacity }) {
  if (limit !== null) return `, limit ${short(limit)}`;
  return rateLine !== null && algorithm === "token_bucket" ? ` (burst ${short(capacity)} + ${short(rateLine)})` : "";
}
