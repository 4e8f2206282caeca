// The list of runs: where is mine? 100 rows by cursor, the next fetched early; new rows enter at the top and never under the pointer.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useCallback, useEffect, useMemo, useRef } from "preact/hooks";
import { ApiError, get, hasKey, keyed, may, post, queryText } from "../api/client.ts";
import { useEvents, useLoaded } from "../api/live.ts";
import type { Bulk, Counts, Pulse, RunEvent, RunLine, Status } from "../api/types.ts";
import { Bars } from "../draw/bars.tsx";
import { useKeys } from "../lib/keys.ts";
import { go, place, setQuery } from "../lib/router.ts";
import { shortId } from "../lib/text.ts";
import { at, counted, grouped, now, nowExactly, span } from "../lib/time.ts";
import { useWindow } from "../lib/virtual.ts";
import { commands } from "../model/copy.ts";
import { EMPTY, parse, queryOf, textOf } from "../model/filter.ts";
import type { Filter } from "../model/filter.ts";
import { STATES, isOpen, rowReason } from "../model/words.ts";
import type { Act } from "../model/words.ts";
import {
  Ago,
  Button,
  CopyAs,
  Dialog,
  Empty,
  Mark,
  Problem,
  State,
  missing,
  say,
  sayError,
  useSlow,
} from "../parts/basic.tsx";

const PAGE = 100,
  KEPT_MAX = 500; // rows that stay while new ones enter above them
// On a narrow screen a row has two lines.
const narrow = matchMedia("(max-width: 900px)");

export const took = (line: RunLine, today: number): string => {
  const from = at(line.started_at ?? line.created_at);
  return line.finished_at ? span(at(line.finished_at) - from) : isOpen(line.status) ? span(today - from) : "";
};

type Rows = { items: RunLine[]; cursor: string | null };
// New rows behind the pill. If more have come than a page has, there is a gap beneath them, and `page` takes the place of the list.
type Fresh = { items: RunLine[]; page: Rows | null };
const NONE: Fresh = { items: [], page: null };

