// The page /playground, as a reader uses it. Every test needs a service with `limits: []`, or `tollgate playground`.

import { deflateRawSync } from "node:zlib";

function require(condition, what) {
  if (!condition) throw new Error(what);
}

function equal(found, expected, what) {
  require(JSON.stringify(found) === JSON.stringify(expected), `${what}: ${JSON.stringify(found)} instead of ${JSON.stringify(expected)}`);
}

/** The address of a set-up with one lane, as the Share button makes it. */
function linkTo({ kind, numbers, arrivals }) {
  const nanos = arrivals.map(([at]) => Math.round(at * 1e9));
  const setup = {
    version: 1, numbers, cost: 1, at: 0,
    lanes: [{ kind, on: true }],
    source: { after: nanos.map((time, number) => time - (nanos[number - 1] ?? 0)), cost: arrivals.map(([, cost]) => cost), clients: [""] },
  };
  return `#s=${deflateRawSync(JSON.stringify(setup)).toString("base64url")}`;
}

async function opened(page, base, fragment) {
  await page.goto(`${base}/playground${fragment}`);
  await page.getByRole("heading", { name: "Why" }).waitFor();
  await page.locator(".lane").first().waitFor();
}

/** The text of an element, with the exact times that rounded ones have as their titles. */
const exactText = (element) => element.evaluate((node) => [...node.childNodes].map((part) => part.title || part.textContent).join(""));

/** The decision that is shown: verdict, sentence and exact numbers. `wait` is the rounded time after which to retry. */
async function decision(page) {
  const panel = page.getByRole("complementary", { name: "Why" });
  const part = (name) => panel.locator(`[data-part="${name}"]`);
  const numbers = {};
  let wait = "";
  for (const row of await panel.locator("dl > div").all()) {
    const name = (await row.locator("dt").innerText()).toLowerCase();
    numbers[name] = await exactText(row.locator("dd"));
    if (name === "retry after") wait = await row.locator("dd").innerText();
  }
  return { when: await exactText(part("when")), verdict: await part("verdict").innerText(), sentence: await part("sentence").innerText(), numbers, wait };
}

/** Steps through a set-up with the keyboard, and compares every decision with a row of VECTORS.md. */
async function stepThrough({ newPage, base, eventually }, vector) {
  const page = await newPage();
  await opened(page, base, linkTo(vector));
  await page.keyboard.press("Home");
  // Arrivals at 0 are decided at the start already.
  const isShown = (which) => page.getByText(which, { exact: true }).isVisible();
  while (!(await isShown(`Arrival 1 of ${vector.arrivals.length}`))) {
    await page.keyboard.press(await page.getByText(/^Step to a decision/).isVisible() ? "ArrowRight" : "ArrowLeft");
  }
  let number = 0;
  for (const [at, cost, outcome, sentence, numbers] of vector.arrivals) {
    if (number > 0) await page.keyboard.press("ArrowRight");
    number += 1;
    const which = `Arrival ${number} of ${vector.arrivals.length}`;
    await page.getByText(which, { exact: true }).waitFor();
    await eventually(`${which} is explained`, async () => (await decision(page)).sentence !== "…");
    const shown = await decision(page);
    require(shown.when.startsWith(`at ${at} s, costs ${cost}`), `${which}: ${shown.when}`);
    require(shown.verdict.endsWith(`: ${outcome}`), `${which}: ${shown.verdict}, not ${outcome}`);
    equal(shown.sentence, sentence, which);
    equal(shown.numbers, numbers, which);
    require(shown.sentence.endsWith(shown.wait), `${which}: the sentence and the numbers have the same wait: ${shown.wait}`);
  }
  return page;
}

const left = (remaining, reset) => ({ remaining: String(remaining), "reset after": reset });
const denied = (remaining, retry, reset) => ({ remaining: String(remaining), "retry after": retry, "reset after": reset });

