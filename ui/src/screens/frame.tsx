// What surrounds every screen: header, navigation, the key form, the finder, the list of keys.
import { signal, useSignal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { e, forgetKey, get, hasKey, isAway, keyed, me, needsKey, setKey } from "../api/client.ts";
import { live, startLive, useLoaded } from "../api/live.ts";
import type { Me, Page, RunLine, WaitingPage, WorkflowLine } from "../api/types.ts";
import { allKeys, halfTyped, useKeys } from "../lib/keys.ts";
import type { Binding } from "../lib/keys.ts";
import { prefix } from "../lib/prefix.ts";
import { go, place } from "../lib/router.ts";
import { shortId } from "../lib/text.ts";
import { grouped, offset, setServerTime, span } from "../lib/time.ts";
import { isDark, setTheme, theme } from "../lib/theme.ts";
import { Button, Dialog, Mark, Menu, Said } from "../parts/basic.tsx";

const SCREENS = [
  { to: "/", name: "Overview", key: "o", testid: "nav-overview" },
  { to: "/ui/runs", name: "Runs", key: "r", testid: "nav-runs" },
  { to: "/ui/inbox", name: "Inbox", key: "i", testid: "nav-inbox" },
  { to: "/ui/workflows", name: "Workflows", key: "w", testid: "nav-workflows" },
  { to: "/ui/schedules", name: "Schedules", key: "s", testid: "nav-schedules" },
  { to: "/ui/workers", name: "Workers", key: "k", testid: "nav-workers" },
  { to: "/ui/deliveries", name: "Deliveries", key: "d", testid: "nav-deliveries" },
];

// What the finder begins with.
const finding = signal<"" | "all" | "actions">(""),
  helping = signal(false);

// What the keys do everywhere.
export const KEYS: Binding[] = [
  {
    keys: "Ctrl-k",
    does: "find a run, workflow or action",
    act: () => {
      finding.value = "all";
    },
    always: true,
  },
  {
    keys: "/",
    does: "find",
    act: () => {
      finding.value = "all";
    },
  },
  {
    keys: ".",
    does: "list the actions",
    act: () => {
      finding.value = "actions";
    },
  },
  ...SCREENS.map((one) => ({ keys: `g ${one.key}`, does: `go to ${one.name}`, act: () => go(one.to) })),
  { keys: "g ,", does: "go to Settings", act: () => go("/ui/settings") },
  {
    keys: "?",
    does: "show the keys",
    act: () => {
      helping.value = true;
    },
  },
  { keys: "t", does: "light or dark", act: () => setTheme(isDark() ? "light" : "dark") },
];

export const loadMe = async (): Promise<void> => {
  try {
    const found = await get<Me>("/me");
    me.value = found;
    setServerTime(found.time);
    needsKey.value = "";
  } catch {
    /* an older server, or no key yet: the form asks */
  }
};

export const Frame = ({ children }: { children: ComponentChildren }): JSX.Element => {
  const path = place.value.path,
    isAsked = needsKey.value !== "";
  const waits = useLoaded<WaitingPage | null>(
    "waits of the header",
    (signal) => (isAsked ? Promise.resolve(null) : get<WaitingPage>("/waits", { limit: 1 }, signal)),
    { everyMs: 3000 },
  );
  const isHere = (to: string): boolean =>
    to === "/" ? path === "/" || path === "/ui" : path === to || path.startsWith(`${to}/`);
  const count = (waits.data?.counts["approval"] ?? 0) || 0;
  const nav = useRef<HTMLElement>(null);
  // On a narrow screen the list of screens scrolls sideways: the one that is shown stays in view.
  useEffect(() => {
    nav.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [path, count > 0]);
  return (
    <>
      <a
        class="skip"
        href="#main"
        data-testid="skip"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById("main")?.focus();
        }}
      >
        Skip to the content
      </a>
      <header class="top">
        <a class="brand" href="/" data-testid="brand">
          <svg viewBox="0 0 32 32" aria-hidden="true">
            <rect width="32" height="32" rx="7" fill="var(--accent)" />
            <path
              d="M10 7v18M22 7v18M10 16h12"
              stroke="var(--on-accent)"
              stroke-width="3.4"
              stroke-linecap="round"
              fill="none"
            />
          </svg>
          Holdfast
        </a>
        <nav class="nav" aria-label="Screens" ref={nav}>
          {SCREENS.map((one) => (
            <a
              key={one.to}
              href={one.to}
              data-testid={one.testid}
              aria-current={isHere(one.to) ? "page" : undefined}
            >
              {one.name}
              {one.name === "Inbox" && count > 0 && (
                <span class="count">
                  {count >= 10_000 ? "10,000+" : grouped(count)}
                  <span class="sr"> approvals wait</span>
                </span>
              )}
            </a>
          ))}
        </nav>
        <div class="top-end">
          <button
            type="button"
            class="finder"
            data-testid="find"
            aria-label="Find a run, workflow or action"
            onClick={() => {
              finding.value = "all";
            }}
          >
            <svg
              width="13"
              height="13"
              viewBox="0 0 14 14"
              fill="none"
              stroke="currentColor"
              stroke-width="1.6"
              aria-hidden="true"
            >
              <circle cx="6" cy="6" r="4.2" />
              <path d="M9.2 9.2l3.4 3.4" />
            </svg>
            <span>Find</span>
            <kbd>/</kbd>
          </button>
          <span
            class={`live live-${isAway.value ? "lost" : live.value}`}
            data-testid="live"
            title="Whether this page hears of changes as they happen"
          >
            {isAway.value
              ? "no server"
              : live.value === "live"
                ? "live"
                : live.value === "lost"
                  ? "reconnecting"
                  : live.value === "off"
                    ? "not live"
                    : "connecting"}
          </span>
          <Menu
            label="Settings and theme"
            testid="me"
            choices={[
              {
                name:
                  theme.value === "dark"
                    ? "Theme: dark"
                    : theme.value === "light"
                      ? "Theme: light"
                      : "Theme: as the system",
                testid: "theme",
                keys: "t",
                act: () =>
                  setTheme(theme.value === "dark" ? "light" : theme.value === "light" ? "system" : "dark"),
              },
              { name: "Settings and keys", testid: "nav-settings", act: () => go("/ui/settings") },
              {
                name: "Keys of the keyboard",
                testid: "show-keys",
                keys: "?",
                act: () => {
                  helping.value = true;
                },
              },
              {
                name: "HTTP API",
                testid: "api-docs",
                act: () => {
                  location.assign(`${prefix}/docs`);
                },
              },
              ...(hasKey()
                ? [
                    {
                      name: "Forget the key",
                      testid: "forget-key",
                      act: () => {
                        forgetKey();
                        location.assign(`${prefix}/`);
                      },
                    },
                  ]
                : []),
            ]}
          >
            {me.value?.key_name || (me.value?.mode === "local" ? "local" : "me")}
            <span aria-hidden="true">▾</span>
          </Menu>
        </div>
      </header>
      {isAway.value && (
        <p class="line-note" role="status" data-testid="away">
          The server does not answer. What is shown may be old; this page tries again by itself.
        </p>
      )}
      {!isAway.value && live.value === "lost" && (
        <p class="line-note" role="status" data-testid="lost">
          Changes are not heard of at the moment; this page is reconnecting.
        </p>
      )}
      {Math.abs(offset.value) > 60_000 && (
        <p class="line-note" role="status" data-testid="clock-off">
          The clock of this device is {span(Math.abs(offset.value))}{" "}
          {offset.value > 0 ? "behind" : "ahead of"} the server's. Times here are the server's.
        </p>
      )}
      <main id="main" tabIndex={-1}>
        {children}
      </main>
      <Said />
      {isAsked && <KeyForm />}
      {finding.value && <Finder />}
      {helping.value && <Help />}
      {halfTyped.value && (
        <div class="said" aria-hidden="true">
          <div class="toast">
            <kbd>{halfTyped.value}</kbd> …
          </div>
        </div>
      )}
    </>
  );
};

