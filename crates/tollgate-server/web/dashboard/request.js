// Requests as text, such as `user=alice path="/a b"`, the request that a key stands for, and keys by their names.

import { own } from "./api.js";
import { shown } from "../format.js";
import { keyLabel } from "./words.js";

/** The attributes that a text names. Throws an error with the fault and the example. */
export function parseRequest(source, example = "user=alice") {
  const attributes = Object.create(null);
  const pattern = /\s*(?:"((?:[^"\\]|\\.)*)"|([^\s="]+))=(?:"((?:[^"\\]|\\.)*)"|([^\s"]\S*)?)(?=\s|$)/gsy;
  const trimmed = source.trim();
  if (trimmed === "") throw new Error(`Type attributes, such as ${example}.`);
  while (pattern.lastIndex < trimmed.length) {
    const from = pattern.lastIndex;
    const found = pattern.exec(trimmed);
    if (found === null) throw new Error(`“${clipped(trimmed.slice(from).trim())}” is not an attribute: type name=value, such as ${example}.`);
    const [, quotedName, bareName, quoted, bare = ""] = found;
    const name = bareName ?? unescaped(quotedName);
    if (Object.hasOwn(attributes, name)) throw new Error(`“${clipped(name)}” is there twice: a request has each attribute once.`);
    attributes[name] = quoted === undefined ? bare : unescaped(quoted);
  }
  return attributes;
}

const ESCAPES = new Map([["n", "\n"], ["r", "\r"], ["t", "\t"]]);

/** A text between quotation marks without its escapes: those that [shown] writes, and `\\` before any other character. */
function unescaped(text) {
  return text.replace(/\\(?:u\{([\da-fA-F]{1,6})\}|x([\da-fA-F]{2})|(.))/gsu, (all, point, byte, letter) => {
    if (letter !== undefined) return ESCAPES.get(letter) ?? letter;
    const number = Number.parseInt(point ?? byte, 16);
    return number > 0x10_ffff ? "\ufffd" : String.fromCodePoint(number);
  });
}

const MOST_OF_A_FAULT = 80; // characters

export function clipped(text) {
  const letters = [...text];
  return shown(letters.length > MOST_OF_A_FAULT ? `${letters.slice(0, MOST_OF_A_FAULT).join("")}…` : text);
}

/** Attributes as text, in which every character can be seen. */
export function writeRequest(attributes) {
  const written = (text, bare) => (bare.test(text) && shown(text) === text ? text : `"${shown(text.replace(/["\\]/g, "\\$&"))}"`);
  return Object.entries(attributes).map(([name, value]) => `${written(name, /^[^\s="]+$/)}=${written(value, /^[^\s"]*$/)}`).join(" ");
}

const isAddress = (value) => /^\d+\.\d+\.\d+\.\d+$/.test(value) || /^[\da-f]*:[\da-f:.]*(\/\d+)?$/i.test(value);

/** The service keeps at most this many bytes of a name. */
const LONGEST_NAME = 256;

/** The attributes of a key, with its parts as their values. Null if they are not known. */
export function keyAttributes({ key: parts, descriptor }, key) {
  const isCut = new TextEncoder().encode(key.join(" ")).length > LONGEST_NAME - 4;
  if (parts.length !== key.length || (descriptor && key.length > 0) || isCut) return null;
  const attributes = Object.create(null);
  for (const [i, part] of parts.entries()) {
    const names = part.split("|");
    const name = isAddress(key[i]) && names.includes("ip") ? "ip" : names[0];
    if (name !== "tier" && key[i] !== "") attributes[name] = key[i]; // the tier follows from the tenant
  }
  return attributes;
}

/** An example request that the limit counts for a key. Null if the attributes are not known. */
export function exampleRequest(policy, key) {
  const attributes = keyAttributes(policy, key);
  if (attributes === null || policy.descriptor) return attributes;
  for (const [name, patterns] of Object.entries(policy.match)) {
    if (name !== "tier") attributes[name] ??= patterns[0].replaceAll("*", "");
  }
  return attributes;
}

/**
 * Whether a limit may decide otherwise for the tenant of a key, which the request behind the key does not name. Then the decision is that of
 * the default tier.
 */
export function lacksTenant({ key, tiers, match, tenants_with_own_numbers: tenants = 0 }, attributes) {
  if (attributes === null || Object.hasOwn(attributes, "tenant") || key.includes("tenant")) return false;
  const isByTier = Object.keys(tiers).length > 0 || Object.hasOwn(match, "tier");
  return tenants > 0 || (isByTier && !key.includes("tier"));
}

const EXAMPLES = new Map([["ip", "192.0.2.1"], ["tenant", "acme"]]);

/** An example key of the first limit whose key is made of attributes, and that limit. Null if there is none. */
export function exampleKey(limits) {
  const limit = limits.find(({ policy }) => !policy.shadow && !policy.descriptor && policy.key.length > 0)
    ?? limits.find(({ policy }) => !policy.shadow) ?? limits[0];
  return limit ? { limit, key: limit.policy.key.map((part) => EXAMPLES.get(part) ?? "alice") } : null;
}

/** Attributes to look up a key by, as text: those of [exampleKey]. */
export function exampleLookup(limits) {
  const { limit, key } = exampleKey(limits) ?? {};
  return writeRequest((limit && keyAttributes(limit.policy, key)) ?? {}) || "user=alice";
}

/**
 * The hot key with a name, of the limit that denies it most, or else gets most requests of it. Null if there is none. `hot` has the hot keys
 * of each limit, in their orders.
 */
export function hotKey(limits, hot, name) {
  const order = ["denials", "hits", "tokens"];
  const found = limits.flatMap((limit) => order.flatMap((by, rank) => (own(hot, limit.name)?.[by]?.keys ?? [])
    .filter(({ key }) => key.length > 0 && (keyLabel(key) === name || key.join(" / ") === name)).map(({ key, count }) => ({ limit, key, count, rank: limit.policy.shadow ? order.length : rank }))));
  return found.sort((a, b) => a.rank - b.rank || b.count - a.count)[0] ?? null;
}
