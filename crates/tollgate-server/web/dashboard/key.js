// One key of a limit, or one request: which limits apply and why, what is left, and until when. Asked again every second.

import { ServiceError, call, hasToken, own, query } from "./api.js";
import { askToConfirm } from "./dialogs.js";
import { clock, count, element, setText, shown } from "../format.js";
import { picture, unit } from "./picture.js";
import { Facts, ago, muted, named, number, rowHead, setNamed, setRows, table } from "./parts.js";
import { exampleLookup, exampleRequest, keyAttributes, lacksTenant, parseRequest, writeRequest } from "./request.js";
import { keyAddress, limitAddress, requestAddress } from "./route.js";
import { allowedFromNow, atMost, fromNow, fromNowAt, keyLabel, rule } from "./words.js";

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
    this.attributes = null;
    let fault = null;
    try {
      if (!isHidden) this.attributes = request === null ? exampleRequest(limit.policy, key) : request.trim() === "" ? {} : parseRequest(request, exampleLookup(model.limits));
    } catch (reason) {
      fault = `The request cannot be read: ${reason.message}`;
    }
    this.isGuess = limit !== null && lacksTenant(limit.policy, this.attributes);
    const title = element("h2.detail-title", { tabIndex: -1 },
      limit ? [element("span.key-name", {}, keyLabel(key)), element("span.muted", {}, " of ", element("bdi", {}, shown(limit.name)))] : "Request");
    this.sentence = element("p.sentence", {}, isHidden ? "The name of this key is hidden." : "");
    this.body = element("div");
    this.facts = new Facts();
    this.drawing = element("div.drawing", {});
    this.note = element("p", { hidden: true });
    this.why = element("p.muted", {});
    const crumbs = [element("a", { href: "#" }, "All limits"), limit ? [" / ", element("a", { href: limitAddress(limit.name) }, shown(limit.name))] : []].flat();
    parent.append(element("nav.crumbs", { "aria-label": "Path" }, ...crumbs),
      element("section.panel", {}, title, this.sentence, this.note, this.why,
        limit ? [element("div.key-state", {}, this.drawing, this.facts.node), this.#actions(isHidden)] : []), this.body);
    if (isHidden) setText(this.why, "The service shows names of keys to admins only. Other callers see a hash, which stays the same while the service runs.");
    else if (this.attributes === null) setText(this.sentence, fault ?? UNKNOWN);
    if (this.attributes !== null) this.#explanation(writeRequest(this.attributes), false);
    else if (fault !== null) this.#explanation(request.replaceAll(/\s/g, " "), true);
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

  #explanation(request, isFaulty) {
    const input = element("input", { type: "text", id: "request", value: request, autocomplete: "off", spellcheck: false });
    const error = element("p.warning", { role: "alert" });
    const form = element("form.request-form", {}, element("label", { for: "request" }, "Request"), input, element("button", { type: "submit" }, "Explain"), error);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      try {
        parseRequest(input.value, exampleLookup(this.#model.limits));
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
    const applying = table("Limits that apply to the request", ["Limit", "Key", "Decision", "#Left", "Why it applies"], this.applying, "explain");
    applying.hidden = isFaulty;
    this.body.append(element("section.panel", {}, element("h3", {}, "Limits of this request"),
      element("p.muted", {}, this.limit ? "An example request that the limit counts for this key. Nothing is charged." : "Nothing is charged."), form,
      applying, this.othersBox));
  }

  async #ask() {
    if (this.attributes === null || this.#isAsking) return;
    this.#isAsking = true;
    try {
      this.#explain(await call("POST", "/v1/explain", { attributes: this.attributes }));
    } catch (reason) {
      if (reason instanceof ServiceError && reason.status > 0) setText(this.sentence, `The service does not explain this: ${reason.message}`);
      else if (!(reason instanceof ServiceError)) throw reason;
    } finally {
      this.#isAsking = false;
    }
  }

  #explain({ tier, limits: explained }) {
    const limits = this.#named(explained);
    const applying = limits.filter(({ applies }) => applies);
    const others = limits.filter(({ applies }) => !applies);
    if (this.limit) this.#state(limits.find(({ name }) => name === this.limit.name), tier);
    else setNamed(this.sentence, verdict(applying, this.#model), this.#model.byName);
    const request = writeRequest(this.attributes);
    const isGuess = ({ name }) => this.limit !== null && this.#model.byName.has(name) && lacksTenant(this.#model.limit(name).policy, this.attributes);
    const rows = applying.slice(0, MOST_ROWS).map((of) => [of, `${decision(of, this.#model)}${isGuess(of) ? this.#guessed() : ""}`]);
    setRows(this.applying, rows, ([of, decides]) => element("tr", {},
      rowHead(element("a", { href: limitAddress(of.name) }, shown(of.name)), ...ruleOf(of, tier)),
      element("td", {}, element("a.key-name", { href: keyAddress(of.name, of.key, request) }, keyLabel(of.key))),
      element("td", { className: of.allowed ? "" : of.shadow ? "would" : "denied" }, decides),
      number(`${count(of.remaining)} of ${count(of.limit)}`), element("td.muted", {}, ...named(of.why))));
    this.othersBox.hidden = others.length === 0;
    setText(this.othersTitle, `${count(others.length)} ${others.length === 1 ? "limit does" : "limits do"} not apply`);
    setRows(this.others, others.slice(0, MOST_ROWS), ({ name, why }) =>
      element("li", {}, element("a", { href: limitAddress(name) }, shown(name)), element("span.muted", {}, ": ", ...named(why))));
  }

  /** What stands after a decision for a key whose tenant is not known. */
  #guessed() {
    return `, as for ${this.#model.defaultTier === null ? "a request without a tenant" : "the default tier"}`;
  }

  /** The limits of an explanation by their names in the event stream. The explanation has the policy's words, such as `${NAME}`. */
  #named(explained) {
    const { limits, byName } = this.#model;
    if (explained.length !== limits.length) return explained; // one of them is of another policy
    return explained.map((of, i) => (byName.has(of.name) ? of : { ...of, name: limits[i].name }));
  }

  #state(of, tier) {
    if (!of) return; // the answer is of another policy than the page has
    this.note.hidden = !this.isGuess;
    const decided = this.key.length === 0 ? "other tenants may have other numbers" : "the tenant of this key is not known";
    if (this.isGuess) setNamed(this.note, `Decided as for ${tier === null ? "a request without a tenant" : `the default tier \`${tier}\``}: ${decided}. Add \`tenant=…\` to the request.`);
    // The key is of a tenant that is not known, because the limit counts by tier.
    const isOther = of.applies && JSON.stringify(of.key) !== JSON.stringify(this.key);
    if (!of.applies || isOther) {
      setText(this.sentence, isOther ? UNKNOWN : "The limit does not apply to this request.");
      setNamed(this.why, isOther ? "" : of.why);
      setRows(this.drawing, [], picture);
      this.facts.set(this.#hotFacts());
      return;
    }
    const denials = this.#found("denials");
    if (this.isGuess && of.allowed && denials) {
      // What the default tier allows is not what the tenant of this key gets.
      const times = denials.count;
      const would = of.shadow ? "would have been" : times === 1 ? "was" : "were";
      setText(this.sentence, `${atMost(times, denials.error)} ${times === 1 ? "request" : "requests"} of this key ${would} denied in the last 5 to 10 minutes.`);
      setNamed(this.why, "");
      setRows(this.drawing, [], picture);
      this.facts.set(this.#hotFacts());
      return;
    }
    const word = `${decision(of, this.#model)}${this.isGuess ? this.#guessed() : ""}`;
    const left = of.allowed ? `: ${count(of.remaining)} of ${count(of.limit)} ${unit(of.algorithm_in_use, of.limit)} left` : "";
    setText(this.sentence, `${of.shadow ? "Shadow: " : ""}${of.shadow ? word : word[0].toUpperCase() + word.slice(1)}${left}.`);
    const numbers = of.numbers ?? this.#numbers(tier, of.limit);
    const isOwn = of.numbers_of ? of.numbers_of === "tenant" : numbers === null;
    const isOfTier = of.numbers_of ? of.numbers_of === "tier" : !isOwn && tier !== null && Object.hasOwn(this.limit.policy.tiers, tier);
    const written = numbers ? `\`${rule({ algorithm: of.algorithm, numbers })}\`` : `\`${of.algorithm}\``;
    const whose = isOwn ? `, numbers of this tenant${tier ? ` (tier \`${tier}\`)` : ""}` : isOfTier ? `, numbers of tier \`${tier}\`` : tier ? `, tier \`${tier}\`` : "";
    setNamed(this.why, written + whose);
    const drawn = { algorithm: of.algorithm_in_use, limit: of.limit, remaining: of.remaining, resetAfter: of.reset_after, numbers: numbers ?? {} };
    setRows(this.drawing, [drawn], picture);
    const { now } = this.#model;
    this.facts.set([
      ["Left", `${count(of.remaining)} of ${count(of.limit)} ${unit(of.algorithm, of.limit)}`],
      ["Next request allowed", of.allowed ? "now" : of.retry_after === null ? "not known" : allowedFromNow(of.retry_after, now), of.allowed ? "" : of.shadow ? "would" : "denied"],
      ["Full again", fromNowAt(of.reset_after, now)],
      ...this.#hotFacts(),
    ]);
  }

  /** The numbers of the tier, where the explanation has none. Null if the tenant has numbers of its own. */
  #numbers(tier, capacity) {
    const numbers = (tier === null ? undefined : own(this.limit.policy.tiers, tier)) ?? this.limit.policy.numbers;
    const written = Number(numbers.burst ?? numbers.limit ?? numbers.queue);
    return Number.isNaN(written) || written === capacity ? numbers : null;
  }

  async #findHot() {
    if (!this.limit) return;
    this.#hot = this.#hot ?? this.limit.hot;
    try {
      const { limits } = await call("GET", `/v1/hot${query({ limit: this.limit.name })}`);
      this.#hot = own(limits, this.limit.name) ?? {};
    } catch {
      // The stream reports the lost connection.
    }
  }

  /** The count of this key in an order of hot keys. Undefined if it is not among them. */
  #found(by) {
    const label = JSON.stringify(this.key);
    return this.#hot?.[by]?.keys.find(({ key }) => JSON.stringify(key) === label);
  }

  #hotFacts() {
    if (!this.limit) return [];
    const hits = this.#found("hits");
    const fact = (name, by, kind) => {
      const of = this.#found(by);
      return [name, of ? atMost(of.count, of.error) : null, kind];
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
    const known = tenant === undefined || Object.hasOwn(attributes, "tenant") ? [] : [["tenant", tenant]];
    // The first `limit` is the limit. Another one is an attribute.
    return `/v1/keys${query([["limit", this.limit.name], ...known, ...Object.entries(attributes)])}`;
  }

  async #peek() {
    await this.#admin(async () => {
      const { remaining, capacity, reset_after: resetAfter } = await call("GET", this.#target());
      return `${clock(this.#model.now)}: ${count(remaining)} of ${count(capacity)} left${resetAfter > 0 ? `, full again ${fromNow(resetAfter)}` : ""}${this.isGuess ? this.#guessed() : ""}.`;
    });
  }

  #reset() {
    const label = keyLabel(this.key);
    const isolated = (name) => element("bdi", {}, name);
    const text = ["The limit ", isolated(shown(this.limit.name)), " forgets everything that ", isolated(label), " has used. Its next requests are counted from zero."];
    askToConfirm("Reset key", text, "Reset", async () => {
      const { reset } = await call("DELETE", this.#target());
      if (reset) this.#showResult(`Reset at ${clock(this.#model.now)}: `, isolated(label), " has used nothing.");
      else this.#showResult("Nothing to reset: ", isolated(label), ` had used nothing${this.isGuess ? this.#guessed() : ""}.`);
      this.#ask();
    });
  }

  async #admin(act) {
    try {
      this.#showResult(await act());
    } catch (reason) {
      if (reason.status === 401 && !hasToken()) this.services.askForToken();
      else this.#showResult(`Not done: ${reason.message}`);
    }
  }

  #showResult(...parts) {
    this.result?.replaceChildren(...parts); // also if it is the same again, so that it is read
  }
}

