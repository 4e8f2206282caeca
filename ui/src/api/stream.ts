// Server-sent events by fetch, which can carry a key. Comes back from its last id; a hidden tab lets go of its connection,
// because a browser allows six to one server.
import { signal } from "@preact/signals";
import { prefix } from "../lib/prefix.ts";
import { BASE, headersWithKey, needsKey, queryText } from "./client.ts";
import type { RunEvent } from "./types.ts";

export type Liveness = "off" | "connecting" | "live" | "lost";
export type Stream = { state: ReturnType<typeof signal<Liveness>>; close: () => void };

const HIDDEN_MS = 30_000,
  WAIT_MS_MAX = 15_000;

export const frames = (
  buffer: string,
): { frames: { id?: string; data?: string; retry?: number }[]; rest: string } => {
  const parts = buffer.split("\n\n"),
    rest = parts.pop() ?? "";
  return {
    rest,
    frames: parts.map((part) => {
      const found: { id?: string; data?: string; retry?: number } = {};
      for (const line of part.split("\n")) {
        if (line.startsWith("id: ")) found.id = line.slice(4);
        else if (line.startsWith("data: ")) found.data = (found.data ?? "") + line.slice(6);
        else if (line.startsWith("retry: ")) found.retry = Number(line.slice(7));
      }
      return found;
    }),
  };
};

// `query` says where to begin the first time. `onEvents` gets all events of one frame of the screen. `onBack` is called when the stream
// was lost and is back, because events may have been missed if the server forgot the id.
export const openStream = (
  path: string,
  query: Record<string, unknown>,
  onEvents: (events: RunEvent[]) => void,
  onBack: () => void = () => undefined,
): Stream => {
  const state = signal<Liveness>("connecting");
  let last = "",
    wait = 500,
    isClosed = false,
    wasLost = false,
    timer = 0,
    hiding = 0;
  let connection: AbortController | null = null;
  let gathered: RunEvent[] = [];
  let isPlanned = false;

  const hand = (): void => {
    isPlanned = false;
    const events = gathered;
    gathered = [];
    if (events.length && !isClosed) onEvents(events);
  };
  const gather = (event: RunEvent): void => {
    gathered.push(event);
    if (!isPlanned) {
      isPlanned = true;
      document.hidden ? setTimeout(hand, 100) : requestAnimationFrame(hand);
    }
  };

  const read = async (answer: Response): Promise<void> => {
    const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
    let buffer = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const found = frames(buffer + value.replaceAll("\r\n", "\n"));
      buffer = found.rest;
      for (const frame of found.frames) {
        if (frame.id !== undefined) last = frame.id;
        if (frame.data !== undefined) {
          try {
            gather(JSON.parse(frame.data) as RunEvent);
          } catch {
            /* a frame of another kind */
          }
        }
      }
    }
  };

  const connect = async (): Promise<void> => {
    if (isClosed || document.hidden) return;
    const mine = (connection = new AbortController());
    if (state.value !== "live") state.value = wasLost ? "lost" : "connecting";
    try {
      const asked = last ? { ...query, from: undefined } : query;
      const headers: Record<string, string> = { ...headersWithKey(), accept: "text/event-stream" };
      if (last) headers["last-event-id"] = last;
      const answer = await fetch(prefix + BASE + path + queryText(asked), {
        headers,
        signal: mine.signal,
        cache: "no-store",
        credentials: "omit",
      });
      if (answer.status === 204) {
        state.value = "off";
        return;
      } // finished, and all of it was sent
      if (answer.status === 401) needsKey.value ||= "refused";
      if ([400, 401, 403, 404].includes(answer.status)) {
        state.value = "off";
        return;
      }
      if (!answer.ok) throw new Error(String(answer.status));
      state.value = "live";
      wait = 500;
      if (wasLost) {
        wasLost = false;
        onBack();
      }
      await read(answer);
    } catch {
      /* the network, or we let go: below */
    }
    if (isClosed || connection !== mine) return;
    wasLost = true;
    if (!document.hidden) state.value = "lost";
    timer = window.setTimeout(connect, wait);
    wait = Math.min(WAIT_MS_MAX, wait * 2);
  };

  const shown = (): void => {
    clearTimeout(hiding);
    if (document.hidden)
      hiding = window.setTimeout(() => {
        const was = connection;
        connection = null;
        was?.abort();
        wasLost = true;
      }, HIDDEN_MS);
    else if (connection === null || state.value === "lost") {
      clearTimeout(timer);
      wait = 500;
      void connect();
    }
  };
  document.addEventListener("visibilitychange", shown);
  void connect();
  return {
    state,
    close: () => {
      isClosed = true;
      clearTimeout(timer);
      clearTimeout(hiding);
      document.removeEventListener("visibilitychange", shown);
      connection?.abort();
    },
  };
};
