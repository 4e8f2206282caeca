// One run: why is it here, what now? Sentence, graph and timeline as one selection, time travel, drawer.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { e, get, hasKey, keyed, may } from "../api/client.ts";
import type { ApiError } from "../api/client.ts";
import { useLoaded } from "../api/live.ts";
import type { Loaded } from "../api/live.ts";
import { openStream } from "../api/stream.ts";
import type {
  Explanation,
  Page,
  Plan,
  Run,
  RunEvent,
  RunLine,
  Stats,
  Timeline,
  Waiting,
  WaitingPage,
} from "../api/types.ts";
import { useKeys } from "../lib/keys.ts";
import { serverAddress } from "../lib/prefix.ts";
import { go, place, setQuery } from "../lib/router.ts";
import { shortId } from "../lib/text.ts";
import { counted, grouped, now } from "../lib/time.ts";
import { ANSWERED_BY, answerable } from "../model/answerable.ts";
import { commands } from "../model/copy.ts";
import { pastSentence } from "../model/past.ts";
import { courseOf, momentOf } from "../model/replay.ts";
import type { Course } from "../model/replay.ts";
import { calledAt, partlyFailed } from "../model/run.ts";
import { isOpen, sentence } from "../model/words.ts";
import {
  Ago,
  Button,
  CopyAs,
  CopyText,
  Dialog,
  LinkButton,
  Mark,
  Menu,
  Problem,
  State,
  say,
} from "../parts/basic.tsx";
import type { Choice } from "../parts/basic.tsx";
import { Answer } from "../parts/answer.tsx";
import { WorkerHelp } from "../parts/worker_help.tsx";
import { CancelDialog, RerunDialog } from "./run_acts.tsx";
import { RunPanes } from "./run_panes.tsx";
import { Drawer } from "./step.tsx";

export type Seen = { run: Run; course: Course | null; plan: Plan | null; explained: Explanation | null };

// Read the run again when its stream says that something happened; less often the longer a read takes.
const useRun = (
  id: string,
): {
  run: Loaded<Run>;
  course: Loaded<Course>;
  explained: Loaded<Explanation>;
  isLive: boolean;
  logs: RunEvent[];
} => {
  const turn = useSignal(0),
    isLive = useSignal(false),
    logs = useSignal<RunEvent[]>([]),
    took = useRef(0);
  const timed = async <T,>(read: Promise<T>): Promise<T> => {
    const began = performance.now();
    const found = await read;
    took.current = performance.now() - began;
    return found;
  };
  const run = useLoaded<Run>(`run ${id} ${turn.value}`, (signal) =>
    get<Run>(`/runs/${e(id)}`, { values: "head" }, signal),
  );
  const course = useLoaded<Course>(`timeline ${id} ${turn.value}`, (signal) => timed(courseNow(id, signal)));
  const explained = useLoaded<Explanation>(`explain ${id} ${turn.value}`, (signal) =>
    get<Explanation>(`/runs/${e(id)}/explain`, {}, signal),
  );
  const isOver = run.data !== null && !isOpen(run.data.status),
    seq = run.data?.seq,
    isReady = run.data !== null;
  useEffect(() => {
    if (!isReady || isOver) {
      isLive.value = false;
      return;
    }
    let timer = 0,
      last = 0;
    const again = (): void => {
      if (timer) return;
      timer = window.setTimeout(
        () => {
          timer = 0;
          last = Date.now();
          turn.value += 1;
        },
        Math.max(120, last + Math.max(500, took.current * 6) - Date.now()),
      );
    };
    const stream = openStream(
      `/runs/${e(id)}/events`,
      { from: seq },
      (events) => {
        const told = events.filter((one) => one.detail.kind === "log" || one.detail.kind === "progress");
        if (told.length) logs.value = [...logs.value, ...told].slice(-500);
        if (told.length < events.length) again();
      },
      again,
    );
    stream.state.subscribe((state) => {
      isLive.value = state === "live";
      if (state === "off") again();
    });
    return () => {
      clearTimeout(timer);
      stream.close();
    };
  }, [id, isOver, isReady, keyed.value]);
  // A due time is reached without an event that this page hears: look again now and then while the run is open.
  useEffect(() => {
    if (isOver) return;
    const poll = setInterval(() => {
      if (!document.hidden) turn.value += 1;
    }, 10_000);
    return () => clearInterval(poll);
  }, [isOver]);
  return { run, course, explained, isLive: isLive.value, logs: logs.value };
};

