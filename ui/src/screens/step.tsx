// The drawer of the run view: a step's input, output, attempts, log and journal; without a step, those of the run.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { BASE, e, file, get, hasKey } from "../api/client.ts";
import { useLoaded } from "../api/live.ts";
import type {
  Head,
  JournalLine,
  Json,
  LogLine,
  Run,
  RunEvent,
  Step,
  StepDetail,
  StepPage,
} from "../api/types.ts";
import { HeadValue, Value } from "../draw/value.tsx";
import { serverAddress } from "../lib/prefix.ts";
import { setQuery } from "../lib/router.ts";
import { saveAs } from "../lib/text.ts";
import { at, bytes, clockMs, counted, exact, grouped, span } from "../lib/time.ts";
import { commands } from "../model/copy.ts";
import type { Course } from "../model/replay.ts";
import { momentOf, seqAt, stateAt } from "../model/replay.ts";
import { OUTCOMES, errorText } from "../model/words.ts";
import { Button, CopyAs, Empty, Mark, Shown, State, Tabs, sayError } from "../parts/basic.tsx";

type Props = {
  run: Run;
  course: Course | null;
  path: string | null;
  moment: number | null;
  logs: RunEvent[];
  onRerun: ((from: string) => void) | null;
  onChoose: (path: string | null) => void;
};

export const Drawer = (props: Props): JSX.Element =>
  props.path === null ? <RunDrawer {...props} /> : <StepDrawer {...props} path={props.path} />;

const isEmpty = (value: Json): boolean =>
  typeof value === "object" && value !== null && !Array.isArray(value) && Object.keys(value).length === 0;
// A value, or its beginning with a button that reads the rest.
const Part = ({
  value,
  head,
  all,
  testid,
  none,
}: {
  value: Json;
  head: Head | undefined;
  all: () => Promise<Json>;
  testid: string;
  none: string;
}): JSX.Element => {
  const whole = useSignal<{ value: Json } | null>(null);
  if (whole.value) return <Value value={whole.value.value} />;
  if (head)
    return (
      <HeadValue
        text={head.text}
        size={head.bytes}
        testid={testid}
        onAll={() =>
          void all().then((found) => {
            whole.value = { value: found };
          }, sayError)
        }
      />
    );
  return value === null || value === undefined || isEmpty(value) ? (
    <p class="dim">{none}</p>
  ) : (
    <Value value={value} />
  );
};

const RunDrawer = ({ run, course, moment, logs }: Props): JSX.Element => {
  const tab = useSignal(run.error ? "error" : "input");
  const whole = async (name: "inputs" | "output"): Promise<Json> =>
    (await get<Run>(`/runs/${e(run.run_id)}`, { values: "all" }))[name];
  const isPast = moment !== null,
    status = moment !== null && course ? momentOf(course, moment).status : run.status;
  return (
    <section class="drawer" aria-label="The run" data-testid="drawer">
      <header>
        <span class="step-name">
          <Mark state={status} />
          Whole run
        </span>
        <Tabs
          label="Parts of the run"
          testid="tab"
          chosen={tab.value}
          onChoose={(id) => {
            tab.value = id;
          }}
          names={[
            { id: "input", name: "Inputs" },
            { id: "output", name: "Output" },
            ...(run.error ? [{ id: "error", name: "Error" }] : []),
            { id: "log", name: "Log" },
            { id: "journal", name: "Journal" },
          ]}
        />
        <span class="grow" />
        <CopyAs testid="copy-explain" commands={commands(serverAddress(), hasKey()).explain(run.run_id)} />
      </header>
      <div class="in" role="tabpanel" aria-label={tab.value} tabIndex={0}>
        {tab.value === "input" && (
          <Part
            value={run.inputs}
            head={run.heads?.inputs}
            all={() => whole("inputs")}
            testid="show-all"
            none="The run has no inputs."
          />
        )}
        {tab.value === "output" &&
          (isPast ? (
            <p class="dim">At this moment the run had no output yet.</p>
          ) : (
            <Part
              value={run.output}
              head={run.heads?.output}
              all={() => whole("output")}
              testid="show-all"
              none={
                run.finished_at
                  ? run.output === null
                    ? "The run has no output."
                    : "Its output is {}."
                  : "The run has no output yet."
              }
            />
          ))}
        {tab.value === "error" && run.error && <ErrorView run={run} />}
        {tab.value === "log" && <Log run={run} path={null} live={logs} />}
        {tab.value === "journal" && <Journal run={run} path={null} since={0} until={0} />}
      </div>
    </section>
  );
};

