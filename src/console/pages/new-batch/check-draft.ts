import type { BatchModel } from "../../../contract/batch-api.ts";
import { type ImageMimeType, readImageHeader } from "../../../contract/image-formats.ts";
import { FIXED_LIMITS, type Limits } from "../../../contract/limits.ts";
import { counted, isLongerThan } from "../../../kernel/text.ts";
import type { ReferenceSpec } from "../../../prompts/check-row.ts";
import {
  checkOptions,
  type OptionField,
  type Options,
  optionProblem,
  optionsOf,
} from "../../../prompts/options.ts";
import {
  NOT_AN_IMAGE,
  NOT_BASE64,
  type Problem,
  type Report,
  urlProblem,
} from "../../../prompts/problems.ts";
import { PromptReader } from "../../../prompts/prompt-reader.ts";
import { splitIntoBatches } from "../../../prompts/split-into-batches.ts";
import { bytesOf, type ReferenceFile } from "../../api/files.ts";
import { imagePrice, takesOf } from "../../api/models.ts";
import type { Draft } from "./draft.tsx";

/** A reference of an item: a file that was given, or bytes that stood in the line. */
interface DraftReference {
  labels: { id?: string; type?: string };
  source: ReferenceFile | { data: string; mimeType: ImageMimeType };
  bytes: number;
  pixels: number;
  /** Absent where nothing tells it. */
  sha256?: string;
}

interface DraftItem {
  line: number;
  customId: string | null;
  prompt: string;
  outputCount: number;
  references: DraftReference[];
  model: string;
  options: Options;
  /** The fields of the line that are not the service's. */
  metadata: Record<string, unknown> | null;
}

/** What one request makes. */
interface DraftBatch {
  items: DraftItem[];
  /** The fields of their lines that all of them have with the same value. */
  metadata: Record<string, string>;
}

export interface CheckedDraft {
  /** Each is of one model, and within the limits of the service. */
  batches: DraftBatch[];
  /** The first ones, by line. */
  problems: Problem[];
  problemCount: number;
  /** Images that will be made. */
  imageCount: number;
  /** What they cost, and what is held until they are made, in micro-dollars. */
  price: DraftPrice;
  /** How the lists of the lines make the images; null without lists. */
  summary: string | null;
  /** Variables that stay text. */
  notes: string[];
  /** The names of the lists that lines ask for. */
  lists: string[];
  /** The files that no line names. */
  unnamed: ReferenceFile[];
  /** Fields of the lines that are not the service's, which become metadata of the batches. */
  kept: string[];
  /** Such fields that differ from line to line, or are no short text: they are not sent. */
  unsent: string[];
}

interface DraftPrice {
  cost: number;
  hold: number;
  /** Some of them cost real money. */
  isPaid: boolean;
  /** All of them are drawn, and cost no real money. */
  isPlay: boolean;
}

