// Who asks, the theme, and the API keys.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { drop, e, get, may, me, post } from "../api/client.ts";
import { useLoaded } from "../api/live.ts";
import type { KeyView, Page, Scope } from "../api/types.ts";
import { serverAddress } from "../lib/prefix.ts";
import { setTheme, theme } from "../lib/theme.ts";
import type { Theme } from "../lib/theme.ts";
import { at, now } from "../lib/time.ts";
import { Ago, Button, CopyLine, Dialog, Empty, In, Shown, say, sayError } from "../parts/basic.tsx";

const SCOPES: { scope: Scope; text: string }[] = [
  { scope: "read", text: "see runs and workflows" },
  { scope: "run", text: "start, cancel, rerun, publish" },
  { scope: "approve", text: "answer approvals" },
  { scope: "resume", text: "deliver results of tasks" },
  { scope: "worker", text: "work as a worker" },
  { scope: "admin", text: "everything, keys too" },
];

export const Settings = (): JSX.Element => {
  const isMaking = useSignal(false),
    who = me.value;
  return (
    <>
      <div class="head">
        <h1>Settings</h1>
      </div>
      <div class="grid2" style={{ marginBottom: "20px" }}>
        <section class="card" aria-label="This server">
          <header>
            <h2>This server</h2>
          </header>
          <div class="in">
            {who ? (
              <dl class="facts">
                <dt>Release</dt>
                <dd>{who.release}</dd>
                <dt>Mode</dt>
                <dd>
                  {who.mode === "local"
                    ? "local: every user of this machine has full access"
                    : "guarded: every request needs an API key"}
                </dd>
                <dt>Tenant</dt>
                <dd>{who.tenant}</dd>
                <dt>Key</dt>
                <dd>{who.key_name || "none"}</dd>
                <dt>Scopes</dt>
                <dd>{who.scopes.join(", ")}</dd>
                <dt>Public address</dt>
                <dd>{who.public_url ?? "none; set public_url for links that others can open"}</dd>
              </dl>
            ) : (
              <p class="dim">The server does not say who you are.</p>
            )}
          </div>
        </section>
        <section class="card" aria-label="Theme">
          <header>
            <h2>Theme</h2>
          </header>
          <div class="in">
            <div class="chips" role="group" aria-label="Theme">
              {(["system", "light", "dark"] as Theme[]).map((one) => (
                <button
                  type="button"
                  key={one}
                  class="chip"
                  data-testid={`theme-${one}`}
                  aria-pressed={theme.value === one}
                  onClick={() => setTheme(one)}
                >
                  {one === "system" ? "as the system" : one}
                </button>
              ))}
            </div>
          </div>
        </section>
      </div>
      {may("admin") ? (
        <Keys
          isMaking={isMaking.value}
          onMaking={(open) => {
            isMaking.value = open;
          }}
        />
      ) : (
        <p class="dim">Your key lacks the scope admin, so the keys are not shown.</p>
      )}
    </>
  );
};

const Keys = ({
  isMaking,
  onMaking,
}: {
  isMaking: boolean;
  onMaking: (open: boolean) => void;
}): JSX.Element => {
  const keys = useLoaded<Page<KeyView>>("keys", (signal) =>
      get<Page<KeyView>>("/keys", { limit: 500 }, signal),
    ),
    revoking = useSignal<KeyView | null>(null);
  const revoke = async (key: KeyView): Promise<void> => {
    try {
      await drop(`/keys/${e(key.id)}`);
      say(`${key.name} is revoked.`);
      revoking.value = null;
      keys.again();
    } catch (error) {
      sayError(error);
    }
  };
  return (
    <section aria-label="API keys">
      <div class="head">
        <h2>API keys</h2>
        <span class="grow" />
        <Button testid="key-new" kind="main" onClick={() => onMaking(true)}>
          New key
        </Button>
      </div>
      {me.value?.mode === "local" && (
        <p class="dim" style={{ marginBottom: "8px" }}>
          This server is in local mode. Making the first key guards it: from then on every request needs one.
        </p>
      )}
      <Shown of={keys} testid="keys">
        {(page) =>
          page.items.length === 0 ? (
            <Empty command={`holdfast keys create me --scope admin --server ${serverAddress()}`}>
              There is no key yet.
            </Empty>
          ) : (
            <div class="list-box">
              <table class="list">
                <caption class="sr">API keys</caption>
                <thead>
                  <tr>
                    <th scope="col">Name</th>
                    <th scope="col">Scopes</th>
                    <th scope="col">Made</th>
                    <th scope="col">Last used</th>
                    <th scope="col">Expires</th>
                    <th scope="col">
                      <span class="sr">Acts</span>
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {page.items.map((one) => {
                    const isOver =
                      one.revoked_at !== null || (one.expires_at !== null && at(one.expires_at) <= now.value);
                    return (
                      <tr key={one.id} data-testid={`key-${one.id}`} class={isOver ? "dim" : ""}>
                        <td>
                          <b>{one.name}</b> <code class="dim small">{one.id}</code>
                        </td>
                        <td>
                          {one.scopes.join(", ")}
                          {one.services.length > 0 && (
                            <span class="dim small"> for {one.services.join(", ")}</span>
                          )}
                        </td>
                        <td>
                          <Ago time={one.created_at} />
                        </td>
                        <td>{one.last_used_at ? <Ago time={one.last_used_at} /> : "never"}</td>
                        <td>
                          {one.revoked_at ? (
                            "revoked"
                          ) : one.expires_at ? (
                            <In time={one.expires_at} />
                          ) : (
                            "never"
                          )}
                        </td>
                        <td class="num">
                          {!isOver && (
                            <Button
                              kind="danger"
                              testid={`revoke-${one.id}`}
                              onClick={() => {
                                revoking.value = one;
                              }}
                            >
                              Revoke
                            </Button>
                          )}
                        </td>
                      </tr>
                    );
                  })}
                </tbody>
              </table>
            </div>
          )
        }
      </Shown>
      {isMaking && <NewKey onClose={() => onMaking(false)} onMade={keys.again} />}
      {revoking.value && (
        <Dialog
          title={`Revoke ${revoking.value.name}?`}
          testid="revoke-dialog"
          onClose={() => {
            revoking.value = null;
          }}
        >
          <p>Requests with this key are refused from now on, and its streams end.</p>
          <footer>
            <Button
              testid="revoke-no"
              onClick={() => {
                revoking.value = null;
              }}
            >
              Back
            </Button>
            <Button testid="revoke-yes" kind="danger" onClick={() => void revoke(revoking.value!)}>
              Revoke it
            </Button>
          </footer>
        </Dialog>
      )}
    </section>
  );
};

