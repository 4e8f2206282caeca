// What a person does to a run: cancel it, run it again after a preview.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { e, hasKey, post } from "../api/client.ts";
import type { ApiError } from "../api/client.ts";
import { useLoaded } from "../api/live.ts";
import type { Json, Run } from "../api/types.ts";
import { serverAddress } from "../lib/prefix.ts";
import { go } from "../lib/router.ts";
import { commands, rerunBody } from "../model/copy.ts";
import { counted } from "../lib/time.ts";
import { Button, CopyAs, Dialog, Mark, Problem, say, sayError } from "../parts/basic.tsx";

export const CancelDialog = ({ run, onClose }: { run: Run; onClose: () => void }): JSX.Element => {
  const reason = useSignal(""),
    isBusy = useSignal(false);
  const act = async (event: Event): Promise<void> => {
    event.preventDefault();
    isBusy.value = true;
    try {
      await post(`/runs/${e(run.run_id)}/cancel`, { reason: reason.value });
      say("The run is being cancelled.");
      onClose();
    } catch (error) {
      sayError(error);
      isBusy.value = false;
    }
  };
  return (
    <Dialog title={`Cancel ${run.workflow}?`} onClose={onClose} testid="cancel-dialog">
      <form onSubmit={(event) => void act(event)} class="fields">
        <p>
          Steps that are running have a moment to stop. A cancelled run cannot go on; it can be run again.
        </p>
        <div class="field">
          <label for="cancel-reason">Reason</label>
          <input
            id="cancel-reason"
            data-testid="cancel-reason"
            maxLength={1000}
            value={reason.value}
            onInput={(event) => {
              reason.value = event.currentTarget.value;
            }}
          />
        </div>
        <footer>
          <CopyAs
            testid="cancel-copy"
            commands={commands(serverAddress(), hasKey()).cancel(run.run_id, reason.value)}
          />
          <span class="grow" />
          <Button testid="cancel-no" onClick={onClose}>
            Back
          </Button>
          <Button testid="cancel-yes" kind="danger" submit busy={isBusy.value}>
            Cancel the run
          </Button>
        </footer>
      </form>
    </Dialog>
  );
};

// `from` as in rerunBody.
export const RerunDialog = ({
  run,
  from,
  onClose,
}: {
  run: Run;
  from: string;
  onClose: () => void;
}): JSX.Element => {
  const body = rerunBody(from),
    isBusy = useSignal(false),
    isChanging = useSignal(false),
    text = useSignal(JSON.stringify(run.inputs ?? {}, null, 2)),
    problem = useSignal<ApiError | null>(null);
  const preview = useLoaded<{ copied: string[]; runs: string[] }>(`preview ${run.run_id} ${from}`, () =>
    post(`/runs/${e(run.run_id)}/rerun`, { ...body, preview: true }),
  );
  const bad = isChanging.value ? badJson(text.value) : "";
  const act = async (event: Event): Promise<void> => {
    event.preventDefault();
    isBusy.value = true;
    problem.value = null;
    try {
      const inputs = isChanging.value ? (JSON.parse(text.value) as Json) : undefined;
      const made = await post<{ run_id: string }>(`/runs/${e(run.run_id)}/rerun`, { ...body, inputs });
      say("A new run has started.");
      onClose();
      go(`/ui/runs/${made.run_id}`);
    } catch (error) {
      problem.value = error as ApiError;
      isBusy.value = false;
    }
  };
  const title =
    from === ""
      ? "Rerun from the start"
      : from === "failed"
        ? "Rerun what failed"
        : from.startsWith("failed:")
          ? `Rerun the failed items of ${from.slice(7)}`
          : `Rerun from ${from}`;
  return (
    <Dialog title={title} onClose={onClose} testid="rerun-dialog" wide>
      <form onSubmit={(event) => void act(event)} class="fields">
        <p>A new run starts with the same version. The old one stays as it is.</p>
        {preview.error ? (
          <Problem error={preview.error} again={preview.again} />
        ) : preview.data ? (
          <div class="grid2">
            <section>
              <h3 class="row">
                <Mark state="completed" /> {counted(preview.data.copied.length, "outcome")} copied
              </h3>
              <Paths paths={preview.data.copied} none="Nothing is copied." />
            </section>
            <section>
              <h3 class="row">
                <Mark state="ready" /> Done again
              </h3>
              <Paths paths={preview.data.runs} none="Nothing would run again." />
            </section>
          </div>
        ) : (
          <p class="dim">Looking what would run again …</p>
        )}
        <div class="field check">
          <input
            type="checkbox"
            id="rerun-change"
            data-testid="rerun-change"
            checked={isChanging.value}
            onChange={(event) => {
              isChanging.value = event.currentTarget.checked;
            }}
          />
          <label for="rerun-change">Change the inputs</label>
        </div>
        {isChanging.value && (
          <div class="field">
            <label for="rerun-inputs">Inputs, as JSON</label>
            <textarea
              id="rerun-inputs"
              data-testid="rerun-inputs"
              class="mono"
              rows={8}
              spellcheck={false}
              value={text.value}
              onInput={(event) => {
                text.value = event.currentTarget.value;
              }}
            />
            {bad && <small class="bad">{bad}</small>}
          </div>
        )}
        {problem.value && <Problem error={problem.value} />}
        <footer>
          {!isChanging.value && (
            <CopyAs
              testid="rerun-copy"
              commands={commands(serverAddress(), hasKey()).rerun(run.run_id, from)}
            />
          )}
          <span class="grow" />
          <Button testid="rerun-no" onClick={onClose}>
            Back
          </Button>
          <Button
            testid="rerun-yes"
            kind="main"
            submit
            busy={isBusy.value}
            disabled={bad !== "" || preview.data === null}
          >
            Start the new run
          </Button>
        </footer>
      </form>
    </Dialog>
  );
};
const badJson = (text: string): string => {
  try {
    const value = JSON.parse(text) as unknown;
    return value !== null && typeof value === "object" && !Array.isArray(value)
      ? ""
      : "Inputs are an object.";
  } catch (error) {
    return `This is not JSON: ${(error as Error).message}`;
  }
};
const Paths = ({ paths, none }: { paths: string[]; none: string }): JSX.Element =>
  paths.length ? (
    <ul class="mono small" style={{ maxHeight: "180px", overflow: "auto" }} tabIndex={0}>
      {paths.slice(0, 200).map((one) => (
        <li key={one}>{one}</li>
      ))}
      {paths.length > 200 && <li class="dim">and {paths.length - 200} more</li>}
    </ul>
  ) : (
    <p class="dim small">{none}</p>
  );
