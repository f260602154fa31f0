// The hot keys of a limit, in one of their orders, with counts and the bound of their error.

import { call, own, query } from "./api.js";
import { clock, count, counted, element, percent, setText } from "../format.js";
import { keyAddress } from "./route.js";
import { bar, muted, number, rowHead, setRows, table } from "./parts.js";
import { atMost, keyLabel } from "./words.js";

export const ORDERS = { hits: "Requests", tokens: "Tokens", denials: "Denials", newly_denied: "Newly denied" };

/** Whether most of a count is certain. A count that is mostly error does not show that its key is hot. */
export function isCertain({ count: of, error }) {
  return error * 2 <= of;
}

/** What `≤` means in a table of keys. Empty if all its counts are exact. */
export function errorNote(keys) {
  const most = Math.max(0, ...keys.map(({ error }) => error));
  return most > 0 ? ` A count with ≤ may be up to ${count(most)} too high, never too low.` : "";
}

/** Why keys are not listed. */
export function uncertainNote(keys, noun) {
  const most = Math.max(...keys.map(({ count: of }) => of));
  return `No key stands out: ${keys.length === 1 ? "1 key has" : `${count(keys.length)} keys have`} at most ${counted(most, noun)} each, but these counts are mostly error.`;
}

export class KeysPanel {
  #lists;
  #by = null;
  #isChosen = false; // by the reader

  constructor(parent, limit) {
    this.limit = limit;
    const { shadow } = limit.policy;
    this.#lists = limit.hot;
    const orders = Object.entries(ORDERS).filter(([by]) => shadow || by !== "newly_denied");
    this.inputs = orders.map(([by]) => element("input", { type: "radio", name: "by", value: by, onchange: () => this.#order(by) }));
    const labels = orders.map(([by, label], i) => element("label", {}, this.inputs[i], element("span", {}, shadow && by === "denials" ? "Would deny" : label)));
    this.note = element("p.muted", {});
    this.body = element("tbody");
    this.table = table("Hot keys", ["Key", "#Count", "#Share|Share of all counts of this limit", "", "#Hot since|Since when the key is among the hottest keys"], this.body, "keys");
    parent.append(element("div.panel-head", {}, element("h3", {}, "Hot keys"),
      element("fieldset.choices", {}, element("legend.screen-reader-only", {}, "Order of keys"), ...labels)),
    this.note, this.table);
    this.#show();
  }

  /** Gets the lists again, because frames have fewer keys and only the busiest limits. */
  async refresh() {
    const { limits } = await call("GET", `/v1/hot${query({ limit: this.limit.name })}`);
    this.#lists = own(limits, this.limit.name) ?? {};
    if (!this.body.matches(":hover, :focus-within")) this.#show(); // rows stay where they are under the pointer
  }

  #order(by) {
    this.#by = by;
    this.#isChosen = true;
    this.#show();
  }

  #show() {
    if (!this.#isChosen) {
      // Denied keys are what somebody on call looks for.
      this.#by = this.limit.policy.shadow ? "newly_denied" : this.#lists.denials?.keys.length > 0 ? "denials" : "hits";
      for (const input of this.inputs) input.checked = input.value === this.#by;
    }
    const { keys: all = [], total = 0, error_bound: error = 0 } = this.#lists[this.#by] ?? {};
    const keys = all.filter(isCertain);
    const { shadow } = this.limit.policy;
    const noun = shadow ? NOUNS_OF_SHADOW[this.#by] : NOUNS[this.#by];
    this.table.hidden = keys.length === 0;
    const ending = `${(shadow && ENDINGS[this.#by]) || ""} in the last 5 to 10 minutes.`;
    const others = error > 0 ? ` Keys that are not listed have at most ${count(error)}.` : "";
    setText(this.note, all.length === 0 ? NONE[this.#by]
      : keys.length === 0 ? `${counted(total, noun)}${ending} ${uncertainNote(all, noun)}`
      : `${counted(total, noun)}${ending}${errorNote(keys)}${all.length > keys.length ? hiddenNote(all.length - keys.length) : others}`);
    const kind = shadow && this.#by === "denials" ? "shadow" : KINDS[this.#by];
    setRows(this.body, keys.map((of) => ({ ...of, part: total > 0 ? of.count / total : 0, kind })), ({ key, count: of, error: over, since, part }) => element("tr", {},
      rowHead(element("a.key-name", { href: keyAddress(this.limit.name, key) }, keyLabel(key))),
      number(atMost(of, over)), number(percent(part)), bar(part, null, kind), number(clock(since))));
  }
}

function hiddenNote(number) {
  return number === 1 ? " 1 more key is not listed: its count is mostly error." : ` ${count(number)} more keys are not listed: their counts are mostly error.`;
}

export const NOUNS = { hits: "request", tokens: "token", denials: "denial" };
const NOUNS_OF_SHADOW = { ...NOUNS, denials: "request", newly_denied: "request" };
const ENDINGS = { denials: " that this limit would have denied", newly_denied: " that only this limit would have denied" };

/** The colour of bars. */
export const KINDS = { hits: "allowed", tokens: "allowed", denials: "denied", newly_denied: "shadow" };

const NONE = {
  hits: "No key has had a request in the last 5 to 10 minutes.", tokens: "No key has used a token in the last 5 to 10 minutes.",
  denials: "No key was denied in the last 5 to 10 minutes.", newly_denied: "This limit would have denied nothing that the other limits allowed, in the last 5 to 10 minutes.",
};