const NewKey = ({ onClose, onMade }: { onClose: () => void; onMade: () => void }): JSX.Element => {
  const name = useSignal(""),
    scopes = useSignal<Scope[]>(["read"]),
    days = useSignal(""),
    made = useSignal<string | null>(null),
    isBusy = useSignal(false);
  const make = async (event: Event): Promise<void> => {
    event.preventDefault();
    isBusy.value = true;
    try {
      const found = await post<KeyView & { key: string | null }>("/keys", {
        name: name.value,
        scopes: scopes.value,
        expires_in_secs: days.value ? Math.round(Number(days.value) * 86_400) : undefined,
      });
      made.value = found.key;
      onMade();
    } catch (error) {
      sayError(error);
    } finally {
      isBusy.value = false;
    }
  };
  if (made.value)
    return (
      <Dialog title="The new key" testid="key-made" onClose={onClose}>
        <p>It is shown only now. Copy it, and keep it where secrets are kept.</p>
        <CopyLine text={made.value} testid="key-copy" />
        <footer>
          <Button testid="key-done" kind="main" onClick={onClose}>
            Done
          </Button>
        </footer>
      </Dialog>
    );
  return (
    <Dialog title="New API key" testid="key-dialog" onClose={onClose}>
      <form class="fields" onSubmit={(event) => void make(event)}>
        <div class="field">
          <label for="key-name">Name</label>
          <input
            id="key-name"
            data-testid="key-name"
            required
            maxLength={200}
            value={name.value}
            onInput={(event) => {
              name.value = event.currentTarget.value;
            }}
          />
        </div>
        <fieldset style={{ border: 0, padding: 0, margin: 0 }}>
          <legend>
            <b>Scopes</b>
          </legend>
          {SCOPES.map(({ scope, text }) => (
            <div class="field check" key={scope}>
              <input
                type="checkbox"
                id={`scope-${scope}`}
                data-testid={`scope-${scope}`}
                checked={scopes.value.includes(scope)}
                onChange={(event) => {
                  scopes.value = event.currentTarget.checked
                    ? [...scopes.value, scope]
                    : scopes.value.filter((one) => one !== scope);
                }}
              />
              <label for={`scope-${scope}`}>
                {scope} <span class="dim">{text}</span>
              </label>
            </div>
          ))}
        </fieldset>
        <div class="field">
          <label for="key-days">Expires after days; empty is never</label>
          <input
            id="key-days"
            data-testid="key-days"
            inputMode="decimal"
            pattern="[0-9]+(\.[0-9]+)?"
            value={days.value}
            onInput={(event) => {
              days.value = event.currentTarget.value;
            }}
          />
        </div>
        <footer class="row" style={{ justifyContent: "flex-end" }}>
          <Button testid="key-no" onClick={onClose}>
            Back
          </Button>
          <Button
            testid="key-make"
            kind="main"
            submit
            busy={isBusy.value}
            disabled={scopes.value.length === 0}
          >
            Make the key
          </Button>
        </footer>
      </form>
    </Dialog>
  );
};
