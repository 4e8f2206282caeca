// Editing a definition: text, graph and problems together as one types. The editor itself is another file, loaded when it is opened.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { ApiError, ask, may, post } from "../api/client.ts";
import type { Plan, PlanBlock, Problem as Mistake, Release, Validation } from "../api/types.ts";
import type { Editor } from "../editor/editor.ts";
import { useKeys } from "../lib/keys.ts";
import { askBeforeClosing } from "../lib/router.ts";
import { counted } from "../lib/time.ts";
import { Button, Mark, Problem, say } from "../parts/basic.tsx";
import { PlanGraph } from "./workflow.tsx";

const PAUSE_MS = 250; // after the last key

// Changed texts by the workflow they are for, so that a look at another screen loses none. "" is that of a new workflow.
const kept = new Map<string, string>();

// The nodes whose lines contain a mistake.
const wrong = (block: PlanBlock, lines: number[], prefix = "", found = new Set<string>()): Set<string> => {
  block.nodes.forEach((node, i) => {
    const key = prefix ? `${prefix}\u0000${node.name}` : node.name,
      next = block.nodes[i + 1]?.line ?? Infinity;
    if (node.line && lines.some((line) => line >= node.line && line < next)) found.add(key);
    for (const inner of node.blocks) wrong(inner, lines, key, found);
  });
  return found;
};

