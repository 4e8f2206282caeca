// What is seen or done here, as a command: for the CLI, curl and Python.
import type { Filter } from "./filter.ts";

export type Commands = { cli: string; curl: string; python: string };

const shell = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
const literal = (text: string): string => JSON.stringify(text);

// A value as Python writes it.
const python = (value: unknown): string => {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object")
    return `{${Object.entries(value)
      .map(([key, one]) => `${literal(key)}: ${python(one)}`)
      .join(", ")}}`;
  return JSON.stringify(value);
};

// The body of a rerun: `from` is empty for the whole run, `failed` for what failed, `failed:PATH` for what failed inside a step, or a path.
export const rerunBody = (from: string): Record<string, unknown> =>
  from === ""
    ? {}
    : from === "failed"
      ? { failed: true }
      : from.startsWith("failed:")
        ? { failed: true, paths: [from.slice(7)] }
        : { from_step: from };

type Asked = { method?: string; path: string; body?: unknown };
const curlOf = (origin: string, needsKey: boolean, asked: Asked): string =>
  [
    "curl",
    asked.method && asked.method !== "GET" && !asked.body ? `-X ${asked.method}` : "",
    shell(origin + asked.path),
    needsKey ? '-H "authorization: Bearer $HOLDFAST_API_KEY"' : "",
    asked.body === undefined
      ? ""
      : `-H 'content-type: application/json' -d ${shell(JSON.stringify(asked.body))}`,
  ]
    .filter(Boolean)
    .join(" ");

const pythonOf = (origin: string, call: string): string =>
  `from holdfast.sdk.sync import SyncClient\n\nwith SyncClient(${literal(origin)}) as server:\n    ${call}\n`;

