// One key of a limit, or one request: which limits apply and why, what is left, and until when. Asked again every second.

import { Refused, call, hasToken, query } from "./api.js";
import { confirmed } from "./dialogs.js";
import { clock, count, element, setText, span } from "../format.js";
import { picture, unit } from "./picture.js";
import { Facts, ago, muted, named, number, rowHead, setNamed, setRows, table } from "./parts.js";
import { exampleRequest, keyAttributes, parseRequest, writeRequest } from "./request.js";
import { keyAddress, limitAddress, requestAddress } from "./route.js";
import { isSoon, keyLabel, rule } from "./words.js";

const MOST_ROWS = 100;
const UNKNOWN = "The request behind this key is not known, so its state cannot be shown.";

export class KeyView {
  #model;
  #isAsking = false;
  #hot = null;

  /** `limit` is null for a request that is looked up. `services` are what the page offers: `askForToken` and `announce`. */
  constructor(parent, { limit, key, request }, model, services) {
    Object.assign(this, { limit, key, services });
    this.#model = model;
    const isHidden = request === null && !model.hasClearNames && key.length === 1 && /^[\da-f]{16}$/.test(key[0]);
    this.attributes = isHidden ? null : request !== null ? tried(request) : exampleRequest(limit.policy, key);
    const title = element("h2.detail-title", { tabIndex: -1 },
      limit ? [element("span.key-name", {}, keyLabel(key)), muted(` of ${limit.name}`)] : "Request");
    this.sentence = element("p.sentence", {}, isHidden ? "The name of this key is hidden." : "");
    this.body = element("div");
    this.facts = new Facts();
    this.drawing = element("div.drawing", {});
    this.why = element("p.muted", {});
    const crumbs = [element("a", { href: "#" }, "All limits"), limit ? [" / ", element("a", { href: limitAddress(limit.name) }, limit.name)] : []].flat();
    parent.append(element("nav.crumbs", { "aria-label": "Path" }, ...crumbs),
      element("section.panel", {}, title, this.sentence, this.why,
        limit ? [element("div.key-state", {}, this.drawing, this.facts.node), this.#actions(isHidden)] : []), this.body);
    if (isHidden) setText(this.why, "The service shows names of keys to admins only. Others see a hash, which is the same for as long as the service runs.");
    else if (this.attributes === null) setText(this.sentence, UNKNOWN);
    else this.#explanation();
  }

  destroy() {}

  render(model, isStep) {
    this.#model = model;
    if (isStep || this.#hot === null) this.#findHot();
    this.#ask();
    if (this.attributes === null) this.facts.set(this.#hotFacts());
  }

  #actions(isHidden) {
    const { limit } = this;
    const token = element("button", { type: "button", onclick: () => this.services.askForToken() }, "Enter admin token");
    if (isHidden || !this.#model.hasClearNames) return element("div.actions", {}, token, muted(isHidden ? "to see this key, peek and reset" : "to peek and reset"));
    this.result = element("p.result", { role: "status" });
    if (keyAttributes(limit.policy, this.key) === null) return "";
    return element("div.actions", {},
      element("button", { type: "button", onclick: () => this.#peek() }, "Peek"),
      element("button", { type: "button", onclick: () => this.#reset() }, "Reset key"), this.result);
  }

  #explanation() {
    const input = element("input", { type: "text", id: "request", value: writeRequest(this.attributes), autocomplete: "off", spellcheck: false });
    const error = element("p.warning", { role: "alert" });
    const form = element("form.request-form", {}, element("label", { for: "request" }, "Request"), input, element("button", { type: "submit" }, "Explain"), error);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      try {
        parseRequest(input.value);
        error.textContent = "";
        location.hash = requestAddress(input.value.trim());
      } catch (fault) {
        error.textContent = fault.message;
      }
    });
    this.applying = element("tbody");
    this.others = element("ul.plain-list", {});
    this.othersTitle = element("summary");
    this.othersBox = element("details", { hidden: true }, this.othersTitle, this.others);
    this.body.append(element("section.panel", {}, element("h3", {}, "Limits of this request"),
      element("p.muted", {}, this.limit ? "A request of this key to which the limit applies. Nothing is charged." : "Nothing is charged."), form,
      table("Limits that apply to the request", ["Limit", "Key", "Decision", "#Left", "Why it applies"], this.applying, "explain"), this.othersBox));
  }

  async #ask() {
    if (this.attributes === null || this.#isAsking) return;
    this.#isAsking = true;
    try {
      this.#explain(await call("POST", "/v1/explain", { attributes: this.attributes }));
    } catch (reason) {
      if (reason instanceof Refused && reason.status > 0) setText(this.sentence, `The service does not explain this: ${reason.message}`);
      else if (!(reason instanceof Refused)) throw reason;
    } finally {
      this.#isAsking = false;
    }
  }

  #explain({ tier, limits }) {
    const applying = limits.filter(({ applies }) => applies).slice(0, MOST_ROWS);
    const others = limits.filter(({ applies }) => !applies);
    if (this.limit) this.#state(limits.find(({ name }) => name === this.limit.name), tier);
    else setNamed(this.sentence, verdict(applying, this.#model), this.#model.byName);
    const request = writeRequest(this.attributes);
    setRows(this.applying, applying.map((of) => [of, decision(of, this.#model)]), ([of, decides]) => element("tr", {},
      rowHead(element("a", { href: limitAddress(of.name) }, of.name)),
      element("td", {}, element("a.key-name", { href: keyAddress(of.name, of.key, request) }, keyLabel(of.key))),
      element("td", { className: of.allowed ? "" : of.shadow ? "would" : "denied" }, decides),
      number(`${count(of.remaining)} of ${count(of.limit)}`), element("td.muted", {}, ...named(of.why))));
    this.othersBox.hidden = others.length === 0;
    setText(this.othersTitle, `${count(others.length)} ${others.length === 1 ? "limit does" : "limits do"} not apply`);
    setRows(this.others, others.slice(0, MOST_ROWS), ({ name, why }) =>
      element("li", {}, element("a", { href: limitAddress(name) }, name), element("span.muted", {}, ": ", ...named(why))));
  }

  #state(of, tier) {
    // A key by tier is that of a tenant, who is not known.
    const isOther = of?.applies && JSON.stringify(of.key) !== JSON.stringify(this.key);
    if (!of?.applies || isOther) {
      setText(this.sentence, isOther ? UNKNOWN : "The limit does not apply to this request.");
      setNamed(this.why, isOther ? "" : of?.why ?? "");
      this.drawing.replaceChildren();
      this.facts.set(this.#hotFacts());
      return;
    }
    const word = decision(of, this.#model);
    const left = of.allowed ? `: ${count(of.remaining)} of ${count(of.limit)} ${unit(of.algorithm_in_use, of.limit)} left` : "";
    setText(this.sentence, `${of.shadow ? "Shadow: " : ""}${of.shadow ? word : word[0].toUpperCase() + word.slice(1)}${left}.`);
    const numbers = this.#numbers(tier, of.limit);
    const written = numbers ? `\`${rule({ algorithm: of.algorithm, numbers })}\`` : `\`${of.algorithm}\` with numbers of this tenant`;
    setNamed(this.why, `${written}${tier ? `, tier \`${tier}\`` : ""}`);
    const drawn = { algorithm: of.algorithm_in_use, limit: of.limit, remaining: of.remaining, resetAfter: of.reset_after, numbers: numbers ?? {} };
    setRows(this.drawing, [drawn], picture);
    const at = (seconds) => `${isSoon(seconds)}, at ${clock(this.#model.now + seconds)}`;
    this.facts.set([
      ["Left", `${count(of.remaining)} of ${count(of.limit)} ${unit(of.algorithm, of.limit)}`],
      ["Next request allowed", of.allowed ? "now" : of.retry_after === null ? "not known" : at(of.retry_after), of.allowed ? "" : of.shadow ? "would" : "denied"],
      ["Full again", of.reset_after > 0 ? at(of.reset_after) : "now"],
      ...this.#hotFacts(),
    ]);
  }

  /** The numbers of the tier. Null if a tenant has others, which the policy in the frames does not have. */
  #numbers(tier, capacity) {
    const numbers = this.limit.policy.tiers[tier] ?? this.limit.policy.numbers;
    const written = Number(numbers.burst ?? numbers.limit ?? numbers.queue);
    return Number.isNaN(written) || written === capacity ? numbers : null;
  }

  async #findHot() {
    if (!this.limit) return;
    this.#hot = this.#hot ?? this.limit.hot;
    try {
      const { limits } = await call("GET", `/v1/hot${query({ limit: this.limit.name })}`);
      this.#hot = limits[this.limit.name] ?? {};
    } catch {
      // The stream says that the connection is lost.
    }
  }

  #hotFacts() {
    if (!this.limit) return [];
    const label = JSON.stringify(this.key);
    const find = (by) => this.#hot?.[by]?.keys.find(({ key }) => JSON.stringify(key) === label);
    const hits = find("hits");
    const fact = (name, by, kind) => {
      const of = find(by);
      return [name, of ? `${count(of.count)}${of.error > 0 ? ` ±${count(of.error)}` : ""}` : null, kind];
    };
    return [
      ["Hot since", hits ? `${clock(hits.since)}, ${ago(this.#model.now, hits.since)}` : this.#hot === null || !this.attributes || this.key.length === 0 ? null : "not among the 20 hottest keys"],
      fact("Requests in 5 to 10 min", "hits"), fact("Tokens in 5 to 10 min", "tokens"),
      fact(this.limit.policy.shadow ? "Would be denied in 5 to 10 min" : "Denials in 5 to 10 min", "denials", this.limit.policy.shadow ? "would" : "denied"),
      fact("Denied by this limit alone", "newly_denied", "would"),
    ];
  }

  #target() {
    const attributes = keyAttributes(this.limit.policy, this.key);
    const { tenant } = this.attributes ?? {};
    return `/v1/keys${query({ limit: this.limit.name, ...(tenant === undefined ? {} : { tenant }), ...attributes })}`;
  }

  async #peek() {
    await this.#admin(async () => {
      const { remaining, capacity, reset_after: resetAfter } = await call("GET", this.#target());
      return `${clock(this.#model.now)}: ${count(remaining)} of ${count(capacity)} left${resetAfter > 0 ? `, full again ${isSoon(resetAfter)}` : ""}.`;
    });
  }

  #reset() {
    const label = keyLabel(this.key);
    confirmed("Reset key", `The limit ${this.limit.name} forgets everything that ${label} has used. Its next requests are counted from zero.`, "Reset", async () => {
      const { reset } = await call("DELETE", this.#target());
      this.#say(reset ? `Reset at ${clock(this.#model.now)}: ${label} has used nothing.` : `Nothing to reset: ${label} had used nothing.`);
      this.#ask();
    });
  }

  async #admin(act) {
    try {
      this.#say(await act());
    } catch (reason) {
      if (reason.status === 401 && !hasToken()) this.services.askForToken();
      else this.#say(`Not done: ${reason.message}`);
    }
  }

  #say(text) {
    if (this.result) this.result.textContent = text; // also if it is the same again, so that it is read
  }
}

function tried(request) {
  try {
    return parseRequest(request);
  } catch {
    return {};
  }
}

/** What a limit would decide, such as `denied, allowed in 0.3 s`. */
function decision(of, model) {
  const would = of.shadow ? "would be " : "";
  if (of.allowed) return `${would}allowed`;
  if (of.reason === "cost_exceeds_limit") return `${would}denied: a request costs more than the limit ever allows`;
  if (of.reason === "in_flight") return `${would}denied: all ${count(of.limit)} slots are in use`;
  if (of.retry_after === null) return `${would}denied`;
  const until = of.retry_after < 10 ? isSoon(of.retry_after) : `in ${span(of.retry_after)}, at ${clock(model.now + of.retry_after)}`;
  return `${would}denied, next allowed ${until}`;
}

function verdict(applying, model) {
  const denying = applying.filter(({ allowed, shadow }) => !allowed && !shadow);
  if (applying.length === 0) return "No limit applies to this request: it would be allowed.";
  if (denying.length === 0) return "This request would be allowed.";
  const last = denying.reduce((a, b) => ((a.retry_after ?? Infinity) >= (b.retry_after ?? Infinity) ? a : b));
  const names = denying.map(({ name }) => `\`${name}\``).join(", ");
  return `This request would be denied by ${names}${last.retry_after === null ? "" : `; allowed ${isSoon(last.retry_after)}, at ${clock(model.now + last.retry_after)}`}.`;
}
