import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { describe, expect, it } from "vitest";

const SRC = resolve(import.meta.dirname, "../../src");

/** The layers that each layer may import, besides itself. `domain/ports` and `domain/records` are the domain's outer door. */
const ALLOWED: Record<string, readonly string[]> = {
  environment: [],
  kernel: [],
  contract: ["kernel"],
  processes: ["environment", "kernel"],
  // The proxies of the environment.
  http: ["environment", "contract", "kernel"],
  // What is known of vendors and their models.
  "providers/catalogue": ["contract", "kernel"],
  config: ["providers/catalogue", "environment", "contract", "kernel"],
  domain: ["domain/ports", "contract", "kernel"],
  "domain/ports": ["contract", "kernel"],
  storage: ["http", "domain/ports", "contract", "kernel"],
  imaging: ["domain/ports", "contract", "kernel", "environment"],
  providers: ["providers/catalogue", "imaging", "processes", "http", "domain/ports", "contract", "kernel"],
  workers: ["domain", "domain/ports", "contract", "kernel"],
  server: ["domain", "domain/ports", "contract", "kernel"],
  client: ["http", "contract", "kernel"],
  // Both run in a browser, too: they use nothing of Node's own.
  prompts: ["contract", "kernel"],
  console: ["prompts", "contract", "kernel"],
  runs: ["prompts", "client", "http", "contract", "kernel"],
  dashboard: ["client", "contract", "kernel"],
  cli: [
    "dashboard",
    "runs",
    "prompts",
    "client",
    "http",
    "config",
    "providers/catalogue",
    "processes",
    "contract",
    "kernel",
    "environment",
  ],
  // What programs import.
  library: ["cli", "service", "contract", "kernel", "environment"],
  // Puts the parts of the service together.
  service: [
    "server",
    "workers",
    "providers",
    "providers/catalogue",
    "imaging",
    "storage",
    "domain",
    "domain/ports",
    "config",
    "environment",
    "processes",
    "contract",
    "kernel",
  ],
};

/** The only files of the command line that may start a service, show it, or administer a data directory. */
const MAY_COMPOSE: readonly { target: RegExp; from: RegExp }[] = [
  {
    target: /^service\/(start-service|pino-log)\.ts$/,
    from: /^cli\/(connect\/embedded|commands\/(serve|exec))\.ts$/,
  },
  { target: /^service\/storage\/backup\.ts$/, from: /^cli\/commands\/admin\.ts$/ },
  { target: /^service\/admin\.ts$/, from: /^cli\/commands\/(admin[a-z-]*|budget)\.ts$/ },
  {
    target: /^service\/(provider-status|storage\/open-storage)\.ts$/,
    from: /^cli\/commands\/(admin|providers|doctor[a-z-]*)\.ts$/,
  },
  {
    target: /^service\/native-modules\.ts$/,
    from: /^cli\/(connect\/service-config|commands\/doctor[a-z-]*)\.ts$/,
  },
  { target: /^providers\/vendor-list\.ts$/, from: /^cli\/(model-check|commands\/models)\.ts$/ },
  // Loaded only when they are needed.
  { target: /^imaging\/(decoding|thumbnail)\.ts$/, from: /^cli\/(output\/reports|mcp\/previews)\.ts$/ },
  { target: /^imaging\/thumbnail\.ts$/, from: /^cli\/dashboard-source\.ts$/ },
  { target: /^imaging\/derive\.ts$/, from: /^runs\/derived-files\.ts$/ },
  { target: /^imaging\/(decoding|look)\.ts$/, from: /^runs\/checks\.ts$/ },
  // The page of the console, and the rule of its hosts, for a run without a service.
  { target: /^server\/(console\/page|http\/host)\.ts$/, from: /^cli\/review-page\.ts$/ },
  { target: /^server\/openapi\/document\.ts$/, from: /^cli\/commands\/schema\.ts$/ },
];

const files = readdirSync(SRC, { recursive: true, encoding: "utf8" }).filter((f) => /\.tsx?$/.test(f));
const imports = new Map(files.map((file) => [file, importsOf(file)]));

