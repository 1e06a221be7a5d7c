import { existsSync } from "node:fs";
import { lstat, rename } from "node:fs/promises";
import { basename, join } from "node:path";
import { z } from "zod";
import type { ItemFacts } from "../../client/answers.ts";
import { removeFile, saving } from "../../client/file-errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { makeDirectory, regularFilePieces, syncDirectory } from "../../kernel/files.ts";
import { hideUsedKeysIn } from "../../kernel/hide-keys.ts";
import { codePointLength } from "../../kernel/text.ts";
import { readLines } from "../../prompts/lines.ts";
import { givenFields } from "../../prompts/options.ts";
import { stands } from "../standing.ts";
import { type InputLine, type RunInput, readRunInput } from "./input.ts";
import { IMAGES_FOLDER, REMOVED_FOLDER } from "./names.ts";
import {
  isImagePath,
  isWholeImage,
  type ResultFile,
  readJsonLine,
  type Verified,
  writeJsonLines,
} from "./run-files.ts";
import type { RunReporter } from "./run-service.ts";
import { supersededIn } from "./run-state.ts";
import type { RunState } from "./run-state-schema.ts";

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
  /** The reason why the image is missing here. With the status `success`: the reason why it could not be fetched. */
  error?: { code: string; message: string; source: string | null; request_id?: string };
}

/**
 * Reads the results of an earlier run in the directory; empty when there are none. A damaged line is left out, and its
 * image is then fetched again.
 */
export async function readResults(dir: string): Promise<ResultLine[]> {
  const found: ResultLine[] = [];
  try {
    for await (const { text } of readLines(regularFilePieces(join(dir, RESULTS_FILE)), MAX_LINE_BYTES)) {
      const line = readJsonLine(text, resultSchema);
      if (line === null) continue;
      // Very many long prompts do not fit into memory.
      const { prompt: _, metadata: __, ...rest } = line;
      found.push(rest as ResultLine);
    }
  } catch {
    // A result that cannot be read is not known.
  }
  return found;
}

const MAX_LINE_BYTES = 64 * 1024 * 1024;

/** Returns what the input knows of an image, under the names of the results. */
function askedFor(line: InputLine | undefined): object {
  if (line === undefined) return {};
  const { prompt, source, metadata, model } = line;
  const options = givenFields(line);
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
      for (const line of lines) yield hideUsedKeysIn({ ...line, ...askedFor(input.get(line.custom_id)) });
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

/** Moves a picture that a person has put in the place of an image to `removed/`, and says so. Anything but a whole image stays. */
export async function moveChangedAway(
  dir: string,
  path: string,
  { note }: Pick<RunReporter, "note">,
): Promise<void> {
  if (!(await isWholeImage(join(dir, path)))) return;
  const moved = await moveAway(dir, path);
  if (moved !== null) note(`${path} was changed by hand: that picture is now ${moved}`);
}

/**
 * Moves a file of a run to `removed/`, and returns its path there; null if there is no such file. A file of the same name
 * that was moved earlier stays.
 */
export async function moveAway(dir: string, path: string): Promise<string | null> {
  const from = join(dir, path);
  const folder = join(dir, REMOVED_FOLDER);
  if (!existsSync(from)) return null;
  await saving(folder, () => makeDirectory(folder));
  const [, stem = "", extension = ""] = /^(.*?)(\.[^.]*)?$/.exec(basename(path)) ?? [];
  for (let n = 1; ; n++) {
    const name = n === 1 ? `${stem}${extension}` : `${stem}~${n}${extension}`;
    const to = join(folder, name);
    if ((await lstat(to).catch(() => null)) !== null) continue;
    await saving(to, () => rename(from, to));
    return `${REMOVED_FOLDER}/${name}`;
  }
}
