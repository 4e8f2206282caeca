import assert from "node:assert/strict";
import { test } from "node:test";
import type { Timeline, TimelineRow } from "../src/api/types.ts";
import { pastSentence } from "../src/model/past.ts";
import { courseOf } from "../src/model/replay.ts";

const T0 = Date.parse("2026-11-18T12:00:00.000Z"),
  at = (secs: number): string => new Date(T0 + secs * 1000).toISOString();
const row = (
  path: string,
  from: number,
  to: number | null,
  more: Partial<TimelineRow> = {},
): TimelineRow => ({
  path,
  kind: "tool",
  status: "completed",
  from: at(from),
  to: to === null ? null : at(to),
  depth: 0,
  spans: [],
  children: 0,
  done: 0,
  failed: 0,
  strip: null,
  ...more,
});
const tried = (n: number, from: number, to: number, outcome: string): TimelineRow["spans"][number] => ({
  kind: "try",
  n,
  from: at(from),
  to: at(to),
  outcome,
});
const said = (rows: TimelineRow[], secs: number): string =>
  pastSentence(
    courseOf({
      run_id: "r",
      seq: 9,
      status: "failed",
      from: at(0),
      to: at(20),
      more: 0,
      rows,
    } satisfies Timeline),
    T0 + secs * 1000,
  );

const CHARGE = row("charge", 1, 9, {
  spans: [
    tried(1, 1, 2, "failed"),
    { kind: "backoff", n: 1, from: at(2), to: at(4), outcome: "" },
    tried(2, 4, 9, "completed"),
  ],
});
const ASK = row("ask", 3, 12, {
  kind: "approve",
  spans: [{ kind: "wait", n: 0, from: at(3), to: at(12), outcome: "approval" }],
});
for (const [secs, wanted] of [
  [0, "At its start, no step was open"],
  [1.5, "1.5 s after its start, charge was running"],
  [2.5, "2.5 s after its start, charge had failed once and waited for its next attempt"],
  [5, "5.0 s after its start, charge was running, attempt 2, and 1 more step was open"],
  [10, "10 s after its start, ask waited for an approval"],
  [15, "15 s after its start, no step was open"],
] as const)
  test(`the sentence of a moment ${secs} s after the start describes that moment`, () => {
    assert.equal(said([CHARGE, ASK], secs), wanted);
  });

test("the sentence of a moment in a large fan-out counts its items", () => {
  const strip = {
    from: at(0),
    bucket_ms: 1000,
    started: [5, 5],
    completed: [3, 4],
    failed: [1, 2],
    cancelled: [0, 0],
    failed_items: [2],
  };
  assert.equal(
    said([row("each", 0, 2, { children: 10, done: 10, failed: 3, strip })], 0.5),
    "0.5 s after its start, each was running, 4 of 10 items done, 1 failed",
  );
});