describe("the layers of src", () => {
  it("imports go down only", () => {
    const upward = [...imports].flatMap(([file, targets]) =>
      targets.filter((target) => !mayImport(file, target)).map((target) => `${file} -> ${target}`),
    );
    expect(upward).toEqual([]);
  });

  it("a rule that was broken on purpose would be seen", () => {
    expect(mayImport("domain/models.ts", "storage/stores.ts")).toBe(false);
    expect(mayImport("domain/models.ts", "contract/batch-api.ts")).toBe(false);
    expect(mayImport("cli/commands/submit.ts", "service/start-service.ts")).toBe(false);
    expect(mayImport("cli/commands/admin.ts", "service/start-service.ts")).toBe(false);
    expect(mayImport("dashboard/show.tsx", "domain/feed.ts")).toBe(false);
    expect(mayImport("storage/stores.ts", "domain/batches/end-batch.ts")).toBe(false);
    expect(mayImport("http/http.ts", "client/poll.ts")).toBe(false);
    expect(mayImport("providers/registry.ts", "providers/procedural/draw.ts")).toBe(false);
    expect(mayImport("providers/other/provider.ts", "providers/procedural/provider.ts")).toBe(false);
    expect(mayImport("providers/registry.ts", "providers/procedural/provider.ts")).toBe(true);
    expect(
      findCycle(
        new Map([
          ["a.ts", ["b.ts"]],
          ["b.ts", ["a.ts"]],
        ]),
      ),
    ).toEqual(["a.ts", "b.ts", "a.ts"]);
  });

  it("no file imports itself through others", () => {
    expect(findCycle(imports)).toBeNull();
  });

  it("only one file reads the environment, only main sets the exit code", () => {
    const usersOf = (text: string) =>
      files.filter((file) => readFileSync(join(SRC, file), "utf8").includes(text)).sort();
    expect(usersOf("process.env")).toEqual(["environment.ts"]);
    expect(usersOf("process.exitCode")).toEqual(["cli/main.ts"]);
  });

  it("a file above 700 lines says in its first comment why it is one concept", () => {
    const textOf = (file: string) => readFileSync(join(SRC, file), "utf8");
    const isLong = (file: string) => textOf(file).split("\n").length > 700;
    expect(files.filter((file) => isLong(file) && !/^\/(\/|\*)/.test(textOf(file)))).toEqual([]);
  });

  it("every exported name is used by another file", () => {
    const exported =
      /^export (?:default )?(?:abstract )?(?:async )?(?:function\*?|class|interface|type|const|let)\s+(\w+)/gm;
    const wordsOf = (path: string) => new Set(readFileSync(path, "utf8").match(/[A-Za-z_$][\w$]*/g));
    const paths = [SRC, resolve(SRC, "../test")].flatMap((root) =>
      readdirSync(root, { recursive: true, encoding: "utf8" })
        .filter((path) => /\.[cm]?[jt]sx?$/.test(path) && !path.includes("node_modules"))
        .map((path) => join(root, path)),
    );
    const words = new Map(paths.map((path) => [path, wordsOf(path)]));
    const isUsed = (name: string, own: string) =>
      [...words].some(([path, found]) => path !== own && found.has(name));
    const unused = files.flatMap((file) => {
      const own = join(SRC, file);
      const names = [...readFileSync(own, "utf8").matchAll(exported)].map(([, name = ""]) => name);
      return names.filter((name) => !isUsed(name, own)).map((name) => `${file}: ${name}`);
    });
    expect(unused).toEqual([]);
  });

  it("commands that only ask a service load no library that takes long to load", () => {
    const asking = ["status", "list", "items", "wait"].map((name) => `cli/commands/${name}.ts`);
    for (const start of ["cli/run-cli.ts", "cli/connect/connect.ts", ...asking]) {
      const loaded = new Set([start]);
      const packages = new Set<string>();
      for (const file of loaded) {
        for (const specifier of loadedWith(file)) {
          if (specifier.startsWith(".")) loaded.add(relative(SRC, resolve(SRC, dirname(file), specifier)));
          else if (!specifier.startsWith("node:")) packages.add(specifier);
        }
      }
      expect(loaded.size, start).toBeGreaterThan(20);
      const quick = ["chalk", "commander", "env-paths", "fastest-levenshtein", "p-queue"];
      expect(
        [...packages].filter((name) => !quick.includes(name)),
        start,
      ).toEqual([]);
    }
  });

  it("nothing lies loose", () => {
    expect(files.filter((file) => dirname(file) === ".")).toEqual(["environment.ts"]);
  });
});

function importsOf(file: string): string[] {
  const text = readFileSync(join(SRC, file), "utf8");
  const specifiers = [...text.matchAll(/(?:\bfrom\s+|\bimport\s*\(?\s*)"(\.[^"]+)"/g)].map((m) => m[1] ?? "");
  return specifiers.map((path) => relative(SRC, resolve(SRC, dirname(file), path)));
}

/** The imports of a file when it is loaded: neither types alone, nor later imports. */
function loadedWith(file: string): string[] {
  const text = readFileSync(join(SRC, file), "utf8");
  return [...text.matchAll(/^(?:import|export)\s+(?!type\b)(?:([^;"]*?)\s+from\s+)?"([^"]+)"/gm)]
    .filter(([, names = ""]) => !/^\{(\s*type\s[^,}]*,?)+\s*\}$/.test(names))
    .map(([, , specifier = ""]) => specifier);
}

function layerOf(file: string): string {
  if (file.startsWith("providers/catalogue/")) return "providers/catalogue";
  if (file.startsWith("domain/ports/") || file === "domain/records.ts") return "domain/ports";
  return (file.split("/")[0] ?? "").replace(/\.ts$/, "");
}

function mayImport(file: string, target: string): boolean {
  const inside = /^providers\/(?!upstream\/|catalogue\/)[a-z-]+\//.exec(target)?.[0];
  // A provider is entered by its doors, one for images and one for jobs, and only the registry knows them.
  if (inside !== undefined && !file.startsWith(inside))
    return file === "providers/registry.ts" && [`${inside}provider.ts`, `${inside}jobs.ts`].includes(target);
  const [from, to] = [layerOf(file), layerOf(target)];
  // The wire shapes of the HTTP APIs are converted in the server alone.
  if (/^(domain|storage|workers)\b/.test(from) && /^contract\/(batch|native)-api\.ts$/.test(target))
    return false;
  if (from === to || ALLOWED[from]?.includes(to)) return true;
  return MAY_COMPOSE.some((exception) => exception.target.test(target) && exception.from.test(file));
}

function findCycle(graph: ReadonlyMap<string, readonly string[]>): string[] | null {
  const finished = new Set<string>();
  const visit = (file: string, trail: readonly string[]): string[] | null => {
    if (trail.includes(file)) return [...trail.slice(trail.indexOf(file)), file];
    if (finished.has(file)) return null;
    for (const target of graph.get(file) ?? []) {
      const cycle = visit(target, [...trail, file]);
      if (cycle) return cycle;
    }
    finished.add(file);
    return null;
  };
  for (const file of graph.keys()) {
    const cycle = visit(file, []);
    if (cycle) return cycle;
  }
  return null;
}
