// When next, why not then? Next fires, the ledger as a strip, pause, fire, backfill after a preview.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { e, get, hasKey, may, post } from "../api/client.ts";
import type { ApiError } from "../api/client.ts";
import { useLoaded } from "../api/live.ts";
import type {
  Backfill,
  LedgerLine,
  NextFires,
  Page,
  Schedule,
  ScheduleLine,
  WhyReport,
} from "../api/types.ts";
import { useKeys } from "../lib/keys.ts";
import { serverAddress } from "../lib/prefix.ts";
import { go, place, setQuery } from "../lib/router.ts";
import { at, clock, counted, day, exact, grouped, now, roughly, when } from "../lib/time.ts";
import { shortId } from "../lib/text.ts";
import { commands } from "../model/copy.ts";
import { BrokenFiles } from "../parts/broken_files.tsx";
import {
  Ago,
  Button,
  CopyAs,
  Dialog,
  Empty,
  In,
  Mark,
  Problem,
  Shown,
  say,
  sayError,
} from "../parts/basic.tsx";

const STATE: Record<string, string> = {
  active: "completed",
  paused: "waiting",
  disabled: "cancelled",
  ended: "cancelled",
};
const OUTCOME: Record<string, string> = {
  fired: "completed",
  skipped: "cancelled",
  failed: "failed",
  buffered: "waiting",
  waiting: "waiting",
  undecided: "pending",
  will_fire: "ready",
  will_not_fire: "cancelled",
  not_due: "pending",
  unknown: "pending",
};

export const Schedules = (): JSX.Element => {
  const list = useLoaded<Page<ScheduleLine>>(
      "schedules",
      (signal) => get<Page<ScheduleLine>>("/schedules", { limit: 500 }, signal),
      { everyMs: 3000, pollMs: 15_000 },
    ),
    id = place.value.query.get("id");
  const items = list.data?.items ?? [],
    current = items.find((one) => one.id === id) ?? items[0];
  const move = (by: number): void => {
    const i = items.findIndex((one) => one.id === current?.id),
      next = items[Math.min(items.length - 1, Math.max(0, i + by))];
    if (next) {
      setQuery({ id: next.id });
      requestAnimationFrame(() =>
        document.querySelector<HTMLElement>('.inbox-item[aria-current="true"]')?.focus(),
      );
    }
  };
  useKeys("Schedules", [
    { keys: "j, ArrowDown", does: "next schedule", act: () => move(1) },
    { keys: "k, ArrowUp", does: "schedule before", act: () => move(-1) },
  ]);
  return (
    <>
      <div class="head">
        <h1>Schedules</h1>
      </div>
      <BrokenFiles of="schedules" />
      <Shown of={list} testid="schedules">
        {() =>
          items.length === 0 ? (
            <Empty testid="schedules-empty" command="holdfast up --schedules FOLDER">
              There is no schedule. A server reads them from files:
            </Empty>
          ) : (
            <div class="split">
              <div class="list-box" role="list" aria-label="Schedules">
                {items.map((one) => (
                  <div role="listitem" key={one.id}>
                    <button
                      type="button"
                      class={`inbox-item s-${STATE[one.status]}`}
                      data-testid={`schedule-${one.id}`}
                      aria-current={one.id === current?.id ? "true" : undefined}
                      onClick={() => setQuery({ id: one.id })}
                    >
                      <Mark state={one.failures > 0 ? "failed" : (STATE[one.status] ?? null)} />
                      <span class="what">{one.id}</span>
                      <span class="where">{one.words.join("; ") || one.kind}</span>
                      <span class="left">
                        {one.status === "active" ? (
                          one.next_at ? (
                            <In time={one.next_at} />
                          ) : (
                            one.kind
                          )
                        ) : (
                          one.status
                        )}
                      </span>
                    </button>
                  </div>
                ))}
              </div>
              {current && <ScheduleView key={current.id} line={current} onChanged={list.again} />}
            </div>
          )
        }
      </Shown>
    </>
  );
};

