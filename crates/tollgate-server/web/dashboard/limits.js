// The table of limits: sorted, filtered, and at most a hundred rows at once, so that thousands of limits cost little.

import { count, element, percent, rate, setText, shown, span } from "../format.js";
import { isCertain } from "./keys.js";
import { setRows } from "./parts.js";
import { keyAddress, limitAddress } from "./route.js";
import { sparkline } from "./sparkline.js";
import { keyLabel, limitState, rule, variants } from "./words.js";

const PAGE = 100;
const HISTORY = 2; // the column of sparklines

const share = ({ allowed, denied }) => (allowed + denied > 0 ? denied / (allowed + denied) : null);

/** A shadow limit denies nothing, so it comes after all limits that deny. */
const denials = ({ policy, rates, recent }) =>
  policy.shadow ? [0, 0, rates.denied] : [rates.denied, recent.totals.denied, 0];

/** Columns. `by` is what rows are sorted by: a text, or numbers, the largest first. `help` says what the numbers are. */
const COLUMNS = [
  { id: "name", label: "Limit", help: "The limit, its algorithm and its numbers, as in the policy", by: ({ name }) => name },
  { id: "state", label: "State", help: "What the limit did in the last 5 seconds", by: ({ rates, recent }) => [rates.denied, rates.delayed, rates.allowed, recent.totals.allowed] },
  { id: "history", label: "Requests", help: "Requests as a line, denied requests as a hatched area (shadow: dashed)" },
  { id: "allowed", label: "Allowed/s", help: "Allowed requests per second, the mean of the last 5 seconds. Includes delayed requests", by: ({ rates }) => [rates.allowed], show: ({ rates }) => rates.allowed },
  { id: "denied", label: "Denied/s", help: "Denied requests per second, the mean of the last 5 seconds. Shadow: requests that the limit would deny", by: denials, show: ({ rates }) => rates.denied, isDenial: true },
  { id: "delayed", label: "Delayed/s", help: "Requests per second that are allowed after a delay, the mean of the last 5 seconds", by: ({ rates }) => [rates.delayed], show: ({ rates }) => rates.delayed, kind: "delayed" },
  { id: "share", label: "Denied\u202f%", help: "Share of denied requests in the last 5 seconds", by: ({ rates }) => [share(rates) ?? -1], show: ({ rates }) => share(rates), format: percent, isDenial: true },
  { id: "left", label: "Left, median", help: "Median of what remained of the limit, in the last 10 to 15 seconds", by: ({ remainingP50: left }) => [-(left ?? 2)], show: ({ remainingP50: left }) => left, format: percent },
  { id: "hottest", label: "Hottest key", help: "× Key with the most denials while the limit denies, else with the most requests, in the last 5 to 10 minutes" },
];

export class LimitsTable {
  #rows = new Map(); // of limits, by name
  #shown = PAGE;
  #sort = { id: "denied", isReversed: false };
  #filter = "";
  #order = [];
  #limits = [];
  #steps = null; // that sparklines show

  constructor(parent, sentence, filter) {
    this.sentence = sentence;
    this.body = element("tbody", { role: "rowgroup" });
    this.heads = COLUMNS.map((column) => this.#head(column));
    this.table = element("table.limits", { role: "table" },
      element("caption.screen-reader-only", {}, "Limits of the policy and what they do now"),
      element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...this.heads)), this.body);
    this.more = element("button", { type: "button", hidden: true, onclick: () => this.#showMore() });
    this.none = element("p.muted", { hidden: true });
    parent.append(this.table, this.none, this.more);
    filter.addEventListener("input", () => {
      this.#filter = filter.value.trim().toLowerCase();
      this.#shown = PAGE;
      this.#arrange();
    });
    this.body.addEventListener("click", ({ target }) => {
      if (!target.closest("a") && getSelection().isCollapsed) target.closest("tr")?.querySelector("a").click();
    });
  }

  #head({ id, label, help, by, show }) {
    const properties = { scope: "col", role: "columnheader", className: show ? "number" : "", title: help };
    if (!by) return element("th", properties, label);
    const button = element("button", { type: "button", onclick: () => this.#sortBy(id) }, label, element("span", { "aria-hidden": "true" }));
    return element("th", { ...properties, "aria-sort": "none" }, button);
  }

  #sortBy(id) {
    this.#sort = { id, isReversed: this.#sort.id === id && !this.#sort.isReversed };
    this.#arrange();
  }

  #showMore() {
    const next = this.#order[this.#shown];
    this.#shown += PAGE;
    this.#arrange();
    this.#rows.get(next.name).link.focus();
  }

