// The small parts that all screens are made of.
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { ApiError } from "../api/client.ts";
import { isForKey } from "../api/live.ts";
import type { Loaded } from "../api/live.ts";
import { SHAPES } from "../draw/svg.ts";
import { useKeys } from "../lib/keys.ts";
import { ago, at, exact, now, roughly } from "../lib/time.ts";

// ------------------------------------------------------------------------------------------------------ states and times

export const Mark = ({ state }: { state: string | null }): JSX.Element => (
  <svg class={`state s-${state ?? "none"}`} viewBox="0 0 14 14" aria-hidden="true">
    <path class="mark" d={SHAPES[state ?? "none"] ?? SHAPES["none"]!} />
  </svg>
);
export const State = ({ state }: { state: string }): JSX.Element => (
  <span class={`pill s-${state}`}>
    <Mark state={state} />
    {state}
  </span>
);
export const Ago = ({ time }: { time: string | null | undefined }): JSX.Element | null =>
  time ? (
    <time dateTime={time} title={exact(at(time))}>
      {ago(at(time), now.value)}
    </time>
  ) : null;
export const In = ({ time }: { time: string | null | undefined }): JSX.Element | null =>
  time ? (
    <time dateTime={time} title={exact(at(time))}>
      {at(time) > now.value ? `in ${roughly(at(time) - now.value)}` : "now"}
    </time>
  ) : null;

// -------------------------------------------------------------------------------------------------------------- buttons

type ButtonProps = {
  testid: string;
  onClick?: (event: MouseEvent) => void;
  kind?: "main" | "danger" | "quiet";
  keys?: string;
  label?: string;
  disabled?: boolean;
  busy?: boolean;
  children: ComponentChildren;
  submit?: boolean;
  title?: string;
  pressed?: boolean;
};
export const Button = (props: ButtonProps): JSX.Element => (
  <button
    type={props.submit ? "submit" : "button"}
    class={`button ${props.kind ?? ""}`}
    data-testid={props.testid}
    onClick={props.onClick}
    disabled={props.disabled || props.busy}
    aria-label={props.label}
    aria-busy={props.busy || undefined}
    aria-pressed={props.pressed}
    title={props.title ?? (props.keys ? `key ${props.keys}` : undefined)}
  >
    {props.children}
    {props.keys && <kbd aria-hidden="true">{props.keys}</kbd>}
  </button>
);
export const LinkButton = ({
  to,
  testid,
  children,
  label,
}: {
  to: string;
  testid: string;
  children: ComponentChildren;
  label?: string;
}): JSX.Element => (
  <a class="button" href={to} data-testid={testid} aria-label={label}>
    {children}
  </a>
);

// --------------------------------------------------------------------------------------------- loading, errors, emptiness

export const Problem = ({
  error,
  again,
  testid = "problem",
}: {
  error: ApiError;
  again?: () => void;
  testid?: string;
}): JSX.Element => (
  <div class="problem-note s-failed" role="alert" data-testid={testid}>
    <Mark state="failed" />
    <div>
      <p>{error.message}</p>
      {error.code !== "away" && (
        <p class="dim mono small">
          {error.code}
          {error.requestId && `, request ${error.requestId}`}
        </p>
      )}
    </div>
    {again && (
      <Button testid={`${testid}-again`} onClick={again}>
        Try again
      </Button>
    )}
  </div>
);

// A widget that the server does not offer or the key may not see shows a sentence, and the rest of the page stays.
export const missing = (error: ApiError | null): string => {
  if (!error) return "";
  if (error.status === 403) return "Your key may not see this.";
  if (error.status === 404 && error.message.includes("there is no route"))
    return "This server is older than the page and does not offer this.";
  return "";
};

export const Shown = <T,>({
  of,
  children,
  lines = 5,
  testid,
}: {
  of: Loaded<T>;
  children: (data: T) => ComponentChildren;
  lines?: number;
  testid?: string;
}): JSX.Element => {
  const isSlow = useSlow(of.isLoading && of.data !== null);
  if (of.data === null) {
    if (of.error) {
      const said = missing(of.error);
      return said ? (
        <p class="dim empty" data-testid={testid}>
          {said}
        </p>
      ) : (
        <Problem error={of.error} again={of.again} testid={testid} />
      );
    }
    return (
      <div class="skeleton" aria-hidden="true" data-testid={testid}>
        {Array.from({ length: lines }, (_, i) => (
          <span key={i} />
        ))}
      </div>
    );
  }
  return (
    <div class={isSlow ? "stale" : undefined} data-testid={testid}>
      {of.error && !missing(of.error) && <Problem error={of.error} again={of.again} />}
      {children(of.data)}
    </div>
  );
};

