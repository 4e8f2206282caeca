// What waits for a person: one list of all waits, least time left first, and the answer beside it.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { ApiError, e, get } from "../api/client.ts";
import { useLoaded } from "../api/live.ts";
import type { Run, Waiting, WaitingPage } from "../api/types.ts";
import { useKeys } from "../lib/keys.ts";
import { place, setQuery } from "../lib/router.ts";
import { shortId } from "../lib/text.ts";
import { at, exact, grouped, now, roughly } from "../lib/time.ts";
import { answerable } from "../model/answerable.ts";
import { waitingTitle } from "../model/words.ts";
import { Answer } from "../parts/answer.tsx";
import { Button, Empty, Mark, Shown, sayError } from "../parts/basic.tsx";

const KINDS = ["approval", "signal", "callback", "condition", "key"] as const;
const NAMES: Record<string, string> = {
  approval: "Approvals",
  signal: "Signals",
  callback: "Callbacks",
  condition: "Conditions",
  key: "Keys",
};
export const keyOf = (wait: Waiting): string => `${wait.run_id} ${wait.path}`;

type Asked = { run: string; waits: Waiting[] };
// What a run waits for now; a run that was deleted waits for nothing.
const waitsOf = async (run: string, signal: AbortSignal): Promise<Asked> => {
  if (!run) return { run, waits: [] };
  try {
    return { run, waits: answerable(await get<Run>(`/runs/${e(run)}`, { values: "none" }, signal)) };
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return { run, waits: [] };
    throw error;
  }
};

