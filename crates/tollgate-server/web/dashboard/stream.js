// The event stream: read with `fetch`, because an EventSource cannot send the admin token in a header. It connects again by itself.

import { ServiceError, hasToken, headers, refusal } from "./api.js";

/** Seconds between attempts. The last one repeats. */
const PAUSES = [1, 2, 3, 4, 8, 15];

/** A service that is started again is back within seconds: in the first minute, no pause is longer than this. */
const SHORT_PAUSE = 3;
const SHORT_PAUSES = 60; // seconds

/** After this many frames, the page reports that it reads. The service closes streams of pages that no longer do. */
const ACKNOWLEDGED_EVERY = 3;

/** A frame comes every second. After this many seconds without one, the connection is lost. */
const SILENCE = 5;

export class Stream {
  #onFrame;
  #onState;
  #attempt = null; // aborts it
  #failures = 0;
  #lostSince = null;
  #timer = null;
  #number = null; // of the stream
  #frames = 0;

  /** `onFrame(event, data)` gets the frames, `onState(state)` gets the state of the connection. Its `kind` is connecting, live or lost. */
  constructor(onFrame, onState) {
    this.#onFrame = onFrame;
    this.#onState = onState;
    addEventListener("online", () => this.#lostSince !== null && this.connect());
  }

  /** Connects again, also while connected. The promise resolves with the first frame, or rejects with the reason why there is none. */
  connect() {
    clearTimeout(this.#timer);
    this.#attempt?.abort();
    const attempt = new AbortController();
    this.#attempt = attempt;
    if (this.#lostSince === null) this.#onState({ kind: "connecting" });
    return new Promise((resolve, reject) => {
      this.#read(attempt, resolve).then(
        () => this.#failed(attempt, new ServiceError(0, "the service ended the connection")),
        (error) => this.#failed(attempt, error),
      ).then(reject);
    });
  }

  #failed(attempt, error) {
    if (attempt !== this.#attempt) return error; // another attempt took its place
    attempt.abort();
    this.#lostSince ??= Date.now();
    const longest = Date.now() - this.#lostSince < SHORT_PAUSES * 1000 ? SHORT_PAUSE : Infinity;
    const pause = error.retryAfter ?? Math.min(PAUSES[Math.min(this.#failures, PAUSES.length - 1)], longest) * (1 - Math.random() * 0.2);
    this.#failures += 1;
    const reason = error instanceof ServiceError ? error : new ServiceError(0, "the service does not answer");
    this.#onState({ kind: "lost", since: this.#lostSince, retryAt: Date.now() + pause * 1000, reason });
    this.#timer = setTimeout(() => this.connect().catch(() => {}), pause * 1000);
    return reason;
  }

  async #read(attempt, resolve) {
    let watch = null;
    const resetWatch = () => {
      clearTimeout(watch);
      watch = setTimeout(() => attempt.abort(), SILENCE * 1000);
    };
    try {
      resetWatch();
      const wanted = { headers: headers({ accept: "text/event-stream" }), cache: "no-store", credentials: "omit", signal: attempt.signal };
      const answer = await fetch("/v1/events", wanted);
      if (!answer.ok) throw await refusal(answer);
      this.#number = answer.headers.get("tollgate-stream");
      this.#frames = 0;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ; ) {
        const { value, done } = await reader.read();
        if (done || attempt !== this.#attempt) return;
        resetWatch();
        // The end of an event may be cut in two.
        let from = Math.max(0, rest.length - 1);
        rest += value;
        for (let end; (end = rest.indexOf("\n\n", from)) >= 0; from = 0) {
          this.#event(rest.slice(0, end), resolve);
          rest = rest.slice(end + 2);
        }
      }
    } finally {
      clearTimeout(watch);
    }
  }

  #acknowledge() {
    if (this.#number === null) return; // a proxy has removed the header
    const options = { method: "POST", headers: headers(), cache: "no-store", credentials: "omit" };
    fetch(`/v1/events?stream=${this.#number}`, options).catch(() => {}); // the stream itself shows that the service is gone
  }

  #event(text, resolve) {
    let [event, data] = ["message", ""];
    for (const line of text.split("\n")) {
      if (line.startsWith("event: ")) event = line.slice(7);
      else if (line.startsWith("data: ")) data += line.slice(6);
    }
    this.#onFrame(event, JSON.parse(data));
    if (this.#frames % ACKNOWLEDGED_EVERY === 0) this.#acknowledge();
    this.#frames += 1;
    this.#failures = 0;
    this.#lostSince = null;
    this.#onState({ kind: "live", isAdmin: hasToken() });
    resolve();
  }
}