// ---------------------------------------------------------------------------------------------------------------- the key

const KeyForm = (): JSX.Element => {
  const text = useSignal(""),
    isKept = useSignal(false),
    problem = useSignal(
      needsKey.value === "refused"
        ? "The key is not valid any more: it was revoked, has expired, or belongs to another server."
        : "",
    ),
    ref = useRef<HTMLDialogElement>(null);
  useKeys("Key", [], true);
  useLayoutEffect(() => ref.current!.showModal(), []);
  const send = async (event: Event): Promise<void> => {
    event.preventDefault();
    setKey(text.value.trim(), isKept.value);
    needsKey.value = "";
    try {
      const found = await get<Me>("/me");
      me.value = found;
      setServerTime(found.time);
    } catch (error) {
      problem.value = (error as Error).message;
      needsKey.value = "refused";
      return;
    }
    startLive();
    keyed.value += 1;
  };
  return (
    <dialog
      ref={ref}
      class="dialog"
      aria-labelledby="key-title"
      data-testid="key-form"
      onCancel={(event) => event.preventDefault()}
    >
      <form class="dialog-in" onSubmit={(event) => void send(event)}>
        <h2 id="key-title">This server needs an API key</h2>
        <p class="dim">
          It stays in this page's memory. An administrator makes one with{" "}
          <code>holdfast keys create NAME --scope read</code>.
        </p>
        <input
          type="text"
          name="username"
          autocomplete="username"
          value="holdfast"
          hidden
          readOnly
          aria-hidden="true"
          tabIndex={-1}
        />
        <div class="field">
          <label for="api-key">API key</label>
          <input
            id="api-key"
            data-testid="key-input"
            type="password"
            autocomplete="current-password"
            required
            value={text.value}
            onInput={(event) => {
              text.value = event.currentTarget.value;
            }}
          />
        </div>
        <div class="field check">
          <input
            type="checkbox"
            id="key-keep"
            data-testid="key-keep"
            checked={isKept.value}
            onChange={(event) => {
              isKept.value = event.currentTarget.checked;
            }}
          />
          <label for="key-keep">Keep it until this tab is closed</label>
        </div>
        {problem.value && (
          <p class="bad" role="alert" data-testid="key-problem">
            {problem.value}
          </p>
        )}
        <footer>
          <Button testid="key-use" kind="main" submit>
            Use the key
          </Button>
        </footer>
      </form>
    </dialog>
  );
};
// --------------------------------------------------------------------------------------------------------------- finding

