// The play head: a moment of the timeline that moves by itself, in steps, or with the scrubber.

export const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 5, 10];

export class Player {
  /** `onMove` is called after each move of the play head, `onState` when it starts or stops. */
  constructor({ onMove, onState }) {
    this.head = 0;
    this.duration = 1;
    this.speed = 0.5;
    this.isPlaying = false;
    this.stopAt = null;
    this.onMove = onMove;
    this.onState = onState;
  }

  /** Plays up to a moment. Default: the end. At the end it begins again. */
  play(stopAt = null) {
    if (this.head >= this.duration) this.head = 0;
    this.stopAt = stopAt;
    if (this.isPlaying) return;
    this.isPlaying = true;
    this.onState();
    let before = null;
    const frame = (now) => {
      if (!this.isPlaying) return;
      // After a pause of the page, such as in a hidden tab, the play head goes on from where it was.
      const passed = before === null ? 0 : Math.min(0.1, (now - before) / 1000);
      before = now;
      const end = Math.min(this.duration, this.stopAt ?? this.duration);
      this.head = Math.min(end, this.head + passed * this.speed);
      const isAtEnd = this.head >= end;
      this.onMove();
      if (isAtEnd) this.pause();
      else requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  pause() {
    if (!this.isPlaying) return;
    this.isPlaying = false;
    const wasAtStop = this.stopAt !== null && this.head >= this.stopAt;
    this.stopAt = null;
    this.onState(wasAtStop);
  }

  moveTo(time) {
    this.pause();
    this.head = Math.min(this.duration, Math.max(0, time));
    this.onMove();
  }
}
