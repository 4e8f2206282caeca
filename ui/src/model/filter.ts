// The filter of the list of runs as one line of text: workflow:fan status:failed,cancelled label:team=x after:1d id:01a1…
import type { Status } from "../api/types.ts";
import { STATES } from "./words.ts";

export type Filter = {
  workflow: string;
  status: Status[];
  labels: string[];
  number: string;
  after: string;
  before: string;
  id: string;
};
export const EMPTY: Filter = {
  workflow: "",
  status: [],
  labels: [],
  number: "",
  after: "",
  before: "",
  id: "",
};

const quotedIf = (text: string): string => (/[\s"]/.test(text) ? JSON.stringify(text) : text);

// The words of a line; "a b" is one word.
const wordsOf = (text: string): string[] => {
  const found: string[] = [];
  for (const match of text.matchAll(/(?:[^\s"]|"(?:[^"\\]|\\.)*"?)+/g))
    found.push(
      match[0].replace(/"((?:[^"\\]|\\.)*)"?/g, (_, inner: string) => inner.replace(/\\(.)/g, "$1")),
    );
  return found;
};

export const parse = (text: string): { filter: Filter; problems: string[] } => {
  const filter: Filter = { ...EMPTY, status: [], labels: [] },
    problems: string[] = [];
  for (const word of wordsOf(text)) {
    const colon = word.indexOf(":"),
      name = colon > 0 ? word.slice(0, colon) : "",
      value = word.slice(colon + 1);
    if (name && !value) continue; // still being typed
    switch (name) {
      case "workflow":
        filter.workflow = value;
        break;
      case "status":
      case "state":
        for (const one of value.split(",").filter(Boolean)) {
          if (one === "open") filter.status.push("pending", "running", "waiting", "cancelling");
          else if ((STATES as string[]).includes(one)) filter.status.push(one as Status);
          else problems.push(`there is no state ${one}; the states are ${STATES.join(", ")}`);
        }
        break;
      case "label":
        filter.labels.push(value);
        break;
      case "number":
      case "version":
        filter.number = value.replace(/^#/, "");
        break;
      case "after":
      case "since":
        if (instant(value, 0) === null)
          problems.push(`${value} is not a time: 1d, 2h, 2026-11-18 or 2026-11-18T10:00`);
        else filter.after = value;
        break;
      case "before":
        if (instant(value, 0) === null)
          problems.push(`${value} is not a time: 1d, 2h, 2026-11-18 or 2026-11-18T10:00`);
        else filter.before = value;
        break;
      case "id":
        filter.id = value;
        break;
      case "":
        if (/^[0-9a-f][0-9a-f-]{3,35}$/i.test(word) && /\d/.test(word)) filter.id = word;
        else if ((STATES as string[]).includes(word)) filter.status.push(word as Status);
        else filter.workflow = word;
        break;
      default:
        problems.push(
          `there is no filter ${name}; the filters are workflow, status, label, number, after, before, id`,
        );
    }
  }
  filter.status = [...new Set(filter.status)];
  return { filter, problems };
};

export const textOf = (filter: Filter): string =>
  [
    filter.id && `id:${filter.id}`,
    filter.workflow && `workflow:${quotedIf(filter.workflow)}`,
    filter.number && `number:${filter.number}`,
    filter.status.length ? `status:${filter.status.join(",")}` : "",
    ...filter.labels.map((one) => `label:${quotedIf(one)}`),
    filter.after && `after:${filter.after}`,
    filter.before && `before:${filter.before}`,
  ]
    .filter(Boolean)
    .join(" ");

const UNITS: Record<string, number> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

// `1d` is a day before now; a date or time is itself, in the zone of this browser.
export const instant = (text: string, now: number): number | null => {
  const relative = /^(\d+)([smhdw])$/.exec(text);
  if (relative) return now - Number(relative[1]) * UNITS[relative[2]!]!;
  if (!/^\d{4}-\d\d-\d\d/.test(text)) return null;
  const found = Date.parse(/^\d{4}-\d\d-\d\d$/.test(text) ? `${text}T00:00:00` : text);
  return Number.isNaN(found) ? null : found;
};

export const queryOf = (filter: Filter, now: number): Record<string, unknown> => {
  if (filter.id) return { id: filter.id };
  const moment = (text: string): string | undefined => {
    const found = text ? instant(text, now) : null;
    return found === null ? undefined : new Date(found).toISOString();
  };
  return {
    workflow: filter.workflow,
    number: filter.number,
    status: filter.status.join(","),
    label: filter.labels,
    from: moment(filter.after),
    to: moment(filter.before),
  };
};
