import { lstat, rename } from "node:fs/promises";
import { basename, join } from "node:path";
import PQueue from "p-queue";
import { z } from "zod";
import type { ItemFacts } from "../../client/answers.ts";
import { removeFile, saving } from "../../client/file-errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { makeDirectory, regularFilePieces, syncDirectory } from "../../kernel/files.ts";
import { hideUsedKeysIn } from "../../kernel/hide-keys.ts";
import { codePointLength } from "../../kernel/text.ts";
import { readLines } from "../../prompts/lines.ts";
import { optionsOf } from "../../prompts/options.ts";
import { stands } from "../standing.ts";
import { type InputLine, type RunInput, readRunInput } from "./input.ts";
import { IMAGES_FOLDER, VERSIONS_FOLDER } from "./names.ts";
import {
  type DerivedFile,
  hashFile,
  isImagePath,
  isWholeImage,
  type ResultFile,
  readJsonLine,
  type Verified,
  writeJsonLines,
} from "./run-files.ts";
import type { RunReporter } from "./run-service.ts";
import { supersededIn } from "./run-state.ts";
import type { MadeAgain, RunState } from "./run-state-schema.ts";

const count = z.int().min(0);

const fileSchema = z.looseObject({
  path: z.string().describe("from the directory of the run on, with /"),
  image_index: count.optional().describe("which image of the item, from 0; only where not all are here"),
  entry: z.string().optional().describe("the name inside path, when that is a ZIP that was kept"),
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  bytes: count,
  mime_type: z.string(),
  width: count.nullable(),
  height: count.nullable(),
  original: z
    .looseObject({
      path: z.string().describe("from the directory of the run on, with /"),
      sha256: z.string().regex(/^[0-9a-f]{64}$/),
      bytes: count,
      mime_type: z.string(),
    })
    .optional()
    .describe("the image as the upstream sent it, when that was of another type than asked for"),
});

const derivedSchema = z.looseObject({
  path: z.string().describe("from the directory of the prompt file on, with /"),
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  width: count,
  height: count,
  bytes: count,
  enlarged: z.literal(true).optional().describe("the image has fewer pixels than the file"),
  lost_credentials: z
    .literal(true)
    .optional()
    .describe("the content credentials (C2PA) of the image are not in the file"),
});

const error = z
  .looseObject({
    code: z.string(),
    message: z.string(),
    source: z.string().nullable().describe("client: found by imgbatch, not by the service"),
    request_id: z.string().optional(),
  })
  .optional()
  .describe("why the image is missing; with the status success, why it could not be fetched");

const common = {
  custom_id: z.string(),
  files: z.array(fileSchema).describe("empty if no image was saved"),
  derived: z
    .array(derivedSchema)
    .optional()
    .describe("the files that were made of the image where its prompt wants them; absent for none"),
  error,
  notes: z.array(z.string()).optional().describe("differences that a person should know"),
  prompt: z.string().optional(),
  source_id: z
    .string()
    .nullable()
    .optional()
    .describe("the custom_id as typed, which several images may share; null if the prompt has none"),
  file: z.string().optional().describe("the prompt file as typed; <stdin> for standard input"),
  line: z.int().min(1).optional().describe("the line of the prompt in that file"),
  values: z
    .record(z.string(), z.string())
    .optional()
    .describe("the values of the lists that made the prompt, by variable"),
  model: z.string().optional().describe("the model that was asked for, where it is not that of the run"),
  options: z
    .looseObject({
      aspect_ratio: z.string().optional(),
      size: z.string().optional(),
      quality: z.string().optional(),
      background: z.string().optional(),
      seed: z.int().optional().describe("of this image"),
      negative_prompt: z.string().optional(),
    })
    .optional()
    .describe("what the image was asked for besides the prompt; absent for nothing"),
  metadata: z.record(z.string(), z.unknown()).optional().describe("the other fields of the prompt"),
};

const upstreamCost = z
  .number()
  .optional()
  .describe("US dollars: the bill of the upstream, from the dollars or the tokens that it reports");