// Old data stays, and is dimmed if new data takes longer than 300 ms.
export const useSlow = (isLoading: boolean): boolean => {
  const [isSlow, setSlow] = useState(false);
  useEffect(() => {
    if (!isLoading) {
      setSlow(false);
      return;
    }
    const timer = setTimeout(() => setSlow(true), 300);
    return () => clearTimeout(timer);
  }, [isLoading]);
  return isSlow;
};

export const Empty = ({
  children,
  command,
  testid = "empty",
}: {
  children: ComponentChildren;
  command?: string;
  testid?: string;
}): JSX.Element => (
  <div class="empty" data-testid={testid}>
    <p>{children}</p>
    {command && <CopyLine text={command} testid={`${testid}-command`} />}
  </div>
);

// ---------------------------------------------------------------------------------------------------------- messages

export const said = signal<{
  text: string;
  kind: "good" | "bad";
  n: number;
  link?: { to: string; text: string };
} | null>(null);
let count = 0,
  fading = 0;
export const say = (
  text: string,
  kind: "good" | "bad" = "good",
  link?: { to: string; text: string },
): void => {
  said.value = { text, kind, n: (count += 1), link };
  clearTimeout(fading);
  fading = window.setTimeout(
    () => {
      said.value = null;
    },
    kind === "bad" ? 12_000 : 6000,
  );
};
// A refused key is not said here: the form that asks for another one says it.
export const sayError = (error: unknown): void => {
  if (!isForKey(error)) say((error as Error).message ?? String(error), "bad");
};

export const Said = (): JSX.Element => (
  <div class="said" role="status" aria-live="polite" data-testid="said">
    {said.value && (
      <div class={`toast ${said.value.kind}`}>
        <span>{said.value.text}</span>
        {said.value.link && (
          <a href={said.value.link.to} data-testid="said-link">
            {said.value.link.text}
          </a>
        )}
        <button
          type="button"
          class="icon"
          aria-label="Close the message"
          data-testid="said-close"
          onClick={() => {
            said.value = null;
          }}
        >
          ×
        </button>
      </div>
    )}
  </div>
);

// --------------------------------------------------------------------------------------------------------------- copying

import { copyText } from "../lib/text.ts";
import type { Commands } from "../model/copy.ts";

export const CopyLine = ({ text, testid }: { text: string; testid: string }): JSX.Element => (
  <span class="copy-line">
    <code>{text}</code>
    <Button kind="quiet" testid={testid} label={`Copy: ${text}`} onClick={() => void copied(text)}>
      Copy
    </Button>
  </span>
);
// A short form of a text; pressing it copies the whole.
export const CopyText = ({
  text,
  label,
  testid,
  children,
}: {
  text: string;
  label: string;
  testid: string;
  children: ComponentChildren;
}): JSX.Element => (
  <button
    type="button"
    class="link mono copy-text"
    title={`${text}\nPress to copy`}
    data-testid={testid}
    onClick={() => void copied(text)}
  >
    {children}
    <span class="sr">, copy the {label}</span>
  </button>
);
const copied = async (text: string): Promise<void> =>
  (await copyText(text)) ? say("Copied.") : say("The browser does not let this page copy.", "bad");

export const CopyAs = ({
  commands,
  testid = "copy",
}: {
  commands: Commands;
  testid?: string;
}): JSX.Element => (
  <span class="copy-as" role="group" aria-label="Copy as a command">
    <span class="dim small">copy as</span>
    {(["cli", "curl", "python"] as const).map((one) => (
      <button
        type="button"
        class="link small"
        key={one}
        data-testid={`${testid}-${one}`}
        title={commands[one]}
        onClick={() => void copied(commands[one])}
      >
        {one === "cli" ? "CLI" : one === "python" ? "Python" : "curl"}
      </button>
    ))}
  </span>
);

// --------------------------------------------------------------------------------------------------------------- dialogs

