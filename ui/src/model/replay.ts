// Time travel: what a run looked like at a moment. A filter over intervals, so that moving asks the server nothing.
import type { Status, StepState, Strip, Timeline, TimelineRow } from "../api/types.ts";
import { at } from "../lib/time.ts";

export type Moment = { rows: Map<string, StepState | null>; status: Status };
export type Span = {
  kind: "try" | "wait" | "backoff";
  n: number;
  from: number;
  to: number | null;
  outcome: string;
};
export type Row = {
  path: string;
  kind: string;
  status: StepState;
  from: number;
  to: number | null;
  depth: number;
  spans: Span[];
  children: number;
  done: number;
  failed: number;
  strip: (Omit<Strip, "from"> & { from: number }) | null;
};
export type Course = { from: number; to: number; status: Status; seq: number; rows: Row[]; more: number };

const num = (text: string | null): number | null => (text === null ? null : at(text));

export const courseOf = (timeline: Timeline): Course => ({
  from: at(timeline.from),
  to: at(timeline.to),
  status: timeline.status,
  seq: timeline.seq,
  more: timeline.more,
  rows: timeline.rows.map((row: TimelineRow) => ({
    ...row,
    from: at(row.from),
    to: num(row.to),
    strip: row.strip && { ...row.strip, from: at(row.strip.from) },
    spans: row.spans.map((one) => ({ ...one, from: at(one.from), to: num(one.to) })),
  })),
});

// The state of a step at t; null if it was not reached.
export const stateAt = (row: Row, t: number): StepState | null => {
  if (t < row.from) return null;
  if (row.to !== null && t >= row.to) return row.status;
  for (let i = row.spans.length - 1; i >= 0; i -= 1) {
    const one = row.spans[i]!;
    if (t >= one.from && (one.to === null || t < one.to))
      return one.kind === "try" ? "running" : one.kind === "wait" ? "waiting" : "retrying";
  }
  return row.to === null && row.spans.length === 0 ? row.status : row.spans.length ? "ready" : "running";
};

// Of a large fan-out: how many items were done and failed at t.
export const countsAt = (row: Row, t: number): { done: number; failed: number } => {
  const strip = row.strip;
  if (!strip) return { done: row.done, failed: row.failed };
  const last = Math.floor((t - strip.from) / strip.bucket_ms);
  let done = 0,
    failed = 0;
  for (let i = 0; i <= last && i < strip.completed.length; i += 1) {
    done += (strip.completed[i] ?? 0) + (strip.failed[i] ?? 0) + (strip.cancelled[i] ?? 0);
    failed += strip.failed[i] ?? 0;
  }
  return { done, failed };
};

export const momentOf = (course: Course, t: number): Moment => {
  const rows = new Map<string, StepState | null>();
  let isWorking = false,
    isWaiting = false;
  for (const row of course.rows) {
    const state = stateAt(row, t);
    rows.set(row.path, state);
    if (row.spans.length > 0 || row.strip) {
      if (state === "running" || state === "ready") isWorking = true;
      if (state === "waiting" || state === "retrying") isWaiting = true;
    }
  }
  const isEnd = t >= course.to && !["pending", "running", "waiting", "cancelling"].includes(course.status);
  return {
    rows,
    status: isEnd
      ? course.status
      : t >= course.to
        ? course.status
        : isWorking
          ? "running"
          : isWaiting
            ? "waiting"
            : "running",
  };
};

// The times at which something happened, each once, in order.
export const facts = (course: Course): number[] => {
  const found = new Set<number>([course.from]);
  for (const row of course.rows) {
    found.add(row.from);
    if (row.to !== null) found.add(row.to);
    for (const one of row.spans) {
      found.add(one.from);
      if (one.to !== null) found.add(one.to);
    }
    if (row.strip)
      for (let i = 0; i < row.strip.started.length; i += 1)
        found.add(row.strip.from + (i + 1) * row.strip.bucket_ms);
  }
  if (!["pending", "running", "waiting", "cancelling"].includes(course.status)) found.add(course.to);
  return [...found].filter((t) => t >= course.from && t <= course.to).sort((a, b) => a - b);
};

export const nextFact = (all: number[], t: number): number | null => all.find((one) => one > t) ?? null;
export const factBefore = (all: number[], t: number): number | null => all.findLast((one) => one < t) ?? null;

// Find the row of the journal that was newest at t, with few reads of single rows.
export const seqAt = async (
  t: number,
  last: number,
  timeOf: (seq: number) => Promise<number>,
): Promise<number> => {
  let low = 1,
    high = Math.max(1, last);
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if ((await timeOf(middle)) <= t) low = middle;
    else high = middle - 1;
  }
  return low;
};
