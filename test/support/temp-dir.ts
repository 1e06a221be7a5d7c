import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { SUITE_ROOT } from "./global-setup.ts";
import { watchDirectory } from "./secrets.ts";

/**
 * A new directory that is gone after the test, after it was searched for secrets. `beforeRemoval` ends what still
 * writes into it; `parent` is where it is made, by default the directory of this run.
 */
export async function tempDir(
  beforeRemoval?: () => Promise<void>,
  parent = process.env[SUITE_ROOT] ?? tmpdir(),
): Promise<string> {
  const directory = await mkdtemp(join(parent, "imgbatch-test-"));
  onTestFinished(async () => {
    await beforeRemoval?.();
    await watchDirectory(directory);
    await rm(directory, { recursive: true, force: true, maxRetries: 3 });
  });
  return directory;
}
