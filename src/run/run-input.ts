import { closeSync, createReadStream, openSync, readSync } from "node:fs";
import { join } from "node:path";
import { expandedCustomIds } from "../contract/text-rules.ts";
import { writeJsonLines } from "./json-lines.ts";
import type { PlannedItem } from "./plan.ts";
import { readLines } from "./prompts/lines.ts";
import type { PromptReference } from "./prompts/prompt-item.ts";
import { textOf } from "./prompts/spool.ts";
import { referencePath } from "./references.ts";

export const INPUT_FILE = "input.jsonl";

/** A line of `input.jsonl`: what was sent, in the form of a prompt file, reference images by their hash. */
export interface InputLine {
  custom_id?: string;
  prompt: string;
  output_count?: number;
  reference_images?: { path: string; id?: string; type?: string }[];
}

export async function writeRunInput(dir: string, items: readonly PlannedItem[]): Promise<void> {
  const lines = {
    *[Symbol.iterator]() {
      for (const item of items) yield toInputLine(item);
    },
  };
  await writeJsonLines(join(dir, INPUT_FILE), lines);
}

/** The input of a run, by the id of each image, in its order. It stays on disk: only where each line is, is known. */
export interface RunInput {
  keys(): Iterable<string>;
  has(id: string): boolean;
  /** The line that would make this image alone; undefined for an image that is not known, or no longer. */
  get(id: string): InputLine | undefined;
}

/** Nobody writes longer lines here: reference images are files of their own. */
const MAX_LINE_BYTES = 64 * 1024 * 1024;

/**
 * Reads where the lines of a run's input are; empty when the directory has none (a mere download). A line that is no
 * JSON is left out.
 * Rule: FILE-14.
 */
export async function readRunInput(dir: string): Promise<RunInput> {
  const path = join(dir, INPUT_FILE);
  const places = new Map<string, LinePlace>();
  let start = 0;
  try {
    for await (const { text } of readLines(createReadStream(path), MAX_LINE_BYTES)) {
      const place = { start, bytes: Buffer.byteLength(text) };
      start += place.bytes + 1;
      const line = parseLine(text);
      for (const id of line === null ? [] : imageIds(line)) places.set(id, place);
    }
  } catch {
    // What cannot be read is not known.
  }
  return {
    keys: () => places.keys(),
    has: (id) => places.has(id),
    get: (id) => {
      const place = places.get(id);
      const line = place === undefined ? null : parseLine(readPlace(path, place));
      if (line === null) return undefined;
      const { output_count: _, ...rest } = line;
      return { ...rest, custom_id: id };
    },
  };
}

interface LinePlace {
  start: number;
  bytes: number;
}

function imageIds({ custom_id = "", output_count = 1 }: InputLine): string[] {
  return expandedCustomIds(custom_id, output_count);
}

function parseLine(text: string): InputLine | null {
  return readJsonLines<InputLine>(text)[0] ?? null;
}

/** The text at a place of the file; "" when it cannot be read. */
function readPlace(path: string, { start, bytes }: LinePlace): string {
  try {
    const file = openSync(path, "r");
    try {
      const data = Buffer.allocUnsafe(bytes);
      return data.toString("utf8", 0, readSync(file, data, 0, bytes, start));
    } finally {
      closeSync(file);
    }
  } catch {
    return "";
  }
}

function toInputLine(item: PlannedItem): InputLine {
  const references = item.references.map((reference) => ({
    path: referencePath(reference.sha256),
    ...labelsOf(reference),
  }));
  return {
    custom_id: item.customId,
    prompt: textOf(item.prompt),
    ...(item.outputCount === 1 ? {} : { output_count: item.outputCount }),
    ...(references.length === 0 ? {} : { reference_images: references }),
  };
}

function labelsOf({ id, type }: PromptReference): { id?: string; type?: string } {
  return { ...(id === undefined ? {} : { id }), ...(type === undefined ? {} : { type }) };
}

/** One value a line. */
export function toJsonLines(values: readonly unknown[]): string {
  return values.map((value) => `${JSON.stringify(value)}\n`).join("");
}

/** The lines of a file that this program wrote; a line that is no JSON is left out. */
export function readJsonLines<T>(text: string): T[] {
  return text.split("\n").flatMap((line) => {
    try {
      return line === "" ? [] : [JSON.parse(line) as T];
    } catch {
      return [];
    }
  });
}