const courseNow = async (id: string, signal: AbortSignal): Promise<Course> =>
  courseOf(await get<Timeline>(`/runs/${e(id)}/timeline`, { buckets: 200 }, signal));

export const RunScreen = ({ id }: { id: string }): JSX.Element => {
  const { run, course, explained, isLive, logs } = useRun(id);
  if (run.data === null) {
    if (!run.error)
      return (
        <div class="skeleton" aria-hidden="true">
          <span />
          <span />
          <span />
          <span />
        </div>
      );
    if (run.error.status === 404)
      return (
        <>
          <div class="head">
            <h1>No such run</h1>
          </div>
          <p class="dim" data-testid="run-gone" style={{ marginBottom: "12px" }}>
            There is no run {id} here. It may have been deleted by retention, or belong to another tenant.
          </p>
          <LinkButton to="/ui/runs" testid="run-gone-list">
            All runs
          </LinkButton>
        </>
      );
    return <Problem error={run.error} again={run.again} />;
  }
  // Deleted while it was open: what is known stays, and a sentence says so.
  const isGone = run.error?.status === 404;
  return (
    <Shown
      id={id}
      run={run.data}
      isGone={isGone}
      problem={isGone ? null : run.error}
      course={course}
      explained={explained.data}
      isLive={isLive}
      logs={logs}
    />
  );
};

type ShownProps = {
  id: string;
  run: Run;
  isGone: boolean;
  problem: ApiError | null;
  course: Loaded<Course>;
  explained: Explanation | null;
  isLive: boolean;
  logs: RunEvent[];
};

