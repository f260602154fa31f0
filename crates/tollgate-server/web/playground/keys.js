// The keyboard. Keys that a focused field or button needs for itself are left to it.

const FIELDS = "textarea, select, input:not([type=range], [type=checkbox])";
const SPACE_USERS = "button, a, summary, [type=checkbox]";
const ARROW_USERS = "[type=range]";

/** Calls the actions of keys that are pressed anywhere on the page. */
export function listenForKeys(actions) {
  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]") || target.closest(FIELDS)) return;
    if (key === " " && target.closest(SPACE_USERS)) return;
    if (/^(Arrow|Home|End)/.test(key) && target.closest(ARROW_USERS)) return;
    const action = actionOf(event, actions);
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function actionOf({ key, shiftKey }, actions) {
  if (/^[1-9]$/.test(key)) return () => actions.toggleLane(Number(key) - 1);
  return {
    " ": actions.togglePlay,
    ArrowRight: () => actions.step(1, shiftKey),
    ArrowLeft: () => actions.step(-1, shiftKey),
    ArrowDown: () => actions.lane(1),
    ArrowUp: () => actions.lane(-1),
    Home: () => actions.to(0),
    End: () => actions.to(1),
    a: actions.add,
    A: actions.add,
    Delete: actions.remove,
    Backspace: actions.remove,
    "+": () => actions.zoom(2),
    "=": () => actions.zoom(2),
    "-": () => actions.zoom(0.5),
    0: () => actions.zoom(0),
    ",": () => actions.faster(-1),
    ".": () => actions.faster(1),
    "?": actions.showKeys,
  }[key];
}
