// One workflow: what does it do, is it healthy? Graph, figures, start by form, versions, and the editor.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { ApiError, e, get, hasKey, may, post } from "../api/client.ts";
import { useLoaded } from "../api/live.ts";
import type {
  Diff,
  Page,
  Plan,
  Release,
  Run,
  RunLine,
  Schema,
  Stats,
  Validation,
  Workflow,
} from "../api/types.ts";
import { SchemaForm, defaultsOf, fieldsOf } from "../draw/form.tsx";
import type { Values } from "../draw/form.tsx";
import { graph } from "../draw/graph.ts";
import { useKeys } from "../lib/keys.ts";
import { serverAddress } from "../lib/prefix.ts";
import { go, place, setQuery } from "../lib/router.ts";
import { counted, grouped, now, span } from "../lib/time.ts";
import { commands } from "../model/copy.ts";
import { EMPTY } from "../model/filter.ts";
import { cellsOf } from "../model/run.ts";
import {
  Ago,
  Button,
  CopyAs,
  Dialog,
  Problem,
  Shown,
  Tabs,
  missing,
  say,
  sayError,
} from "../parts/basic.tsx";
import { EditorPane } from "./editor.tsx";
import { flatCells, layoutOf } from "./run_panes.tsx";
import { RunRows } from "./run_rows.tsx";

export const WorkflowScreen = ({ name }: { name: string }): JSX.Element =>
  name === "~new" ? (
    <EditorPane name={null} source={NEW} onPublished={(made) => go(`/ui/workflows/${e(made)}`)} />
  ) : (
    <Known key={name} name={name} />
  );

const NEW =
  'name: my_workflow\ninputs:\n  name: {type: string, default: World}\nsteps:\n  - id: greet\n    tool: echo\n    args: {value: "Hello {{inputs.name}}"}\n';

const Known = ({ name }: { name: string }): JSX.Element => {
  const workflow = useLoaded<Workflow>(`workflow ${name}`, (signal) =>
      get<Workflow>(`/workflows/${e(name)}`, {}, signal),
    ),
    tab = place.value.query.get("tab") ?? "about",
    isUnknown = workflow.error?.status === 404,
    isStarting = useSignal(false);
  const tabs = [
    { id: "about", name: "About" },
    { id: "edit", name: "Definition" },
    { id: "versions", name: "Versions" },
    { id: "runs", name: "Runs" },
  ];
  useKeys("Workflow", [
    ...(may("run") && !isUnknown
      ? [
          {
            keys: "n",
            does: "start a run",
            act: () => {
              isStarting.value = true;
            },
          },
        ]
      : []),
    { keys: "e", does: "edit the definition", act: () => setQuery({ tab: "edit" }) },
  ]);
  const source = workflow.data
    ? (workflow.data.source ?? JSON.stringify(workflow.data.definition, null, 2))
    : "";
  return (
    <>
      <div class="head">
        <h1>{name}</h1>
        {workflow.data && (
          <span class="dim">
            #{workflow.data.number} <code class="small">{workflow.data.version.slice(0, 12)}</code> published{" "}
            <Ago time={workflow.data.created_at} />
          </span>
        )}
        <span class="grow" />
        {!isUnknown && (
          <CopyAs testid="workflow-copy" commands={commands(serverAddress(), hasKey()).workflow(name)} />
        )}
        {may("run") && !isUnknown && (
          <Button
            testid="start"
            kind="main"
            keys="n"
            onClick={() => {
              isStarting.value = true;
            }}
          >
            Start a run
          </Button>
        )}
      </div>
      <Tabs
        label="Parts of the workflow"
        testid="wtab"
        chosen={tab}
        onChoose={(id) => setQuery({ tab: id === "about" ? null : id })}
        names={tabs}
      />
      <div
        role="tabpanel"
        aria-label={tabs.find((one) => one.id === tab)?.name}
        style={{ paddingTop: "12px" }}
      >
        {tab === "runs" ? (
          <RunRows key={name} filter={{ ...EMPTY, workflow: name }} />
        ) : isUnknown ? (
          <div class="empty" data-testid="no-workflow">
            <p>No workflow {name} is published. Runs of that name stay.</p>
            <Button testid="no-workflow-runs" onClick={() => setQuery({ tab: "runs" })}>
              Its runs
            </Button>
          </div>
        ) : tab === "versions" ? (
          <Versions name={name} current={workflow.data?.number ?? 0} onChanged={workflow.again} />
        ) : (
          <Shown of={workflow} testid="workflow">
            {() =>
              tab === "edit" ? (
                <EditorPane
                  key={`${name} ${workflow.data!.version}`}
                  name={name}
                  source={source}
                  onPublished={(made) =>
                    made === name ? workflow.again() : go(`/ui/workflows/${e(made)}?tab=edit`)
                  }
                />
              ) : (
                <About name={name} />
              )
            }
          </Shown>
        )}
      </div>
      {isStarting.value && (
        <StartDialog
          name={name}
          onClose={() => {
            isStarting.value = false;
          }}
        />
      )}
    </>
  );
};

