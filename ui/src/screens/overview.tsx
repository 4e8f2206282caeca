// Is anything wrong? What needs a person, worst first; all well is one green sentence.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { e, get, may, me } from "../api/client.ts";
import type { ApiError } from "../api/client.ts";
import { useLoaded } from "../api/live.ts";
import type {
  Counts,
  Folder,
  Letter,
  Page,
  Pulse,
  RunLine,
  ScheduleLine,
  ServiceLine,
  Status,
  WaitingPage,
} from "../api/types.ts";
import { Bars } from "../draw/bars.tsx";
import { prefix } from "../lib/prefix.ts";
import { go } from "../lib/router.ts";
import { counted, grouped, now, span } from "../lib/time.ts";
import { EMPTY } from "../model/filter.ts";
import { needsOf, usualOf } from "../model/needs.ts";
import type { Need, Usual } from "../model/needs.ts";
import { Button, LinkButton, Mark, Shown, missing } from "../parts/basic.tsx";
import { WorkerHelp } from "../parts/worker_help.tsx";
import { BulkDialog } from "./bulk.tsx";
import { RunRows } from "./run_rows.tsx";

const DAY_MS = 86_400_000;

type Facts = {
  failures: RunLine[] | null;
  interrupted: RunLine[] | null;
  isPart: boolean;
  since: string;
  waits: WaitingPage | null;
  letters: Letter[] | null;
  folders: { of: "flows" | "schedules"; items: Folder["items"] }[];
  schedules: ScheduleLine[] | null;
  ready: { ready: boolean; reasons: unknown[] } | null;
  services: ServiceLine[] | null;
  problems: string[];
};

// A read that fails leaves its part out and says so; the others are shown.
const facts = async (signal: AbortSignal): Promise<Facts> => {
  const problems: string[] = [];
  const of = async <T,>(name: string, read: Promise<T>): Promise<T | null> => {
    try {
      return await read;
    } catch (error) {
      if ((error as Error).name === "AbortError" || [0, 401].includes((error as ApiError).status))
        throw error;
      if (!missing(error as ApiError)) problems.push(`${name}: ${(error as Error).message}`);
      return null;
    }
  };
  const since = new Date(now.value - DAY_MS).toISOString();
  const [failures, interrupted, waits, letters, flows, schedules, list, ready, services] = await Promise.all([
    of("failures", get<Page<RunLine>>("/runs", { status: "failed", from: since, limit: 200 }, signal)),
    of(
      "interrupted runs",
      get<Page<RunLine>>("/runs", { status: "interrupted", from: since, limit: 100 }, signal),
    ),
    of("waits", get<WaitingPage>("/waits", { limit: 10 }, signal)),
    of("dead letters", get<Page<Letter>>("/dead-letters", { limit: 50 }, signal)),
    of("folder", get<Folder>("/folder", { of: "flows" }, signal)),
    of("folder", get<Folder>("/folder", { of: "schedules" }, signal)),
    of("schedules", get<Page<ScheduleLine>>("/schedules", { limit: 200 }, signal)),
    of("readiness", readiness(signal)),
    of("services", get<Page<ServiceLine>>("/services", { limit: 200 }, signal)),
  ]);
  return {
    failures: failures?.items ?? null,
    interrupted: interrupted?.items ?? null,
    isPart: (failures?.cursor ?? null) !== null,
    since,
    waits,
    letters: letters?.items ?? null,
    folders: [
      { of: "flows", items: flows?.items ?? [] },
      { of: "schedules", items: schedules?.items ?? [] },
    ],
    schedules: list?.items ?? null,
    ready,
    services: services?.items ?? null,
    problems,
  };
};
const readiness = async (signal: AbortSignal): Promise<{ ready: boolean; reasons: unknown[] }> =>
  (await fetch(`${prefix}/readyz`, { signal, credentials: "omit" })).json() as Promise<{
    ready: boolean;
    reasons: unknown[];
  }>;

// The failures of the last day and of the week before it, of each workflow that failed.
const usualFailures = async (workflows: string[], signal: AbortSignal): Promise<Map<string, Usual>> => {
  const from = new Date(now.value - 8 * DAY_MS).toISOString();
  const found = await Promise.all(
    workflows.map(async (workflow): Promise<[string, Usual]> => {
      const pulse = await get<Pulse>("/runs/pulse", { workflow, from, buckets: 8 }, signal);
      return [workflow, usualOf(pulse.items)];
    }),
  );
  return new Map(found);
};

