// Paths of steps: `loop~2[3].s` is the step s of item 3 in the second visit of loop. Ids with other characters are quoted: ["a.b"].

// The segments of a path, each with its id, visit and index.
export type Segment = { id: string; text: string; visit: number; index: number | null };

const SEGMENT = /(?:\["((?:[^"\\]|\\.)*)"\]|([^.[~]+))(?:~(\d+))?(?:\[(\d+)\])?/y;

export const segments = (path: string): Segment[] => {
  const found: Segment[] = [];
  let at = 0;
  while (at < path.length) {
    SEGMENT.lastIndex = at;
    const match = SEGMENT.exec(path);
    if (!match || match[0] === "") {
      found.push({ id: path.slice(at), text: path.slice(at), visit: 1, index: null });
      break;
    }
    const id = match[1] !== undefined ? match[1].replace(/\\(.)/g, "$1") : match[2]!;
    found.push({
      id,
      text: match[0],
      visit: match[3] ? Number(match[3]) : 1,
      index: match[4] === undefined ? null : Number(match[4]),
    });
    at = SEGMENT.lastIndex + (path[SEGMENT.lastIndex] === "." ? 1 : 0);
    if (at === SEGMENT.lastIndex && at < path.length && path[at] !== "[") {
      found.push({ id: path.slice(at), text: path.slice(at), visit: 1, index: null });
      break;
    }
  }
  return found;
};

// The path in the definition: without items and visits.
export const patternOf = (path: string): string =>
  segments(path)
    .map((one) => one.id)
    .join("\u0000");
// The same as text for people: loop.s
export const plainOf = (path: string): string =>
  segments(path)
    .map((one) => one.id)
    .join(".");
export const lastOf = (path: string): string => segments(path).at(-1)?.text ?? path;
export const parentOf = (path: string): string => {
  const parts = segments(path);
  return parts
    .slice(0, -1)
    .map((one) => one.text)
    .join(".");
};
// The name of a row beneath its parent: the step, and which item it belongs to.
export const nameOf = (path: string): string => {
  const parts = segments(path),
    last = parts.at(-1)?.text ?? path,
    around = parts.at(-2);
  return around && around.index !== null ? `[${around.index}] ${last}` : last;
};
