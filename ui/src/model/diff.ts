// How two runs, two values and two texts differ. Pure.
import type { Head, Json, Step } from "../api/types.ts";
import { at } from "../lib/time.ts";

export type Change = {
  pointer: string;
  kind: "added" | "removed" | "changed";
  a: Json | undefined;
  b: Json | undefined;
};
const MOST = 500;

const escaped = (key: string): string => key.replaceAll("~", "~0").replaceAll("/", "~1");
const isMap = (value: Json | undefined): value is { [key: string]: Json } =>
  value !== null && typeof value === "object" && !Array.isArray(value);

// What differs between two values, as JSON pointers; at most 500.
export const changes = (
  a: Json | undefined,
  b: Json | undefined,
  pointer = "",
  found: Change[] = [],
): Change[] => {
  if (found.length >= MOST || a === b) return found;
  if (a === undefined) found.push({ pointer, kind: "added", a, b });
  else if (b === undefined) found.push({ pointer, kind: "removed", a, b });
  else if (Array.isArray(a) && Array.isArray(b))
    for (let i = 0; i < Math.max(a.length, b.length); i += 1) changes(a[i], b[i], `${pointer}/${i}`, found);
  else if (isMap(a) && isMap(b))
    for (const key of new Set([...Object.keys(a), ...Object.keys(b)]))
      changes(a[key], b[key], `${pointer}/${escaped(key)}`, found);
  else found.push({ pointer, kind: "changed", a, b });
  return found;
};

// Of a large value only the beginning is known, and its length.
export type Known = { value: Json | undefined; head: Head | undefined };
export const isCut = (a: Known, b: Known): boolean => Boolean(a.head || b.head);
export const differ = (a: Known, b: Known): boolean =>
  isCut(a, b)
    ? a.head?.text !== b.head?.text || a.head?.bytes !== b.head?.bytes
    : changes(a.value, b.value).length > 0;

export type Pair = {
  path: string;
  a: Step | null;
  b: Step | null;
  isDifferent: boolean;
  what: string[];
  ratio: number | null;
};

const took = (step: Step | null): number | null =>
  step?.finished_at ? at(step.finished_at) - at(step.started_at) : null;
const times = (ratio: number): string => `${ratio < 10 ? ratio.toFixed(1) : Math.round(ratio)}×`;
const SLOWER = 1.5,
  WORTH_MS = 100;

// The steps of two runs by path, in the order of b and then what only a has.
export const pairs = (a: Step[], b: Step[]): Pair[] => {
  const left = new Map(a.map((step) => [step.path, step])),
    right = new Map(b.map((step) => [step.path, step]));
  return [...new Set([...right.keys(), ...left.keys()])].map((path) => {
    const one = left.get(path) ?? null,
      two = right.get(path) ?? null,
      what: string[] = [];
    const before = took(one),
      after = took(two),
      ratio = before !== null && after !== null && before > 0 ? after / before : null;
    if (!one) what.push("only in the second run");
    else if (!two) what.push("only in the first run");
    else {
      if (one.status !== two.status) what.push(`${one.status} → ${two.status}`);
      if (one.attempts !== two.attempts) what.push(`${one.attempts} → ${two.attempts} tries`);
      if (one.error?.message !== two.error?.message && two.error) what.push("other error");
      if (differ(outputOf(one), outputOf(two))) what.push("other output");
      if (
        ratio !== null &&
        one.status === "completed" &&
        two.status === "completed" &&
        Math.abs(after! - before!) > WORTH_MS &&
        (ratio >= SLOWER || ratio <= 1 / SLOWER)
      )
        what.push(ratio > 1 ? `${times(ratio)} as long` : `${times(1 / ratio)} as fast`);
    }
    return { path, a: one, b: two, isDifferent: what.some((text) => !text.includes("×")), what, ratio };
  });
};
export const outputOf = (step: Step | null): Known => ({
  value: step?.output ?? undefined,
  head: step?.heads?.output,
});
