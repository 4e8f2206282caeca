// The plan of a run with the states of its steps: what the graph shows.
import type { Plan, PlanBlock, PlanNode, StepState } from "../api/types.ts";
import { span } from "../lib/time.ts";
import { patternOf } from "./paths.ts";
import type { Course, Row } from "./replay.ts";
import { countsAt, stateAt } from "./replay.ts";

// All instances of one step of the definition: a body step of a loop has one for each item.
export type Group = {
  pattern: string;
  status: StepState | null;
  count: number;
  done: number;
  failed: number;
  first: string | null;
  took: number | null;
  tries: number;
};

// What needs attention stands for the whole group.
const WORST: StepState[] = ["failed", "retrying", "running", "waiting", "ready", "cancelled", "completed"];
const worse = (a: StepState | null, b: StepState): StepState =>
  a === null || WORST.indexOf(b) < WORST.indexOf(a) ? b : a;

export const groups = (course: Course, t: number | null): Map<string, Group> => {
  const found = new Map<string, Group>();
  for (const row of course.rows) {
    const state = t === null ? row.status : stateAt(row, t);
    if (state === null) continue;
    const pattern = patternOf(row.path);
    const group = found.get(pattern) ?? {
      pattern,
      status: null,
      count: 0,
      done: 0,
      failed: 0,
      first: null,
      took: null,
      tries: 0,
    };
    const isWorse = group.status === null || WORST.indexOf(state) < WORST.indexOf(group.status);
    group.status = worse(group.status, state);
    if (isWorse) group.first = row.path;
    group.count += 1;
    group.done += state === "completed" || state === "failed" || state === "cancelled" ? 1 : 0;
    group.failed += state === "failed" ? 1 : 0;
    group.tries = Math.max(
      group.tries,
      ...row.spans.map((one) => (one.kind === "try" && (t === null || one.from <= t) ? one.n : 0)),
      0,
    );
    if (row.to !== null && (t === null || t >= row.to))
      group.took = Math.max(group.took ?? 0, row.to - row.from);
    found.set(pattern, group);
  }
  return found;
};

// The fan-outs of which some items failed, without those inside another one.
export const partlyFailed = (course: Course): Row[] => {
  const found: Row[] = [];
  for (const row of course.rows)
    if (row.failed > 0 && row.children > 0 && !found.some((one) => row.path.startsWith(`${one.path}[`)))
      found.push(row);
  return found;
};

// What the step of a path calls, by the definition.
export const calledAt = (plan: Plan | null, path: string): string => {
  let nodes = plan?.block.nodes ?? [],
    found: PlanNode | undefined;
  for (const name of patternOf(path).split("\u0000")) {
    found = nodes.find((one) => one.name === name);
    nodes = found?.blocks.flatMap((one) => one.nodes) ?? [];
  }
  return found?.does ?? "";
};

export type Cell = {
  key: string;
  name: string;
  kind: string;
  does: string;
  line: number;
  status: StepState | null;
  group: Group | null;
  blocks: { of: string; cells: Cell[]; edges: PlanBlock["edges"] }[];
  items: { total: number; done: number; failed: number } | null;
};

// Scopes with many children stay folded: they are one cell.
const FOLD_MAX = 50;

export const cellsOf = (
  plan: Plan,
  course: Course | null,
  t: number | null,
): { of: string; cells: Cell[]; edges: PlanBlock["edges"] } => {
  const states = course ? groups(course, t) : new Map<string, Group>();
  const scopes = new Map<string, Row>();
  for (const row of course?.rows ?? [])
    if (row.children > 0 && !scopes.has(patternOf(row.path))) scopes.set(patternOf(row.path), row);
  const cell = (node: PlanNode, prefix: string): Cell => {
    const key = prefix ? `${prefix}\u0000${node.name}` : node.name,
      group = states.get(key) ?? null,
      scope = scopes.get(key);
    const counts = scope ? (t === null ? scope : countsAt(scope, t)) : null;
    const isFolded = (scope?.children ?? 0) > FOLD_MAX;
    return {
      key,
      name: node.name,
      kind: node.kind,
      does:
        node.kind === "timer"
          ? node.does.replace(/^(\d+)( ms)?$/, (_, ms: string) => span(Number(ms)))
          : node.does,
      line: node.line,
      status: group?.status ?? null,
      group,
      items:
        scope && counts && node.kind !== "branch"
          ? { total: scope.children, done: counts.done, failed: counts.failed }
          : null,
      blocks: isFolded
        ? []
        : node.blocks.map((block) => ({
            of: block.of,
            edges: block.edges,
            cells: block.nodes.map((inner) => cell(inner, key)),
          })),
    };
  };
  return {
    of: plan.block.of,
    edges: plan.block.edges,
    cells: plan.block.nodes.map((node) => cell(node, "")),
  };
};
