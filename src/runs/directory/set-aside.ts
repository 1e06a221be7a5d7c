import { existsSync } from "node:fs";
import { lstat, rename } from "node:fs/promises";
import { basename, join } from "node:path";
import { saving } from "../../client/file-errors.ts";
import { syncDirectory } from "../../kernel/files/durable-file.ts";
import { makeDirectory } from "../../kernel/files/make-directory.ts";
import { type RunInput, readRunInput } from "./input.ts";
import { IMAGES_FOLDER, REMOVED_FOLDER } from "./names.ts";
import { type ResultLine, readResults, writeResults } from "./results.ts";
import { isImagePath } from "./run-files.ts";
import { supersededIn } from "./run-state.ts";
import type { RunState } from "./run-state-schema.ts";

/**
 * Moves the images of changed and removed prompts from `images/` to `removed/`, before new images can take their names,
 * and then takes them out of the results. Returns the results that are left. After a kill, another call goes on.
 */
export async function setAside(dir: string, state: RunState): Promise<ResultLine[]> {
  const lines = await readResults(dir);
  if (state.updates === undefined) return lines;
  const rounds = new Map(state.batches.map(({ id, round }) => [id, supersededIn(state, round)]));
  const isSuperseded = (line: ResultLine) => rounds.get(line.batch_id ?? "")?.has(line.custom_id) === true;
  const old = lines.filter(isSuperseded);
  if (old.length === 0) return lines;
  for (const { path } of old.flatMap(({ files }) => files)) if (isImagePath(path)) await moveAway(dir, path);
  for (const folder of [IMAGES_FOLDER, REMOVED_FOLDER])
    if (existsSync(join(dir, folder))) await syncDirectory(join(dir, folder));
  const left = lines.filter((line) => !isSuperseded(line));
  await writeResults(dir, left, await readRunInput(dir));
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
  const isStray = ({ custom_id: id, batch_id = "" }: ResultLine) =>
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
