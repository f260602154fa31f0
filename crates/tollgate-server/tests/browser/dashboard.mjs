// The dashboard as a reader meets it. Above each test stands what its service needs.
//
// `POLICY` of most tests: no admin token, and these limits.
//   - { name: per-user, key: [user], token_bucket: { rate: 6/h, burst: 5 } }
//   - { name: uploads, match: { path: /upload/* }, key: [tenant, user], fixed_window: { limit: 100, window: 24h } }
//   - { name: reports, match: { path: /report }, key: [tenant], sliding_log: { limit: 20, window: 24h } }
//   - { name: candidate, shadow: true, key: [user], sliding_counter: { limit: 2, window: 24h } }
//   - { name: by-limit, match: { path: /named }, key: [limit], sliding_log: { limit: 10, window: 30d }, tiers: { gold: { limit: 2 } } }
// Its tiers are `free`, the default, and `gold`, which the tenant `acme` has.

const LIMITS = ["per-user", "uploads", "reports", "candidate", "by-limit"];

const fail = (message) => {
  throw new Error(message);
};

/** Sends requests one after the other. */
async function send(call, number, attributes) {
  for (let i = 0; i < number; i += 1) {
    const { status, text } = await call("POST", "/v1/check", { attributes });
    if (status !== 200) fail(`/v1/check: ${status} ${text}`);
  }
}

/** The table of limits. Other tables have rows too. */
const limits = (page) => page.getByRole("table", { name: "Limits of the policy" });

const row = (page, limit) => limits(page).getByRole("row").filter({ has: page.getByRole("rowheader").getByRole("link", { name: limit, exact: true }) });

/** The text of a part of the page, on one line. */
const textOf = async (locator) => (await locator.innerText()).replaceAll(/\s+/g, " ");

const shows = (locator, pattern) => async () => {
  const text = (await locator.count()) === 0 ? "" : await textOf(locator.first());
  return pattern.test(text) || text.slice(0, 300);
};

const isLive = (page, eventually) => eventually("the page is live", shows(page.getByText("Live", { exact: false }), /Live/));

const noScroll = async (page) => {
  const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (wider > 0) fail(`the page is ${wider} px wider than the window`);
};

/** The first event of the stream, as text. */
async function firstEvent(base) {
  const stream = (await fetch(`${base}/v1/events`)).body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  while (!text.includes("\n\n")) text += decoder.decode((await stream.read()).value, { stream: true });
  await stream.cancel();
  return text.slice(0, text.indexOf("\n\n") + 2);
}

/** Presses Tab until a control has the focus. */
async function tabTo(page, name) {
  for (let i = 0; i < 60; i += 1) {
    const focused = await page.evaluate(() => {
      const node = document.activeElement;
      return node.getAttribute("aria-label") ?? node.labels?.[0]?.textContent ?? node.textContent;
    });
    if (name.test(focused.trim())) {
      const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
      return outline === "none" ? fail(`${name} has the focus, which is not visible`) : undefined;
    }
    await page.keyboard.press("Tab");
  }
  fail(`Tab never comes to ${name}`);
}

