// Drawing on canvases: sizes in device pixels, the colours of the theme, the hatched pattern and the symbols of decisions.

import { colour } from "../theme.js";

let colours = new Map();
let patterns = new Map();
document.addEventListener("themechange", () => {
  colours = new Map();
  patterns = new Map();
});

/** A colour of the theme. */
export function ink(name) {
  if (!colours.has(name)) colours.set(name, colour(name));
  return colours.get(name);
}

export const FONT = "12px system-ui, -apple-system, \"Segoe UI\", Roboto, \"Noto Sans\", \"DejaVu Sans\", sans-serif";

/** The context of a canvas that has been cleared, in CSS pixels, with its width and height. Null while the canvas has no size. */
export function cleared(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  if (width === 0 || height === 0) return null;
  const ratio = Math.min(globalThis.devicePixelRatio || 1, 3);
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== across || canvas.height !== down) {
    canvas.width = across;
    canvas.height = down;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = FONT;
  pen.lineJoin = "round";
  return { pen, width, height };
}

/** Diagonal lines, for what is denied or above a limit. */
export function hatched(pen, name) {
  if (!patterns.has(name)) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const brush = tile.getContext("2d");
    brush.strokeStyle = ink(name);
    brush.lineWidth = 1.6;
    brush.beginPath();
    for (const shift of [-6, 0, 6]) {
      brush.moveTo(shift - 1, 7);
      brush.lineTo(shift + 7, -1);
    }
    brush.stroke();
    patterns.set(name, tile);
  }
  return pen.createPattern(patterns.get(name), "repeat");
}

export const SYMBOLS = { allowed: "●", denied: "×", delayed: "◔" };

/** ● allowed, × denied, ◔ delayed. */
export function symbol(pen, outcome, x, y, radius) {
  pen.beginPath();
  if (outcome === "denied") {
    const arm = radius * 0.8;
    pen.moveTo(x - arm, y - arm);
    pen.lineTo(x + arm, y + arm);
    pen.moveTo(x + arm, y - arm);
    pen.lineTo(x - arm, y + arm);
    pen.strokeStyle = ink("denied");
    pen.lineWidth = Math.max(1.5, radius * 0.45);
    pen.stroke();
    return;
  }
  if (outcome === "allowed") {
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.fillStyle = ink("allowed");
    pen.fill();
    return;
  }
  pen.arc(x, y, radius - 0.5, 0, 2 * Math.PI);
  pen.strokeStyle = ink("delayed");
  pen.lineWidth = 1.2;
  pen.stroke();
  pen.beginPath();
  pen.moveTo(x, y);
  pen.arc(x, y, radius, -Math.PI / 2, 0);
  pen.closePath();
  pen.fillStyle = ink("delayed");
  pen.fill();
}

/** Text with a halo of the panel, so that it can be read on lines. */
export function label(pen, text, x, y, { name = "muted", align = "left", baseline = "middle", bold = false } = {}) {
  pen.font = bold ? `600 ${FONT}` : FONT;
  pen.textAlign = align;
  pen.textBaseline = baseline;
  pen.lineWidth = 3;
  pen.strokeStyle = ink("panel");
  pen.strokeText(text, x, y);
  pen.fillStyle = ink(name);
  pen.fillText(text, x, y);
}

export function line(pen, points, name, { width = 1, dash = [] } = {}) {
  pen.beginPath();
  points.forEach(([x, y], place) => (place === 0 ? pen.moveTo(x, y) : pen.lineTo(x, y)));
  pen.strokeStyle = ink(name);
  pen.lineWidth = width;
  pen.setLineDash(dash);
  pen.stroke();
  pen.setLineDash([]);
}

/** A number without needless digits: `10`, `3.5`, `0.25`. */
export function short(value) {
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return String(Number(value.toFixed(digits)));
}

/** A time: `5 s`, `500 ms`. */
export function shortTime(seconds) {
  return seconds !== 0 && Math.abs(seconds) < 1 ? `${short(seconds * 1000)} ms` : `${short(seconds)} s`;
}