const Shown = ({ id, run, isGone, problem, course, explained, isLive, logs }: ShownProps): JSX.Element => {
  const chosen = place.value.query.get("step"),
    dialog = useSignal<"" | "cancel" | "rerun" | "answer" | "worker">(""),
    rerunFrom = useSignal(""),
    isMenu = useSignal(false),
    moment = useSignal<number | null>(null);
  const plan = useLoaded<Plan>(`plan ${run.version}`, (signal) =>
    get<Plan>(`/runs/${e(id)}/plan`, {}, signal),
  );
  const stats = useLoaded<Stats | null>(`stats ${run.workflow} ${run.number}`, (signal) =>
    run.number
      ? get<Stats>(`/workflows/${e(run.workflow)}/stats`, { last: 50 }, signal)
      : Promise.resolve(null),
  );
  const partly = useMemo(() => (course.data ? partlyFailed(course.data) : []), [course.data]);
  const words = useMemo(
    () => sentence(run, explained, now.value, (path) => calledAt(plan.data, path), partly),
    [run, explained, plan.data, now.value, partly],
  );
  // In time travel the sentence is that of the moment, and what is so now stands beneath it.
  const past =
    moment.value !== null && course.data && moment.value < course.data.to
      ? { text: pastSentence(course.data, moment.value), status: momentOf(course.data, moment.value).status }
      : null;
  const status = past?.status ?? run.status,
    service = words.acts.includes("worker_help") ? calledAt(plan.data, words.path) : "";
  const choose = (path: string | null): void => setQuery({ step: path });
  useEffect(() => {
    document.title = `${run.status}: ${run.workflow} · Holdfast`;
  }, [run.status, run.workflow]);

  const compare = async (): Promise<void> => {
    try {
      const found = await get<Page<RunLine>>("/runs", {
        workflow: run.workflow,
        status: "completed",
        limit: 20,
      });
      const other =
        found.items.find((one) => one.run_id !== run.run_id && one.created_at < run.created_at) ??
        found.items.find((one) => one.run_id !== run.run_id);
      if (other) go(`/ui/compare/${other.run_id}/${run.run_id}`);
      else say(`No other run of ${run.workflow} has completed yet.`, "bad");
    } catch (error) {
      say((error as Error).message, "bad");
    }
  };
  const rerun = (from: string): void => {
    rerunFrom.value = from;
    dialog.value = "rerun";
  };
  const isOver = !isOpen(run.status),
    mayRun = may("run") && !isGone;
  const waitsForAnswer = answerable(run).some((one) => may(ANSWERED_BY[one.kind]!));
  const acts: Choice[] = [
    ...(isOver && mayRun
      ? [
          { name: "Rerun from the start", act: () => rerun(""), testid: "act-rerun", keys: "r" },
          ...(words.acts.includes("rerun_failed")
            ? [{ name: "Rerun what failed", act: () => rerun("failed"), testid: "act-rerun-failed" }]
            : []),
          ...(chosen
            ? [{ name: `Rerun from ${chosen}`, act: () => rerun(chosen), testid: "act-rerun-from" }]
            : []),
        ]
      : []),
    ...(!isOver && mayRun
      ? [
          {
            name: "Cancel the run",
            act: () => {
              dialog.value = "cancel";
            },
            testid: "act-cancel",
            isDanger: true,
          },
        ]
      : []),
    { name: "Compare with the last good run", act: () => void compare(), testid: "act-compare", keys: "c" },
    { name: "Open the workflow", act: () => go(`/ui/workflows/${e(run.workflow)}`), testid: "act-workflow" },
    {
      name: "All runs of this workflow",
      act: () => go(`/ui/runs?q=${e(`workflow:${run.workflow}`)}`),
      testid: "act-runs",
    },
  ];
  useKeys("Run", [
    {
      keys: ".",
      does: "list the actions",
      act: () => {
        isMenu.value = true;
      },
    },
    { keys: "c", does: "compare with the last good run", act: () => void compare() },
    ...(isOver && mayRun
      ? [{ keys: "r", does: "rerun", act: () => rerun(run.status === "failed" ? "failed" : "") }]
      : []),
    ...(waitsForAnswer
      ? [
          {
            keys: "a",
            does: "answer what it waits for",
            act: () => {
              dialog.value = "answer";
            },
          },
        ]
      : []),
    { keys: "Escape", does: "close the step", act: () => choose(null) },
  ]);

  return (
    <>
      {isGone && (
        <p class="line-note" role="alert" data-testid="run-deleted">
          This run has been deleted. What is shown is the last that was seen of it.
        </p>
      )}
      {problem && <Problem error={problem} />}
      <section
        class={`sentence s-${status}${past ? " past" : ""}`}
        aria-label="Why this run is where it is"
        data-testid="sentence"
      >
        <Mark state={status} />
        <h1 class="words">
          <strong data-testid="sentence-text">{past?.text ?? words.text}</strong>
          {past ? (
            <small data-testid="sentence-now">Now: {words.text}</small>
          ) : (
            words.hint && <small>{isOver ? words.hint : `Unblocked by ${words.hint}`}</small>
          )}
        </h1>
        <div class="acts">
          {waitsForAnswer && (
            <Button
              testid="answer"
              kind="main"
              keys="a"
              onClick={() => {
                dialog.value = "answer";
              }}
            >
              Answer
            </Button>
          )}
          {service && (
            <Button
              testid="worker-how"
              kind="main"
              onClick={() => {
                dialog.value = "worker";
              }}
            >
              How to start a worker
            </Button>
          )}
          {run.status === "failed" && mayRun && (
            <Button testid="rerun-failed" kind="main" keys="r" onClick={() => rerun("failed")}>
              Rerun what failed
            </Button>
          )}
          {run.status === "completed" && words.path && (
            <Button testid="show-failed" keys="f" onClick={() => choose(words.path)}>
              Show what failed
            </Button>
          )}
          {isOver && run.status !== "failed" && mayRun && (
            <Button testid="rerun" keys="r" onClick={() => rerun("")}>
              Rerun
            </Button>
          )}
          {isOver && (
            <Button testid="compare" keys="c" onClick={() => void compare()}>
              Compare
            </Button>
          )}
          {!isOver && mayRun && (
            <Button
              testid="cancel"
              kind="danger"
              onClick={() => {
                dialog.value = "cancel";
              }}
            >
              Cancel
            </Button>
          )}
          <Menu
            label="Actions"
            testid="actions"
            choices={acts}
            open={isMenu.value}
            onOpen={(open) => {
              isMenu.value = open;
            }}
          >
            <span aria-hidden="true">···</span>
          </Menu>
        </div>
      </section>
      <div class="meta">
        <a href={`/ui/workflows/${e(run.workflow)}`} data-testid="run-workflow">
          <b>{run.workflow}</b>
          {run.number ? ` #${run.number}` : ""}
        </a>
        <CopyText text={run.run_id} testid="run-id" label="run id">
          {shortId(run.run_id)}
        </CopyText>
        <State state={status} />
        {!past && (
          <span>
            {grouped(run.progress.completed_steps)} of {counted(run.progress.total_steps, "step")}
          </span>
        )}
        <span>
          started <Ago time={run.started_at ?? run.created_at} />
        </span>
        {run.rerun_of && (
          <span>
            rerun of{" "}
            <a href={`/ui/runs/${run.rerun_of}`} data-testid="rerun-of">
              {shortId(run.rerun_of)}
            </a>
          </span>
        )}
        {run.trigger && (
          <span>
            by schedule{" "}
            <a href={`/ui/schedules?id=${e(run.trigger.schedule_id)}`} data-testid="run-schedule">
              {run.trigger.schedule_id}
            </a>
          </span>
        )}
        {Object.entries(run.labels).map(([name, value]) => (
          <a class="tag" key={name} href={`/ui/runs?q=${e(`label:${name}=${value}`)}`}>
            {name}={value}
          </a>
        ))}
        {!isOver && (
          <span class={`live live-${isLive ? "live" : "connecting"}`}>{isLive ? "live" : "connecting"}</span>
        )}
        <span class="grow" />
        <CopyAs commands={commands(serverAddress(), hasKey()).show(run.run_id)} />
      </div>
      <RunPanes
        run={run}
        plan={plan.data}
        planError={plan.error}
        course={course}
        stats={stats.data ?? null}
        chosen={chosen}
        onChoose={choose}
        moment={moment}
      />
      <Drawer
        key={chosen ?? ""}
        run={run}
        course={course.data}
        path={chosen}
        moment={moment.value}
        logs={logs}
        onRerun={mayRun && isOver ? rerun : null}
        onChoose={choose}
      />
      {dialog.value === "cancel" && (
        <CancelDialog
          run={run}
          onClose={() => {
            dialog.value = "";
          }}
        />
      )}
      {dialog.value === "rerun" && (
        <RerunDialog
          run={run}
          from={rerunFrom.value}
          onClose={() => {
            dialog.value = "";
          }}
        />
      )}
      {dialog.value === "worker" && (
        <WorkerHelp
          service={service}
          onClose={() => {
            dialog.value = "";
          }}
        />
      )}
      {dialog.value === "answer" && (
        <AnswerDialog
          run={run}
          onClose={() => {
            dialog.value = "";
          }}
        />
      )}
    </>
  );
};

const AnswerDialog = ({ run, onClose }: { run: Run; onClose: () => void }): JSX.Element => {
  // What was awaited when the dialog opened stays, and says so when it is over: what was typed for it is not lost.
  const open = answerable(run),
    waits = useMemo(() => answerable(run), []),
    isOpenStill = (wait: Waiting): boolean => open.some((one) => one.path === wait.path);
  const detailed = useLoaded<WaitingPage>(`waits ${run.run_id}`, (signal) =>
    get<WaitingPage>("/waits", { workflow: run.workflow, limit: 500 }, signal),
  );
  return (
    <Dialog
      title={waits.length > 1 ? `${waits.length} answers are awaited` : "Answer"}
      onClose={onClose}
      testid="answer-dialog"
    >
      {waits.slice(0, 20).map((wait) => (
        <Answer
          key={wait.path}
          hasRunLink={false}
          isOver={!isOpenStill(wait)}
          onGone={onClose}
          wait={
            detailed.data?.items.find((one) => one.run_id === run.run_id && one.path === wait.path) ?? wait
          }
        />
      ))}
    </Dialog>
  );
};
