// What a run was doing at a moment that has passed, as one sentence. Pure.
import type { StepState } from "../api/types.ts";
import { counted, grouped, span } from "../lib/time.ts";
import type { Course, Row } from "./replay.ts";
import { countsAt, momentOf } from "./replay.ts";
import { waitsFor } from "./words.ts";

// What says most about a moment comes first.
const RANK: (StepState | null)[] = ["running", "retrying", "waiting", "ready"];

const doing = (row: Row, state: StepState, t: number): string => {
  const tries = row.spans.filter((one) => one.kind === "try" && one.from <= t);
  if (row.strip) {
    const { done, failed } = countsAt(row, t);
    return `${row.path} was running, ${grouped(done)} of ${counted(row.children, "item")} done${failed ? `, ${grouped(failed)} failed` : ""}`;
  }
  switch (state) {
    case "running":
      return `${row.path} was running${tries.length > 1 ? `, attempt ${tries.length}` : ""}`;
    case "retrying":
      return `${row.path} had failed ${tries.length === 1 ? "once" : `${tries.length} times`} and waited for its next attempt`;
    case "waiting":
      return `${row.path} waited for ${waitsFor(row.spans.find((one) => one.kind === "wait" && one.from <= t && (one.to === null || one.to > t))?.outcome ?? "")}`;
    default:
      return `${row.path} was about to start`;
  }
};

export const pastSentence = (course: Course, t: number): string => {
  const { rows } = momentOf(course, t),
    began = t - course.from < 1 ? "At its start" : `${span(t - course.from)} after its start`;
  const open = course.rows.filter(
    (row) => (row.spans.length > 0 || row.strip) && RANK.includes(rows.get(row.path) ?? null),
  );
  if (open.length === 0) return `${began}, no step was open`;
  const rank = (row: Row): number => RANK.indexOf(rows.get(row.path)!),
    first = open.reduce((best, row) => (rank(row) < rank(best) ? row : best));
  return `${began}, ${doing(first, rows.get(first.path)!, t)}${open.length > 1 ? `, and ${counted(open.length - 1, "more step")} ${open.length === 2 ? "was" : "were"} open` : ""}`;
};
