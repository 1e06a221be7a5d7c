import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";

/** A new directory that is gone after the test. */
export async function tempDir(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "imgbatch-test-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true, maxRetries: 3 }));
  return directory;
}