export const Dialog = ({
  title,
  onClose,
  children,
  testid,
  wide,
}: {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  testid: string;
  wide?: boolean;
}): JSX.Element => {
  const ref = useRef<HTMLDialogElement>(null),
    id = useId();
  useKeys(title, [{ keys: "Escape", does: "close", act: onClose, always: true }], true);
  useLayoutEffect(() => {
    const dialog = ref.current!;
    dialog.showModal();
    dialog
      .querySelector<HTMLElement>(
        "input:not([type=checkbox]):not([hidden]), select, textarea, .button.main:not(:disabled)",
      )
      ?.focus();
    return () => dialog.close(); // gives the focus back to where it was
  }, []);
  return (
    <dialog
      ref={ref}
      class={wide ? "dialog wide" : "dialog"}
      aria-labelledby={id}
      data-testid={testid}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => {
        if (event.target === ref.current) onClose();
      }}
    >
      <div class="dialog-in">
        <header>
          <h2 id={id}>{title}</h2>
          <button
            type="button"
            class="icon"
            aria-label="Close"
            data-testid={`${testid}-close`}
            onClick={onClose}
          >
            ×
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
};

export type Choice = { name: string; act: () => void; testid: string; keys?: string; isDanger?: boolean };
export const Menu = ({
  label,
  choices,
  testid,
  children,
  open,
  onOpen,
}: {
  label: string;
  choices: Choice[];
  testid: string;
  children: ComponentChildren;
  open?: boolean;
  onOpen?: (open: boolean) => void;
}): JSX.Element => {
  const [isOwn, setOwn] = useState(false),
    isOpen = open ?? isOwn,
    set = onOpen ?? setOwn;
  const ref = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (!isOpen) return;
    ref.current?.querySelector<HTMLElement>("[role=menuitem]")?.focus();
    const away = (event: Event): void => {
      if (!ref.current?.contains(event.target as Node)) set(false);
    };
    document.addEventListener("pointerdown", away);
    return () => document.removeEventListener("pointerdown", away);
  }, [isOpen]);
  const onKey = (event: KeyboardEvent): void => {
    const items = [...(ref.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])],
      i = items.indexOf(document.activeElement as HTMLElement);
    if (event.key === "ArrowDown" || event.key === "j") items[(i + 1) % items.length]?.focus();
    else if (event.key === "ArrowUp" || event.key === "k")
      items[(i - 1 + items.length) % items.length]?.focus();
    else if (event.key === "Escape" || event.key === "Tab") {
      set(false);
      ref.current?.querySelector<HTMLElement>("button")?.focus();
    } else return;
    if (event.key !== "Tab") event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="menu" ref={ref} onKeyDown={isOpen ? onKey : undefined}>
      <button
        type="button"
        class="button"
        aria-haspopup="menu"
        aria-expanded={isOpen}
        title={label}
        data-testid={testid}
        onClick={() => set(!isOpen)}
      >
        {children}
        <span class="sr">{label}</span>
      </button>
      {isOpen && (
        <div class="menu-in" role="menu" aria-label={label}>
          {choices.map((one) => (
            <button
              type="button"
              role="menuitem"
              key={one.name}
              data-testid={one.testid}
              class={one.isDanger ? "danger" : undefined}
              onClick={() => {
                set(false);
                one.act();
              }}
            >
              {one.name}
              {one.keys && <kbd aria-hidden="true">{one.keys}</kbd>}
            </button>
          ))}
        </div>
      )}
    </div>
  );
};

export const Tabs = ({
  names,
  chosen,
  onChoose,
  testid,
  label,
}: {
  names: { id: string; name: ComponentChildren }[];
  chosen: string;
  onChoose: (id: string) => void;
  testid: string;
  label: string;
}): JSX.Element => {
  const onKey = (event: KeyboardEvent): void => {
    const i = names.findIndex((one) => one.id === chosen),
      step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const next = names[(i + step + names.length) % names.length]!;
    onChoose(next.id);
    (event.currentTarget as HTMLElement).querySelector<HTMLElement>(`[data-tab="${next.id}"]`)?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={onKey}>
      {names.map((one) => (
        <button
          type="button"
          role="tab"
          key={one.id}
          data-tab={one.id}
          data-testid={`${testid}-${one.id}`}
          aria-selected={one.id === chosen}
          tabIndex={one.id === chosen ? 0 : -1}
          onClick={() => onChoose(one.id)}
        >
          {one.name}
        </button>
      ))}
    </div>
  );
};
