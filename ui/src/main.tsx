// The page begins here: which address shows which screen.
import { render } from "preact";
import type { JSX } from "preact";
import { useEffect, useErrorBoundary } from "preact/hooks";
import { startLive } from "./api/live.ts";
import { startKeys } from "./lib/keys.ts";
import { matched } from "./lib/match.ts";
import { place, startRouter } from "./lib/router.ts";
import { startTheme } from "./lib/theme.ts";
import { startClock } from "./lib/time.ts";
import { Button, LinkButton } from "./parts/basic.tsx";
import { Frame, KEYS, loadMe } from "./screens/frame.tsx";
import { Overview } from "./screens/overview.tsx";
import { Runs } from "./screens/runs.tsx";
import { lazy } from "./lib/lazy.tsx";

const Compare = lazy(async () => (await import("./screens/compare.tsx")).Compare);
const Deliveries = lazy(async () => (await import("./screens/deliveries.tsx")).Deliveries);
const Inbox = lazy(async () => (await import("./screens/inbox.tsx")).Inbox);
const loadRun = async () => (await import("./screens/run.tsx")).RunScreen;
const RunScreen = lazy(loadRun);
const Schedules = lazy(async () => (await import("./screens/schedules.tsx")).Schedules);
const Settings = lazy(async () => (await import("./screens/settings.tsx")).Settings);
const Workers = lazy(async () => (await import("./screens/workers.tsx")).Workers);
const WorkflowScreen = lazy(async () => (await import("./screens/workflow.tsx")).WorkflowScreen);
const Workflows = lazy(async () => (await import("./screens/workflows.tsx")).Workflows);

type Parts = Record<string, string>;
const SCREENS: [string, string, (parts: Parts) => JSX.Element][] = [
  ["", "Overview", () => <Overview />],
  ["/ui", "Overview", () => <Overview />],
  ["/ui/runs", "Runs", () => <Runs />],
  ["/ui/runs/:id", "Run", ({ id }) => <RunScreen key={id} id={id!} />],
  ["/ui/compare/:a/:b", "Compare", ({ a, b }) => <Compare key={`${a} ${b}`} a={a!} b={b!} />],
  ["/ui/inbox", "Inbox", () => <Inbox />],
  ["/ui/workflows", "Workflows", () => <Workflows />],
  ["/ui/workflows/:name", "Workflow", ({ name }) => <WorkflowScreen key={name} name={name!} />],
  ["/ui/schedules", "Schedules", () => <Schedules />],
  ["/ui/workers", "Workers", () => <Workers />],
  ["/ui/deliveries", "Deliveries", () => <Deliveries />],
  ["/ui/settings", "Settings", () => <Settings />],
];

// A mistake in one screen shows a sentence; the header and the other screens stay.
const Safely = ({ show }: { show: () => JSX.Element }): JSX.Element => {
  const [error, reset] = useErrorBoundary((problem) => console.error(problem));
  if (error)
    return (
      <div class="empty" role="alert" data-testid="crashed">
        <h1>Something went wrong</h1>
        <p>This screen met a mistake of ours: {String((error as Error).message ?? error)}</p>
        <Button testid="crashed-again" onClick={reset}>
          Show it again
        </Button>
      </div>
    );
  return show();
};

const Page = (): JSX.Element => {
  const path = place.value.path;
  let shown: { title: string; show: () => JSX.Element } | null = null;
  for (const [pattern, title, screen] of SCREENS) {
    const parts = matched(pattern, path);
    if (parts) {
      shown = { title, show: () => screen(parts) };
      break;
    }
  }
  useEffect(() => {
    document.title = `${shown?.title ?? "Not found"} · Holdfast`;
  }, [path]);
  return (
    <Frame>
      {shown ? (
        <Safely key={path} show={shown.show} />
      ) : (
        <div class="empty" data-testid="not-found">
          <h1>Not found</h1>
          <p>There is no screen at {path}.</p>
          <LinkButton to="/" testid="not-found-home">
            Overview
          </LinkButton>
        </div>
      )}
    </Frame>
  );
};

startTheme();
startRouter();
startKeys("Everywhere", KEYS);
startClock();
void loadMe().finally(startLive);
render(<Page />, document.getElementById("page")!);
// The screen that is opened next most often is there before it is asked for.
(window.requestIdleCallback ?? setTimeout)(() => void loadRun().catch(() => undefined));
