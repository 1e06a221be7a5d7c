import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { describe, expect, it } from "vitest";

const SRC = resolve(import.meta.dirname, "../../src");

/** What each layer may import, besides itself. `domain/ports` and `domain/records` are the domain's outer door. */
const ALLOWED: Record<string, readonly string[]> = {
  kernel: [],
  contract: ["kernel"],
  domain: ["contract", "kernel", "domain/ports"],
  "domain/ports": ["contract", "kernel"],
  storage: ["domain/ports", "contract", "kernel"],
  imaging: ["domain/ports", "contract", "kernel"],
  providers: ["imaging", "domain/ports", "contract", "kernel"],
  workers: ["domain", "domain/ports", "contract", "kernel"],
  server: ["domain", "domain/ports", "contract", "kernel"],
  config: ["contract", "kernel"],
  client: ["contract", "kernel"],
  run: ["client", "contract", "kernel"],
  dashboard: ["run", "client", "contract", "kernel"],
  cli: ["dashboard", "run", "client", "contract", "kernel", "config", "actions-environment"],
  "actions-environment": [],
  // The composition roots know everything below the command line.
  data: ["storage", "domain", "domain/ports", "contract", "kernel"],
  admin: ["data", "domain", "domain/ports", "contract", "kernel"],
  checkup: ["storage", "imaging", "contract", "kernel"],
  "first-key": ["config", "domain", "domain/ports", "contract", "kernel"],
  pictures: ["imaging"],
  "live-view": ["pictures", "dashboard", "domain", "domain/ports", "contract", "kernel"],
  app: [
    "data",
    "first-key",
    "live-view",
    "pictures",
    "config",
    "storage",
    "imaging",
    "providers",
    "workers",
    "server",
    "domain",
    "domain/ports",
    "contract",
    "kernel",
  ],
};

/** The only files of the command line that may start a service, show it, or administer a data directory. */
const MAY_COMPOSE: Record<string, RegExp> = {
  checkup: /^cli\/(doctor\/[a-z-]+|ephemeral-directory)\.ts$/,
  // Loaded only when they are needed.
  imaging: /^cli\/run-reports\.ts$/,
  server: /^cli\/commands\/schema\.ts$/,
  app: /^cli\/(embedded|commands\/serve|exec\/service)\.ts$/,
  "live-view": /^cli\/commands\/serve\.ts$/,
  pictures: /^cli\/watch\/live-view\.ts$/,
  admin: /^cli\/commands\/admin\/[a-z/-]+\.ts$/,
};

const files = readdirSync(SRC, { recursive: true, encoding: "utf8" }).filter((f) => /\.tsx?$/.test(f));
const imports = new Map(files.map((file) => [file, importsOf(file)]));

describe("the layers of src", () => {
  it("[REPO-1] imports go down only", () => {
    const upward = [...imports].flatMap(([file, targets]) =>
      targets.filter((target) => !mayImport(file, target)).map((target) => `${file} -> ${target}`),
    );
    expect(upward).toEqual([]);
  });

  it("[REPO-1] a rule that was broken on purpose would be seen", () => {
    expect(mayImport("domain/models.ts", "storage/stores.ts")).toBe(false);
    expect(mayImport("cli/commands/submit.ts", "app.ts")).toBe(false);
    expect(mayImport("cli/commands/admin/ledger.ts", "app.ts")).toBe(false);
    expect(mayImport("dashboard/show.tsx", "domain/feed.ts")).toBe(false);
    expect(mayImport("storage/stores.ts", "domain/batches/settle.ts")).toBe(false);
    expect(
      findCycle(
        new Map([
          ["a.ts", ["b.ts"]],
          ["b.ts", ["a.ts"]],
        ]),
      ),
    ).toEqual(["a.ts", "b.ts", "a.ts"]);
  });

  it("[REPO-2] no file imports itself through others", () => {
    expect(findCycle(imports)).toBeNull();
  });

  it("[REPO-3] only the configuration reads the environment, only main sets the exit code", () => {
    const usersOf = (text: string) =>
      files.filter((file) => readFileSync(join(SRC, file), "utf8").includes(text)).sort();
    expect(usersOf("process.env")).toEqual(["actions-environment.ts", "config.ts"]);
    expect(usersOf("process.exitCode")).toEqual(["cli/main.ts"]);
  });

  it("[REPO-4] no file passes 300 lines, and the median stays below 80", () => {
    const lengths = files.map((file) => readFileSync(join(SRC, file), "utf8").split("\n").length);
    lengths.sort((a, b) => a - b);
    expect(lengths.at(-1)).toBeLessThanOrEqual(300);
    expect(lengths[Math.floor(lengths.length / 2)]).toBeLessThan(80);
  });
});

function importsOf(file: string): string[] {
  const text = readFileSync(join(SRC, file), "utf8");
  const specifiers = [...text.matchAll(/(?:\bfrom\s+|\bimport\s*\(?\s*)"(\.[^"]+)"/g)].map((m) => m[1] ?? "");
  return specifiers.map((path) => relative(SRC, resolve(SRC, dirname(file), path)));
}

function layerOf(file: string): string {
  if (file.startsWith("domain/ports/") || file === "domain/records.ts") return "domain/ports";
  const top = file.split("/")[0] ?? "";
  return top.replace(/\.ts$/, "");
}

function mayImport(file: string, target: string): boolean {
  const [from, to] = [layerOf(file), layerOf(target)];
  if (from === to || ALLOWED[from]?.includes(to)) return true;
  return MAY_COMPOSE[to]?.test(file) ?? false;
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
