// One limit: its numbers, its last 15 minutes, its keys, its tiers, and what a shadow limit would change.

import { call, own, query } from "./api.js";
import { Chart, column, outcomes } from "./chart.js";
import { count, counted, duration, element, percent, rate, setText, shown } from "../format.js";
import { KeysPanel } from "./keys.js";
import { Facts, muted, number, rowHead, table } from "./parts.js";
import { limitState, rule, written } from "./words.js";

const perSecond = (value) => `${rate(value)}/s`;

export class LimitView {
  #charts = [];
  #historyWanted = true;

  constructor(parent, limit, model) {
    this.name = limit.name;
    const { policy } = limit;
    this.state = element("p.sentence", {});
    this.facts = new Facts();
    const wide = element("div.chart-stack", {});
    const small = element("div.chart-stack", {});
    const keys = element("section.panel.wide", {});
    this.keys = new KeysPanel(keys, limit);
    const refuses = policy.shadow ? { label: "would deny", name: "shadow", dash: [4, 4] } : { label: "denied", name: "denied" };
    this.requests = this.#chart(wide, {
      title: "Requests per second", height: 224, isStacked: true, format: perSecond,
      series: [{ label: "allowed", name: "allowed" }, { label: "delayed", name: "delayed", isOptional: true }, refuses],
    });
    this.left = this.#chart(small, {
      title: "Left of the limit", height: policy.shadow ? 88 : 224, format: percent, most: 1.05,
      series: [{ label: "p50", name: "text" }, { label: "p95", name: "muted", dash: [4, 4] }],
    });
    this.newlyDenied = policy.shadow
      ? this.#chart(small, { title: "Denied by this limit alone", height: 88, format: perSecond, series: [{ label: "would deny", name: "shadow", dash: [4, 4] }] })
      : null;
    parent.append(
      element("nav.crumbs", { "aria-label": "Path" }, element("a", { href: "#" }, "All limits")),
      element("section.panel", {}, element("h2.detail-title", { tabIndex: -1 }, shown(limit.name)), this.state,
        element("pre.rule-block", {}, policyText(policy)),
        this.facts.node, element("div.charts", {}, wide, small)),
      keys, tiersPanel(policy, model) ?? "");
  }

  #chart(parent, options) {
    const chart = new Chart(parent, options);
    this.#charts.push(chart);
    return chart;
  }

  destroy() {
    for (const chart of this.#charts) chart.destroy();
  }

  render(model, isStep) {
    const limit = model.limit(this.name);
    if (!limit) {
      setText(this.state, "The policy no longer has this limit.");
      return;
    }
    if (this.#historyWanted) this.#loadHistory(model, limit);
    const { rates, policy, recent } = limit;
    setText(this.state, sentence(limit));
    this.requests.setNow([rates.allowed - rates.delayed, rates.delayed, rates.denied]);
    this.left.setNow([limit.remainingP50, limit.remainingP95]);
    this.newlyDenied?.setNow([rates.newly_denied]);
    const requests = rates.allowed + rates.denied;
    const waits = policy.numbers.max_wait !== undefined || policy.algorithm === "leaky_bucket";
    const { delay } = model;
    this.facts.set([
      [policy.shadow ? "Would be denied" : "Denied", requests > 0 ? percent(rates.denied / requests) : "–", rates.denied > 0 ? (policy.shadow ? "would" : "denied") : ""],
      ["Tokens used", perSecond(rates.tokens)],
      ["Allowed since the start", count(recent.totals.allowed)],
      [policy.shadow ? "Would be denied since the start" : "Denied since the start", count(recent.totals.denied)],
      ["Delayed since the start", waits ? count(recent.totals.delayed) : null],
      ["Delay p50, p95 (all limits)", waits && delay.p50 !== null ? `${duration(delay.p50)}, ${duration(delay.p95)}` : null],
      ["Requests in delay (all limits)", waits ? count(delay.waiting) : null],
    ]);
    if (!isStep) return;
    this.#draw(model, limit);
    this.keys.refresh().catch(() => {}); // the stream reports the lost connection
  }

  async #loadHistory(model, limit) {
    this.#historyWanted = false;
    try {
      const { steps } = await call("GET", `/v1/history${query({ limit: limit.name })}`);
      if ((steps?.length ?? 0) > limit.history.all.length) limit.history.all = steps;
      this.#draw(model, limit);
    } catch {
      this.#historyWanted = true;
    }
  }

  #draw(model, { history }) {
    const times = model.stepTimes(history.all.length);
    this.requests.set(times, outcomes(history, model.step));
    this.left.set(times, [column(history.all, (step) => step.remaining_p50), column(history.all, (step) => step.remaining_p95)]);
    this.newlyDenied?.set(times, [column(history.all, (step) => step.newly_denied, model.step)]);
  }
}

