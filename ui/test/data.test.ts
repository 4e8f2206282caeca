import assert from "node:assert/strict";
import { test } from "node:test";
import { frames } from "../src/api/stream.ts";
import type { Step } from "../src/api/types.ts";
import { matched } from "../src/lib/match.ts";
import { safeHref } from "../src/lib/text.ts";
import { ago, roughly, span, when } from "../src/lib/time.ts";
import { commands } from "../src/model/copy.ts";
import { changes, differ, isCut, pairs } from "../src/model/diff.ts";
import { EMPTY } from "../src/model/filter.ts";
import { needsOf, usualOf } from "../src/model/needs.ts";
import { nameOf, parentOf, patternOf, plainOf, segments } from "../src/model/paths.ts";

test("a path has its ids, items and visits", () => {
  assert.deepEqual(
    segments("loop~2[3].s~4").map((one) => [one.id, one.visit, one.index]),
    [
      ["loop", 2, 3],
      ["s", 4, null],
    ],
  );
  assert.deepEqual(
    segments('["a.b"][0].c').map((one) => one.id),
    ["a.b", "c"],
  );
  assert.equal(plainOf("loop[3].s~4"), "loop.s");
  assert.equal(patternOf("a[0].b"), "a\u0000b");
  assert.equal(parentOf("a[0].b"), "a[0]");
  assert.equal(nameOf("a[7].b"), "[7] b");
  assert.equal(nameOf("a"), "a");
});
test("differences are pointers to what was added, removed and changed", () => {
  const found = changes({ a: 1, b: [1, 2], "x/y": null }, { a: 2, b: [1], c: "new", "x/y": null });
  assert.deepEqual(
    found.map((one) => `${one.kind} ${one.pointer}`),
    ["changed /a", "removed /b/1", "added /c"],
  );
  assert.equal(changes({ deep: { same: [1, { z: 2 }] } }, { deep: { same: [1, { z: 2 }] } }).length, 0);
});
const step = (path: string, more: Partial<Step> = {}): Step => ({
  path,
  status: "completed",
  attempts: 1,
  output: 1,
  error: null,
  started_at: "2026-11-18T12:00:00.000Z",
  finished_at: "2026-11-18T12:00:01.000Z",
  due_at: null,
  reason: "",
  is_scope: false,
  children: 0,
  done: 0,
  failed: 0,
  worker: [],
  task_id: "",
  waits_since: null,
  job_id: null,
  ...more,
});
test("two runs differ where state, attempts or output differ; time alone is not a difference", () => {
  const found = pairs(
    [step("a"), step("b"), step("c")],
    [
      step("a"),
      step("b", { status: "failed", attempts: 3, output: null }),
      step("d"),
      step("c", { finished_at: "2026-11-18T12:00:04.000Z" }),
    ],
  );
  assert.deepEqual(
    found.filter((one) => one.isDifferent).map((one) => one.path),
    ["b", "d"],
  );
  assert.deepEqual(found.find((one) => one.path === "c")!.what, ["4.0× as long"]);
  assert.deepEqual(found.find((one) => one.path === "b")!.what.slice(0, 2), [
    "completed → failed",
    "1 → 3 tries",
  ]);
});
test("a stream is cut into its frames wherever the network cuts it", () => {
  const first = frames('event: x\nid: 4\ndata: {"a":1}\n\nid: 5\nda');
  assert.deepEqual(first.frames, [{ id: "4", data: '{"a":1}' }]);
  assert.deepEqual(frames(`${first.rest}ta: {}\n\n`).frames, [{ id: "5", data: "{}" }]);
});
test("an address leads to its screen with its parts decoded", () => {
  assert.deepEqual(matched("/ui/runs/:id", "/ui/runs/a%2Fb"), { id: "a/b" });
  assert.equal(matched("/ui/runs/:id", "/ui/runs"), null);
  assert.deepEqual(matched("", "/"), {});
  assert.equal(matched("/ui/runs/:id", "/ui/runs/%zz"), null);
});
test("only addresses of the web and of this server become links", () => {
  assert.equal(safeHref("javascript:alert(1)"), null);
  assert.equal(safeHref("data:text/html,x"), null);
  assert.equal(safeHref("//evil.example"), null);
  assert.equal(safeHref("/\\evil.example"), null);
  assert.equal(safeHref("https://a.example/b"), "https://a.example/b");
  assert.equal(safeHref("/ui/runs"), "/ui/runs");
});
test("spans are short and round", () => {
  assert.deepEqual([5, 450, 4100, 61_000, 3_600_000, 7_500_000, 90_000_000].map(span), [
    "5 ms",
    "0.5 s",
    "4.1 s",
    "61 s",
    "1 h",
    "2 h 5 m",
    "1 d 1 h",
  ]);
  assert.equal(roughly(82_800_000), "23 h");
  assert.equal(ago(0, 1000), "just now");
  assert.equal(ago(0, 120_000), "2 m ago");
  assert.match(when(Date.now() + 86_400_000, Date.now()), /^tomorrow \d\d:\d\d$/);
});
test("commands quote what a shell would read", () => {
  const made = commands("http://127.0.0.1:8070", true).start("a b", { text: "it's $HOME" });
  assert.ok(made.cli.includes(`'a b'`));
  assert.ok(made.cli.includes(`it'\\''s $HOME`));
  assert.ok(made.curl.includes("authorization: Bearer $HOLDFAST_API_KEY"));
  assert.ok(made.python.includes('"a b"'));
});
test("failures of one workflow are one thing that needs a person, and nothing is one green sentence", () => {
  const line = (id: string) => ({
    run_id: id,
    workflow: "order",
    version: "v",
    status: "failed" as const,
    labels: {},
    created_at: "",
    finished_at: "",
    rerun_of: null,
    parent_job_id: null,
    error: { kind: "x", message: "no", path: "charge" },
  });
  const none = {
    failures: [],
    waits: null,
    letters: [],
    folders: [],
    schedules: [],
    ready: { ready: true, reasons: [] },
    services: [],
  };
  assert.deepEqual(needsOf(none, 0), []);
  const [need] = needsOf(
    {
      ...none,
      failures: [line("1"), line("2")],
      services: [
        {
          name: "sum",
          workers: 0,
          waiting: 12,
          oldest_waiting_at: null,
          no_worker_since: null,
          start_one: null,
        },
      ],
    },
    0,
  );
  assert.match(need!.text, /^order: 2 failures in 24 h, the latest at charge: no$/);
  assert.deepEqual(need!.rerun, { count: 2, filter: { ids: ["1", "2"] } });
  assert.deepEqual(needsOf({ ...none, failures: [{ ...line("1"), rerun_as: "3" }] }, 0), []);
  const [many] = needsOf({ ...none, failures: [line("1"), line("2")], isPart: true, since: "then" }, 0);
  assert.match(many!.text, /^order: at least 2 failures/);
  const usual = new Map([["order", usualOf([0, 2, 4, 41].map((failed) => ({ started: failed, failed })))]]);
  const [told] = needsOf({ ...none, failures: [line("1"), line("2")], isPart: true, usual }, 0);
  assert.match(told!.text, /^order: 41 failures in 24 h \(usually 3\), the latest at charge: no$/);
  assert.deepEqual(many!.rerun, {
    count: "all",
    filter: { workflow: "order", status: ["failed"], from: "then" },
  });
  const [stopped] = needsOf({ ...none, interrupted: [{ ...line("1"), status: "interrupted" }] }, 0);
  assert.match(stopped!.text, /^order: 1 run was interrupted/);
  assert.equal(stopped!.to, "/ui/runs/1");
});
test("the list is copied with its filter, and a rerun with what it repeats", () => {
  const made = commands("http://h", false),
    filter = { ...EMPTY, workflow: "a b", status: ["failed" as const], labels: ["team=x"] },
    list = made.list(filter, "?workflow=a+b", "2026-11-18T00:00:00.000Z");
  assert.equal(
    list.cli,
    "holdfast runs list --workflow 'a b' --status failed --label team=x --server http://h",
  );
  assert.match(
    list.python,
    /server\.runs\(workflow="a b", status=\["failed"\], label=\["team=x"\], created_from="2026-11-18T00:00:00\.000Z"\)/,
  );
  const again = made.rerun("r", "failed:each");
  assert.deepEqual(
    [again.cli, /-d '(.*)'/.exec(again.curl)![1]],
    ["holdfast runs rerun r --failed --from each --server http://h", '{"failed":true,"paths":["each"]}'],
  );
  assert.match(again.python, /server\.rerun\("r", failed=True, paths=\["each"\]\)/);
});
test("values are copied as Python writes them", () => {
  assert.match(
    commands("http://h", false).signal("r", "paid", { ok: true, by: null, n: [1] }).python,
    /server\.signal\("r", "paid", \{"ok": True, "by": None, "n": \[1\]\}\)/,
  );
});

test("large values differ by their beginnings and lengths, and are never said to be the same", () => {
  const cut = (text: string, bytes: number) => ({ value: null, head: { text, bytes } });
  assert.equal(differ(cut("[1,", 9000), cut("[1,", 9001)), true);
  assert.equal(differ(cut("[1,", 9000), cut("[2,", 9000)), true);
  assert.equal(differ(cut("[1,", 9000), { value: null, head: undefined }), true);
  assert.equal(isCut(cut("[1,", 9000), { value: 1, head: undefined }), true);
  assert.equal(
    differ({ value: { a: 1, b: 2 }, head: undefined }, { value: { b: 2, a: 1 }, head: undefined }),
    false,
  );
});
