// The set-up, its run and the play head, and all functions that change them. The page shows them.

import { count } from "../format.js";
import { Player } from "./player.js";
import { Run } from "./run.js";
import { ServiceFault, evaluate } from "./service.js";
import { NO_TRAFFIC, activeLanes, requestOf, setupOfStory, trafficOfReply, trafficOfStory, withArrivals, withoutArrival } from "./setup.js";
import { View } from "./timeline.js";

export const state = {
  setup: null,
  traffic: NO_TRAFFIC,
  story: null, // the name of the story, until the reader changes something
  run: null,
  view: null,
  selected: null, // an arrival
  selectedAt: null, // the play head when it was selected
  place: 0, // of the selected lane among those that are shown
  refusal: "", // why the last set-up did not run
};

/**
 * What the page does: `showSetup`, `showRun`, `showView`, `showHead`, `showDecision`, `showPlaying`, `speak`, `showFault` and `clearFaults`;
 * `remember` writes the set-up into the address.
 */
const page = {};

export function attach(callbacks) {
  Object.assign(page, callbacks);
}

export const player = new Player({
  onMove: followHead,
  onState: (isAtStop) => {
    page.showPlaying();
    if (isAtStop) lookAtMoment();
    else page.showDecision();
  },
});

let running = null; // aborts the call under way

/** The most sentences that the service writes per call. */
const MOST_SENTENCES = 4000;

/** Runs the set-up. Returns false where the service refuses it, null where another run took its place. */
export async function run({ place = "fault", isNew = false } = {}) {
  running?.abort();
  const call = (running = new AbortController());
  const { setup } = state;
  const lanes = activeLanes(setup);
  const request = requestOf(setup, state.traffic);
  const isKnown = setup.watch !== null && (state.traffic.clients.includes(setup.watch) || request.scenario);
  if (isKnown) request.watch = setup.watch;
  request.sentences = sentenceRange(lanes.length);
  try {
    const onBusy = () => page.showFault("The service is busy with other playground calls. Trying again in a second.", place);
    const reply = await evaluate(request, { signal: call.signal, onBusy });
    if (running !== call) return null;
    if (request.scenario) state.traffic = trafficOfReply(reply);
    state.run = new Run(reply, lanes, isKnown ? setup.watch : null);
    state.run.setSentences(reply, request.sentences.from);
  } catch (fault) {
    if (fault.name === "AbortError" || running !== call) return null;
    if (!(fault instanceof ServiceFault)) throw fault;
    state.refusal = fault.message;
    page.showFault(fault.message, place, fault.isLost);
    return false;
  }
  page.clearFaults();
  adopt(isNew);
  return true;
}

/** Takes over a run. For new arrivals, shows the whole timeline with the play head at its end. */
function adopt(isNew) {
  const { duration, rules, count: arrivals } = state.run;
  player.duration = duration;
  player.head = isNew ? duration : Math.min(player.head, duration);
  state.view = isNew || !state.view ? new View(0, duration, duration) : new View(state.view.from, state.view.to, duration);
  state.place = Math.min(state.place, rules.length - 1);
  if (isNew || state.selected >= arrivals) state.selected = null;
  page.showRun();
  page.showView();
  followHead();
}

/** The arrivals to be explained: all, or those around the selected one. */
function sentenceRange(rules) {
  // A large run gets few sentences, so that the evaluation stays within its CPU time.
  const isLarge = state.traffic.at.length > 1000 || state.setup.source.scenario;
  const number = isLarge ? 60 : Math.floor(MOST_SENTENCES / Math.max(1, rules));
  return { from: Math.max(0, (state.selected ?? 0) - Math.floor(number / 2)), count: number };
}

/** Asks for the sentences around the selected arrival, where the run came without them. */
export async function fetchSentences() {
  const { run: current, selected } = state;
  if (player.isPlaying || selected === null || current.sentence(0, selected) !== null || current.isAsking) return;
  current.isAsking = true;
  try {
    const sentences = sentenceRange(current.rules.length);
    current.setSentences(await evaluate({ ...requestOf(state.setup, state.traffic), sentences }), sentences.from);
    if (state.run === current) page.showDecision();
  } catch (fault) {
    page.showFault(fault.message, "fault", fault.isLost);
  } finally {
    current.isAsking = false;
  }
}

// The play head and the selection

/** After the play head has moved: selects the newest decision, and turns the page of the view where needed. */
function followHead() {
  if (!state.run) return;
  // A selection stays while the play head does.
  if (state.selected === null || state.selectedAt !== player.head) {
    const newest = state.run.countUpTo(player.head) - 1;
    state.selected = newest >= 0 ? newest : null;
  }
  state.selectedAt = player.head;
  if (state.view.has(player.head)) page.showHead();
  else setView(state.view.showing(player.head, player.isPlaying ? 0.1 : 0.5));
  page.showDecision();
}

export function setView(view) {
  state.view = view;
  page.showView();
  page.showHead();
}

export function zoom(factor) {
  if (!state.view) return;
  const { view, run: { duration } } = state;
  const around = view.has(player.head) ? player.head : (view.from + view.to) / 2;
  setView(factor === 0 ? new View(0, duration, duration) : view.zoomed(factor, around));
}

/** Selects an arrival and moves the play head to it. */
export function select(number, place = state.place) {
  if (number === null || !state.run) return;
  player.pause();
  Object.assign(state, { selected: number, place });
  player.head = state.selectedAt = state.run.arrivals.at[number];
  followHead();
}

