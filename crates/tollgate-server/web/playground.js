// The playground page: shows the set-up, its run and the play head, and passes the reader's actions to the session.

import { count, element, setText } from "./format.js";
import { themeButton } from "./theme.js";
import { Opener, link, remember } from "./playground/address.js";
import { Arrivals } from "./playground/arrivals.js";
import { Controls, copy } from "./playground/controls.js";
import { Explanation, exact, moment, spoken } from "./playground/explanation.js";
import { listenForKeys } from "./playground/keys.js";
import { Lanes } from "./playground/lanes.js";
import { LONGEST_LINK } from "./playground/link.js";
import { SYMBOLS } from "./playground/paint.js";
import { SPEEDS } from "./playground/player.js";
import { hasDashboard, lists } from "./playground/service.js";
import {
  addAt, attach, change, choose, fetchSentences, ownArrivals, player, removeAll, removeArrival, run, select, setTraffic, state, step, toggleLane,
  useLog, useScenario, zoom,
} from "./playground/session.js";
import { activeLanes, titleOf } from "./playground/setup.js";
import { View, stackOf } from "./playground/timeline.js";
import { Track } from "./playground/track.js";

const find = (id) => document.getElementById(id);
const capital = (text) => text[0].toUpperCase() + text.slice(1);

const lanes = new Lanes(find("lanes"), { onSelect: select, onLane: choose });
const track = new Track(find("track"), find("overview"), { onAdd: addAt, onRemove: removeArrival });
const explanation = new Explanation(find("explanation"), { onSelect: (number) => select(number), onLane: choose });
const controls = new Controls(find("controls"), {
  onChange: (name, apply) => change(name, apply, "numbers-fault"),
  onLane: (place) => choose(activeLanes(state.setup).findIndex((lane) => lane.place === place)),
});
const arrivals = new Arrivals(find("arrivals"), {
  state,
  onTraffic: (traffic, at) => setTraffic(traffic, { at }),
  onRemoveAll: removeAll,
  onScenario: useScenario,
  onLog: async (text) => setText(find("arrivals-note"), await useLog(text)),
  onWatch: (name) => change("watch", (setup) => (setup.watch = name), "arrivals-fault"),
});
let opener = null;
let lastShown = []; // of the explanation

attach({ remember, showSetup, showRun, showView, showHead, showDecision, showPlaying, speak, showFault, clearFaults });

function showSetup() {
  const { stories } = opener;
  const story = stories.find(({ name }) => name === state.setup.source.story);
  const button = (name, isChosen, onclick) => element("button", { type: "button", "aria-pressed": String(isChosen), onclick }, name);
  const focused = [...find("stories").children].indexOf(document.activeElement);
  find("stories").replaceChildren(
    ...stories.map((known) => button(capital(known.name.replaceAll("-", " ")), known === story, () => opener.story(known.name))),
    button("Your own", !story, ownArrivals));
  find("stories").children[focused]?.focus();
  if (state.run) arrivals.show(state.setup, state.run);
  find("look").hidden = !story;
  find("own").hidden = Boolean(story);
  setText(find("story-title"), story?.title ?? "");
  find("look-list").replaceChildren(...(story?.look ?? []).map((text) => element("li", {}, text)));
}

function showRun() {
  const { run: current } = state;
  showSetup();
  lanes.setRun(current);
  explanation.showClients(current);
  setText(find("arrivals-count"), `${count(current.count)} ${current.count === 1 ? "arrival" : "arrivals"}`);
  const focused = [...find("chips").children].indexOf(document.activeElement);
  find("chips").replaceChildren(...state.setup.lanes.map((lane, place) => element("button", {
    type: "button", className: "chip", "aria-pressed": String(lane.on), onclick: () => toggleLane(place),
  }, element("kbd", {}, String(place + 1)), ` ${titleOf(lane)}`)));
  find("chips").children[focused]?.focus();
  find("scrub").max = String(current.duration);
}

function showView() {
  if (!state.run) return;
  track.draw(state.run, state.view);
  lanes.draw(state.view);
}

function showHead() {
  lanes.move(player.head, state.selected, player.isPlaying);
  track.moveHead(player.head, state.view);
  const time = moment(player.head);
  setText(find("time"), `${time} of ${exact(state.run.duration)}`);
  find("scrub").value = String(player.head);
  find("scrub").setAttribute("aria-valuetext", time);
}

function showDecision() {
  const { run: current, selected, place } = state;
  if (!current) return;
  const shown = [current, current.sentences, selected, place];
  if (shown.some((value, part) => value !== lastShown[part])) {
    lastShown = shown;
    lanes.choose(place);
    explanation.show(current, selected, place);
    showShortDecision();
    controls.show(state.setup, current.rules[place]);
  }
  fetchSentences();
}

