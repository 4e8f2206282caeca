// Where the nodes of a graph stand. A plan is a tree of blocks, so blocks are laid out by recursion, and the nodes of one block in
// layers. Edges that skip layers run in a lane at the left of the nodes, edges that lead back in one at the right. Pure.
export type LayoutNode = { key: string; title: string; note: string; blocks: LayoutBlock[] };
export type LayoutBlock = {
  label: string;
  nodes: LayoutNode[];
  edges: { from: string; to: string; on: string }[];
};
export type Box = {
  key: string;
  x: number;
  y: number;
  w: number;
  h: number;
  depth: number;
  isScope: boolean;
  node: LayoutNode;
};
export type Wire = {
  points: number[];
  on: string;
  from: string;
  to: string;
  isBack: boolean;
  labelX: number;
  labelY: number;
};
export type Caption = { x: number; y: number; text: string };
export type Drawn = { boxes: Box[]; wires: Wire[]; captions: Caption[]; w: number; h: number };

const W_MIN = 150,
  W_MAX = 240,
  H = 40,
  GAP_X = 20,
  GAP_Y = 26,
  PAD = 12,
  HEAD = 30,
  LANE = 12;
const CHAR = 7.2;

type Sized = {
  node: LayoutNode;
  w: number;
  h: number;
  inner: { drawn: Drawn; dx: number; dy: number; label: string }[];
};

const widthOf = (node: LayoutNode): number =>
  Math.min(W_MAX, Math.max(W_MIN, Math.max(node.title.length * CHAR + 86, node.note.length * 6 + 80)));

const sized = (node: LayoutNode): Sized => {
  const blocks = node.blocks.filter((one) => one.nodes.length > 0);
  if (!blocks.length) return { node, w: widthOf(node), h: H, inner: [] };
  let x = PAD,
    tallest = 0;
  const hasLabels = blocks.length > 1 || (blocks[0]!.label !== "" && blocks[0]!.label !== "steps");
  const top = HEAD + (hasLabels ? 16 : 0),
    inner: Sized["inner"] = [];
  for (const block of blocks) {
    const drawn = layout(block);
    inner.push({ drawn, dx: x, dy: top, label: hasLabels ? block.label : "" });
    x += drawn.w + GAP_X;
    tallest = Math.max(tallest, drawn.h);
  }
  const inside = x - GAP_X + PAD,
    w = Math.max(widthOf(node), inside);
  for (const one of inner) one.dx += (w - inside) / 2;
  return { node, w, h: top + tallest + PAD, inner };
};

type Edge = { from: string; to: string; on: string };

// Which edges lead back: those to a node that is still open in a walk from the start. Without recursion: a chain may be long.
const backEdges = (names: string[], out: Map<string, Edge[]>): Set<Edge> => {
  const state = new Map<string, 1 | 2>(),
    back = new Set<Edge>();
  for (const start of names) {
    if (state.has(start)) continue;
    const stack: { name: string; i: number }[] = [{ name: start, i: 0 }];
    state.set(start, 1);
    while (stack.length) {
      const top = stack.at(-1)!,
        edge = (out.get(top.name) ?? [])[top.i];
      top.i += 1;
      if (!edge) {
        state.set(top.name, 2);
        stack.pop();
        continue;
      }
      if (state.get(edge.to) === 1) back.add(edge);
      else if (!state.has(edge.to)) {
        state.set(edge.to, 1);
        stack.push({ name: edge.to, i: 0 });
      }
    }
  }
  return back;
};

const layersOf = (names: string[], edges: Edge[], back: Set<Edge>): Map<string, number> => {
  const layer = new Map(names.map((name) => [name, 0])),
    waiting = new Map(names.map((name) => [name, 0])),
    out = new Map<string, Edge[]>();
  for (const edge of edges)
    if (!back.has(edge)) {
      waiting.set(edge.to, (waiting.get(edge.to) ?? 0) + 1);
      out.set(edge.from, [...(out.get(edge.from) ?? []), edge]);
    }
  const ready = names.filter((name) => !waiting.get(name));
  for (let i = 0; i < ready.length; i += 1) {
    for (const edge of out.get(ready[i]!) ?? []) {
      layer.set(edge.to, Math.max(layer.get(edge.to)!, layer.get(ready[i]!)! + 1));
      waiting.set(edge.to, waiting.get(edge.to)! - 1);
      if (!waiting.get(edge.to)) ready.push(edge.to);
    }
  }
  return layer;
};