/** Checks a draft as the command line checks a file of prompts. `models` and `limits` are those of the service. */
export async function checkDraft(
  draft: DraftContent,
  files: readonly ReferenceFile[],
  { limits, models }: { limits: Limits; models: readonly BatchModel[] },
): Promise<CheckedDraft> {
  const name = draft.fileName || `prompts.${draft.format}`;
  const kept = new Set<string>();
  const lists = new Set<string>();
  const readList = async (_: string, path: string) => {
    lists.add(lastPart(path));
    const text = draft.lists[lastPart(path)];
    return text === undefined
      ? { problem: "is not here; drop it on this page" }
      : new TextEncoder().encode(text);
  };
  const reader = new PromptReader({ kept, limits, defaultCount: draft.count, readList });
  const first = models.find(({ id }) => id === draft.model) ?? models[0];
  const taken = models.map(takesOf);
  const common = checkOptions(offered(draft.options, first), (field, message) =>
    reader.problems.add({ file: name, line: null }, field, message),
  );
  const named = new Set<ReferenceFile>();
  const ids = new Set<string>();
  const items: DraftItem[] = [];
  const bytes = bytesOfText(draft.text);
  for await (const { row, report } of reader.read(name, bytes, draft.format)) {
    const references = row.references
      .map((spec) => resolveReference(spec, files, report))
      .filter((reference) => reference !== null);
    for (const { source } of references) if ("blob" in source) named.add(source);
    const { customId, prompt, outputCount, metadata, variant, fileLine, model = first?.id ?? "" } = row;
    const options = { ...common, ...optionsOf(row) };
    const takes = taken.find(({ id }) => id === model);
    if (takes === undefined && models.length > 0)
      report("model", `${model}: there is ${taken.map(({ id }) => id).join(", ")}`);
    for (const [field, value] of Object.entries(options)) {
      const problem = takes && optionProblem(field as OptionField, String(value), takes, taken);
      if (problem) report(field, problem);
    }
    const id = variant === null ? customId : freeId(variant.stem, model, ids);
    const { line } = fileLine;
    items.push({ line, customId: id, prompt, outputCount, references, model, options, metadata });
  }
  const unnamed = files.filter((file) => !named.has(file));
  for (const item of items) {
    if (draft.sharesReferences && item.references.length === 0)
      item.references = unnamed.map((file) => referenceTo(file));
    const count = item.references.length;
    const most = models.find(({ id }) => id === item.model)?.max_reference_images ?? count;
    if (count <= most) continue;
    const message = `the model takes at most ${counted(most, "reference image")}; this prompt has ${count}`;
    reader.problems.add({ file: name, line: item.line }, "reference_images", message);
  }
  const problems = reader.finish();
  const order = [...new Set(items.map(({ model }) => model))];
  const sorted = order.flatMap((model) => items.filter((item) => item.model === model));
  const batches = splitIntoBatches(sorted, limits, true).map((part) => ({
    items: part,
    metadata: sharedMetadata(part),
  }));
  const isSent = (field: string) =>
    batches.every(
      (batch) =>
        Object.hasOwn(batch.metadata, field) ||
        !batch.items.some(({ metadata }) => Object.hasOwn(metadata ?? {}, field)),
    );
  return {
    batches,
    problems: problems.shown([name]),
    problemCount: problems.count,
    imageCount: items.reduce((sum, { outputCount }) => sum + outputCount, 0),
    price: priceOf(items, models),
    summary: reader.summary,
    notes: reader.notes,
    lists: [...lists],
    unnamed,
    kept: [...kept].filter(isSent),
    unsent: [...kept].filter((field) => !isSent(field)),
  };
}

/** The service keeps metadata of a batch, not of an item. */
function sharedMetadata(items: readonly DraftItem[]): DraftBatch["metadata"] {
  const pairs = Object.entries(items[0]?.metadata ?? {}).flatMap(([field, value]) => {
    const { metadataKeyChars, metadataValueChars } = FIXED_LIMITS;
    const isKept =
      ["string", "number", "boolean"].includes(typeof value) &&
      !isLongerThan(field, metadataKeyChars) &&
      !isLongerThan(String(value), metadataValueChars) &&
      items.every(({ metadata }) => metadata?.[field] === value);
    return isKept ? [[field, String(value)] as const] : [];
  });
  return Object.fromEntries(pairs.slice(0, FIXED_LIMITS.metadataPairs));
}

/** What decides the images of a draft. */
type DraftContent = Pick<
  Draft,
  "text" | "format" | "fileName" | "count" | "sharesReferences" | "model" | "options" | "lists"
>;

/** Returns the price of items: the sum of what each of their images costs. */
export function priceOf(
  items: readonly Pick<DraftItem, "model" | "options" | "outputCount">[],
  models: readonly BatchModel[],
): DraftPrice {
  const price = { cost: 0, hold: 0, isPaid: false, isPlay: true };
  for (const { model, options, outputCount } of items) {
    const listed = models.find(({ id }) => id === model);
    if (listed === undefined) continue;
    const each = imagePrice(listed, options);
    price.cost += outputCount * each.cost;
    price.hold += outputCount * each.hold;
    price.isPaid ||= listed.pricing.paid === true;
    price.isPlay &&= listed.pricing.play_money === true;
  }
  return price;
}

/** Leaves out options of the form that it does not show for this model. */
function offered(options: Draft["options"], model: BatchModel | undefined): Draft["options"] {
  if (model === undefined) return {};
  const takes = takesOf(model);
  const isOffered = ([field, value]: [string, string]) => {
    const values = takes[field as OptionField];
    return typeof values === "boolean" ? values : values.includes(value);
  };
  return Object.fromEntries(Object.entries(options).filter(isOffered));
}

/** Batches of several models may have the same ids. */
function freeId(stem: string, model: string, taken: Set<string>): string {
  let id = stem;
  for (let number = 2; taken.has(`${model}\n${id}`); number++) id = `${stem}-${number}`;
  taken.add(`${model}\n${id}`);
  return id;
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
  const { blob, pixels, sha256 } = file;
  return { labels, source: file, bytes: blob.size, pixels, ...(sha256 === undefined ? {} : { sha256 }) };
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
