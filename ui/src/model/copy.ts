// What is seen or done here, as a command: for the CLI, curl and Python.
export type Commands = { cli: string; curl: string; python: string };

const shell = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);
const literal = (text: string): string => JSON.stringify(text);

type Asked = { method?: string; path: string; body?: unknown };
const curlOf = (origin: string, needsKey: boolean, asked: Asked): string => [
  "curl",
  asked.method && asked.method !== "GET" && !asked.body ? `-X ${asked.method}` : "",
  shell(origin + asked.path),
  needsKey ? '-H "authorization: Bearer $HOLDFAST_API_KEY"' : "",
  asked.body === undefined ? "" : `-H 'content-type: application/json' -d ${shell(JSON.stringify(asked.body))}`,
].filter(Boolean).join(" ");

const pythonOf = (origin: string, call: string): string =>
  `from holdfast.sdk.sync import SyncClient\n\nwith SyncClient(${literal(origin)}) as server:\n    ${call}\n`;

export const commands = (origin: string, needsKey: boolean) => {
  const made = (cli: string, asked: Asked, python: string): Commands => ({
    cli: `holdfast ${cli} --server ${shell(origin)}`, curl: curlOf(origin, needsKey, asked), python: pythonOf(origin, python),
  });
  const run = (id: string): string => `/api/v1/runs/${encodeURIComponent(id)}`;
  return {
    show: (id: string): Commands => made(`runs show ${id}`, { path: run(id) }, `print(server.run(${literal(id)}))`),
    explain: (id: string): Commands => made(`runs explain ${id}`, { path: `${run(id)}/explain` }, `print(server.explain(${literal(id)}))`),
    list: (query: string, flags: string): Commands => made(`runs list${flags}`, { path: `/api/v1/runs${query}` }, `print(server.runs())`),
    cancel: (id: string): Commands => made(`runs cancel ${id}`, { method: "POST", path: `${run(id)}/cancel`, body: {} }, `server.cancel(${literal(id)})`),
    rerun: (id: string, from: string): Commands => made(`runs rerun ${id}${from ? ` --from ${shell(from)}` : ""}`, { method: "POST", path: `${run(id)}/rerun`, body: from ? { from_step: from } : {} }, `print(server.rerun(${literal(id)}${from ? `, from_step=${literal(from)}` : ""}))`),
    logs: (id: string, path: string): Commands => made(`runs logs ${id} ${shell(path)}`, { path: `${run(id)}/logs?step=${encodeURIComponent(path)}` }, `print(server.logs(${literal(id)}, step=${literal(path)}))`),
    step: (id: string, path: string): Commands => made(`runs show ${id} --all-steps`, { path: `${run(id)}/steps/${encodeURIComponent(path)}` }, `print(server.step(${literal(id)}, ${literal(path)}))`),
    approve: (id: string, path: string): Commands => made(`approve ${id} ${shell(path)}`, { method: "POST", path: `${run(id)}/approvals/${encodeURIComponent(path)}`, body: { approved: true } }, `server.approve(${literal(id)}, ${literal(path)}, approved=True)`),
    start: (workflow: string, inputs: unknown): Commands => made(`start ${shell(workflow)} --inputs ${shell(JSON.stringify(inputs))}`, { method: "POST", path: "/api/v1/runs", body: { workflow, inputs } }, `print(server.start(${literal(workflow)}, ${JSON.stringify(inputs)}))`),
  };
};