export const tests = {
  // POLICY, with an admin token.
  every_limit_and_its_state_are_on_the_page_without_a_click: async ({ base, call, newPage, eventually }) => {
    await send(call, 7, { user: "zoe" });
    const page = await newPage({ width: 390, height: 844 });
    await page.goto(base);
    await eventually("every limit is there", async () => {
      const text = await page.locator("main").innerText();
      const missing = LIMITS.filter((limit) => !text.includes(limit));
      return missing.length === 0 || missing;
    });
    const states = { "per-user": /no requests now|denying|allowing all/, uploads: /no request yet/, reports: /no request yet/, candidate: /shadow: would deny/ };
    for (const [limit, state] of Object.entries(states)) await eventually(`state of ${limit}`, shows(row(page, limit), state));
    const text = await textOf(page.locator("body"));
    for (const part of ["token_bucket: { rate: 6/h, burst: 5 }", "sliding_log: { limit: 20, window: 1d }", "Memory store", "Names of keys are hidden"]) {
      if (!text.includes(part)) fail(`not on the page: ${part}`);
    }
    if (text.includes("zoe")) fail("the page shows a name that GET /v1/hot hides");
    await noScroll(page);
  },

  // POLICY.
  numbers_move_under_load: async ({ base, call, newPage, eventually }) => {
    const page = await newPage();
    await page.goto(base);
    await eventually("the table is there", shows(row(page, "per-user"), /per-user/));
    const load = setInterval(() => call("POST", "/v1/check", Array(4).fill({ attributes: { user: "bob", tenant: "acme", path: "/report" } })), 100);
    try {
      await eventually("the sentence", shows(page.getByRole("heading", { level: 2 }).first(), /\d+ of \d+ requests per second denied, all by per-user\./));
      await eventually("the row", shows(row(page, "per-user"), /× ?denying \d+\/s/));
      await eventually("the key that is denied", shows(row(page, "per-user").getByRole("cell").last(), /^× ?most denied key bob$/));
      await eventually("the time of the history", shows(limits(page).getByRole("columnheader").nth(2), /^Requests, \d+ min$/));
      await eventually("the shadow limit", shows(row(page, "candidate"), /shadow: would deny \d+\/s/));
      const denied = row(page, "per-user").getByRole("cell").nth(3);
      const first = await denied.innerText();
      await eventually("the number changes", async () => (await denied.innerText()) !== first || first);
      await eventually("the chart has a legend with numbers", shows(page.locator("figure").first(), /denied \d+\/s/));
      // The chart can be read without a pointer.
      const chart = page.getByRole("slider", { name: /Requests per second/ });
      await chart.focus();
      await eventually("a step is read", async () => {
        await page.keyboard.press("ArrowLeft");
        const text = await chart.getAttribute("aria-valuetext");
        return /\d\d:\d\d:\d\d: allowed .*, denied \d+\/s/.test(text) || text;
      });
    } finally {
      clearInterval(load);
    }
    await page.getByRole("searchbox", { name: "Filter limits" }).fill("sliding");
    await eventually("the filter", async () => {
      const names = await limits(page).getByRole("rowheader").allInnerTexts();
      return (names.length === 3 && names.every((name) => /^(reports|candidate|by-limit)/.test(name))) || names;
    });
  },

  // POLICY.
  a_hot_key_appears_and_is_explained: async ({ base, call, newPage, eventually }) => {
    await send(call, 3, { user: "carol" });
    await send(call, 30, { user: "<b>mallory</b>", tenant: "acme", path: "/upload/1" });
    const page = await newPage();
    await page.goto(base);
    const hottest = page.getByRole("table", { name: "Hottest keys of all limits" });
    await eventually("the key with the most denials", shows(hottest.getByRole("row").nth(1), /^<b>mallory<\/b> per-user 25 100/));
    await page.getByRole("radio", { name: "Requests" }).check();
    await eventually("the key with the most requests", shows(hottest.getByRole("row").nth(1), /^<b>mallory<\/b> per-user 30 /));
    await row(page, "per-user").getByRole("rowheader").getByRole("link").click();
    const keys = page.getByRole("table", { name: "Hot keys" });
    await eventually("its denials, because the limit denies", shows(keys.getByRole("row").nth(1), /^<b>mallory<\/b> 25 100/));
    await page.getByRole("radio", { name: "Requests" }).check();
    await eventually("the key is the hottest", shows(keys.getByRole("row").nth(1), /^<b>mallory<\/b> 30 /));
    await keys.getByRole("link", { name: "<b>mallory</b>" }).click();
    const main = page.getByRole("main");
    await eventually("what is decided", shows(main, /Denied, next allowed in \d+ min/));
    await eventually("why, since and until when", shows(main, /Left 0 of 5 tokens.*Next request allowed in .*, at \d\d:\d\d:\d\d Full again in .*Hot since \d\d:\d\d:\d\d, .* ago Requests in 5 to 10 min 30 .*Denials in 5 to 10 min 25/));
    await eventually("the picture", async () => (await page.getByRole("img", { name: "token_bucket: 0 of 5 tokens left" }).count()) === 1);
    // Another request of the same user: more limits apply, and each leads to its key.
    await page.getByRole("textbox", { name: "Request" }).fill('user="<b>mallory</b>" tenant=acme path=/upload/2');
    await page.getByRole("button", { name: "Explain" }).click();
    await eventually("the verdict", shows(main, /This request would be denied by per-user; allowed in/));
    const explained = page.getByRole("table", { name: "Limits that apply to the request" });
    await eventually("another limit", shows(explained.getByRole("row").filter({ hasText: "uploads" }), /acme \/ <b>mallory<\/b> allowed 95 of 100 everything in its match holds/));
    await explained.getByRole("link", { name: "acme / <b>mallory</b>" }).click();
    await eventually("a window", async () => (await page.getByRole("img", { name: "fixed_window: 95 of 100 requests left" }).count()) === 1);
    // A tenant with numbers of its own. A wait that is less than a second is written in milliseconds.
    await page.route("**/v1/explain", async (route) => {
      const answer = await route.fetch();
      const explained = await answer.json();
      const own = { numbers: { limit: "7", window: "1d" }, numbers_of: "tenant", allowed: false, limit: 7, remaining: 0, retry_after: 0.04 };
      for (const of of explained.limits) if (of.name === "uploads") Object.assign(of, own);
      await route.fulfill({ json: explained });
    });
    await eventually("its numbers", shows(main, /fixed_window: \{ limit: 7, window: 1d \}, numbers of this tenant/));
    await eventually("its wait", shows(main, /Denied, next allowed in 40 ms\..*Next request allowed in 40 ms Full again/));
    await page.unroute("**/v1/explain");
    await page.goBack();
    await page.goBack();
    await page.goBack();
    await eventually("back leads to the limit", shows(page.getByRole("heading", { level: 2 }).first(), /^per-user$/));
    await page.goto(`${base}/#${new URLSearchParams({ limit: "candidate" })}`);
    await eventually("what the shadow limit would change", shows(page.getByRole("table", { name: "Hot keys" }), /carol 1 /));
  },

  // POLICY, with an admin token.
  peek_and_reset_need_the_admin_token: async ({ base, token, call, newPage, eventually }) => {
    await send(call, 9, { user: "dave" });
    const page = await newPage();
    page.expected = [/401/];
    await page.goto(`${base}/#limit=per-user`);
    const keys = page.getByRole("table", { name: "Hot keys" });
    await eventually("a hash instead of the name", shows(keys.getByRole("row").nth(1), /^[0-9a-f]{16} 4 100/));
    await keys.getByRole("link").first().click();
    await eventually("the hidden key", shows(page.getByRole("main"), /The name of this key is hidden.*admin/));
    if ((await page.getByRole("button", { name: "Reset key" }).count()) > 0) fail("reset is offered without the token");
    await page.getByRole("button", { name: "Enter admin token" }).click();
    const dialog = page.getByRole("dialog", { name: "Admin token" });
    await dialog.getByLabel("Token of").fill("wrong");
    await dialog.getByRole("button", { name: "Use token" }).click();
    await eventually("a wrong token is refused", shows(dialog.getByRole("alert"), /refuses this token/));
    await dialog.getByLabel("Token of").fill("тoken\u0000");
    await page.keyboard.press("Enter");
    await eventually("no token has such characters", shows(dialog.getByRole("alert"), /The token has control characters/));
    await dialog.getByLabel("Token of").fill("тoken");
    await page.keyboard.press("Enter");
    await eventually("a token in another script is refused", shows(dialog.getByRole("alert"), /refuses this token/));
    await dialog.getByLabel("Token of").fill(token);
    await page.keyboard.press("Enter");
    await eventually("the name", shows(page.getByRole("table", { name: "Hot keys" }).getByRole("row").nth(1), /^dave 4 100/));
    await page.getByRole("table", { name: "Hot keys" }).getByRole("link", { name: "dave" }).click();
    await page.getByRole("button", { name: "Peek" }).click();
    const result = page.getByRole("main").getByRole("status");
    await eventually("peek", shows(result, /\d\d:\d\d:\d\d: 0 of 5 left, full again in/));
    await page.getByRole("button", { name: "Reset key" }).click();
    await page.getByRole("dialog", { name: "Reset key" }).getByRole("button", { name: "Reset", exact: true }).click();
    await eventually("the reset is announced", shows(result, /Reset at \d\d:\d\d:\d\d: dave has used nothing/));
    await eventually("the key is full", shows(page.getByRole("main"), /Left 5 of 5 tokens/));
    // A key whose attribute is called `limit`, and which has the name of another limit. Its tenant is not known.
    for (const tenant of ["acme", "acme", "acme"]) await send(call, 1, { tenant, path: "/named", limit: "uploads" });
    await page.goto(`${base}/#${new URLSearchParams({ limit: "by-limit", key: "uploads" })}`);
    await page.getByRole("button", { name: "Peek" }).click();
    await eventually("peek at this limit", shows(result, /: 8 of 10 left, full again in (30 d|29 d 23 h), as for the default tier\./));
    await eventually("no guess beside denials", shows(page.getByRole("main"), /1 request of this key was denied in .* Decided as for the default tier free: the tenant of this key is not known\. Add tenant=… to the request/));
    await page.getByRole("button", { name: "Reset key" }).click();
    await page.getByRole("dialog", { name: "Reset key" }).getByRole("button", { name: "Reset", exact: true }).click();
    await eventually("this key is reset", shows(result, /Reset at \d\d:\d\d:\d\d: uploads has used nothing/));
    await page.getByRole("textbox", { name: "Request" }).fill("limit=uploads path=/named tenant=acme");
    await page.getByRole("button", { name: "Explain" }).click();
    await page.getByRole("table", { name: "Limits that apply to the request" }).getByRole("link", { name: "uploads", exact: true }).click();
    await eventually("a known tenant", shows(page.getByRole("main"), /Allowed: 2 of 2 requests left\. sliding_log: \{ limit: 2, window: 30d \}, numbers of tier gold/));
    const kept = await page.evaluate(() => JSON.stringify([location.href, document.cookie, { ...localStorage }, { ...sessionStorage }, history.state, document.documentElement.outerHTML]));
    if (kept.includes(token)) fail("the page keeps the token where others find it");
    await page.getByRole("button", { name: "Sign out" }).click();
    await eventually("signed out", shows(page.getByRole("main"), /Enter admin token/));
    await page.reload();
    await eventually("a reload knows no token", shows(page.getByRole("banner"), /Admin token/));
  },

  // POLICY.
  a_lost_connection_is_said_and_recovers: async ({ base, call, newPage, eventually }) => {
    // A stream that ends after its first event, then no answer, then a service with too many streams.
    // The event is of a service that was started earlier, with another limit: afterwards, the service was started again.
    const frame = JSON.parse(/^data: (.*)$/m.exec(await firstEvent(base))[1]);
    frame.started -= 100;
    frame.policy.limits.push({ ...frame.policy.limits[0], name: "removed" });
    const start = `event: start\ndata: ${JSON.stringify(frame)}\n\n`;
    const full = { status: 503, detail: "100 event streams are open, which is the maximum: close a dashboard, or try again later" };
    const refuse = (route) => route.fulfill({ status: 503, headers: { "retry-after": "1" }, contentType: "application/problem+json", body: JSON.stringify(full) });
    let answer = (route) => {
      answer = (next) => next.abort();
      return route.fulfill({ contentType: "text/event-stream", body: start });
    };
    const page = await newPage();
    page.expected = [/ERR_FAILED|503|404/];
    await page.route("**/v1/events", (route) => answer(route));
    await page.goto(base);
    await eventually("what is known stays", shows(row(page, "uploads"), /no request yet/));
    await eventually("the loss is said", shows(page.getByRole("banner"), /Connection lost/));
    const said = page.getByText("Next attempt in");
    await eventually("with a counter", shows(said, /Connection lost [1-9]\d* s ago: .*The numbers are from \d\d:\d\d:\d\d\. Next attempt in \d+ s\./));
    answer = refuse;
    await page.getByRole("button", { name: "Try now" }).click();
    await row(page, "removed").getByRole("rowheader").getByRole("link").click();
    await eventually("a limit opens without a connection", shows(page.getByRole("heading", { level: 2 }).first(), /^removed$/));
    await eventually("the reason of a 503", shows(said, /100 event streams are open/));
    answer = (route) => route.continue();
    await send(call, 2, { user: "erin" });
    await eventually("it recovers by itself", shows(page.getByRole("banner"), /● Live/));
    await eventually("the policy no longer has the limit", shows(page.getByRole("main"), /^No such limit The policy in force has no limit removed\./));
    await page.getByRole("link", { name: "All limits" }).click();
    await eventually("with new numbers", shows(row(page, "per-user"), /no requests now|allowing all|denying/));
    if (await said.isVisible()) fail("the loss is still said");
    await eventually("the restart", shows(page.getByRole("region", { name: "Events" }), /\d\d:\d\d:\d\d Service The service was started again; history begins here/));
  },

  // POLICY. The first frame is made up from a true one: there is no gateway and no Redis behind this test.
  a_gateway_and_a_shared_store_are_shown_in_words_first: async ({ base, newPage, axe, eventually }) => {
    const [page, plain] = [await newPage({ colorScheme: "dark", width: 390 }), await newPage()];
    page.expected = [/ERR_FAILED/];
    await plain.goto(base);
    await eventually("no gateway, no panel", shows(plain.getByRole("region", { name: "Store" }), /This process decides alone, in memory/));
    if ((await plain.getByRole("region", { name: "Gateway" }).count()) > 0) fail("a service without a gateway has a panel of it");
    const frame = JSON.parse(/^data: (.*)$/m.exec(await firstEvent(base))[1]);
    frame.requests.allowed = 5;
    frame.store = { kind: "redis", mode: "lease", calls: 1000, errors: 2, shards: [
      { name: "127.0.0.1:6379", state: "in use", is_up: true, since: 700 }, { name: "127.0.0.1:6380", state: "unreachable", is_up: false, since: 12 },
    ] };
    frame.sources = { memory: 0, store: 10, lease: 410_000, denied_cache: 90, fallback: 7 };
    frame.multiplier = 0.4;
    frame.gateway = {
      slots: { in_use: 8, limit: 8, waiting: 17, is_adaptive: true }, upstreams: [{ name: "127.0.0.1:9000", in_flight: 8, is_up: true }],
      ended: { forwarded: 1234, denied: 0, no_slot: 3, refused: 0, failed: 0, gone: 0 }, duration_p50: 0.02, duration_p99: 0.3, wait_p50: 0.004, wait_p95: 0.25,
    };
    frame.slot_time = { by: "tenant", seconds: 10, max_error: 0, tenants: [{ tenant: "globex", seconds: 6, weight: 8 }, { tenant: "acme", seconds: 4, weight: 2 }] };
    frame.events = [{ number: 0, at: frame.now - 12, kind: "store", text: "the store 127.0.0.1:6380 does not answer: `on_error` decides" }];
    await page.route("**/v1/events", (route) => route.fulfill({ contentType: "text/event-stream", body: `event: start\ndata: ${JSON.stringify(frame)}\n\n` }));
    await page.goto(base);
    await eventually("the header", shows(page.getByRole("banner"), /Redis: fallback on 1 of 2 servers since 12 s/));
    const gateway = page.getByRole("region", { name: "Gateway" });
    await eventually("slots and queue", shows(gateway, /8 of 8 slots \(adaptive\) in use, 17 requests wait\. Overload: rates are at 40 % of the policy\..*Wait for a slot p50, p95 4 ms, 250 ms/));
    await eventually("shares", shows(gateway.getByRole("table", { name: "Shares of slot time per tenant" }), /globex 8 60 % of 80 % acme 2 40 % of 20 %/));
    await eventually("how requests ended", shows(gateway, /answered by an upstream 1 234 no slot in time 3/));
    await eventually("the store", shows(page.getByRole("region", { name: "Store" }), /1 of 2 servers does not answer.*unreachable since 12 s.*lease .* 410 000 .*Decisions per call 410 /));
    await eventually("events", shows(page.getByRole("region", { name: "Events" }), /Store the store 127.0.0.1:6380 does not answer: on_error decides 12 s ago/));
    const faults = await axe(page);
    if (faults.length > 0) fail(faults.join("\n"));
    await noScroll(page);
  },

  // POLICY.
  no_view_has_a_serious_fault_for_accessibility: async ({ base, call, newPage, axe, eventually }) => {
    await send(call, 8, { user: "frank", tenant: "acme", path: "/report" });
    const views = ["", "#limit=per-user", "#limit=candidate", "#limit=per-user&key=frank", "#limit=reports&key=acme", "#request=user%3Dfrank"];
    const looks = [["light", 1440], ["dark", 390], ["dark", 1440], ["light", 390]];
    const found = [];
    await Promise.all(looks.map(async ([colorScheme, width]) => {
      const page = await newPage({ colorScheme, width });
      for (const view of views) {
        await page.goto(`${base}/${view}`);
        await eventually(`${view} is there`, shows(page.getByRole("main"), /per-user|reports|candidate/));
        await isLive(page, eventually);
        found.push(...(await axe(page)).map((fault) => `${colorScheme} ${width} ${view}: ${fault}`));
        await noScroll(page).catch((error) => found.push(`${width} ${view}: ${error.message}`));
      }
      await page.getByRole("button", { name: "Admin token" }).click();
      found.push(...(await axe(page)).map((fault) => `${colorScheme} ${width} dialog: ${fault}`));
    }));
    if (found.length > 0) fail(found.join("\n"));
  },

  // POLICY.
  everything_works_by_keyboard: async ({ base, call, newPage, eventually }) => {
    await send(call, 6, { user: "grace" });
    const page = await newPage({ reducedMotion: "reduce" });
    await page.goto(base);
    await eventually("the table is there", shows(row(page, "per-user"), /per-user/));
    await page.keyboard.press("Tab");
    await tabTo(page, /^Skip to the content$/);
    await page.keyboard.press("Enter");
    if (new URL(page.url()).hash !== "") fail("the skip link changes the address");
    await tabTo(page, /^per-user$/);
    await page.keyboard.press("Enter");
    await eventually("the limit opens", shows(page.getByRole("heading", { level: 2 }).first(), /^per-user$/));
    const focused = () => page.evaluate(() => document.activeElement.textContent.trim());
    if ((await focused()) !== "per-user") fail(`the focus is on ${await focused()}, not on the title`);
    await eventually("its keys", shows(page.getByRole("table", { name: "Hot keys" }), /grace/));
    await tabTo(page, /^grace$/);
    await page.keyboard.press("Enter");
    await eventually("the key opens", shows(page.getByRole("main"), /Left \d of 5 tokens/));
    await tabTo(page, /^Reset key$/);
    await page.keyboard.press("Enter");
    const dialog = page.getByRole("dialog", { name: "Reset key" });
    await eventually("it is to be confirmed", async () => dialog.isVisible());
    await page.keyboard.press("Escape");
    await eventually("Escape closes the dialog", async () => !(await dialog.isVisible()));
    await tabTo(page, /^Reset key$/);
    await page.keyboard.press("Enter");
    await tabTo(page, /^Reset$/);
    await page.keyboard.press("Enter");
    await eventually("the reset is announced", shows(page.getByRole("main").getByRole("status"), /grace has used nothing/));
    await page.goBack();
    await page.goBack();
    await eventually("the focus is where it was", async () => (await focused()) === "per-user" && new URL(page.url()).hash === "");
    await tabTo(page, /^Dark theme$/).catch(() => page.keyboard.press("Home"));
    const column = limits(page).getByRole("columnheader", { name: /^Limit/ });
    await column.getByRole("button").focus();
    await page.keyboard.press("Enter");
    await eventually("the order", async () => (await column.getAttribute("aria-sort")) === "ascending");
    const lookup = page.getByRole("searchbox", { name: /Look up a key by its attributes, such as user=alice/ });
    await lookup.focus();
    await page.keyboard.type("user=grace");
    await page.keyboard.press("Enter");
    await eventually("a key is looked up", shows(page.getByRole("main"), /This request would be allowed/));
    await page.goto(`${base}/#${new URLSearchParams({ request: '"' })}`);
    await eventually("a request that cannot be read", shows(page.getByRole("main"), /The request cannot be read: “"” is not an attribute: type name=value/));
    const request = page.getByRole("textbox", { name: "Request" });
    await request.fill("user=a user=b");
    await page.keyboard.press("Enter");
    await eventually("an attribute twice", shows(page.getByRole("alert"), /^“user” is there twice/));
    // Names of clients may be those of JavaScript, or reorder the page.
    await request.fill('__proto__=x constructor="1 2" user="a\\u{202e}b"');
    await page.keyboard.press("Enter");
    const explained = page.getByRole("table", { name: "Limits that apply to the request" });
    await eventually("a mark of direction is an escape", shows(explained.getByRole("row").nth(1), /a\\u\{202e\}b allowed 5 of 5/));
    if ((await request.inputValue()) !== '__proto__=x constructor="1 2" user="a\\u{202e}b"') fail(`the request is ${await request.inputValue()}`);
    await page.goto(base);
    await lookup.fill("nobody");
    await page.keyboard.press("Enter");
    await eventually("what to write", async () => {
      const message = await lookup.evaluate((node) => node.validationMessage);
      return message === "“nobody” is not among the hot keys: type its attributes, such as user=alice." || message;
    });
    await lookup.fill("grace");
    await page.keyboard.press("Enter");
    await eventually("a hot key is looked up", shows(page.getByRole("heading", { level: 2 }).first(), /^grace of per-user$/));
  },

  // POLICY, and no request before this test.
  an_empty_service_explains_what_to_send: async ({ base, call, newPage, axe, eventually }) => {
    for (const [colorScheme, width] of [["dark", 390], ["light", 1440]]) {
      const page = await newPage({ colorScheme, width });
      await page.goto(base);
      await eventually("the panel", shows(page.getByRole("region", { name: "No request yet" }), /tollgate serve --demo/));
      const commands = await page.getByRole("region", { name: "No request yet" }).locator("pre").allInnerTexts();
      if (commands.length !== 4 || !commands[0].startsWith(`curl ${base}/v1/check -d `)) fail(`the commands are ${commands}`);
      const faults = await axe(page);
      if (faults.length > 0) fail(faults.join("\n"));
      await noScroll(page);
      if (width === 390) continue;
      // The first command does what it says.
      const body = JSON.parse(/-d '(.*)'$/.exec(commands[0])[1]);
      await send(call, 1, body.attributes);
      await eventually("the request appears", shows(page.getByRole("main"), /requests? per second|No request in the last|Started \d+ s ago/));
      await eventually("the panel goes", async () => (await page.getByRole("region", { name: "No request yet" }).count()) === 0);
    }
  },
};
