// The right side: the selected decision in a sentence with its numbers, what the other lanes decided, and the decisions around it.

import { element, setText } from "../format.js";
import { SYMBOLS } from "./paint.js";
import { titleOf } from "./setup.js";

/** Seconds with as many digits as there are: `0.714285715 s`. */
export function exact(seconds) {
  return `${seconds.toFixed(9).replace(/\.?0+$/, "")} s`;
}

/** A moment of the timeline, to the millisecond: `5.63 s`. */
export function moment(seconds) {
  return exact(Number(seconds.toFixed(3)));
}

const UNITS = [[86_400e9, 2, "days"], [3600e9, 2, "h"], [60e9, 10, "min"], [1e9, 1, "s"], [1e6, 1, "ms"], [1000, 1, "us"], [1, 0, "ns"]];

/** A wait as the sentences write it, with at least three digits, rounded up: `715 ms`, `1.652 s`. */
export function wait(seconds) {
  const nanos = Math.round(seconds * 1e9);
  if (nanos === 0) return "0 s";
  const [unit, , name] = UNITS.find(([length, least]) => nanos >= length * least);
  const power = nanos >= 100 * unit ? 1 : nanos >= 10 * unit ? 10 : 1000;
  return `${Math.ceil((nanos * power) / unit) / power} ${name}`;
}

/** A time for people, with the exact one in its title. */
const timed = (shown, seconds) => element("span", { title: exact(seconds) }, shown);

const OUTCOMES = { allowed: "allowed", denied: "denied", delayed: "allowed, delayed" };

function mark(outcome) {
  return element("span", { className: `mark ${outcome}`, "aria-hidden": "true" }, SYMBOLS[outcome]);
}

/** Rows before and after the selected one. */
const AROUND = 3;

/** The clients with the most calls that are listed. */
const MOST_CLIENTS = 6;

export class Explanation {
  constructor(root, { onSelect, onLane }) {
    this.root = root;
    this.onSelect = onSelect;
    this.onLane = onLane;
    this.part = (name) => root.querySelector(`[data-part="${name}"]`);
  }

  /** Shows the decision `number` of a run, the sentences of the rule at `place` first. */
  show(run, number, place) {
    const rule = run.rules[place];
    const isEmpty = number === null || !rule;
    this.part("empty").hidden = !isEmpty;
    this.part("decision").hidden = isEmpty;
    if (isEmpty) return;
    const { at, cost } = run.arrivals;
    setText(this.part("which"), `Arrival ${number + 1} of ${run.count}`);
    const client = run.client(number);
    this.part("when").replaceChildren(
      "at ", timed(moment(at[number]), at[number]), `, costs ${cost[number]}${client ? `, from ${client}` : ""}`);
    const outcome = rule.outcomes[number];
    this.part("verdict").replaceChildren(mark(outcome), ` ${titleOf(rule.lane)}: `, element("span", { className: outcome }, OUTCOMES[outcome]));
    setText(this.part("sentence"), capital(run.sentence(place, number) ?? "…"));
    this.numbers(rule, number);
    this.others(run, number, place);
    this.table(run, number);
  }

