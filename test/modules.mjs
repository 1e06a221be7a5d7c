// Makes `build`: the modules of the source that programs of the tests import, each at its place, and the code that they
// share in a few hundred files. Node loads these in a quarter of the time that the thousand modules of the source and its libraries take.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative, resolve } from "node:path";
import { build } from "rolldown";

const ROOT = resolve(import.meta.dirname, "..");
const BUILD = join(ROOT, "build");

/** A library of these has a top-level `await`, which keeps them from being loaded as all others are. */
const isView = (name) => /^(cli|dashboard)\//.test(name);

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

async function make(names, output) {
  const { output: files } = await build({
    cwd: ROOT,
    input: Object.fromEntries(names.map((name) => [name, sourceOf(name)])),
    platform: "node",
    logLevel: "warn",
    external: ["better-sqlite3", "pg", "sharp", "react-devtools-core", "@opentelemetry/sdk-node"],
    // Some libraries have a form with `require` beside their modules, which cannot be bundled.
    resolve: { mainFields: ["module", "main"] },
    transform: { target: "node20.19", define: { "process.env.NODE_ENV": '"production"' } },
    output: { dir: "build", ...output },
  });
  return files;
}

/** The module with the names of what a file exports. */
function writeModule({ name, exports }) {
  const file = join(BUILD, `${name}.js`);
  const loader = relative(dirname(file), join(import.meta.dirname, "load-built.cjs"));
  writeFileSync(
    file,
    `import { load } from "${loader}";\nexport const { ${exports.join(", ")} } = load("${name}");\n`,
  );
}

if (process.argv[1] === import.meta.filename) {
  const names = [...builtModules()];
  await make(names.filter(isView), { cleanDir: true, entryFileNames: "[name].js" });
  const others = names.filter((name) => !isView(name));
  const asScripts = { entryFileNames: "[name].cjs", chunkFileNames: "[name]-[hash].cjs" };
  const files = await make(others, { format: "cjs", dynamicImportInCjs: false, ...asScripts });
  for (const file of files) if (file.isEntry) writeModule(file);
  await keepCode();
}

/** Lets a service start once that keeps the code that the engine made: most later programs are services. */
async function keepCode() {
  const directory = mkdtempSync(join(tmpdir(), "imgbatch-build-"));
  const env = { ...process.env, IMGBATCH_TEST_KEEP_CODE: "1" };
  const stdio = ["pipe", "pipe", "inherit"];
  const service = spawn(process.execPath, [join(import.meta.dirname, "soak/quick-service.mjs")], {
    env,
    stdio,
  });
  const ended = once(service, "close");
  const order = { data: join(directory, "data"), generations: join(directory, "log"), boot: 1, die: null };
  service.stdin.write(`${JSON.stringify(order)}\n`);
  let said = "";
  for await (const chunk of service.stdout) {
    said += chunk;
    if (said.includes('"ready"')) service.kill("SIGTERM");
  }
  await ended;
  rmSync(directory, { recursive: true, force: true });
}
