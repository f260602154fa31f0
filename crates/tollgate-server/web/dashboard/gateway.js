// The gateway: slots of the application, requests that wait for one, shares of tenants, and rates while it is overloaded.

import { count, duration, element, percent, setText, shown } from "../format.js";
import { Chart } from "./chart.js";
import { Facts, bar, muted, number, rowHead, setNamed, setRows, table } from "./parts.js";

const ENDED = {
  forwarded: "answered by an upstream", denied: "denied by a limit", no_slot: "no slot in time", refused: "not a valid request",
  failed: "no answer from an upstream", gone: "the client left",
};

export class GatewayPanel {
  constructor(panel) {
    this.panel = panel;
    this.title = element("h2", { id: "gateway-title" });
    this.sentence = element("p");
    const chartsNode = element("div.charts-even", {});
    this.chartsNote = element("p.muted.note", { hidden: true }, "The service keeps no history of these numbers: the charts begin when this page was opened.");
    this.facts = new Facts();
    [this.upstreams, this.ended, this.shares] = [1, 2, 3].map(() => element("tbody"));
    this.tables = element("div", {}, table("Upstreams", ["Upstream", "State", "#In flight"], this.upstreams),
      table("How requests ended", ["Requests through the gateway", "#Count"], this.ended));
    this.sharesNote = element("p.muted", {});
    this.sharesBox = element("div", {}, element("h3", {}, "Shares of slot time"), this.sharesNote,
      table("Shares of slot time per tenant", ["Tenant", "#Weight", "#Share", ""], this.shares));
    panel.append(this.title, this.sentence, this.chartsNote, chartsNode, this.facts.node, element("div.columns-inner", {}, this.sharesBox, this.tables));
    const chart = (title, format, least, series, most) => new Chart(chartsNode, { title, format, least, series, most });
    const p50 = { label: "p50", name: "muted" };
    const dashed = (label) => ({ label, name: "text", dash: [4, 4] });
    this.charts = {
      slots: chart("Slots", count, 4, [{ label: "in use", name: "allowed" }, dashed("limit")]),
      queue: chart("Queue length", count, 4, [{ label: "waiting", name: "delayed" }]),
      wait: chart("Wait for a slot", duration, 0.01, [p50, dashed("p95")]),
      rates: chart("Rate multiplier", percent, 1, [{ label: "of every rate", name: "allowed" }], 1.05),
    };
  }

  render(model, isStep) {
    const { gateway, multiplier, gauges } = model;
    // The chart is shown only while rates are reduced, or were in the last 15 minutes.
    const isReduced = gauges.some(({ multiplier: of = null }) => of !== null && of < 1);
    this.panel.hidden = gateway === null && !isReduced;
    if (this.panel.hidden) return;
    this.panel.classList.toggle("wide", gateway !== null);
    setText(this.title, gateway ? "Gateway" : "Adaptive rates");
    setNamed(this.sentence, sentence(gateway, multiplier));
    this.#setCharts(model, isReduced, isStep);
    this.facts.node.hidden = this.tables.hidden = !gateway;
    if (gateway) this.#gateway(gateway);
    this.#shares(gateway ? model.slotTime : null);
  }

  #setCharts({ gauges, gateway, multiplier, stepEnded }, isReduced, isStep) {
    const { slots, queue, wait, rates } = this.charts;
    const of = gateway?.slots ?? null;
    slots.node.hidden = queue.node.hidden = wait.node.hidden = of === null;
    rates.node.hidden = !isReduced;
    this.chartsNote.hidden = gauges.length > 12 || (of === null && !isReduced);
    slots.setNow([of?.in_use, of?.limit]);
    queue.setNow([of?.waiting]);
    wait.setNow([gateway?.wait_p50, gateway?.wait_p95]);
    rates.setNow([multiplier]);
    if (!isStep) return;
    const times = gauges.map(({ at }) => at);
    const set = (chart, ...reads) => chart.set(times, reads.map((read) => gauges.map((gauge) => read(gauge) ?? null)), stepEnded);
    set(slots, (gauge) => gauge.gateway?.slots?.in_use, (gauge) => gauge.gateway?.slots?.limit);
    set(queue, (gauge) => gauge.gateway?.slots?.waiting);
    set(wait, (gauge) => gauge.gateway?.wait_p50, (gauge) => gauge.gateway?.wait_p95);
    set(rates, (gauge) => gauge.multiplier);
  }

  #gateway(gateway) {
    const quantiles = (low, high) => (low === null ? null : `${duration(low)}, ${duration(high)}`);
    this.facts.set([
      ["Upstream: time to the first byte p50, p99", quantiles(gateway.duration_p50, gateway.duration_p99)],
      ["Wait for a slot p50, p95", quantiles(gateway.wait_p50, gateway.wait_p95)],
    ]);
    setRows(this.upstreams, gateway.upstreams, ({ name, is_up: isUp, in_flight: inFlight }) => element("tr", {}, rowHead(element("code", {}, name)),
      element("td", { className: isUp ? "" : "warning" }, isUp ? "answers" : "! does not answer"), number(count(inFlight))));
    const ended = Object.keys(ENDED).filter((outcome) => gateway.ended[outcome] > 0 || outcome === "forwarded");
    setRows(this.ended, ended.map((outcome) => [outcome, gateway.ended[outcome] ?? 0]), ([outcome, of]) =>
      element("tr", {}, rowHead(ENDED[outcome]), number(count(of))));
  }

  /** Each tenant's share of the slot time as a bar, with a line at its share by weight. */
  #shares(slotTime) {
    this.sharesBox.hidden = !slotTime || slotTime.tenants.length === 0;
    if (this.sharesBox.hidden) return;
    const { by, seconds, tenants, max_error: error } = slotTime;
    const weights = tenants.reduce((sum, { weight }) => sum + (weight ?? 0), 0);
    const bound = error > 0 ? ` Each share may be too high by ${duration(error)} of ${duration(seconds)}.` : "";
    const line = weights > 0 ? " The line marks its share by weight while all of them wait." : "";
    setText(this.sharesNote, `Time for which each ${by} had slots, in the last 5 to 10 minutes.${line}${bound}`);
    setRows(this.shares, tenants, ({ tenant, weight, seconds: of }) => {
      const [part, due] = [seconds > 0 ? of / seconds : 0, weights > 0 ? weight / weights : null];
      return element("tr", {}, rowHead(element("span.key-name", {}, tenant === "" ? "(empty)" : shown(tenant))), number(weight ?? "–"),
        number(percent(part), due === null ? null : muted(` of ${percent(due)}`)), bar(part, due));
    });
  }
}

function sentence(gateway, multiplier) {
  const parts = [];
  const slots = gateway?.slots;
  const down = gateway?.upstreams.filter(({ is_up: isUp }) => !isUp).length ?? 0;
  if (down > 0) parts.push(`${down} of ${gateway.upstreams.length} upstreams ${down === 1 ? "does" : "do"} not answer.`);
  if (slots) {
    const waiting = slots.waiting === 0 ? "nothing waits" : `${count(slots.waiting)} ${slots.waiting === 1 ? "request waits" : "requests wait"}`;
    parts.push(`${count(slots.in_use)} of ${count(slots.limit)} slots${slots.is_adaptive ? " (adaptive)" : ""} in use, ${waiting}.`);
  } else if (gateway) {
    parts.push("Requests do not wait for slots: the policy has no `concurrency`.");
  }
  if (multiplier !== null) {
    parts.push(multiplier < 1 ? `Overload: rates are at ${percent(multiplier)} of the policy.` : "No overload: rates are as the policy has them.");
  }
  return parts.join(" ");
}
