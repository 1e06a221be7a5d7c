import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { saving } from "../client/saving.ts";
import { FIXED_LIMITS } from "../contract/limits.ts";
import { writeFileDurably } from "../kernel/durable-file.ts";
import { codePointLength } from "../kernel/text.ts";
import { writeJsonLines } from "./json-lines.ts";
import { type InputLine, type RunInput, readJsonLines, toJsonLines } from "./run-input.ts";

export const RESULTS_FILE = "results.jsonl";
export const RETRY_FILE = "retry.jsonl";

export interface ResultFile {
  /** From the run's directory on, with `/`. */
  path: string;
  /** The name inside `path`, when that is a ZIP that was kept. */
  entry?: string;
  sha256: string;
  bytes: number;
  mime_type: string;
  width: number | null;
  height: number | null;
}

/** A line of `results.jsonl`: one for each image that was asked for, in the order of the input. */
export interface ResultLine {
  custom_id: string;
  status: string;
  batch_id: string;
  files: ResultFile[];
  /** How the files could be checked: by the manifest's hash, by the ZIP's checksum, or by size and type alone. */
  verified?: "sha256" | "crc32" | "size";
  error?: { code: string; message: string; source: string | null };
}

/** The results of an earlier run in the directory; empty when there are none. */
export async function readResults(dir: string): Promise<ResultLine[]> {
  const text = await readFile(join(dir, RESULTS_FILE), "utf8").catch(() => "");
  return readJsonLines<ResultLine>(text).filter(
    (line) => typeof line.custom_id === "string" && Array.isArray(line.files),
  );
}

/**
 * Writes `results.jsonl`, and `retry.jsonl` when images are missing whose input is known. Answers whether it is there.
 * Rules: RUN-1, RUN-10.
 */
export async function writeResults(
  dir: string,
  lines: readonly Pick<ResultLine, "custom_id" | "files">[],
  input: Pick<RunInput, "get" | "has">,
  isMissing = (line: Pick<ResultLine, "custom_id" | "files">) => line.files.length === 0,
): Promise<{ hasRetry: boolean }> {
  const path = join(dir, RESULTS_FILE);
  await saving(path, () => writeFileDurably(path, toJsonLines(lines)));
  const missing = lines.filter((line) => isMissing(line) && input.has(line.custom_id));
  const retry = {
    *[Symbol.iterator]() {
      for (const line of missing) yield* retryLine(input.get(line.custom_id));
    },
  };
  const retryPath = join(dir, RETRY_FILE);
  if (missing.length === 0) await saving(retryPath, () => rm(retryPath, { force: true }));
  else await writeJsonLines(retryPath, retry);
  return { hasRetry: missing.length > 0 };
}

function retryLine(input: InputLine | undefined): InputLine[] {
  if (input === undefined) return [];
  const { custom_id = "", ...rest } = input;
  // An id with a counter may be longer than what a caller may choose: then the new run names it anew.
  return [codePointLength(custom_id) > FIXED_LIMITS.customIdChars ? rest : { custom_id, ...rest }];
}
