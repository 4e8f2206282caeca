// Two runs beside each other: version, inputs, then steps by path; the first difference is opened.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { e, get, may } from "../api/client.ts";
import { useLoaded } from "../api/live.ts";
import type { Json, Run, Step, StepPage } from "../api/types.ts";
import { useKeys } from "../lib/keys.ts";
import { go } from "../lib/router.ts";
import { cut, shortId } from "../lib/text.ts";
import { at, counted, grouped, span } from "../lib/time.ts";
import { changes, differ, isCut, outputOf, pairs } from "../model/diff.ts";
import type { Change, Known, Pair } from "../model/diff.ts";
import { Ago, Button, Empty, LinkButton, Mark, Shown, State } from "../parts/basic.tsx";
import { RerunDialog } from "./run_acts.tsx";

type Both = { a: Run; b: Run; steps: [Step[], Step[]]; isPart: boolean };

const stepsOf = async (id: string, signal: AbortSignal): Promise<{ items: Step[]; isPart: boolean }> => {
  const items: Step[] = [];
  let cursor: string | null = null;
  // Of a fan-out of thousands the first pages are compared, and that is said.
  for (let i = 0; i < 4; i += 1) {
    const page: StepPage = await get<StepPage>(
      `/runs/${e(id)}/steps`,
      { every: true, values: "head", limit: 500, cursor: cursor ?? undefined },
      signal,
    );
    items.push(...page.items);
    cursor = page.cursor;
    if (!cursor) return { items, isPart: false };
  }
  return { items, isPart: true };
};

export const Compare = ({ a, b }: { a: string; b: string }): JSX.Element => {
  const both = useLoaded<Both>(`compare ${a} ${b}`, async (signal) => {
    const [one, two, left, right] = await Promise.all([
      get<Run>(`/runs/${e(a)}`, { values: "head" }, signal),
      get<Run>(`/runs/${e(b)}`, { values: "head" }, signal),
      stepsOf(a, signal),
      stepsOf(b, signal),
    ]);
    return { a: one, b: two, steps: [left.items, right.items], isPart: left.isPart || right.isPart };
  });
  useKeys("Compare", [
    { keys: "s", does: "swap the two runs", act: () => go(`/ui/compare/${e(b)}/${e(a)}`, "replace") },
  ]);
  return (
    <>
      <div class="head">
        <h1>Compare</h1>
        <span class="grow" />
        <Button testid="swap" keys="s" onClick={() => go(`/ui/compare/${e(b)}/${e(a)}`, "replace")}>
          Swap
        </Button>
      </div>
      <Shown of={both} testid="compare">
        {(data) => <Compared {...data} />}
      </Shown>
    </>
  );
};