/** Steps to the next decision in a direction; with `isDisputed` to the next one that the lanes decide differently. */
export function step(direction, isDisputed = false) {
  const { run: current, selected } = state;
  if (!current) return;
  let next = (selected ?? current.countUpTo(player.head) - (direction > 0 ? 1 : 0)) + direction;
  // Between two decisions, a step back goes to the one before the play head.
  if (direction < 0 && selected !== null && current.arrivals.at[selected] !== player.head) next = selected;
  if (isDisputed) next = current.disputed(next, direction) ?? -1;
  if (next < 0 || next >= current.count) return;
  select(next);
  page.speak();
}

/** Selects a lane by its place among those that are shown. */
export function choose(place) {
  if (!state.run?.rules[place]) return;
  state.place = place;
  page.showHead();
  page.showDecision();
  page.speak();
}

/** Selects the newest decision about which the lanes disagree. */
export function lookAtMoment() {
  const newest = state.run.countUpTo(player.head) - 1;
  state.selected = state.run.disputed(newest, -1) ?? state.selected;
  page.showPlaying(true);
  page.showHead();
  page.showDecision();
  page.speak();
}

/** Goes to the moment of a link. */
export function goTo({ at, selected }) {
  player.head = state.selectedAt = Math.min(at, state.run.duration);
  state.selected = selected !== null && selected < state.run.count ? selected : null;
  followHead();
}

// Changes of the set-up

/**
 * Changes the set-up and runs it. If the service refuses the set-up, undoes the change, except in number fields: the reader is still typing there.
 * `place` is the element for faults.
 */
export async function change(name, apply, place = "fault", isNew = false) {
  if (!state.setup) return;
  const before = { setup: structuredClone(state.setup), traffic: state.traffic, story: state.story };
  player.pause();
  state.story = null;
  apply(state.setup);
  const isDone = await run({ place, isNew });
  if (isDone) page.remember(name);
  if (isDone === false && place !== "numbers-fault") Object.assign(state, before);
  if (isDone !== null) page.showSetup();
}

export function setTraffic(traffic, { at, isNew = false } = {}) {
  return change(isNew ? "log" : "arrivals", (setup) => {
    setup.source = { arrivals: true };
    if (!traffic.clients.includes(setup.watch)) setup.watch = null;
    // The timeline keeps its length while arrivals are added and removed.
    state.traffic = isNew ? traffic : { ...traffic, until: Math.max(10, traffic.until, state.run.duration) };
    if (at === undefined) return;
    state.selected = null;
    player.head = at;
  }, "arrivals-fault", isNew);
}

export async function addAt(at) {
  if (!state.run) return;
  const client = state.selected === null ? "" : state.run.client(state.selected);
  await setTraffic(withArrivals(state.traffic, [{ at, cost: 1 }], client), { at });
  page.speak();
}

export function removeArrival(number) {
  if (number !== null && state.run?.count > 0) setTraffic(withoutArrival(state.traffic, number), { at: player.head });
}

export function removeAll() {
  if (state.run) setTraffic({ ...state.traffic, at: [], cost: [], client: [] }, { at: 0 });
}

export function toggleLane(place) {
  const lane = state.setup?.lanes[place];
  if (!lane) return;
  if (lane.on && activeLanes(state.setup).length === 1) page.showFault("At least one lane must be shown: show another lane first.", "fault");
  else change(`lane ${place}`, () => (lane.on = !lane.on));
}

export function useScenario({ name, limit, window, by }) {
  change("scenario", (setup) => {
    Object.assign(setup, { source: { scenario: name }, numbers: { rate: limit, window, burst: limit }, cost: 1, watch: null });
    setup.lanes.forEach((lane) => Object.assign(lane, { own: null, name: null, by }));
  }, "arrivals-fault", true);
}

/** Reads lines of a log. Returns what was read in words. */
export async function useLog(log) {
  try {
    const reply = await evaluate({ rules: requestOf(state.setup, NO_TRAFFIC).rules.slice(0, 1), log });
    await setTraffic(trafficOfReply(reply), { isNew: true });
    const skipped = reply.malformed > 0 ? ` Lines that are not requests were skipped: ${count(reply.malformed)}.` : "";
    return `Requests read: ${count(reply.arrivals.at.length)}.${skipped}`;
  } catch (fault) {
    page.showFault(fault.message, "arrivals-fault", fault.isLost);
    return "";
  }
}

/** The arrivals as they are, to be changed by hand. */
export function ownArrivals() {
  if (state.setup?.source.story) change("own", (setup) => (setup.source = { arrivals: true }));
}

/** Runs the set-up of a story, or of a link. Unless it is new, the play head stays. */
export async function replaceSetup({ setup, traffic, story, isNew = true }) {
  player.pause();
  Object.assign(state, {
    setup: setup ?? setupOfStory(story), traffic: traffic ?? (story ? trafficOfStory(story) : NO_TRAFFIC), story: setup ? null : story.name, place: 0,
  });
  page.showSetup();
  const { cost, source } = state.setup;
  if (source.scenario && cost !== 1) {
    // The service generates the arrivals first, which are then sent with their costs.
    state.setup.cost = 1;
    if (!(await run())) return false;
    state.setup.cost = cost;
  }
  return run({ isNew });
}
