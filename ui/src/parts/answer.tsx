// Answering what waits: an approval with its form, a signal, the result of a task. Typed input stays until it is accepted.
import { useSignal } from "@preact/signals";
import type { Signal as Held } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { ApiError, ask, e, hasKey, may, me, post } from "../api/client.ts";
import type { Json, Link, Waiting } from "../api/types.ts";
import { serverAddress } from "../lib/prefix.ts";
import { SchemaForm, defaultsOf } from "../draw/form.tsx";
import type { Values } from "../draw/form.tsx";
import { useKeys } from "../lib/keys.ts";
import { at, exact, now, roughly } from "../lib/time.ts";
import { commands } from "../model/copy.ts";
import { signalNames, waitingTitle } from "../model/words.ts";
import { Button, CopyAs, CopyLine, Mark, say, sayError } from "./basic.tsx";

// `isOver`: the wait ended while its form was open. `onGone` is called when the wait has ended and the person has seen it.
type Props = { wait: Waiting; isOver: boolean; onGone: () => void };
type Parts = Props & { isBusy: Held<boolean> };

export const Answer = ({
  wait,
  isOver,
  onGone,
  hasRunLink = true,
}: Props & { hasRunLink?: boolean }): JSX.Element => {
  const isBusy = useSignal(false);
  return (
    <article
      class="card answer"
      aria-label={waitingTitle(wait)}
      data-testid={`wait-${wait.run_id}-${wait.path}`}
    >
      <header>
        <Mark state="waiting" />
        <span class="grow cut">
          <b>{wait.workflow}</b>
          {wait.number ? ` #${wait.number}` : ""} <code class="dim">{wait.path}</code>
        </span>
        {wait.until && !isOver && (
          <span class="dim small" title={exact(at(wait.until))}>
            {at(wait.until) > now.value ? `${roughly(at(wait.until) - now.value)} left` : "due now"}
          </span>
        )}
      </header>
      <div class="in" style={{ display: "grid", gap: "12px" }}>
        <p class="prompt">{waitingTitle(wait)}</p>
        {isOver && !isBusy.value && (
          <div class="over-note" role="alert" data-testid="answer-over">
            <p>Another answer came first, or the run has ended. What you typed was not sent.</p>
            <Button testid="answer-next" onClick={onGone}>
              Go on
            </Button>
          </div>
        )}
        {wait.kind === "approval" ? (
          <Approval wait={wait} isOver={isOver} isBusy={isBusy} onGone={onGone} />
        ) : wait.kind === "signal" || wait.kind === "condition" ? (
          <Signal wait={wait} isOver={isOver} isBusy={isBusy} onGone={onGone} />
        ) : wait.kind === "callback" ? (
          <Deliver wait={wait} isOver={isOver} isBusy={isBusy} onGone={onGone} />
        ) : (
          <p class="dim">It goes on by itself when the step that holds the key has ended.</p>
        )}
        <div class="row small">
          {hasRunLink && (
            <a href={`/ui/runs/${wait.run_id}?step=${e(wait.path)}`} data-testid="wait-run">
              Open the run
            </a>
          )}
          {wait.kind === "approval" && (
            <CopyAs
              testid="wait-copy"
              commands={commands(serverAddress(), hasKey()).approve(wait.run_id, wait.path)}
            />
          )}
        </div>
      </div>
    </article>
  );
};

const gone = (error: unknown, onGone: () => void): void => {
  if (error instanceof ApiError && (error.status === 409 || error.status === 404)) {
    say(`Another answer came first: ${error.message}`, "bad");
    onGone();
  } else sayError(error);
};

