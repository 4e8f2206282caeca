// The axis of the timeline: time to a place from 0 to 1. Stretches of mere waiting fold into a notch.
export type Busy = { from: number; to: number };
export type Piece = { from: number; to: number; x0: number; x1: number; isFolded: boolean };
export type Scale = { pieces: Piece[]; x: (t: number) => number; t: (x: number) => number };

const NOTCH = 0.05; // of the width
const WORTH = 0.12; // of the time of work: a shorter stretch is not folded
const FOLD_MS_MIN = 2000;
const FOLDS_MAX = 10;
const ENDS = 0.3; // of the time of work: kept at the ends of all folds together

// Intervals joined where they touch.
export const joined = (busy: Busy[]): Busy[] => {
  const found: Busy[] = [];
  for (const one of [...busy].sort((a, b) => a.from - b.from)) {
    const last = found.at(-1);
    if (last && one.from <= last.to) last.to = Math.max(last.to, one.to);
    else found.push({ ...one });
  }
  return found;
};

// Which stretches fold: the longest of those that are long beside the work. Each keeps some of both its ends, so that what waits is
// seen to wait, but never so much that hours of waiting squeeze a second of work.
const foldsOf = (from: number, end: number, busy: Busy[]): Busy[] => {
  const idle: Busy[] = [];
  let at = from;
  for (const one of [...busy, { from: end, to: end }]) {
    if (one.from > at) idle.push({ from: at, to: one.from });
    at = Math.max(at, one.to);
  }
  const long = (one: Busy): number => one.to - one.from;
  const workMs = end - from - idle.reduce((sum, one) => sum + long(one), 0);
  const folded = idle
    .filter((one) => long(one) > FOLD_MS_MIN && long(one) > workMs * WORTH)
    .sort((a, b) => long(b) - long(a))
    .slice(0, FOLDS_MAX)
    .sort((a, b) => a.from - b.from);
  const endMs = (Math.max(workMs, 1000) * ENDS) / (2 * folded.length || 1);
  return folded.map((one) => {
    const kept = Math.min(long(one) * 0.05, endMs);
    return { from: one.from + kept, to: one.to - kept };
  });
};

export const scaleOf = (from: number, to: number, busy: Busy[], isFolding: boolean): Scale => {
  const end = Math.max(to, from + 1),
    whole = end - from;
  const folds = isFolding ? foldsOf(from, end, joined(busy)) : [];
  const foldedMs = folds.reduce((sum, one) => sum + one.to - one.from, 0),
    notches = folds.length * NOTCH;
  const perMs = (1 - notches) / Math.max(1, whole - foldedMs);
  const pieces: Piece[] = [];
  let t = from,
    x = 0;
  const add = (until: number, isFolded: boolean): void => {
    if (until <= t) return;
    const x1 = x + (isFolded ? NOTCH : (until - t) * perMs);
    pieces.push({ from: t, to: until, x0: x, x1, isFolded });
    t = until;
    x = x1;
  };
  for (const fold of folds) {
    add(fold.from, false);
    add(fold.to, true);
  }
  add(end, false);
  return {
    pieces,
    x: (at) => {
      const piece = pieces.find((one) => at <= one.to) ?? pieces.at(-1)!;
      return Math.min(
        1,
        Math.max(0, piece.x0 + ((at - piece.from) / (piece.to - piece.from)) * (piece.x1 - piece.x0)),
      );
    },
    t: (at) => {
      const piece = pieces.find((one) => at <= one.x1) ?? pieces.at(-1)!;
      return piece.from + ((at - piece.x0) / (piece.x1 - piece.x0 || 1)) * (piece.to - piece.from);
    },
  };
};

const STEPS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000,
  600_000, 900_000, 1_800_000, 3_600_000, 7_200_000, 14_400_000, 43_200_000, 86_400_000, 604_800_000,
];
// Round distances from the start, some 90 pixels apart.
export const ticks = (scale: Scale, from: number, to: number, width: number): { t: number; x: number }[] => {
  const shown =
    scale.pieces.filter((one) => !one.isFolded).reduce((sum, one) => sum + one.to - one.from, 0) || 1;
  const step =
    STEPS.find((one) => (one / shown) * width >= 90) ?? 604_800_000 * Math.ceil(shown / 604_800_000 / 8);
  const found: { t: number; x: number }[] = [];
  let last = -1;
  for (const piece of scale.pieces) {
    if (piece.isFolded) continue;
    for (
      let t = from + Math.ceil((piece.from - from) / step) * step;
      t <= piece.to && found.length < 200;
      t += step
    ) {
      const x = scale.x(t);
      if (x - last > 60 / width && t <= to) {
        found.push({ t, x });
        last = x;
      }
    }
  }
  return found;
};

// 50 ms, 0.15 s, 1.5 s, 20 s, 3 m, 2 h
export const tickText = (ms: number): string => {
  const plain = (value: number): string => String(Number(value.toFixed(2)));
  if (ms < 100) return `${ms} ms`;
  if (ms < 60_000) return `${plain(ms / 1000)} s`;
  if (ms < 3_600_000)
    return ms % 60_000
      ? `${Math.floor(ms / 60_000)} m ${Math.round((ms % 60_000) / 1000)} s`
      : `${ms / 60_000} m`;
  if (ms < 86_400_000)
    return ms % 3_600_000
      ? `${Math.floor(ms / 3_600_000)} h ${Math.round((ms % 3_600_000) / 60_000)} m`
      : `${ms / 3_600_000} h`;
  return `${plain(ms / 86_400_000)} d`;
};
