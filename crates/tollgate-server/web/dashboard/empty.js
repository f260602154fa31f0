// A service without requests: what to send first, as commands to copy.

import { element, shown } from "../format.js";
import { exampleKey, exampleRequest } from "./request.js";

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function commands(model) {
  const { limit, key } = exampleKey(model.limits) ?? {};
  const attributes = (limit && exampleRequest(limit.policy, key)) ?? { user: "alice" };
  const body = quoted(JSON.stringify({ attributes }));
  const address = location.origin;
  const burst = Math.min(1000, (limit?.policy.capacity ?? 20) + 10);
  return [
    ["Decide one request", `curl ${address}/v1/check -d ${body}`],
    [limit ? `Send ${burst} requests: ${shown(limit.name)} denies some of them` : `Send ${burst} requests`, `for i in $(seq ${burst}); do curl -s ${address}/v1/check -d ${body}; done`],
    ["Ask which limits apply to it, and why", `curl ${address}/v1/explain -d ${body}`],
  ];
}

function command(text, announce) {
  const button = element("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      announce("Copied");
      button.textContent = "Copied";
    } catch {
      // Without TLS, browsers have no clipboard except on this machine: the text is selected instead.
      getSelection().selectAllChildren(button.previousElementSibling);
      announce("Selected: copy it with the keyboard");
    }
  });
  return element("div.command", {}, element("pre", { tabIndex: 0 }, text), button);
}

/** Fills the panel. */
export function showEmpty(panel, model, announce) {
  panel.replaceChildren(
    element("h2", { id: "empty-title" }, "No request yet"),
    element("p.muted", {}, "The service runs and has not decided any request yet. Send one, and it appears here within a second."),
    ...commands(model).flatMap(([title, text]) => [element("h3", {}, title), command(text, announce)]),
    element("h3", {}, "Or watch a service that makes its own traffic"),
    command("tollgate serve --demo", announce));
}
