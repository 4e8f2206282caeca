// Imports go one way: lib knows no word of Holdfast, api is HTTP alone, model knows no document, draw no HTTP, screens know all.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { test } from "node:test";

const SRC = new URL("../src", import.meta.url).pathname;
const MAY: Record<string, string[]> = {
  lib: ["lib"],
  api: ["api", "lib"],
  model: ["model", "lib", "api/types"],
  draw: ["draw", "model", "lib", "api/types"],
  parts: ["parts", "draw", "model", "api", "lib"],
  editor: ["editor"],
  screens: ["screens", "parts", "draw", "model", "api", "lib", "editor"],
};

const files = readdirSync(SRC, { recursive: true, encoding: "utf8" }).filter((name) => /\.tsx?$/.test(name));
for (const name of files) {
  const room = name.split("/")[0]!;
  if (!MAY[room]) continue;
  test(`${name} imports only what its folder may know`, () => {
    for (const match of readFileSync(join(SRC, name), "utf8").matchAll(/(?:from|import\()\s*"(\.[^"]+)"/g)) {
      const target = relative(SRC, resolve(dirname(join(SRC, name)), match[1]!));
      assert.ok(
        MAY[room]!.some((one) => target.startsWith(`${one}/`) || target.startsWith(`${one}.`)),
        `${name} imports ${target}`,
      );
    }
  });
}
test("nothing puts text into the page as markup", () => {
  for (const name of files)
    assert.doesNotMatch(
      readFileSync(join(SRC, name), "utf8"),
      /innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySetInnerHTML|\beval\(/,
      name,
    );
});
