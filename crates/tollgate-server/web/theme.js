// Light or dark: as the system, until the reader chooses. The choice stays in this browser.

const CHOICE = "tollgate-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

function choice() {
  try {
    return localStorage.getItem(CHOICE);
  } catch {
    return null; // storage is blocked
  }
}

function apply() {
  document.documentElement.dataset.theme = choice() ?? (dark.matches ? "dark" : "light");
  document.dispatchEvent(new Event("themechange"));
}

/** Makes a button switch the theme. Charts listen for `themechange` on the document and draw again. */
export function themeButton(button) {
  const show = () => {
    const isDark = document.documentElement.dataset.theme === "dark";
    button.textContent = isDark ? "Light theme" : "Dark theme";
  };
  button.addEventListener("click", () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem(CHOICE, next);
    } catch {
      // The choice then lasts until the page is closed.
    }
    document.documentElement.dataset.theme = next;
    document.dispatchEvent(new Event("themechange"));
    show();
  });
  document.addEventListener("themechange", show);
  show();
}

/** A colour of theme.css, such as `colour("denied")`, for a canvas. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

dark.addEventListener("change", apply);
apply();
