import assert from "node:assert/strict";
import { test } from "node:test";
import type { Explanation, Run, RunLine } from "../src/api/types.ts";
import { courseOf } from "../src/model/replay.ts";
import { partlyFailed } from "../src/model/run.ts";
import { ranked, rowReason, sentence, waitingTitle, waitsFor } from "../src/model/words.ts";

const NOW = Date.parse("2026-11-18T12:00:00.000Z");
const ago = (ms: number): string => new Date(NOW - ms).toISOString();
const ahead = (ms: number): string => new Date(NOW + ms).toISOString();
const run = (more: Partial<Run> = {}): Run => ({
  run_id: "01a1e49a-0000-7000-8000-000000009a10",
  workflow: "order",
  version: "abc",
  number: 1,
  status: "waiting",
  inputs: {},
  output: null,
  error: null,
  waits: [],
  progress: { completed_steps: 1, total_steps: 3 },
  labels: {},
  created_at: ago(600_000),
  started_at: ago(600_000),
  finished_at: null,
  rerun_of: null,
  parent_job_id: null,
  set_aside: null,
  trigger: null,
  ...more,
});
const because = (reason: string, until: string | null = null, path = "ask"): Explanation => ({
  run_id: "r",
  status: "waiting",
  driven_by: 1,
  more: 0,
  reasons: [{ path, reason, since: ago(540_000), until, unblocks: "an answer: holdfast approve", links: [] }],
});

const EVERY: [string, RegExp][] = [
  ["approval", /^Waiting 9 m at ask for an approval$/],
  ["callback", /^Waiting 9 m at ask for a callback$/],
  ["signal", /^Waiting 9 m at ask for a signal$/],
  ["condition", /^Waiting 9 m at ask for a signal that makes its condition true$/],
  ["timer", /^Sleeping at ask$/],
  ["retry", /^An attempt failed at ask; the next one starts now$/],
  ["poll", /^Polling at ask$/],
  ["key", /^Waiting at ask for another step that holds the same idempotency key$/],
  ["no_tool", /^No process here has the tool of ask$/],
  ["no_worker", /^No worker serves ask; it has waited 9 m$/],
  ["offered", /^ask has been offered to workers for 9 m/],
  ["at_worker", /^Running at ask for 9 m, on a worker$/],
  ["at_work", /^Running at ask for 9 m$/],
  ["stopping", /^ask was asked to stop/],
  ["slot", /^Waiting at ask for a free slot$/],
  ["suspect", /^Waiting at ask to run alone/],
  ["lost", /^The process ended while ask was running/],
  ["not_driven", /^No process drives this run/],
  ["set_aside", /^Set aside/],
  ["store_unavailable", /^The database cannot be written/],
  ["cancelling", /^Cancelling/],
  ["failed", /^Failing/],
  ["something_new", /^Waiting at ask: something new$/],
];
for (const [reason, wanted] of EVERY)
  test(`a run that is open because of ${reason} says so in one sentence`, () => {
    assert.match(sentence(run(), because(reason), NOW).text, wanted);
  });

test("the sentence of an approval quotes its prompt and says until when", () => {
  const waits = [
    {
      path: "ask",
      kind: "approval",
      until: ahead(3_600_000),
      since: ago(540_000),
      name: "",
      detail: { prompt: "Ship 9 boxes?" },
      links: [],
    },
  ];
  const said = sentence(run({ waits }), because("approval", ahead(3_600_000)), NOW);
  assert.match(said.text, /^Waiting 9 m at ask for approval “Ship 9 boxes\?”, until .+$/);
  assert.deepEqual(said.acts, ["answer", "cancel"]);
  assert.equal(said.path, "ask");
});
test("a failed run names the step, the attempts and the message", () => {
  const said = sentence(
    run({
      status: "failed",
      finished_at: ago(1000),
      error: { kind: "timeout", message: "the bank\ndid not answer", path: "charge", attempt: 3 },
    }),
    null,
    NOW,
  );
  assert.equal(said.text, "Failed at charge after 3 attempts: the bank did not answer");
  assert.deepEqual(said.acts, ["rerun_failed", "compare"]);
});
test("a completed run says how long it took", () => {
  assert.equal(
    sentence(run({ status: "completed", finished_at: ago(540_000) }), null, NOW).text,
    "Completed in 60 s, 9 m ago",
  );
});
test("what a person can unblock comes before what goes on by itself", () => {
  const reasons = ["timer", "at_work", "approval"].map((reason) => because(reason).reasons[0]!);
  assert.deepEqual(
    ranked(reasons).map((one) => one.reason),
    ["approval", "at_work", "timer"],
  );
  assert.match(
    sentence(run(), { ...because("timer"), reasons, more: 2 }, NOW).text,
    /and 4 more open steps$/,
  );
});
test("an open run without any reason still has a sentence", () => {
  for (const status of ["pending", "running", "waiting", "cancelling"] as const)
    assert.notEqual(sentence(run({ status }), null, NOW).text, "");
});

