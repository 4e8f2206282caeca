// Draws a laid-out graph as SVG: only what is in view, each element made once and then changed. Given data, no HTTP.
import { cut } from "../lib/text.ts";
import { layout } from "./layout.ts";
import type { Box, Drawn, LayoutBlock, LayoutNode } from "./layout.ts";
import { set, shape, svg } from "./svg.ts";

export type NodeLook = { status: string | null; note: string; badge: string; isProblem?: boolean };
export type Graph = {
  show: (block: LayoutBlock, shapeKey: string) => void;
  paint: (look: (key: string) => NodeLook) => void;
  choose: (key: string | null, isShown?: boolean) => void;
  fit: () => void;
  zoom: (by: number) => void;
  close: () => void;
  order: () => string[];
};

const FIT_MAX = 1,
  ZOOM_MIN = 0.05,
  ZOOM_MAX = 2.5;

const NOTE_CHAR = 6.1;
// What a note says beside its first part (the time that a step took) stays whole.
const noteIn = (note: string, room: number): string => {
  if (note.length <= room) return note;
  const [what = "", ...rest] = note.split(" · "),
    tail = rest.length ? ` · ${rest.join(" · ")}` : "";
  return cut(what, Math.max(2, room - tail.length)) + tail;
};

// `isPlain`: a definition without a run, so nothing has a state.
export const graph = (host: HTMLElement, onChoose: (key: string) => void, isPlain = false): Graph => {
  const root = svg("svg", {
    class: isPlain ? "graph plain" : "graph",
    tabindex: 0,
    role: "img",
    "aria-label": isPlain ? "Graph of the steps" : "Graph of the steps. The timeline lists the same steps.",
    "data-testid": "graph",
  }) as SVGSVGElement;
  const arrows = svg("defs");
  const arrow = svg("marker", {
    id: "arrow",
    viewBox: "0 0 8 8",
    refX: 7,
    refY: 4,
    markerWidth: 7,
    markerHeight: 7,
    orient: "auto-start-reverse",
  });
  arrow.append(svg("path", { d: "M1 1L7 4L1 7", class: "arrow" }));
  arrows.append(arrow);
  const world = svg("g"),
    wires = svg("g", { class: "wires" }),
    nodes = svg("g"),
    captions = svg("g");
  world.append(nodes, wires, captions);
  root.append(arrows, world);
  host.append(root);

  let drawn: Drawn = { boxes: [], wires: [], captions: [], w: 0, h: 0 },
    key = "",
    chosen: string | null = null;
  let x = 0,
    y = 0,
    k = 1,
    isMoved = false,
    planned = 0;
  let look: (key: string) => NodeLook = () => ({ status: null, note: "", badge: "" });
  const shown = new Map<string, { group: SVGElement; box: Box; seen: string }>(),
    shownWires = new Map<number, SVGElement>();

  const size = (): { w: number; h: number } => ({ w: root.clientWidth || 400, h: root.clientHeight || 300 });

  const make = (box: Box): SVGElement => {
    const group = svg("g", {
      transform: `translate(${box.x} ${box.y})`,
      "data-key": box.key,
      "data-testid": `graph-node-${box.key.replaceAll("\u0000", ".")}`,
    });
    group.append(
      svg("rect", { width: box.w, height: box.h, rx: 6, class: "box" }),
      svg("g", { transform: `translate(10 ${box.isScope ? 8 : 13})` }),
    );
    const room = Math.max(4, Math.floor((box.w - 84) / 7.1));
    const name = box.node.title.length > room ? `${box.node.title.slice(0, room - 1)}…` : box.node.title;
    group.append(
      svg("text", { x: isPlain ? 12 : 30, y: box.isScope ? 20 : 17, class: "name" }, name),
      svg("text", { x: isPlain ? 12 : 30, y: 32, class: "note" }),
      svg("text", { x: box.w - 8, y: box.isScope ? 20 : 17, class: "badge" }),
    );
    group.append(svg("title", {}, `${box.node.title}: ${box.node.note}`));
    return group;
  };
  const dress = (one: { group: SVGElement; box: Box; seen: string }): void => {
    const wears = look(one.box.key),
      seen = `${wears.status}|${wears.note}|${wears.badge}|${wears.isProblem ?? ""}|${chosen === one.box.key}`;
    if (seen === one.seen) return;
    one.seen = seen;
    const [, mark, , note, badge] = one.group.children;
    set(one.group, {
      class: `node s-${wears.status ?? "none"}${one.box.isScope ? " scope" : ""}${chosen === one.box.key ? " chosen" : ""}${wears.isProblem ? " problem" : ""}`,
      "data-state": wears.status ?? "none",
    });
    mark!.replaceChildren(shape(wears.status));
    note!.textContent = one.box.isScope ? "" : noteIn(wears.note, Math.floor((one.box.w - 36) / NOTE_CHAR));
    badge!.textContent = wears.badge;
    set(badge!, { class: wears.badge.includes("failed") ? "badge bad" : "badge" });
  };

  const draw = (): void => {
    planned = 0;
    const { w, h } = size(),
      margin = 60,
      x0 = -x / k - margin,
      y0 = -y / k - margin,
      x1 = (w - x) / k + margin,
      y1 = (h - y) / k + margin;
    set(world, { transform: `translate(${x} ${y}) scale(${k})` });
    root.classList.toggle("far", k < 0.45);
    const seen = new Set<string>();
    for (const box of drawn.boxes) {
      if (box.x > x1 || box.y > y1 || box.x + box.w < x0 || box.y + box.h < y0) continue;
      seen.add(box.key);
      let one = shown.get(box.key);
      if (!one) {
        one = { group: make(box), box, seen: "" };
        shown.set(box.key, one);
        nodes.append(one.group);
      }
      dress(one);
    }
    for (const [name, one] of shown)
      if (!seen.has(name)) {
        one.group.remove();
        shown.delete(name);
      }
    drawn.wires.forEach((wire, i) => {
      const p = wire.points,
        ys = [p[1]!, p.at(-1)!],
        xs = [p[0]!, p.at(-2)!, p[4] ?? p[0]!];
      const isSeen =
        Math.min(...xs) <= x1 && Math.max(...xs) >= x0 && Math.min(...ys) <= y1 && Math.max(...ys) >= y0;
      const has = shownWires.get(i);
      if (!isSeen) {
        if (has) {
          has.remove();
          shownWires.delete(i);
        }
        return;
      }
      const isTaken = look(wire.from).status !== null && look(wire.to).status !== null;
      if (has) {
        set(has, { class: isTaken ? "wire taken" : "wire" });
        return;
      }
      const group = svg("g", { class: isTaken ? "wire taken" : "wire" });
      let d = `M${p[0]} ${p[1]}`;
      for (let j = 2; j < p.length; j += 2) d += `L${p[j]} ${p[j + 1]}`;
      group.append(svg("path", { d, "marker-end": "url(#arrow)" }));
      if (wire.on) group.append(svg("text", { x: wire.labelX, y: wire.labelY }, wire.on));
      shownWires.set(i, group);
      wires.append(group);
    });
  };
  const plan = (): void => {
    if (!planned) planned = requestAnimationFrame(draw);
  };

  const fit = (): void => {
    const { w, h } = size();
    k = Math.min(FIT_MAX, Math.max(ZOOM_MIN, Math.min((w - 32) / (drawn.w || 1), (h - 32) / (drawn.h || 1))));
    // A long chain is read from its top at a size that can be read.
    if (k < 0.5 && drawn.h > drawn.w)
      k = Math.min(FIT_MAX, Math.max(0.6, Math.min(1, (w - 32) / (drawn.w || 1))));
    x = (w - drawn.w * k) / 2;
    y = drawn.h * k < h ? Math.max(16, (h - drawn.h * k) / 3) : 16;
    isMoved = false;
    plan();
  };
  const zoomAt = (by: number, px: number, py: number): void => {
    const next = Math.min(ZOOM_MAX, Math.max(ZOOM_MIN, k * by));
    x = px - ((px - x) * next) / k;
    y = py - ((py - y) * next) / k;
    k = next;
    isMoved = true;
    plan();
  };

  let drag: { id: number; x: number; y: number; moved: boolean } | null = null;
  root.addEventListener("pointerdown", (event) => {
    if (event.button === 0) drag = { id: event.pointerId, x: event.clientX, y: event.clientY, moved: false };
  });
  root.addEventListener("pointermove", (event) => {
    if (!drag || drag.id !== event.pointerId) return;
    const dx = event.clientX - drag.x,
      dy = event.clientY - drag.y;
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    if (!drag.moved) {
      drag.moved = true;
      root.setPointerCapture(event.pointerId);
    }
    x += dx;
    y += dy;
    drag.x = event.clientX;
    drag.y = event.clientY;
    isMoved = true;
    plan();
  });
  root.addEventListener("pointerup", (event) => {
    const was = drag;
    drag = null;
    if (was?.moved) return;
    const found = (event.target as Element).closest("[data-key]");
    if (found) onChoose(found.getAttribute("data-key")!);
  });
  root.addEventListener("pointercancel", () => {
    drag = null;
  });
  root.addEventListener(
    "wheel",
    (event) => {
      const bounds = root.getBoundingClientRect();
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        zoomAt(Math.exp(-event.deltaY / 300), event.clientX - bounds.left, event.clientY - bounds.top);
        return;
      }
      // The page scrolls when the whole graph is in view.
      const { w, h } = size(),
        isInside = drawn.w * k <= w && drawn.h * k <= h;
      if (isInside) return;
      const limitY = Math.min(0, h - drawn.h * k - 32),
        next = Math.min(32, Math.max(limitY, y - event.deltaY));
      if (next === y && !event.deltaX) return;
      event.preventDefault();
      y = next;
      x -= event.deltaX;
      isMoved = true;
      plan();
    },
    { passive: false },
  );
  const watching = new ResizeObserver(() => {
    if (isMoved) plan();
    else fit();
  });
  watching.observe(host);

  const reveal = (box: Box): void => {
    const { w, h } = size(),
      left = box.x * k + x,
      top = box.y * k + y;
    const high = Math.min(box.h * k, 60);
    if (left < 0 || left + Math.min(box.w * k, w) > w) {
      x = w / 2 - (box.x + box.w / 2) * k;
      isMoved = true;
    }
    if (top < 0 || top + high > h) {
      y = h / 3 - box.y * k;
      isMoved = true;
    }
  };

  return {
    show: (block, shapeKey) => {
      if (shapeKey === key) return;
      key = shapeKey;
      drawn = layout(block);
      for (const one of shown.values()) one.group.remove();
      shown.clear();
      wires.replaceChildren();
      shownWires.clear();
      captions.replaceChildren(
        ...drawn.captions.map((one) => svg("text", { x: one.x, y: one.y, class: "caption" }, one.text)),
      );
      if (!isMoved) fit();
      else plan();
    },
    paint: (next) => {
      look = next;
      plan();
    },
    choose: (next, isShown = true) => {
      chosen = next;
      const box = drawn.boxes.find((one) => one.key === next);
      if (box && isShown) reveal(box);
      plan();
    },
    fit,
    zoom: (by) => {
      const { w, h } = size();
      zoomAt(by, w / 2, h / 2);
    },
    order: () => [...drawn.boxes].sort((a, b) => a.y - b.y || a.x - b.x).map((one) => one.key),
    close: () => {
      watching.disconnect();
      cancelAnimationFrame(planned);
      root.remove();
    },
  };
};

export type { LayoutBlock, LayoutNode };
