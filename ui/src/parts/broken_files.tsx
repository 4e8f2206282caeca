// Files of a watched folder that cannot be used: each with its mistakes and what to do about them.
import type { JSX } from "preact";
import { get } from "../api/client.ts";
import { useLoaded } from "../api/live.ts";
import type { Folder } from "../api/types.ts";
import { counted } from "../lib/time.ts";
import { Mark } from "./basic.tsx";

const SHOWN_MAX = 5;

export const BrokenFiles = ({ of }: { of: "flows" | "schedules" }): JSX.Element | null => {
  const folder = useLoaded<Folder>(`folder ${of}`, (signal) => get<Folder>("/folder", { of }, signal), {
    pollMs: 10_000,
  });
  const broken = folder.data?.items.filter((one) => one.status === "broken") ?? [];
  if (broken.length === 0 && !folder.data?.problem) return null;
  return (
    <section
      class="card"
      aria-label="Files that cannot be used"
      data-testid="broken-files"
      style={{ marginBottom: "16px" }}
    >
      <header>
        <Mark state="failed" />
        <h2>
          {broken.length ? `${counted(broken.length, "file")} cannot be used` : "The folder cannot be read"}
        </h2>
      </header>
      <div class="in" style={{ display: "grid", gap: "12px" }}>
        {broken.length > 0 && (
          <p class="dim small">What was published before stays in use. A saved file is read again.</p>
        )}
        {folder.data?.problem && <p class="bad">{folder.data.problem}</p>}
        {broken.map((one) => (
          <div key={one.file} data-testid={`broken-${one.file}`}>
            <code>{one.file}</code>
            <ul class="mistakes">
              {one.problems.slice(0, SHOWN_MAX).map((problem, i) => (
                <li key={i}>
                  {problem.line ? <span class="dim">line {problem.line}: </span> : null}
                  {problem.message}
                  {problem.hint && <span class="dim">; {problem.hint}</span>}
                </li>
              ))}
              {one.problems.length > SHOWN_MAX && (
                <li class="dim">and {counted(one.problems.length - SHOWN_MAX, "problem")} more</li>
              )}
            </ul>
          </div>
        ))}
      </div>
    </section>
  );
};