type Found = { id: string; text: string; note: string; mark: string | null; act: () => void };

const Finder = (): JSX.Element => {
  const text = useSignal(""),
    chosen = useSignal(0);
  const isActions = finding.value === "actions",
    close = (): void => {
      finding.value = "";
    };
  const to = (path: string) => (): void => {
    close();
    go(path);
  };
  const asked = text.value.trim();
  const workflows = useLoaded<Page<WorkflowLine>>("workflows to find", (signal) =>
    get<Page<WorkflowLine>>("/workflows", { limit: 500 }, signal),
  );
  const isId = /^[0-9a-f-]{4,36}$/i.test(asked) && /\d/.test(asked),
    label = /^[\w.-]+=\S*$/.test(asked);
  const runs = useLoaded<Page<RunLine>>(`runs to find ${isId || label ? asked : ""}`, (signal) =>
    isId
      ? get<Page<RunLine>>("/runs", { id: asked, limit: 8 }, signal)
      : label
        ? get<Page<RunLine>>("/runs", { label: asked, limit: 8 }, signal)
        : get<Page<RunLine>>("/runs", { limit: 5 }, signal),
  );
  const low = asked.toLowerCase(),
    found: Found[] = [];
  for (const one of SCREENS)
    if (low ? `go to ${one.name}`.toLowerCase().includes(low) : isActions)
      found.push({
        id: one.to,
        text: `Go to ${one.name}`,
        note: `g ${one.key}`,
        mark: null,
        act: to(one.to),
      });
  for (const one of (isActions && !low ? [] : workflows.data?.items) ?? [])
    if (low ? one.name.toLowerCase().includes(low) : found.length < 4) {
      found.push({
        id: `w ${one.name}`,
        text: one.name,
        note: "workflow",
        mark: null,
        act: to(`/ui/workflows/${e(one.name)}`),
      });
      if (found.length > 12) break;
    }
  for (const one of isId || label || (!low && !isActions) ? (runs.data?.items ?? []) : [])
    found.push({
      id: one.run_id,
      text: `${one.workflow} ${shortId(one.run_id)}`,
      note: `run, ${one.status}`,
      mark: one.status,
      act: to(`/ui/runs/${one.run_id}`),
    });
  if (low || isActions) {
    for (const state of ["failed", "waiting", "running"])
      if (state.includes(low))
        found.push({
          id: `s ${state}`,
          text: `Runs that are ${state}`,
          note: "filter",
          mark: state,
          act: to(`/ui/runs?q=status:${state}`),
        });
    if ("theme light dark".includes(low))
      found.push({
        id: "theme",
        text: "Light or dark",
        note: "t",
        mark: null,
        act: () => {
          close();
          setTheme(isDark() ? "light" : "dark");
        },
      });
    if ("settings keys".includes(low))
      found.push({
        id: "settings",
        text: "Settings and keys",
        note: "g ,",
        mark: null,
        act: to("/ui/settings"),
      });
    if (low)
      found.push({
        id: "filter",
        text: `Runs that match ${asked}`,
        note: "filter",
        mark: null,
        act: to(`/ui/runs?q=${e(asked)}`),
      });
  }
  const index = Math.min(chosen.value, found.length - 1);
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === "ArrowDown") chosen.value = (index + 1) % found.length;
    else if (event.key === "ArrowUp") chosen.value = (index - 1 + found.length) % found.length;
    else if (event.key === "Enter") found[index]?.act();
    else return;
    event.preventDefault();
  };
  return (
    <Dialog title="Find" onClose={close} testid="finder">
      <div class="palette">
        <input
          type="text"
          role="combobox"
          aria-expanded="true"
          aria-controls="found"
          aria-label="Find a run by its id, a label, a workflow or an action"
          aria-activedescendant={found[index] ? `found-${index}` : undefined}
          data-testid="finder-input"
          placeholder="Run id, label team=x, workflow, action"
          autocomplete="off"
          spellcheck={false}
          value={text.value}
          onKeyDown={onKey}
          onInput={(event) => {
            text.value = event.currentTarget.value;
            chosen.value = 0;
          }}
        />
        <div class="palette-list" role="listbox" id="found" aria-label="Found">
          {found.map((one, i) => (
            <div
              role="option"
              id={`found-${i}`}
              key={one.id}
              aria-selected={i === index}
              data-testid={`found-${one.id}`}
              onPointerMove={() => {
                chosen.value = i;
              }}
              onClick={one.act}
            >
              {one.mark && <Mark state={one.mark} />}
              <span>{one.text}</span>
              <span class="dim">{one.note}</span>
            </div>
          ))}
        </div>
      </div>
    </Dialog>
  );
};

const Help = (): JSX.Element => (
  <Dialog
    title="Keys"
    onClose={() => {
      helping.value = false;
    }}
    testid="keys-dialog"
    wide
  >
    <div class="keys-list">
      {allKeys().map((layer) => (
        <section key={layer.title}>
          <h3>{layer.title}</h3>
          <ul>
            {layer.bindings.map((one) => (
              <li key={one.keys}>
                <span>{one.does}</span>
                <span class="nowrap">
                  {one.keys.split(", ").map((keys) => (
                    <kbd key={keys}>{keys}</kbd>
                  ))}
                </span>
              </li>
            ))}
          </ul>
        </section>
      ))}
    </div>
  </Dialog>
);
