// The address of a set-up. The fragment is `story=NAME`, or `s=` with the set-up as compressed JSON.

import { KINDS, MOST_ARRIVALS, MOST_LANES, withAllKinds } from "./setup.js";

/** The most characters of a fragment. Some programs cut off longer addresses. */
export const LONGEST_LINK = 32_000;

/** The most bytes of a set-up when it is no longer compressed. */
const LONGEST_TEXT = 1 << 20;

/** The fragment of a set-up, with the play head and the selected arrival if there is a `moment`. Null where it would be too long. */
export async function fragmentOf(setup, traffic, story, moment) {
  if (story) return `story=${story}${moment ? `&at=${moment.at}&arrival=${moment.selected ?? 0}` : ""}`;
  const text = JSON.stringify({
    version: 1,
    lanes: setup.lanes,
    numbers: setup.numbers,
    cost: setup.cost,
    watch: setup.watch ?? undefined,
    ...moment,
    source: setup.source.arrivals ? compact(traffic) : setup.source,
  });
  const compressed = await new Response(through(text, new CompressionStream("deflate-raw"))).arrayBuffer();
  const fragment = `s=${base64url(new Uint8Array(compressed))}`;
  return fragment.length > LONGEST_LINK ? null : fragment;
}

function through(data, transform) {
  return new Blob([data]).stream().pipeThrough(transform);
}

function base64url(bytes) {
  let text = "";
  for (let from = 0; from < bytes.length; from += 8192) text += String.fromCharCode(...bytes.subarray(from, from + 8192));
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** Times as whole nanoseconds since the one before compress well. */
function compact({ start, until, at, cost, client, clients }) {
  const nanos = at.map((seconds) => Math.round(seconds * 1e9));
  return {
    start: start || undefined,
    until: until || undefined,
    after: nanos.map((time, number) => time - (number > 0 ? nanos[number - 1] : 0)),
    cost: cost.every((units) => units === 1) ? undefined : cost,
    client: clients.length > 1 ? client : undefined,
    clients,
  };
}

/** A fragment that does not describe a set-up. The message is for the reader. */
export class LinkFault extends Error {}

function require(condition, what) {
  if (!condition) throw new LinkFault(`The link cannot be read: ${what}.`);
}

const isNumber = (value, least, most) => typeof value === "number" && value >= least && value <= most;
const isWhole = (value, least, most) => Number.isInteger(value) && value >= least && value <= most;
const isName = (value) => typeof value === "string" && [...value].length <= 64;

/** What a fragment describes: `{ story }`, or `{ setup, traffic }`, each with its moment; null for an empty fragment. */
export async function readFragment(fragment) {
  if (fragment === "") return null;
  const story = /^story=([a-z-]{1,64})(?:&at=(\d{1,9}(?:\.\d{1,9})?)&arrival=(\d{1,5}))?$/.exec(fragment);
  if (story) return { story: story[1], moment: story[2] === undefined ? null : { at: Number(story[2]), selected: Number(story[3]) } };
  const [, encoded] = /^s=([A-Za-z0-9_-]+)$/.exec(fragment) ?? [];
  require(encoded !== undefined, "it is not of the form that the Share button makes");
  require(encoded.length <= LONGEST_LINK, "it is too long");
  let data;
  try {
    data = JSON.parse(await inflated(encoded));
  } catch (fault) {
    if (fault instanceof LinkFault) throw fault;
    throw new LinkFault("The link cannot be read: a part of it is missing or was changed.");
  }
  return checked(data);
}

async function inflated(encoded) {
  const text = atob(encoded.replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = Uint8Array.from(text, (char) => char.charCodeAt(0));
  const reader = through(bytes, new DecompressionStream("deflate-raw")).getReader();
  const parts = [];
  for (let length = 0; ;) {
    const { done, value } = await reader.read();
    if (done) return new Blob(parts).text();
    length += value.length;
    require(length <= LONGEST_TEXT, "it is too long");
    parts.push(value);
  }
}

function checked(data) {
  require(data !== null && typeof data === "object", "it has no set-up");
  require(data.version === 1, "it was made by another version");
  require(Array.isArray(data.lanes) && data.lanes.length >= 1 && data.lanes.length <= MOST_LANES, "it has no lanes");
  require(data.lanes.some((lane) => lane?.on === true), "all its lanes are hidden");
  require(data.at === undefined || isNumber(data.at, 0, 1e9), "its time is out of range");
  const selected = isWhole(data.selected, 0, MOST_ARRIVALS) ? data.selected : null;
  const moment = data.at === undefined ? null : { at: data.at, selected };
  require(isWhole(data.cost, 1, 1e9), "its cost is out of range");
  require(data.watch === undefined || isName(data.watch), "the name of its client is too long");
  const setup = {
    lanes: withAllKinds(data.lanes.map(lane)), numbers: numbers(data.numbers), cost: data.cost, watch: data.watch ?? null,
  };
  const { source } = data;
  const kind = ["story", "scenario"].find((known) => isName(source?.[known]));
  setup.source = kind ? { [kind]: source[kind] } : { arrivals: true };
  return { setup, traffic: kind ? null : traffic(source ?? {}), moment };
}

function lane(data) {
  require(Object.hasOwn(KINDS, data?.kind), "an algorithm in it is not known");
  require(data.name === null || data.name === undefined || isName(data.name), "the name of a lane is too long");
  return {
    kind: data.kind, on: data.on === true, by: data.by === "client" ? "client" : "global", name: data.name || null,
    own: data.own ? numbers(data.own) : null,
  };
}

function numbers(data) {
  const isComplete = isWhole(data?.rate, 1, 1e9) && isNumber(data.window, 0.001, 86_400) && isWhole(data.burst, 1, 1e9);
  require(isComplete, "a number in it is out of range");
  return { rate: data.rate, window: data.window, burst: data.burst };
}

function traffic({ start = 0, until = 0, after, cost, client, clients }) {
  require(Array.isArray(after) && after.length <= MOST_ARRIVALS, "it has no arrivals, or too many");
  require(after.every((nanos) => isWhole(nanos, 0, 1e18)) && isNumber(start, 0, 2 ** 33) && isNumber(until, 0, 31_536_000), "a time in it is out of range");
  require(Array.isArray(clients) && clients.length <= MOST_ARRIVALS && clients.every(isName), "a client in it has no name");
  const column = (values, other, most) => {
    const all = values ?? after.map(() => other);
    require(Array.isArray(all) && all.length === after.length && all.every((value) => isWhole(value, 0, most)),
      "its columns do not fit together");
    return all;
  };
  let nanos = 0;
  const at = after.map((more) => (nanos += more) / 1e9);
  return { start, until, at, cost: column(cost, 1, 1e9), client: column(client, 0, Math.max(0, clients.length - 1)), clients };
}