const ErrorView = ({ run }: { run: Run }): JSX.Element => (
  <dl class="facts">
    <dt>Kind</dt>
    <dd class="mono">{run.error!.kind}</dd>
    <dt>Message</dt>
    <dd>
      <pre>{run.error!.message}</pre>
    </dd>
    {run.error!.path && (
      <>
        <dt>Step</dt>
        <dd>
          <button
            type="button"
            class="link mono"
            data-testid="error-step"
            onClick={() => setQuery({ step: run.error!.path })}
          >
            {run.error!.path}
          </button>
        </dd>
      </>
    )}
    {run.error!.attempt > 0 && (
      <>
        <dt>Attempt</dt>
        <dd>{run.error!.attempt}</dd>
      </>
    )}
  </dl>
);

const StepDrawer = ({
  run,
  course,
  path,
  moment,
  logs,
  onRerun,
  onChoose,
}: Props & { path: string }): JSX.Element => {
  const row = course?.rows.find((one) => one.path === path),
    seq = course?.seq ?? 0,
    isMany = (row?.children ?? 0) > 0 && row?.kind !== "branch";
  const isEnded = row?.to !== null && row?.to !== undefined,
    picked = useSignal<string | null>(null),
    tab = {
      get value() {
        if (picked.value !== null || isMany) return picked.value ?? "items";
        if (row?.status === "failed" || row?.status === "retrying") return "tries";
        return row && row.to === null ? "input" : "output";
      },
      set value(next: string) {
        picked.value = next;
      },
    };
  const detail = useLoaded<StepDetail>(`step ${run.run_id} ${path} ${isEnded ? "over" : seq}`, (signal) =>
    get<StepDetail>(`/runs/${e(run.run_id)}/steps/${e(path)}`, { values: "head" }, signal),
  );
  const status = row && moment !== null ? stateAt(row, moment) : (row?.status ?? detail.data?.status ?? null);
  const whole = async (name: "input" | "output"): Promise<Json> =>
    (await get<StepDetail>(`/runs/${e(run.run_id)}/steps/${e(path)}`, { values: "all" }))[name];
  const isBefore = moment !== null && row !== undefined && (row.to === null || row.to > moment);
  const notReached = detail.error?.status === 404;
  return (
    <section class="drawer" aria-label={`Step ${path}`} data-testid="drawer">
      <header>
        <span class="step-name">
          {status && <Mark state={status} />}
          <code data-testid="drawer-path">{path}</code>
          {status && <State state={status} />}
        </span>
        <Tabs
          label="Parts of the step"
          testid="tab"
          chosen={tab.value}
          onChoose={(id) => {
            tab.value = id;
          }}
          names={[
            ...(isMany ? [{ id: "items", name: `Items ${grouped(row!.children)}` }] : []),
            { id: "input", name: "Input" },
            { id: "output", name: "Output" },
            {
              id: "tries",
              name: `Tries${detail.data && detail.data.tries.length > 1 ? ` ${detail.data.tries.length}` : ""}`,
            },
            { id: "log", name: "Log" },
            { id: "journal", name: "Journal" },
          ]}
        />
        <span class="grow" />
        {onRerun && !notReached && (
          <Button kind="quiet" testid="rerun-from" onClick={() => onRerun(path)}>
            Rerun from here
          </Button>
        )}
        <CopyAs testid="copy-step" commands={commands(serverAddress(), hasKey()).step(run.run_id, path)} />
        <button
          type="button"
          class="icon"
          aria-label="Close the step"
          data-testid="drawer-close"
          onClick={() => onChoose(null)}
        >
          ×
        </button>
      </header>
      <div class="in" role="tabpanel" aria-label={tab.value} tabIndex={0}>
        {notReached ? (
          <p class="dim" data-testid="not-reached">
            The run has not reached this step.
          </p>
        ) : tab.value === "log" ? (
          <Log run={run} path={path} live={logs} />
        ) : tab.value === "journal" ? (
          <Shown of={detail} lines={3}>
            {(step) => (
              <Journal
                run={run}
                path={path}
                since={at(step.started_at)}
                until={step.finished_at ? at(step.finished_at) : 0}
              />
            )}
          </Shown>
        ) : tab.value === "items" ? (
          <Items
            run={run}
            path={path}
            failed={row?.failed ?? 0}
            seq={isEnded ? -1 : seq}
            onRerun={onRerun}
            onChoose={onChoose}
          />
        ) : (
          <Shown of={detail} lines={3}>
            {(step) =>
              tab.value === "input" ? (
                <Part
                  value={step.input}
                  head={step.heads.input}
                  all={() => whole("input")}
                  testid="show-all"
                  none="This step has no input of its own."
                />
              ) : tab.value === "output" ? (
                isBefore ? (
                  <p class="dim">At this moment the step had no output yet.</p>
                ) : (
                  <>
                    <Part
                      value={step.output}
                      head={step.heads.output}
                      all={() => whole("output")}
                      testid="show-all"
                      none={
                        step.error
                          ? "It failed and has no output."
                          : step.finished_at
                            ? step.output === null
                              ? "Its output is null."
                              : "Its output is {}."
                            : "It has no output yet."
                      }
                    />
                    <Files step={step} />
                    {step.error && <ErrorOf step={step} />}
                  </>
                )
              ) : (
                <Tries step={step} moment={moment} />
              )
            }
          </Shown>
        )}
      </div>
    </section>
  );
};

