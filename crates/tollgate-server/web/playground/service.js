// Calls of the service. Every decision, curve and sentence of the page comes from here.

/** A call that returned no run. The message is for the reader. `isLost` if the service cannot be reached. */
export class ServiceFault extends Error {
  constructor(message, isLost = false) {
    super(message);
    this.isLost = isLost;
  }
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function call(options, signal) {
  let response;
  try {
    response = await fetch("/v1/playground", { ...options, signal, headers: { "content-type": "application/json" } });
  } catch (fault) {
    if (fault.name === "AbortError") throw fault;
    throw new ServiceFault("The service does not answer. The last run stays on the page.", true);
  }
  if (response.status === 503) return null;
  const body = await response.json().catch(() => null);
  if (response.ok && body !== null) return body;
  const why = body?.detail ?? `the service answered ${response.status}`;
  throw new ServiceFault(`${why[0].toUpperCase()}${why.slice(1)}${why.endsWith(".") ? "" : "."}`);
}

/** The ready-made stories and the scenarios. */
export async function lists() {
  return (await call({ method: "GET" })) ?? { stories: [], scenarios: [] };
}

/** Runs a request. While the service is busy, sends it again after a second, and calls `onBusy` each time. */
export async function evaluate(request, { signal, onBusy = () => {} } = {}) {
  const body = JSON.stringify(request);
  for (let tries = 1; ; tries += 1) {
    const reply = await call({ method: "POST", body }, signal);
    if (reply !== null) return reply;
    if (tries === 10) throw new ServiceFault("The service is busy with other playground calls. Try again later.");
    onBusy();
    await pause(1000);
    signal?.throwIfAborted();
  }
}

/** Whether `/` is a dashboard. `tollgate playground` has none and leads back to this page. */
export async function hasDashboard() {
  try {
    const response = await fetch("/", { redirect: "manual", headers: { accept: "text/html" } });
    return response.ok;
  } catch {
    return false;
  }
}