const ofBatches = z.looseObject({
  ...common,
  provider: z.string().optional().describe("made or refused the image"),
  model_version: z.string().optional().describe("the model as the upstream names it"),
  seed: z.int().optional(),
  upstream_cost: upstreamCost,
  cost: z.number().optional().describe("US dollars that the image costs"),
  may_be_billed: z
    .number()
    .optional()
    .describe("US dollars that the upstream may bill, at most, for requests whose answers were lost"),
  took_ms: count.optional().describe("milliseconds that the provider took; absent in a job of an upstream"),
  again: z
    .looseObject({
      model: z.string().optional(),
      seed: z.int().optional(),
      edit: z.string().optional().describe("what should change; it was the prompt"),
      picture: z.string().optional().describe("SHA-256 of the picture that was changed"),
    })
    .optional()
    .describe("what the image was asked for instead, because a person wanted another one"),
  play_money: z.literal(true).optional().describe("the cost is no real money: the image was drawn"),
  status: z.string().describe("success or failed; another service may have words of its own"),
  batch_id: z.string().describe("empty if the batch is not known"),
  verified: z
    .enum(["sha256", "crc32"])
    .nullable()
    .optional()
    .describe(
      "how the files could be checked: by a hash of the service, or by the checksum of the ZIP; null: only by their size and first bytes, because the service gives no hash",
    ),
});

const ofRealtime = z.looseObject({
  ...common,
  status: z.enum(["success", "failed", "pending"]).describe("pending: not asked for yet"),
  model_version: z
    .string()
    .nullable()
    .describe("the model as the service names it; null without an image, or if it is unknown"),
  upstream_cost: upstreamCost,
});

/**
 * A line of `results.jsonl`: one for each image that was asked for, in the order of the input. In a
 * run of `generate --file` each image is a request of its own, without a batch.
 */
export const resultSchema = z.union([
  ofBatches.describe("of submit, retry and download"),
  ofRealtime.describe("of generate --file"),
]);

export const RESULTS_FILE = "results.jsonl";
export const RETRY_FILE = "retry.jsonl";

/** A line of `results.jsonl`, without what `input.jsonl` knows: one for each image that was asked for, in the order of the input. */
export interface ResultLine extends Omit<ItemFacts, "model_version"> {
  custom_id: string;
  /** `pending`: not asked for yet, or not known. */
  status: string;
  /** Absent for an image that was a request of its own. */
  batch_id?: string;
  /** Null for a request of its own without an image, or if it is not known. */
  model_version?: string | null;
  files: ResultFile[];
  /** Absent without files. */
  verified?: Verified;
  /** What the image was asked for instead of what its prompt says. Absent unless a person wanted another one. */
  again?: MadeAgain;
  /** The files that were made of the image where its prompt wants them. Absent for none. */
  derived?: DerivedFile[];
  /** The reason why the image is missing here. With the status `success`: the reason why it could not be fetched. */
  error?: { code: string; message: string; source: string | null; request_id?: string };
}

/**
 * Reads the results of an earlier run in the directory; empty when there are none. A damaged line is left out, and its
 * image is then fetched again.
 */
export async function readResults(dir: string): Promise<ResultLine[]> {
  const found: ResultLine[] = [];
  for await (const line of resultLines(join(dir, RESULTS_FILE))) {
    // Very many long prompts do not fit into memory.
    const { prompt: _, metadata: __, ...rest } = line;
    found.push(rest);
  }
  return found;
}

/** The result of an earlier picture, with what it was asked for. Its files are in `versions/`. */
type VersionLine = ResultLine & { prompt?: string; metadata?: unknown };

/** Reads the results of the earlier pictures of a run, which are in `versions/`, the oldest first; empty without any. */
export async function readVersions(dir: string): Promise<VersionLine[]> {
  const found: VersionLine[] = [];
  for await (const line of resultLines(join(dir, VERSIONS_FILE))) found.push(line);
  return found;
}

/** Where the results of earlier pictures are, from the directory of the run on. */
const VERSIONS_FILE = join(VERSIONS_FOLDER, RESULTS_FILE);

async function* resultLines(path: string): AsyncGenerator<VersionLine> {
  try {
    for await (const { text } of readLines(regularFilePieces(path), MAX_LINE_BYTES)) {
      const line = readJsonLine(text, resultSchema);
      if (line !== null) yield line as VersionLine;
    }
  } catch {
    // A result that cannot be read is not known.
  }
}

const MAX_LINE_BYTES = 64 * 1024 * 1024;

