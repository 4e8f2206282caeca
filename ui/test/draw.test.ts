import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { layout } from "../src/draw/layout.ts";
import type { LayoutBlock, LayoutNode } from "../src/draw/layout.ts";
import { joined, scaleOf, tickText, ticks } from "../src/draw/scale.ts";

const node = (title: string, ...blocks: LayoutBlock[]): LayoutNode => ({
  key: title,
  title,
  note: "",
  blocks,
});
const block = (nodes: LayoutNode[], edges: [string, string][] = [], label = ""): LayoutBlock => ({
  label,
  nodes,
  edges: edges.map(([from, to]) => ({ from, to, on: "" })),
});
const chain = (n: number): LayoutBlock =>
  block(
    Array.from({ length: n }, (_, i) => node(`n${i}`)),
    Array.from({ length: n - 1 }, (_, i) => [`n${i}`, `n${i + 1}`] as [string, string]),
  );

test("a chain stands under itself", () => {
  const { boxes, wires } = layout(chain(4));
  assert.equal(wires.length, 3);
  for (let i = 1; i < boxes.length; i += 1) assert.ok(boxes[i]!.y >= boxes[i - 1]!.y + boxes[i - 1]!.h);
});
test("nodes of one layer do not overlap", () => {
  const { boxes } = layout(
      block(
        [node("a"), node("b"), node("c"), node("d")],
        [
          ["a", "b"],
          ["a", "c"],
          ["b", "d"],
          ["c", "d"],
        ],
      ),
    ),
    [, b, c] = boxes;
  assert.equal(b!.y, c!.y);
  assert.ok(b!.x + b!.w <= c!.x || c!.x + c!.w <= b!.x);
});
test("a cycle has one edge that leads back", () => {
  const { wires } = layout(
    block(
      [node("a"), node("b")],
      [
        ["a", "b"],
        ["b", "a"],
      ],
    ),
  );
  assert.deepEqual(wires.map((wire) => wire.isBack).sort(), [false, true]);
});
test("a scope contains what is inside it", () => {
  const { boxes } = layout(block([node("loop", block([node("x"), node("y")], [["x", "y"]]))])),
    [scope, ...inside] = boxes;
  assert.equal(inside.length, 2);
  for (const one of inside)
    assert.ok(
      one.x >= scope!.x &&
        one.y >= scope!.y &&
        one.x + one.w <= scope!.x + scope!.w &&
        one.y + one.h <= scope!.y + scope!.h,
    );
});
test("five thousand nodes in a row or in a fan are laid out without recursion over edges", () => {
  assert.equal(layout(chain(5000)).boxes.length, 5000);
  const fan = block(
    [node("a"), ...Array.from({ length: 4999 }, (_, i) => node(`b${i}`))],
    Array.from({ length: 4999 }, (_, i) => ["a", `b${i}`] as [string, string]),
  );
  assert.equal(layout(fan).wires.length, 4999);
});

test("time and place are each other's inverse", () => {
  const scale = scaleOf(
    0,
    100_000,
    [
      { from: 0, to: 1000 },
      { from: 90_000, to: 100_000 },
    ],
    true,
  );
  assert.equal(scale.pieces.filter((piece) => piece.isFolded).length, 1);
  for (const t of [0, 500, 1000, 40_000, 95_000, 100_000]) assert.ok(Math.abs(scale.t(scale.x(t)) - t) < 1);
  assert.equal(scale.x(0), 0);
  assert.ok(Math.abs(scale.x(100_000) - 1) < 1e-9);
});
test("a folded wait takes little room", () => {
  const busy = [
      { from: 0, to: 1000 },
      { from: 99_000, to: 100_000 },
    ],
    folded = scaleOf(0, 100_000, busy, true),
    plain = scaleOf(0, 100_000, busy, false);
  assert.ok(folded.x(1000) > plain.x(1000) * 5);
});
test("hours of waiting leave a second of work its room, also when no wait is long beside the others", () => {
  const hour = 3_600_000;
  assert.ok(scaleOf(0, 24 * hour, [{ from: 0, to: 1000 }], true).x(1000) > 0.5);
  const each = Array.from({ length: 10 }, (_, i) => ({ from: i * hour, to: i * hour + 100 }));
  const scale = scaleOf(0, 10 * hour, each, true);
  assert.equal(scale.pieces.filter((piece) => piece.isFolded).length, 10);
  assert.ok(scale.x(100) > 0.02);
});
test("intervals that touch are joined", () => {
  assert.deepEqual(
    joined([
      { from: 5, to: 6 },
      { from: 0, to: 2 },
      { from: 1, to: 3 },
    ]),
    [
      { from: 0, to: 3 },
      { from: 5, to: 6 },
    ],
  );
});
test("ticks are round, in order and apart", () => {
  const scale = scaleOf(0, 2500, [{ from: 0, to: 2500 }], true),
    found = ticks(scale, 0, 2500, 600);
  assert.deepEqual(
    found.map((one) => one.t),
    [0, 500, 1000, 1500, 2000, 2500],
  );
  assert.deepEqual([50, 150, 1500, 60_000, 5_400_000].map(tickText), [
    "50 ms",
    "0.15 s",
    "1.5 s",
    "1 m",
    "1 h 30 m",
  ]);
});

// The contrast of two colours by WCAG 2.2.
const light = (hex: string): number => {
  const [r, g, b] = [1, 3, 5]
    .map((i) => parseInt(hex.slice(i, i + 2), 16) / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r! + 0.7152 * g! + 0.0722 * b!;
};
const contrast = (a: string, b: string): number => {
  const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
  return (x! + 0.05) / (y! + 0.05);
};
test("every state's text is readable on its ground, the card and the page, in both themes", () => {
  const css = readFileSync(new URL("../src/style/tokens.css", import.meta.url), "utf8"),
    tokens = new Map<string, [string, string]>();
  for (const match of css.matchAll(/--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)/g))
    tokens.set(match[1]!, [match[2]!, match[3]!]);
  for (const theme of [0, 1] as const) {
    for (const name of [...tokens.keys()].filter((one) => tokens.has(`${one}-soft`)))
      for (const ground of [`${name}-soft`, "card", "ground"])
        assert.ok(
          contrast(tokens.get(name)![theme], tokens.get(ground)![theme]) >= 4.5,
          `${name} on ${ground}`,
        );
    for (const ground of ["card", "ground", "hover"])
      for (const ink of ["ink", "dim"])
        assert.ok(
          contrast(tokens.get(ink)![theme], tokens.get(ground)![theme]) >= 4.5,
          `${ink} on ${ground}`,
        );
    assert.ok(contrast(tokens.get("on-accent")![theme], tokens.get("accent")![theme]) >= 4.5);
  }
});