export const RunRows = ({
  filter,
  limit,
  testid = "runs",
}: {
  filter: Filter;
  limit?: number;
  testid?: string;
}): JSX.Element => {
  const rows = useSignal<Rows | null>(null),
    error = useSignal<ApiError | null>(null),
    isLoading = useSignal(true),
    fresh = useSignal<Fresh>(NONE);
  const marked = useSignal<ReadonlySet<string>>(new Set()),
    box = useRef<HTMLTableSectionElement>(null),
    isOver = useRef(false),
    at0 = useRef(nowExactly());
  const key = textOf(filter),
    size = limit ?? PAGE,
    turn = useSignal(0);
  const asked = useRef(0),
    lastAsked = useRef(0),
    timer = useRef(0);

  const first = useCallback(async (): Promise<void> => {
    const mine = (asked.current += 1);
    isLoading.value = true;
    lastAsked.current = Date.now();
    try {
      const found = await get<Rows>("/runs", { ...queryOf(filter, at0.current), limit: size });
      if (mine !== asked.current) return;
      error.value = null;
      merge(found);
    } catch (problem) {
      if (mine !== asked.current) return;
      error.value = problem as ApiError;
      if ((problem as ApiError).status === 0) {
        clearTimeout(timer.current);
        timer.current = window.setTimeout(() => void first(), 2000);
      }
    } finally {
      if (mine === asked.current) isLoading.value = false;
    }
  }, [key, size]);

  // Rows that are shown are changed where they stand; new ones enter at the top, or wait behind the pill.
  const merge = (found: Rows): void => {
    const has = rows.value;
    if (!has || has.items.length === 0) {
      rows.value = found;
      fresh.value = NONE;
      return;
    }
    const byId = new Map(found.items.map((one) => [one.run_id, one])),
      known = new Set(has.items.map((one) => one.run_id));
    const isNew = found.items.filter((one) => !known.has(one.run_id)),
      oldest = found.items.at(-1);
    // A row of the first page that the server no longer gives does not match any more.
    const kept = has.items.filter(
      (one) =>
        byId.has(one.run_id) ||
        (oldest !== undefined && one.created_at < oldest.created_at) ||
        (found.cursor !== null && found.items.length === 0),
    );
    const changed = kept.map((one) => byId.get(one.run_id) ?? one);
    const hasGap = isNew.length === found.items.length && found.cursor !== null;
    const isCalm = !isOver.current && scrollY < 200 && !box.current?.contains(document.activeElement);
    if (!isCalm && !limit) {
      rows.value = { ...has, items: changed };
      fresh.value = { items: isNew, page: hasGap ? found : null };
      return;
    }
    fresh.value = NONE;
    rows.value =
      hasGap || has.items.length > KEPT_MAX
        ? found
        : {
            items: [...isNew, ...changed].slice(0, limit ?? Infinity),
            cursor: has.items.length > size ? has.cursor : found.cursor,
          };
  };

  const more = async (): Promise<void> => {
    const has = rows.value;
    if (!has?.cursor || isLoading.value || limit) return;
    isLoading.value = true;
    try {
      const found = await get<Rows>("/runs", {
        ...queryOf(filter, at0.current),
        limit: PAGE,
        cursor: has.cursor,
      });
      const known = new Set(has.items.map((one) => one.run_id));
      if (rows.value === has || rows.value?.cursor === has.cursor)
        rows.value = {
          ...(rows.value ?? has),
          items: [...(rows.value ?? has).items, ...found.items.filter((one) => !known.has(one.run_id))],
          cursor: found.cursor,
        };
    } catch (problem) {
      error.value = problem as ApiError;
    } finally {
      isLoading.value = false;
    }
  };

  useEffect(() => {
    rows.value = null;
    marked.value = new Set();
    at0.current = nowExactly();
    void first();
    return () => {
      asked.current += 1;
      clearTimeout(timer.current);
    };
  }, [first, turn.value, keyed.value]);
  const onEvents = useCallback(
    (_: RunEvent[]): void => {
      clearTimeout(timer.current);
      timer.current = window.setTimeout(
        () => void first(),
        Math.max(0, lastAsked.current + 1000 - Date.now()),
      );
    },
    [first],
  );
  useEvents(onEvents);
  // What is older than the first page is told by its own event only now and then: read again slowly.
  useEffect(() => {
    const poll = setInterval(() => {
      if (!document.hidden) void first();
    }, 15_000);
    return () => clearInterval(poll);
  }, [first]);

  const ROW_PX = narrow.matches ? 56 : 32,
    items = rows.value?.items ?? [],
    range = useWindow(box, items.length, ROW_PX),
    isSlow = useSlow(isLoading.value && rows.value !== null);
  useEffect(() => {
    if (range.to > items.length - 40) void more();
  }, [range.to, items.length]);

  const focusRow = (index: number): void => {
    if (index < 0 || index >= items.length) return;
    const top = (box.current?.getBoundingClientRect().top ?? 0) + index * ROW_PX;
    if (top < 80 || top > innerHeight - 60) scrollBy(0, top - innerHeight / 2);
    requestAnimationFrame(() =>
      requestAnimationFrame(() =>
        box.current
          ?.querySelector<HTMLElement>(`tr[data-index="${index}"] a.open`)
          ?.focus({ preventScroll: true }),
      ),
    );
  };
  const focused = (): number =>
    Number((document.activeElement?.closest("tr[data-index]") as HTMLElement | null)?.dataset["index"] ?? -1);
  const toggle = (id: string): void => {
    const next = new Set(marked.value);
    next.has(id) ? next.delete(id) : next.add(id);
    marked.value = next;
  };
  useKeys("List of runs", [
    { keys: "j, ArrowDown", does: "next row", act: () => focusRow(focused() + 1) },
    { keys: "k, ArrowUp", does: "row before", act: () => focusRow(Math.max(0, focused() - 1)) },
    {
      keys: "x",
      does: "mark the row",
      act: () => {
        const one = items[focused()];
        if (one && !limit) toggle(one.run_id);
      },
    },
    {
      keys: "c",
      does: "compare two marked runs",
      act: () => {
        const [a, b] = [...marked.value];
        if (a && b) go(`/ui/compare/${a}/${b}`);
      },
    },
  ]);

  if (rows.value === null)
    return error.value ? (
      <Problem
        error={error.value}
        again={() => {
          turn.value += 1;
        }}
        testid={`${testid}-problem`}
      />
    ) : (
      <div class="list-box">
        <div class="skeleton" aria-hidden="true">
          {Array.from({ length: 8 }, (_, i) => (
            <span key={i} />
          ))}
        </div>
      </div>
    );
  return (
    <>
      {error.value && <Problem error={error.value} again={() => void first()} testid={`${testid}-problem`} />}
      {fresh.value.items.length > 0 && (
        <p class="row" style={{ justifyContent: "center", marginBottom: "6px" }}>
          <Button
            testid="runs-new"
            onClick={() => {
              rows.value = fresh.value.page ?? {
                ...rows.value!,
                items: [...fresh.value.items, ...rows.value!.items],
              };
              fresh.value = NONE;
              scrollTo(0, 0);
            }}
          >
            {grouped(fresh.value.items.length)}
            {fresh.value.page ? "+" : ""} new ↑
          </Button>
        </p>
      )}
      {items.length === 0 ? (
        <Empty
          testid={`${testid}-empty`}
          command={key ? undefined : `holdfast run hello.yaml --server ${location.origin}`}
        >
          {key ? "No run matches this filter." : "There is no run yet. This command starts one:"}
        </Empty>
      ) : (
        <div
          class={isSlow ? "list-box stale" : "list-box"}
          onPointerEnter={() => {
            isOver.current = true;
          }}
          onPointerLeave={() => {
            isOver.current = false;
          }}
        >
          <table
            class="list stack"
            data-testid={`${testid}-table`}
            aria-rowcount={rows.value.cursor ? -1 : items.length + 1}
          >
            <caption class="sr">Runs, newest first</caption>
            <colgroup>
              {!limit && <col style={{ width: "36px" }} />}
              <col style={{ width: "122px" }} />
              <col style={{ width: "22%" }} />
              <col />
              <col class="wide" style={{ width: "120px" }} />
              <col style={{ width: "84px" }} />
              <col class="wide" style={{ width: "84px" }} />
            </colgroup>
            <thead>
              <tr>
                {!limit && (
                  <th scope="col">
                    <span class="sr">Mark</span>
                  </th>
                )}
                <th scope="col">State</th>
                <th scope="col">Workflow</th>
                <th scope="col">Why</th>
                <th scope="col" class="wide">
                  Run
                </th>
                <th scope="col">Started</th>
                <th scope="col" class="num wide">
                  Took
                </th>
              </tr>
            </thead>
            <tbody ref={box}>
              {range.from > 0 && (
                <tr class="spacer" aria-hidden="true">
                  <td colSpan={7} style={{ height: `${range.from * ROW_PX}px` }} />
                </tr>
              )}
              {items.slice(range.from, range.to).map((line, i) => (
                <Row
                  key={line.run_id}
                  line={line}
                  index={range.from + i}
                  isMarked={marked.value.has(line.run_id)}
                  onMark={limit ? null : toggle}
                />
              ))}
              {range.to < items.length && (
                <tr class="spacer" aria-hidden="true">
                  <td colSpan={7} style={{ height: `${(items.length - range.to) * ROW_PX}px` }} />
                </tr>
              )}
            </tbody>
          </table>
        </div>
      )}
      {marked.value.size > 0 && (
        <Marked
          ids={[...marked.value]}
          onClear={() => {
            marked.value = new Set();
          }}
          onDone={() => {
            marked.value = new Set();
            void first();
          }}
        />
      )}
    </>
  );
};

