import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { lstat, rename } from "node:fs/promises";
import { basename, join } from "node:path";
import { saving } from "../../client/file-errors.ts";
import { syncDirectory } from "../../kernel/files/durable-file.ts";
import { makeDirectory } from "../../kernel/files/make-directory.ts";
import { type RunInput, readRunInput, storeReferences, writeRunInput } from "../directory/input.ts";
import { IMAGES_FOLDER, REMOVED_FOLDER } from "../directory/names.ts";
import { type ResultLine, readResults, writeResults } from "../directory/results.ts";
import { supersededIn } from "../directory/run-state.ts";
import type { RunState } from "../directory/run-state-schema.ts";
import { isImagePath, isWholeResult, type ResultFile } from "../directory/verified-files.ts";
import { openZip } from "../fetch/zip.ts";
import type { Plan } from "../plan/plan.ts";
import { planUpdate } from "../plan/update.ts";
import { factsOf, recordedBatch } from "../run-batches.ts";
import type { RunOutcome } from "./collect-run.ts";
import { isFailed, isHere } from "./standing.ts";

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
  await storeReferences(
    dir,
    items.flatMap((item) => item.references),
  );
  await writeRunInput(dir, items);
  const input = await readRunInput(dir);
  const { hasRetry } = await writeResults(dir, lines, input, isFailed);
  const failedAt = lines.filter(isFailed).flatMap(({ custom_id: id }) => input.get(id)?.source ?? []);
  const round = Math.max(...asked.map((entry) => entry.round));
  const last = new Set(asked.filter((entry) => entry.round === round).map(({ id }) => id));
  const deciding = batches.filter(({ id }) => last.has(id));
  return { dir, batches, deciding, lines, fetchedCount: 0, hasRetry, failedAt, unknown: new Map() };
}

/** Returns a line as it was written, with its fields in the same order, so that the same results are the same file. */
function asWritten(line: ResultLine): ResultLine {
  const { custom_id, status, batch_id, files, verified, error } = line;
  return {
    ...{ custom_id, status, batch_id, files },
    ...(verified === undefined ? {} : { verified }),
    ...factsOf(line),
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
    if (isFailed(line) || again?.has(line.custom_id)) continue;
    if (!isHere(line)) return null;
    if (line.files.every(({ entry }) => entry !== undefined)) zipped.push(...line.files);
    else if (!(await isWholeResult(dir, line))) return null;
  }
  return (await areInZips(dir, zipped, signal)) ? lines : null;
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

/**
 * Moves the images of changed and removed prompts from `images/` to `removed/`, before new images can take their names,
 * and then takes them out of the results. Returns the results that are left. After a kill, another call goes on.
 */
export async function setAside(dir: string, state: RunState): Promise<ResultLine[]> {
  const lines = await readResults(dir);
  if (state.updates === undefined) return lines;
  const rounds = new Map(state.batches.map(({ id, round }) => [id, supersededIn(state, round)]));
  const isSuperseded = (line: ResultLine) => rounds.get(line.batch_id)?.has(line.custom_id) === true;
  const old = lines.filter(isSuperseded);
  if (old.length === 0) return lines;
  for (const { path } of old.flatMap(({ files }) => files)) if (isImagePath(path)) await moveAway(dir, path);
  for (const folder of [IMAGES_FOLDER, REMOVED_FOLDER])
    if (existsSync(join(dir, folder))) await syncDirectory(join(dir, folder));
  const left = lines.filter((line) => !isSuperseded(line));
  await writeResults(dir, left, await readRunInput(dir), isFailed);
  return left;
}

/**
 * Moves the images of prompts that the run does not have any more to `removed/`: of an earlier run in the directory,
 * before `--new`. An image of another prompt may have taken its file. Results that are damaged move nothing of the
 * run's own batches.
 */
export async function setAsideStray(
  dir: string,
  { batches }: RunState,
  earlier: readonly ResultLine[],
  lines: readonly ResultLine[],
  input: Pick<RunInput, "has">,
): Promise<void> {
  const own = new Set(batches.map(({ id }) => id));
  const known = new Set(lines.map(({ custom_id: id }) => id));
  const current = new Set(lines.flatMap(({ files }) => files.map(({ path }) => path)));
  const isStray = ({ custom_id: id, batch_id }: ResultLine) =>
    !own.has(batch_id) && !known.has(id) && !input.has(id);
  const stray = earlier.filter(isStray);
  for (const { path } of stray.flatMap(({ files }) => files))
    if (isImagePath(path) && !current.has(path)) await moveAway(dir, path);
}

/** A file of the same name that was moved earlier stays. */
async function moveAway(dir: string, path: string): Promise<void> {
  const from = join(dir, path);
  const folder = join(dir, REMOVED_FOLDER);
  if (!existsSync(from)) return;
  await saving(folder, () => makeDirectory(folder));
  const [, stem = "", extension = ""] = /^(.*?)(\.[^.]*)?$/.exec(basename(path)) ?? [];
  for (let n = 1; ; n++) {
    const to = join(folder, n === 1 ? `${stem}${extension}` : `${stem}~${n}${extension}`);
    if ((await lstat(to).catch(() => null)) !== null) continue;
    await saving(to, () => rename(from, to));
    return;
  }
}
