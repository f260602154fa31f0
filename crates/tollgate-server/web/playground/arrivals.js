// Where arrivals come from: by hand, a scenario of the lab, or lines of a log. Stories are chosen above the timeline.

import { element, setText } from "../format.js";
import { MOST_ARRIVALS, withArrivals } from "./setup.js";

export class Arrivals {
  /** `onTraffic(traffic)` gets new arrivals. `onScenario(scenario)` and `onLog(text)` get what the service must generate or read. */
  constructor(root, { onTraffic, onRemoveAll, onScenario, onLog, onWatch, state }) {
    this.root = root;
    this.scenarios = [];
    this.fault = root.querySelector("#arrivals-fault");
    const find = (id) => root.querySelector(`#${id}`);
    find("add-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const [at, count, over, cost] = ["add-at", "add-count", "add-over", "add-cost"].map((id) => Number(find(id).value));
      const { traffic } = state;
      if (traffic.at.length + count > MOST_ARRIVALS) {
        this.showFault(`There would be ${traffic.at.length + count} arrivals, but at most ${MOST_ARRIVALS} are allowed.`);
        return;
      }
      const added = Array.from({ length: count }, (_, number) => ({ at: at + (number * over) / Math.max(1, count), cost }));
      onTraffic(withArrivals(traffic, added, find("add-client").value.trim()), at);
    });
    find("clear").addEventListener("click", onRemoveAll);
    this.scenario = find("scenario");
    this.scenario.addEventListener("change", () => {
      const chosen = this.scenarios.find(({ name }) => name === this.scenario.value);
      if (chosen) onScenario(chosen);
    });
    find("log-form").addEventListener("submit", (event) => {
      event.preventDefault();
      onLog(find("log").value);
    });
    this.watch = find("watch");
    this.watch.addEventListener("change", () => onWatch(this.watch.value));
  }

  setScenarios(scenarios) {
    this.scenarios = scenarios;
    this.scenario.append(...scenarios.map(({ name }) => element("option", { value: name }, name.replaceAll("-", " "))));
  }

  show(setup, run) {
    const { scenario } = setup.source;
    this.scenario.value = scenario ?? "";
    const about = this.scenarios.find(({ name }) => name === scenario)?.about;
    setText(this.root.querySelector("#scenario-about"), about ? `${about[0].toUpperCase()}${about.slice(1)}.` : "");
    const isSplit = run.clients.length > 1 && run.rules.some(({ by }) => by === "client");
    this.root.querySelector("#watch-field").hidden = !isSplit;
    if (!isSplit) return;
    const names = run.clients.slice(0, 500);
    this.watch.replaceChildren(...names.map((name) => element("option", { value: name }, name || "no name")));
    this.watch.value = run.clients[run.watched];
  }

  showFault(text) {
    setText(this.fault, text);
  }
}