export const layout = (block: LayoutBlock): Drawn => {
  const all = block.nodes.map(sized),
    names = block.nodes.map((one) => one.title),
    byName = new Map(all.map((one) => [one.node.title, one]));
  const isChain = block.edges.length === 0;
  const edges: Edge[] = block.edges.filter(
    (one) => byName.has(one.from) && byName.has(one.to) && one.from !== one.to,
  );
  const loops = block.edges.filter((one) => one.from === one.to && byName.has(one.from));
  const out = new Map<string, Edge[]>();
  for (const edge of edges) out.set(edge.from, [...(out.get(edge.from) ?? []), edge]);
  const back = backEdges(names, out),
    layer = isChain && names.length === 1 ? new Map([[names[0]!, 0]]) : layersOf(names, edges, back);
  const rows: Sized[][] = [];
  for (const one of all) (rows[layer.get(one.node.title) ?? 0] ??= []).push(one);
  const into = new Map<string, Edge[]>();
  for (const edge of edges)
    if (!back.has(edge)) {
      const list = into.get(edge.to);
      if (list) list.push(edge);
      else into.set(edge.to, [edge]);
    }
  // Steps that stand alone in their row, as in a chain, are as wide as the widest of them.
  const alone = rows.filter((row) => row?.length === 1 && !row[0]!.inner.length).map((row) => row[0]!),
    wide = alone.reduce((most, one) => Math.max(most, one.w), 0);
  for (const one of alone) one.w = wide;
  // One pass from above: a node stands under the middle of those that lead to it.
  const place = new Map<string, number>();
  for (const row of rows) {
    if (!row) continue;
    const want = new Map(
      row.map((one, i) => {
        const before = (into.get(one.node.title) ?? [])
          .map((edge) => place.get(edge.from))
          .filter((x): x is number => x !== undefined);
        return [one, before.length ? before.reduce((a, b) => a + b, 0) / before.length : i];
      }),
    );
    if (row.length > 1) row.sort((a, b) => want.get(a)! - want.get(b)!);
    row.forEach((one, i) => place.set(one.node.title, i - (row.length - 1) / 2));
  }
  const skips = edges.filter((one) => !back.has(one) && layer.get(one.to)! - layer.get(one.from)! > 1),
    backs = [...edges.filter((one) => back.has(one)), ...loops];
  const left = Math.min(skips.length, 12) * LANE,
    right = Math.min(backs.length, 12) * LANE;
  const widths = rows.map((row) => (row ?? []).reduce((sum, one) => sum + one.w + GAP_X, -GAP_X)),
    widest = Math.max(0, ...widths);
  const drawn: Drawn = { boxes: [], wires: [], captions: [], w: left + widest + right, h: 0 };
  const boxes = new Map<string, Box>();
  let y = 0;
  const isLabelled = edges.some((one) => one.on && one.on !== "default");
  rows.forEach((row, i) => {
    let x = left + (widest - widths[i]!) / 2,
      tallest = 0;
    for (const one of row ?? []) {
      const box: Box = {
        key: one.node.key,
        x,
        y,
        w: one.w,
        h: one.h,
        depth: 0,
        isScope: one.inner.length > 0,
        node: one.node,
      };
      boxes.set(one.node.title, box);
      drawn.boxes.push(box);
      for (const inner of one.inner) {
        if (inner.label) drawn.captions.push({ x: x + inner.dx, y: y + HEAD + 6, text: inner.label });
        for (const b of inner.drawn.boxes)
          drawn.boxes.push({ ...b, x: b.x + x + inner.dx, y: b.y + y + inner.dy, depth: b.depth + 1 });
        for (const c of inner.drawn.captions)
          drawn.captions.push({ ...c, x: c.x + x + inner.dx, y: c.y + y + inner.dy });
        for (const w of inner.drawn.wires)
          drawn.wires.push({
            ...w,
            points: w.points.map((p, k) => p + (k % 2 ? y + inner.dy : x + inner.dx)),
            labelX: w.labelX + x + inner.dx,
            labelY: w.labelY + y + inner.dy,
          });
      }
      x += one.w + GAP_X;
      tallest = Math.max(tallest, one.h);
    }
    y += tallest + GAP_Y + (isLabelled ? 10 : 0);
  });
  drawn.h = Math.max(0, y - GAP_Y - (isLabelled ? 10 : 0));
  const label = (on: string): string => (on === "default" ? "" : on);
  for (const edge of edges) {
    const a = boxes.get(edge.from)!,
      b = boxes.get(edge.to)!,
      ax = a.x + a.w / 2,
      bx = b.x + b.w / 2;
    if (back.has(edge)) continue;
    const skip = skips.indexOf(edge);
    if (skip < 0) {
      const mid = b.y - GAP_Y / 2;
      drawn.wires.push({
        points: Math.abs(ax - bx) < 1 ? [ax, a.y + a.h, bx, b.y] : [ax, a.y + a.h, ax, mid, bx, mid, bx, b.y],
        on: label(edge.on),
        from: a.key,
        to: b.key,
        isBack: false,
        labelX: bx + 5,
        labelY: b.y - 7,
      });
    } else {
      const lane = left - ((skip % 12) + 0.5) * LANE,
        top = a.y + a.h + 8,
        low = b.y - 9;
      drawn.wires.push({
        points: [ax - 10, a.y + a.h, ax - 10, top, lane, top, lane, low, bx - 10, low, bx - 10, b.y],
        on: label(edge.on),
        from: a.key,
        to: b.key,
        isBack: false,
        labelX: bx - 5,
        labelY: b.y - 7,
      });
    }
  }
  backs.forEach((edge, i) => {
    const a = boxes.get(edge.from)!,
      b = boxes.get(edge.to)!,
      lane = left + widest + ((i % 12) + 0.6) * LANE;
    drawn.wires.push({
      points: [
        a.x + a.w,
        a.y + a.h / 2 + 5,
        lane,
        a.y + a.h / 2 + 5,
        lane,
        b.y + b.h / 2 - 5,
        b.x + b.w,
        b.y + b.h / 2 - 5,
      ],
      on: label(edge.on),
      from: a.key,
      to: b.key,
      isBack: true,
      labelX: a.x + a.w + 4,
      labelY: a.y + a.h / 2,
    });
  });
  return drawn;
};
