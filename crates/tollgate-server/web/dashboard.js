// The dashboard: follows the event stream of the service, and shows what the address bar asks for.

import { call, hasToken, setToken } from "./dashboard/api.js";
import { showSeconds } from "./dashboard/chart.js";
import { askForToken } from "./dashboard/dialogs.js";
import { showEmpty } from "./dashboard/empty.js";
import { GatewayPanel } from "./dashboard/gateway.js";
import { HotPanel } from "./dashboard/hot.js";
import { KeyView } from "./dashboard/key.js";
import { LimitView } from "./dashboard/limit.js";
import { LimitsTable } from "./dashboard/limits.js";
import { Model } from "./dashboard/model.js";
import { Pulse } from "./dashboard/pulse.js";
import { clipped, exampleLookup, hotKey, parseRequest } from "./dashboard/request.js";
import { keyAddress, requestAddress, route } from "./dashboard/route.js";
import { hatchPattern } from "./dashboard/sparkline.js";
import { EventsPanel, StorePanel } from "./dashboard/store.js";
import { Stream } from "./dashboard/stream.js";
import { storeState } from "./dashboard/words.js";
import { clock, element, setText, shown, span } from "./format.js";
import { themeButton } from "./theme.js";

const node = (id) => document.getElementById(id);

const model = new Model();
let connection = { kind: "connecting" };
let view = null; // of a limit or a key
let shownRoute = null;
let shownPolicy = null; // what the shown view was made of
let scrolled = 0; // the overview, before a limit was opened
let isScheduled = false;
let hasStep = false; // since the view was drawn
let isStale = true; // the overview, which was not drawn since a step

document.body.append(hatchPattern());
themeButton(node("theme"));
const panels = [
  new Pulse(node("pulse"), node("pulse-panel")), new LimitsTable(node("limits"), node("limits-sentence"), node("filter")),
  new HotPanel(node("hot")), new GatewayPanel(node("gateway")), new StorePanel(node("store")), new EventsPanel(node("events")),
];

function announce(text) {
  node("announcement").textContent = text;
}

const stream = new Stream(
  (event, frame) => {
    const wasClear = model.hasClearNames;
    hasStep = model.follow(event, frame) || hasStep;
    if (event === "start") started(wasClear);
    schedule();
  },
  (state) => {
    connection = state;
    if (state.kind === "lost" && hasToken() && (state.reason.status === 401 || state.reason.status === 403)) tokenEnded();
    showConnection();
  },
);

/** After `start`, which may bring another policy or other names of keys. */
function started(wasClear) {
  setText(node("instance"), shown(model.instance));
  setText(node("version"), model.version);
  document.body.classList.remove("is-waiting");
  document.title = `${shown(model.instance)}: Tollgate`;
  setText(node("admin"), hasToken() ? "Sign out" : "Admin token");
  const example = exampleLookup(model.limits);
  node("lookup").placeholder = `Look up a key: ${example}`;
  setText(node("lookup-label"), `Look up a key by its attributes, such as ${example}, or a hot key by its name`);
  const { key, request, limit } = route();
  if (wasClear === false && model.hasClearNames && key !== null && request === null) {
    location.replace(`#${new URLSearchParams({ limit })}`); // the hash that was shown is not the name
  }
  if (policyOf(limit) !== shownPolicy) shownRoute = null;
}

/** What the view of a limit is made of. If that changes while it is shown, the view is made again. */
function policyOf(limit) {
  return JSON.stringify([model.hasClearNames, model.limit(limit)?.policy, model.tiers, model.defaultTier]);
}

function schedule() {
  if (isScheduled || document.hidden) return;
  isScheduled = true;
  requestAnimationFrame(() => {
    isScheduled = false;
    render();
  });
}

function render() {
  if (!model.hasStarted) return;
  if (shownRoute !== location.hash) follow();
  const isStep = hasStep;
  hasStep = false;
  isStale ||= isStep;
  if (isStep) showSeconds(model.shownSteps * model.step);
  const store = storeState(model);
  setText(node("store-state"), store.text);
  node("store-state").classList.toggle("warning", !store.isWell);
  if (view) {
    view.render(model, isStep || view.isNew);
    view.isNew = false;
    return;
  }
  for (const panel of panels) panel.render(model, isStale);
  isStale = false;
  const isEmpty = !model.isUsed && !(model.hasRestarted && model.isMeasuring);
  if (node("empty").hidden === isEmpty) {
    node("empty").hidden = !isEmpty;
    if (isEmpty) showEmpty(node("empty"), model, announce);
  }
}