  numbers(rule, number) {
    const { remaining, retry_after: retryAfter, reset_after: resetAfter, delay } = rule.decisions;
    const rows = [["Remaining", String(remaining[number])]];
    if (rule.outcomes[number] === "denied") {
      rows.push(["Retry after", rule.never.has(number) ? "never" : timed(wait(retryAfter[number]), retryAfter[number])]);
    }
    if (delay[number] > 0) rows.push(["Delay", timed(wait(delay[number]), delay[number])]);
    rows.push(["Reset after", timed(wait(resetAfter[number]), resetAfter[number])]);
    this.part("numbers").replaceChildren(...rows.map(([name, value]) =>
      element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  }

  /** The other lanes. Lanes that decided otherwise come first. */
  others(run, number, place) {
    const verdict = run.rules[place].decisions.allowed[number];
    const others = run.rules.map((rule, other) => ({ rule, other })).filter(({ other }) => other !== place);
    const isOtherwise = ({ rule }) => rule.decisions.allowed[number] !== verdict;
    const item = ({ rule, other }) => element("li", {},
      element("button", { type: "button", className: "plain", onclick: () => this.onLane(other) },
        mark(rule.outcomes[number]), ` ${titleOf(rule.lane)} `,
        element("span", { className: rule.outcomes[number] }, OUTCOMES[rule.outcomes[number]])),
      element("p", {}, capital(run.sentence(other, number) ?? "…")));
    const groups = [
      ["Decided otherwise", others.filter(isOtherwise)],
      ["Decided the same", others.filter((other) => !isOtherwise(other))],
    ];
    this.part("others").replaceChildren(...groups.filter(([, list]) => list.length > 0).flatMap(([title, list]) =>
      [element("h3", {}, title), element("ul", { className: "others" }, list.map(item))]));
  }

  /** How many calls of each client were denied. */
  showClients(run) {
    const clients = run.clients.map((name) => ({ name: name || "no name", calls: 0, denied: run.rules.map(() => 0) }));
    run.arrivals.client.forEach((client, number) => {
      clients[client].calls += 1;
      run.rules.forEach(({ decisions }, place) => (clients[client].denied[place] += decisions.allowed[number] ? 0 : 1));
    });
    const rows = clients.sort((a, b) => b.calls - a.calls).slice(0, MOST_CLIENTS).map(({ name, calls, denied }) => element("tr", {},
      element("th", { scope: "row" }, `${name} `, element("span", { className: "muted" }, `of ${calls}`)),
      denied.map((number) => element("td", { className: number > 0 ? "denied" : "muted" }, String(number)))));
    this.part("by-client").hidden = clients.length < 2;
    this.part("clients").replaceChildren(heads(run, "Client"), element("tbody", {}, rows));
  }

  table(run, number) {
    const from = Math.max(0, Math.min(number - AROUND, run.count - 2 * AROUND - 1));
    const rows = [];
    for (let row = from; row < Math.min(run.count, from + 2 * AROUND + 1); row += 1) {
      const time = moment(run.arrivals.at[row]);
      rows.push(element("tr", { className: row === number ? "selected" : null, "aria-current": row === number ? "true" : null },
        element("th", { scope: "row" }, element("button", { type: "button", className: "plain", onclick: () => this.onSelect(row) }, time)),
        run.rules.map((rule) => element("td", {}, mark(rule.outcomes[row]),
          element("span", { className: "screen-reader-only" }, OUTCOMES[rule.outcomes[row]])))));
    }
    const focused = this.part("table").contains(document.activeElement);
    this.part("table").replaceChildren(heads(run, "Time"), element("tbody", {}, rows));
    if (focused) this.part("table").querySelector(".selected button")?.focus();
  }
}

/** The head of a table with a column per lane. */
function heads(run, first) {
  return element("thead", {}, element("tr", {}, element("th", { scope: "col" }, first), run.rules.map(({ lane }) =>
    element("th", { scope: "col", title: titleOf(lane) }, element("span", { "aria-hidden": "true" }, String(lane.place + 1)),
      element("span", { className: "screen-reader-only" }, titleOf(lane))))));
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

/** A decision for screen readers: the sentence of the lane, then how the others decided. */
export function spoken(run, number, place) {
  const names = (outcome) => run.rules.filter((rule, other) => other !== place && rule.outcomes[number] === outcome).map(({ lane }) => titleOf(lane));
  const parts = Object.keys(OUTCOMES).map((outcome) => [OUTCOMES[outcome], names(outcome)]).filter(([, list]) => list.length > 0);
  const others = parts.map(([outcome, list]) => `${list.join(", ")}: ${outcome}.`).join(" ");
  const rule = run.rules[place];
  return `Arrival ${number + 1} at ${moment(run.arrivals.at[number])}. ${titleOf(rule.lane)}: ${run.sentence(place, number) ?? OUTCOMES[rule.outcomes[number]]}. ${others}`;
}
