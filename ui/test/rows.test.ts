// How the rows of a live list grow: by pages, by what is new, and by a search that finds little.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { RunLine } from "../src/api/types.ts";
import { extended, merged } from "../src/model/rows.ts";
import type { Rows } from "../src/model/rows.ts";

const line = (n: number): RunLine =>
  ({ run_id: `r${n}`, created_at: `2026-11-19T04:00:${String(n).padStart(2, "0")}Z` }) as RunLine;
const rows = (numbers: number[], cursor: string | null = null): Rows => ({
  items: numbers.map(line),
  cursor,
});
const ids = (found: Rows): string[] => found.items.map((one) => one.run_id);

test("a search that found nothing on its first page does not begin again when the page is read again", () => {
  assert.deepEqual(merged(rows([], "page 7"), rows([], "page 2"), true).rows, rows([], "page 7"));
});
test("what a search found further down stays when its first page is read again", () => {
  assert.deepEqual(merged(rows([3], "page 7"), rows([], "page 2"), true).rows, rows([3], "page 7"));
  assert.deepEqual(merged(rows([3], "page 7"), rows([9], "page 2"), false).rows, rows([3], "page 7"));
});
test("new rows enter at the top, and wait behind the pill if the pointer is over the list", () => {
  const has = rows([3, 2, 1]),
    found = rows([4, 3, 2, 1]);
  assert.deepEqual(ids(merged(has, found, true).rows), ["r4", "r3", "r2", "r1"]);
  const behind = merged(has, found, false);
  assert.deepEqual(ids(behind.rows), ["r3", "r2", "r1"]);
  assert.deepEqual(behind.fresh, { items: [line(4)], page: null });
});
test("a row that does not match any more leaves the list, one that matches now takes its place, and those beneath stay", () => {
  assert.deepEqual(ids(merged(rows([3, 2, 1]), rows([3, 1]), true).rows), ["r3", "r1"]);
  assert.deepEqual(ids(merged(rows([5, 4, 2, 1], "c"), rows([5, 3], "b"), true).rows), [
    "r5",
    "r3",
    "r2",
    "r1",
  ]);
});
test("a page of new rows alone takes the place of the list, because there may be a gap", () => {
  assert.deepEqual(merged(rows([1]), rows([9, 8], "c"), true).rows, rows([9, 8], "c"));
  assert.deepEqual(merged(rows([1]), rows([9, 8], "c"), false).fresh.page, rows([9, 8], "c"));
});
test("the next page is joined without doubles", () => {
  assert.deepEqual(extended(rows([3, 2], "a"), rows([2, 1])), rows([3, 2, 1]));
});
