// What needs a person, worst first. Pure.
import type { Folder, Letter, RunLine, ScheduleLine, ServiceLine, WaitingPage } from "../api/types.ts";
import { cut, oneLine } from "../lib/text.ts";
import { ago, at, counted, grouped, roughly } from "../lib/time.ts";

export type Need = {
  key: string;
  state: string;
  text: string;
  to: string;
  show: string;
  rerun?: { count: number | "all"; filter: Record<string, unknown> };
  help?: string;
  weight: number;
};
// Failures of a workflow in the last 24 hours, and those of a usual day before; null where it has no day before.
export type Usual = { today: number; aDay: number | null };
type Known = {
  failures: RunLine[] | null;
  isPart?: boolean;
  since?: string;
  interrupted?: RunLine[] | null;
  usual?: ReadonlyMap<string, Usual>;
  waits: WaitingPage | null;
  letters: Letter[] | null;
  folders: { of: "flows" | "schedules"; items: Folder["items"] }[];
  schedules: ScheduleLine[] | null;
  ready: { ready: boolean; reasons: unknown[] } | null;
  services: ServiceLine[] | null;
};
const MOST = 10;

const byWorkflow = (lines: RunLine[]): [string, RunLine[]][] => {
  const groups = new Map<string, RunLine[]>();
  for (const line of lines) groups.set(line.workflow, [...(groups.get(line.workflow) ?? []), line]);
  return [...groups];
};
const listOf = (workflow: string, status: string): string =>
  `/ui/runs?q=${encodeURIComponent(`workflow:${workflow} status:${status} after:1d`)}`;

// The days of a week and this one, oldest first, each with its failures. Days before the first run say nothing.
export const usualOf = (days: { started: number; failed: number }[]): Usual => {
  const before = days.slice(0, -1),
    first = before.findIndex((day) => day.started > 0),
    counted = first < 0 ? [] : before.slice(first);
  return {
    today: days.at(-1)?.failed ?? 0,
    aDay: counted.length
      ? Math.round(counted.reduce((sum, day) => sum + day.failed, 0) / counted.length)
      : null,
  };
};

// Failures of one workflow are one thing. One that was rerun needs nobody: if its rerun fails too, that is the failure.
const failed = ({ failures, isPart, since, usual }: Known, now: number): Need[] =>
  byWorkflow((failures ?? []).filter((one) => !one.rerun_as)).map(([workflow, all]) => {
    const latest = all[0]!,
      ids = all.map((one) => one.run_id),
      where = latest.error?.path ? ` at ${latest.error.path}` : "",
      what = latest.error ? `: ${cut(oneLine(latest.error.message), 120)}` : "";
    // The list has the latest failures of all workflows: how many one has in all is told by the counts of its days.
    const known = usual?.get(workflow),
      count = isPart && known ? Math.max(known.today, all.length) : all.length,
      most = isPart && !known ? "at least " : "",
      aDay =
        known && known.aDay !== null
          ? ` (${known.aDay ? `usually ${grouped(known.aDay)}` : "usually none"})`
          : "";
    const text =
      count === 1
        ? `${workflow} failed ${ago(at(latest.finished_at ?? latest.created_at), now)}${where}${what}`
        : `${workflow}: ${most}${counted(count, "failure")} in 24 h${aDay}, the latest${where}${what}`;
    const to = count === 1 ? `/ui/runs/${latest.run_id}` : listOf(workflow, "failed");
    return {
      key: `failed-${workflow}`,
      state: "failed",
      text,
      to,
      show: "Show",
      rerun: isPart
        ? { count: "all", filter: { workflow, status: ["failed"], from: since ?? "" } }
        : { count: all.length, filter: { ids } },
      weight: 100 + Math.min(all.length, 99),
    };
  });

