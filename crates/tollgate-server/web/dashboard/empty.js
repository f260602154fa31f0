// A service without requests: what to send first, as commands to copy.

import { element } from "../format.js";
import { exampleRequest } from "./request.js";

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function commands(model) {
  const limit = model.limits.find(({ policy }) => !policy.shadow && !policy.descriptor) ?? model.limits[0];
  const key = limit?.policy.key.map((part) => (part.split("|").includes("ip") && part === "ip" ? "192.0.2.1" : "alice")) ?? [];
  const attributes = (limit && exampleRequest(limit.policy, key)) ?? { user: "alice" };
  const body = quoted(JSON.stringify({ attributes }));
  const address = location.origin;
  const burst = Math.min(1000, (limit?.policy.capacity ?? 20) + 10);
  return [
    ["Decide one request", `curl ${address}/v1/check -d ${body}`],
    [limit ? `Send ${burst}, until ${limit.name} denies some` : `Send ${burst}`, `for i in $(seq ${burst}); do curl -s ${address}/v1/check -d ${body}; done`],
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
    element("p.muted", {}, "The service runs and has decided nothing so far. Send a request, and it appears here within a second."),
    ...commands(model).flatMap(([title, text]) => [element("h3", {}, title), command(text, announce)]),
    element("h3", {}, "Or see it under a load that it makes itself"),
    command("tollgate serve --demo", announce));
}
