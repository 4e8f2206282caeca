// The rows of a list that is live: how a page that was read again, or the next one, joins what is shown. Pure.
import type { RunLine } from "../api/types.ts";

// `cursor` is where the list goes on. By label a page may have few rows, or none, and still not be the last.
export type Rows = { items: RunLine[]; cursor: string | null };
// New rows behind the pill. If more have come than a page has, there is a gap beneath them, and `page` takes the place of the list.
export type Fresh = { items: RunLine[]; page: Rows | null };
export const NONE: Fresh = { items: [], page: null };

const KEPT_MAX = 500; // rows that stay while new ones enter above them

// What was read again is shown in its order. If the reader is not calm, rows change where they stand, and new ones wait behind the pill.
export const merged = (
  has: Rows | null,
  found: Rows,
  isCalm: boolean,
  most = Infinity,
): { rows: Rows; fresh: Fresh } => {
  if (!has || has.items.length === 0)
    // A search that has come further than its first page does not begin again.
    return { rows: has && found.items.length === 0 && found.cursor !== null ? has : found, fresh: NONE };
  const inFound = new Map(found.items.map((one) => [one.run_id, one])),
    known = new Set(has.items.map((one) => one.run_id));
  const isNew = found.items.filter((one) => !known.has(one.run_id)),
    oldest = found.items.at(-1);
  const isBeneath = (one: RunLine): boolean =>
    found.cursor !== null && (oldest === undefined || one.created_at < oldest.created_at);
  const hasGap = isNew.length > 0 && isNew.length === found.items.length && found.cursor !== null;
  if (!isCalm) {
    // A row of the page that the server no longer gives does not match any more.
    const kept = has.items.filter((one) => inFound.has(one.run_id) || isBeneath(one));
    const changed = kept.map((one) => inFound.get(one.run_id) ?? one);
    return { rows: { ...has, items: changed }, fresh: { items: isNew, page: hasGap ? found : null } };
  }
  if (hasGap || has.items.length > KEPT_MAX) return { rows: found, fresh: NONE };
  const beneath = has.items.filter((one) => !inFound.has(one.run_id) && isBeneath(one));
  return { rows: { ...has, items: [...found.items, ...beneath].slice(0, most) }, fresh: NONE };
};

// The next page beneath what is shown.
export const extended = (has: Rows, found: Rows): Rows => {
  const known = new Set(has.items.map((one) => one.run_id));
  return {
    items: [...has.items, ...found.items.filter((one) => !known.has(one.run_id))],
    cursor: found.cursor,
  };
};
