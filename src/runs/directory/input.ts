import { closeSync, constants, openSync, readSync } from "node:fs";
import { copyFile, readFile, rename, rm } from "node:fs/promises";
import { join, relative, resolve, sep } from "node:path";
import { saving } from "../../client/file-errors.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { readImageHeader } from "../../contract/image-formats.ts";
import { expandedCustomIds, WIDEST_LIMITS } from "../../contract/limits.ts";
import {
  makeDirectory,
  openRegularFile,
  PARTIAL_SUFFIX,
  regularFilePieces,
  requireWriteRoot,
  syncDirectory,
  writeFileDurably,
} from "../../kernel/files.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import type { RowSource } from "../../prompts/check-row.ts";
import { readLines } from "../../prompts/lines.ts";
import { type Options, optionsOf, seedOf } from "../../prompts/options.ts";
import type { LineFiles } from "../../prompts/wanted-files.ts";
import type { PlannedItem } from "../plan/plan.ts";
import type { PromptReference } from "../plan/reference-files.ts";
import { textOf } from "../plan/spool.ts";
import { INPUT_FILE, REFERENCES_FOLDER } from "./names.ts";
import { hashFile, isImagePath, isVersionPath, readFacts, writeJsonLines } from "./run-files.ts";

/** Returns the path of a stored reference image, relative to the run's directory. */
export function referencePath(sha256: string): string {
  return `${REFERENCES_FOLDER}/${sha256}`;
}

async function store(reference: PromptReference, target: string): Promise<void> {
  if ("kept" in reference.source) {
    const { kept } = reference.source;
    return saving(target, () => writeFileDurably(target, kept.read()));
  }
  await copyInto(reference.source.path, reference.sha256, target);
}

/** Copies a file with a known hash. Throws `INVALID_INPUT` if it has another content by now. */
async function copyInto(path: string, sha256: string, target: string): Promise<void> {
  const copy = `${target}${PARTIAL_SUFFIX}`;
  // A reflink where the file system has them. Never a hard link: editing the original would change the copy.
  await saving(target, async () => {
    await copyFile(path, copy, constants.COPYFILE_FICLONE);
    const descriptor = openRegularFile(copy);
    try {
      await requireWriteRoot(descriptor, copy);
    } finally {
      closeSync(descriptor);
    }
  });
  if (!(await holds(copy, sha256))) {
    await rm(copy, { force: true });
    throw new ImgbatchError("INVALID_INPUT", `${path} changed while it was read; run the command again.`);
  }
  await saving(target, () => rename(copy, target));
}

/**
 * Stores a picture of the run as a reference image. `path` is that of the picture, from the directory of the run on. Returns its
 * hash; null if there is no such file, or it is no picture of the run.
 */
export async function keepReference(dir: string, path: string): Promise<string | null> {
  if (!isImagePath(path) && !isVersionPath(path)) return null;
  const sha256 = await hashFile(join(dir, path));
  if (sha256 === null) return null;
  const target = join(dir, referencePath(sha256));
  if (await holds(target, sha256)) return sha256;
  await saving(target, () => makeDirectory(join(dir, REFERENCES_FOLDER)));
  await copyInto(join(dir, path), sha256, target);
  await saving(target, () => syncDirectory(join(dir, REFERENCES_FOLDER)));
  return sha256;
}

/**
 * Returns the facts of a reference image that the run has stored at `path`, from its directory on. Throws `DIRECTORY_CONFLICT`
 * if the file is missing or has other bytes: another image would be sent and paid for.
 */
export async function storedReference(dir: string, path: string): Promise<PromptReference> {
  const file = join(dir, path);
  const { head, sha256, bytes } = await readFacts(file, WIDEST_LIMITS.referenceImageBytes).catch(() => {
    throw damaged(`${file} is missing, or cannot be read`);
  });
  const header = readImageHeader(head);
  if (header === null || referencePath(sha256) !== path)
    throw damaged(`${file} is another image than the one that was sent`);
  const { mimeType, widthPx, heightPx } = header;
  return { mimeType, sha256, bytes, pixels: (widthPx ?? 0) * (heightPx ?? 0), source: { path: file } };
}

