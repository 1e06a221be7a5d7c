import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Names the directory, in the environment, in which all directories of a run of the tests are. */
export const SUITE_ROOT = "IMGBATCH_TEST_ROOT";

/**
 * One directory for everything that a run writes. Each test's part is searched for secrets and removed by the test;
 * what is left in the end, by tests that were killed or children that outlived them, is searched here.
 */
export default async function setup(): Promise<() => Promise<void>> {
  const root = await mkdtemp(join(tmpdir(), "imgbatch-suite-"));
  process.env[SUITE_ROOT] = root;
  return async () => {
    const { takeFindings, watchDirectory } = await import("./secrets.ts");
    await watchDirectory(root);
    await rm(root, { recursive: true, force: true, maxRetries: 3 });
    const findings = takeFindings();
    if (findings.length > 0) throw new Error(`secrets were left behind:\n${findings.join("\n")}`);
  };
}