/** Returns what the input knows of an image, under the names of the results. `again`: what was asked for instead. */
function askedFor(line: InputLine | undefined, again: MadeAgain = {}): object {
  if (line === undefined) return {};
  const { prompt, source, metadata } = line;
  const { model = line.model, seed = line.seed } = again;
  const options = optionsOf({ ...line, seed });
  return {
    prompt,
    source_id: source.id ?? null,
    file: source.file,
    line: source.line,
    ...(source.values === undefined ? {} : { values: source.values }),
    ...(model === undefined ? {} : { model }),
    ...(Object.keys(options).length === 0 ? {} : { options }),
    ...(metadata === undefined ? {} : { metadata }),
  };
}

/**
 * Writes `results.jsonl`, and `retry.jsonl` with the known input of the failed images. Returns whether there is a
 * `retry.jsonl`, and the lines of the prompt files whose images failed, where they are known. Files with the same content
 * are not touched.
 */
export async function writeResults(
  dir: string,
  lines: readonly ResultLine[],
  input: Pick<RunInput, "get" | "has">,
): Promise<{ hasRetry: boolean; failedAt: { file: string; line: number }[] }> {
  const shown = {
    *[Symbol.iterator]() {
      for (const line of lines) {
        const asked = askedFor(input.get(line.custom_id), line.again);
        yield hideUsedKeysIn({ ...line, ...asked });
      }
    },
  };
  await writeJsonLines(join(dir, RESULTS_FILE), shown);
  const failed = lines.filter((line) => stands(line, "failed", "refused") && input.has(line.custom_id));
  const retry = {
    *[Symbol.iterator]() {
      for (const line of failed) yield* retryLine(input.get(line.custom_id));
    },
  };
  const retryPath = join(dir, RETRY_FILE);
  if (failed.length === 0) await removeFile(retryPath);
  else await writeJsonLines(retryPath, retry);
  const failedAt = failed.flatMap(({ custom_id: id }) => input.get(id)?.source ?? []);
  return { hasRetry: failed.length > 0, failedAt };
}

function retryLine(input: InputLine | undefined): Partial<InputLine>[] {
  if (input === undefined) return [];
  const { custom_id, source: _, ...rest } = input;
  // An id with a counter may be too long for a prompt file. The new run then makes its own.
  return [codePointLength(custom_id) > FIXED_LIMITS.customIdChars ? rest : { custom_id, ...rest }];
}

/**
 * Moves earlier pictures from `images/` to `versions/`, with their results, before new ones can take their names, and then
 * takes them out of the results. `isEarlier`: whether a line is the result of one. Returns the results that are left. After a
 * kill, another call goes on.
 */
export async function setAside(
  dir: string,
  lines: readonly ResultLine[],
  isEarlier: (line: ResultLine) => boolean,
  reporter: Pick<RunReporter, "note">,
): Promise<ResultLine[]> {
  const left = lines.filter((line) => !isEarlier(line));
  if (left.length === lines.length) return left;
  const earlier: VersionLine[] = [];
  for await (const line of resultLines(join(dir, RESULTS_FILE))) if (isEarlier(line)) earlier.push(line);
  await keepVersions(dir, earlier, reporter);
  await writeResults(dir, left, await readRunInput(dir));
  return left;
}

/** Whether a line is of a prompt that an update changed or removed. */
export function isSupersededIn(state: RunState): (line: ResultLine) => boolean {
  if (state.updates === undefined) return () => false;
  const rounds = new Map(state.batches.map(({ id, round }) => [id, supersededIn(state, round)]));
  return (line) => rounds.get(line.batch_id ?? "")?.has(line.custom_id) === true;
}

/**
 * Moves the images of prompts that the run does not have any more to `versions/`: of an earlier run in the directory,
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
  const stray = earlier.filter(isStray).map((line) => ({
    ...line,
    files: line.files.filter(({ path }) => !current.has(path)),
  }));
  await keepVersions(dir, stray);
}

/**
 * Moves the images of lines to `versions/`, and adds the lines to the results there. The results are written first, so that a
 * picture that was moved before a kill has its result.
 */
