import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { builtinModules } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { build } from "rolldown";

const BUILTINS = new Set(builtinModules.flatMap((name) => [name, `node:${name}`]));

/** Modules that Node has not loaded at a start. They are loaded when one of their functions is called first. */
const LATE = /^node:(child_process|crypto|fs\/promises|http|net|os|v8|worker_threads|zlib)$/;

/**
 * Loads Node's own modules without an `import`. For an `import`, Node reads all properties of the module, and some of them
 * load further modules; the bundler would copy all of them for each file that imports one.
 */
const builtins = {
  name: "builtins",
  // The code below uses the helpers of the bundler, so their imports stay. Each importer gets its own, or two files of the
  // program would depend on each other for a module of Node.
  resolveId: (id, importer, { kind }) =>
    BUILTINS.has(id) && !importer?.startsWith("\0")
      ? `\0${kind === "import-statement" ? "import" : "require"}:${importer}:${id.replace(/^(node:)?/, "node:")}`
      : undefined,
  load: (id) => {
    const [, how, name] = /^\0(require|import):.*:(node:.+)$/.exec(id) ?? [];
    if (name === undefined) return undefined;
    const loaded = `process.getBuiltinModule("${name}")`;
    if (how === "require") return `module.exports = ${loaded};`;
    const builtin = process.getBuiltinModule(name);
    const members = Object.keys(builtin).filter((member) => member !== "default");
    const exported = (member) =>
      LATE.test(name) && typeof builtin[member] === "function" && /^[a-z]/.test(member)
        ? `export const ${member} = (...args) => ${loaded}.${member}(...args);`
        : `export const ${member} = /* @__PURE__ */ (() => builtin.${member})();`;
    // Only those that are used are left in the end.
    const lines = [
      `const builtin = /* @__PURE__ */ ${loaded};`,
      "export default builtin;",
      ...members.map(exported),
    ];
    return { code: lines.join("\n"), moduleSideEffects: false };
  },
};

/** Changes parts of libraries that would slow down every start, or the view. */
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

/** Escapes all characters beyond ASCII: a single one would make the engine store the text with two bytes a character. */
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

/**
 * Splits text as `Intl.Segmenter` does. To make one takes a third of the time of a short command, and the text on a screen
 * hardly ever needs it: of these characters, each is a grapheme by itself (UAX 29).
 */
const SEGMENTER = String.raw`{
  segment(text) {
    if (!/^[\x1b\x20-\x7e\xa1-\u02ff\u2010-\u2027\u2190-\u28ff]*$/.test(text))
      return (this.made ??= new Intl.Segmenter()).segment(text);
    const segments = Array.from(text, (segment, index) => ({ segment, index }));
    return Object.assign(segments, { containing: (index = 0) => segments[index] });
  },
}`;

/** Some of the same characters that take one column. */
const ONE_COLUMN = String.raw`\x20-\x7e\xa1-\xac\xae-\u02ff\u2010-\u2027\u2190-\u2199\u23ce\u2500-\u25fc\u2713\u2800-\u28ff`;

/** To read the tables of Unicode for such expressions takes as long as to make a segmenter. */
const lateRegExp = (pattern) => `{
  get made() {
    const value = ${pattern};
    Object.defineProperty(this, "made", { value });
    return value;
  },
  test(text) {
    return this.made.test(text);
  },
  [Symbol.search](text) {
    return text.search(this.made);
  },
}`;

const segmented = (file) => ({
  file,
  change: (code) => code.replace(/new Intl\.Segmenter\([^)]*\)/, () => SEGMENTER),
});

