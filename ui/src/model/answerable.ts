// The waits of a run that a person can answer. Pure.
import type { Run, Scope, Waiting } from "../api/types.ts";

// The scope that ends a wait of each kind.
export const ANSWERED_BY: Readonly<Record<string, Scope>> = {
  approval: "approve",
  signal: "run",
  condition: "run",
  callback: "resume",
};

// As the list of all waits has them, except who has answered so far.
export const answerable = (run: Run): Waiting[] =>
  run.waits
    .filter((one) => one.kind in ANSWERED_BY)
    .map((wait) => {
      const { prompt, form, need } = wait.detail;
      return {
        run_id: run.run_id,
        workflow: run.workflow,
        number: run.number,
        path: wait.path,
        kind: wait.kind,
        name: wait.name,
        prompt: typeof prompt === "string" ? prompt : "",
        form: form && typeof form === "object" ? (form as Record<string, unknown>) : null,
        detail: wait.detail,
        since: wait.since ?? run.created_at,
        until: wait.until,
        answers: { need: Number(need ?? 1), have: 0, by: [] },
        may_answer: true,
        links: wait.links,
      };
    });
