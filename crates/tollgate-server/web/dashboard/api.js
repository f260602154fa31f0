// Calls of the service. The admin token is in this module and nowhere else: it is gone when the page is closed.

let token = null;

export function setToken(value) {
  token = value;
}

export function hasToken() {
  return token !== null;
}

/** The headers of a call, with the admin token if there is one. */
export function headers(more = {}) {
  return token === null ? more : { ...more, authorization: `Bearer ${token}` };
}

/** An answer that is not what was asked for. `status` is 0 if there was none. */
export class Refused extends Error {
  constructor(status, message, retryAfter = null) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter; // seconds
  }
}

/** The reason that an answer gives. */
export async function refusal(answer) {
  let detail = null;
  try {
    detail = (await answer.json()).detail;
  } catch {
    // A proxy in between answers with something else.
  }
  const retryAfter = Number.parseFloat(answer.headers.get("retry-after"));
  const message = typeof detail === "string" ? detail : `the service answered with status ${answer.status}`;
  return new Refused(answer.status, message, Number.isFinite(retryAfter) ? retryAfter : null);
}

/** Calls the service, and returns the JSON of its answer. */
export async function call(method, target, body) {
  const options = { method, headers: headers(), cache: "no-store", credentials: "omit" };
  if (body !== undefined) {
    options.headers = headers({ "content-type": "application/json" });
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(target, options);
  } catch {
    throw new Refused(0, "the service does not answer");
  }
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
}

export function query(parameters) {
  return `?${new URLSearchParams(parameters)}`;
}