const ACTS: Partial<Record<Act, string>> = {
  answer: "Answer",
  signal: "Signal",
  resume: "Deliver",
  worker_help: "Workers",
};

const Row = ({
  line,
  index,
  isMarked,
  onMark,
}: {
  line: RunLine;
  index: number;
  isMarked: boolean;
  onMark: ((id: string) => void) | null;
}): JSX.Element => {
  const why = rowReason(line, now.value),
    to = `/ui/runs/${line.run_id}`;
  return (
    <tr
      data-index={index}
      data-testid={`run-${line.run_id}`}
      data-state={line.status}
      class={`${isMarked ? "marked " : ""}is-${line.status}`}
      onClick={(event) => {
        if (!(event.target as Element).closest("a,button,input") && !getSelection()?.toString()) go(to);
      }}
    >
      {onMark && (
        <td>
          <input
            type="checkbox"
            aria-label={`Mark run ${shortId(line.run_id)}`}
            data-testid={`mark-${line.run_id}`}
            checked={isMarked}
            onChange={() => onMark(line.run_id)}
          />
        </td>
      )}
      <td>
        <State state={line.status} />
      </td>
      <td>
        <a
          class="open"
          href={to}
          data-testid={`open-${line.run_id}`}
          aria-label={`${line.workflow}, ${line.status}, run ${shortId(line.run_id)}`}
        >
          {line.workflow}
        </a>
        {line.number ? <span class="dim small"> #{line.number}</span> : null}
      </td>
      <td>
        <div class="why-cell">
          {why.text && (
            <span class="cut why" title={why.text}>
              {why.text}
            </span>
          )}
          {why.act && (
            <a
              class="button mini"
              href={why.act === "worker_help" ? "/ui/workers" : `/ui/inbox?run=${line.run_id}`}
              data-testid={`answer-${line.run_id}`}
            >
              {ACTS[why.act]}
            </a>
          )}
          {line.rerun_as && (
            <a
              class="tag"
              href={`/ui/runs/${line.rerun_as}`}
              data-testid={`rerun-as-${line.run_id}`}
              title={`Rerun as ${line.rerun_as}`}
            >
              rerun
            </a>
          )}
          {!why.text && (
            <span class="narrow dim">
              {shortId(line.run_id)}
              {line.finished_at ? `, took ${took(line, now.value)}` : ""}
            </span>
          )}
          {Object.entries(line.labels)
            .slice(0, 2)
            .map(([name, value]) => (
              <span class="tag wide" key={name}>
                {name}={value}
              </span>
            ))}
        </div>
      </td>
      <td class="wide">
        <span class="mono small dim">{shortId(line.run_id)}</span>
      </td>
      <td class="dim">
        <Ago time={line.created_at} />
      </td>
      <td class="num wide dim">{took(line, now.value)}</td>
    </tr>
  );
};

// ------------------------------------------------------------------------------------------------------- many at once

const Marked = ({
  ids,
  onClear,
  onDone,
}: {
  ids: string[];
  onClear: () => void;
  onDone: () => void;
}): JSX.Element => {
  const action = useSignal<"cancel" | "rerun" | null>(null);
  return (
    <div class="bulk" role="region" aria-label="Marked runs" data-testid="bulk">
      <span>{counted(ids.length, "run")} marked</span>
      {ids.length === 2 && (
        <Button testid="bulk-compare" keys="c" onClick={() => go(`/ui/compare/${ids[0]}/${ids[1]}`)}>
          Compare
        </Button>
      )}
      {may("run") && (
        <Button
          testid="bulk-rerun"
          onClick={() => {
            action.value = "rerun";
          }}
        >
          Rerun
        </Button>
      )}
      {may("run") && (
        <Button
          testid="bulk-cancel"
          kind="danger"
          onClick={() => {
            action.value = "cancel";
          }}
        >
          Cancel
        </Button>
      )}
      <Button testid="bulk-clear" kind="quiet" onClick={onClear}>
        Clear
      </Button>
      {action.value && (
        <BulkDialog
          what={{ ids: ids.slice(0, 500) }}
          action={action.value}
          onClose={() => {
            action.value = null;
          }}
          onDone={onDone}
        />
      )}
    </div>
  );
};

// One part of the work on many runs.
const bulk = (
  filter: Record<string, unknown>,
  action: "cancel" | "rerun",
  failed: boolean | undefined,
  cursor: string | undefined,
  preview: boolean,
): Promise<Bulk> =>
  post<Bulk>("/runs/bulk", { filter, action, failed: failed ?? false, preview, cursor, limit: 500 });

export const BulkDialog = ({
  what,
  action,
  failed,
  onClose,
  onDone,
}: {
  what: Record<string, unknown>;
  action: "cancel" | "rerun";
  failed?: boolean;
  onClose: () => void;
  onDone: () => void;
}): JSX.Element => {
  const preview = useLoaded<Bulk>(JSON.stringify([what, action]), () =>
      bulk(what, action, failed, undefined, true),
    ),
    isBusy = useSignal(false),
    done = useSignal(0);
  const act = async (): Promise<void> => {
    isBusy.value = true;
    try {
      let cursor: string | null | undefined,
        good = 0,
        bad = 0;
      do {
        const part: Bulk = await bulk(what, action, failed, cursor ?? undefined, false);
        good += part.items.filter((one) => !one.error).length;
        bad += part.items.filter((one) => one.error).length;
        done.value = good;
        cursor = part.cursor;
      } while (cursor);
      say(
        `${counted(good, "run")} ${action === "cancel" ? "cancelled" : "started again"}${bad ? `; ${counted(bad, "run")} left alone` : ""}.`,
      );
      onDone();
      onClose();
    } catch (error) {
      sayError(error);
      isBusy.value = false;
    }
  };
  const items = preview.data?.items ?? [],
    good = items.filter((one) => !one.error),
    bad = items.filter((one) => one.error);
  return (
    <Dialog title={action === "cancel" ? "Cancel runs" : "Rerun runs"} onClose={onClose} testid="bulk-dialog">
      {preview.error ? (
        <Problem error={preview.error} again={preview.again} />
      ) : preview.data === null ? (
        <p class="dim">Looking which runs this touches …</p>
      ) : (
        <>
          <p>
            {counted(good.length, "run")}
            {preview.data.cursor ? " and more" : ""} will be{" "}
            {action === "cancel" ? "cancelled" : `run again${failed ? ", only what failed" : ""}`}.
            {bad.length > 0 && ` ${counted(bad.length, "run")} will be left alone: ${bad[0]!.message}`}
          </p>
        </>
      )}
      <footer>
        {isBusy.value && <span class="dim">{grouped(done.value)} done</span>}
        <Button testid="bulk-no" onClick={onClose}>
          Back
        </Button>
        <Button
          testid="bulk-yes"
          kind={action === "cancel" ? "danger" : "main"}
          busy={isBusy.value}
          disabled={good.length === 0}
          onClick={() => void act()}
        >
          {action === "cancel" ? "Cancel them" : "Rerun them"}
        </Button>
      </footer>
    </Dialog>
  );
};

// --------------------------------------------------------------------------------------------------------- the screen

export const Runs = (): JSX.Element => {
  const text = place.value.query.get("q") ?? "",
    typed = useSignal(text),
    field = useRef<HTMLInputElement>(null),
    isBulk = useSignal<"cancel" | "rerun" | null>(null);
  const parsed = useMemo(() => parse(text), [text]),
    filter = parsed.filter;
  useEffect(() => {
    if (document.activeElement !== field.current) typed.value = text;
  }, [text]);
  const set = (next: Filter): void => {
    typed.value = textOf(next);
    setQuery({ q: textOf(next) || null });
  };
  const counts = useLoaded<Counts>(
    `counts ${filter.workflow}`,
    async (signal) =>
      get<Counts>(
        "/runs/counts",
        filter.workflow ? { by: "workflow", limit: 500 } : { by: "status" },
        signal,
      ),
    { everyMs: 2000 },
  );
  const statuses =
    counts.data &&
    (filter.workflow
      ? counts.data.items.find((one) => one.workflow === filter.workflow)?.statuses
      : counts.data.statuses);
  const pulse = useLoaded<Pulse>(
    `pulse ${filter.workflow}`,
    (signal) => get<Pulse>("/runs/pulse", { workflow: filter.workflow, buckets: 96 }, signal),
    { everyMs: 5000 },
  );
  useKeys("Runs", [{ keys: "f", does: "change the filter", act: () => field.current?.focus() }]);
  const timer = useRef(0);
  const changed = (value: string): void => {
    typed.value = value;
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => setQuery({ q: value.trim() || null }), 250);
  };
  const query = queryOf(filter, nowExactly());
  const chosen = {
    status: filter.status.length ? filter.status : undefined,
    workflow: filter.workflow || undefined,
    number: filter.number ? Number(filter.number) : undefined,
    label: filter.labels.length ? filter.labels : undefined,
    from: query["from"],
    to: query["to"],
  };
  const isBulkable = Object.values(chosen).some((one) => one !== undefined) && !filter.id;
  return (
    <>
      <div class="head">
        <h1>Runs</h1>
        <span class="grow" />
        <CopyAs
          commands={commands(location.origin, hasKey()).list(
            filter,
            queryText(query),
            query["from"] as string,
            query["to"] as string,
          )}
        />
      </div>
      <div class="filter">
        <label class="sr" for="runs-filter">
          Filter of runs
        </label>
        <input
          id="runs-filter"
          ref={field}
          type="search"
          data-testid="runs-filter"
          placeholder="workflow:order status:failed label:team=x after:1d"
          spellcheck={false}
          autocomplete="off"
          value={typed.value}
          onInput={(event) => changed(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter") {
              clearTimeout(timer.current);
              setQuery({ q: typed.value.trim() || null });
            }
            if (event.key === "Escape") field.current?.blur();
          }}
        />
        {isBulkable && may("run") && filter.status.some(isOpen) && (
          <Button
            testid="filter-cancel"
            kind="danger"
            onClick={() => {
              isBulk.value = "cancel";
            }}
          >
            Cancel all
          </Button>
        )}
        {isBulkable && may("run") && filter.status.length > 0 && !filter.status.some(isOpen) && (
          <Button
            testid="filter-rerun"
            onClick={() => {
              isBulk.value = "rerun";
            }}
          >
            Rerun all
          </Button>
        )}
      </div>
      {parsed.problems.map((one) => (
        <p class="bad small" role="alert" key={one}>
          {one}
        </p>
      ))}
      <div class="chips" role="group" aria-label="States" style={{ marginBottom: "10px" }}>
        {STATES.filter((one) => !statuses || statuses[one] > 0 || filter.status.includes(one)).map(
          (one: Status) => (
            <button
              type="button"
              key={one}
              class={`chip s-${one}`}
              data-testid={`state-${one}`}
              aria-pressed={filter.status.includes(one)}
              onClick={() =>
                set({
                  ...filter,
                  id: "",
                  status: filter.status.includes(one)
                    ? filter.status.filter((s) => s !== one)
                    : [...filter.status, one],
                })
              }
            >
              <Mark state={one} />
              {one}
              {statuses && <b>{grouped(statuses[one])}</b>}
            </button>
          ),
        )}
        {text !== "" && (
          <button type="button" class="chip" data-testid="filter-clear" onClick={() => set({ ...EMPTY })}>
            clear
          </button>
        )}
      </div>
      {pulse.data ? (
        <div class="card" style={{ padding: "8px 8px 2px", marginBottom: "12px" }}>
          <Bars
            pulse={pulse.data}
            now={now.value}
            testid="pulse"
            onPick={(from, to) =>
              set({
                ...filter,
                id: "",
                after: new Date(from).toISOString(),
                before: new Date(to).toISOString(),
              })
            }
          />
        </div>
      ) : pulse.error && missing(pulse.error) === "" && pulse.error.status !== 0 ? (
        <p class="dim small">{pulse.error.message}</p>
      ) : null}
      <RunRows filter={filter} />
      {isBulk.value && (
        <BulkDialog
          what={chosen}
          action={isBulk.value}
          failed={false}
          onClose={() => {
            isBulk.value = null;
          }}
          onDone={() => undefined}
        />
      )}
    </>
  );
};
