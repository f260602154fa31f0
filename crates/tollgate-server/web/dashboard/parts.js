// The parts that panels are made of: facts, tables, bars, and sentences with names in them.

import { element, setText, shown, span } from "../format.js";
import { limitAddress } from "./route.js";

/** A list of numbers with their names. An update changes only the texts. */
export class Facts {
  #rows = new Map();

  constructor() {
    this.node = element("dl.facts", {});
  }

  /** Sets all facts: `[name, text, kind, help]`. A fact without a text is left out. */
  set(facts) {
    const shown = facts.filter(([, text]) => text !== null);
    if (shown.map(([name]) => name).join() !== [...this.#rows.keys()].join()) {
      this.#rows = new Map(shown.map(([name]) => [name, element("dd")]));
      this.node.replaceChildren(...shown.map(([name, , , help]) => element("div", { title: help }, element("dt", {}, name), this.#rows.get(name))));
    }
    for (const [name, text, kind = ""] of shown) {
      const value = this.#rows.get(name);
      setText(value, text);
      if (value.className !== kind) value.className = kind;
    }
  }
}

/** Makes the children of a node again, if the values they show have changed. Nodes that stay the same keep the focus. */
export function setRows(parent, values, make) {
  const text = JSON.stringify(values);
  if (parent.shows === text) return;
  parent.shows = text;
  patchChildren(parent, values.map(make));
}

function patchChildren(parent, wanted) {
  const present = [...parent.childNodes];
  for (const node of present.slice(wanted.length)) node.remove();
  for (const [i, node] of wanted.entries()) {
    if (i < present.length) patch(present[i], node);
    else parent.append(node);
  }
}

/** Makes a node like another one. Listeners stay, so nodes that are made by `setRows` have none. */
function patch(node, wanted) {
  if (node.nodeName !== wanted.nodeName) node.replaceWith(wanted);
  else if (node.nodeType === Node.TEXT_NODE) node.data === wanted.data || (node.data = wanted.data);
  else {
    for (const { name, value } of wanted.attributes) if (name !== "style" && node.getAttribute(name) !== value) node.setAttribute(name, value);
    if (node.style.cssText !== wanted.style.cssText) node.style.cssText = wanted.style.cssText;
    patchChildren(node, [...wanted.childNodes]);
  }
}

/** A table with a body to be filled. A head that begins with `#` is of numbers, an empty one of pictures. After `|` stands its help. */
export function table(caption, heads, body, className = "") {
  const head = (label) => {
    if (label === "") return element("td.bar-cell", {});
    const [name, help] = label.split("|");
    const isNumber = name.startsWith("#");
    return element("th", { scope: "col", className: isNumber ? "number" : "", title: help }, isNumber ? name.slice(1) : name);
  };
  return element("table", { className: `small-table ${className}` }, element("caption.screen-reader-only", {}, caption),
    element("thead", {}, element("tr", {}, ...heads.map(head))), body);
}

export const rowHead = (...children) => element("th", { scope: "row" }, ...children);
export const number = (...children) => element("td.number", {}, ...children);
export const muted = (text) => element("span.muted", {}, text);

/** A bar over a part of one. `due` is the position of a line, or null. `kind` is its colour. */
export function bar(part, due = null, kind = "allowed") {
  const fill = element("span", { className: `bar-fill ${kind}` });
  fill.style.width = `${Math.min(1, part) * 100}%`;
  const line = due === null ? null : element("span.bar-due", {});
  if (line) line.style.left = `${due * 100}%`;
  return element("td.bar-cell", {}, element("span.bar", { "aria-hidden": "true" }, fill, line));
}

/** A text in which names stand between backticks, as nodes. A name that is in `limits` is a link to the limit. */
export function named(text, limits = null) {
  return text.split("`").map((part, i) => {
    if (i % 2 === 0) return shown(part);
    const name = element("code", {}, shown(part));
    return limits?.has(part) ? element("a", { href: limitAddress(part) }, name) : name;
  });
}

/** Sets a text with names. It is only made again when it has changed. */
export function setNamed(node, text, limits = null) {
  if (node.shows === text) return;
  node.shows = text;
  patchChildren(node, named(text, limits).map((part) => (typeof part === "string" ? new Text(part) : part)));
}

/** `3 min ago`. */
export function ago(now, at) {
  return `${span(Math.max(0, now - at))} ago`;
}
