import { readdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { saving } from "../../client/file-errors.ts";
import { syncDirectory } from "../../kernel/files/durable-file.ts";
import { INPUT_FILE } from "./names.ts";
import type { RunState } from "./run-state-schema.ts";

const PENDING = /^\.input-([0-9a-f]{64})\.jsonl$/;

/** Returns the name of an input until the run state has its hash. */
export function pendingInputName(inputSha256: string): string {
  return `.input-${inputSha256}.jsonl`;
}

/**
 * Finishes the change of a run's input after a kill: the run state decides. An input that it names replaces the earlier one,
 * and any other one is removed.
 */
export async function takePendingInput(
  dir: string,
  { input_sha256: inputSha256 }: Pick<RunState, "input_sha256">,
): Promise<void> {
  for (const name of await readdir(dir).catch(() => [])) {
    const [, sha256] = PENDING.exec(name) ?? [];
    if (sha256 === undefined) continue;
    const path = join(dir, name);
    await saving(path, async () => {
      if (sha256 === inputSha256) await rename(path, join(dir, INPUT_FILE));
      else await rm(path, { force: true });
      await syncDirectory(dir);
    });
  }
}
