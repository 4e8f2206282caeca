// Graph and timeline of a run as one selection, and time travel over both.
import type { Signal } from "@preact/signals";
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { e, get } from "../api/client.ts";
import type { ApiError } from "../api/client.ts";
import type { Loaded } from "../api/live.ts";
import type { JournalLine, Page, Plan, Run, Stats } from "../api/types.ts";
import { graph } from "../draw/graph.ts";
import type { Graph, LayoutBlock } from "../draw/graph.ts";
import { isFoldable, timeline } from "../draw/timeline.ts";
import type { TimelineView, Usual } from "../draw/timeline.ts";
import { useKeys } from "../lib/keys.ts";
import { place, setQuery } from "../lib/router.ts";
import { at, clockMs, grouped, now, span } from "../lib/time.ts";
import { patternOf, plainOf } from "../model/paths.ts";
import { factBefore, facts, momentOf, nextFact, seqAt } from "../model/replay.ts";
import type { Course } from "../model/replay.ts";
import { cellsOf, groups } from "../model/run.ts";
import type { Cell } from "../model/run.ts";
import { isOpen } from "../model/words.ts";
import { Button, Mark, Problem, Tabs, missing } from "../parts/basic.tsx";

const PLAY_MS = 8000; // a whole run is played in this time at 1×

type Props = {
  run: Run;
  plan: Plan | null;
  planError: ApiError | null;
  course: Loaded<Course>;
  stats: Stats | null;
  chosen: string | null;
  onChoose: (path: string | null) => void;
  moment: Signal<number | null>;
};

export const layoutOf = (block: { of: string; cells: Cell[]; edges: LayoutBlock["edges"] }): LayoutBlock => ({
  label: block.of,
  edges: block.edges,
  nodes: block.cells.map((cell) => ({
    key: cell.key,
    title: cell.name,
    note: cell.does || cell.kind,
    blocks: cell.blocks.map((one, i) => {
      const made = layoutOf(one);
      return cell.blocks.filter((other) => other.of === one.of).length > 1
        ? { ...made, label: `branch ${i + 1}` }
        : made;
    }),
  })),
});
export const flatCells = (cells: Cell[], into = new Map<string, Cell>()): Map<string, Cell> => {
  for (const cell of cells) {
    into.set(cell.key, cell);
    for (const block of cell.blocks) flatCells(block.cells, into);
  }
  return into;
};
const shapeOf = (block: { cells: Cell[] }): string =>
  block.cells.map((one) => `${one.key}(${one.blocks.map(shapeOf).join("|")})`).join(",");

const noteOf = (cell: Cell): string => {
  const parts = [cell.does || cell.kind];
  if (typeof cell.group?.took === "number") parts.push(span(cell.group.took));
  return parts.join(" · ");
};
const badgeOf = (cell: Cell): string => {
  if (cell.items && cell.items.total > 0)
    return cell.items.failed
      ? `${grouped(cell.items.failed)} failed`
      : `${grouped(cell.items.done)}/${grouped(cell.items.total)}`;
  if (cell.group && cell.group.count > 1)
    return cell.group.failed
      ? `${grouped(cell.group.failed)} failed`
      : `${cell.group.done}/${cell.group.count}`;
  return cell.group && cell.group.tries > 1 ? `${cell.group.tries}×` : "";
};

