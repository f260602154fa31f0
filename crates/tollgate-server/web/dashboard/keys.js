// The hot keys of a limit, in one of their orders, with counts and the bound of their error.

import { call, query } from "./api.js";
import { clock, count, element, percent, setText } from "../format.js";
import { keyAddress } from "./route.js";
import { bar, muted, number, rowHead, setRows, table } from "./parts.js";
import { keyLabel } from "./words.js";

const ORDERS = { hits: "Requests", tokens: "Tokens", denials: "Denials", newly_denied: "Newly denied" };

/** Whether most of a count is certain. */
export function isCertain({ count: of, error }) {
  return error * 2 <= of;
}

export class KeysPanel {
  #lists;
  #by;

  constructor(parent, limit) {
    this.limit = limit;
    const { shadow } = limit.policy;
    this.#lists = limit.hot;
    this.#by = shadow ? "newly_denied" : "hits";
    const orders = Object.entries(ORDERS).filter(([by]) => shadow || by !== "newly_denied");
    const choice = ([by, label]) => {
      const input = element("input", { type: "radio", name: "by", value: by, checked: by === this.#by, onchange: () => this.#order(by) });
      return element("label", {}, input, element("span", {}, shadow && by === "denials" ? "Would deny" : label));
    };
    this.note = element("p.muted", {});
    this.body = element("tbody");
    this.table = table("Hot keys", ["Key", "#Count", "#Share", "", "#Hot since"], this.body, "keys");
    parent.append(element("div.panel-head", {}, element("h3", {}, "Hot keys"),
      element("fieldset.choices", {}, element("legend.screen-reader-only", {}, "Order of keys"), ...orders.map(choice))),
    this.note, this.table);
    this.#show();
  }

  /** Gets the lists again: the frames have fewer keys, and only of the busiest limits. */
  async refresh() {
    const { limits } = await call("GET", `/v1/hot${query({ limit: this.limit.name })}`);
    this.#lists = limits[this.limit.name] ?? {};
    if (!this.body.matches(":hover, :focus-within")) this.#show(); // rows stay where they are under the pointer
  }

  #order(by) {
    this.#by = by;
    this.#show();
  }

  #show() {
    const { keys: all = [], total = 0, error_bound: error = 0 } = this.#lists[this.#by] ?? {};
    // A count that is mostly error tells nothing of its key.
    const certain = all.filter(isCertain);
    const keys = certain.length > 0 ? certain : all;
    this.table.hidden = keys.length === 0;
    const bound = error > 0 ? `A count may be too high by its ±, never too low. No key that is missing has more than ${count(error)}.` : "The counts are exact.";
    const more = all.length > keys.length ? ` ${all.length - keys.length} more keys have counts that are mostly error.` : "";
    setText(this.note, keys.length === 0 ? NONE[this.#by] : `${count(total)} ${WHAT[this.#by]} in the last 5 to 10 minutes. ${bound}${more}`);
    setRows(this.body, keys, ({ key, count: of, error: over, since }) => element("tr", {},
      rowHead(element("a.key-name", { href: keyAddress(this.limit.name, key) }, keyLabel(key))),
      number(count(of), over > 0 ? muted(` ±${count(over)}`) : null), number(percent(total > 0 ? of / total : 0)), bar(total > 0 ? of / total : 0),
      number(clock(since))));
  }
}

const WHAT = { hits: "requests", tokens: "tokens", denials: "denials", newly_denied: "requests that only this limit would have denied" };

const NONE = {
  hits: "No key has had a request in the last 5 to 10 minutes.", tokens: "No key has used a token in the last 5 to 10 minutes.",
  denials: "No key was denied in the last 5 to 10 minutes.", newly_denied: "This limit would have denied nothing that the other limits allowed, in the last 5 to 10 minutes.",
};
