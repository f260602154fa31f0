// Calls of the service. Only this module has the admin token. Closing the page deletes it.

let token = null;

export function setToken(value) {
  token = value;
}

export function hasToken() {
  return token !== null;
}

/** The headers of a call, with the admin token if there is one. */
export function headers(more = {}) {
  if (token === null) return more;
  // Each character of a header is one byte. The service compares the bytes of its file.
  const bytes = Array.from(new TextEncoder().encode(token), (byte) => String.fromCharCode(byte)).join("");
  return { ...more, authorization: `Bearer ${bytes}` };
}

/** An answer with an error status. `status` is 0 if there was no answer. */
export class ServiceError extends Error {
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
  return new ServiceError(answer.status, message, Number.isFinite(retryAfter) ? retryAfter : null);
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
    throw new ServiceError(0, "the service does not answer");
  }
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
}

/** A query of names and values, or of pairs of them where a name may be there twice. */
export function query(parameters) {
  return `?${new URLSearchParams(parameters)}`;
}

/** What an object of the service has under a name. Names come from policies and clients, so `constructor` may be one. */
export function own(object, name) {
  return Object.hasOwn(object, name) ? object[name] : undefined;
}
