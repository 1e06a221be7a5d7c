import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

/** The tests of single parts: they need neither the built program nor, but for a few, a process of their own. */
const UNIT = "test/{client,config,dashboard,domain,http,imaging,kernel,providers,runs,storage,workers}/**";
const ALL = "test/**/*.test.{ts,tsx}";

export default defineConfig({
  root: fileURLToPath(new URL("..", import.meta.url)),
  test: {
    setupFiles: ["test/support/setup.ts", "test/support/cluster/left-out.ts"],
    globalSetup: ["test/support/global-setup.ts"],
    projects: [
      { extends: true, test: { name: "process", include: [ALL], exclude: [UNIT, "**/node_modules/**"] } },
      { extends: true, test: { name: "unit", include: [`${UNIT}/*.test.{ts,tsx}`] } },
    ],
    pool: "forks",
    // The test files of a worker share the modules, of which each is loaded once.
    isolate: false,
    // Many tests wait for processes and for the disk: one more than there are cores keeps these busy.
    maxWorkers: availableParallelism() + 1,
    // Patience costs nothing when all is well: only what never comes makes a test wait so long.
    expect: { poll: { timeout: 30_000, interval: 20 } },
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