export const RunPanes = ({
  run,
  plan,
  planError,
  course,
  stats,
  chosen,
  onChoose,
  moment,
}: Props): JSX.Element => {
  const graphHost = useRef<HTMLDivElement>(null),
    timelineHost = useRef<HTMLDivElement>(null),
    drawnGraph = useRef<Graph | null>(null),
    drawnTimeline = useRef<TimelineView | null>(null);
  const pane = useSignal<"graph" | "timeline">("timeline"),
    isFolding = useSignal(true),
    seqs = useRef(new Map<number, number>()),
    isPlaying = useSignal(false),
    speed = useSignal(1),
    seq = useSignal<number | null>(null);
  const data = course.data,
    isRunning = isOpen(run.status),
    latest = useRef({ data, onChoose, chosen });
  latest.current = { data, onChoose, chosen };
  const all = useMemo(() => (data ? facts(data) : []), [data]);

  // One path stands for all instances of a step of the graph: the one that needs attention.
  const chooseKey = (key: string): void => {
    const found = latest.current.data ? groups(latest.current.data, moment.value).get(key) : undefined;
    latest.current.onChoose(found?.first ?? key.replaceAll("\u0000", "."));
  };
  const travel = (t: number | null): void => {
    const known = latest.current.data;
    if (!known || t === null || (t >= known.to && !isPlaying.value)) {
      moment.value = null;
      isPlaying.value = false;
      seq.value = null;
      setQuery({ seq: null });
      return;
    }
    moment.value = Math.max(known.from, t);
  };
  useEffect(() => {
    const g = (drawnGraph.current = graph(graphHost.current!, chooseKey)),
      t = (drawnTimeline.current = timeline(
        timelineHost.current!,
        (path) => latest.current.onChoose(path),
        (time) => travel(time),
      ));
    return () => {
      g.close();
      t.close();
    };
  }, []);

  const cells = useMemo(() => (plan ? cellsOf(plan, data, moment.value) : null), [plan, data, moment.value]);
  useEffect(() => {
    if (!cells || !drawnGraph.current) return;
    const flat = flatCells(cells.cells);
    drawnGraph.current.show(layoutOf(cells), shapeOf(cells));
    drawnGraph.current.paint((key) => {
      const cell = flat.get(key);
      return cell
        ? { status: cell.status, note: noteOf(cell), badge: badgeOf(cell) }
        : { status: null, note: "", badge: "" };
    });
  }, [cells]);
  const usual = useMemo(() => {
    const found = new Map<string, Usual>();
    for (const one of stats?.steps ?? [])
      if (one.p50_ms !== null && one.p95_ms !== null && one.runs >= 3)
        found.set(one.path, { p50: one.p50_ms, p95: one.p95_ms });
    return found;
  }, [stats]);
  const until = data ? (isRunning ? Math.max(data.to, now.value) : data.to) : 0,
    canFold = useMemo(() => data !== null && isFoldable({ ...data, to: until }), [data, until]);
  useEffect(() => {
    if (data)
      drawnTimeline.current?.show({
        rows: data.rows,
        from: data.from,
        to: until,
        isOpen: isRunning,
        at: moment.value,
        isFolding: isFolding.value,
        usual: (path) => usual.get(plainOf(path)) ?? null,
      });
  }, [data, until, moment.value, isFolding.value, usual]);
  useEffect(() => {
    drawnTimeline.current?.choose(chosen);
    drawnGraph.current?.choose(chosen === null ? null : patternOf(chosen));
  }, [chosen, data !== null, cells !== null]);

  const asked = Number(place.value.query.get("seq") ?? "");
  // ?seq=41 is a moment that was shared; a moment that is looked at becomes one.
  const timeOf = async (n: number): Promise<number> => {
    const known = seqs.current.get(n);
    if (known !== undefined) return known;
    const found = await get<Page<JournalLine>>(`/runs/${e(run.run_id)}/journal`, { after: n - 1, limit: 1 });
    const time = found.items[0] ? at(found.items[0].at) : Infinity;
    seqs.current.set(n, time);
    return time;
  };
  useEffect(() => {
    if (data && asked > 0 && asked !== seq.value) {
      seq.value = asked;
      isPlaying.value = false;
      void timeOf(asked)
        .then((t) => {
          if (Number.isFinite(t)) moment.value = t;
        })
        .catch(() => undefined);
    }
  }, [data !== null, asked]);
  useEffect(() => {
    const t = moment.value;
    if (t === null || isPlaying.value) return;
    const timer = setTimeout(() => {
      void seqAt(t, run.seq ?? data?.seq ?? 1, timeOf)
        .then((n) => {
          if (moment.value === t) {
            seq.value = n;
            setQuery({ seq: String(n) });
          }
        })
        .catch(() => undefined);
    }, 400);
    return () => clearTimeout(timer);
  }, [moment.value, isPlaying.value]);

  useEffect(() => {
    if (!isPlaying.value || !data) return;
    let frame = 0,
      before = performance.now();
    const whole = Math.max(1, all.length);
    // Facts are played at an even pace, so that neither bursts nor long waits are missed.
    let place0 = all.findIndex((one) => one > (moment.value ?? data.from)),
      position = place0 < 0 ? 0 : place0;
    const tick = (time: number): void => {
      position += ((time - before) / PLAY_MS) * whole * speed.value;
      before = time;
      if (position >= whole - 1) {
        isPlaying.value = false;
        travel(null);
        return;
      }
      const i = Math.floor(position),
        a = all[i]!,
        b = all[i + 1] ?? a;
      moment.value = a + (b - a) * (position - i);
      frame = requestAnimationFrame(tick);
    };
    if (moment.value === null) moment.value = data.from;
    frame = requestAnimationFrame(tick);
    return () => {
      cancelAnimationFrame(frame);
      place0 = 0;
    };
  }, [isPlaying.value]);

  const step = (by: 1 | -1): void => {
    isPlaying.value = false;
    const t = moment.value ?? until;
    const next = by > 0 ? nextFact(all, t) : factBefore(all, t);
    if (next !== null) {
      next >= (all.at(-1) ?? 0) && !isRunning ? travel(null) : travel(next);
    } else if (by > 0) travel(null);
  };
  const move = (by: 1 | -1): void => {
    const rows = data?.rows ?? [],
      i = rows.findIndex((row) => row.path === chosen),
      next = rows[i < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, i + by))];
    if (next) {
      onChoose(next.path);
      drawnTimeline.current?.choose(next.path, "focus");
    }
  };
  const nextFailed = (): void => {
    const rows = data?.rows ?? [],
      i = rows.findIndex((row) => row.path === chosen),
      next =
        [...rows.slice(i + 1), ...rows.slice(0, i + 1)].find(
          (row) => row.status === "failed" && row.children === 0,
        ) ?? rows.find((row) => row.status === "failed" || row.failed > 0);
    if (next) {
      onChoose(next.path);
      drawnTimeline.current?.choose(next.path, "focus");
    }
  };
  useKeys("Steps and time", [
    { keys: "j, ArrowDown", does: "next step", act: () => move(1) },
    { keys: "k, ArrowUp", does: "step before", act: () => move(-1) },
    { keys: "f", does: "next failed step", act: nextFailed },
    { keys: "[", does: "one fact back", act: () => step(-1) },
    { keys: "]", does: "one fact on", act: () => step(1) },
    {
      keys: "Space",
      does: "play, pause",
      act: () => {
        isPlaying.value = !isPlaying.value;
      },
    },
    {
      keys: "Home",
      does: "go to the start",
      act: () => {
        if (data) travel(data.from);
      },
    },
    { keys: "End", does: "back to now", act: () => travel(null) },
    {
      keys: "w",
      does: "fold waiting, or unfold it",
      act: () => {
        isFolding.value = !isFolding.value;
      },
    },
    { keys: "z", does: "fit the graph", act: () => drawnGraph.current?.fit() },
  ]);
  const t = moment.value,
    shownStatus = t !== null && data ? momentOf(data, t).status : run.status;
  return (
    <>
      <div class="pane-tabs">
        <Tabs
          label="Views"
          testid="pane"
          chosen={pane.value}
          onChoose={(id) => {
            pane.value = id as "graph";
          }}
          names={[
            { id: "timeline", name: "Timeline" },
            { id: "graph", name: "Graph" },
          ]}
        />
      </div>
      <div class="panes" data-pane={pane.value}>
        <section class="pane pane-graph" aria-label="Graph">
          <header>
            <h2>Graph</h2>
            {data && data.more > 0 && (
              <span class="dim small">without the states of {grouped(data.more)} steps</span>
            )}
            <Button
              kind="quiet"
              testid="graph-out"
              label="Zoom out"
              onClick={() => drawnGraph.current?.zoom(0.8)}
            >
              −
            </Button>
            <Button
              kind="quiet"
              testid="graph-in"
              label="Zoom in"
              onClick={() => drawnGraph.current?.zoom(1.25)}
            >
              +
            </Button>
            <Button kind="quiet" testid="graph-fit" onClick={() => drawnGraph.current?.fit()}>
              Fit
            </Button>
          </header>
          <div class="graph-host" ref={graphHost}>
            {!plan && planError && <p class="dim empty">{missing(planError) || planError.message}</p>}
          </div>
        </section>
        <section class="pane pane-timeline" aria-label="Timeline">
          <header>
            <h2>Timeline</h2>
            {data && data.more > 0 && (
              <span class="dim small" title="Steps that failed or are open come first.">
                {grouped(data.more)} steps are left out
              </span>
            )}
            {canFold && (
              <Button
                kind="quiet"
                testid="fold"
                pressed={isFolding.value}
                keys="w"
                onClick={() => {
                  isFolding.value = !isFolding.value;
                }}
              >
                Fold waiting
              </Button>
            )}
          </header>
          <div class="tl-host" ref={timelineHost}>
            {data === null && course.error && <Problem error={course.error} again={course.again} />}
          </div>
        </section>
      </div>
      <div class={t === null ? "travel" : "travel past"} role="group" aria-label="Time travel">
        <Button kind="quiet" testid="travel-back" label="One fact back" keys="[" onClick={() => step(-1)}>
          ◂
        </Button>
        <Button
          kind="quiet"
          testid="travel-play"
          label={isPlaying.value ? "Pause" : "Play"}
          onClick={() => {
            isPlaying.value = !isPlaying.value;
          }}
        >
          {isPlaying.value ? "❚❚" : "▶"}
        </Button>
        <Button kind="quiet" testid="travel-on" label="One fact on" keys="]" onClick={() => step(1)}>
          ▸
        </Button>
        <Button
          kind="quiet"
          testid="travel-speed"
          label={`Speed ${speed.value}×`}
          onClick={() => {
            speed.value = speed.value === 1 ? 4 : speed.value === 4 ? 0.25 : 1;
          }}
        >
          {speed.value}×
        </Button>
        <input
          type="range"
          min={0}
          max={Math.max(1, all.length - 1)}
          step={1}
          aria-label="Moment"
          aria-valuetext={t === null ? "now" : clockMs(t)}
          data-testid="travel-range"
          value={
            t === null
              ? Math.max(1, all.length - 1)
              : Math.max(
                  0,
                  all.findLastIndex((one) => one <= t),
                )
          }
          onInput={(event) => {
            isPlaying.value = false;
            const i = Number(event.currentTarget.value);
            i >= all.length - 1 ? travel(null) : travel(all[i] ?? null);
          }}
        />
        <span class="when" data-testid="travel-when">
          {t === null
            ? isRunning
              ? "now"
              : "at its end"
            : `${seq.value ? `row ${seq.value}, ` : ""}${clockMs(t)}`}
        </span>
        {t !== null && (
          <>
            <Mark state={shownStatus} />
            <span class="small">{shownStatus}</span>
          </>
        )}
        <Button kind="quiet" testid="travel-live" disabled={t === null} onClick={() => travel(null)}>
          {isRunning ? "Live" : "End"}
        </Button>
      </div>
    </>
  );
};