const Approval = ({ wait, isOver, isBusy, onGone }: Parts): JSX.Element => {
  const values = useSignal<Values>(defaultsOf(wait.form)),
    reason = useSignal(""),
    bad = useSignal(""),
    link = useSignal<Link | null>(null);
  const first = useRef<HTMLDivElement>(null);
  useEffect(() => {
    values.value = defaultsOf(wait.form);
    reason.value = "";
    link.value = null;
  }, [wait.run_id, wait.path]);
  const mayAnswer = wait.may_answer && may("approve");
  const answer = async (approved: boolean): Promise<void> => {
    if (!mayAnswer || isOver || isBusy.value) return;
    if (approved && bad.value) {
      say(bad.value, "bad");
      return;
    }
    isBusy.value = true;
    try {
      const done = await post<{ decided: boolean }>(`/runs/${wait.run_id}/approvals/${e(wait.path)}`, {
        approved,
        reason: reason.value || undefined,
        form: approved && wait.form ? values.value : undefined,
      });
      say(done.decided ? (approved ? "Approved." : "Denied.") : "Counted; more answers are needed.");
      onGone();
    } catch (error) {
      gone(error, onGone);
    } finally {
      isBusy.value = false;
    }
  };
  const makeLink = async (): Promise<void> => {
    try {
      link.value = await post<Link>(`/runs/${wait.run_id}/approvals/${e(wait.path)}/links`, {});
    } catch (error) {
      sayError(error);
    }
  };
  useKeys(
    "Approval",
    mayAnswer
      ? [
          { keys: "a", does: "approve", act: () => void answer(true) },
          { keys: "d", does: "deny", act: () => void answer(false) },
          {
            keys: "i",
            does: "fill in the form",
            act: () => first.current?.querySelector<HTMLElement>("input,textarea,select")?.focus(),
          },
        ]
      : [],
  );
  const of = Array.isArray(wait.detail["of"]) ? (wait.detail["of"] as unknown[]).map(String) : [];
  return (
    <div ref={first} style={{ display: "grid", gap: "12px" }}>
      {wait.answers.need > 1 && (
        <p class="dim small">
          {wait.answers.have} of {wait.answers.need} answered
          {wait.answers.by.length ? `: ${wait.answers.by.join(", ")}` : ""}
        </p>
      )}
      {of.length > 0 && <p class="dim small">May be answered by {of.join(", ")}.</p>}
      {wait.form && mayAnswer && (
        <SchemaForm
          schema={wait.form}
          values={values.value}
          onValues={(next) => {
            values.value = next;
          }}
          onBad={(problem) => {
            bad.value = problem;
          }}
          testid="answer-form"
          key={`${wait.run_id}${wait.path}`}
        />
      )}
      {mayAnswer ? (
        <>
          <div class="field">
            <label for="answer-reason">Reason</label>
            <input
              id="answer-reason"
              data-testid="answer-reason"
              type="text"
              maxLength={10000}
              value={reason.value}
              onInput={(event) => {
                reason.value = event.currentTarget.value;
              }}
            />
          </div>
          <div class="row">
            <Button
              testid="approve"
              kind="main"
              keys="a"
              busy={isBusy.value}
              disabled={isOver}
              onClick={() => void answer(true)}
            >
              Approve
            </Button>
            <Button
              testid="deny"
              kind="danger"
              keys="d"
              busy={isBusy.value}
              disabled={isOver}
              onClick={() => void answer(false)}
            >
              Deny
            </Button>
            {me.value?.public_url && !isOver && (
              <Button testid="make-link" kind="quiet" onClick={() => void makeLink()}>
                Link for another person
              </Button>
            )}
          </div>
        </>
      ) : (
        <p class="dim">
          {may("approve")
            ? "This key's owner may not answer this approval."
            : "Your key lacks the scope approve."}
        </p>
      )}
      {link.value && <CopyLine text={link.value.url} testid="link-copy" />}
    </div>
  );
};

const JsonField = ({
  id,
  label,
  text,
  onText,
}: {
  id: string;
  label: string;
  text: string;
  onText: (text: string) => void;
}): JSX.Element => (
  <div class="field">
    <label for={id}>{label}</label>
    <textarea
      id={id}
      data-testid={id}
      class="mono"
      rows={3}
      spellcheck={false}
      value={text}
      onInput={(event) => onText(event.currentTarget.value)}
    />
    {problemOf(text) && <small class="bad">{problemOf(text)}</small>}
  </div>
);
const problemOf = (text: string): string => {
  if (!text.trim()) return "";
  try {
    JSON.parse(text);
    return "";
  } catch (error) {
    return `This is not JSON: ${(error as Error).message}`;
  }
};
const valueOf = (text: string): Json => (text.trim() ? (JSON.parse(text) as Json) : null);

