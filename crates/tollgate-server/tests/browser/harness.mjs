// Runs one browser test: node harness.mjs FILE TEST BASE [TOKEN].
//
// FILE exports `tests`, an object of async functions by name. Each gets the object that `context` makes. A test also fails on an
// error in the console of the page, which includes violations of the Content-Security-Policy, and on a request to another origin.

import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(path.join(process.env.TOLLGATE_NODE, "package.json"));
const { chromium } = require("playwright-core");
const { source: axeSource } = require("axe-core");

const [file, name, base, token] = process.argv.slice(2);

// Without the background-networking flags, Chromium calls servers of its vendor.
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
  ],
});
const faults = [];

/** A new page in a profile of its own, of a size and with the reader's preferences. */
async function newPage({ width = 1440, height = 900, colorScheme = "light", reducedMotion = "no-preference", ...more } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme, reducedMotion, ...more });
  context.setDefaultTimeout(10_000);
  const page = await context.newPage();
  page.expected = []; // patterns of console errors that the test causes on purpose
  page.on("console", (message) => {
    const text = message.text();
    if (message.type() === "error" && !page.expected.some((pattern) => pattern.test(text))) {
      faults.push(`console: ${text} (${message.location().url})`);
    }
  });
  page.on("pageerror", (error) => faults.push(`uncaught: ${error.stack ?? error}`));
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.protocol !== "data:" && url.protocol !== "blob:" && url.origin !== new URL(base).origin) {
      faults.push(`request to another origin: ${url}`);
    }
  });
  return page;
}

/** Serious and critical faults that axe-core finds on a page. */
async function axe(page) {
  await page.evaluate(axeSource);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document));
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`);
}

/** A call of the service: the status and the body as JSON. */
async function call(method, target, body, headers = {}) {
  const sent = body === undefined ? {} : { body: JSON.stringify(body) };
  const answer = await fetch(base + target, {
    method, headers: { ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers }, ...sent,
  });
  const text = await answer.text();
  let json = null;
  try {
    json = JSON.parse(text);
  } catch {
    // Not every answer is JSON.
  }
  return { status: answer.status, json, text };
}

/** Waits until a condition holds, and fails with what it returned last. */
async function eventually(what, condition, seconds = 15) {
  const end = Date.now() + seconds * 1000;
  let last;
  do {
    last = await condition();
    if (last === true) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  } while (Date.now() < end);
  throw new Error(`${what}: not after ${seconds} s, last ${JSON.stringify(last)}`);
}

let status = 0;
try {
  const { tests } = await import(pathToFileURL(path.resolve(file)).href);
  if (!tests[name]) throw new Error(`${file} has no test ${name}: ${Object.keys(tests)}`);
  await tests[name]({ base, token, newPage, axe, call, eventually });
  if (faults.length > 0) throw new Error(faults.join("\n"));
  console.log(`passed: ${name}`);
} catch (error) {
  console.error(error.stack ?? error);
  if (faults.length > 0) console.error(faults.join("\n"));
  status = 1;
}
await browser.close();
process.exit(status);