/** Reads a stored reference image. Throws `SAVE_FAILED` when it was changed. */
export async function readReference(dir: string, sha256: string): Promise<Buffer> {
  const path = join(dir, referencePath(sha256));
  const data = await saving(path, () => readFile(path));
  if (sha256Hex(data) === sha256) return data;
  throw new ImgbatchError("SAVE_FAILED", `${path} was changed; remove it and run the command again.`);
}

async function holds(path: string, sha256: string): Promise<boolean> {
  return (await hashFile(path)) === sha256;
}

/** A prompt as a run sends it: a line of `input.jsonl`, in the form of a prompt file, with reference images by hash. */
export interface InputLine extends Options {
  custom_id: string;
  prompt: string;
  /** Default: 1. */
  output_count?: number;
  /** `path`: that of a stored reference image, from the directory of the run on. */
  reference_images?: { path: string; id?: string; type?: string }[];
  /** The model, where it is another than that of the run. */
  model?: string;
  metadata?: Record<string, unknown>;
  /** Where the prompt was read: file and line, and the id as typed. Without an id, that field is absent. */
  source: RowSource;
}

/**
 * Writes the input of a run, and stores each of its reference images once, under its hash: the run then needs no other
 * file. `name` is another name than `input.jsonl` if the run has not taken this input yet.
 */
export async function writeInput(
  dir: string,
  items: readonly PlannedItem[],
  name = INPUT_FILE,
): Promise<void> {
  const stored = new Set<string>();
  for (const reference of items.flatMap((item) => item.references)) {
    if (stored.has(reference.sha256)) continue;
    stored.add(reference.sha256);
    const target = join(dir, referencePath(reference.sha256));
    if (await holds(target, reference.sha256)) continue;
    await saving(target, () => makeDirectory(join(dir, REFERENCES_FOLDER)));
    await store(reference, target);
  }
  const lines = {
    *[Symbol.iterator]() {
      for (const item of items) yield sealed(toInputLine(item, dir));
    },
  };
  await writeJsonLines(join(dir, name), lines);
}

/** The input of a run, by the id of each image, in input order. The text stays on disk; only the range of each line is in memory. */
export interface RunInput {
  keys(): Iterable<string>;
  has(id: string): boolean;
  /** The line that would make this image alone. Undefined for an unknown image, and when the file was removed since. */
  get(id: string): InputLine | undefined;
  /** A line by its position, from 0. Undefined behind the last one. */
  at(position: number): InputLine | undefined;
  /** All lines, in their order; each is read when it is asked for. */
  lines(): Iterable<InputLine>;
  /** The path of the file. */
  path: string;
  /** Whether any prompt has reference images. */
  hasReferences: boolean;
  /** The first problem of the file, with its path and line. Null when there is none. */
  damage: string | null;
}

/** No run writes a longer line: reference images are files of their own. */
const MAX_LINE_BYTES = 64 * 1024 * 1024;

/**
 * Reads the ranges of the lines of a run's input. Returns none if the directory has no input, as after a download. A
 * line that is not as a run has written it is left out and reported as `damage`.
 */
export async function readRunInput(dir: string, name = INPUT_FILE): Promise<RunInput> {
  const path = join(dir, name);
  const ranges = new Map<string, LineRange>();
  const lines: LineRange[] = [];
  let damage: string | null = null;
  let hasReferences = false;
  let start = 0;
  try {
    for await (const { number, text, bytes, problem } of readLines(regularFilePieces(path), MAX_LINE_BYTES)) {
      const range = { start, bytes };
      start += bytes + 1;
      const line = parseLine(text);
      const ids = line === null ? [] : imageIds(line);
      const wrong =
        problem ??
        (line === null ? "is not a line that a run has written" : null) ??
        (ids.some((id) => ranges.has(id)) ? "has an id of another line" : null);
      if (wrong !== null) {
        damage ??= `${path}:${number} ${wrong}`;
        continue;
      }
      lines.push(range);
      hasReferences ||= line?.reference_images !== undefined;
      for (const id of ids) ranges.set(id, range);
    }
  } catch (error) {
    // An input that cannot be read is unknown.
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "ENOENT") damage ??= `${path} cannot be read (${code ?? error})`;
  }
  const read = (range: LineRange | undefined) => (range && parseLine(readRange(path, range))) ?? undefined;
  const at = (position: number) => read(lines[position]);
  return {
    path,
    damage,
    hasReferences,
    at,
    *lines() {
      for (let position = 0, found = at(0); found !== undefined; found = at(++position)) yield found;
    },
    keys: () => ranges.keys(),
    has: (id) => ranges.has(id),
    get: (id) => {
      const line = read(ranges.get(id));
      if (line === undefined) return undefined;
      const { output_count: _, seed, ...rest } = line;
      const own = seed === undefined ? {} : { seed: seedOf(seed, imageIds(line).indexOf(id)) };
      return { ...rest, ...own, custom_id: id };
    },
  };
}