/** The selected decision beside the player, on narrow screens. The panel "Why" has it for screen readers. */
function showShortDecision() {
  const { run: current, selected, place } = state;
  const rule = current.rules[place];
  const isEmpty = selected === null || !rule;
  find("short-decision").hidden = isEmpty;
  if (isEmpty) return;
  const outcome = rule.outcomes[selected];
  find("short-decision").replaceChildren(
    element("strong", {}, `${titleOf(rule.lane)} `, element("span", { className: outcome }, SYMBOLS[outcome])), ` ${current.sentence(place, selected) ?? "…"}`);
}

/** Shows whether the run plays, or has stopped at the moment of a story. */
function showPlaying(isAtMoment = false) {
  setText(find("play"), player.isPlaying ? "Pause" : "Play");
  find("look").classList.toggle("now", isAtMoment);
}

/** Announces the selected decision to screen readers. */
async function speak() {
  await fetchSentences();
  if (state.selected !== null) setText(find("spoken"), spoken(state.run, state.selected, state.place));
}

/** Shows a fault near the control that caused it. */
function showFault(text, place, isLost = false) {
  clearFaults();
  setText(find(place === "fault" || isLost ? "fault-text" : place), text);
  if (isLost && place !== "fault") setText(find(place), text);
  find("retry").hidden = !isLost;
}

function clearFaults() {
  for (const id of ["fault-text", "numbers-fault", "arrivals-fault", "arrivals-note"]) setText(find(id), "");
  find("retry").hidden = true;
}

/** A part of the timeline around a moment, short enough for the largest symbols that fit. */
function viewAround(moment) {
  const { duration } = state.run;
  const views = [0.4, 0.3, 0.2].map((part) => new View(moment - 0.7 * part * duration, moment + 0.3 * part * duration, duration));
  const radii = views.map((view) => stackOf(state.run, view, lanes.width).radius);
  return views[radii.indexOf(Math.max(...radii))];
}

async function share() {
  const address = await link();
  if (address) copy(find("share"), address, "Link copied");
  else showFault(`The arrivals do not fit into a link of ${count(LONGEST_LINK)} characters: remove some, or use a scenario.`, "fault");
}

function setSpeed(speed) {
  player.speed = speed;
  find("speed").value = String(speed);
}

function togglePlay() {
  if (player.isPlaying) player.pause();
  else if (state.run) player.play();
}

const showKeys = () => find("keys").showModal();

/** Narrow screens show the buttons of hidden lanes on request. */
function showAllLanes() {
  const isOpen = find("chips").classList.toggle("all");
  find("more-lanes").setAttribute("aria-expanded", String(isOpen));
  setText(find("more-lanes"), isOpen ? "Fewer lanes" : "More lanes");
}

const clicks = {
  play: togglePlay,
  previous: () => step(-1),
  next: () => step(1),
  "next-difference": () => step(1, true),
  "zoom-in": () => zoom(2),
  "zoom-out": () => zoom(0.5),
  "zoom-all": () => zoom(0),
  share,
  retry: () => (state.run ? run() : start()),
  "keys-button": showKeys,
  "remove-all": removeAll,
  "more-lanes": showAllLanes,
};
// The fragment of the address is the set-up: the link must not replace it.
document.querySelector(".skip-link").addEventListener("click", (event) => {
  event.preventDefault();
  find("lanes").focus();
});
for (const [id, action] of Object.entries(clicks)) find(id).addEventListener("click", action);
find("speed").append(...SPEEDS.map((speed) => element("option", { value: String(speed) }, `${speed}×`)));
find("speed").addEventListener("change", () => setSpeed(Number(find("speed").value)));
find("scrub").addEventListener("input", () => player.moveTo(Number(find("scrub").value)));

listenForKeys({
  togglePlay, step, toggleLane, zoom, showKeys,
  lane: (direction) => choose(state.place + direction),
  to: (part) => player.moveTo(part * player.duration),
  add: () => addAt(player.head),
  remove: () => removeArrival(state.selected),
  faster: (direction) => setSpeed(SPEEDS[SPEEDS.indexOf(player.speed) + direction] ?? player.speed),
});

function redraw() {
  if (!state.run) return;
  showView();
  showHead();
}

new ResizeObserver(redraw).observe(find("lanes"));
document.addEventListener("themechange", redraw);

async function start() {
  try {
    if (!opener) {
      const { stories, scenarios } = await lists();
      clearFaults();
      arrivals.setScenarios(scenarios);
      const isStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
      opener = new Opener({ stories, viewAround, isStill, showFault });
    }
  } catch (fault) {
    showFault(fault.message, "fault", true);
    return;
  }
  await opener.open(true);
}

themeButton(find("theme"));
setSpeed(0.5);
hasDashboard().then((has) => (find("dashboard-link").hidden = !has));
start();