const ErrorOf = ({ step }: { step: StepDetail }): JSX.Element => (
  <p class="bad" style={{ marginTop: "8px" }}>
    <b>{step.error!.kind}</b>: {step.error!.message}
  </p>
);
const Files = ({ step }: { step: StepDetail }): JSX.Element | null =>
  step.artefacts.length ? (
    <ul>
      {step.artefacts.map((one) => (
        <li key={one.sha256}>
          <a
            href={`${BASE}/artefacts/${one.sha256}`}
            download={one.name}
            data-testid={`file-${one.sha256.slice(0, 8)}`}
            onClick={(event) => {
              if (hasKey()) {
                event.preventDefault();
                void file(`/artefacts/${one.sha256}`).then(
                  (content) => saveAs(content, one.name || one.sha256.slice(0, 12)),
                  sayError,
                );
              }
            }}
          >
            {one.name || one.sha256.slice(0, 12)}
          </a>{" "}
          <span class="dim small">{bytes(one.size)}</span>
        </li>
      ))}
    </ul>
  ) : null;

const Tries = ({ step, moment }: { step: StepDetail; moment: number | null }): JSX.Element => {
  const tries = moment === null ? step.tries : step.tries.filter((one) => at(one.from) <= moment);
  if (!tries.length)
    return (
      <p class="dim">
        {step.is_scope
          ? "This step groups others and is not attempted itself."
          : "It has not been attempted."}
      </p>
    );
  return (
    <table class="list tries" data-testid="tries">
      <caption class="sr">Attempts</caption>
      <colgroup>
        <col style={{ width: "48px" }} />
        <col style={{ width: "150px" }} />
        <col style={{ width: "120px" }} />
        <col style={{ width: "90px" }} />
        <col />
      </colgroup>
      <thead>
        <tr>
          <th scope="col">No.</th>
          <th scope="col">Outcome</th>
          <th scope="col">From</th>
          <th scope="col" class="num">
            Took
          </th>
          <th scope="col">Error, worker</th>
        </tr>
      </thead>
      <tbody>
        {tries.map((one) => (
          <tr key={one.n} class={one.outcome === "failed" || one.outcome === "timed_out" ? "is-failed" : ""}>
            <td>{one.n}</td>
            <td>
              <span class="row" style={{ flexWrap: "nowrap" }}>
                <Mark state={markOf(one.outcome)} />
                {OUTCOMES[one.outcome] ?? one.outcome}
              </span>
            </td>
            <td title={exact(at(one.from))}>{clockMs(at(one.from))}</td>
            <td class="num">{one.to ? span(at(one.to) - at(one.from)) : ""}</td>
            <td style={{ whiteSpace: "normal", overflowWrap: "anywhere", paddingBlock: "4px" }}>
              <span class="why">{one.error ? `${one.error.kind}: ${one.error.message}` : ""}</span>
              {one.worker.length > 0 && <span class="dim small"> {one.worker.join(" ")}</span>}
              {one.retry_at && <span class="dim small"> next attempt at {clockMs(at(one.retry_at))}</span>}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
};
const markOf = (outcome: string): string =>
  ({ timed_out: "failed", pending: "waiting", lost: "interrupted", released: "cancelled" })[outcome] ??
  outcome;

// ----------------------------------------------------------------------------------------------------- items of a fan-out

const Items = ({
  run,
  path,
  failed,
  seq,
  onRerun,
  onChoose,
}: {
  run: Run;
  path: string;
  failed: number;
  seq: number;
  onRerun: ((from: string) => void) | null;
  onChoose: (path: string) => void;
}): JSX.Element => {
  const which = useSignal<"failed" | "all">(failed > 0 ? "failed" : "all"),
    more = useSignal<Step[]>([]),
    cursor = useSignal<string | null | undefined>(undefined);
  const query = {
    under: path,
    status: which.value === "failed" ? "failed" : undefined,
    values: "none",
    limit: 100,
  };
  const first = useLoaded<StepPage>(`items ${run.run_id} ${path} ${which.value} ${seq}`, (signal) =>
    get<StepPage>(`/runs/${e(run.run_id)}/steps`, query, signal),
  );
  const rest = cursor.value === undefined ? (first.data?.cursor ?? null) : cursor.value;
  const next = async (): Promise<void> => {
    try {
      const found = await get<StepPage>(`/runs/${e(run.run_id)}/steps`, { ...query, cursor: rest });
      more.value = [...more.value, ...found.items];
      cursor.value = found.cursor;
    } catch (error) {
      sayError(error);
    }
  };
  return (
    <div>
      <div class="fan">
        <Tabs
          label="Which items"
          testid="items"
          chosen={which.value}
          onChoose={(id) => {
            which.value = id as "all";
            more.value = [];
            cursor.value = undefined;
          }}
          names={[
            { id: "failed", name: `Failed ${grouped(failed)}` },
            { id: "all", name: "All" },
          ]}
        />
        {failed > 0 && onRerun && (
          <Button testid="rerun-failed-items" kind="main" onClick={() => onRerun(`failed:${path}`)}>
            Rerun the {counted(failed, "failed item")}
          </Button>
        )}
      </div>
      <Shown of={first} lines={4}>
        {(page) =>
          page.items.length === 0 ? (
            <Empty>{which.value === "failed" ? "No item has failed." : "No item has begun."}</Empty>
          ) : (
            <>
              <table class="list items" data-testid="items-table">
                <caption class="sr">Steps of the items</caption>
                <colgroup>
                  <col style={{ width: "34%" }} />
                  <col style={{ width: "112px" }} />
                  <col />
                  <col style={{ width: "84px" }} />
                </colgroup>
                <thead>
                  <tr>
                    <th scope="col">Step</th>
                    <th scope="col">State</th>
                    <th scope="col">Error</th>
                    <th scope="col" class="num">
                      Took
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {[...page.items, ...more.value].map((step) => (
                    <tr key={step.path} class={`is-${step.status}`}>
                      <td>
                        <button
                          type="button"
                          class="link mono cut"
                          style={{ maxWidth: "100%" }}
                          data-testid={`item-${step.path}`}
                          onClick={() => onChoose(step.path)}
                        >
                          {step.path}
                        </button>
                      </td>
                      <td>
                        <State state={step.status} />
                      </td>
                      <td>
                        <span class="why" title={step.error?.message}>
                          {step.error ? errorText({ ...step.error, path: "" }) : ""}
                        </span>
                      </td>
                      <td class="num dim">
                        {step.finished_at ? span(at(step.finished_at) - at(step.started_at)) : ""}
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
              {rest && (
                <p style={{ padding: "8px 0" }}>
                  <Button testid="items-more" onClick={() => void next()}>
                    Show 100 more
                  </Button>
                </p>
              )}
            </>
          )
        }
      </Shown>
    </div>
  );
};

// ------------------------------------------------------------------------------------------------------ log and journal

const Log = ({ run, path, live }: { run: Run; path: string | null; live: RunEvent[] }): JSX.Element => {
  const found = useLoaded<{ items: LogLine[]; cursor: number | null }>(
    `logs ${run.run_id} ${path} ${run.seq ?? 0}`,
    (signal) => get(`/runs/${e(run.run_id)}/logs`, { step: path ?? undefined, limit: 500 }, signal),
  );
  const spoken = live.filter(
    (one) =>
      one.detail.kind === "log" &&
      (path === null || (one.path ?? one.current_step_id) === path) &&
      !found.data?.items.some((line) => line.text === one.detail["text"]),
  );
  return (
    <Shown of={found} lines={3}>
      {(page) =>
        page.items.length + spoken.length === 0 ? (
          <p class="dim">
            Nothing was logged. A tool logs with <code>context.log(…)</code>, <code>logging</code> or{" "}
            <code>print</code>.
          </p>
        ) : (
          <div class="log" tabIndex={0} role="log" aria-label="Log lines" data-testid="log">
            {page.items.map((line) => (
              <div key={line.n} class={`l-${line.level}`}>
                <time class="dim" dateTime={line.at} title={exact(at(line.at))}>
                  {clockMs(at(line.at))}
                </time>
                <span class="level">
                  {line.level}
                  {path === null ? ` ${line.path}` : ""}
                  {line.attempt > 1 ? ` #${line.attempt}` : ""}
                </span>
                <pre>{line.text}</pre>
              </div>
            ))}
            {spoken.map((one, i) => (
              <div key={`live${i}`}>
                <time class="dim">{one.at ? clockMs(at(one.at)) : "now"}</time>
                <span class="level">{String(one.detail["level"] ?? "info")}</span>
                <pre>{String(one.detail["text"] ?? "")}</pre>
              </div>
            ))}
            {page.cursor !== null && (
              <p class="dim">
                More lines follow: <code>holdfast runs logs {run.run_id}</code> prints all of them.
              </p>
            )}
          </div>
        )
      }
    </Shown>
  );
};

type JournalPage = { items: JournalLine[]; cursor: number | null };
const JOURNAL_PAGE = 100,
  PAGES_SEARCHED = 10; // at once, for rows of a step

// The rows of a run, or those that name a step: from the one that decided to start it to the one that ended it.
const Journal = ({
  run,
  path,
  since,
  until,
}: {
  run: Run;
  path: string | null;
  since: number;
  until: number;
}): JSX.Element => {
  const lines = useSignal<JournalLine[]>([]),
    cursor = useSignal<number | null>(0),
    open = useSignal<number | null>(null);
  const read = (after: number, limit: number): Promise<JournalPage> =>
    get(`/runs/${e(run.run_id)}/journal`, { after, limit });
  const timeOf = async (seq: number): Promise<number> => {
    const found = await read(seq - 1, 1);
    return found.items[0] ? at(found.items[0].at) : Infinity;
  };
  const first = useLoaded<null>(`journal ${run.run_id}`, async () => {
    // Rows of the same millisecond may come before the one that is found: the decision to start is in one of them.
    if (path !== null && since > 0)
      cursor.value = Math.max(0, (await seqAt(since - 1, run.seq ?? 1, timeOf)) - 1);
    await next();
    return null;
  });
  const next = async (): Promise<void> => {
    for (let page = 0; page < PAGES_SEARCHED && cursor.value !== null; page += 1) {
      const found = await read(cursor.value, JOURNAL_PAGE);
      lines.value = [...lines.value, ...found.items];
      cursor.value = found.cursor;
      if (lines.value.some(names) && at(found.items.at(-1)?.at) >= until) return;
    }
  };
  const names = (line: JournalLine): boolean =>
    path === null ||
    JSON.stringify(line.body).includes(JSON.stringify(path)) ||
    Object.keys(line.jobs).some((one) => one.startsWith(`${path}#`));
  const shown = lines.value.filter(names);
  return (
    <div data-testid="journal">
      {first.error && <p class="bad">{first.error.message}</p>}
      {!first.isLoading && shown.length === 0 && !first.error && (
        <p class="dim">
          {cursor.value === null
            ? "No row of the journal names this step."
            : `No row up to ${grouped(cursor.value)} names this step.`}
        </p>
      )}
      <table class="list">
        <caption class="sr">Rows of the journal</caption>
        <colgroup>
          <col style={{ width: "64px" }} />
          <col style={{ width: "120px" }} />
          <col />
          <col style={{ width: "150px" }} />
        </colgroup>
        <thead>
          <tr>
            <th scope="col">Row</th>
            <th scope="col">At</th>
            <th scope="col">Event</th>
            <th scope="col">
              <span class="sr">Acts</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {shown.map((line) => [
            <tr key={line.seq}>
              <td>{line.seq}</td>
              <td title={exact(at(line.at))}>{clockMs(at(line.at))}</td>
              <td>
                <button
                  type="button"
                  class="link mono"
                  aria-expanded={open.value === line.seq}
                  data-testid={`journal-${line.seq}`}
                  onClick={() => {
                    open.value = open.value === line.seq ? null : line.seq;
                  }}
                >
                  {line.kind}
                </button>
              </td>
              <td>
                <a href={`/ui/runs/${run.run_id}?seq=${line.seq}`} data-testid={`journal-go-${line.seq}`}>
                  see this moment
                </a>
              </td>
            </tr>,
            open.value === line.seq ? (
              <tr key={`${line.seq}b`}>
                <td colSpan={4} style={{ whiteSpace: "normal", padding: "8px" }}>
                  <Value value={line.body} />
                </td>
              </tr>
            ) : null,
          ])}
        </tbody>
      </table>
      {cursor.value !== null && lines.value.length > 0 && (
        <p style={{ padding: "8px 0" }}>
          <Button testid="journal-more" onClick={() => void next().catch(sayError)}>
            Show the next 100 rows
          </Button>
        </p>
      )}
    </div>
  );
};
