// Sentences: why a run is where it is, and what a person can do about it. Pure; tested with every reason.
import type { Err, Explanation, Reason, Run, RunLine, Status, Waiting } from "../api/types.ts";
import { at, ago, counted, grouped, roughly, span, when } from "../lib/time.ts";
import { cut, oneLine } from "../lib/text.ts";

export type Act =
  "answer" | "signal" | "resume" | "cancel" | "rerun" | "rerun_failed" | "compare" | "worker_help";
export type Sentence = { text: string; hint: string; acts: Act[]; path: string };

export const STATES: Status[] = [
  "pending",
  "running",
  "waiting",
  "cancelling",
  "completed",
  "failed",
  "cancelled",
  "interrupted",
];
export const OPEN: ReadonlySet<string> = new Set(["pending", "running", "waiting", "cancelling"]);
export const isOpen = (status: string): boolean => OPEN.has(status);

const left = (until: string | null, now: number): string =>
  until === null ? "" : at(until) > now ? `, ${roughly(at(until) - now)} left` : ", due now";
const till = (until: string | null, now: number): string =>
  until === null ? "" : `, until ${when(at(until), now)}`;
const quoted = (text: string): string => `“${cut(oneLine(text), 80)}”`;

// What a step of this kind of wait waits for, as the object of "waits for …".
export const waitsFor = (kind: string, name = "", prompt = ""): string => {
  switch (kind) {
    case "approval":
      return prompt ? `approval ${quoted(prompt)}` : "an approval";
    case "callback":
      return name ? `the result of task ${name}` : "a callback";
    case "signal":
      return name ? `signal ${name}` : "a signal";
    case "condition":
      return name ? `signal ${name} to make its condition true` : "a signal that makes its condition true";
    case "timer":
      return "a timer";
    case "retry":
      return "its next attempt";
    case "poll":
      return "its next poll";
    case "key":
      return "the step that holds its idempotency key";
    case "no_tool":
    case "tool":
      return "a process that has its tool";
    case "no_worker":
      return "a worker that serves it";
    case "slot":
      return "a free slot";
    case "suspect":
      return "its turn to run alone, after crashes";
    default:
      return kind.replaceAll("_", " ");
  }
};

// What a waiting run lacks, as the server says it: `no_worker: sum, no_tool: add`.
export const lacking = (reason: string | null | undefined): { service: string; text: string } => {
  const found = (reason ?? "").split(", ").map((one) => {
    const i = one.indexOf(": ");
    return { kind: one.slice(0, i), name: one.slice(i + 2) };
  });
  const text = found
    .filter((one) => one.name && ["no_worker", "no_tool"].includes(one.kind))
    .map((one) =>
      one.kind === "no_worker" ? `no worker serves ${one.name}` : `no process has the tool ${one.name}`,
    )
    .join(", and ");
  return {
    service: found.find((one) => one.kind === "no_worker")?.name ?? "",
    text: text || (reason ?? "").replaceAll("_", " "),
  };
};

// What the step of a path calls.
type Calls = (path: string) => string;