const ScheduleView = ({ line, onChanged }: { line: ScheduleLine; onChanged: () => void }): JSX.Element => {
  const path = `/schedules/${e(line.id)}`,
    turn = `${line.status} ${line.next_at}`;
  const detail = useLoaded<Schedule>(`schedule ${line.id} ${turn}`, (signal) =>
    get<Schedule>(path, {}, signal),
  );
  const next = useLoaded<NextFires>(`next ${line.id} ${turn}`, (signal) =>
    get<NextFires>(`${path}/next`, { limit: 8 }, signal),
  );
  const ledger = useLoaded<Page<LedgerLine>>(
    `ledger ${line.id} ${turn}`,
    (signal) => get<Page<LedgerLine>>(`${path}/ledger`, { limit: 100 }, signal),
    { everyMs: 3000 },
  );
  const isBackfill = useSignal(false),
    isBusy = useSignal(false),
    asked = useSignal(""),
    chosen = useSignal<LedgerLine | null>(null);
  const act = async (
    what: string,
    body: unknown,
    done: (found: { run_id?: string }) => void,
  ): Promise<void> => {
    isBusy.value = true;
    try {
      done(await post<{ run_id?: string }>(`${path}/${what}`, body));
      onChanged();
    } catch (error) {
      sayError(error);
    } finally {
      isBusy.value = false;
    }
  };
  const mayRun = may("run");
  return (
    <div style={{ display: "grid", gap: "16px", minWidth: 0 }}>
      <section class="card" aria-label={`Schedule ${line.id}`}>
        <header>
          <h2 class="grow cut">{line.id}</h2>
          <span class={`pill s-${STATE[line.status]}`}>{line.status}</span>
        </header>
        <div class="in" style={{ display: "grid", gap: "12px" }}>
          <p>
            Starts{" "}
            <a href={`/ui/workflows/${e(line.workflow)}`} data-testid="schedule-workflow">
              {line.workflow}
            </a>
            : {line.words.join("; ") || line.kind}
            {detail.data && !line.words.some((one) => one.includes(detail.data!.timezone))
              ? ` (${detail.data.timezone})`
              : ""}
            .
          </p>
          {line.status === "paused" && detail.data?.paused_since && (
            <p data-testid="schedule-paused">
              Paused <Ago time={detail.data.paused_since} />
              {detail.data.paused_because && `: ${detail.data.paused_because}`}
            </p>
          )}
          {line.last_error && (
            <p class="bad">
              {counted(line.failures, "failure")} in a row: {line.last_error}
            </p>
          )}
          <div class="row">
            {mayRun && line.status === "active" && (
              <Button
                testid="schedule-pause"
                busy={isBusy.value}
                onClick={() => void act("pause", {}, () => say(`${line.id} is paused.`))}
              >
                Pause
              </Button>
            )}
            {mayRun && line.status === "paused" && (
              <>
                <Button
                  testid="schedule-resume"
                  kind="main"
                  busy={isBusy.value}
                  onClick={() => void act("resume", {}, () => say(`${line.id} goes on.`))}
                >
                  Resume
                </Button>
                <Button
                  testid="schedule-resume-missed"
                  busy={isBusy.value}
                  onClick={() =>
                    void act("resume", { missed: true }, () => say(`${line.id} goes on, and catches up.`))
                  }
                >
                  Resume and catch up
                </Button>
              </>
            )}
            {mayRun && (
              <Button
                testid="schedule-fire"
                busy={isBusy.value}
                onClick={() =>
                  void act("fire", {}, (found) =>
                    say(
                      "Fired.",
                      "good",
                      found.run_id ? { to: `/ui/runs/${found.run_id}`, text: "Open the run" } : undefined,
                    ),
                  )
                }
              >
                Fire now
              </Button>
            )}
            {mayRun && (
              <Button
                testid="schedule-backfill"
                onClick={() => {
                  isBackfill.value = true;
                }}
              >
                Backfill
              </Button>
            )}
            <Button
              testid="schedule-runs"
              kind="quiet"
              onClick={() => go(`/ui/runs?q=${e(`workflow:${line.workflow}`)}`)}
            >
              Its runs
            </Button>
            <span class="grow" />
            <CopyAs testid="schedule-copy" commands={commands(serverAddress(), hasKey()).schedule(line.id)} />
          </div>
          {line.origin !== "api" && (
            <p class="dim small">
              It comes from{" "}
              {line.origin === "file"
                ? `the file ${line.source}; change it there`
                : `${line.origin} ${line.source}`}
              .
            </p>
          )}
        </div>
      </section>
      <section class="card" aria-label="What became of each occurrence">
        <header>
          <h2>Ledger</h2>
          <span class="dim small">what became of each occurrence, newest at the right</span>
        </header>
        <div class="in">
          <Shown of={ledger} lines={2} testid="ledger">
            {(page) =>
              page.items.length === 0 ? (
                <p class="dim">Nothing has been due yet.</p>
              ) : (
                <>
                  <div class="ledger" data-testid="ledger-strip">
                    {[...page.items].reverse().map((one) => {
                      const label = `${one.outcome}${one.count > 1 ? ` ${one.count} occurrences` : ""}, ${when(at(one.scheduled_at), now.value, true)}${one.reason ? `: ${one.reason.replaceAll("_", " ")}` : ""}`;
                      return (
                        <button
                          type="button"
                          key={`${one.occurrence} ${one.slot}`}
                          class={`s-${OUTCOME[one.outcome]} o-${one.outcome}`}
                          title={label}
                          aria-label={label}
                          data-testid={`ledger-${one.occurrence}`}
                          onClick={() => {
                            chosen.value = one;
                          }}
                        />
                      );
                    })}
                  </div>
                  <LedgerFacts line={chosen.value ?? page.items[0]!} />
                </>
              )
            }
          </Shown>
        </div>
      </section>
      <section class="card" aria-label="Next fires">
        <header>
          <h2>Next</h2>
        </header>
        <Shown of={next} lines={4} testid="next">
          {(found) =>
            found.items.length === 0 ? (
              <p class="dim" style={{ padding: "12px" }}>
                {found.never_fires ? "It never fires again." : "It has no clock: an event makes it fire."}
              </p>
            ) : (
              <table class="list" style={{ border: 0 }}>
                <caption class="sr">Next fires</caption>
                <colgroup>
                  <col style={{ width: "172px" }} />
                  <col style={{ width: "172px" }} />
                  <col style={{ width: "64px" }} />
                  <col />
                </colgroup>
                <thead>
                  <tr>
                    <th scope="col">In {found.timezone}</th>
                    <th scope="col">Here</th>
                    <th scope="col" class="num">
                      Left
                    </th>
                    <th scope="col">Note</th>
                  </tr>
                </thead>
                <tbody>
                  {found.items.map((one) => (
                    <tr key={one.at}>
                      <td title={one.local}>{one.local.slice(0, 19).replace("T", " ")}</td>
                      <td title={exact(at(one.at))}>
                        {day(at(one.at))} {clock(at(one.at))}
                      </td>
                      <td class="num">{at(one.at) > now.value ? roughly(at(one.at) - now.value) : "now"}</td>
                      <td class="dim" title={one.note}>
                        {one.fires_at === null ? "does not fire; " : ""}
                        {one.note}
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            )
          }
        </Shown>
      </section>
      <section class="card" aria-label="Why not then?">
        <header>
          <h2>Why not then?</h2>
          <span class="grow" />
          <CopyAs
            testid="why-copy"
            commands={commands(serverAddress(), hasKey()).why(line.id, asked.value)}
          />
        </header>
        <div class="in">
          <Why
            id={line.id}
            asked={asked.value}
            onAsk={(text) => {
              asked.value = text;
            }}
          />
        </div>
      </section>
      {isBackfill.value && (
        <BackfillDialog
          id={line.id}
          onClose={() => {
            isBackfill.value = false;
          }}
          onDone={onChanged}
        />
      )}
    </div>
  );
};

const LedgerFacts = ({ line }: { line: LedgerLine }): JSX.Element => (
  <dl class="facts" style={{ marginTop: "12px" }} data-testid="ledger-line">
    <dt>Due</dt>
    <dd title={exact(at(line.scheduled_at))}>
      {when(at(line.scheduled_at), now.value, true)}
      {line.until && ` to ${when(at(line.until), now.value, true)}, ${counted(line.count, "occurrence")}`}
      {line.is_catchup && ", caught up"}
    </dd>
    <dt>Outcome</dt>
    <dd>
      {line.message.startsWith(line.outcome)
        ? line.message
        : `${line.outcome}${line.reason && `, ${line.reason.replaceAll("_", " ")}`}${line.message && `: ${line.message}`}`}
    </dd>
    {line.run_id && (
      <>
        <dt>Run</dt>
        <dd>
          <a href={`/ui/runs/${line.run_id}`} data-testid="ledger-run">
            {shortId(line.run_id)}
          </a>
        </dd>
      </>
    )}
    <dt>Decided</dt>
    <dd>
      <Ago time={line.decided_at} />
    </dd>
  </dl>
);

const Why = ({
  id,
  asked,
  onAsk,
}: {
  id: string;
  asked: string;
  onAsk: (text: string) => void;
}): JSX.Element => {
  const text = useSignal(asked);
  const why = useLoaded<WhyReport>(`why ${id} ${asked}`, (signal) =>
    get<WhyReport>(`/schedules/${e(id)}/why`, { when: asked || undefined, limit: 10 }, signal),
  );
  return (
    <div style={{ display: "grid", gap: "10px" }}>
      <form
        class="row"
        onSubmit={(event) => {
          event.preventDefault();
          onAsk(text.value.trim());
        }}
      >
        <label for="why-when">When</label>
        <input
          id="why-when"
          data-testid="why-when"
          placeholder="2026-11-18, 2026-11-18T07:30, or empty for the latest"
          style={{ flex: 1, minWidth: "180px" }}
          value={text.value}
          onInput={(event) => {
            text.value = event.currentTarget.value;
          }}
        />
        <Button testid="why-ask" submit>
          Ask
        </Button>
      </form>
      <Shown of={why} lines={2} testid="why">
        {(found) =>
          (asked ? found.items : found.items.filter((one) => one.outcome !== "fired")).length === 0 ? (
            <p class="dim">
              {asked
                ? "Nothing is known of that time."
                : found.items.length === 0
                  ? "Nothing was due lately. Ask about a date or a time:"
                  : "Every recent occurrence fired. Ask about a date or a time:"}
            </p>
          ) : (
            <ul>
              {(asked ? found.items : found.items.filter((one) => one.outcome !== "fired")).map((one, i) => (
                <li
                  class={`need s-${OUTCOME[one.outcome] ?? "pending"}`}
                  key={i}
                  style={{ paddingInline: 0 }}
                >
                  <Mark state={OUTCOME[one.outcome] ?? null} />
                  <span class="grow">
                    <b>{one.outcome.replaceAll("_", " ")}</b> {one.local || one.occurrence}
                    {one.count > 1 ? `, ${grouped(one.count)} times` : ""}: {one.message}
                    {one.hint && <span class="dim"> {one.hint}</span>}
                    {one.warnings?.map((text) => (
                      <span class="dim" key={text}>
                        {" "}
                        {text}
                      </span>
                    ))}
                  </span>
                  {one.run_id && <a href={`/ui/runs/${one.run_id}`}>{shortId(one.run_id)}</a>}
                </li>
              ))}
            </ul>
          )
        }
      </Shown>
    </div>
  );
};

const BackfillDialog = ({
  id,
  onClose,
  onDone,
}: {
  id: string;
  onClose: () => void;
  onDone: () => void;
}): JSX.Element => {
  const from = useSignal(day(now.value - 86_400_000)),
    to = useSignal(day(now.value)),
    preview = useSignal<Backfill | null>(null),
    problem = useSignal<ApiError | null>(null),
    isBusy = useSignal(false);
  const send = async (isPreview: boolean): Promise<void> => {
    isBusy.value = true;
    problem.value = null;
    try {
      const found = await post<Backfill>(`/schedules/${e(id)}/backfill`, {
        from: from.value,
        to: to.value,
        preview: isPreview,
      });
      if (isPreview) preview.value = found;
      else {
        say(
          `${counted(found.count, "occurrence")} of ${id} ${found.count === 1 ? "is" : "are"} being started.`,
        );
        onDone();
        onClose();
      }
    } catch (error) {
      problem.value = error as ApiError;
    } finally {
      isBusy.value = false;
    }
  };
  const changed = (): void => {
    preview.value = null;
  };
  return (
    <Dialog title={`Backfill ${id}`} testid="backfill" onClose={onClose}>
      <form
        class="fields"
        onSubmit={(event) => {
          event.preventDefault();
          void send(preview.value === null);
        }}
      >
        <p>
          Starts the occurrences of a stretch of time that have no run. Dates are meant in the zone of the
          schedule.
        </p>
        <div class="grid2">
          <div class="field">
            <label for="backfill-from">From</label>
            <input
              id="backfill-from"
              data-testid="backfill-from"
              required
              value={from.value}
              onInput={(event) => {
                from.value = event.currentTarget.value;
                changed();
              }}
            />
          </div>
          <div class="field">
            <label for="backfill-to">To, included</label>
            <input
              id="backfill-to"
              data-testid="backfill-to"
              required
              value={to.value}
              onInput={(event) => {
                to.value = event.currentTarget.value;
                changed();
              }}
            />
          </div>
        </div>
        {problem.value && <Problem error={problem.value} />}
        {preview.value && (
          <div data-testid="backfill-preview">
            <p>
              <b>{counted(preview.value.count, "occurrence")}</b> would start;{" "}
              {grouped(preview.value.settled)} have a run already.
            </p>
            <ul class="mono small" style={{ maxHeight: "160px", overflow: "auto" }} tabIndex={0}>
              {preview.value.items.map((one) => (
                <li key={one}>{one}</li>
              ))}
            </ul>
          </div>
        )}
        <footer>
          <CopyAs
            testid="backfill-copy"
            commands={commands(serverAddress(), hasKey()).backfill(id, from.value, to.value)}
          />
          <span class="grow" />
          <Button testid="backfill-no" onClick={onClose}>
            Back
          </Button>
          {preview.value === null ? (
            <Button testid="backfill-look" kind="main" submit busy={isBusy.value}>
              Preview
            </Button>
          ) : (
            <Button
              testid="backfill-yes"
              kind="main"
              submit
              busy={isBusy.value}
              disabled={preview.value.count === 0}
            >
              Start {grouped(preview.value.count)}
            </Button>
          )}
        </footer>
      </form>
    </Dialog>
  );
};