const line = (more: Partial<RunLine>): RunLine => ({
  run_id: "r",
  workflow: "w",
  version: "v",
  status: "failed",
  labels: {},
  created_at: ago(0),
  finished_at: null,
  rerun_of: null,
  parent_job_id: null,
  ...more,
});
test("a row shows the error with its step", () => {
  assert.equal(
    rowReason(line({ error: { kind: "x", message: "n=7  is bad", path: "each[6].do" } }), NOW).text,
    "each[6].do: n=7 is bad",
  );
});
test("a row that waits for an approval offers the answer", () => {
  const why = rowReason(
    line({
      status: "waiting",
      wait: { path: "ask", kind: "approval", until: ahead(82_800_000), since: null, prompt: "Ship?" },
    }),
    NOW,
  );
  assert.deepEqual(why, { text: "ask: approval “Ship?”, 23 h left", act: "answer" });
});
test("a title of a wait is never empty", () => {
  for (const kind of ["approval", "signal", "callback", "condition", "key", "other"]) {
    assert.notEqual(waitsFor(kind), "");
    assert.notEqual(
      waitingTitle({
        run_id: "r",
        workflow: "w",
        number: null,
        path: "p",
        kind,
        name: "n",
        prompt: "",
        form: null,
        detail: {},
        since: ago(0),
        until: null,
        answers: { need: 1, have: 0, by: [] },
        may_answer: true,
        links: [],
      }),
      "",
    );
  }
});
test("a run that no worker serves names the service and the step", () => {
  assert.equal(
    sentence(run(), because("no_worker", null, "add"), NOW, () => "sum").text,
    "No worker serves sum, which add needs; it has waited 9 m",
  );
});
test("a row says what a waiting run lacks and how to start it", () => {
  assert.deepEqual(
    rowReason(
      line({
        status: "waiting",
        reason: "no_worker: sum",
        wait: { path: "", kind: "timer", until: null, since: null, prompt: "" },
      }),
      NOW,
    ),
    { text: "no worker serves sum", act: "worker_help" },
  );
  assert.deepEqual(
    rowReason(line({ status: "waiting", reason: "no_tool: add, no_worker: sum" }), NOW).text,
    "no process has the tool add, and no worker serves sum",
  );
});
test("a row names the signal that it waits for, and a timer of no step stands alone", () => {
  const wait = { path: "s", kind: "signal", until: null, since: null, prompt: "", name: "paid" };
  assert.deepEqual(rowReason(line({ status: "waiting", wait }), NOW), {
    text: "s: signal paid",
    act: "signal",
  });
  assert.equal(
    rowReason(line({ status: "waiting", wait: { ...wait, path: "", kind: "timer", name: "" } }), NOW).text,
    "a timer",
  );
});

test("a run that completed although items failed says how many, and where", () => {
  const row = (path: string, children: number, failed: number) => ({
    path,
    kind: "foreach",
    status: "completed" as const,
    from: ago(60_000),
    to: ago(50_000),
    depth: 0,
    spans: [],
    children,
    done: children,
    failed,
    strip: null,
  });
  const completed = run({ status: "completed", finished_at: ago(540_000) });
  const said = (...rows: ReturnType<typeof row>[]) =>
    sentence(
      completed,
      null,
      NOW,
      () => "",
      partlyFailed(courseOf({ ...COURSE, rows } as unknown as Parameters<typeof courseOf>[0])),
    );
  const COURSE = { from: ago(60_000), to: ago(50_000), status: "completed", seq: 9, more: 0 };
  assert.equal(said(row("each", 240, 0)).text, "Completed in 60 s, 9 m ago");
  const partly = said(row("each", 10_000, 1428), row("each[3].inner", 5, 2));
  assert.equal(partly.text, "Completed in 60 s, 9 m ago; 1,428 of 10,000 items failed in each");
  assert.equal(partly.path, "each");
  assert.deepEqual(partly.acts, ["rerun_failed", "compare"]);
  assert.match(
    said(row("each", 10, 1), row("send", 5, 2)).text,
    /; 3 of 15 items failed in each and 1 more step$/,
  );
});