function sentence(limit) {
  const { rates, policy } = limit;
  const requests = rates.allowed + rates.denied;
  const { text } = limitState(limit);
  const all = `${counted(requests, "request", rate(requests))} per second`;
  if (requests === 0) return `${text[0].toUpperCase()}${text.slice(1)}.`;
  if (policy.shadow) {
    const alone = `${rates.newly_denied > 0 ? perSecond(rates.newly_denied) : "None"} of them would be denied by this limit alone.`;
    return rates.denied > 0 ? `Shadow: would deny ${rate(rates.denied)} of ${all}. ${alone}` : `Shadow: would deny none of ${all}.`;
  }
  if (rates.denied > 0) return `Denying ${rate(rates.denied)} of ${all}.`;
  if (rates.delayed > 0) return `Allowing ${all}, ${rate(rates.delayed)} of them after a delay.`;
  return `Allowing all of ${all}.`;
}

/** The limit as the policy file has it. */
function policyText(policy) {
  const inUse = policy.algorithm_in_use !== policy.algorithm ? `   # decided as ${policy.algorithm_in_use}` : "";
  const lines = [rule(policy) + inUse, `key: ${written(policy.key)}`];
  if (Object.keys(policy.match).length > 0) lines.push(`match: ${written(policy.match)}`);
  if (policy.descriptor) lines.push(`descriptor: ${written(policy.descriptor)}`);
  if (policy.shadow) lines.push("shadow: true");
  return lines.join("\n");
}

function tiersPanel({ tiers, tier_algorithms: algorithms, numbers, tenants_with_own_numbers: tenants = 0 }, model) {
  const note = tenants > 0 ? element("p.muted", {}, `${counted(tenants, "tenant")} ${tenants === 1 ? "has numbers of its own" : "have numbers of their own"}.`) : null;
  if (Object.keys(tiers).length === 0) return note && element("section.panel", {}, element("h3", {}, "Numbers per tenant"), note);
  const names = [...new Set([numbers, ...Object.values(tiers)].flatMap(Object.keys))];
  const others = Object.keys(model.tiers).filter((tier) => !Object.hasOwn(tiers, tier));
  const row = (tier, of, notes) => element("tr", {}, rowHead(shown(tier), muted(` ${notes.filter(Boolean).join(", ")}`)),
    ...names.map((name) => number(Object.hasOwn(of, name) ? written(of[name]) : "–")));
  const isDefault = (tier) => (tier === model.defaultTier ? "default" : "");
  const inUse = new Set(Object.values(algorithms));
  const body = element("tbody", {}, ...Object.entries(tiers).map(([tier, of]) => row(tier, of, [isDefault(tier), inUse.size > 1 ? own(algorithms, tier) : ""])),
    row(others.join(", ") || "no tier", numbers, others.map(isDefault)));
  return element("section.panel", {}, element("h3", {}, "Numbers per tier"), note,
    table("Numbers of the limit per tier", ["Tier", ...names.map((name) => `#${name}`)], body));
}
