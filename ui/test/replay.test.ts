import assert from "node:assert/strict";
import { test } from "node:test";
import type { Plan, Timeline, TimelineRow } from "../src/api/types.ts";
import {
  courseOf,
  countsAt,
  factBefore,
  facts,
  momentOf,
  nextFact,
  seqAt,
  stateAt,
} from "../src/model/replay.ts";
import { cellsOf, groups } from "../src/model/run.ts";

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
const TIMELINE: Timeline = {
  run_id: "r",
  seq: 9,
  status: "completed",
  from: at(0),
  to: at(10),
  more: 0,
  rows: [
    row("a", 0, 4, {
      spans: [
        { kind: "try", n: 1, from: at(0), to: at(1), outcome: "failed" },
        { kind: "backoff", n: 1, from: at(1), to: at(2), outcome: "" },
        { kind: "try", n: 2, from: at(2), to: at(4), outcome: "completed" },
      ],
    }),
    row("ask", 4, 9, {
      kind: "approve",
      spans: [{ kind: "wait", n: 1, from: at(4), to: at(9), outcome: "" }],
    }),
    row("end", 9, 10, { spans: [{ kind: "try", n: 1, from: at(9), to: at(10), outcome: "completed" }] }),
  ],
};
test("a step passes through running, retrying and running again to its end", () => {
  const a = courseOf(TIMELINE).rows[0]!,
    states = [-1, 0.5, 1.5, 3, 4, 8].map((t) => stateAt(a, T0 + t * 1000));
  assert.deepEqual(states, [null, "running", "retrying", "running", "completed", "completed"]);
});
test("the run is waiting while nothing but a wait is open", () => {
  const course = courseOf(TIMELINE);
  assert.equal(momentOf(course, T0 + 3000).status, "running");
  assert.equal(momentOf(course, T0 + 6000).status, "waiting");
  assert.equal(momentOf(course, T0 + 10_000).status, "completed");
  assert.equal(momentOf(course, T0 + 3000).rows.get("ask"), null);
});
test("facts are the times at which something happened, each once", () => {
  const all = facts(courseOf(TIMELINE));
  assert.deepEqual(
    all.map((t) => (t - T0) / 1000),
    [0, 1, 2, 4, 9, 10],
  );
  assert.equal(nextFact(all, T0 + 1500), T0 + 2000);
  assert.equal(factBefore(all, T0 + 1500), T0 + 1000);
  assert.equal(nextFact(all, T0 + 10_000), null);
});
test("the row of the journal at a moment is found with few reads", async () => {
  let reads = 0;
  const found = await seqAt(70_500, 10_000, async (seq) => {
    reads += 1;
    return seq * 10;
  });
  assert.equal(found, 7050);
  assert.ok(reads <= 14);
  assert.equal(await seqAt(-5, 100, async (seq) => seq), 1);
});
test("the counts of a large fan-out follow its buckets", () => {
  const strip = {
    from: at(0),
    bucket_ms: 1000,
    started: [5, 5],
    completed: [3, 4],
    failed: [1, 2],
    cancelled: [0, 0],
    failed_items: [2],
  };
  const fan = courseOf({
    ...TIMELINE,
    rows: [row("fan", 0, 2, { children: 10, done: 10, failed: 3, strip })],
  }).rows[0]!;
  assert.deepEqual(countsAt(fan, T0 + 500), { done: 4, failed: 1 });
  assert.deepEqual(countsAt(fan, T0 + 1500), { done: 10, failed: 3 });
  assert.deepEqual(countsAt(fan, T0 - 1), { done: 0, failed: 0 });
});
test("ten thousand intervals are moved through quickly", () => {
  const rows = Array.from({ length: 10_000 }, (_, i) =>
    row(`loop[${i}].s`, i / 1000, i / 1000 + 1, {
      spans: [{ kind: "try", n: 1, from: at(i / 1000), to: at(i / 1000 + 1), outcome: "completed" }],
    }),
  );
  const course = courseOf({ ...TIMELINE, rows });
  assert.equal(
    [...momentOf(course, T0 + 5500).rows.values()].filter((state) => state === "running").length,
    1000,
  );
});
test("what needs attention stands for all items of a step", () => {
  const course = courseOf({
    ...TIMELINE,
    rows: [
      row("loop", 0, 2, { kind: "foreach", children: 2, done: 2, failed: 1 }),
      row("loop[0].s", 0, 1),
      row("loop[1].s", 0, 2, { status: "failed" }),
    ],
  });
  const group = groups(course, null).get("loop\u0000s")!;
  assert.deepEqual([group.status, group.count, group.failed, group.first], ["failed", 2, 1, "loop[1].s"]);
  const plan: Plan = {
    workflow: "w",
    version: "v",
    plan_hash: "h",
    tools: [],
    workflows: [],
    destructive: false,
    approvals: [],
    block: {
      of: "",
      edges: [],
      nodes: [
        {
          name: "loop",
          kind: "foreach",
          does: "",
          line: 1,
          blocks: [
            { of: "steps", edges: [], nodes: [{ name: "s", kind: "tool", does: "t", line: 2, blocks: [] }] },
          ],
        },
      ],
    },
  };
  const cell = cellsOf(plan, course, null).cells[0]!;
  assert.deepEqual(cell.items, { total: 2, done: 2, failed: 1 });
  assert.equal(cell.blocks[0]!.cells[0]!.status, "failed");
  assert.equal(
    cellsOf(plan, courseOf({ ...TIMELINE, rows: [row("loop", 0, 2, { children: 51 })] }), null).cells[0]!
      .blocks.length,
    0,
    "over fifty children a scope is one node",
  );
});
test("the pause of a timer is shown as people read it", () => {
  const plan = (does: string): Plan => ({
    workflow: "w",
    version: "v",
    plan_hash: "h",
    tools: [],
    workflows: [],
    destructive: false,
    approvals: [],
    block: { of: "", edges: [], nodes: [{ name: "nap", kind: "timer", does, line: 1, blocks: [] }] },
  });
  assert.deepEqual(
    ["86400000 ms", "50", "{{inputs.until}}"].map((does) => cellsOf(plan(does), null, null).cells[0]!.does),
    ["1 d", "50 ms", "{{inputs.until}}"],
  );
});
