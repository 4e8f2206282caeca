// HTTP alone: one function that asks, errors with the server's own sentence, and the key.
import { signal } from "@preact/signals";
import { prefix } from "../lib/prefix.ts";
import type { Me, Problem, Scope } from "./types.ts";

export const BASE = "/api/v1";

export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly requestId: string;
  readonly details: Problem[];
  constructor(status: number, code: string, message: string, requestId = "", details: Problem[] = []) {
    super(message);
    this.status = status;
    this.code = code;
    this.requestId = requestId;
    this.details = details;
  }
}

const STORED = "holdfast.key";
const stored = (): string | null => {
  try {
    return sessionStorage.getItem(STORED);
  } catch {
    return null;
  }
};

let key: string | null = stored();
export const me = signal<Me | null>(null);
export const needsKey = signal<"" | "asked" | "refused">("");
export const keyed = signal(0); // grows when another key is used: everything is read again, and what was typed stays
export const isAway = signal(false); // the server did not answer the latest request
export const may = (scope: Scope): boolean =>
  me.value === null || me.value.scopes.includes(scope) || me.value.scopes.includes("admin");
export const hasKey = (): boolean => key !== null;

export const setKey = (text: string, isKept: boolean): void => {
  key = text;
  try {
    isKept ? sessionStorage.setItem(STORED, text) : sessionStorage.removeItem(STORED);
  } catch {
    /* storage is off: memory is enough */
  }
};
export const forgetKey = (): void => {
  key = null;
  try {
    sessionStorage.removeItem(STORED);
  } catch {
    /* the same */
  }
};

export const headersWithKey = (): Record<string, string> =>
  key === null ? {} : { authorization: `Bearer ${key}` };

type Asked = { body?: unknown; text?: string; media?: string; signal?: AbortSignal; root?: boolean };

const faultOf = async (answer: Response): Promise<ApiError> => {
  const requestId = answer.headers.get("x-request-id") ?? "";
  try {
    const said = (await answer.json()) as { error?: string; message?: string; details?: Problem[] };
    return new ApiError(
      answer.status,
      said.error ?? String(answer.status),
      said.message ?? answer.statusText,
      requestId,
      said.details ?? [],
    );
  } catch {
    return new ApiError(
      answer.status,
      String(answer.status),
      answer.statusText || "the server gave no reason",
      requestId,
    );
  }
};

// What was read is read again by itself; what a person sends is sent once.
export const away = (isRead = true): ApiError =>
  new ApiError(
    0,
    "away",
    isRead
      ? "The server does not answer. It may be restarting; nothing is lost, and this page tries again by itself."
      : "The server does not answer. It may be restarting; what you typed is still here: try again when it is back.",
  );

export const ask = async <T>(method: string, path: string, asked: Asked = {}): Promise<T> => {
  const headers: Record<string, string> = headersWithKey();
  let body: string | undefined;
  if (asked.text !== undefined) {
    body = asked.text;
    headers["content-type"] = asked.media ?? "application/yaml";
  } else if (asked.body !== undefined) {
    body = JSON.stringify(asked.body);
    headers["content-type"] = "application/json";
  }
  let answer: Response;
  try {
    answer = await fetch(prefix + (asked.root ? "" : BASE) + path, {
      method,
      headers,
      body,
      signal: asked.signal,
      cache: "no-store",
      credentials: "omit",
    });
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    isAway.value = true;
    throw away(method === "GET");
  }
  isAway.value = false;
  if (answer.status === 401) needsKey.value = key === null ? "asked" : "refused";
  if (!answer.ok) throw await faultOf(answer);
  if (answer.status === 204) return null as T;
  return (await answer.json()) as T;
};

// A file; a plain link could not carry the key.
export const file = async (path: string): Promise<Blob> => {
  const answer = await fetch(prefix + BASE + path, {
    headers: headersWithKey(),
    cache: "no-store",
    credentials: "omit",
  }).catch(() => {
    throw away();
  });
  if (!answer.ok) throw await faultOf(answer);
  return answer.blob();
};
export const get = <T>(path: string, query: Record<string, unknown> = {}, signal?: AbortSignal): Promise<T> =>
  ask<T>("GET", path + queryText(query), { signal });
export const post = <T>(path: string, body: unknown = {}): Promise<T> => ask<T>("POST", path, { body });
export const drop = (path: string): Promise<null> => ask<null>("DELETE", path);

export const queryText = (query: Record<string, unknown>): string => {
  const text = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "") continue;
    if (Array.isArray(value)) for (const one of value) text.append(name, String(one));
    else text.set(name, String(value));
  }
  const said = text.toString();
  return said ? `?${said}` : "";
};
export const e = encodeURIComponent;