const Signal = ({ wait, isOver, isBusy, onGone }: Parts): JSX.Element => {
  const names = signalNames(wait),
    name = useSignal(names[0] ?? ""),
    text = useSignal("");
  const correlation =
    typeof wait.detail["correlation"] === "string" && wait.detail["correlation"]
      ? wait.detail["correlation"]
      : undefined;
  const send = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (problemOf(text.value)) return;
    isBusy.value = true;
    try {
      await post(`/runs/${wait.run_id}/signals`, {
        key: name.value,
        value: valueOf(text.value),
        correlation,
      });
      say(`Signal ${name.value} sent.`);
      onGone();
    } catch (error) {
      gone(error, onGone);
    } finally {
      isBusy.value = false;
    }
  };
  if (!may("run")) return <p class="dim">Your key lacks the scope run.</p>;
  return (
    <form onSubmit={(event) => void send(event)} class="fields">
      <div class="field">
        <label for="signal-name">Signal</label>
        <input
          id="signal-name"
          data-testid="signal-name"
          list="signal-names"
          value={name.value}
          onInput={(event) => {
            name.value = event.currentTarget.value;
          }}
        />
        <datalist id="signal-names">
          {names.map((one) => (
            <option key={one} value={one} />
          ))}
        </datalist>
      </div>
      <JsonField
        id="signal-value"
        label="Value, as JSON; empty is null"
        text={text.value}
        onText={(next) => {
          text.value = next;
        }}
      />
      <div class="row">
        <Button testid="send-signal" kind="main" submit busy={isBusy.value} disabled={isOver}>
          Send the signal
        </Button>
        {problemOf(text.value) === "" && (
          <CopyAs
            testid="signal-copy"
            commands={commands(serverAddress(), hasKey()).signal(
              wait.run_id,
              name.value,
              valueOf(text.value),
              correlation,
            )}
          />
        )}
      </div>
    </form>
  );
};

const Deliver = ({ wait, isOver, isBusy, onGone }: Parts): JSX.Element => {
  const text = useSignal("{}");
  const send = async (success: boolean): Promise<void> => {
    if (success && problemOf(text.value)) return;
    isBusy.value = true;
    const body = success
      ? { task_id: wait.name, run_id: wait.run_id, success, data: valueOf(text.value) }
      : {
          task_id: wait.name,
          run_id: wait.run_id,
          success,
          error: text.value.trim() || "marked as failed on the web page",
        };
    try {
      const done = await ask<{ resumed: boolean; reason: string }>("POST", "/workflows/resume", {
        body,
        root: true,
      });
      say(
        done.resumed ? "Delivered." : `Not delivered: ${done.reason.replaceAll("_", " ")}.`,
        done.resumed ? "good" : "bad",
      );
      onGone();
    } catch (error) {
      gone(error, onGone);
    } finally {
      isBusy.value = false;
    }
  };
  if (!may("resume")) return <p class="dim">Your key lacks the scope resume.</p>;
  return (
    <div class="fields">
      <JsonField
        id="task-result"
        label="Result, as JSON"
        text={text.value}
        onText={(next) => {
          text.value = next;
        }}
      />
      <div class="row">
        <Button
          testid="deliver"
          kind="main"
          busy={isBusy.value}
          disabled={isOver}
          onClick={() => void send(true)}
        >
          Deliver the result
        </Button>
        <Button
          testid="deliver-failure"
          kind="danger"
          busy={isBusy.value}
          disabled={isOver}
          onClick={() => void send(false)}
        >
          Report a failure
        </Button>
        {problemOf(text.value) === "" && (
          <CopyAs
            testid="deliver-copy"
            commands={commands(serverAddress(), hasKey()).resume(wait.run_id, wait.name, valueOf(text.value))}
          />
        )}
      </div>
    </div>
  );
};
