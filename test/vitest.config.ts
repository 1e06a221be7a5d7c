import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { LongestFirst } from "./support/longest-first.ts";

export default defineConfig({
  root: fileURLToPath(new URL("..", import.meta.url)),
  test: {
    include: ["test/**/*.test.{ts,tsx}"],
    setupFiles: ["test/support/setup.ts"],
    globalSetup: ["test/support/global-setup.ts"],
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
    // Many tests wait for processes and for the disk: four more than there are cores keep these busy. Each further one loads
    // and compiles everything again.
    maxWorkers: availableParallelism() + 4,
    sequence: { sequencer: LongestFirst },
    // The next run finds the modules that have not changed as they were transformed.
    experimental: { fsModuleCache: true },
    // Patience costs nothing when all is well: only what never comes makes a test wait so long.
    expect: { poll: { timeout: 30_000, interval: 20 } },
    testTimeout: 120_000,
    hookTimeout: 120_000,
  },
});
