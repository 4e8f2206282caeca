import assert from "node:assert/strict";
import { test } from "node:test";
import { instant, parse, queryOf, textOf } from "../src/model/filter.ts";

const NOW = Date.parse("2026-11-18T12:00:00.000Z");
test("a filter is the same after it was written and read", () => {
  for (const text of [
    "workflow:fan status:failed,cancelled label:team=x after:1d",
    'workflow:"two words" label:a label:b=c',
    "id:01a1e49a",
    "number:3 before:2026-11-18",
  ])
    assert.equal(textOf(parse(textOf(parse(text).filter)).filter), textOf(parse(text).filter));
});
test("a bare word is a workflow, a state or the beginning of an id", () => {
  assert.equal(parse("order").filter.workflow, "order");
  assert.deepEqual(parse("failed").filter.status, ["failed"]);
  assert.equal(parse("01a1e49a").filter.id, "01a1e49a");
});
test("open stands for the states that are not the end", () => {
  assert.deepEqual(parse("status:open").filter.status, ["pending", "running", "waiting", "cancelling"]);
});
test("a state or a filter that does not exist is said", () => {
  assert.match(parse("status:broken").problems[0]!, /no state broken/);
  assert.match(parse("color:red").problems[0]!, /no filter color/);
  assert.match(parse("after:soon").problems[0]!, /not a time/);
});
test("a name that is still being typed is no problem", () => {
  assert.deepEqual(parse("workflow:").problems, []);
});
test("relative times are counted back from now", () => {
  assert.equal(instant("2h", NOW), NOW - 7_200_000);
  assert.equal(instant("2026-11-18T11:00:00Z", NOW), NOW - 3_600_000);
  assert.equal(instant("x", NOW), null);
});
test("an id excludes the other filters", () => {
  assert.deepEqual(queryOf(parse("id:01a1 workflow:x").filter, NOW), { id: "01a1" });
});
test("several labels and states go into the query", () => {
  const query = queryOf(parse("status:failed,running label:a=1 label:b after:1h").filter, NOW);
  assert.equal(query["status"], "failed,running");
  assert.deepEqual(query["label"], ["a=1", "b"]);
  assert.equal(query["from"], "2026-11-18T11:00:00.000Z");
});
