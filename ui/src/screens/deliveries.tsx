// Final callbacks that could not be delivered: replay or discard them.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { drop, e, get, hasKey, may, post } from "../api/client.ts";
import { useLoaded } from "../api/live.ts";
import type { Letter, Page } from "../api/types.ts";
import { serverAddress } from "../lib/prefix.ts";
import { shortId } from "../lib/text.ts";
import { counted } from "../lib/time.ts";
import { commands } from "../model/copy.ts";
import { Ago, Button, CopyAs, Empty, Shown, say, sayError } from "../parts/basic.tsx";

export const Deliveries = (): JSX.Element => {
  const first = useLoaded<Page<Letter>>(
      "letters",
      (signal) => get<Page<Letter>>("/dead-letters", { limit: 100 }, signal),
      { pollMs: 15_000 },
    ),
    more = useSignal<Letter[]>([]),
    cursor = useSignal<string | null | undefined>(undefined);
  const act = async (letter: Letter, what: "replay" | "discard"): Promise<void> => {
    try {
      what === "replay"
        ? await post(`/dead-letters/${e(letter.id)}/replay`)
        : await drop(`/dead-letters/${e(letter.id)}`);
      say(what === "replay" ? "It is being delivered again." : "Discarded.");
      more.value = more.value.filter((one) => one.id !== letter.id);
      first.again();
    } catch (error) {
      sayError(error);
    }
  };
  const rest = cursor.value === undefined ? (first.data?.cursor ?? null) : cursor.value;
  const next = async (): Promise<void> => {
    try {
      const found = await get<Page<Letter>>("/dead-letters", { limit: 100, cursor: rest });
      more.value = [...more.value, ...found.items];
      cursor.value = found.cursor;
    } catch (error) {
      sayError(error);
    }
  };
  return (
    <>
      <div class="head">
        <h1>Deliveries</h1>
        <span class="dim">final callbacks that could not be delivered</span>
        <span class="grow" />
        <CopyAs commands={commands(serverAddress(), hasKey()).letters()} />
      </div>
      <Shown of={first} testid="deliveries">
        {(page) => {
          const items = [...page.items, ...more.value];
          return items.length === 0 ? (
            <Empty testid="deliveries-empty">Every final callback was delivered.</Empty>
          ) : (
            <>
              <div class="list-box">
                <table class="list">
                  <caption class="sr">Final callbacks that were not delivered</caption>
                  <colgroup>
                    <col style={{ width: "26%" }} />
                    <col style={{ width: "120px" }} />
                    <col />
                    <col style={{ width: "90px" }} />
                    <col style={{ width: "190px" }} />
                  </colgroup>
                  <thead>
                    <tr>
                      <th scope="col">To</th>
                      <th scope="col">Run</th>
                      <th scope="col">Last error</th>
                      <th scope="col">Since</th>
                      <th scope="col">
                        <span class="sr">Acts</span>
                      </th>
                    </tr>
                  </thead>
                  <tbody>
                    {items.map((one) => (
                      <tr
                        key={one.id}
                        data-testid={`letter-${one.id}`}
                        class={one.status === "dead" ? "is-failed" : ""}
                      >
                        <td title={one.url}>{one.url}</td>
                        <td>
                          <a class="id" href={`/ui/runs/${one.run_id}`}>
                            {shortId(one.run_id)}
                          </a>
                        </td>
                        <td title={one.last_error}>
                          <span class="why">{one.last_error || one.status}</span>{" "}
                          <span class="dim small">{counted(one.tries, "try", "tries")}</span>
                        </td>
                        <td>
                          <Ago time={one.created_at} />
                        </td>
                        <td>
                          {may("admin") && (
                            <span class="row" style={{ flexWrap: "nowrap" }}>
                              <Button testid={`replay-${one.id}`} onClick={() => void act(one, "replay")}>
                                Replay
                              </Button>
                              <Button
                                kind="danger"
                                testid={`discard-${one.id}`}
                                onClick={() => void act(one, "discard")}
                              >
                                Discard
                              </Button>
                            </span>
                          )}
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
              {rest && (
                <p style={{ padding: "8px 0" }}>
                  <Button testid="deliveries-more" onClick={() => void next()}>
                    Show 100 more
                  </Button>
                </p>
              )}
            </>
          );
        }}
      </Shown>
    </>
  );
};
