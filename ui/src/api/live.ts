// The one stream of all runs that the whole page shares, and reads that are repeated when something has changed.
import { signal, useSignal } from "@preact/signals";
import type { Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, keyed } from "./client.ts";
import { openStream } from "./stream.ts";
import type { Liveness, Stream } from "./stream.ts";
import type { RunEvent } from "./types.ts";

const KINDS = "workflow_started,workflow_terminal,state_changed,interrupted,approve_requested,step_paused";
type Listener = (events: RunEvent[]) => void;
const listeners = new Set<Listener>();
let stream: Stream | null = null;

export const live = signal<Liveness>("connecting");

const tell = (events: RunEvent[]): void => {
  for (const listener of listeners) listener(events);
};

export const startLive = (): void => {
  stream?.close();
  stream = openStream("/events", { from: "now", kind: KINDS }, tell, () => tell([]));
  stream.state.subscribe((state) => {
    live.value = state ?? "off";
  });
};

export const useEvents = (listener: Listener): void => {
  useEffect(() => {
    listeners.add(listener);
    return () => {
      listeners.delete(listener);
    };
  }, [listener]);
};

export type Loaded<T> = { data: T | null; error: ApiError | null; isLoading: boolean; again: () => void };

// The form asks for a key, and all is read again with it.
export const isForKey = (problem: unknown): boolean => problem instanceof ApiError && problem.status === 401;

// Read something now, when `key` changes, and when runs change (at most once in `everyMs`). Old data stays while new is on its way.
export const useLoaded = <T>(
  key: string,
  read: (signal: AbortSignal) => Promise<T>,
  options: { everyMs?: number; pollMs?: number } = {},
): Loaded<T> => {
  const data: Signal<T | null> = useSignal<T | null>(null),
    error = useSignal<ApiError | null>(null),
    isLoading = useSignal(true),
    turn = useSignal(0);
  useEffect(() => {
    let isOver = false,
      timer = 0,
      isAsking = false,
      isStale = false,
      began = 0,
      failures = 0;
    const stop = new AbortController();
    const load = async (): Promise<void> => {
      if (isAsking) {
        isStale = true;
        return;
      }
      isAsking = true;
      isStale = false;
      began = Date.now();
      isLoading.value = true;
      try {
        const found = await read(stop.signal);
        if (!isOver) {
          data.value = found;
          error.value = null;
          failures = 0;
        }
      } catch (problem) {
        if (isOver || (problem as Error).name === "AbortError" || isForKey(problem)) return;
        error.value = problem instanceof ApiError ? problem : new ApiError(0, "page", String(problem));
        failures += 1;
        // A server that is away is asked again by itself.
        if (error.value.status === 0 || error.value.status >= 500) {
          clearTimeout(timer);
          timer = window.setTimeout(load, Math.min(15_000, 500 * 2 ** failures));
        }
      } finally {
        isAsking = false;
        if (!isOver) {
          isLoading.value = false;
          if (isStale) soon();
        }
      }
    };
    // A read that takes long is repeated less often.
    const soon = (): void => {
      clearTimeout(timer);
      timer = window.setTimeout(load, Math.max(0, began + (options.everyMs ?? 1000) - Date.now()));
    };
    void load();
    const listener: Listener = () => soon();
    if (options.everyMs) listeners.add(listener);
    const poll = options.pollMs
      ? window.setInterval(() => {
          if (!document.hidden) void load();
        }, options.pollMs)
      : 0;
    return () => {
      isOver = true;
      stop.abort();
      clearTimeout(timer);
      clearInterval(poll);
      listeners.delete(listener);
    };
  }, [key, turn.value, keyed.value]);
  return {
    data: data.value,
    error: error.value,
    isLoading: isLoading.value,
    again: () => {
      turn.value += 1;
    },
  };
};
