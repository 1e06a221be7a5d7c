import { createHash } from "node:crypto";
import { join } from "node:path";
import type { RunOutcome } from "./collect-run.ts";
import { removeLeftovers } from "./directory/claim.ts";
import { readRunInput, writeInput } from "./directory/input.ts";
import { type ResultLine, readResults, writeResults } from "./directory/results.ts";
import { isIntact, type ResultFile } from "./directory/run-files.ts";
import type { RunState } from "./directory/run-state-schema.ts";
import { openZip } from "./fetch/zip.ts";
import type { Plan } from "./plan/plan.ts";
import { planUpdate } from "./plan/update.ts";
import { factsOf, recordedBatch } from "./run-batches.ts";
import { stands } from "./standing.ts";

/**
 * Whether every image of a run is on disk as the results say, or has failed, or is one of those that are made `again`. The
 * service is not asked.
 */
export async function isWholeHere(dir: string, again?: ReadonlySet<string>): Promise<boolean> {
  return (await wholeLines(dir, { again })) !== null;
}

/**
 * Returns the outcome of a finished run that is whole here; null for any other. `plan` is that of the same prompts, whose
 * lines may have moved in their files. `keepZip` says whether the images are to be in ZIPs. The service is not asked.
 */
export async function outcomeHere(
  { dir, state, plan, keepZip }: { dir: string; state: RunState; plan: Plan; keepZip: boolean },
  signal: AbortSignal,
): Promise<RunOutcome | null> {
  const asked = state.batches.filter((entry) => entry.state !== "left");
  const batches = asked.flatMap((entry) => recordedBatch(entry, state.request) ?? []);
  if (state.finished_at === null || batches.length < asked.length) return null;
  const lines = (await wholeLines(dir, { signal }))?.map(asWritten) ?? null;
  const files = lines?.flatMap((line) => line.files) ?? [];
  if (lines === null || files.some(({ entry }) => (entry !== undefined) !== keepZip)) return null;
  const { items } = state.updates === undefined ? plan : await planUpdate(dir, state, plan);
  await removeLeftovers(dir);
  await writeInput(dir, items);
  const { hasRetry, failedAt } = await writeResults(dir, lines, await readRunInput(dir));
  const round = Math.max(...asked.map((entry) => entry.round));
  const last = new Set(asked.filter((entry) => entry.round === round).map(({ id }) => id));
  const deciding = batches.filter(({ id }) => last.has(id));
  const nothing = { fetchedCount: 0, paidNowMicroUsd: 0, unknown: new Map() };
  return { dir, batches, deciding, lines, hasRetry, failedAt, ...nothing };
}

/** Returns a line as it was written, with its fields in the same order, so that the same results are the same file. */
function asWritten(line: ResultLine): ResultLine {
  const { custom_id, status, batch_id = "", files, verified, again, derived, error } = line;
  return {
    custom_id,
    status,
    batch_id,
    files,
    ...(verified === undefined ? {} : { verified }),
    ...factsOf(line),
    ...(again === undefined ? {} : { again }),
    ...(derived === undefined ? {} : { derived }),
    ...(error === undefined ? {} : { error }),
  };
}

/** Returns the results of a run if they are all whole, or have failed; else null. */
async function wholeLines(
  dir: string,
  { signal, again }: { signal?: AbortSignal; again?: ReadonlySet<string> | undefined },
): Promise<ResultLine[] | null> {
  const lines = await readResults(dir);
  const known = new Set(lines.map((line) => line.custom_id));
  const input = await readRunInput(dir);
  const isEmpty = lines.length === 0 && again === undefined;
  if (isEmpty || input.damage !== null) return null;
  for (const id of input.keys()) if (!known.has(id) && !again?.has(id)) return null;
  const zipped: ResultFile[] = [];
  for (const line of lines) {
    signal?.throwIfAborted();
    if (stands(line, "failed", "refused") || again?.has(line.custom_id)) continue;
    if (!stands(line, "here")) return null;
    if (line.files.every(({ entry }) => entry !== undefined)) zipped.push(...line.files);
    else if (!(await isWholeResult(dir, line))) return null;
  }
  return (await areInZips(dir, zipped, signal)) ? lines : null;
}

/** Whether every file of a result is on disk, unchanged. */
async function isWholeResult(dir: string, line: { readonly files: readonly ResultFile[] }): Promise<boolean> {
  if (line.files.length === 0) return false;
  for (const file of line.files) if (!(await isIntact(dir, file))) return false;
  return true;
}

/** Whether files are in their ZIPs, unchanged. */
async function areInZips(dir: string, files: readonly ResultFile[], signal?: AbortSignal): Promise<boolean> {
  for (const path of new Set(files.map((file) => file.path))) {
    if (!/^[\w-]+\.zip$/.test(path)) return false;
    const zip = await openZip(join(dir, path), signal).catch(() => null);
    if (zip === null) return false;
    try {
      const entries = new Map(zip.entries.map((entry) => [entry.name, entry]));
      for (const file of files.filter((each) => each.path === path)) {
        const hash = createHash("sha256");
        for await (const piece of (await entries.get(file.entry ?? "")?.read()) ?? []) hash.update(piece);
        if (hash.digest("hex") !== file.sha256) return false;
      }
    } catch {
      signal?.throwIfAborted();
      return false;
    } finally {
      zip.close();
    }
  }
  return true;
}
