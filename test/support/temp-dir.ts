import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { SUITE_ROOT } from "./global-setup.ts";
import { watchDirectory } from "./secrets.ts";

/**
 * Makes a directory inside the directory of this run. It is removed after the test, after it was searched for secrets.
 * `beforeRemoval` ends everything that still writes into it.
 */
export async function tempDir(beforeRemoval?: () => Promise<void>): Promise<string> {
  const directory = await mkdtemp(join(process.env[SUITE_ROOT] ?? tmpdir(), "imgbatch-test-"));
  onTestFinished(async () => {
    await beforeRemoval?.();
    await watchDirectory(directory);
    await rm(directory, { recursive: true, force: true, maxRetries: 3 });
  });
  return directory;
}
