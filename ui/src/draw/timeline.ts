// Draws the rows of a run over time: one bar for each attempt, back-off hatched, waits thin, large fan-outs as a strip. Only rows in
// view are made. The list is the graph as a list: each row is a button. Given data, no HTTP.
import { exact, grouped, roughly, span } from "../lib/time.ts";
import type { Row } from "../model/replay.ts";
import { countsAt, stateAt } from "../model/replay.ts";
import { nameOf } from "../model/paths.ts";
import { scaleOf, tickText, ticks } from "./scale.ts";
import type { Scale } from "./scale.ts";
import { html, set, shape, svg } from "./svg.ts";

export const ROW = 28;
export type Usual = { p50: number; p95: number };
export type TimelineData = {
  rows: Row[];
  from: number;
  to: number;
  isOpen: boolean;
  at: number | null;
  isFolding: boolean;
  usual: (path: string) => Usual | null;
};
export type TimelineView = {
  show: (data: TimelineData) => void;
  choose: (path: string | null, how?: "focus" | "scroll" | "stay") => void;
  close: () => void;
};

const busyOf = (data: Pick<TimelineData, "rows" | "to">): { from: number; to: number }[] => {
  const found: { from: number; to: number }[] = [];
  for (const row of data.rows) {
    if (row.strip) found.push({ from: row.from, to: row.to ?? data.to });
    for (const one of row.spans)
      if (one.kind === "try") found.push({ from: one.from, to: one.to ?? data.to });
  }
  return found;
};

// Whether stretches of mere waiting are long enough to fold.
export const isFoldable = (data: Pick<TimelineData, "rows" | "from" | "to">): boolean =>
  scaleOf(data.from, data.to, busyOf(data), true).pieces.some((one) => one.isFolded);