/** The numbers that decide for a request, and whose numbers they are. Empty where the explanation has none. */
function ruleOf(of, tier) {
  if (!of.numbers) return [];
  const whose = { tier: `numbers of tier ${tier === null ? "" : shown(tier)}`, tenant: "numbers of this tenant" }[of.numbers_of];
  return [element("br"), element("code.muted", {}, rule(of)), whose ? element("span.variants", {}, whose) : null];
}

/** What a limit would decide, such as `denied, allowed in 0.3 s`. */
function decision(of, model) {
  const would = of.shadow ? "would be " : "";
  if (of.allowed) return `${would}allowed`;
  if (of.reason === "cost_exceeds_limit") return `${would}denied: a request costs more than the limit ever allows`;
  if (of.reason === "in_flight") return `${would}denied: all ${count(of.limit)} slots are in use`;
  if (of.retry_after === null) return `${would}denied`;
  return `${would}denied, next allowed ${allowedFromNow(of.retry_after, model.now)}`;
}

function verdict(applying, model) {
  const denying = applying.filter(({ allowed, shadow }) => !allowed && !shadow);
  if (applying.length === 0) return "No limit applies to this request: it would be allowed.";
  if (denying.length === 0) return "This request would be allowed.";
  const last = denying.reduce((a, b) => ((a.retry_after ?? Infinity) >= (b.retry_after ?? Infinity) ? a : b));
  const names = denying.map(({ name }) => `\`${name}\``).join(", ");
  return `This request would be denied by ${names}${last.retry_after === null ? "" : `; allowed ${allowedFromNow(last.retry_after, model.now)}`}.`;
}