export const Overview = (): JSX.Element => {
  const found = useLoaded<Facts>("overview", facts, { everyMs: 2000, pollMs: 20_000 }),
    help = useSignal<string | null>(null),
    rerun = useSignal<Need | null>(null);
  const counts = useLoaded<Counts>(
    "counts",
    (signal) => get<Counts>("/runs/counts", { by: "status" }, signal),
    { everyMs: 2000 },
  );
  const pulse = useLoaded<Pulse>("pulse", (signal) => get<Pulse>("/runs/pulse", { buckets: 96 }, signal), {
    everyMs: 5000,
    pollMs: 60_000,
  });
  const failing = [
    ...new Set((found.data?.failures ?? []).filter((one) => !one.rerun_as).map((one) => one.workflow)),
  ].slice(0, 10);
  const usual = useLoaded(`usual ${failing.join(" ")}`, (signal) => usualFailures(failing, signal), {
    pollMs: 60_000,
  });
  const needs = found.data ? needsOf({ ...found.data, usual: usual.data ?? undefined }, now.value) : [];
  return (
    <>
      <div class="head">
        <h1>
          {found.data === null
            ? "Overview"
            : needs.length === 0
              ? "Overview"
              : `${counted(needs.length, "thing needs", "things need")} you`}
        </h1>
        <span class="grow" />
        <span class="dim small" data-testid="release">
          {found.data?.ready ? (found.data.ready.ready ? "ready" : "not ready") : ""}
          {me.value ? `, release ${me.value.release}` : ""}
        </span>
      </div>
      <section class="card" aria-label="What needs you" style={{ marginBottom: "16px" }}>
        <Shown of={found} lines={3} testid="needs">
          {(data) => (
            <>
              {needs.length === 0 && data.failures && data.waits && (
                <p class="well s-completed" data-testid="all-well">
                  <Mark state="completed" />
                  All is well: nothing failed in the last 24 hours, and nothing waits for a person.
                </p>
              )}
              {needs.map((need) => (
                <div class={`need s-${need.state}`} key={need.key} data-testid={`need-${need.key}`}>
                  <Mark state={need.state} />
                  <span class="grow">{need.text}</span>
                  {need.to && (
                    <LinkButton to={need.to} testid={`need-show-${need.key}`} label={`Show: ${need.text}`}>
                      {need.show}
                    </LinkButton>
                  )}
                  {need.rerun && may("run") && (
                    <Button
                      testid={`need-rerun-${need.key}`}
                      onClick={() => {
                        rerun.value = need;
                      }}
                    >
                      Rerun {need.rerun.count}
                    </Button>
                  )}
                  {need.help && (
                    <Button
                      testid={`need-help-${need.key}`}
                      onClick={() => {
                        help.value = need.help ?? null;
                      }}
                    >
                      How to start one
                    </Button>
                  )}
                </div>
              ))}
              {data.problems.map((one) => (
                <p class="need dim small" key={one}>
                  {one}
                </p>
              ))}
            </>
          )}
        </Shown>
      </section>
      <section class="card" aria-label="Figures" style={{ marginBottom: "16px" }}>
        <Figures counts={counts.data} pulse={pulse.data} />
        {pulse.data ? (
          <div style={{ padding: "8px 12px 4px" }}>
            <Bars
              pulse={pulse.data}
              now={now.value}
              testid="pulse"
              onPick={(from, to) =>
                go(
                  `/ui/runs?q=${e(`after:${new Date(from).toISOString()} before:${new Date(to).toISOString()}`)}`,
                )
              }
            />
          </div>
        ) : pulse.error ? (
          <p class="dim small" style={{ padding: "0 12px 12px" }}>
            {missing(pulse.error) || pulse.error.message}
          </p>
        ) : null}
      </section>
      <div class="head">
        <h2>Latest runs</h2>
        <span class="grow" />
        <a href="/ui/runs" data-testid="all-runs">
          All runs
        </a>
      </div>
      <RunRows filter={{ ...EMPTY }} limit={10} testid="latest" />
      {help.value && (
        <WorkerHelp
          service={help.value}
          onClose={() => {
            help.value = null;
          }}
        />
      )}
      {rerun.value?.rerun && (
        <BulkDialog
          what={rerun.value.rerun.filter}
          action="rerun"
          failed
          onClose={() => {
            rerun.value = null;
          }}
          onDone={found.again}
        />
      )}
    </>
  );
};

const Figures = ({ counts, pulse }: { counts: Counts | null; pulse: Pulse | null }): JSX.Element => {
  const open: Status[] = ["running", "waiting", "pending", "cancelling"],
    ended: Status[] = ["completed", "failed"];
  const figure = (state: Status, count: number | undefined, note: string, query: string): JSX.Element => (
    <a
      class={`figure s-${state}`}
      key={state}
      href={`/ui/runs?q=${e(query)}`}
      data-testid={`figure-${state}`}
    >
      <b>{count === undefined ? "·" : grouped(count)}</b>
      <span>
        <Mark state={state} />
        {state}
        {note}
      </span>
    </a>
  );
  return (
    <div class="figures" data-testid="figures">
      {open
        .filter((one) => one === "running" || one === "waiting" || (counts?.statuses[one] ?? 0) > 0)
        .map((one) => figure(one, counts?.statuses[one], "", `status:${one}`))}
      {ended.map((one) => figure(one, pulse?.total[one as "failed"], ", 24 h", `status:${one} after:1d`))}
      <div class="figure">
        <b>{pulse?.total.p50_ms != null ? span(pulse.total.p50_ms) : "·"}</b>
        <span>p50, 24 h</span>
      </div>
      <div class="figure">
        <b>{pulse?.total.p95_ms != null ? span(pulse.total.p95_ms) : "·"}</b>
        <span>p95, 24 h</span>
      </div>
    </div>
  );
};
