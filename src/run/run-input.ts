import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expandedCustomIds } from "../contract/text-rules.ts";
import type { PlannedItem } from "./plan.ts";
import type { PromptReference } from "./prompts/prompt-item.ts";
import { referencePath } from "./references.ts";
import { writeWhenChanged } from "./write-when-changed.ts";

export const INPUT_FILE = "input.jsonl";

/** A line of `input.jsonl`: what was sent, in the form of a prompt file, reference images by their hash. */
export interface InputLine {
  custom_id?: string;
  prompt: string;
  output_count?: number;
  reference_images?: { path: string; id?: string; type?: string }[];
}

export async function writeRunInput(dir: string, items: readonly PlannedItem[]): Promise<void> {
  const path = join(dir, INPUT_FILE);
  await writeWhenChanged(path, toJsonLines(items.map(toInputLine)));
}

/** The input of a run, by the id of each image; empty when the directory has none (a mere download). */
export async function readRunInput(dir: string): Promise<Map<string, InputLine>> {
  const text = await readFile(join(dir, INPUT_FILE), "utf8").catch(() => "");
  return inputByImageId(readJsonLines<InputLine>(text));
}

/** Each image that a line asks for, with the line that would make this one alone. */
export function inputByImageId(lines: readonly InputLine[]): Map<string, InputLine> {
  const byId = new Map<string, InputLine>();
  for (const line of lines) {
    const { output_count = 1, custom_id = "", ...rest } = line;
    for (const id of expandedCustomIds(custom_id, output_count)) byId.set(id, { custom_id: id, ...rest });
  }
  return byId;
}

export function toInputLine(item: PlannedItem): InputLine {
  const references = item.references.map((reference) => ({
    path: referencePath(reference.sha256),
    ...labelsOf(reference),
  }));
  return {
    custom_id: item.customId,
    prompt: item.prompt,
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
