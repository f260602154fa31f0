// The left side: sliders with their number fields, whether clients share a state, and the policy that they produce.

import { element, setText } from "../format.js";
import { activeLanes, numbersOf, titleOf } from "./setup.js";

const COUNTS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 150, 200, 300, 500, 1000];
const WINDOWS = [0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60, 120, 300, 600, 1800, 3600];

/** The sliders. A slider moves over `steps`, its field takes any number from `least` to `most`. */
const FIELDS = [
  { name: "rate", title: "Rate", hint: "per window; also the limit", steps: COUNTS, least: 1, most: 1e6 },
  { name: "window", title: "Window", hint: "seconds; the period of the rate", steps: WINDOWS, least: 0.001, most: 86_400 },
  { name: "burst", title: "Burst", hint: "what a bucket or queue holds", steps: COUNTS, least: 1, most: 1e6 },
  { name: "cost", title: "Cost", hint: "of each arrival", steps: COUNTS.slice(0, 13), least: 1, most: 1e6 },
];

export class Controls {
  /** `onChange(name, change)` gets a function that changes a set-up. */
  constructor(root, { onChange, onLane }) {
    this.fields = new Map();
    [this.scope, this.by, this.policy, this.fault] = ["#scope", "#by", "#policy", "#numbers-fault"].map((id) => root.querySelector(id));
    root.querySelector("#sliders").replaceChildren(...FIELDS.map((field) => this.field(field, onChange)));
    this.scope.addEventListener("change", () => {
      if (this.scope.value === "all") onChange("scope", (setup) => setup.lanes.forEach((lane) => (lane.own = null)));
      else onLane(Number(this.scope.value));
    });
    this.by.addEventListener("change", () => {
      const by = this.by.checked ? "client" : "global";
      onChange("by", (setup) => this.targets(setup).forEach((lane) => (lane.by = by)));
    });
    root.querySelector("#copy-policy").addEventListener("click", (event) => copy(event.currentTarget, this.policy.textContent));
  }

  /** The lanes that a change is for. */
  targets(setup) {
    return this.scope.value === "all" ? setup.lanes : [setup.lanes[Number(this.scope.value)]];
  }

  field({ name, title, hint, steps, least, most }, onChange) {
    const id = `number-${name}`;
    const isWhole = name !== "window";
    const number = element("input", {
      id, type: "number", min: String(least), max: String(most), step: isWhole ? "1" : "any", "aria-describedby": `hint-${name}`,
    });
    const slider = element("input", { type: "range", min: "0", max: String(steps.length - 1), "aria-label": `${title}, slider` });
    const set = (value) => {
      const isRight = value >= least && value <= most && (!isWhole || Number.isInteger(value));
      number.setAttribute("aria-invalid", String(!isRight));
      if (isRight) onChange(name, (setup) => this.apply(setup, name, value));
      else setText(this.fault, `${title} is ${number.value || "empty"}: write a ${isWhole ? "whole " : ""}number from ${least} to ${most}.`);
    };
    number.addEventListener("input", () => set(number.value === "" ? NaN : Number(number.value)));
    slider.addEventListener("input", () => set(steps[Number(slider.value)]));
    this.fields.set(name, { number, slider, steps });
    return element("div", { className: "field" },
      element("label", { for: id }, title, element("span", { id: `hint-${name}`, className: "muted hint" }, hint)), number, slider);
  }

  apply(setup, name, value) {
    if (name === "cost") setup.cost = value;
    else if (this.scope.value === "all") setup.numbers[name] = value;
    else {
      const lane = setup.lanes[Number(this.scope.value)];
      lane.own = { ...numbersOf(setup, lane), [name]: value };
    }
  }

  /** Shows the numbers, and the limit of the selected rule as it stands in a policy file. */
  show(setup, rule) {
    this.showPolicy(rule);
    const lanes = activeLanes(setup);
    const hasOwn = setup.lanes.some((lane) => lane.on && lane.own);
    const before = this.scope.value;
    this.scope.replaceChildren(
      element("option", { value: "all" }, "all lanes"),
      ...lanes.map((lane) => element("option", { value: String(lane.place) }, `${lane.place + 1} ${titleOf(lane)} only`)));
    const wanted = hasOwn ? String(rule.lane.place) : before || "all";
    this.scope.value = [...this.scope.options].some(({ value }) => value === wanted) ? wanted : "all";
    const target = this.scope.value === "all" ? null : setup.lanes[Number(this.scope.value)];
    const numbers = { ...(target ? numbersOf(setup, target) : setup.numbers), cost: setup.cost };
    for (const [name, { number, slider, steps }] of this.fields) {
      const value = numbers[name];
      if (Number(number.value) !== value || number.value === "") number.value = String(value);
      number.setAttribute("aria-invalid", "false");
      slider.value = String(nearest(steps, value));
      slider.setAttribute("aria-valuetext", name === "window" ? `${value} seconds` : String(value));
    }
    const targets = target ? [target] : setup.lanes.filter(({ on }) => on);
    this.by.checked = targets.every(({ by }) => by === "client");
    this.by.indeterminate = !this.by.checked && targets.some(({ by }) => by === "client");
  }

  showPolicy(rule) {
    const name = rule.name.toLowerCase().replace(/[^a-z0-9]+/g, "-");
    const key = rule.by === "client" ? "[user]" : "[]";
    const numbers = rule.policy.replace(/^\w+: \{ | \}$/g, "").split(", ");
    const lines = ["limits:", `  - name: ${name}`, `    key: ${key}`, `    ${rule.algorithm}:`, ...numbers.map((number) => `      ${number}`)];
    setText(this.policy, `${lines.join("\n")}\n`);
  }
}

function nearest(steps, value) {
  const distances = steps.map((step) => Math.abs(Math.log(step / value)));
  return distances.indexOf(Math.min(...distances));
}

/** Copies a text, and confirms it on the button. Without a clipboard, selects the text for the reader to copy. */
export async function copy(button, text, done = "Copied") {
  const before = button.dataset.label ?? button.textContent;
  button.dataset.label = before;
  try {
    await navigator.clipboard.writeText(text);
    setText(button, done);
  } catch {
    setText(button, "Press Ctrl+C to copy");
    const field = element("textarea", { value: text, className: "screen-reader-only", "aria-hidden": "true", tabIndex: -1 });
    button.after(field);
    field.select();
    document.execCommand("copy") && setText(button, done);
    field.remove();
    button.focus();
  }
  setTimeout(() => setText(button, before), 2000);
}
