import { builtinModules } from "node:module";
import { resolve } from "node:path";
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

/** A file for the modules that these load together, but for those that files of a higher priority have. */
function oneFile(file, priority, roots) {
  let reached;
  const reach = (context) => {
    const seen = new Set(roots.map((root) => resolve("src", root)));
    for (const id of seen) for (const next of context.getModuleInfo(id)?.importedIds ?? []) seen.add(next);
    return seen;
  };
  return {
    debugName: file,
    priority,
    name: (id, context) => {
      reached ??= reach(context);
      return reached.has(id) ? file : null;
    },
  };
}

const LOOKS = ["status", "list", "items", "wait"].map((name) => `cli/commands/${name}/run.ts`);

// Makes `dist`, the program as it is installed: a few files, which Node reads several times faster than the thousand modules of the
// source and its libraries. A command loads the files that it needs.
await build({
  input: { main: "src/cli/main.ts", "guard-main": "src/processes/guard-main.ts" },
  platform: "node",
  logLevel: "warn",
  plugins: [builtins],
  // Compiled for each system, as is a part that `pg` can do without. The last one is for the development of Ink, which asks
  // for it when it is there.
  external: ["better-sqlite3", "pg", "sharp", "react-devtools-core"],
  // Some libraries have a form with `require` beside their modules, which cannot be bundled.
  resolve: { mainFields: ["module", "main"] },
  transform: { target: "node20.19", define: { "process.env.NODE_ENV": '"production"' } },
  output: {
    dir: "dist",
    cleanDir: true,
    sourcemap: true,
    sourcemapExcludeSources: true,
    // Names stay as they are, so that a stack trace can be read.
    minify: { compress: false, mangle: false, codegen: { removeWhitespace: true } },
    codeSplitting: {
      groups: [
        oneFile("version", 3, ["kernel/version.ts", "environment.ts"]),
        oneFile("start", 2, ["cli/run-cli.ts"]),
        oneFile("look", 1, ["cli/service/connect.ts", ...LOOKS]),
      ],
    },
  },
});