const interrupted = ({ interrupted: lines }: Known, now: number): Need[] =>
  byWorkflow((lines ?? []).filter((one) => !one.rerun_as)).map(([workflow, all]) => {
    const latest = all[0]!;
    return {
      key: `interrupted-${workflow}`,
      state: "interrupted",
      text: `${workflow}: ${counted(all.length, "run")} ${all.length === 1 ? "was" : "were"} interrupted when the server stopped, the latest ${ago(at(latest.finished_at ?? latest.created_at), now)}`,
      to: all.length === 1 ? `/ui/runs/${latest.run_id}` : listOf(workflow, "interrupted"),
      show: "Show",
      weight: 95,
    };
  });

export const needsOf = (known: Known, now: number): Need[] => {
  const needs: Need[] = [];
  if (known.ready && !known.ready.ready)
    needs.push({
      key: "ready",
      state: "failed",
      text: `The server is not ready: ${known.ready.reasons.map((one) => (typeof one === "string" ? one : JSON.stringify(one))).join("; ")}`,
      to: "",
      show: "",
      weight: 1000,
    });
  needs.push(...failed(known, now), ...interrupted(known, now));
  for (const one of known.services ?? [])
    if (one.waiting > 0 && one.workers === 0)
      needs.push({
        key: `service-${one.name}`,
        state: "waiting",
        text: `Service ${one.name}: ${counted(one.waiting, "job")} ${one.waiting === 1 ? "waits" : "wait"}${one.oldest_waiting_at ? ` for ${roughly(now - at(one.oldest_waiting_at))}` : ""}, and no worker serves it`,
        to: "/ui/workers",
        show: "Workers",
        help: one.name,
        weight: 90,
      });
  for (const folder of known.folders)
    for (const file of folder.items)
      if (file.status === "broken")
        needs.push({
          key: `file-${file.file}`,
          state: "failed",
          text: `${file.file} cannot be used: ${file.problems[0]?.message ?? "it has mistakes"}`,
          to: folder.of === "flows" ? "/ui/workflows" : "/ui/schedules",
          show: "Show",
          weight: 80,
        });
  for (const one of known.schedules ?? [])
    if (one.failures > 0)
      needs.push({
        key: `schedule-${one.id}`,
        state: "failed",
        text: `Schedule ${one.id}: ${counted(one.failures, "failure")} in a row${one.last_error ? `, ${cut(oneLine(one.last_error), 120)}` : ""}`,
        to: `/ui/schedules?id=${encodeURIComponent(one.id)}`,
        show: "Schedule",
        weight: 70,
      });
  const approvals = known.waits?.counts["approval"] ?? 0,
    others =
      (known.waits?.counts["signal"] ?? 0) +
      (known.waits?.counts["callback"] ?? 0) +
      (known.waits?.counts["condition"] ?? 0);
  if (approvals > 0) {
    const first = known.waits!.items.find((one) => one.kind === "approval");
    needs.push({
      key: "approvals",
      state: "waiting",
      text: `${counted(approvals, "approval")} ${approvals === 1 ? "waits" : "wait"} for an answer${first ? `: “${cut(oneLine(first.prompt || first.path), 80)}”${first.until ? `, ${roughly(Math.max(0, at(first.until) - now))} left` : ""}` : ""}`,
      to: "/ui/inbox",
      show: "Answer",
      weight: 60,
    });
  }
  const dead = (known.letters ?? []).filter((one) => one.status === "dead");
  if (dead.length > 0)
    needs.push({
      key: "letters",
      state: "failed",
      text: `${counted(dead.length, "final callback")} could not be delivered, the latest to ${cut(dead[0]!.url, 60)}: ${cut(oneLine(dead[0]!.last_error), 80)}`,
      to: "/ui/deliveries",
      show: "Deliveries",
      weight: 50,
    });
  if (others > 1000)
    needs.push({
      key: "waits",
      state: "waiting",
      text: `${counted(others, "run")} wait for signals and callbacks`,
      to: "/ui/inbox",
      show: "Inbox",
      weight: 10,
    });
  return needs.sort((a, b) => b.weight - a.weight).slice(0, MOST);
};