export const tests = {
  async stepping_shows_the_token_bucket_of_tb_1(context) {
    const burst = [0, 1, 2, 3, 4, 5].map((spent) =>
      [0, 1, "allowed", `${10 - spent} tokens, costs 1: allowed, ${9 - spent} left`, left(9 - spent, ["0.2 s", "0.4 s", "0.6 s", "0.8 s", "1 s", "1.2 s"][spent])]);
    await stepThrough(context, {
      kind: "token_bucket",
      numbers: { rate: 5, window: 1, burst: 10 },
      arrivals: [
        ...burst,
        [0.1, 1, "allowed", "4.5 tokens, costs 1: allowed, 3.5 left", left(3, "1.3 s")],
        [0.2, 1, "allowed", "4 tokens, costs 1: allowed, 3 left", left(3, "1.4 s")],
        [0.2, 1, "allowed", "3 tokens, costs 1: allowed, 2 left", left(2, "1.6 s")],
        [0.2, 1, "allowed", "2 tokens, costs 1: allowed, 1 left", left(1, "1.8 s")],
        [0.2, 1, "allowed", "1 token, costs 1: allowed, 0 left", left(0, "2 s")],
        [0.2, 1, "denied", "0 tokens, costs 1: denied, the missing 1 comes in 200 ms", denied(0, "0.2 s", "2 s")],
      ],
    });
  },

  async stepping_shows_a_small_queue_and_the_windows_of_fw_1_and_sl_1(context) {
    await stepThrough(context, {
      kind: "leaky_bucket",
      numbers: { rate: 1, window: 1, burst: 3 },
      arrivals: [
        [0, 1, "allowed", "0 of 3 places taken, costs 1: allowed, leaves the queue at once", left(2, "1 s")],
        [0, 1, "allowed, delayed", "1 of 3 places taken, costs 1: allowed, leaves the queue in 1 s", { remaining: "1", delay: "1 s", "reset after": "2 s" }],
        [0, 1, "allowed, delayed", "2 of 3 places taken, costs 1: allowed, leaves the queue in 2 s", { remaining: "0", delay: "2 s", "reset after": "3 s" }],
        [0, 1, "denied", "3 of 3 places taken, costs 1: denied, a place is free in 1 s", denied(0, "1 s", "3 s")],
      ],
    });
    const filling = (from, reset) => Array.from({ length: 10 }, (_, used) =>
      [from + used, 1, "allowed", `${used} of 10 used in this window, costs 1: allowed, ${used + 1} used`, left(9 - used, `${reset - used} s`)]);
    const page = await stepThrough(context, {
      kind: "fixed_window",
      numbers: { rate: 10, window: 60, burst: 10 },
      arrivals: [
        ...filling(50, 10),
        [59.5, 1, "denied", "10 of 10 used, costs 1: denied, the next window begins in 500 ms", denied(0, "0.5 s", "0.5 s")],
        ...filling(60, 60),
      ],
    });
    await page.getByText("most in any 60 s: 20, limit 10").waitFor(); // twice the limit in 19 s
    await stepThrough(context, {
      kind: "sliding_log",
      numbers: { rate: 3, window: 10, burst: 3 },
      arrivals: [
        [0, 1, "allowed", "0 of 3 in the last 10 s, costs 1: allowed, 1 now", left(2, "10 s")],
        [1, 1, "allowed", "1 of 3 in the last 10 s, costs 1: allowed, 2 now", left(1, "10 s")],
        [2, 1, "allowed", "2 of 3 in the last 10 s, costs 1: allowed, 3 now", left(0, "10 s")],
        [3, 1, "denied", "3 of 3 in the last 10 s, costs 1: denied, the oldest leaves in 7 s", denied(0, "7 s", "9 s")],
        [9.999999999, 1, "denied", "3 of 3 in the last 10 s, costs 1: denied, the oldest leaves in 1 ns", denied(0, "0.000000001 s", "2.000000001 s")],
        [10, 1, "allowed", "2 of 3 in the last 10 s, costs 1: allowed, 3 now", left(0, "10 s")],
        [10.5, 1, "denied", "3 of 3 in the last 10 s, costs 1: denied, the oldest leaves in 500 ms", denied(0, "0.5 s", "9.5 s")],
      ],
    });
  },

  async stepping_shows_the_fraction_that_decides_in_sc_1(context) {
    await stepThrough(context, {
      kind: "sliding_counter",
      numbers: { rate: 50, window: 60, burst: 50 },
      arrivals: [
        [0, 42, "allowed", "0 × 1 + 0 = 0 of 50, costs 42: allowed, 42 now", left(8, "120 s")],
        [75, 18, "allowed", "42 × 0.75 + 0 = 31.5 of 50, costs 18: allowed, 49.5 now", left(0, "105 s")],
        [75, 1, "denied", "42 × 0.75 + 18 = 49.5 of 50, costs 1: denied, 50.5 would be above 50, passes in 715 ms", denied(0, "0.714285715 s", "105 s")],
        [75.714285714, 1, "denied", "42 × 0.739 + 18 = 49.001 of 50, costs 1: denied, 50.001 would be above 50, passes in 1 ns", denied(0, "0.000000001 s", "104.285714286 s")],
        [75.714285715, 1, "allowed", "42 × 0.739 + 18 = 49 of 50, costs 1: allowed, 50 now", left(0, "104.285714285 s")],
      ],
    });
  },

  async a_first_visit_plays_a_story_up_to_its_moment(context) {
    const { newPage, base, eventually } = context;
    const page = await newPage();
    await opened(page, base, "");
    await page.getByRole("button", { name: "Pause" }).waitFor(); // it has begun by itself
    const head = page.getByRole("slider", { name: "Play head" });
    const before = Number(await head.inputValue());
    await eventually("the play head moves", async () => Number(await head.inputValue()) > before);
    await page.getByRole("combobox", { name: "Speed" }).selectOption("10");
    await page.getByRole("button", { name: "Play", exact: true }).waitFor(); // it has stopped
    equal(Number(await head.inputValue()), 5.98, "the moment");
    const look = page.getByRole("region", { name: "What to look at" });
    equal(await look.getByRole("listitem").count(), 2, "sentences");
    require((await look.innerText()).includes("gets two full limits within two seconds"), await look.innerText());
    const fixed = page.getByRole("region", { name: "Fixed window" });
    require((await fixed.innerText()).includes("most in any 5 s: 20, limit 10"), await fixed.innerText());
    require((await fixed.innerText()).includes("▲"), "the lane above its limit is marked");
    const bucket = await page.getByRole("region", { name: "Token bucket" }).innerText();
    require(bucket.includes("most in any 5 s: 13, later 15 (burst 10 + 10)") && !bucket.includes("▲"), bucket);
    const shown = await decision(page);
    require(shown.verdict.includes("Fixed window: allowed"), shown.verdict);
    const others = await page.getByRole("complementary", { name: "Why" }).innerText();
    require(/Decided otherwise[\s\S]*Sliding log denied[\s\S]*10 of 10 in the last 5 s/.test(others), others);
    // The second visit, and a reader who wants no motion, see the moment at once.
    await page.reload();
    await page.getByText("5.98 s of").waitFor();
    equal(await page.getByRole("button", { name: "Pause" }).count(), 0, "the second visit does not play");
    const still = await newPage({ reducedMotion: "reduce" });
    await opened(still, base, "");
    await still.getByText("5.98 s of").waitFor();
    for (const story of ["App open", "Driver location", "Noisy neighbour", "Retry storm"]) {
      await still.getByRole("button", { name: story }).click();
      await still.getByRole("button", { name: story, pressed: true }).waitFor();
      equal(await still.getByRole("button", { name: "Pause" }).count(), 0, `${story} does not play`);
      await eventually(`${story} is explained`, async () => !(await decision(still)).sentence.includes("…"));
    }
  },

  async arrivals_are_added_and_removed_by_click_and_by_key(context) {
    const { newPage, base, eventually } = context;
    const page = await newPage({ reducedMotion: "reduce" });
    await opened(page, base, "");
    const entries = () => page.evaluate(() => history.length);
    const before = await entries();
    await page.getByRole("button", { name: "Your own" }).click();
    await page.getByRole("region", { name: "Your own traffic" }).getByRole("button", { name: "Remove all" }).click();
    await page.getByText("0 arrivals").waitFor();
    const track = page.getByRole("application", { name: /^Arrivals/ });
    const { width } = await track.boundingBox();
    await track.click({ position: { x: width / 4, y: 10 } });
    await page.getByText("1 arrival", { exact: true }).waitFor();
    await page.getByText("0 tokens", { exact: false }).first().waitFor();
    await track.click({ position: { x: width / 2, y: 10 } });
    await page.getByText("2 arrivals").waitFor();
    await eventually("each change is an entry of the history", async () => (await entries()) === before + 4);
    await page.goBack();
    await page.getByText("1 arrival", { exact: true }).waitFor();
    await page.goForward();
    await page.getByText("2 arrivals").waitFor();
    // A dot lies at the lower edge of the track.
    await track.click({ position: { x: width / 2, y: 32 } });
    await page.getByText("1 arrival", { exact: true }).waitFor();
    await page.keyboard.press("End");
    await page.keyboard.press("a");
    await page.getByText("2 arrivals").waitFor();
    await page.keyboard.press("Delete");
    await page.getByText("1 arrival", { exact: true }).waitFor();
    await page.getByLabel("Add", { exact: true }).fill("5");
    await page.getByLabel("cost", { exact: true }).fill("3");
    await page.getByRole("button", { name: "Add arrivals" }).press("Enter");
    await page.getByText("6 arrivals").waitFor();
    require((await decision(page)).when.includes("costs 3"), "the arrivals that were added are shown");
    await page.getByText("Lines of a log", { exact: true }).click();
    const lines = [3, 4, 5].map((second) => `10.0.0.${second} - - [17/May/2025:10:05:0${second} +0000] "GET / HTTP/1.1" 200 12`);
    await page.getByRole("textbox", { name: /access log/ }).fill([...lines, "nonsense"].join("\n"));
    await page.getByRole("button", { name: "Use these lines" }).click();
    await page.getByText("3 arrivals").waitFor();
    await page.getByText("Lines that are not requests were skipped: 1.").waitFor();
    page.expected.push(/Failed to load resource/);
    await page.getByRole("textbox", { name: /access log/ }).fill("nonsense");
    await page.getByRole("button", { name: "Use these lines" }).click();
    await page.getByRole("alert").filter({ hasText: "Line 1 of the log: it is neither an access log" }).waitFor();
    await page.getByLabel("Scenario").selectOption("boundary-attack");
    await page.getByText(/1.390 arrivals/).waitFor();
    equal(await page.getByLabel("Rate", { exact: false }).first().inputValue(), "100", "the numbers of the scenario");
  },

  async sliders_change_the_decisions_the_policy_and_the_address(context) {
    const { newPage, base, eventually } = context;
    const page = await newPage({ reducedMotion: "reduce", permissions: ["clipboard-read", "clipboard-write"] });
    await opened(page, base, "");
    const fixed = page.getByRole("region", { name: "Fixed window" });
    await fixed.getByText("most in any 5 s: 20, limit 10").waitFor();
    await page.getByRole("slider", { name: "Rate, slider" }).fill("3"); // the step of 4
    await fixed.getByText("most in any 5 s: 8, limit 4").waitFor();
    const policy = page.getByLabel("Policy of the selected lane");
    require((await policy.innerText()).includes("limit: 4\n      window: 5s"), await policy.innerText());
    await page.getByRole("spinbutton", { name: /^Window/ }).fill("2");
    await fixed.getByText("in any 2 s", { exact: false }).waitFor();
    await page.getByRole("spinbutton", { name: /^Cost/ }).fill("2");
    await eventually("the sentence has the cost", async () => (await decision(page)).sentence.includes("costs 2"));
    await page.getByRole("button", { name: "Copy policy" }).click();
    await page.getByRole("button", { name: "Copied" }).waitFor();
    equal(await page.evaluate(() => navigator.clipboard.readText()), await policy.evaluate((node) => node.textContent), "what is copied");
    await page.getByRole("button", { name: "GCRA" }).click();
    const gcra = page.getByRole("region", { name: "GCRA" });
    await gcra.waitFor();
    await gcra.getByRole("button", { name: "GCRA" }).click();
    await page.getByRole("button", { name: "Share" }).click();
    await page.getByRole("button", { name: "Link copied" }).waitFor();
    const link = await page.evaluate(() => navigator.clipboard.readText());
    const other = await newPage({ reducedMotion: "reduce" });
    await other.goto(link);
    for (const lane of ["Fixed window", "GCRA"]) {
      const [here, there] = [page, other].map((one) => one.getByRole("region", { name: lane }));
      await there.waitFor();
      await eventually(`${lane} is the same`, async () => (await there.innerText()) === (await here.innerText()));
    }
    equal(await other.getByRole("spinbutton", { name: /^Cost/ }).inputValue(), "2", "the cost");
    equal((await decision(other)).when, (await decision(page)).when, "the decision");
    // Back undoes the changes one by one.
    await page.goBack();
    await eventually("GCRA is hidden again", async () => (await gcra.count()) === 0);
    await page.goBack();
    await eventually("the cost is 1 again", async () => (await page.getByRole("spinbutton", { name: /^Cost/ }).inputValue()) === "1");
  },

  async faults_are_said_at_their_place_and_the_last_run_stays(context) {
    const { newPage, base } = context;
    const page = await newPage({ reducedMotion: "reduce" });
    page.expected.push(/Failed to load resource/);
    await opened(page, base, "#s=AAAA");
    await page.getByRole("alert").filter({ hasText: "The link cannot be read" }).waitFor();
    const counts = page.getByText("most in any 5 s: 20, limit 10");
    await counts.waitFor(); // the first story is there instead
    await page.getByRole("spinbutton", { name: /^Rate/ }).fill("2000");
    const numbers = page.getByRole("region", { name: "Numbers" });
    await numbers.getByRole("alert").filter({ hasText: "a log sent with a call has at most 1000 entries" }).waitFor();
    require(await counts.isVisible(), "the last run stays");
    await page.getByRole("spinbutton", { name: /^Rate/ }).fill("10");
    await numbers.getByRole("alert").filter({ hasText: "1000 entries" }).waitFor({ state: "hidden" });
    let answers = 0;
    await page.route("**/v1/playground", async (route) => {
      answers += 1;
      if (answers === 1) await route.fulfill({ status: 503, headers: { "retry-after": "1" }, json: { detail: "two calls run" } });
      else await route.continue();
    });
    await page.getByRole("spinbutton", { name: /^Burst/ }).fill("11");
    await page.getByText("The service is busy").waitFor();
    await page.getByText("rate: 10/5s, burst: 11").waitFor(); // after a second
    await page.unroute("**/v1/playground");
    await page.route("**/v1/playground", (route) => route.abort());
    await page.getByRole("spinbutton", { name: /^Burst/ }).fill("12");
    await page.getByRole("button", { name: "Try again" }).waitFor();
    await page.getByText("The service does not answer").first().waitFor();
    require(await counts.isVisible(), "the last run stays");
    await page.unroute("**/v1/playground");
    await page.getByRole("button", { name: "Try again" }).click();
    await page.getByText("rate: 10/5s, burst: 12").waitFor();
    const lanes = [{ kind: "sliding_log", on: true }];
    const refused = JSON.stringify({ version: 1, lanes, numbers: { rate: 5000, window: 5, burst: 1 }, cost: 1, source: { after: [], clients: [] } });
    await page.goto("about:blank");
    await opened(page, base, `#s=${deflateRawSync(refused).toString("base64url")}`);
    await page.getByRole("alert").filter({ hasText: "The link cannot be run: Rule 1" }).waitFor();
    require(await counts.isVisible(), "the first story is there instead");
    for (const [what, fragment] of [["a bomb", deflateRawSync(Buffer.alloc(4 << 20)).toString("base64url")], ["no set-up", deflateRawSync("{}").toString("base64url")]]) {
      await page.goto("about:blank");
      await opened(page, base, `#s=${fragment}`);
      await page.getByRole("alert").filter({ hasText: "The link cannot be read" }).waitFor();
      require(await counts.isVisible(), what);
    }
  },

  async everything_works_by_keyboard(context) {
    const { newPage, base, eventually } = context;
    const page = await newPage({ reducedMotion: "reduce" });
    await opened(page, base, "");
    const status = page.locator("#spoken");
    await page.keyboard.press("ArrowRight");
    await eventually("the step is said", async () => /^Arrival 25 at 5.7 s. Fixed window: .*denied/.test(await status.innerText()));
    await page.keyboard.press("Shift+ArrowLeft");
    await eventually("the difference is said", async () => /^Arrival 24 .*Fixed window: 9 of 10 used in this window, costs 1: allowed, 10 used. Token bucket, Sliding log.*: denied/.test(await status.innerText()));
    await page.keyboard.press("ArrowDown");
    await eventually("the lane is said", async () => /Token bucket: 0.22 tokens, costs 1: denied/.test(await status.innerText()));
    await page.keyboard.press("5");
    await page.getByRole("region", { name: "GCRA" }).waitFor();
    await page.keyboard.press("1");
    await page.getByRole("region", { name: "Fixed window" }).waitFor({ state: "detached" });
    await page.keyboard.press("Home");
    await page.getByText("0 s of").waitFor();
    for (let presses = 0; presses < 4; presses += 1) await page.keyboard.press(".");
    equal(await page.getByRole("combobox", { name: "Speed" }).inputValue(), "10", "the speed");
    await page.keyboard.press("Space");
    await page.getByRole("button", { name: "Pause" }).waitFor();
    await page.keyboard.press("Space");
    await page.getByRole("button", { name: "Play", exact: true }).waitFor();
    await page.keyboard.press("?");
    const keys = page.getByRole("dialog", { name: "Keys" });
    await keys.getByText("Play or pause").waitFor();
    await page.keyboard.press("Escape");
    await keys.waitFor({ state: "hidden" });
    // A slider keeps the arrows, and no other key.
    const burst = page.getByRole("slider", { name: "Burst, slider" });
    await burst.press("ArrowRight");
    await page.getByText("rate: 10/5s, burst: 12").first().waitFor();
    await burst.press("1");
    await page.getByRole("region", { name: "Fixed window" }).waitFor();
    // A digit in a field is a number.
    await page.getByRole("spinbutton", { name: /^Burst/ }).press("5");
    equal(await page.getByRole("region", { name: "GCRA" }).count(), 1, "lanes stay while a number is written");
  },

  async all_stories_are_accessible_in_both_themes_and_at_both_sizes(context) {
    const { newPage, base, axe } = context;
    for (const [width, height] of [[1440, 900], [390, 844]]) {
      for (const colorScheme of ["light", "dark"]) {
        const page = await newPage({ width, height, colorScheme, reducedMotion: "reduce" });
        await opened(page, base, "#story=retry-storm");
        if (width < 800) {
          const sentence = page.locator("#short-decision");
          await sentence.getByText(/costs 1: /).waitFor(); // near the player, above the lanes
          equal(await page.getByRole("button", { name: "5 GCRA" }).count(), 0, "lanes that are hidden have no button");
          await page.getByRole("button", { name: "More lanes" }).click();
          await page.getByRole("button", { name: "5 GCRA" }).click();
          await page.getByRole("region", { name: "GCRA" }).getByText("GCRA is a way to compute a token bucket").waitFor();
        } else {
          await page.keyboard.press("5");
        }
        const where = `${width} px, ${colorScheme}`;
        equal(await axe(page), [], where);
        const sideways = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        equal(sideways, 0, `${where}: it does not scroll sideways`);
      }
    }
  },
};
