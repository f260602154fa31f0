// Takes the pictures of the documentation: TOLLGATE_NODE=target/node node crates/tollgate-server/tests/browser/screenshots.mjs [SECONDS]
//
// Needs a release build, Chromium and tmux. It starts `tollgate serve --demo`, waits for SECONDS (default: 300) so that the charts have a
// history, and writes to docs/images.

import { spawn, execFileSync } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

const require = createRequire(path.join(path.resolve(process.env.TOLLGATE_NODE), "package.json"));
const { chromium } = require("playwright-core");

const root = fileURLToPath(new URL("../../../..", import.meta.url));
const images = path.join(root, "docs/images");
const tollgate = path.join(root, "target/release/tollgate");
const seconds = Number(process.argv[2] ?? 300);
const SIZES = [[1440, 900], [390, 844]];
const THEMES = ["dark", "light"];

const port = await new Promise((resolve) => {
  const server = createServer().listen(0, "127.0.0.1", () => {
    const { port: free } = server.address();
    server.close(() => resolve(free));
  });
});
const base = `http://127.0.0.1:${port}`;
const service = spawn(tollgate, ["serve", "--demo", "--listen", `127.0.0.1:${port}`], { stdio: "ignore" });
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

const pause = (time) => new Promise((resolve) => setTimeout(resolve, time));

/** Opens an address, lets `prepare` bring the page to the moment, and saves what is on the screen. */
async function picture(name, address, { width, height, colorScheme }, prepare) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme, deviceScaleFactor: width < 600 ? 2 : 1 });
  const page = await context.newPage();
  await page.goto(base + address);
  await prepare(page);
  const file = path.join(images, `${name}-${colorScheme}-${width}.png`);
  await page.screenshot({ path: file });
  await context.close();
  console.log(file);
}

/** The screen of `tollgate top` in tmux, as an HTML page of the same colours. */
async function terminal() {
  const socket = path.join(mkdtempSync(path.join(os.tmpdir(), "tollgate-")), "tmux");
  const environment = { ...process.env, LC_ALL: "C.UTF-8", NO_COLOR: "" };
  const tmux = (...words) => execFileSync("tmux", ["-u", "-S", socket, "-f", "/dev/null", ...words], { env: environment }).toString();
  tmux("new-session", "-d", "-x", "120", "-y", "34", `${tollgate} top --url ${base}`);
  await pause(8000);
  const screen = tmux("capture-pane", "-p", "-e");
  tmux("kill-server");
  const colours = { 31: "#ff9b63", 33: "#facc15", 34: "#7cb0ff", 35: "#cfa4ff" };
  const escape = (text) => text.replace(/[&<>]/g, (letter) => `&#${letter.charCodeAt(0)};`);
  let [html, style] = ["", {}];
  for (const part of screen.split(/(\u001b\[[0-9;]*m)/)) {
    const codes = /^\u001b\[([0-9;]*)m$/.exec(part);
    if (!codes) {
      const { colour = "#e5edf8", bold, dim, reverse } = style;
      const [front, back] = reverse ? ["#0b1120", colour] : [colour, "transparent"];
      html += `<span style="color:${front};background:${back};${bold ? "font-weight:600;" : ""}${dim ? "opacity:.65" : ""}">${escape(part)}</span>`;
      continue;
    }
    // A colour of the palette, `38;5;N`, is one of the eight.
    for (const code of codes[1].replace(/38;5;([0-7])/g, "3$1").split(";").map(Number)) {
      if (code === 0) style = {};
      if (code === 1) style = { ...style, bold: true };
      if (code === 2) style = { ...style, dim: true };
      if (code === 7) style = { ...style, reverse: true };
      if (code === 39) style = { ...style, colour: undefined };
      if (colours[code]) style = { ...style, colour: colours[code] };
    }
  }
  const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  await page.setContent(
    `<pre style="display:inline-block;margin:0;padding:16px;background:#0b1120;font:13px/18px 'DejaVu Sans Mono',monospace">${html}</pre>`,
  );
  await page.locator("pre").screenshot({ path: path.join(images, "top.png") });
  console.log(path.join(images, "top.png"));
}

try {
  console.log(`${seconds} s of traffic`);
  await pause(seconds * 1000);
  for (const colorScheme of THEMES) {
    for (const [width, height] of SIZES) {
      const look = { width, height, colorScheme };
      await picture("dashboard", "/", look, (page) => page.getByRole("table").first().waitFor().then(() => pause(7000)));
      // A first visit plays a story and stops at its moment.
      await picture("playground", "/playground", look, () => pause(30_000));
    }
  }
  await terminal();
} finally {
  await browser.close();
  service.kill("SIGTERM");
}
