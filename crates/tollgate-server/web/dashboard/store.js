// Two panels: how the store decides, with a sentence first, and the last events of the service.

import { clock, count, element, percent, rate, setText, span } from "../format.js";
import { Facts, ago, muted, named, number, rowHead, setNamed, setRows, table } from "./parts.js";
import { storeSentence } from "./words.js";

/** How decisions are made, by their source. */
const SOURCES = {
  memory: "in the memory of this process",
  store: "by Redis, with a call",
  lease: "from tokens drawn from Redis in advance",
  denied_cache: "a recent denial, repeated without a call",
  fallback: "by `on_error`, because Redis gave no answer",
};

export class StorePanel {
  constructor(panel) {
    this.sentence = element("p");
    this.shards = element("ul.plain-list", {});
    this.sources = element("tbody");
    this.facts = new Facts();
    panel.append(element("h2", { id: "store-title" }, "Store"), this.sentence, this.shards,
      table("Where decisions come from", ["Decided", "#Requests", "#Share"], this.sources), this.facts.node);
  }

  render(model) {
    const { store, sources } = model;
    const isShared = store.kind === "redis";
    setNamed(this.sentence, storeSentence(model));
    const all = Object.values(sources).reduce((sum, of) => sum + of, 0);
    const used = Object.keys(SOURCES).filter((source) => sources[source] > 0 || source === (isShared ? "store" : "memory"));
    setRows(this.sources, used.map((source) => [source, sources[source] ?? 0, all]), ([source, of]) => element("tr", {},
      rowHead(element("code", {}, source), " ", element("span.muted", {}, ...named(SOURCES[source]))),
      number(count(of)), number(percent(all > 0 ? of / all : 0))));
    setRows(this.shards, (store.shards ?? []).map(({ name, state, is_up: isUp, since }) => [name, `${state} since ${span(since)}`, isUp]),
      ([name, state, isUp]) => element("li", {}, element("code", {}, name), element("span", { className: isUp ? "muted" : "warning" }, `${isUp ? "" : " !"} ${state}`)));
    const { calls = 0, errors = 0 } = store;
    const shared = (sources.store ?? 0) + (sources.lease ?? 0);
    this.facts.set([
      ["Calls of Redis", isShared ? count(calls) : null],
      ["Calls per decision", shared > 0 && sources.lease === 0 ? rate(calls / shared) : null],
      ["Decisions per call", sources.lease > 0 && calls > 0 ? rate(sources.lease / calls) : null],
      ["Failed calls", isShared ? count(errors) : null, errors > 0 ? "warning" : ""],
      ["Record", model.recording === null ? null : model.recording ? "every decision is written" : "stopped: see the log", model.recording === false ? "warning" : ""],
    ]);
  }
}

/** The kinds of events, as the reader sees them. */
const KINDS = { reload: "Policy", store: "Store", memory: "Memory", record: "Record", service: "Service" };

export class EventsPanel {
  constructor(panel) {
    this.list = element("ol.events", {});
    this.none = element("p.muted", {}, "Nothing yet. Reloads of the policy, failures of the store, evictions and stops of the record appear here.");
    panel.append(element("h2", { id: "events-title" }, "Events"), this.none, this.list);
  }

  render(model) {
    const events = [...model.events, ...model.restarts].sort((a, b) => a.at - b.at).slice(-20).reverse();
    this.none.hidden = events.length > 0;
    setRows(this.list, events, ({ at, kind, text }) =>
      element("li", {}, element("time", { dateTime: new Date(at * 1000).toISOString() }, clock(at)), muted(KINDS[kind] ?? kind),
        element("span", {}, ...named(text), " ", element("span.muted.since", {}))));
    this.list.querySelectorAll(".since").forEach((node, i) => setText(node, ago(model.now, events[i].at)));
  }
}
