// Addresses: which screen is shown, and its query. Knows no screen.
import { signal } from "@preact/signals";
import { options } from "preact";
import { prefix } from "./prefix.ts";

export type Place = { path: string; query: URLSearchParams };

const pathOf = (url: Location | URL | HTMLAnchorElement): string =>
  url.pathname.startsWith(`${prefix}/`) ? url.pathname.slice(prefix.length) : "";
const here = (): Place => ({ path: pathOf(location), query: new URLSearchParams(location.search) });

export const place = signal<Place>(here());

// Whether closing the page would lose something that was typed.
let isUnsaved = (): boolean => false;
export const askBeforeClosing = (is: () => boolean): void => {
  isUnsaved = is;
};

export const go = (to: string, how: "push" | "replace" = "push"): void => {
  const next = new URL(to.startsWith("/") ? prefix + to : to, location.href);
  if (next.origin !== location.origin) return;
  const isElsewhere = next.pathname !== location.pathname;
  if (next.href !== location.href) history[how === "push" ? "pushState" : "replaceState"](null, "", next);
  place.value = here();
  if (isElsewhere) scrollTo(0, 0);
};

// Change some of the query without leaving the screen; null removes.
export const setQuery = (
  changes: Record<string, string | null>,
  how: "push" | "replace" = "replace",
): void => {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes))
    value === null ? query.delete(name) : query.set(name, value);
  const text = query.toString();
  go(place.value.path + (text ? `?${text}` : ""), how);
};

export const startRouter = (): void => {
  // Browsers read a relative icon again at each new address.
  for (const icon of document.querySelectorAll<HTMLLinkElement>("link[rel=icon]")) icon.href = icon.href;
  // Links are written without the prefix, too.
  const before = options.vnode;
  options.vnode = (made) => {
    const props = made.props as { href?: unknown };
    if (made.type === "a" && typeof props.href === "string" && props.href.startsWith("/"))
      props.href = prefix + props.href;
    before?.(made);
  };
  addEventListener("popstate", () => {
    place.value = here();
  });
  addEventListener("beforeunload", (event) => {
    if (isUnsaved()) event.preventDefault();
  });
  document.addEventListener("click", (event) => {
    const link = (event.target as Element | null)?.closest?.("a[href]") as HTMLAnchorElement | null;
    if (
      !link ||
      event.defaultPrevented ||
      event.button !== 0 ||
      event.metaKey ||
      event.ctrlKey ||
      event.shiftKey
    )
      return;
    if (link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
    if (!/^\/(ui(\/|$)|$)/.test(pathOf(link))) return;
    event.preventDefault();
    go(link.href);
  });
};