/** Shows what the address bar asks for. */
function follow() {
  const before = shownRoute;
  shownRoute = location.hash;
  const { limit: name, key, request } = route();
  const limit = name === null ? null : model.limit(name);
  shownPolicy = policyOf(name);
  const isOverview = name === null && request === null;
  const opened = node("detail").dataset.limit;
  if (!isOverview && view === null) scrolled = scrollY;
  view?.destroy();
  view = null;
  node("detail").replaceChildren();
  node("overview").hidden = !isOverview;
  node("detail").hidden = isOverview;
  node("detail").dataset.limit = name ?? "";
  if (!isOverview) {
    const services = { askForToken: () => openToken(null), announce };
    if (name !== null && !limit) node("detail").append(missing(name));
    else if (key !== null || request !== null) view = new KeyView(node("detail"), { limit, key: key ?? [], request }, model, services);
    else view = new LimitView(node("detail"), limit, model);
    if (view) view.isNew = true;
  }
  if (before === null) return; // the page has just opened
  if (isOverview) {
    scrollTo(0, scrolled);
    const link = [...document.querySelectorAll(".limit-name")].find(({ textContent }) => textContent === shown(opened));
    (link ?? node("main")).focus({ preventScroll: true });
  } else {
    scrollTo(0, 0);
    (node("detail").querySelector("h2") ?? node("main")).focus({ preventScroll: true });
  }
}

function missing(name) {
  return element("section.panel", {}, element("h2", { tabIndex: -1 }, "No such limit"),
    element("p", {}, "The policy in force has no limit ", element("code", {}, clipped(name)), "."), element("a", { href: "#" }, "All limits"));
}

/** Shows the state of the connection. For a lost one: since when, why, and when the next attempt is. */
function showConnection() {
  const isLost = connection.kind === "lost";
  const words = { connecting: "Connecting", live: "● Live", lost: "× Connection lost" };
  setText(node("connection"), words[connection.kind]);
  node("connection").className = `state ${connection.kind}`;
  document.body.classList.toggle("is-lost", isLost && model.hasStarted);
  node("lost").hidden = !isLost;
  if (!model.hasStarted) setText(node("pulse"), isLost ? "No connection to the service." : "Connecting to the service.");
  if (isLost) showCounter();
}

function showCounter() {
  if (connection.kind !== "lost") return;
  const { since, retryAt, reason } = connection;
  const next = Math.max(0, Math.ceil((retryAt - Date.now()) / 1000));
  const old = model.hasStarted ? ` The numbers are from ${clock(model.now)}.` : "";
  const why = reason.status === 503 ? reason.message : `Connection lost ${span((Date.now() - since) / 1000)} ago: ${reason.message}`;
  setText(node("lost-text"), `${why}.${old} ${next > 0 ? `Next attempt in ${span(next)}.` : "Trying now."}`);
}

/** Connects with a token, and keeps it if the service accepts it. */
async function useToken(token) {
  setToken(token);
  try {
    await stream.connect();
  } catch (reason) {
    setToken(null);
    stream.connect().catch(() => {});
    throw new Error(reason.status === 401 ? "The service refuses this token: it is not the token in its file." : `Not signed in: ${reason.message}.`);
  }
  announce("Signed in: names of keys are shown");
}

function openToken(why) {
  askForToken(useToken, why);
}

function tokenEnded() {
  if (document.querySelector("dialog[open]")) return; // the dialog shows why
  setToken(null);
  stream.connect().catch(() => {});
  openToken("The service no longer accepts the admin token.");
}

/** The address of the hot key with a name. Null if no hot key has it. */
async function hotKeyAddress(name) {
  if (name === "") return null;
  // Frames have only the hottest of the hot keys.
  const { limits } = await call("GET", "/v1/hot").catch(() => ({ limits: Object.fromEntries(model.limits.map((limit) => [limit.name, limit.hot])) }));
  const found = hotKey(model.limits, limits, name);
  return found && keyAddress(found.limit.name, found.key);
}

function lookupAddress(request) {
  const example = exampleLookup(model.limits);
  if (request !== "" && !request.includes("=")) throw new Error(`“${clipped(request)}” is not among the hot keys: type its attributes, such as ${example}.`);
  parseRequest(request, example); // throws what is wrong
  return requestAddress(request);
}

node("admin").addEventListener("click", () => {
  if (!hasToken()) return openToken(null);
  setToken(null);
  stream.connect().catch(() => {});
  announce("Signed out");
});
node("retry").addEventListener("click", () => stream.connect().catch(() => {}));
node("skip").addEventListener("click", (event) => {
  event.preventDefault();
  node("main").focus();
});
node("filter-form").addEventListener("submit", (event) => event.preventDefault());
node("lookup-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const field = node("lookup");
  const name = field.value.trim();
  try {
    location.hash = (await hotKeyAddress(name)) ?? lookupAddress(name);
    field.setCustomValidity("");
  } catch (fault) {
    field.setCustomValidity(fault.message);
    field.reportValidity();
  }
});
node("lookup").addEventListener("input", () => node("lookup").setCustomValidity(""));
addEventListener("hashchange", schedule);
document.addEventListener("visibilitychange", schedule);
setInterval(showCounter, 1000);
stream.connect().catch(() => {});
