// All workflows: what is there, and is it healthy?
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { e, get, may } from "../api/client.ts";
import { useLoaded } from "../api/live.ts";
import type { Counts, Page, Status, WorkflowLine } from "../api/types.ts";
import { serverAddress } from "../lib/prefix.ts";
import { useKeys } from "../lib/keys.ts";
import { grouped } from "../lib/time.ts";
import { isOpen } from "../model/words.ts";
import { BrokenFiles } from "../parts/broken_files.tsx";
import { Ago, Empty, LinkButton, Mark, Shown } from "../parts/basic.tsx";

export const Workflows = (): JSX.Element => {
  const list = useLoaded<Page<WorkflowLine>>(
    "workflows",
    (signal) => get<Page<WorkflowLine>>("/workflows", { limit: 500 }, signal),
    { pollMs: 20_000 },
  );
  const counts = useLoaded<Counts>(
      "counts by workflow",
      (signal) => get<Counts>("/runs/counts", { by: "workflow", limit: 500 }, signal),
      { everyMs: 2000 },
    ),
    text = useSignal("");
  const byName = new Map((counts.data?.items ?? []).map((one) => [one.workflow, one])),
    low = text.value.toLowerCase();
  const focus = (by: number): void => {
    const links = [...document.querySelectorAll<HTMLElement>("a.open")],
      i = links.indexOf(document.activeElement as HTMLElement);
    links[Math.min(links.length - 1, Math.max(0, i + by))]?.focus();
  };
  useKeys("Workflows", [
    { keys: "j, ArrowDown", does: "next workflow", act: () => focus(1) },
    { keys: "k, ArrowUp", does: "workflow before", act: () => focus(-1) },
    { keys: "f", does: "filter", act: () => document.getElementById("workflows-filter")?.focus() },
  ]);
  return (
    <>
      <div class="head">
        <h1>Workflows</h1>
        <span class="grow" />
        {may("run") && (
          <LinkButton to="/ui/workflows/~new" testid="workflow-new">
            New workflow
          </LinkButton>
        )}
      </div>
      <BrokenFiles of="flows" />
      <div class="filter">
        <label class="sr" for="workflows-filter">
          Filter by name
        </label>
        <input
          id="workflows-filter"
          type="search"
          data-testid="workflows-filter"
          placeholder="Filter by name"
          value={text.value}
          onInput={(event) => {
            text.value = event.currentTarget.value;
          }}
        />
      </div>
      <Shown of={list} testid="workflows">
        {(page) => {
          const items = page.items.filter((one) => one.name.toLowerCase().includes(low));
          return items.length === 0 ? (
            <Empty
              testid="workflows-empty"
              command={low ? undefined : `holdfast flows publish hello.yaml --server ${serverAddress()}`}
            >
              {low ? "No workflow has such a name." : "No workflow is published. This publishes one:"}
            </Empty>
          ) : (
            <div class="list-box">
              <table class="list">
                <caption class="sr">Workflows</caption>
                <colgroup>
                  <col style={{ width: "26%" }} />
                  <col />
                  <col style={{ width: "90px" }} />
                  <col style={{ width: "90px" }} />
                  <col style={{ width: "90px" }} />
                  <col style={{ width: "100px" }} />
                </colgroup>
                <thead>
                  <tr>
                    <th scope="col">Workflow</th>
                    <th scope="col" class="wide">
                      Description
                    </th>
                    <th scope="col" class="num">
                      Open
                    </th>
                    <th scope="col" class="num">
                      Completed
                    </th>
                    <th scope="col" class="num">
                      Failed
                    </th>
                    <th scope="col" class="wide">
                      Published
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {items.map((one) => {
                    const has = byName.get(one.name),
                      open = has
                        ? (Object.keys(has.statuses) as Status[])
                            .filter(isOpen)
                            .reduce((sum, state) => sum + has.statuses[state], 0)
                        : 0,
                      link = (state: string, n: number): JSX.Element =>
                        n ? (
                          <a href={`/ui/runs?q=${e(`workflow:${one.name} status:${state}`)}`}>{grouped(n)}</a>
                        ) : (
                          <span class="dim">0</span>
                        );
                    return (
                      <tr key={one.name} data-testid={`workflow-${one.name}`}>
                        <td>
                          <a
                            class="open"
                            href={`/ui/workflows/${e(one.name)}`}
                            data-testid={`open-${one.name}`}
                          >
                            {one.name}
                          </a>
                          {one.number ? (
                            <span class="dim small"> #{one.number}</span>
                          ) : (
                            <span class="dim small"> draft</span>
                          )}
                        </td>
                        <td class="dim wide" title={one.description}>
                          {one.description}
                        </td>
                        <td class="num">{link("open", open)}</td>
                        <td class="num">{link("completed", has?.statuses.completed ?? 0)}</td>
                        <td class="num">
                          {has && has.statuses.failed > 0 && <Mark state="failed" />}{" "}
                          {link("failed", has?.statuses.failed ?? 0)}
                        </td>
                        <td class="dim wide">
                          <Ago time={one.published_at ?? one.created_at} />
                        </td>
                      </tr>
                    );
                  })}
                </tbody>
              </table>
            </div>
          );
        }}
      </Shown>
    </>
  );
};