export const Inbox = (): JSX.Element => {
  const kind = place.value.query.get("kind") ?? "",
    run = place.value.query.get("run") ?? "",
    chosen = useSignal(""),
    more = useSignal<Waiting[]>([]),
    cursor = useSignal<string | null | undefined>(undefined),
    answered = useSignal<ReadonlySet<string>>(new Set());
  const list = useRef<HTMLDivElement>(null),
    held = useRef<Waiting | null>(null);
  const first = useLoaded<WaitingPage>(
    `waits ${kind}`,
    (signal) => get<WaitingPage>("/waits", { kind: kind || undefined, limit: 100 }, signal),
    { everyMs: 1500, pollMs: 30_000 },
  );
  const listed = [...(first.data?.items ?? []), ...more.value];
  // A run that is asked for by its id may be behind the first hundred. So may the wait that is being answered, or it has ended.
  const isListed = chosen.value === "" || listed.some((one) => keyOf(one) === chosen.value),
    runAsked = isListed ? run : (held.current?.run_id ?? run);
  const asked = useLoaded<Asked>(`waits of ${runAsked}`, (signal) => waitsOf(runAsked, signal), {
    everyMs: 1500,
  });
  useEffect(() => {
    more.value = [];
    cursor.value = undefined;
  }, [kind]);
  const known = new Set<string>(),
    items = [...listed, ...(asked.data?.run === runAsked ? asked.data.waits : [])].filter((one) => {
      const key = keyOf(one);
      if (known.has(key) || answered.value.has(key)) return false;
      known.add(key);
      return true;
    });
  const rest = cursor.value === undefined ? (first.data?.cursor ?? null) : cursor.value;
  const wanted =
    items.find((one) => keyOf(one) === chosen.value) ??
    (run ? items.find((one) => one.run_id === run) : undefined);
  // The one being answered stays when the list changes around it, and when another person answers it first: another wait in its place
  // would get the answer that was meant for this one.
  const kept = held.current,
    lost = !wanted && kept && keyOf(kept) === chosen.value && !answered.value.has(chosen.value) ? kept : null,
    isOver = lost !== null && asked.data?.run === lost.run_id;
  const isMissing = run !== "" && !wanted && !lost,
    current = wanted ?? lost ?? (isMissing ? undefined : items[0]);
  useEffect(() => {
    held.current = current ?? null;
    if (current && !chosen.value) chosen.value = keyOf(current);
  }, [current]);
  const choose = (wait: Waiting, isFocused = true): void => {
    chosen.value = keyOf(wait);
    if (run) setQuery({ run: null });
    if (isFocused)
      requestAnimationFrame(() => list.current?.querySelector<HTMLElement>('[aria-current="true"]')?.focus());
  };
  const move = (by: 1 | -1): void => {
    const i = items.findIndex((one) => current && keyOf(one) === keyOf(current)),
      next = items[Math.min(items.length - 1, Math.max(0, i + by))];
    if (next) choose(next);
  };
  const gone = (wait: Waiting): void => {
    const i = items.findIndex((one) => keyOf(one) === keyOf(wait)),
      next = items[i + 1] ?? items[i - 1];
    answered.value = new Set([...answered.value, keyOf(wait)]);
    if (next) choose(next);
    else chosen.value = "";
    first.again();
  };
  const next = async (): Promise<void> => {
    try {
      const found = await get<WaitingPage>("/waits", { kind: kind || undefined, limit: 100, cursor: rest });
      more.value = [...more.value, ...found.items];
      cursor.value = found.cursor;
    } catch (error) {
      sayError(error);
    }
  };
  useKeys("Inbox", [
    { keys: "j, ArrowDown", does: "next", act: () => move(1) },
    { keys: "k, ArrowUp", does: "the one before", act: () => move(-1) },
  ]);
  const counts = first.data?.counts ?? {},
    most = first.data?.counts_max ?? 10_000,
    count = (n: number): string => (n >= most ? `${grouped(most)}+` : grouped(n));
  return (
    <>
      <div class="head">
        <h1>Inbox</h1>
        <div class="chips" role="group" aria-label="Kinds of waits">
          <button
            type="button"
            class="chip"
            aria-pressed={kind === ""}
            data-testid="kind-all"
            onClick={() => setQuery({ kind: null })}
          >
            all <b>{count(KINDS.reduce((sum, one) => sum + (counts[one] ?? 0), 0))}</b>
          </button>
          {KINDS.filter((one) => (counts[one] ?? 0) > 0 || kind === one).map((one) => (
            <button
              type="button"
              class="chip"
              key={one}
              aria-pressed={kind === one}
              data-testid={`kind-${one}`}
              onClick={() => setQuery({ kind: kind === one ? null : one })}
            >
              {NAMES[one]!.toLowerCase()} <b>{count(counts[one] ?? 0)}</b>
            </button>
          ))}
        </div>
      </div>
      <Shown of={first} testid="inbox">
        {() =>
          items.length === 0 && !isMissing && !lost ? (
            <Empty testid="inbox-empty">
              {kind
                ? `No ${kind} is waited for.`
                : "Nothing waits for you. Approvals, signals and callbacks that runs wait for appear here."}
            </Empty>
          ) : (
            <div class="split">
              <div>
                <div class="list-box" ref={list} role="list" aria-label="Waits, least time left first">
                  {items.map((wait) => (
                    <div role="listitem" key={keyOf(wait)}>
                      <button
                        type="button"
                        class="inbox-item"
                        data-testid={`inbox-${wait.run_id}-${wait.path}`}
                        aria-current={current && keyOf(wait) === keyOf(current) ? "true" : undefined}
                        onClick={() => choose(wait, false)}
                      >
                        <Mark state="waiting" />
                        <span class="what">{waitingTitle(wait)}</span>
                        <span class="where">
                          {wait.workflow}
                          {wait.number ? ` #${wait.number}` : ""} · {wait.path} · {shortId(wait.run_id)}
                        </span>
                        <span class="left" title={wait.until ? exact(at(wait.until)) : undefined}>
                          {wait.until
                            ? at(wait.until) > now.value
                              ? roughly(at(wait.until) - now.value)
                              : "due"
                            : ""}
                        </span>
                      </button>
                    </div>
                  ))}
                </div>
                {rest && (
                  <p style={{ padding: "8px 0" }}>
                    <Button testid="inbox-more" onClick={() => void next()}>
                      Show 100 more
                    </Button>
                  </p>
                )}
              </div>
              {isMissing && !(asked.isLoading || first.isLoading) && (
                <Empty testid="inbox-answered">
                  This run waits for no answer any more. <a href={`/ui/runs/${run}`}>Open the run</a>
                </Empty>
              )}
              {current && (
                <Answer key={keyOf(current)} wait={current} isOver={isOver} onGone={() => gone(current)} />
              )}
            </div>
          )
        }
      </Shown>
    </>
  );
};
