// Round times beneath the pulse, in a zone whose clocks change.
process.env["TZ"] = "Europe/Berlin";
import assert from "node:assert/strict";
import { test } from "node:test";
import { roundTimes, tickTime } from "../src/lib/time.ts";

const HOUR = 3_600_000;

test("ticks are round by the clock here, also on the day that has 25 hours", () => {
  const from = Date.parse("2026-10-25T00:30:00+02:00");
  assert.deepEqual(roundTimes(from, from + 24 * HOUR, 8).map(tickTime), [
    "03:00",
    "06:00",
    "09:00",
    "12:00",
    "15:00",
    "18:00",
    "21:00",
  ]);
});
test("midnight is a date, and months of days are so, too", () => {
  const from = Date.parse("2026-11-18T20:00:00+01:00");
  assert.deepEqual(roundTimes(from, from + 12 * HOUR, 4).map(tickTime), [
    "21:00",
    "Nov 19",
    "03:00",
    "06:00",
  ]);
  assert.equal(roundTimes(from, from + 90 * 24 * HOUR, 8).length, 6);
});
test("no time is given more often than asked, whatever the span", () => {
  for (const span of [1000, HOUR, 30 * HOUR, 400 * 24 * HOUR, 4000 * 24 * HOUR])
    assert.ok(roundTimes(0, span, 8).length <= 9);
});
