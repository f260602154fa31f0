// Dialogs: one takes the admin token, another asks to confirm a reset.

import { element } from "../format.js";

let number = 0;

function open(title, parts, buttons, onSubmit) {
  const id = `dialog-${(number += 1)}`;
  const error = element("p.warning", { role: "alert" });
  const cancel = element("button", { type: "button" }, "Cancel");
  const form = element("form", { method: "dialog" }, element("h2", { id }, title), ...parts, error,
    element("div.dialog-buttons", {}, cancel, ...buttons));
  const dialog = element("dialog", { "aria-labelledby": id }, form);
  cancel.addEventListener("click", () => dialog.close());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    error.textContent = "";
    const submit = buttons.at(-1);
    submit.disabled = true;
    try {
      await onSubmit();
      dialog.close();
    } catch (reason) {
      error.textContent = reason.message;
    }
    submit.disabled = false;
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Asks for the admin token. `use` takes it, and throws the reason if it is wrong. */
export function askForToken(use, why = null) {
  const input = element("input", {
    type: "password", id: "token", autocomplete: "off", spellcheck: false, required: true, maxLength: 4096, "aria-describedby": "token-note",
  });
  open("Admin token", [
    why === null ? null : element("p", {}, why),
    element("label", { for: "token" }, "Token of ", element("code", {}, "admin: { token_file: … }")), input,
    element("p.muted", { id: "token-note" }, "With it, the dashboard shows names of keys, and can peek at and reset a key. It stays in the memory of this page."),
  ].filter(Boolean), [element("button.primary", { type: "submit" }, "Use token")], async () => {
    const token = input.value.trim();
    if (/[\u0000-\u001f\u007f]/.test(token)) throw new Error("The token has control characters, which no token has.");
    await use(token);
    input.value = "";
  });
  input.focus();
}

/** Asks the reader to confirm an action, and runs it. `text` is a list of texts and nodes. */
export function askToConfirm(title, text, word, act) {
  open(title, [element("p", {}, ...text)], [element("button.primary", { type: "submit" }, word)], act);
}
