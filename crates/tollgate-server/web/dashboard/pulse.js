// All requests: a sentence, charts, and what is held in memory.

import { bytes, count, duration, element, percent, rate } from "../format.js";
import { Chart, column, outcomes } from "./chart.js";
import { Facts, setNamed } from "./parts.js";
import { requestsOf } from "./series.js";
import { pulse } from "./words.js";

const perSecond = (value) => `${rate(value)}/s`;

export class Pulse {
  constructor(sentence, panel) {
    this.sentence = sentence;
    this.facts = new Facts();
    const wide = element("div.chart-stack", {});
    const small = element("div.chart-stack", {});
    this.panel = panel;
    panel.append(element("div.charts", {}, wide, small), this.facts.node);
    this.requests = new Chart(wide, {
      title: "Requests per second", height: 264, isStacked: true, format: perSecond,
      series: [{ label: "allowed", name: "allowed" }, { label: "delayed", name: "delayed", isOptional: true }, { label: "denied", name: "denied" }],
    });
    this.share = new Chart(small, {
      title: "Denied (429)", height: 104, format: percent, least: 0.01,
      series: [{ label: "denied", name: "denied" }],
    });
    this.decision = new Chart(small, {
      title: "Time of a decision", height: 104, format: duration, least: 1e-5,
      series: [{ label: "p50", name: "muted" }, { label: "p99", name: "text", dash: [4, 4] }],
    });
  }

  render(model, isStep) {
    const { rates } = model;
    setNamed(this.sentence, pulse(model), model.byName);
    this.panel.hidden = !model.isUsed;
    const requests = rates ? requestsOf(rates) : 0;
    this.requests.setNow(rates ? [rates.allowed - rates.delayed, rates.delayed, rates.denied] : []);
    this.share.setNow([rates && requests > 0 ? rates.denied / requests : null]);
    this.decision.setNow([model.decision?.p50, model.decision?.p99]);
    if (isStep) this.#draw(model);
    const { delay, sentRules: sent } = model;
    const isDelaying = model.requests.totals.delayed > 0;
    this.facts.set([
      ["Keys held", count(model.keys)],
      ["Memory", model.maxBytes ? `${bytes(model.bytes)} of ${bytes(model.maxBytes)}` : bytes(model.bytes)],
      ["Keys evicted in use", count(model.evictions), model.evictions > 0 ? "warning" : "",
        "Keys with a state that the service dropped because its memory is full. Such a key has its full limit again"],
      ["Requests without room", model.refused > 0 ? count(model.refused) : null, "warning"],
      ["Adaptive rates", model.multiplier === null || model.gateway ? null : `${percent(model.multiplier)} of the policy`, model.multiplier < 1 ? "warning" : "",
        "adaptive_rates lowers all rates while requests wait too long for a slot. 100\u202f% is no overload"],
      ["Waiting", isDelaying || delay.waiting > 0 ? count(delay.waiting) : null],
      ["Delay p50, p95", isDelaying && delay.p50 !== null ? `${duration(delay.p50)}, ${duration(delay.p95)}` : null],
      ["Malformed requests", rates?.errors > 0 ? perSecond(rates.errors) : null, "warning"],
      ["Rules sent with calls", sent.allowed + sent.denied > 0 ? `${count(sent.allowed)} allowed, ${count(sent.denied)} denied` : null],
    ]);
  }

  #draw(model) {
    const { all } = model.history;
    const times = model.stepTimes(all.length);
    this.requests.set(times, outcomes(model.history, model.step));
    this.share.set(times, [column(all, (step) => (requestsOf(step) > 0 ? step.denied / requestsOf(step) : null))]);
    this.decision.set(times, [column(all, (step) => step.p50), column(all, (step) => step.p99)]);
  }
}
