// Makes `build`: the modules of the source that programs of the tests import, each at its place, and the code that they
// share in a few hundred files. Node reads these in half the time that the thousand modules of the source and its libraries take.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { build } from "rolldown";

const ROOT = resolve(import.meta.dirname, "..");

export function builtModules() {
  const files = readdirSync(import.meta.dirname, { recursive: true, encoding: "utf8" });
  const texts = files
    .filter((file) => /\.(mjs|ts)$/.test(file) && !file.includes("node_modules"))
    .map((file) => readFileSync(join(import.meta.dirname, file), "utf8"));
  return new Set([...texts.join("").matchAll(/\/build\/([\w/-]+)\.js"/g)].map(([, name]) => name));
}

function sourceOf(name) {
  const file = join(ROOT, "src", name);
  return existsSync(`${file}.ts`) ? `${file}.ts` : `${file}.tsx`;
}

if (process.argv[1] === import.meta.filename)
  await build({
    cwd: ROOT,
    input: Object.fromEntries([...builtModules()].map((name) => [name, sourceOf(name)])),
    platform: "node",
    logLevel: "warn",
    external: ["better-sqlite3", "pg", "sharp", "react-devtools-core"],
    // Some libraries have a form with `require` beside their modules, which cannot be bundled.
    resolve: { mainFields: ["module", "main"] },
    transform: { target: "node20.19", define: { "process.env.NODE_ENV": '"production"' } },
    output: { dir: "build", cleanDir: true, entryFileNames: "[name].js" },
  });