// By whole hours, so that the same question is asked for a while.
const weekAgo = (): string => new Date(Math.floor(now.value / 3_600_000 - 7 * 24) * 3_600_000).toISOString();
const About = ({ name }: { name: string }): JSX.Element => {
  const plan = useLoaded<Plan>(`plan ${name}`, (signal) =>
      get<Plan>(`/workflows/${e(name)}/plan`, {}, signal),
    ),
    isWeek = useSignal(true);
  const stats = useLoaded<Stats>(
    `stats ${name} ${isWeek.value}`,
    (signal) =>
      get<Stats>(
        `/workflows/${e(name)}/stats`,
        isWeek.value ? { last: 500, from: weekAgo() } : { last: 200 },
        signal,
      ),
    { everyMs: 5000 },
  );
  const chip = (week: boolean, text: string): JSX.Element => (
    <button
      type="button"
      class="chip"
      data-testid={week ? "stats-week" : "stats-last"}
      aria-pressed={isWeek.value === week}
      onClick={() => {
        isWeek.value = week;
      }}
    >
      {text}
    </button>
  );
  const slow = useMemo(
    () => [...(stats.data?.steps ?? [])].sort((a, b) => (b.p95_ms ?? 0) - (a.p95_ms ?? 0)),
    [stats.data],
  );
  return (
    <div class="grid2">
      <section
        class="card"
        aria-label="Graph"
        style={{ minHeight: "380px", display: "flex", flexDirection: "column" }}
      >
        <header>
          <h2>Graph</h2>
        </header>
        {plan.data ? (
          <PlanGraph plan={plan.data} />
        ) : plan.error ? (
          <p class="dim empty">{missing(plan.error) || plan.error.message}</p>
        ) : null}
      </section>
      <div style={{ display: "grid", gap: "16px" }}>
        <section class="card" aria-label="Health">
          <header>
            <h2>Health</h2>
            <span class="dim small">
              {stats.data
                ? `${counted(stats.data.runs, "finished run")}${stats.data.runs === (isWeek.value ? 500 : 200) ? ", the newest" : ""}`
                : ""}
            </span>
            <span class="grow" />
            <span class="chips" role="group" aria-label="Which runs">
              {chip(true, "this week")}
              {chip(false, "last 200")}
            </span>
          </header>
          <Shown of={stats} lines={2} testid="stats">
            {(one) => (
              <div class="figures">
                <div class="figure">
                  <b>{one.success === null ? "·" : `${Math.round(one.success * 1000) / 10} %`}</b>
                  <span>success</span>
                </div>
                <div class="figure">
                  <b>{one.p50_ms === null ? "·" : span(one.p50_ms)}</b>
                  <span>p50</span>
                </div>
                <div class="figure">
                  <b>{one.p95_ms === null ? "·" : span(one.p95_ms)}</b>
                  <span>p95</span>
                </div>
                <a class="figure" href={`/ui/runs?q=${e(`workflow:${name} status:failed`)}`}>
                  <b>{grouped(one.failed)}</b>
                  <span>failed</span>
                </a>
              </div>
            )}
          </Shown>
        </section>
        <section class="card" aria-label="Steps">
          <header>
            <h2>Steps</h2>
            <span class="dim small">
              slowest first
              {stats.data && stats.data.steps_of < stats.data.runs
                ? `, of the newest ${counted(stats.data.steps_of, "run")}`
                : ""}
            </span>
          </header>
          <Shown of={stats} lines={4}>
            {() =>
              slow.length === 0 ? (
                <p class="dim" style={{ padding: "12px" }}>
                  {isWeek.value ? "No run has finished this week." : "No run has finished yet."}
                </p>
              ) : (
                <table class="list" style={{ border: 0 }} data-testid="slow-steps">
                  <caption class="sr">Steps by time</caption>
                  <thead>
                    <tr>
                      <th scope="col">Step</th>
                      <th scope="col" class="num">
                        p50
                      </th>
                      <th scope="col" class="num">
                        p95
                      </th>
                      <th scope="col" class="num">
                        Failed
                      </th>
                      <th scope="col" class="num">
                        Retries
                      </th>
                    </tr>
                  </thead>
                  <tbody>
                    {slow.slice(0, 30).map((one) => (
                      <tr key={one.path} class={one.failed ? "is-failed" : ""}>
                        <td class="mono small" title={one.path}>
                          {one.path}
                        </td>
                        <td class="num">{one.p50_ms === null ? "" : span(one.p50_ms)}</td>
                        <td class="num">{one.p95_ms === null ? "" : span(one.p95_ms)}</td>
                        <td class="num why">{one.failed || ""}</td>
                        <td class="num dim">{one.retries || ""}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              )
            }
          </Shown>
        </section>
      </div>
      <section aria-label="Latest runs" style={{ gridColumn: "1 / -1" }}>
        <div class="head">
          <h2>Latest runs</h2>
        </div>
        <RunRows filter={{ ...EMPTY, workflow: name }} limit={8} testid="workflow-runs" />
      </section>
    </div>
  );
};

// A plan without a run. `problems` are the keys of nodes with mistakes.
export const PlanGraph = ({
  plan,
  problems,
  onChoose,
}: {
  plan: Plan;
  problems?: ReadonlySet<string>;
  onChoose?: (line: number) => void;
}): JSX.Element => {
  const host = useRef<HTMLDivElement>(null),
    drawn = useRef<ReturnType<typeof graph> | null>(null),
    latest = useRef({ plan, onChoose });
  latest.current = { plan, onChoose };
  useEffect(() => {
    const made = (drawn.current = graph(
      host.current!,
      (key) => {
        const cell = flatCells(cellsOf(latest.current.plan, null, null).cells).get(key);
        if (cell) latest.current.onChoose?.(cell.line);
        made.choose(key, false);
      },
      true,
    ));
    return () => made.close();
  }, []);
  useEffect(() => {
    const cells = cellsOf(plan, null, null),
      flat = flatCells(cells.cells);
    drawn.current?.show(layoutOf(cells), JSON.stringify(plan.block));
    drawn.current?.paint((key) => {
      const cell = flat.get(key);
      return {
        status: null,
        note: cell ? cell.does || cell.kind : "",
        badge: cell && cell.does ? cell.kind : "",
        isProblem: problems?.has(key),
      };
    });
  }, [plan, problems]);
  return <div class="graph-host" ref={host} style={{ minHeight: "340px" }} />;
};

// ------------------------------------------------------------------------------------------------------------- starting

const StartDialog = ({ name, onClose }: { name: string; onClose: () => void }): JSX.Element => {
  const found = useLoaded<{ schema: Schema | null; last: Values | null }>(`start ${name}`, async (signal) => {
    const workflow = await get<Workflow>(`/workflows/${e(name)}`, {}, signal);
    const [valid, runs] = await Promise.all([
      post<Validation>("/validate", { spec: workflow.definition }),
      get<Page<RunLine>>("/runs", { workflow: name, limit: 1 }, signal).catch(() => null),
    ]);
    const last = runs?.items[0]
      ? await get<Run>(`/runs/${runs.items[0].run_id}`, { values: "head" }, signal)
          .then((run) => run.inputs as Values | null)
          .catch(() => null)
      : null;
    return { schema: valid.inputs_schema, last };
  });
  return (
    <Dialog title={`Start ${name}`} testid="start-dialog" onClose={onClose}>
      <Shown of={found}>
        {({ schema, last }) => <StartForm name={name} schema={schema} last={last} onClose={onClose} />}
      </Shown>
    </Dialog>
  );
};

const StartForm = ({
  name,
  schema,
  last,
  onClose,
}: {
  name: string;
  schema: Schema | null;
  last: Values | null;
  onClose: () => void;
}): JSX.Element => {
  const values = useSignal<Values>(defaultsOf(schema)),
    bad = useSignal(""),
    isBusy = useSignal(false),
    problem = useSignal<ApiError | null>(null),
    turn = useSignal(0),
    labels = useSignal(""),
    form = useRef<HTMLFormElement>(null);
  // The dialog opened before the fields were known.
  useEffect(() => form.current?.querySelector<HTMLElement>("input,select,textarea")?.focus(), []);
  const start = async (event: Event): Promise<void> => {
    event.preventDefault();
    isBusy.value = true;
    problem.value = null;
    try {
      const pairs = labels.value
        .split(/[\s,]+/)
        .filter(Boolean)
        .map((one) => [one.split("=")[0]!, one.split("=").slice(1).join("=")]);
      const made = await post<{ run_id: string }>("/runs", {
        workflow: name,
        inputs: values.value,
        labels: pairs.length ? Object.fromEntries(pairs) : undefined,
      });
      onClose();
      go(`/ui/runs/${made.run_id}`);
    } catch (error) {
      problem.value = error as ApiError;
      isBusy.value = false;
    }
  };
  return (
    <form class="fields" ref={form} onSubmit={(event) => void start(event)}>
      {last && Object.keys(last).length > 0 && (
        <div>
          <Button
            testid="start-last"
            onClick={() => {
              values.value = { ...last };
              turn.value += 1;
            }}
          >
            Use the inputs of the last run
          </Button>
        </div>
      )}
      {fieldsOf(schema).length === 0 && schema?.["additionalProperties"] === false ? (
        <p class="dim">It takes no inputs.</p>
      ) : fieldsOf(schema).length === 0 ? (
        <SchemaForm
          key={turn.value}
          schema={{ properties: { inputs: { title: "Inputs, as JSON; it declares none" } } }}
          values={Object.keys(values.value).length ? { inputs: values.value } : {}}
          onValues={(next) => {
            values.value = (next["inputs"] as Values | undefined) ?? {};
          }}
          onBad={(text) => {
            bad.value = text;
          }}
          testid="start"
        />
      ) : (
        <SchemaForm
          key={turn.value}
          schema={schema}
          values={values.value}
          onValues={(next) => {
            values.value = next;
          }}
          onBad={(text) => {
            bad.value = text;
          }}
          testid="start"
        />
      )}
      <div class="field">
        <label for="start-labels">Labels</label>
        <input
          id="start-labels"
          data-testid="start-labels"
          placeholder="team=x env=test"
          value={labels.value}
          onInput={(event) => {
            labels.value = event.currentTarget.value;
          }}
        />
      </div>
      {problem.value && (
        <>
          <Problem error={problem.value} />
          {problem.value.details.map((one, i) => (
            <p class="bad small" key={i}>
              {one.pointer} {one.message} {one.hint}
            </p>
          ))}
        </>
      )}
      <footer class="row" style={{ justifyContent: "space-between" }}>
        <CopyAs
          testid="start-copy"
          commands={commands(serverAddress(), hasKey()).start(name, values.value)}
        />
        <span class="row">
          <Button testid="start-no" onClick={onClose}>
            Back
          </Button>
          <Button testid="start-yes" kind="main" submit busy={isBusy.value} disabled={bad.value !== ""}>
            Start
          </Button>
        </span>
      </footer>
    </form>
  );
};

// ------------------------------------------------------------------------------------------------------------- versions

const Versions = ({
  name,
  current,
  onChanged,
}: {
  name: string;
  current: number;
  onChanged: () => void;
}): JSX.Element => {
  const list = useLoaded<Page<Release>>(`versions ${name}`, (signal) =>
      get<Page<Release>>(`/workflows/${e(name)}/versions`, { limit: 100 }, signal),
    ),
    diff = useSignal<[number, number] | null>(null),
    shown = useSignal<number | null>(null);
  const back = async (number: number): Promise<void> => {
    try {
      await post(`/workflows/${e(name)}/rollback`, { number });
      say(`${name} is #${number} again.`);
      list.again();
      onChanged();
    } catch (error) {
      sayError(error);
    }
  };
  return (
    <>
      <Shown of={list} testid="versions">
        {(page) => (
          <div class="list-box">
            <table class="list">
              <caption class="sr">Versions</caption>
              <thead>
                <tr>
                  <th scope="col">Number</th>
                  <th scope="col">State</th>
                  <th scope="col" class="wide">
                    Hash
                  </th>
                  <th scope="col">Made</th>
                  <th scope="col">
                    <span class="sr">Acts</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {page.items.map((one, i) => {
                  const older = page.items[i + 1];
                  return (
                    <tr key={one.id} data-testid={`version-${one.number}`}>
                      <td>
                        <b>#{one.number}</b>
                        {one.number === current && <span class="dim"> in use</span>}
                      </td>
                      <td>{one.status}</td>
                      <td class="mono small wide">{one.version.slice(0, 12)}</td>
                      <td>
                        <Ago time={one.created_at} />
                      </td>
                      <td class="num">
                        <span class="row" style={{ justifyContent: "flex-end", flexWrap: "nowrap" }}>
                          <Button
                            kind="quiet"
                            testid={`version-text-${one.number}`}
                            onClick={() => {
                              shown.value = one.number;
                            }}
                          >
                            Text
                          </Button>
                          {older && (
                            <Button
                              kind="quiet"
                              testid={`diff-${one.number}`}
                              onClick={() => {
                                diff.value = [older.number, one.number];
                              }}
                            >
                              What changed
                            </Button>
                          )}
                          {may("run") && one.number !== current && (
                            <Button testid={`rollback-${one.number}`} onClick={() => void back(one.number)}>
                              Use this
                            </Button>
                          )}
                        </span>
                      </td>
                    </tr>
                  );
                })}
              </tbody>
            </table>
          </div>
        )}
      </Shown>
      {diff.value && (
        <DiffDialog
          name={name}
          from={diff.value[0]}
          to={diff.value[1]}
          onClose={() => {
            diff.value = null;
          }}
        />
      )}
      {shown.value !== null && (
        <TextDialog
          name={name}
          number={shown.value}
          onClose={() => {
            shown.value = null;
          }}
        />
      )}
    </>
  );
};
const TextDialog = ({
  name,
  number,
  onClose,
}: {
  name: string;
  number: number;
  onClose: () => void;
}): JSX.Element => {
  const version = useLoaded<Workflow>(`text ${name} ${number}`, (signal) =>
    get<Workflow>(`/workflows/${e(name)}/versions/${number}`, {}, signal),
  );
  return (
    <Dialog title={`${name} #${number}`} testid="version-text" wide onClose={onClose}>
      <Shown of={version}>
        {(found) => (
          <pre class="diff" tabIndex={0} style={{ maxHeight: "60vh" }}>
            {found.source ?? JSON.stringify(found.definition, null, 2)}
          </pre>
        )}
      </Shown>
    </Dialog>
  );
};
const DiffDialog = ({
  name,
  from,
  to,
  onClose,
}: {
  name: string;
  from: number;
  to: number;
  onClose: () => void;
}): JSX.Element => {
  const diff = useLoaded<Diff>(`diff ${name} ${from} ${to}`, (signal) =>
    get<Diff>(`/workflows/${e(name)}/diff`, { from, to }, signal),
  );
  return (
    <Dialog title={`${name}: #${from} to #${to}`} testid="diff-dialog" wide onClose={onClose}>
      <Shown of={diff}>
        {(found) => (
          <div class="diff" tabIndex={0} style={{ maxHeight: "60vh" }}>
            {found.text.split("\n").map((line, i) => (
              <div key={i} class={line.startsWith("+") ? "plus" : line.startsWith("-") ? "minus" : ""}>
                {line || " "}
              </div>
            ))}
          </div>
        )}
      </Shown>
    </Dialog>
  );
};