  /** Shows what has changed. Rows move only with a step, and never under the pointer or the focus. */
  render(model, isStep) {
    this.#steps = model.shownSteps;
    if (this.#limits !== model.limits) {
      this.#limits = model.limits;
      // Rows of limits that are as before stay, with the focus.
      for (const [name, row] of this.#rows) if (row.made !== made(model.limit(name))) this.#rows.delete(name);
      this.#arrange();
    } else if (isStep && !this.body.matches(":hover, :focus-within")) {
      this.#arrange();
    }
    for (const limit of this.#order.slice(0, this.#shown)) fill(this.#rows.get(limit.name), limit, isStep ? model.shownSteps : null);
    setText(this.heads[HISTORY], `Requests, ${span(Math.ceil((model.shownSteps * model.step) / 60) * 60)}`);
    this.#sum(model);
  }

  #arrange() {
    const { id, isReversed } = this.#sort;
    const { by } = COLUMNS.find((column) => column.id === id);
    const matches = ({ name, policy: { algorithm, key, shadow } }) =>
      `${name} ${algorithm} ${key.join(" ")} ${shadow ? "shadow" : ""}`.toLowerCase().includes(this.#filter);
    const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : (b.find((value, i) => value !== a[i]) ?? 0) - (a.find((value, i) => value !== b[i]) ?? 0));
    const compared = this.#limits.filter(matches).map((limit) => ({ limit, by: by(limit) }));
    compared.sort((a, b) => (isReversed ? -1 : 1) * compare(a.by, b.by) || a.limit.number - b.limit.number);
    this.#order = compared.map(({ limit }) => limit);
    for (const [i, head] of this.heads.entries()) {
      if (!COLUMNS[i].by) continue;
      const isAscending = (i === 0) !== isReversed;
      const isSorted = COLUMNS[i].id === id;
      head.setAttribute("aria-sort", !isSorted ? "none" : isAscending ? "ascending" : "descending");
      setText(head.querySelector("span"), !isSorted ? "" : isAscending ? " ↑" : " ↓");
    }
    this.#place();
  }

  /** Puts the rows into their order. Rows that are already in place do not move. */
  #place() {
    const rows = this.#order.slice(0, this.#shown).map((limit) => {
      let row = this.#rows.get(limit.name);
      if (!row) {
        row = makeRow(limit);
        this.#rows.set(limit.name, row);
        fill(row, limit, this.#steps);
      }
      return row.node;
    });
    const wanted = new Set(rows);
    for (const row of [...this.body.children]) if (!wanted.has(row)) row.remove();
    let next = this.body.firstElementChild;
    for (const row of rows) {
      if (row === next) next = next.nextElementSibling;
      else this.body.insertBefore(row, next);
    }
    const hidden = this.#order.length - rows.length;
    this.more.hidden = hidden <= 0;
    setText(this.more, `Show ${count(Math.min(PAGE, hidden))} more of ${count(hidden)}`);
    this.none.hidden = rows.length > 0;
    setText(this.none, this.#filter ? `No limit matches “${this.#filter}”.` : "The policy has no limits.");
    this.table.hidden = rows.length === 0;
  }

  #sum({ limits, active, hasClearNames }) {
    const denying = [...active].filter(({ policy, rates }) => !policy.shadow && rates.denied > 0).length;
    const used = limits.filter(({ recent }) => recent.totals.allowed + recent.totals.denied > 0).length;
    const text = used === 0 ? `${count(limits.length)}, none used yet` : `${count(denying)} of ${count(limits.length)} denying`;
    setText(this.sentence, hasClearNames ? text : `${text}. Names of keys are hidden without the admin token.`);
  }
}

function makeRow(limit) {
  const more = variants(limit).join(" · ");
  const cells = COLUMNS.slice(3).map(({ label }) => element("td", { role: "cell", "data-label": label }));
  const mark = element("span.mark", { "aria-hidden": "true" });
  const text = element("span");
  const state = element("span", {}, mark, text);
  const spark = sparkline();
  const link = element("a.limit-name", { href: limitAddress(limit.name) }, shown(limit.name));
  const node = element("tr", { role: "row" },
    element("th", { scope: "row", role: "rowheader" }, link, element("code.muted", {}, rule(limit.policy)),
      more === "" ? null : element("span.variants", {}, more)),
    element("td.state-cell", { role: "cell" }, state), element("td", { role: "cell" }, spark.node), ...cells);
  return { made: made(limit), node, link, state, mark, text, cells, spark };
}

/** What a row is made of. A limit in which this has changed gets a new row. */
function made(limit) {
  return limit && JSON.stringify([limit.policy, limit.tierCount]);
}

/** The key that a row shows: the key with the most denials while there are any, else the busiest key. */
function hottestKey({ hot, rates, policy }) {
  const isDenied = rates.denied > 0 && (hot.denials?.keys.length ?? 0) > 0;
  const first = (isDenied ? hot.denials : hot.hits)?.keys[0];
  if (!first) return { text: "–" };
  if (!isCertain(first)) return { text: "no hot key" };
  if (!isDenied) return { key: first.key };
  return policy.shadow ? { key: first.key, mark: "◌", kind: "would", what: "would be denied most" } : { key: first.key, mark: "×", kind: "denied", what: "most denied key" };
}

/** `steps` is how many the sparkline shows. Null where it stays as it is. */
function fill(row, limit, steps) {
  const { policy, history } = limit;
  const { kind, mark, text } = limitState(limit);
  setClass(row.state, `state-word ${kind}`);
  row.node.classList.toggle("unused", kind === "unused");
  setText(row.mark, mark);
  setText(row.text, text);
  for (const [i, { show, format = rate, isDenial, kind: of }] of COLUMNS.slice(3, -1).entries()) {
    const value = show(limit);
    setText(row.cells[i], value === null ? "–" : format(value));
    setClass(row.cells[i], `number ${!value ? "none" : isDenial ? (policy.shadow ? "would" : "denied") : of ?? ""}`);
  }
  setRows(row.cells.at(-1), [hottestKey(limit)], ({ text, key, mark, kind, what }) => {
    if (!key) return element("span.none", {}, text);
    const name = element("a.key-name", { href: keyAddress(limit.name, key) }, keyLabel(key));
    return mark ? element("span", { className: `marked ${kind}`, title: what }, element("span.mark", { "aria-hidden": "true" }, mark), element("span.screen-reader-only", {}, `${what} `), name)
      : element("span.marked", {}, name);
  });
  if (steps !== null) row.spark.draw(history.all, steps, policy.shadow);
}

function setClass(node, name) {
  if (node.className !== name) node.className = name;
}
