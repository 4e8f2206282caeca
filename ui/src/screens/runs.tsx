// The list of runs: where is mine? A filter in words, states, and starts and failures over time.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { get, hasKey, may, queryText } from "../api/client.ts";
import { useLoaded } from "../api/live.ts";
import type { Counts, Pulse, Status } from "../api/types.ts";
import { Bars } from "../draw/bars.tsx";
import { useKeys } from "../lib/keys.ts";
import { serverAddress } from "../lib/prefix.ts";
import { place, setQuery } from "../lib/router.ts";
import { grouped, now, nowExactly } from "../lib/time.ts";
import { commands } from "../model/copy.ts";
import { EMPTY, parse, queryOf, textOf } from "../model/filter.ts";
import type { Filter } from "../model/filter.ts";
import { STATES, isOpen } from "../model/words.ts";
import { Button, CopyAs, Mark, missing } from "../parts/basic.tsx";
import { BulkDialog } from "./bulk.tsx";
import { RunRows } from "./run_rows.tsx";

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
  // A word of the filter that is not understood would widen what is cancelled or rerun.
  const isBulkable =
    Object.values(chosen).some((one) => one !== undefined) && !filter.id && parsed.problems.length === 0;
  return (
    <>
      <div class="head">
        <h1>Runs</h1>
        <span class="grow" />
        <CopyAs
          commands={commands(serverAddress(), hasKey()).list(
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
