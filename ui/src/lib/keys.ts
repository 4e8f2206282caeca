// Keys of the keyboard: screens say what a key does, the newest screen first. Knows no screen.
import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";

export type Binding = { keys: string; does: string; act: (event: KeyboardEvent) => void; always?: boolean };

type Layer = { title: string; bindings: Binding[]; isModal: boolean };
const layers: Layer[] = [];

// Shown while a sequence such as `g r` is half typed.
export const halfTyped = signal("");
let forget = 0;

const isTyping = (target: EventTarget | null): boolean => {
  const element =
    ((target as HTMLElement | null)?.shadowRoot?.activeElement as HTMLElement | undefined) ??
    (target as HTMLElement | null);
  if (!element?.tagName) return false;
  if (element.isContentEditable || element.tagName === "TEXTAREA" || element.tagName === "SELECT")
    return true;
  if (element.tagName === "HF-EDITOR") return true;
  return (
    element.tagName === "INPUT" &&
    !["checkbox", "radio", "button", "range"].includes((element as HTMLInputElement).type)
  );
};

export const nameOf = (event: KeyboardEvent): string => {
  const name = event.key === " " ? "Space" : event.key;
  return (
    (event.ctrlKey || event.metaKey ? "Ctrl-" : "") +
    (event.altKey ? "Alt-" : "") +
    (name.length === 1 && (event.ctrlKey || event.metaKey) ? name.toLowerCase() : name)
  );
};

const onKey = (event: KeyboardEvent): void => {
  if (event.defaultPrevented || event.isComposing || ["Shift", "Control", "Alt", "Meta"].includes(event.key))
    return;
  const name = nameOf(event),
    typing = isTyping(event.composedPath()[0] ?? event.target);
  const isOnControl = name === "Enter" || name === "Space";
  const onControl = (event.target as HTMLElement | null)?.closest?.(
    "a,button,summary,input,select,textarea,[role=button],[role=tab],[role=option]",
  );
  const typed = halfTyped.value ? `${halfTyped.value} ${name}` : name;
  clearTimeout(forget);
  halfTyped.value = "";
  for (const layer of [...layers].reverse()) {
    for (const binding of layer.bindings) {
      if (typing && !binding.always) continue;
      // Enter and Space belong to the control that has the focus.
      if (isOnControl && onControl && !binding.always) continue;
      for (const keys of binding.keys.split(", ")) {
        if (keys === typed) {
          event.preventDefault();
          binding.act(event);
          return;
        }
        if (keys.startsWith(`${typed} `)) {
          halfTyped.value = typed;
          forget = window.setTimeout(() => {
            halfTyped.value = "";
          }, 3000);
          event.preventDefault();
          return;
        }
      }
    }
    if (layer.isModal) return;
  }
};

// `bindings` hold on every screen, beneath what the screens say.
export const startKeys = (title: string, bindings: Binding[]): void => {
  layers.unshift({ title, bindings, isModal: false });
  addEventListener("keydown", onKey);
};

// What the keys do while a component is shown. A modal layer hides those beneath it. A layer comes and goes in the same step as
// what it belongs to: an effect that runs after the next paint would give a key typed in between to a dialog that is closed.
export const useKeys = (title: string, bindings: Binding[], isModal = false): void => {
  const layer = useRef<Layer>({ title, bindings, isModal }).current;
  layer.title = title;
  layer.bindings = bindings;
  useLayoutEffect(() => {
    layers.push(layer);
    return () => {
      layers.splice(layers.indexOf(layer), 1);
    };
  }, []);
};

export const allKeys = (): { title: string; bindings: Binding[] }[] =>
  layers
    .filter((layer) => !layer.isModal)
    .map((layer) => ({ title: layer.title, bindings: layer.bindings }))
    .filter((one) => one.bindings.length > 0);
