import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { builtinModules } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { build } from "rolldown";

const BUILTINS = new Set(builtinModules.flatMap((name) => [name, `node:${name}`]));

/**
 * Takes Node's own modules as they are. For an `import`, Node would read every property of them, and some of these load
 * other modules.
 */
const builtins = {
  name: "builtins",
  // Not for the helpers of the bundler, which this needs itself.
  resolveId: (id, importer) =>
    BUILTINS.has(id) && !importer?.startsWith("\0") ? `\0${id.replace(/^(node:)?/, "node:")}` : undefined,
  load: (id) =>
    id.startsWith("\0node:") ? `module.exports = process.getBuiltinModule("${id.slice(1)}");` : undefined,
};

/** Leaves out of libraries those parts that no start may pay for. */
const edits = {
  name: "edits",
  transform(code, id) {
    const edit = EDITS.find(({ file }) => id.endsWith(file));
    if (edit === undefined) return null;
    const changed = edit.change(code);
    if (changed === code) throw new Error(`${id} has changed: look whether its edit is still needed`);
    return { code: changed, map: null };
  },
};

/** Writes other characters as escapes: a text with one of them takes two bytes a character. */
const ascii = {
  name: "ascii",
  generateBundle(_options, files) {
    for (const file of Object.values(files))
      if (file.type === "chunk")
        file.code = file.code.replace(
          /[^\0-\x7f]/g,
          (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
        );
  },
};

const EDITS = [
  // The body parsers of Express are not used here, nor are nested queries.
  { file: "express/lib/express.js", change: (code) => code.replace("require('body-parser')", "{}") },
  { file: "express/lib/utils.js", change: (code) => code.replace("require('qs')", "{}") },
  {
    // The character sets of all types, and the types of the console's files.
    file: "mime-db/db.json",
    change: (code) => {
      const types = Object.entries(JSON.parse(code));
      const isUsed = ([, { charset, extensions = [] }]) =>
        charset !== undefined ||
        extensions.some((extension) => /^(html|css|js|svg|png|ico|woff2|md)$/.test(extension));
      return JSON.stringify(Object.fromEntries(types.filter(isUsed)));
    },
  },
  // `require` cannot load what waits at the top of its module, as Ink does for the tools of its developers, and its layout.
  {
    file: "ink/build/reconciler.js",
    change: (code) => code.replaceAll("isDev()", "false").replaceAll("await ", ""),
  },
  {
    file: "yoga-layout/dist/binaries/yoga-wasm-base64-esm.js",
    change: (code) => {
      const [wasm] = /AGFzbQ[\w+/=]*/.exec(code);
      return `${code.replace(wasm, "")}\nexport const wasm = Buffer.from("${wasm}", "base64");`;
    },
  },
  {
    file: "yoga-layout/dist/src/index.js",
    change: (code) =>
      code.replace("import loadYoga", "import loadYoga, { wasm }").replace(
        "const Yoga = wrapAssembly(await loadYoga());",
        `const assembly = {
          instantiateWasm(imports, use) {
            const instance = new WebAssembly.Instance(new WebAssembly.Module(wasm), imports);
            use(instance);
            return instance.exports;
          },
        };
        loadYoga(assembly);
        const Yoga = wrapAssembly(assembly);`,
      ),
  },
];

/**
 * A file for the modules that each of these groups of modules loads, but for those that files of a higher priority have.
 */
function oneFile(file, priority, ...groups) {
  let reached;
  const reach = (context, roots) => {
    const seen = new Set(roots.map((root) => resolve("src", root)));
    for (const id of seen) for (const next of context.getModuleInfo(id)?.importedIds ?? []) seen.add(next);
    return seen;
  };
  return {
    debugName: file,
    priority,
    name: (id, context) => {
      reached ??= groups.map((roots) => reach(context, roots));
      return reached.every((ids) => ids.has(id)) ? file : null;
    },
  };
}

const LOOKS = ["status", "list", "items", "wait"].map((name) => `cli/commands/${name}/run.ts`);
const SUBMIT = ["cli/commands/submit/run.ts"];
const SERVICE = [
  "service/start-service.ts",
  "service/pino-log.ts",
  "config/load.ts",
  "providers/procedural/provider.ts",
];

// Makes `dist`, the program as it is installed: a few files, which Node reads several times faster than the thousand modules of the
// source and its libraries. A command loads the files that it needs.
await build({
  input: { main: "src/cli/main.ts", "guard-main": "src/processes/guard-main.ts" },
  platform: "node",
  logLevel: "warn",
  plugins: [builtins, edits, ascii],
  // Compiled for each system, as is a part that `pg` can do without. The last one is for the development of Ink, which asks
  // for it when it is there.
  external: ["better-sqlite3", "pg", "sharp", "react-devtools-core"],
  // Some libraries have a form with `require` beside their modules, which cannot be bundled.
  resolve: { mainFields: ["module", "main"] },
  transform: { target: "node20.19", define: { "process.env.NODE_ENV": '"production"' } },
  output: {
    dir: "dist",
    format: "cjs",
    dynamicImportInCjs: false,
    entryFileNames: "[name].cjs",
    chunkFileNames: "[name]-[hash].cjs",
    cleanDir: true,
    sourcemap: true,
    sourcemapExcludeSources: true,
    // Names stay as they are, so that a stack trace can be read.
    minify: { compress: false, mangle: false, codegen: { removeWhitespace: true } },
    codeSplitting: {
      groups: [
        oneFile("version", 6, ["kernel/version.ts", "environment.ts"]),
        oneFile("start", 5, ["cli/run-cli.ts"]),
        oneFile("look", 4, ["cli/service/connect.ts", ...LOOKS]),
        oneFile("shared", 3, SUBMIT, SERVICE),
        oneFile("submit", 2, SUBMIT),
        oneFile("service", 2, SERVICE),
        oneFile("sharp", 2, ["imaging/sharp-config.ts"]),
        oneFile("draw", 1, ["providers/procedural/draw.ts"]),
      ],
    },
  },
});

// Compiled code is kept as the first run leaves it (`bin/imgbatch.cjs`): one that does the main job leaves most of it.
const directory = mkdtempSync(join(tmpdir(), "imgbatch-build-"));
writeFileSync(join(directory, "prompts.txt"), "a fox in the snow\n");
spawnSync(process.execPath, [resolve("bin/imgbatch.cjs"), "submit", "prompts.txt", "--data", "data"], {
  cwd: directory,
});
rmSync(directory, { recursive: true });
