// Many runs at once: those that are marked, and the dialog that says what will happen before it does.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { may, post } from "../api/client.ts";
import { useLoaded } from "../api/live.ts";
import type { Bulk } from "../api/types.ts";
import { go } from "../lib/router.ts";
import { counted, grouped } from "../lib/time.ts";
import { Button, Dialog, Problem, say, sayError } from "../parts/basic.tsx";

export const Marked = ({
  ids,
  onClear,
  onDone,
}: {
  ids: string[];
  onClear: () => void;
  onDone: () => void;
}): JSX.Element => {
  const action = useSignal<"cancel" | "rerun" | null>(null);
  return (
    <div class="bulk" role="region" aria-label="Marked runs" data-testid="bulk">
      <span>{counted(ids.length, "run")} marked</span>
      {ids.length === 2 && (
        <Button testid="bulk-compare" keys="c" onClick={() => go(`/ui/compare/${ids[0]}/${ids[1]}`)}>
          Compare
        </Button>
      )}
      {may("run") && (
        <Button
          testid="bulk-rerun"
          onClick={() => {
            action.value = "rerun";
          }}
        >
          Rerun
        </Button>
      )}
      {may("run") && (
        <Button
          testid="bulk-cancel"
          kind="danger"
          onClick={() => {
            action.value = "cancel";
          }}
        >
          Cancel
        </Button>
      )}
      <Button testid="bulk-clear" kind="quiet" onClick={onClear}>
        Clear
      </Button>
      {action.value && (
        <BulkDialog
          what={{ ids: ids.slice(0, 500) }}
          action={action.value}
          onClose={() => {
            action.value = null;
          }}
          onDone={onDone}
        />
      )}
    </div>
  );
};

// One part of the work on many runs.
const bulk = (
  filter: Record<string, unknown>,
  action: "cancel" | "rerun",
  failed: boolean | undefined,
  cursor: string | undefined,
  preview: boolean,
): Promise<Bulk> =>
  post<Bulk>("/runs/bulk", { filter, action, failed: failed ?? false, preview, cursor, limit: 500 });

export const BulkDialog = ({
  what,
  action,
  failed,
  onClose,
  onDone,
}: {
  what: Record<string, unknown>;
  action: "cancel" | "rerun";
  failed?: boolean;
  onClose: () => void;
  onDone: () => void;
}): JSX.Element => {
  const preview = useLoaded<Bulk>(JSON.stringify([what, action]), () =>
      bulk(what, action, failed, undefined, true),
    ),
    isBusy = useSignal(false),
    done = useSignal(0);
  const act = async (): Promise<void> => {
    isBusy.value = true;
    try {
      let cursor: string | null | undefined,
        good = 0,
        bad = 0;
      do {
        const part: Bulk = await bulk(what, action, failed, cursor ?? undefined, false);
        good += part.items.filter((one) => !one.error).length;
        bad += part.items.filter((one) => one.error).length;
        done.value = good;
        cursor = part.cursor;
      } while (cursor);
      say(
        `${counted(good, "run")} ${action === "cancel" ? "cancelled" : "started again"}${bad ? `; ${counted(bad, "run")} left alone` : ""}.`,
      );
      onDone();
      onClose();
    } catch (error) {
      sayError(error);
      isBusy.value = false;
    }
  };
  const items = preview.data?.items ?? [],
    good = items.filter((one) => !one.error),
    bad = items.filter((one) => one.error);
  return (
    <Dialog title={action === "cancel" ? "Cancel runs" : "Rerun runs"} onClose={onClose} testid="bulk-dialog">
      {preview.error ? (
        <Problem error={preview.error} again={preview.again} />
      ) : preview.data === null ? (
        <p class="dim">Looking which runs this touches …</p>
      ) : (
        <>
          <p>
            {counted(good.length, "run")}
            {preview.data.cursor ? " and more" : ""} will be{" "}
            {action === "cancel" ? "cancelled" : `run again${failed ? ", only what failed" : ""}`}.
            {bad.length > 0 && ` ${counted(bad.length, "run")} will be left alone: ${bad[0]!.message}`}
          </p>
        </>
      )}
      <footer>
        {isBusy.value && <span class="dim">{grouped(done.value)} done</span>}
        <Button testid="bulk-no" onClick={onClose}>
          Back
        </Button>
        <Button
          testid="bulk-yes"
          kind={action === "cancel" ? "danger" : "main"}
          busy={isBusy.value}
          disabled={good.length === 0}
          onClick={() => void act()}
        >
          {action === "cancel" ? "Cancel them" : "Rerun them"}
        </Button>
      </footer>
    </Dialog>
  );
};
