// The rows of a list of runs: 100 by cursor, the next fetched early; new rows enter at the top and never under the pointer.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useCallback, useEffect, useRef } from "preact/hooks";
import { get, keyed, may } from "../api/client.ts";
import type { ApiError } from "../api/client.ts";
import { isForKey, useEvents } from "../api/live.ts";
import type { RunEvent, RunLine } from "../api/types.ts";
import { useKeys } from "../lib/keys.ts";
import { serverAddress } from "../lib/prefix.ts";
import { go } from "../lib/router.ts";
import { shortId } from "../lib/text.ts";
import { at, grouped, now, nowExactly, span } from "../lib/time.ts";
import { useWindow } from "../lib/virtual.ts";
import { queryOf, textOf } from "../model/filter.ts";
import type { Filter } from "../model/filter.ts";
import { NONE, extended, merged } from "../model/rows.ts";
import type { Fresh, Rows } from "../model/rows.ts";
import { isOpen, rowReason } from "../model/words.ts";
import type { Act } from "../model/words.ts";
import { Ago, Button, Empty, Problem, State, useSlow } from "../parts/basic.tsx";
import { Marked } from "./bulk.tsx";

const PAGE = 100,
  AHEAD = 40; // rows beneath those in view
// On a narrow screen a row has two lines.
const narrow = matchMedia("(max-width: 900px)");

export const took = (line: RunLine, today: number): string => {
  const from = at(line.started_at ?? line.created_at);
  return line.finished_at ? span(at(line.finished_at) - from) : isOpen(line.status) ? span(today - from) : "";
};

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
  const heading = useRef(-1), // the row that gets the focus with the next frames
    asked = useRef(0),
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
      if (mine !== asked.current || isForKey(problem)) return;
      error.value = problem as ApiError;
      if ((problem as ApiError).status === 0) {
        clearTimeout(timer.current);
        timer.current = window.setTimeout(() => void first(), 2000);
      }
    } finally {
      if (mine === asked.current) isLoading.value = false;
    }
  }, [key, size]);

  const merge = (found: Rows): void => {
    const isCalm =
      limit !== undefined ||
      (!isOver.current && scrollY < 200 && !box.current?.contains(document.activeElement));
    const next = merged(rows.value, found, isCalm, limit);
    rows.value = next.rows;
    fresh.value = next.fresh;
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
      if (rows.value?.cursor === has.cursor) rows.value = extended(rows.value, found);
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
  const cursor = rows.value?.cursor ?? null,
    isSearching = cursor !== null && items.length < range.to + AHEAD && !limit;
  // Read on until the screen is full: a page may have few rows, or none.
  useEffect(() => {
    if (isSearching && !error.value) void more();
  }, [isSearching, cursor, isLoading.value]);

  const focusRow = (index: number): void => {
    if (index < 0 || index >= items.length) return;
    heading.current = index;
    const top = (box.current?.getBoundingClientRect().top ?? 0) + index * ROW_PX;
    if (top < 80 || top > innerHeight - 60) scrollBy(0, top - innerHeight / 2);
    requestAnimationFrame(() =>
      requestAnimationFrame(() => {
        if (heading.current !== index) return;
        heading.current = -1;
        box.current
          ?.querySelector<HTMLElement>(`tr[data-index="${index}"] a.open`)
          ?.focus({ preventScroll: true });
      }),
    );
  };
  const focused = (): number => {
    if (heading.current >= 0) return heading.current;
    return Number(
      (document.activeElement?.closest("tr[data-index]") as HTMLElement | null)?.dataset["index"] ?? -1,
    );
  };
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
      {items.length === 0 && cursor !== null ? (
        <p class="empty" role="status" data-testid={`${testid}-searching`}>
          Searching older runs …
        </p>
      ) : items.length === 0 ? (
        <Empty
          testid={`${testid}-empty`}
          command={key ? undefined : `holdfast run hello.yaml --server ${serverAddress()}`}
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
            class={limit ? "list stack unmarked" : "list stack"}
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
      {isSearching && items.length > 0 && (
        <p class="dim small" style={{ padding: "8px" }}>
          Searching older runs …
        </p>
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

const mayDo = (act: Act): boolean =>
  may(act === "answer" ? "approve" : act === "signal" ? "run" : act === "resume" ? "resume" : "read");
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
          {!why.text && (
            <span class="narrow dim">
              {shortId(line.run_id)}
              {line.finished_at ? `, took ${took(line, now.value)}` : ""}
            </span>
          )}
          <span class="grow" />
          {why.act && mayDo(why.act) && (
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
          {Object.entries(line.labels)
            .slice(0, 2)
            .map(([name, value]) => (
              <span class="tag wide" key={name} title={`${name}=${value}`}>
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