export const commands = (origin: string, needsKey: boolean) => {
  const made = (cli: string, asked: Asked, python: string): Commands => ({
    cli: `holdfast ${cli} --server ${shell(origin)}`,
    curl: curlOf(origin, needsKey, asked),
    python: pythonOf(origin, python),
  });
  const run = (id: string): string => `/api/v1/runs/${encodeURIComponent(id)}`;
  return {
    show: (id: string): Commands =>
      made(`runs show ${id}`, { path: run(id) }, `print(server.run(${literal(id)}))`),
    explain: (id: string): Commands =>
      made(`runs explain ${id}`, { path: `${run(id)}/explain` }, `print(server.explain(${literal(id)}))`),
    list: (filter: Filter, query: string, from = "", to = ""): Commands => {
      // The command line has no flag for a time or a version, and takes one state.
      const flags = [
        filter.workflow && `--workflow ${shell(filter.workflow)}`,
        filter.status.length === 1 && `--status ${filter.status[0]}`,
        filter.labels.length === 1 && `--label ${shell(filter.labels[0]!)}`,
      ]
        .filter(Boolean)
        .map((one) => ` ${one}`)
        .join("");
      const named = [
        ["id_part", filter.id],
        ["workflow", filter.workflow],
        ["status", filter.status],
        ["label", filter.labels],
        ["number", filter.number && Number(filter.number)],
        ["created_from", from],
        ["created_to", to],
      ] as const;
      const args = named
        .filter(([, value]) => (Array.isArray(value) ? value.length > 0 : Boolean(value)))
        .map(([name, value]) => `${name}=${JSON.stringify(value)}`)
        .join(", ");
      return made(
        filter.id.length === 36 ? `runs show ${filter.id}` : `runs list${flags}`,
        { path: `/api/v1/runs${query}` },
        `print(server.runs(${args}))`,
      );
    },
    cancel: (id: string, reason = ""): Commands =>
      made(
        `runs cancel ${id}${reason ? ` --reason ${shell(reason)}` : ""}`,
        { method: "POST", path: `${run(id)}/cancel`, body: reason ? { reason } : {} },
        `server.cancel(${literal(id)}${reason ? `, ${literal(reason)}` : ""})`,
      ),
    // `from` is empty for the whole run, `failed`, `failed:PATH`, or a path.
    rerun: (id: string, from: string): Commands => {
      const isFailed = from === "failed" || from.startsWith("failed:"),
        path = from.startsWith("failed:") ? from.slice(7) : isFailed ? "" : from;
      const flags = `${isFailed ? " --failed" : ""}${path ? ` --from ${shell(path)}` : ""}`,
        args = isFailed
          ? `, failed=True${path ? `, paths=[${literal(path)}]` : ""}`
          : path
            ? `, from_step=${literal(path)}`
            : "";
      return made(
        `runs rerun ${id}${flags}`,
        { method: "POST", path: `${run(id)}/rerun`, body: rerunBody(from) },
        `print(server.rerun(${literal(id)}${args}))`,
      );
    },
    signal: (id: string, key: string, value: unknown, correlation?: string): Commands => {
      const text = JSON.stringify(value),
        more = correlation ? ` --correlation ${shell(correlation)}` : "";
      return made(
        `signal ${id} ${shell(key)} ${shell(text)}${more}`,
        { method: "POST", path: `${run(id)}/signals`, body: { key, value, correlation } },
        `server.signal(${literal(id)}, ${literal(key)}, ${python(value)}${correlation ? `, correlation=${literal(correlation)}` : ""})`,
      );
    },
    resume: (id: string, task: string, value: unknown): Commands =>
      made(
        `resume ${shell(task)} --run ${id} --result ${shell(JSON.stringify(value))}`,
        {
          method: "POST",
          path: "/workflows/resume",
          body: { task_id: task, run_id: id, success: true, data: value },
        },
        `server.resume(${literal(task)}, ${python(value)}, run_id=${literal(id)})`,
      ),
    schedule: (id: string): Commands =>
      made(
        `schedules show ${shell(id)}`,
        { path: `/api/v1/schedules/${encodeURIComponent(id)}` },
        `print(server.schedule(${literal(id)}))`,
      ),
    why: (id: string, when: string): Commands =>
      made(
        `schedules why ${shell(id)}${when ? ` ${shell(when)}` : ""}`,
        {
          path: `/api/v1/schedules/${encodeURIComponent(id)}/why${when ? `?when=${encodeURIComponent(when)}` : ""}`,
        },
        `print(server.why(${literal(id)}${when ? `, ${literal(when)}` : ""}))`,
      ),
    backfill: (id: string, from: string, to: string): Commands =>
      made(
        `schedules backfill ${shell(id)} ${shell(from)} ${shell(to)}`,
        { method: "POST", path: `/api/v1/schedules/${encodeURIComponent(id)}/backfill`, body: { from, to } },
        `print(server.backfill_schedule(${literal(id)}, ${literal(from)}, ${literal(to)}))`,
      ),
    workflow: (name: string): Commands =>
      made(
        `flows show ${shell(name)}`,
        { path: `/api/v1/workflows/${encodeURIComponent(name)}` },
        `print(server.workflow(${literal(name)}))`,
      ),
    letters: (): Commands =>
      made("dead-letters list", { path: "/api/v1/dead-letters" }, "print(server.dead_letters())"),
    logs: (id: string, path: string): Commands =>
      made(
        `runs logs ${id} ${shell(path)}`,
        { path: `${run(id)}/logs?step=${encodeURIComponent(path)}` },
        `print(server.logs(${literal(id)}, step=${literal(path)}))`,
      ),
    step: (id: string, path: string): Commands =>
      made(
        `runs show ${id} --all-steps`,
        { path: `${run(id)}/steps/${encodeURIComponent(path)}` },
        `print(server.step(${literal(id)}, ${literal(path)}))`,
      ),
    approve: (id: string, path: string): Commands =>
      made(
        `approve ${id} ${shell(path)}`,
        {
          method: "POST",
          path: `${run(id)}/approvals/${encodeURIComponent(path)}`,
          body: { approved: true },
        },
        `server.approve(${literal(id)}, ${literal(path)}, approved=True)`,
      ),
    start: (workflow: string, inputs: unknown): Commands =>
      made(
        `start ${shell(workflow)} --inputs ${shell(JSON.stringify(inputs))}`,
        { method: "POST", path: "/api/v1/runs", body: { workflow, inputs } },
        `print(server.start(${literal(workflow)}, ${python(inputs)}))`,
      ),
  };
};