async function keepVersions(
  dir: string,
  lines: readonly VersionLine[],
  reporter?: Pick<RunReporter, "note">,
): Promise<void> {
  const moves: { from: string; to: string }[] = [];
  const versions: VersionLine[] = [];
  for (const line of lines) {
    const files: ResultFile[] = [];
    const notes = [...(line.notes ?? [])];
    let { verified } = line;
    for (const file of line.files) {
      const from = join(dir, file.path);
      const sha256 = isImagePath(file.path) ? await hashFile(from) : null;
      if (sha256 === null) continue;
      const taken = new Set(moves.map(({ to }) => to));
      const path = await freeVersion(dir, basename(file.path), sha256, taken);
      moves.push({ from, to: join(dir, path) });
      if (sha256 === file.sha256) {
        files.push({ ...file, path });
        continue;
      }
      // A person has changed it: what is kept is what is there, and nobody has checked it.
      const { original: _, ...facts } = file;
      const { size } = await lstat(from);
      files.push({ ...facts, path, sha256, bytes: size, width: null, height: null });
      verified = null;
      notes.push(CHANGED);
      reporter?.note(`${file.path} was changed by hand: that picture is now ${path}`);
    }
    if (files.length === 0) continue;
    versions.push({
      ...line,
      files,
      ...(verified !== undefined && { verified }),
      ...(notes.length > 0 && { notes }),
    });
  }
  if (versions.length === 0) return;
  const folder = join(dir, VERSIONS_FOLDER);
  await saving(folder, () => makeDirectory(folder));
  const isNew = ({ custom_id: id, batch_id: batch, files }: VersionLine) =>
    !versions.some((line) => line.custom_id === id && line.batch_id === batch && hasPath(line, files));
  const before = (await readVersions(dir)).filter(isNew);
  await writeJsonLines(join(dir, VERSIONS_FILE), hideUsedKeysIn([...before, ...versions]));
  for (const { from, to } of moves) await saving(to, () => rename(from, to));
  for (const each of [IMAGES_FOLDER, VERSIONS_FOLDER]) await syncDirectory(join(dir, each));
}

const CHANGED = "changed by hand since it was made";

const hasPath = ({ files }: VersionLine, [other]: readonly ResultFile[]) => files[0]?.path === other?.path;

/**
 * Returns a path in `versions/` for a file with this content, from the directory of the run on. No other content has it: `~2`,
 * `~3`, … is added to the name.
 */
export async function freeVersion(
  dir: string,
  name: string,
  sha256: string,
  taken: ReadonlySet<string> = new Set(),
): Promise<string> {
  const [, stem = "", extension = ""] = /^(.*?)(\.[^.]*)?$/.exec(name) ?? [];
  for (let n = 1; ; n++) {
    const path = `${VERSIONS_FOLDER}/${n === 1 ? stem : `${stem}~${n}`}${extension}`;
    if (taken.has(join(dir, path))) continue;
    const there = await lstat(join(dir, path)).catch(() => null);
    if (there === null || (there.isFile() && (await hashFile(join(dir, path))) === sha256)) return path;
  }
}

/** Several images of a run come at once; each call reads the results in `versions/` and writes them. */
const changedImages = new PQueue({ concurrency: 1 });

/**
 * Moves a picture that a person has put in the place of an image to `versions/`, with a result, and says so. The result has no
 * costs: these stay with the image itself. Anything but a whole image stays.
 */
export function moveChangedAway(
  dir: string,
  path: string,
  reporter: Pick<RunReporter, "note">,
): Promise<void> {
  return changedImages.add(async () => {
    if (!(await isWholeImage(join(dir, path)))) return;
    for await (const line of resultLines(join(dir, RESULTS_FILE))) {
      const files = line.files.filter((file) => file.path === path);
      if (files.length === 0) continue;
      const { cost: _, upstream_cost: __, may_be_billed: ___, ...facts } = line;
      return keepVersions(dir, [{ ...facts, files }], reporter);
    }
    const moved = await moveAway(dir, path);
    if (moved !== null) reporter.note(`${path} was changed by hand: that picture is now ${moved}`);
  });
}

/** Moves a file of a run to `versions/`, and returns its path there; null if there is no such file. */
export async function moveAway(dir: string, path: string): Promise<string | null> {
  const sha256 = await hashFile(join(dir, path));
  if (sha256 === null) return null;
  const folder = join(dir, VERSIONS_FOLDER);
  await saving(folder, () => makeDirectory(folder));
  const to = await freeVersion(dir, basename(path), sha256);
  await saving(folder, () => rename(join(dir, path), join(dir, to)));
  return to;
}