export const EditorPane = ({
  name,
  source,
  onPublished,
}: {
  name: string | null;
  source: string;
  onPublished: (name: string) => void;
}): JSX.Element => {
  const host = useRef<HTMLDivElement>(null),
    editor = useRef<Editor | null>(null),
    text = useRef(kept.get(name ?? "") ?? source),
    published = useRef(source),
    timer = useRef(0),
    asked = useRef(0);
  const plan = useSignal<Plan | null>(null),
    problems = useSignal<Mistake[]>([]),
    notes = useSignal<Mistake[]>([]),
    isValid = useSignal<boolean | null>(null),
    isChanged = useSignal(text.current !== source),
    isBusy = useSignal(""),
    fault = useSignal<ApiError | null>(null),
    notLoaded = useSignal(false),
    fix = useSignal<Validation | null>(null);

  const check = async (): Promise<void> => {
    const mine = (asked.current += 1);
    try {
      const found = await post<Validation>("/validate", { spec: text.current });
      if (mine !== asked.current) return;
      fault.value = null;
      isValid.value = found.valid;
      problems.value = found.problems;
      notes.value = found.notes;
      fix.value = found.patch.length ? found : null;
      if (found.plan) plan.value = found.plan; // the last good one stays
      editor.current?.mark([
        ...found.problems.map((one) => ({ ...one, isNote: false })),
        ...found.notes.map((one) => ({ ...one, isNote: true })),
      ]);
    } catch (error) {
      if (mine === asked.current) fault.value = error as ApiError;
    }
  };
  const keep = (next: string): void => {
    isChanged.value = next !== published.current;
    if (isChanged.value) kept.set(name ?? "", next);
    else kept.delete(name ?? "");
  };
  const typed = (next: string): void => {
    text.current = next;
    keep(next);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => void check(), PAUSE_MS);
  };
  useEffect(() => {
    let isOver = false;
    void import("../editor/editor.ts")
      .then(async ({ mount }) => {
        if (isOver) return;
        editor.current = mount(host.current!, text.current, typed, {
          label: `Definition of ${name ?? "a new workflow"}`,
          isReadOnly: !may("run"),
        });
        void check();
        const schemas = await Promise.all(
          ["steps", "graph"].map((one) =>
            ask<Record<string, unknown>>("GET", `/schema/${one}`).catch(() => null),
          ),
        );
        editor.current?.complete(schemas.filter((one) => one !== null));
      })
      .catch(() => {
        notLoaded.value = true;
      });
    return () => {
      isOver = true;
      clearTimeout(timer.current);
      editor.current?.close();
    };
  }, []);
  useEffect(() => {
    published.current = source;
    keep(text.current);
  }, [source]);
  useEffect(() => askBeforeClosing(() => kept.size > 0), []);

  const publish = async (isDraft: boolean): Promise<void> => {
    isBusy.value = isDraft ? "draft" : "publish";
    fault.value = null;
    try {
      const made = await ask<Release>("POST", `/workflows${isDraft ? "?draft=true" : ""}`, {
        text: text.current,
        media: "application/yaml",
      });
      say(
        isDraft
          ? `Saved as draft #${made.number} of ${made.name}.`
          : `Published as ${made.name} #${made.number}.`,
      );
      if (!isDraft) {
        published.current = text.current;
        keep(text.current);
        onPublished(made.name);
      }
    } catch (error) {
      fault.value = error as ApiError;
      if ((error as ApiError).code === "invalid_spec") void check();
    } finally {
      isBusy.value = "";
    }
  };
  const tryIt = async (): Promise<void> => {
    isBusy.value = "try";
    fault.value = null;
    try {
      const made = await post<{ run_id: string }>("/runs", { spec: text.current, labels: { try: "yes" } });
      say("It runs.", "good", { to: `/ui/runs/${made.run_id}`, text: "Open the run" });
    } catch (error) {
      fault.value = error as ApiError;
    } finally {
      isBusy.value = "";
    }
  };
  useKeys("Editor", [
    {
      keys: "Ctrl-s",
      does: "publish",
      act: () => {
        if (isValid.value && may("run")) void publish(false);
      },
      always: true,
    },
  ]);
  const count = problems.value.length,
    warned = notes.value.length ? counted(notes.value.length, "warning") : "",
    lines = problems.value.map((one) => one.line ?? 0).filter(Boolean);
  return (
    <div style={{ display: "grid", gap: "12px" }}>
      <div class="head" style={{ marginBottom: 0 }}>
        {name === null && <h1>New workflow</h1>}
        <span
          class={`row ${isValid.value === false ? "bad" : isValid.value ? "good" : "dim"}`}
          role="status"
          data-testid="validity"
        >
          {isValid.value === null ? (
            "Checking …"
          ) : (
            <>
              <Mark state={isValid.value ? "completed" : "failed"} />
              {[isValid.value ? "Valid" : counted(count, "problem"), warned, isChanged.value ? "changed" : ""]
                .filter(Boolean)
                .join(", ")}
            </>
          )}
        </span>
        <span class="grow" />
        {isChanged.value && (
          <Button testid="editor-discard" kind="quiet" onClick={() => editor.current?.replace(source)}>
            Discard changes
          </Button>
        )}
        {may("run") && (
          <>
            <Button
              testid="editor-try"
              busy={isBusy.value === "try"}
              disabled={!isValid.value}
              onClick={() => void tryIt()}
            >
              Try
            </Button>
            <Button
              testid="editor-draft"
              busy={isBusy.value === "draft"}
              disabled={!isValid.value}
              onClick={() => void publish(true)}
            >
              Save draft
            </Button>
            <Button
              testid="editor-publish"
              kind="main"
              keys="Ctrl-s"
              busy={isBusy.value === "publish"}
              disabled={!isValid.value || (!isChanged.value && name !== null)}
              onClick={() => void publish(false)}
            >
              Publish
            </Button>
          </>
        )}
      </div>
      {fault.value && <Problem error={fault.value} />}
      <div class="edit">
        <div class="card edit-text">
          <div ref={host} class="editor-host" data-testid="editor">
            {notLoaded.value && (
              <p class="empty">
                The editor could not be loaded: the server is away, or it has a newer page. Load the page
                again.
              </p>
            )}
          </div>
        </div>
        <div style={{ display: "grid", gap: "12px", alignContent: "start", minWidth: 0 }}>
          <section class="card" aria-label="Graph" style={{ display: "flex", flexDirection: "column" }}>
            <header>
              <h2>Graph</h2>
              {isValid.value === false && plan.value && <span class="dim small">the last valid one</span>}
            </header>
            {plan.value ? (
              <PlanGraph
                plan={plan.value}
                problems={wrong(plan.value.block, lines)}
                onChoose={(line) => {
                  if (line) editor.current?.goTo(line, 1);
                }}
              />
            ) : (
              <p class="dim empty">The graph appears when the text is valid.</p>
            )}
          </section>
          {(count > 0 || notes.value.length > 0) && (
            <section class="card" aria-label="Problems" data-testid="problems">
              <header>
                <h2>{[count ? counted(count, "problem") : "", warned].filter(Boolean).join(", ")}</h2>
                <span class="grow" />
                {fix.value && fix.value.left.length < count && fix.value.repaired !== null && (
                  <Button testid="editor-fix" onClick={() => void repair(fix.value!, editor.current)}>
                    Repair {count - fix.value.left.length}
                  </Button>
                )}
              </header>
              <ul>
                {[...problems.value, ...notes.value].slice(0, 50).map((one, i) => (
                  <li key={i}>
                    <button
                      type="button"
                      class={`inbox-item s-${i < count ? "failed" : "waiting"}`}
                      data-testid={`problem-${i}`}
                      onClick={() => editor.current?.goTo(one.line ?? 1, one.column ?? 1)}
                    >
                      <Mark state={i < count ? "failed" : "waiting"} />
                      <span class="what" style={{ whiteSpace: "normal" }}>
                        {one.message}
                      </span>
                      <span class="where" style={{ whiteSpace: "normal" }}>
                        {one.hint}
                      </span>
                      <span class="left">{one.line ? `line ${one.line}` : ""}</span>
                    </button>
                  </li>
                ))}
              </ul>
            </section>
          )}
        </div>
      </div>
    </div>
  );
};

const repair = async (found: Validation, editor: Editor | null): Promise<void> => {
  editor?.replace(
    typeof found.repaired === "string" ? found.repaired : JSON.stringify(found.repaired, null, 2),
  );
};
