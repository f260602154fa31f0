// The address bar: it holds the set-up, and opens it.

import { LinkFault, fragmentOf, readFragment } from "./link.js";
import { goTo, lookAtMoment, player, replaceSetup, setView, state } from "./session.js";

let lastChange = null; // made the newest entry of the history

/** Controls that change while the reader drags or types. Their changes, one after another, are one entry of the history. */
const SLIDERS = ["rate", "window", "burst", "cost"];

/** Writes the set-up into the address, as a new entry of the history. */
export async function remember(name) {
  const address = `#${(await fragmentOf(state.setup, state.traffic, state.story, null)) ?? ""}`;
  if (address === location.hash) return;
  if (lastChange === null || (name === lastChange && SLIDERS.includes(name))) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  lastChange = name;
}

/** The address of the set-up with the play head and the selected arrival. Null where it would be too long. */
export async function link() {
  const moment = { at: Number(player.head.toFixed(9)), selected: state.selected };
  const fragment = await fragmentOf(state.setup, state.traffic, state.story, moment);
  return fragment && `${location.origin}${location.pathname}#${fragment}`;
}

/** Opens stories and links. `viewAround` chooses the part of the timeline to show. `isStill` returns whether the reader asks for reduced motion. */
export class Opener {
  constructor({ stories, viewAround, isStill, showFault }) {
    Object.assign(this, { stories, viewAround, isStill, showFault });
    addEventListener("popstate", () => {
      lastChange = "back";
      this.open(false, true);
    });
  }

  /** Opens a story and plays it up to its moment, or shows the moment at once. */
  async story(name, { moment = null, isPlayed = true } = {}) {
    const story = this.stories.find((known) => known.name === name);
    if (!story) throw new LinkFault(`There is no story “${name}”.`);
    if (!(await replaceSetup({ story }))) return;
    remember(`story ${name}`);
    setView(this.viewAround(story.moment));
    if (moment) {
      goTo(moment);
    } else if (isPlayed && !this.isStill()) {
      player.moveTo(Math.max(0, story.moment - 2.4));
      player.play(story.moment);
    } else {
      player.moveTo(story.moment);
      lookAtMoment();
    }
  }

  /** Opens what the address describes. The first story plays by itself on the first visit. */
  async open(isStart, isBack = false) {
    try {
      const read = await readFragment(location.hash.slice(1));
      if (read === null) await this.story("boundary-attack", { isPlayed: isStart && !isVisited() });
      else if (read.story) await this.story(read.story, { moment: read.moment, isPlayed: false });
      else await this.setup(read, isBack);
    } catch (fault) {
      if (!(fault instanceof LinkFault)) throw fault;
      if (isStart) await this.story("boundary-attack", { isPlayed: false });
      this.showFault(`${fault.message}${isStart ? " The first story is shown instead." : ""}`, "fault");
    }
  }

  async setup({ setup, traffic, moment }, isBack) {
    const story = this.stories.find(({ name }) => name === setup.source.story);
    if (setup.source.story && !story) throw new LinkFault(`There is no story “${setup.source.story}”.`);
    const isDone = await replaceSetup({ setup, traffic, story, isNew: !isBack });
    if (isDone === false) throw new LinkFault(`The link cannot be run: ${state.refusal}`);
    if (!isDone) return;
    if (story && !isBack) setView(this.viewAround(story.moment));
    if (moment) goTo(moment);
    lastChange ??= "link";
  }
}

const VISITED = "tollgate-playground-visited";

function isVisited() {
  try {
    const before = localStorage.getItem(VISITED);
    localStorage.setItem(VISITED, "1");
    return before !== null;
  } catch {
    return false; // storage is blocked: each visit is the first
  }
}
