// The hottest keys of all limits together, by requests, tokens or denials.

import { element, percent, setText, shown } from "../format.js";
import { KINDS, NOUNS, ORDERS, errorNote, isCertain, uncertainNote } from "./keys.js";
import { bar, number, rowHead, setRows, table } from "./parts.js";
import { keyAddress, limitAddress } from "./route.js";
import { atMost, keyLabel } from "./words.js";

const MOST_ROWS = 8;
const BY = ["hits", "tokens", "denials"];

export class HotPanel {
  #by = "hits";
  #chosen = false; // by the reader

  constructor(section) {
    this.section = section;
    this.choices = BY.map((by) => {
      const input = element("input", { type: "radio", name: "hot-by", value: by, checked: by === this.#by, onchange: () => this.#choose(by) });
      return { input, label: element("label", {}, input, element("span", {}, ORDERS[by])) };
    });
    this.note = element("p.muted", {});
    this.body = element("tbody");
    this.table = table("Hottest keys of all limits", ["Key", "Limit", "#Count", "#Share of the limit|Share of all counts of the same limit", ""], this.body, "keys");
    section.append(element("div.panel-head", {}, element("h2", { id: "hot-title" }, "Hot keys"),
      element("fieldset.choices", {}, element("legend.screen-reader-only", {}, "Order of all keys"), ...this.choices.map(({ label }) => label))),
    this.note, this.table);
  }

  #choose(by) {
    this.#by = by;
    this.#chosen = true;
    if (this.model) this.#show();
  }

  render(model, isStep) {
    this.model = model;
    if (!isStep && this.shown) return;
    // Denied keys are what somebody on call looks for.
    const isDenying = model.limits.some(({ hot, policy }) => !policy.shadow && hot.denials?.keys.length > 0);
    if (!this.#chosen) {
      this.#by = isDenying ? "denials" : "hits";
      for (const { input } of this.choices) input.checked = input.value === this.#by;
    }
    if (!this.body.matches(":hover, :focus-within")) this.#show(); // rows stay where they are under the pointer
  }

  #show() {
    this.shown = true;
    const by = this.#by;
    const of = ({ name, hot }) => (hot[by]?.keys ?? []).map((row) => ({ ...row, name, part: hot[by].total > 0 ? row.count / hot[by].total : 0 }));
    const limits = this.model.limits.filter(({ policy }) => !policy.shadow && policy.key.length > 0);
    const all = limits.flatMap(of);
    const rows = all.filter(isCertain).sort((a, b) => b.count - a.count).slice(0, MOST_ROWS);
    this.table.hidden = rows.length === 0;
    setText(this.note, all.length === 0 ? `No key has ${NOUNS[by]}s in the last 5 to 10 minutes.`
      : rows.length === 0 ? `In the last 5 to 10 minutes: ${uncertainNote(all, NOUNS[by])}`
      : `Keys with the most ${NOUNS[by]}s in the last 5 to 10 minutes.${errorNote(rows)}`);
    setRows(this.body, rows.map(({ since, ...row }) => ({ ...row, by })), ({ name, key, count: times, error, part }) => element("tr", {},
      rowHead(element("a.key-name", { href: keyAddress(name, key) }, keyLabel(key))),
      element("td", {}, element("a", { href: limitAddress(name) }, shown(name))),
      number(atMost(times, error)), number(percent(part)), bar(part, null, KINDS[by])));
  }
}
