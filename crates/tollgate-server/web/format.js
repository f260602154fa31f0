// Numbers and times as both pages show them, and functions that make elements.

const SPACE = "\u202f"; // narrow and unbreakable

/** `12 345`. */
export function count(number) {
  return Math.round(number).toString().replace(/\B(?=(\d{3})+$)/g, SPACE);
}

/** A number with its noun: `1 request`, `12 345 requests`. `text` is the number as it is written. */
export function counted(number, noun, text = count(number)) {
  return `${text} ${noun}${text === "1" ? "" : "s"}`;
}

/** A count per second: `0`, `<0.1`, `3.4`, `12 345`. */
export function rate(perSecond) {
  if (!(perSecond > 0)) return "0";
  if (perSecond < 0.05) return "<0.1";
  return perSecond < 9.95 ? trimmed(perSecond) : count(perSecond);
}

/** A part of one: `0 %`, `<0.1 %`, `3.4 %`, `34 %`. Only a whole is `100 %`. */
export function percent(part) {
  const value = part * 100;
  if (!(value > 0)) return `0${SPACE}%`;
  if (value < 0.05) return `<0.1${SPACE}%`;
  if (value < 9.95) return `${trimmed(value)}${SPACE}%`;
  return `${value < 100 ? Math.min(Math.round(value), 99) : Math.round(value)}${SPACE}%`;
}

/** A short time: `850 ns`, `1.2 µs`, `34 ms`, `2.5 s`. */
export function duration(seconds) {
  const [value, unit] =
    seconds < 1e-6 ? [seconds * 1e9, "ns"]
    : seconds < 1e-3 ? [seconds * 1e6, "µs"]
    : seconds < 0.9995 ? [seconds * 1e3, "ms"]
    : [seconds, "s"];
  return `${value < 9.95 ? trimmed(value) : Math.round(value)}${SPACE}${unit}`;
}

/** A long time: `12 s`, `3 min 5 s`, `2 h 5 min`, `3 d`. */
export function span(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const parts = (large, unit, small, smallUnit) =>
    small ? `${large}${SPACE}${unit} ${small}${SPACE}${smallUnit}` : `${large}${SPACE}${unit}`;
  if (whole < 60) return `${whole}${SPACE}s`;
  if (whole < 3600) return parts(Math.floor(whole / 60), "min", whole < 600 ? whole % 60 : 0, "s");
  if (whole < 86_400) return parts(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  return parts(count(Math.floor(whole / 86_400)), "d", Math.floor((whole % 86_400) / 3600), "h");
}

/** `2.1 MiB`. */
export function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; number >= 1024 && unit < units.length - 1; unit += 1) number /= 1024;
  return `${unit > 0 && number < 9.95 ? trimmed(number) : Math.round(number)}${SPACE}${units[unit]}`;
}

/** `12:05:09` of a Unix time, in the reader's time zone. */
export function clock(unixTime) {
  return new Date(unixTime * 1000).toLocaleTimeString([], { hour12: false });
}

/** `Mar 4, 2026` of a Unix time, in the reader's time zone. Null if calendars do not go that far. */
export function date(unixTime) {
  const at = new Date(unixTime * 1000);
  return Number.isNaN(at.getTime()) ? null : at.toLocaleDateString([], { day: "numeric", month: "short", year: "numeric" });
}

/** Characters without a look of their own, and those that change the direction of others. The same as in `tollgate top`. */
const UNSEEN = /[\p{Cc}\p{Cs}\p{Co}\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{10ffff}]/gu;
const ESCAPES = new Map([["\n", "\\n"], ["\r", "\\r"], ["\t", "\\t"]]);

/** A name from a policy or a client as it is shown: characters that cannot be seen are escapes, such as `\u{202e}`. */
export function shown(text) {
  return text.replace(UNSEEN, (letter) => {
    const [point, escape] = [letter.codePointAt(0).toString(16), ESCAPES.get(letter)];
    return escape ?? (letter < "\u0080" ? `\\x${point.padStart(2, "0")}` : `\\u{${point}}`);
  });
}

function trimmed(value) {
  return value.toFixed(1).replace(/\.0$/, "");
}

/**
 * An element with properties, `aria-…` or `data-…` attributes, and children. The tag may have classes, such as `td.number`.
 * Texts are never read as HTML.
 */
export function element(tag, properties = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const node = document.createElement(name);
  if (classes.length > 0) node.className = classes.join(" ");
  return filled(node, properties, children);
}

/** As [element], in SVG. There all properties are attributes. */
export function svgElement(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function filled(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.includes("-") || name === "role" || name === "for" || !(name in node)) node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** Sets the text of an element only where it has changed, so that screen readers and selections are not disturbed. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
