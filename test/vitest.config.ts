import { readdirSync, readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig, type TestProjectInlineConfiguration } from "vitest/config";
import { LongestFirst } from "./support/longest-first.ts";

const root = fileURLToPath(new URL("..", import.meta.url));

/** What a test imports that starts programs, browsers or servers. */
const STARTS =
  /from "(?:node:child_process|(?:\.\.\/)+support\/(?:cli|processes|chromium|browser|real-terminal|strace|postgres|postgres-server|pg-proxy|(?:s3|cluster)\/[\w-]+)\.ts)"/;

/** Of these tests a few run with the quick ones all the same: of the program as people start it, and as it is killed. */
const SENTINELS = [
  "test/cli/exit-codes.test.ts",
  "test/cli/open.test.ts",
  "test/scenarios/kill.test.ts",
  "test/scenarios/never-pay-twice.test.ts",
  "test/scenarios/disk-order.test.ts",
  "test/storage/conformance.test.ts",
  "test/repo/documents.test.ts",
  "test/repo/release.test.ts",
];

/** The tests that start programs: `npm run test:all` runs them beside the others, which `npm test` runs. */
const real = readdirSync(join(root, "test"), { recursive: true, encoding: "utf8" })
  .map((name) => `test/${name.replaceAll("\\", "/")}`)
  .filter((path) => /\.test\.tsx?$/.test(path) && !path.startsWith("test/sdk/node_modules/"))
  .filter((path) => STARTS.test(readFileSync(join(root, path), "utf8")) && !SENTINELS.includes(path));

function project(
  name: string,
  files: { include: string[]; exclude?: string[] },
): TestProjectInlineConfiguration {
  return {
    root,
    test: {
      name,
      ...files,
      setupFiles: ["test/support/setup.ts"],
      pool: "forks",
      // The test files of a worker share the modules, of which each is loaded once.
      isolate: false,
      // Most code runs a few times only: compiling it at once without optimization, optimizing later, and collecting young
      // garbage less often saves a fifth of the time.
      execArgv: [
        "--always-sparkplug",
        "--interrupt-budget=1000000",
        "--min-semi-space-size=16",
        "--max-semi-space-size=32",
      ],
      // Patience costs nothing when all is well: only what never comes makes a test wait so long.
      expect: { poll: { timeout: 30_000, interval: 20 } },
      testTimeout: 120_000,
      hookTimeout: 120_000,
    },
  };
}

export default defineConfig({
  root,
  test: {
    projects: [
      project("here", {
        include: ["test/**/*.test.{ts,tsx}"],
        exclude: ["**/node_modules/**", ...real],
      }),
      project("real", { include: real }),
    ],
    globalSetup: ["test/support/global-setup.ts"],
    // Many tests wait for processes and for the disk: four more than there are cores keep these busy. Each further one loads
    // and compiles everything again.
    maxWorkers: availableParallelism() + 4,
    sequence: { sequencer: LongestFirst },
    // The next run finds the modules that have not changed as they were transformed.
    experimental: { fsModuleCache: true },
  },
});