export const timeline = (
  host: HTMLElement,
  onChoose: (path: string) => void,
  onScrub: (t: number) => void,
): TimelineView => {
  const head = html("div", { class: "tl-head", "aria-hidden": "true" }),
    axis = svg("svg", { class: "tl-axis" });
  head.append(html("span", { class: "tl-name" }), axis);
  const list = html("div", {
    class: "tl-rows",
    role: "list",
    "aria-label": "Steps in the order in which they were reached",
  });
  const now = html("div", { class: "tl-now", "aria-hidden": "true" });
  const body = html("div", { class: "tl-body", "data-testid": "timeline" });
  body.append(list, now);
  host.append(head, body);

  let data: TimelineData | null = null,
    scale: Scale = scaleOf(0, 1, [], false),
    chosen: string | null = null,
    planned = 0,
    width = 0,
    nameWidth = 0;
  type Shown = { item: HTMLElement; button: HTMLElement; lane: SVGElement; seen: string };
  const shown = new Map<string, Shown>();

  const make = (row: Row): Shown => {
    const item = html("div", { role: "listitem", class: "tl-row", "data-path": row.path });
    const button = html("button", { type: "button", class: "tl-name", "data-testid": `step-${row.path}` });
    const mark = svg("svg", { class: "state", viewBox: "0 0 14 14", "aria-hidden": "true" });
    button.append(
      mark,
      html("span", { class: "tl-text" }, nameOf(row.path)),
      " ",
      html("span", { class: "tl-count" }),
    );
    button.style.paddingInlineStart = `${8 + Math.min(row.depth, 6) * 12}px`;
    const lane = svg("svg", { class: "tl-lane", "aria-hidden": "true" });
    item.append(button, lane);
    button.addEventListener("click", () => onChoose(row.path));
    lane.addEventListener("click", () => onChoose(row.path));
    return { item, button, lane, seen: "" };
  };

  const paint = (one: Shown, row: Row, index: number): void => {
    const d = data!,
      end = d.isOpen ? d.to : Infinity,
      t = d.at,
      state = t === null ? row.status : stateAt(row, t);
    const counts = t === null ? row : countsAt(row, t);
    const last = row.spans.at(-1),
      seen = [
        state,
        row.to,
        row.spans.length,
        last?.to,
        counts.done,
        counts.failed,
        chosen === row.path,
        width,
        scale.pieces.length,
        d.from,
        row.to === null || d.isOpen ? d.to : d.to,
        t,
        index,
      ].join("|");
    if (seen === one.seen) return;
    one.seen = seen;
    one.item.style.top = `${index * ROW}px`;
    set(one.item, {
      class: `tl-row s-${state ?? "none"}${chosen === row.path ? " chosen" : ""}${state === null ? " unreached" : ""}`,
      "data-state": state ?? "none",
    });
    one.button.firstElementChild!.replaceChildren(shape(state));
    const tries = row.spans.filter((s) => s.kind === "try" && (t === null || s.from <= t)).length;
    const took = span((row.to ?? Math.max(d.to, row.from)) - row.from);
    const count =
      row.children > 0 && row.kind !== "branch"
        ? counts.failed && counts.done === row.children
          ? `${grouped(counts.failed)} failed`
          : `${grouped(counts.done)}/${grouped(row.children)}${counts.failed ? `, ${grouped(counts.failed)} failed` : ""}`
        : tries > 1
          ? `${tries}×`
          : "";
    (one.button.children[2] as HTMLElement).textContent = count;
    one.button.children[2]!.classList.toggle("bad", counts.failed > 0);
    set(one.button, {
      "aria-label": `${nameOf(row.path)}${count ? ` ${count}` : ""}, ${state ?? "not reached"}, ${took}${row.depth ? `, ${row.path}` : ""}`,
      "aria-current": chosen === row.path ? "true" : null,
      title: `${row.path}\n${row.kind}, ${state ?? "not reached"}, ${took}\nfrom ${exact(row.from)}`,
    });
    drawLane(one.lane, row, t, end);
  };

  const drawLane = (lane: SVGElement, row: Row, t: number | null, end: number): void => {
    const d = data!,
      w = Math.max(1, width - nameWidth),
      X = (at: number): number => scale.x(Math.min(at, d.to)) * w,
      parts: SVGElement[] = [];
    set(lane, { width: w, height: ROW });
    const usual = row.strip || row.children ? null : d.usual(row.path);
    if (usual && usual.p95 > 0) {
      const a = X(row.from + usual.p50),
        b = X(Math.min(row.from + usual.p95, Math.min(end, d.to)));
      if (b - a >= 2)
        parts.push(svg("rect", { x: a, y: 3, width: b - a, height: ROW - 6, rx: 2, class: "usual" }));
    }
    if (row.strip) parts.push(...stripParts(row, X, t));
    else if (row.spans.length === 0) {
      const a = X(row.from),
        b = X(row.to ?? d.to);
      parts.push(
        svg("path", {
          d: `M${a} ${ROW / 2 + 3}V${ROW / 2}H${Math.max(a + 2, b)}V${ROW / 2 + 3}`,
          class: "bracket",
        }),
      );
    }
    for (const one of row.spans) {
      if (t !== null && one.from > t) continue;
      const until = Math.min(one.to ?? d.to, t ?? Infinity),
        a = X(one.from),
        b = Math.max(a + (one.kind === "try" ? 3 : 1), X(until));
      if (one.kind === "wait")
        parts.push(
          svg("path", { d: `M${a} ${ROW / 2}H${b}`, class: "wait" }),
          svg("path", { d: `M${a} ${ROW / 2 - 4}v8`, class: "wait" }),
        );
      else if (one.kind === "backoff")
        parts.push(svg("path", { d: `M${a} ${ROW / 2}H${Math.max(a + 1, b)}`, class: "backoff" }));
      else {
        const isDone = one.to !== null && (t === null || one.to <= t),
          outcome = isDone ? one.outcome : "running";
        parts.push(
          svg("rect", {
            x: a + 0.5,
            y: 7.5,
            width: Math.max(2, b - a - 1),
            height: ROW - 15,
            rx: 2,
            class: `try o-${outcome}`,
          }),
        );
      }
    }
    lane.replaceChildren(...parts);
  };

  const stripParts = (row: Row, X: (at: number) => number, t: number | null): SVGElement[] => {
    const strip = row.strip!,
      most = Math.max(
        1,
        ...strip.completed.map((n, i) => n + (strip.failed[i] ?? 0) + (strip.cancelled[i] ?? 0)),
      );
    const parts: SVGElement[] = [
      svg("path", { d: `M${X(row.from)} ${ROW - 4.5}H${X(row.to ?? data!.to)}`, class: "bracket" }),
    ];
    strip.completed.forEach((done, i) => {
      const from = strip.from + i * strip.bucket_ms;
      if (t !== null && from > t) return;
      const failed = strip.failed[i] ?? 0,
        other = strip.cancelled[i] ?? 0,
        a = X(from),
        w = Math.max(1.5, X(from + strip.bucket_ms) - a - 0.5);
      const high = ROW - 9,
        h = ((done + other) / most) * high,
        f = failed ? Math.max(3, (failed / most) * high) : 0;
      if (done + other) parts.push(svg("rect", { x: a, y: ROW - 5 - h, width: w, height: h, class: "many" }));
      if (failed)
        parts.push(
          svg("rect", { x: a, y: Math.max(1, ROW - 5 - h - f), width: w, height: f, class: "many-failed" }),
        );
    });
    return parts;
  };

  const drawAxis = (): void => {
    const d = data!,
      w = Math.max(1, width - nameWidth),
      parts: SVGElement[] = [];
    set(axis, { width: w, height: 24 });
    let free = 0; // from here on no text stands
    const notches = scale.pieces
      .filter((piece) => piece.isFolded)
      .map((piece) => ({ a: piece.x0 * w, b: piece.x1 * w }));
    for (const one of ticks(scale, d.from, d.to, w)) {
      const x = one.x * w,
        isLast = x > w - 44,
        text = one.t === d.from ? "0" : tickText(one.t - d.from),
        long = text.length * 6 + 6,
        a = isLast ? x - 4 - long : x,
        b = isLast ? x : x + 3 + long;
      if (a < free || notches.some((notch) => a < notch.b && b > notch.a)) continue;
      free = b;
      parts.push(
        svg("path", { d: `M${x} 18V24`, class: "tick" }),
        svg("text", { x: isLast ? x - 4 : x + 3, y: 15, "text-anchor": isLast ? "end" : "start" }, text),
      );
    }
    for (const piece of scale.pieces) {
      if (!piece.isFolded) continue;
      const a = piece.x0 * w,
        b = piece.x1 * w,
        m = (a + b) / 2;
      parts.push(
        svg("rect", { x: a, y: 0, width: b - a, height: 24, class: "fold" }),
        svg("path", { d: `M${m - 6} 18l4 -8l4 12l4 -8`, class: "notch" }),
        svg(
          "text",
          { x: m, y: 8, "text-anchor": "middle", class: "fold-text" },
          roughly(piece.to - piece.from),
        ),
      );
    }
    axis.replaceChildren(...parts);
    const shownAt = d.at ?? (d.isOpen ? d.to : null);
    now.style.display = shownAt === null ? "none" : "block";
    now.classList.toggle("past", d.at !== null);
    if (shownAt !== null) now.style.insetInlineStart = `${nameWidth + scale.x(shownAt) * w}px`;
    now.style.height = `${Math.max(d.rows.length * ROW, body.clientHeight)}px`;
  };

  const draw = (): void => {
    planned = 0;
    if (!data) return;
    width = list.clientWidth;
    nameWidth = Math.min(220, Math.max(136, width * 0.3));
    host.style.setProperty("--tl-name", `${nameWidth}px`);
    list.style.height = `${data.rows.length * ROW}px`;
    drawAxis();
    const first = Math.max(0, Math.floor(body.scrollTop / ROW) - 8),
      last = Math.min(data.rows.length, Math.ceil((body.scrollTop + (body.clientHeight || 400)) / ROW) + 8);
    const seen = new Set<string>();
    for (let i = first; i < last; i += 1) {
      const row = data.rows[i]!;
      seen.add(row.path);
      let one = shown.get(row.path);
      if (!one) {
        one = make(row);
        shown.set(row.path, one);
        list.append(one.item);
      }
      paint(one, row, i);
    }
    for (const [path, one] of shown)
      if (!seen.has(path)) {
        one.item.remove();
        shown.delete(path);
      }
  };
  const plan = (): void => {
    if (!planned) planned = requestAnimationFrame(draw);
  };
  body.addEventListener("scroll", plan, { passive: true });
  const watching = new ResizeObserver(plan);
  watching.observe(body);

  let isScrubbing = false;
  const scrub = (event: PointerEvent): void => {
    const bounds = axis.getBoundingClientRect();
    onScrub(scale.t(Math.min(1, Math.max(0, (event.clientX - bounds.left) / (bounds.width || 1)))));
  };
  axis.addEventListener("pointerdown", (event) => {
    isScrubbing = true;
    axis.setPointerCapture((event as PointerEvent).pointerId);
    scrub(event as PointerEvent);
  });
  axis.addEventListener("pointermove", (event) => {
    if (isScrubbing) scrub(event as PointerEvent);
  });
  axis.addEventListener("pointerup", () => {
    isScrubbing = false;
  });

  return {
    show: (next) => {
      data = next;
      scale = scaleOf(next.from, next.to, busyOf(next), next.isFolding);
      plan();
    },
    choose: (path, how = "scroll") => {
      chosen = path;
      const index = data?.rows.findIndex((row) => row.path === path) ?? -1;
      if (index >= 0 && how !== "stay") {
        const top = index * ROW;
        if (top < body.scrollTop) body.scrollTop = top;
        else if (top + ROW > body.scrollTop + body.clientHeight)
          body.scrollTop = top + ROW - body.clientHeight;
      }
      draw();
      if (how === "focus" && path !== null) shown.get(path)?.button.focus({ preventScroll: true });
    },
    close: () => {
      watching.disconnect();
      cancelAnimationFrame(planned);
      head.remove();
      body.remove();
    },
  };
};