const EDITS = [
  {
    file: "node_modules/string-width/index.js",
    change: (code) =>
      segmented("")
        .change(code)
        .replace(
          /const (\w+Regex) = (\/.*\/v);/g,
          (_, name, pattern) => `const ${name} = ${lateRegExp(pattern)};`,
        )
        .replace("/^[\\u0020-\\u007E]*$/", () => `/^[${ONE_COLUMN}]*$/`),
  },
  segmented("slice-ansi/tokenize-ansi.js"),
  segmented("@alcalzone/ansi-tokenize/build/tokenize.js"),
  // The program uses neither the body parsers of Express nor nested queries.
  { file: "express/lib/express.js", change: (code) => code.replace("require('body-parser')", "{}") },
  { file: "express/lib/utils.js", change: (code) => code.replace("require('qs')", "{}") },
  // The program sends no measurements.
  {
    file: "prom-client/lib/pushgateway.js",
    change: (code) => code.replace("require('https')", "{}"),
  },
  // It has no commands that are programs of their own.
  {
    file: "commander/lib/command.js",
    change: (code) => code.replace("require('node:child_process')", "{}"),
  },
  {
    // Only types with a character set and those of the console's files are used.
    file: "mime-db/db.json",
    change: (code) => {
      const types = Object.entries(JSON.parse(code));
      const isUsed = ([, { charset, extensions = [] }]) =>
        charset !== undefined ||
        extensions.some((extension) => /^(html|css|js|svg|png|ico|woff2|md)$/.test(extension));
      return JSON.stringify(Object.fromEntries(types.filter(isUsed)));
    },
  },
  // `require` cannot load modules with a top-level `await`. Ink has one for its developer tools, and its layout has another.
  {
    file: "ink/build/reconciler.js",
    change: (code) => code.replaceAll("isDev()", "false").replaceAll("await ", ""),
  },
  // Ink keeps every text that it has shown, and its size.
  {
    file: "ink/build/measure-text.js",
    change: (code) => code.replace("cache.set(", "if (cache.size === 10_000) cache.clear();\n    cache.set("),
  },
  { file: "ink/build/wrap-text.js", change: (code) => code.replace("cache[cacheKey] = wrappedText;", "") },
  // It compares the styles of each two neighbours on the screen. Those of most are the same: then they are now one list.
  {
    file: "ink/build/output.js",
    change: (code) =>
      code
        .replace(/row\.push\((\{[^}]*\})\)/, "row.push(EMPTY)")
        .replace(
          "class Output",
          'const EMPTY = { type: "char", value: " ", fullWidth: false, styles: [] };\n$&',
        ),
  },
  {
    file: "@alcalzone/ansi-tokenize/build/styledChars.js",
    change: (code) =>
      code
        .replace("styles: [...codes]", "styles: codes")
        .replace("else {", "else if (char.styles !== chars[i - 1].styles) {"),
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
 * One file for the modules that all of these groups load. Modules in files of a higher priority are left out.
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
const VIEW = ["dashboard/show.tsx", "cli/commands/watch/http-dashboard-source.ts"];
const SERVICE = [
  "service/start-service.ts",
  "service/pino-log.ts",
  "config/load.ts",
  "providers/procedural/provider.ts",
];

// Makes `dist`, the program as it is installed. Node reads its few files several times faster than the thousand modules of
// the source and the libraries. A command loads only the files that it needs.
await build({
  input: { main: "src/cli/main.ts", "guard-main": "src/processes/guard-main.ts" },
  platform: "node",
  logLevel: "warn",
  plugins: [builtins, edits, ascii],
  // The first three have parts that are compiled for each system. Ink loads the last one only if it is installed.
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
    // Stack traces stay readable with the original names.
    minify: { compress: false, mangle: false, codegen: { removeWhitespace: true } },
    codeSplitting: {
      groups: [
        oneFile("version", 6, ["kernel/version.ts", "environment.ts"]),
        oneFile("start", 5, ["cli/run-cli.ts"]),
        oneFile("look", 4, ["cli/service/connect.ts", ...LOOKS]),
        oneFile("view-and-submit", 3, VIEW, SUBMIT),
        oneFile("shared", 3, SUBMIT, SERVICE),
        oneFile("submit", 2, SUBMIT),
        oneFile("service", 2, SERVICE),
        oneFile("sharp", 2, ["imaging/sharp-config.ts"]),
        oneFile("draw", 1, ["providers/procedural/draw.ts"]),
      ],
    },
  },
});

// The first run keeps compiled code (`bin/imgbatch.cjs`). The main job loads most of the program.
const directory = mkdtempSync(join(tmpdir(), "imgbatch-build-"));
writeFileSync(join(directory, "prompts.txt"), "a fox in the snow\n");
// It must draw: the settings and keys of whoever installs the program could lead to a service or an upstream that costs money.
const { PATH, SystemRoot } = process.env;
spawnSync(process.execPath, [resolve("bin/imgbatch.cjs"), "submit", "prompts.txt", "--data", "data"], {
  cwd: directory,
  env: {
    PATH,
    SystemRoot,
    HOME: directory,
    USERPROFILE: directory,
    APPDATA: directory,
    LOCALAPPDATA: directory,
  },
});
rmSync(directory, { recursive: true });
