import { type ImageMimeType, readImageHeader } from "../../../contract/image-formats.ts";
import type { Limits } from "../../../contract/limits.ts";
import { counted } from "../../../kernel/text.ts";
import type { ReferenceSpec } from "../../../prompts/check-row.ts";
import { optionFields } from "../../../prompts/options.ts";
import {
  NOT_AN_IMAGE,
  NOT_BASE64,
  type Problem,
  type Report,
  urlProblem,
} from "../../../prompts/problems.ts";
import { PromptReader } from "../../../prompts/prompt-reader.ts";
import { bytesOf, type ReferenceFile } from "../../api/files.ts";
import type { Draft } from "./draft.tsx";

/** A reference of an item: a file that was given, or bytes that stood in the line. */
interface DraftReference {
  labels: { id?: string; type?: string };
  source: ReferenceFile | { data: string; mimeType: ImageMimeType };
  bytes: number;
  pixels: number;
}

interface DraftItem {
  line: number;
  customId: string | null;
  prompt: string;
  outputCount: number;
  references: DraftReference[];
}

export interface CheckedDraft {
  items: DraftItem[];
  /** The first ones, by line. */
  problems: Problem[];
  problemCount: number;
  /** Images that will be made. */
  imageCount: number;
  /** The files that no line names. */
  unnamed: ReferenceFile[];
  /** Fields of the lines that are not the service's: they are not sent. */
  unsent: string[];
}

/** Checks a draft as the command line checks a file of prompts. `maxReferences` is the model's limit for a prompt, `limits` are those of the service. */
export async function checkDraft(
  draft: Pick<Draft, "text" | "format" | "fileName" | "count" | "sharesReferences">,
  files: readonly ReferenceFile[],
  { limits, maxReferences }: { limits: Limits; maxReferences: number },
): Promise<CheckedDraft> {
  const name = draft.fileName || `prompts.${draft.format}`;
  const kept = new Set<string>();
  const reader = new PromptReader({ kept, limits, defaultCount: draft.count });
  const named = new Set<ReferenceFile>();
  const items: DraftItem[] = [];
  for await (const { row, fileLine, report } of reader.read(name, bytesOfText(draft.text), draft.format)) {
    const references = row.references
      .map((spec) => resolveReference(spec, files, report))
      .filter((reference) => reference !== null);
    for (const { source } of references) if ("blob" in source) named.add(source);
    const { customId, prompt, outputCount, model } = row;
    const asked = { ...(model === undefined ? {} : { model }), ...optionFields(row) };
    for (const field of Object.keys(asked))
      report(field, "cannot be chosen here; `imgbatch submit` takes it");
    items.push({ line: fileLine.line, customId, prompt, outputCount, references });
  }
  const unnamed = files.filter((file) => !named.has(file));
  for (const item of items) {
    if (draft.sharesReferences && item.references.length === 0)
      item.references = unnamed.map((file) => referenceTo(file));
    const count = item.references.length;
    if (count <= maxReferences) continue;
    const message = `the model takes at most ${counted(maxReferences, "reference image")}; this prompt has ${count}`;
    reader.problems.add({ file: name, line: item.line }, "reference_images", message);
  }
  const problems = reader.finish();
  const imageCount = items.reduce((sum, { outputCount }) => sum + outputCount, 0);
  return {
    items,
    problems: problems.shown([name]),
    problemCount: problems.count,
    imageCount,
    unnamed,
    unsent: [...kept],
  };
}

async function* bytesOfText(text: string): AsyncGenerator<Uint8Array> {
  yield new TextEncoder().encode(text);
}

function resolveReference(
  spec: ReferenceSpec,
  files: readonly ReferenceFile[],
  report: Report,
): DraftReference | null {
  const { field, path, inline, id, type } = spec;
  const labels = { ...(id === undefined ? {} : { id }), ...(type === undefined ? {} : { type }) };
  if (inline !== undefined) return inlineReference(inline, field, labels, report);
  if (path === undefined) return null;
  const url = urlProblem(path);
  const file = files.find(({ name }) => name === path) ?? files.find(({ name }) => name === lastPart(path));
  if (url !== null) report(field, url);
  else if (!file) report(field, `${path} is not among the reference images below; add it there`);
  return file && url === null ? referenceTo(file, labels) : null;
}

function referenceTo(file: ReferenceFile, labels: DraftReference["labels"] = {}): DraftReference {
  return { labels, source: file, bytes: file.blob.size, pixels: file.pixels };
}

function lastPart(path: string): string {
  return path.split(/[\\/]/).at(-1) ?? path;
}

function inlineReference(
  { data, mimeType }: { data: string; mimeType: string },
  field: string,
  labels: DraftReference["labels"],
  report: Report,
): DraftReference | null {
  let bytes: Uint8Array;
  try {
    bytes = bytesOf(data);
  } catch {
    report(`${field}.data`, NOT_BASE64);
    return null;
  }
  const header = readImageHeader(bytes);
  if (header === null) {
    report(`${field}.data`, NOT_AN_IMAGE);
    return null;
  }
  if (header.mimeType !== mimeType) {
    report(`${field}.mime_type`, `is ${JSON.stringify(mimeType)}; it should be ${header.mimeType}`);
    return null;
  }
  const source = { data, mimeType: header.mimeType };
  return { labels, source, bytes: bytes.length, pixels: (header.widthPx ?? 0) * (header.heightPx ?? 0) };
}