// The reason of an open step, as one sentence.
const reasonText = (reason: Reason, run: Pick<Run, "waits">, now: number, calls: Calls): string => {
  const here = reason.path ? ` at ${reason.path}` : "";
  const wait = run.waits.find((one) => one.path === reason.path);
  const prompt = typeof wait?.detail["prompt"] === "string" ? wait.detail["prompt"] : "";
  const since = roughly(Math.max(0, now - at(reason.since)));
  switch (reason.reason) {
    case "approval":
      return `Waiting ${since}${here} for ${waitsFor("approval", "", prompt)}${till(reason.until, now)}`;
    case "callback":
      return `Waiting ${since}${here} for ${waitsFor("callback", wait?.name)}${till(reason.until, now)}`;
    case "signal":
    case "condition":
      return `Waiting ${since}${here} for ${signalText(reason, wait?.detail)}${till(reason.until, now)}`;
    case "timer":
      return reason.until
        ? `Sleeping${here} until ${when(at(reason.until), now)}${left(reason.until, now)}`
        : `Sleeping${here}`;
    case "retry":
      return `An attempt failed${here}; the next one starts ${reason.until && at(reason.until) > now ? `in ${roughly(at(reason.until) - now)}` : "now"}`;
    case "poll":
      return `Polling${here}${reason.until && at(reason.until) > now ? `; the next call is in ${roughly(at(reason.until) - now)}` : ""}`;
    case "key":
      return `Waiting${here} for another step that holds the same idempotency key`;
    case "no_tool":
      return `No process here has the tool${reason.path ? ` of ${reason.path}` : ""}`;
    case "no_worker": {
      const service = calls(reason.path);
      return `No worker serves ${service || reason.path || "this step"}${service && reason.path ? `, which ${reason.path} needs` : ""}; it has waited ${since}`;
    }
    case "offered":
      return `${reason.path || "A step"} has been offered to workers for ${since}; none has fetched it yet`;
    case "at_worker":
      return `Running${here} for ${since}, on a worker`;
    case "at_work":
      return `Running${here} for ${since}${reason.until ? `; times out ${when(at(reason.until), now)}` : ""}`;
    case "stopping":
      return `${reason.path || "A step"} was asked to stop and has not answered yet`;
    case "slot":
      return `Waiting${here} for a free slot`;
    case "suspect":
      return `Waiting${here} to run alone, because processes ended while it was running`;
    case "lost":
      return `The process ended while ${reason.path || "a step"} was running; it goes on when the run continues`;
    case "not_driven":
      return "No process drives this run";
    case "set_aside":
      return "Set aside, because it crashed the process or met a bug";
    case "store_unavailable":
      return "The database cannot be written; the server keeps trying";
    case "cancelling":
      return "Cancelling; steps that are running have a moment to stop";
    case "failed":
      return "Failing; steps that are running have a moment to stop";
    default:
      return `Waiting${here}: ${reason.reason.replaceAll("_", " ")}`;
  }
};

const signalText = (reason: Reason, detail: Record<string, unknown> | undefined): string => {
  const names = detail?.["names"],
    key = detail?.["signal_key"];
  if (Array.isArray(names) && names.length)
    return `signal ${names.map(String).join(detail?.["mode"] === "all" ? " and " : " or ")}`;
  if (typeof key === "string" && key) return `signal ${key}`;
  return waitsFor(reason.reason);
};

const ACTS: Record<string, Act[]> = {
  approval: ["answer"],
  callback: ["resume"],
  signal: ["signal"],
  condition: ["signal"],
  no_worker: ["worker_help"],
  offered: ["worker_help"],
};
// What a person can unblock comes first, then what is stuck, then what goes on by itself.
const RANK = [
  "set_aside",
  "store_unavailable",
  "not_driven",
  "approval",
  "no_worker",
  "no_tool",
  "signal",
  "condition",
  "callback",
  "suspect",
  "key",
  "lost",
  "retry",
  "stopping",
  "cancelling",
  "failed",
  "offered",
  "at_worker",
  "at_work",
  "poll",
  "slot",
  "timer",
];
const rank = (reason: string): number => {
  const found = RANK.indexOf(reason);
  return found < 0 ? RANK.length : found;
};

export const ranked = (reasons: Reason[]): Reason[] =>
  [...reasons].sort((a, b) => rank(a.reason) - rank(b.reason));

export const errorText = (
  error: Err | { kind: string; message: string; path: string } | null | undefined,
  most = 200,
): string => (error ? `${error.path ? `${error.path}: ` : ""}${cut(oneLine(error.message), most)}` : "");

// A fan-out of which some items failed.
type Partly = { path: string; failed: number; children: number };

const partlyText = (scopes: Partly[]): string => {
  const failed = scopes.reduce((sum, one) => sum + one.failed, 0),
    all = scopes.reduce((sum, one) => sum + one.children, 0);
  return `${grouped(failed)} of ${counted(all, "item")} failed in ${scopes[0]!.path}${scopes.length > 1 ? ` and ${counted(scopes.length - 1, "more step")}` : ""}`;
};