const Compared = ({ a, b, steps, isPart }: Both): JSX.Element => {
  const all = pairs(...steps),
    different = all.filter((one) => one.isDifferent),
    first = different.find((one) => one.b?.status === "failed" || one.a?.status === "failed") ?? different[0];
  const chosen = useSignal<string | null>(first?.path ?? null),
    isAll = useSignal(different.length === 0),
    isRerun = useSignal(false),
    shown = isAll.value ? all : different;
  const inputs = [inputsOf(a), inputsOf(b)] as const,
    pair = all.find((one) => one.path === chosen.value) ?? null;
  const move = (by: number): void => {
    const i = shown.findIndex((one) => one.path === chosen.value),
      next = shown[Math.min(shown.length - 1, Math.max(0, i + by))];
    if (next) {
      chosen.value = next.path;
      document.querySelector<HTMLElement>(`[data-testid="pair-${CSS.escape(next.path)}"]`)?.focus();
    }
  };
  useKeys("Differences", [
    { keys: "j, ArrowDown", does: "next step", act: () => move(1) },
    { keys: "k, ArrowUp", does: "step before", act: () => move(-1) },
  ]);
  return (
    <>
      <p style={{ marginBottom: "12px" }} data-testid="compare-sentence">
        {sentenceOf(a, b, different)}
      </p>
      <div class="grid2" style={{ marginBottom: "16px" }}>
        <Card run={a} name="First" other={b} />
        <Card
          run={b}
          name="Second"
          other={a}
          onRerun={
            may("run") && b.finished_at
              ? () => {
                  isRerun.value = true;
                }
              : null
          }
        />
      </div>
      {differ(...inputs) && (
        <section class="card" style={{ marginBottom: "16px" }} aria-label="Inputs">
          <header>
            <h2>Inputs differ</h2>
          </header>
          <div class="in">
            <Difference a={inputs[0]} b={inputs[1]} />
          </div>
        </section>
      )}
      <div class="head">
        <h2>Steps</h2>
        <div class="chips" role="group" aria-label="Which steps">
          <button
            type="button"
            class="chip"
            data-testid="only-different"
            aria-pressed={!isAll.value}
            onClick={() => {
              isAll.value = false;
            }}
          >
            different <b>{grouped(different.length)}</b>
          </button>
          <button
            type="button"
            class="chip"
            data-testid="all-steps"
            aria-pressed={isAll.value}
            onClick={() => {
              isAll.value = true;
            }}
          >
            all <b>{grouped(all.length)}</b>
          </button>
        </div>
        {isPart && <span class="dim small">Only the first 2,000 steps of each run are compared.</span>}
      </div>
      {shown.length === 0 ? (
        <Empty>No step differs.</Empty>
      ) : (
        <div class="split pairs">
          <div class="list-box">
            <table class="list" data-testid="pairs">
              <caption class="sr">Steps of both runs</caption>
              <colgroup>
                <col />
                <col style={{ width: "92px" }} />
                <col style={{ width: "92px" }} />
                <col style={{ width: "40%" }} />
              </colgroup>
              <thead>
                <tr>
                  <th scope="col">Step</th>
                  <th scope="col" class="num">
                    First
                  </th>
                  <th scope="col" class="num">
                    Second
                  </th>
                  <th scope="col">Difference</th>
                </tr>
              </thead>
              <tbody>
                {shown.slice(0, 500).map((one) => (
                  <tr key={one.path} class={one.path === chosen.value ? "marked" : ""}>
                    <td>
                      <button
                        type="button"
                        class="link mono cut"
                        style={{ maxWidth: "100%" }}
                        data-testid={`pair-${one.path}`}
                        aria-expanded={one.path === chosen.value}
                        onClick={() => {
                          chosen.value = one.path;
                        }}
                      >
                        {one.path}
                      </button>
                    </td>
                    <td class="num">
                      <Took step={one.a} />
                    </td>
                    <td class="num">
                      <Took step={one.b} />
                    </td>
                    <td class={one.isDifferent ? "" : "dim"}>{one.what.join(", ") || "same"}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          {pair && <PairView pair={pair} a={a} b={b} />}
        </div>
      )}
      {isRerun.value && (
        <RerunDialog
          run={b}
          from={b.status === "failed" ? "failed" : ""}
          onClose={() => {
            isRerun.value = false;
          }}
        />
      )}
    </>
  );
};

const inputsOf = (run: Run): Known => ({ value: run.inputs, head: run.heads?.inputs });
const inputsSentence = (a: Known, b: Known): string => {
  if (isCut(a, b))
    return differ(a, b)
      ? "The inputs differ."
      : "The inputs are too large to compare here; they begin alike and are as long.";
  const found = changes(a.value, b.value);
  return found.length
    ? `${counted(found.length, "input value")} ${found.length === 1 ? "differs" : "differ"}.`
    : "The inputs are the same.";
};
const sentenceOf = (a: Run, b: Run, different: Pair[]): string => {
  const parts = [
    a.workflow !== b.workflow
      ? "They are runs of different workflows."
      : a.version !== b.version
        ? `The version differs (${a.number ? `#${a.number}` : "unpublished"} and ${b.number ? `#${b.number}` : "unpublished"}).`
        : "Both ran the same version.",
  ];
  parts.push(inputsSentence(inputsOf(a), inputsOf(b)));
  const failed =
    different.find((one) => one.b?.status === "failed" && one.a?.status !== "failed") ??
    different.find((one) => one.a?.status === "failed" && one.b?.status !== "failed");
  parts.push(
    failed
      ? `${failed.path} is where they part: it ${failed.b?.status === "failed" ? "failed in the second" : "failed in the first"}.`
      : different.length
        ? `The first step that differs is ${different[0]!.path}.`
        : "No step differs.",
  );
  return parts.join(" ");
};

const Took = ({ step }: { step: Step | null }): JSX.Element =>
  step ? (
    <span class="row" style={{ justifyContent: "flex-end", flexWrap: "nowrap" }}>
      {step.finished_at ? span(at(step.finished_at) - at(step.started_at)) : ""}
      <Mark state={step.status} />
      <span class="sr">{step.status}</span>
    </span>
  ) : (
    <span class="dim">–</span>
  );

const Card = ({
  run,
  name,
  other,
  onRerun,
}: {
  run: Run;
  name: string;
  other: Run;
  onRerun?: (() => void) | null;
}): JSX.Element => (
  <section class="card" aria-label={`${name} run`}>
    <header>
      <span class="dim">{name}</span>
      <a href={`/ui/runs/${run.run_id}`} data-testid={`compare-${name.toLowerCase()}`}>
        <b>{run.workflow}</b> <span class="nowrap">{shortId(run.run_id)}</span>
      </a>
      <span class="grow" />
      <State state={run.status} />
    </header>
    <div class="in">
      <dl class="facts">
        <dt>Version</dt>
        <dd class={run.version === other.version ? "" : "bad"}>
          {run.number ? `#${run.number} ` : ""}
          <code class="small">{run.version.slice(0, 12)}</code>
        </dd>
        <dt>Started</dt>
        <dd>
          <Ago time={run.started_at ?? run.created_at} />
        </dd>
        <dt>Took</dt>
        <dd>
          {run.finished_at ? span(at(run.finished_at) - at(run.started_at ?? run.created_at)) : "still open"}
        </dd>
        {run.error && (
          <>
            <dt>Error</dt>
            <dd class="bad">{cut(run.error.message, 300)}</dd>
          </>
        )}
      </dl>
      {onRerun && (
        <p style={{ marginTop: "8px" }}>
          <Button testid="compare-rerun" onClick={onRerun}>
            Rerun
          </Button>
        </p>
      )}
    </div>
  </section>
);

const text = (value: Json | undefined): string =>
  value === undefined ? "–" : cut(JSON.stringify(value), 400);
const Changes = ({ changes: all }: { changes: Change[] }): JSX.Element => (
  <div class="diff">
    {all.slice(0, 100).map((one) => (
      <div key={one.pointer} style={{ padding: "2px 0" }}>
        <code class="dim">{one.pointer || "whole value"}</code>
        {one.kind !== "added" && <div class="minus">− {text(one.a)}</div>}
        {one.kind !== "removed" && <div class="plus">+ {text(one.b)}</div>}
      </div>
    ))}
    {all.length > 100 && <p class="dim">and {grouped(all.length - 100)} more</p>}
  </div>
);

// What differs between two values, or the beginnings of large ones.
const Difference = ({ a, b }: { a: Known; b: Known }): JSX.Element =>
  isCut(a, b) ? (
    <div class="diff">
      <p class="small dim">large values, by their beginnings</p>
      <div class="minus">− {a.head?.text ?? text(a.value)}</div>
      <div class="plus">+ {b.head?.text ?? text(b.value)}</div>
    </div>
  ) : (
    <Changes changes={changes(a.value, b.value)} />
  );

const PairView = ({ pair, a, b }: { pair: Pair; a: Run; b: Run }): JSX.Element => {
  const output = [outputOf(pair.a), outputOf(pair.b)] as const;
  return (
    <section class="card answer" aria-label={`Step ${pair.path}`} data-testid="pair">
      <header>
        <code class="grow cut">{pair.path}</code>
        {pair.a && (
          <LinkButton testid="pair-first" to={`/ui/runs/${a.run_id}?step=${e(pair.path)}`}>
            First
          </LinkButton>
        )}
        {pair.b && (
          <LinkButton testid="pair-second" to={`/ui/runs/${b.run_id}?step=${e(pair.path)}`}>
            Second
          </LinkButton>
        )}
      </header>
      <div class="in" style={{ display: "grid", gap: "12px" }}>
        <p>{pair.what.join(", ") || "Nothing differs."}</p>
        {pair.a?.error && (
          <div>
            <h3>Error in the first</h3>
            <pre class="bad">
              {pair.a.error.kind}: {cut(pair.a.error.message, 1000)}
            </pre>
          </div>
        )}
        {pair.b?.error && (
          <div>
            <h3>Error in the second</h3>
            <pre class="bad">
              {pair.b.error.kind}: {cut(pair.b.error.message, 1000)}
            </pre>
          </div>
        )}
        {differ(...output) && (
          <div>
            <h3>Output</h3>
            <Difference a={output[0]} b={output[1]} />
          </div>
        )}
      </div>
    </section>
  );
};
