import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import { ImgbatchError } from "../contract/errors.ts";
import { LEDGER_FILE, type Ledger, readLedger } from "../run/ledger.ts";
import { requireSameService } from "../run/run-directory.ts";
import type { RunService } from "../run/service-identity.ts";

/** What an `<id|dir>` argument stands for. */
export interface Target {
  ids: string[];
  /** The run that the argument named; null for a mere id. */
  run: { dir: string; ledger: Ledger } | null;
}

/** Reads an argument: a directory with a ledger, else a batch id. Throws `USAGE` when it can be neither. */
export async function resolveTarget(argument: string, cwd: string): Promise<Target> {
  const dir = resolve(cwd, argument);
  const ledger = await readLedger(dir);
  if (ledger !== null) return { ids: createdIds(argument, ledger), run: { dir, ledger } };
  const isDirectory = (await stat(dir).catch(() => null))?.isDirectory() ?? false;
  if (isDirectory)
    throw new ImgbatchError("USAGE", `${argument} has no ${LEDGER_FILE}: it is not the output of a run.`);
  if (/[/\\\s]/.test(argument) || argument === "") {
    throw new ImgbatchError(
      "USAGE",
      `${JSON.stringify(argument)} is neither a batch id nor the directory of a run.`,
    );
  }
  return { ids: [argument], run: null };
}

function createdIds(argument: string, ledger: Ledger): string[] {
  if (ledger.batches.length === 0) {
    const message = `${argument} was made by \`imgbatch generate\`: it has no batch. Run that command again to go on.`;
    throw new ImgbatchError("USAGE", message);
  }
  return ledger.batches.map((batch) => {
    if (batch.id !== null) return batch.id;
    const message = `The submission of ${argument} was not finished: run its submit command again.`;
    throw new ImgbatchError("SUBMISSION_UNKNOWN", message);
  });
}

/** Throws `DIRECTORY_CONFLICT` when a target's run is of another service or key than the one connected to. */
export function requireReachable(targets: readonly Target[], service: RunService): void {
  for (const { run } of targets) if (run !== null) requireSameService(run.dir, run.ledger, service);
}