/** Throws `DIRECTORY_CONFLICT` for a damaged input, since the requested images are not known then. */
export function requireUndamaged({ damage }: RunInput): void {
  if (damage !== null) throw damaged(damage);
}

/** Returns the error for an input that is not as the run wrote it. */
export function damaged(what: string): ImgbatchError {
  const advice =
    "put the file back, or run the command that made this directory again: it writes the file again, and nothing is paid twice";
  return new ImgbatchError("DIRECTORY_CONFLICT", `${what}.`, { advice });
}

interface LineRange {
  start: number;
  bytes: number;
}

function imageIds({ custom_id, output_count = 1 }: InputLine): string[] {
  return expandedCustomIds(custom_id, output_count);
}

/** The end of each line: a digest of what stands before it. A line that was edited does not fit its digest any more. */
const DIGEST = /,"digest":"([0-9a-f]{16})"\}$/;

function digestOf(text: string): string {
  return sha256Hex(text).slice(0, 16);
}

function sealed(line: InputLine): object {
  return { ...line, digest: digestOf(JSON.stringify(line)) };
}

/** Returns a line as a run has written it; null if it was edited since. */
function parseLine(text: string): InputLine | null {
  const [end = "", digest] = DIGEST.exec(text) ?? [];
  const line = `${text.slice(0, text.length - end.length)}}`;
  return digest === digestOf(line) ? JSON.parse(line) : null;
}

/** Returns the text of a range of the file; "" when it cannot be read. */
function readRange(path: string, { start, bytes }: LineRange): string {
  try {
    const file = openSync(path, "r");
    try {
      const data = Buffer.allocUnsafe(bytes);
      // Leaves out a byte order mark.
      return new TextDecoder().decode(data.subarray(0, readSync(file, data, 0, bytes, start)));
    } finally {
      closeSync(file);
    }
  } catch {
    return "";
  }
}

function toInputLine(item: PlannedItem, dir: string): InputLine {
  const { typedId, fileLine, variant, files } = item;
  const values = variant === undefined ? {} : { values: variant.values };
  const references = item.references.map((reference) => ({
    path: referencePath(reference.sha256),
    ...labelsOf(reference),
  }));
  return {
    custom_id: item.customId,
    prompt: textOf(item.prompt),
    ...(item.outputCount === 1 ? {} : { output_count: item.outputCount }),
    ...(references.length === 0 ? {} : { reference_images: references }),
    ...(item.model === undefined ? {} : { model: item.model }),
    ...optionsOf(item),
    ...(item.metadata === null ? {} : { metadata: JSON.parse(textOf(item.metadata)) }),
    source: {
      ...(item.source ?? { ...(typedId === null ? {} : { id: typedId }), ...fileLine, ...values }),
      ...(files === undefined ? {} : { files: movedFiles(files, (path) => pathFrom(dir, path)) }),
    },
  };
}

/** Returns the files that are made of the pictures of a line, with the paths of directories as they are here. */
export function lineFilesOf(dir: string, { source: { files } }: Pick<InputLine, "source">): LineFiles | null {
  return files === undefined ? null : movedFiles(files, (path) => resolve(dir, path));
}

/** Returns a path as it leads from a directory, with `/`. */
export function pathFrom(dir: string, path: string): string {
  return relative(dir, path).split(sep).join("/") || ".";
}

function movedFiles({ from, root, ...files }: LineFiles, move: (path: string) => string): LineFiles {
  return { ...files, from: move(from), ...(root === undefined ? {} : { root: move(root) }) };
}

function labelsOf({ id, type }: PromptReference): { id?: string; type?: string } {
  return { ...(id === undefined ? {} : { id }), ...(type === undefined ? {} : { type }) };
}