// Why the whole run stands where it stands. A run that completed although items failed says so.
export const sentence = (
  run: Run,
  explained: Explanation | null,
  now: number,
  calls: Calls = () => "",
  partly: Partly[] = [],
): Sentence => {
  const none = { hint: "", acts: [] as Act[], path: "" };
  if (run.set_aside && isOpen(run.status))
    return {
      ...none,
      text: `Set aside: ${oneLine(run.set_aside.reason)}`,
      hint: run.set_aside.retry,
      acts: ["cancel"],
    };
  const took = run.finished_at ? span(at(run.finished_at) - at(run.started_at ?? run.created_at)) : "";
  switch (run.status) {
    case "completed":
      return {
        ...none,
        text: `Completed in ${took}, ${ago(at(run.finished_at), now)}${partly.length ? `; ${partlyText(partly)}` : ""}`,
        acts: partly.length ? ["rerun_failed", "compare"] : ["rerun", "compare"],
        path: partly[0]?.path ?? "",
      };
    case "failed": {
      const error = run.error,
        tries = error && error.attempt > 1 ? ` after ${counted(error.attempt, "attempt")}` : "";
      const where = error?.path ? ` at ${error.path}` : "";
      return {
        ...none,
        text: `Failed${where}${tries}: ${error ? `${cut(oneLine(error.message), 300)}` : "no reason was recorded"}`,
        hint: error && error.kind !== "error" ? `Kind of error: ${error.kind}` : "",
        acts: ["rerun_failed", "compare"],
        path: error?.path ?? "",
      };
    }
    case "cancelled":
      return {
        ...none,
        text: `Cancelled after ${took}${run.error ? `: ${cut(oneLine(run.error.message), 200)}` : ""}`,
        acts: ["rerun", "compare"],
      };
    case "interrupted":
      return {
        ...none,
        text: `Interrupted: its process ended and the workflow says on_restart: interrupt`,
        acts: ["rerun", "compare"],
      };
    default:
  }
  const reasons = ranked(explained?.reasons ?? []),
    first = reasons[0];
  if (!first)
    return {
      ...none,
      text:
        run.status === "pending"
          ? "Waiting for a process to start it"
          : run.status === "cancelling"
            ? "Cancelling"
            : run.status === "waiting"
              ? "Waiting"
              : "Running",
      acts: ["cancel"],
    };
  const others = reasons.filter((one) => one !== first).length + (explained?.more ?? 0);
  const text = `${reasonText(first, run, now, calls)}${others ? `, and ${counted(others, "more open step")}` : ""}`;
  return { text, hint: first.unblocks, acts: [...(ACTS[first.reason] ?? []), "cancel"], path: first.path };
};

// The reason on a row of a list; shorter.
export const rowReason = (line: RunLine, now: number): { text: string; act: Act | null } => {
  if (line.error && line.status !== "completed") return { text: errorText(line.error), act: null };
  const wait = line.wait;
  if (line.reason && isOpen(line.status)) {
    const { service, text } = lacking(line.reason);
    return { text, act: service ? "worker_help" : null };
  }
  if (wait && isOpen(line.status)) {
    const act: Act | null =
      wait.kind === "approval"
        ? "answer"
        : wait.kind === "signal" || wait.kind === "condition"
          ? "signal"
          : wait.kind === "callback"
            ? "resume"
            : null;
    const what = waitsFor(wait.kind, wait.name, wait.prompt),
      where = wait.path ? `${wait.path}: ` : "";
    return { text: `${where}${what}${left(wait.until, now)}`, act };
  }
  if (line.status === "pending") return { text: "waits for a process to start it", act: null };
  if (line.status === "cancelling")
    return { text: "steps that are running have a moment to stop", act: null };
  if (line.rerun_of) return { text: `rerun of ${line.rerun_of.slice(0, 8)}…`, act: null };
  return { text: "", act: null };
};

export const waitingTitle = (wait: Waiting): string => {
  if (wait.prompt) return wait.prompt;
  if (wait.kind === "signal" || wait.kind === "condition")
    return `Signal ${signalNames(wait).join(wait.detail["mode"] === "all" ? " and " : " or ") || "of any name"}`;
  if (wait.kind === "callback") return `Result of task ${wait.name}`;
  if (wait.kind === "key") return `Idempotency key ${wait.name}`;
  return `${wait.kind} at ${wait.path}`;
};
export const signalNames = (wait: Pick<Waiting, "detail" | "name">): string[] => {
  const names = wait.detail["names"],
    key = wait.detail["signal_key"];
  if (Array.isArray(names)) return names.map(String);
  if (typeof key === "string" && key) return [key];
  return wait.name ? [wait.name] : [];
};

export const OUTCOMES: Record<string, string> = {
  running: "is running",
  completed: "completed",
  failed: "failed",
  timed_out: "timed out",
  pending: "answers later",
  lost: "lost: its process ended",
  released: "given back when the server stopped",
  cancelled: "stopped",
};
