// Light, dark, or as the system says. The choice is the only thing this page keeps in the browser.
import { signal } from "@preact/signals";
export type Theme = "system" | "light" | "dark";
const STORED = "holdfast.theme";
const read = (): Theme => {
  try {
    const found = localStorage.getItem(STORED);
    return found === "light" || found === "dark" ? found : "system";
  } catch {
    return "system";
  }
};
export const theme = signal<Theme>(read());
const apply = (): void => {
  if (theme.value === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme.value;
};
export const setTheme = (next: Theme): void => {
  theme.value = next;
  try {
    next === "system" ? localStorage.removeItem(STORED) : localStorage.setItem(STORED, next);
  } catch {
    /* storage is off */
  }
  apply();
};
export const isDark = (): boolean =>
  theme.value === "system" ? matchMedia("(prefers-color-scheme: dark)").matches : theme.value === "dark";
export const startTheme = apply;
