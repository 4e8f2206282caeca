// Bundles src/ into the folder that the server sends: index.html, and assets/<hash>/ with compressed copies beside each file.
// Called by build.py, which finds Node and installs the packages. Screens and the editor are loaded when they are opened.
import { build } from "esbuild";
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const here = import.meta.dirname;
const out = process.argv[2] ?? join(here, "..", "holdfast", "ui", "dist");
const fresh = `${out}.new`;

const { outputFiles, metafile } = await build({
  absWorkingDir: here,
  entryPoints: { page: "src/main.tsx", style: "src/style/page.css", icon: "src/icon.svg" },
  outdir: fresh,
  bundle: true,
  splitting: true,
  minify: true,
  write: false,
  metafile: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  inject: ["src/first.ts"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  logLevel: "warning",
  loader: { ".svg": "copy" },
  // The hash stands in the address, so that a browser keeps a file for ever and never shows an old one.
  entryNames: "assets/[hash]/[name]",
  chunkNames: "assets/[hash]/[name]",
  assetNames: "assets/[hash]/[name]",
});

rmSync(fresh, { recursive: true, force: true });
for (const file of outputFiles) {
  mkdirSync(dirname(file.path), { recursive: true });
  writeFileSync(file.path, file.contents);
  writeFileSync(`${file.path}.gz`, gzipSync(file.contents, { level: 9 }));
  writeFileSync(
    `${file.path}.br`,
    brotliCompressSync(file.contents, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }),
  );
}

const addresses = Object.fromEntries(
  Object.entries(metafile.outputs).map(([path, made]) => [
    path,
    // The server says instead of $ROOT how far up the page's own address is: it may stand under any prefix.
    `$ROOTui/${path.slice(path.indexOf("assets/"))}`,
  ]),
);
const named = (entry) =>
  Object.keys(metafile.outputs).find(
    (path) => metafile.outputs[path].entryPoint === entry || path.endsWith(entry),
  );
// What the first screen needs beside its own file is asked for at once, not after that file was read.
const first = named("src/main.tsx"),
  needed = new Set();
const gather = (path) => {
  for (const one of metafile.outputs[path].imports)
    if (one.kind === "import-statement" && !needed.has(one.path)) {
      needed.add(one.path);
      gather(one.path);
    }
};
gather(first);
const preloads = [...needed].map((path) => `<link rel="modulepreload" href="${addresses[path]}">`).join("\n");
const shell = readFileSync(join(here, "src", "index.html"), "utf8");
writeFileSync(
  join(fresh, "index.html"),
  shell
    .replace("$STYLE", () => addresses[named("src/style/page.css")])
    .replace("$PAGE", () => addresses[first])
    .replace("$ICON", () => addresses[named("icon.svg")])
    .replace("$PRELOADS", () => preloads),
);
// Sizes for the test of the budgets.
const size = (path) =>
  gzipSync(outputFiles.find((file) => file.path.endsWith(path.slice(path.indexOf("assets/")))).contents, {
    level: 9,
  }).length;
const editor = Object.keys(metafile.outputs).find(
  (path) => metafile.outputs[path].entryPoint === "src/editor/editor.ts",
);
writeFileSync(
  join(fresh, "sizes.json"),
  JSON.stringify({
    first: [first, ...needed].reduce((sum, path) => sum + size(path), 0),
    requests: 1 + needed.size,
    style: size(named("src/style/page.css")),
    editor: editor ? size(editor) : 0,
  }),
);
rmSync(out, { recursive: true, force: true });
renameSync(fresh, out);
