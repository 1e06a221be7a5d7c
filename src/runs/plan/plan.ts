import { createHash } from "node:crypto";
import type { ImageMimeType, SizeTier } from "../../contract/image-formats.ts";
import { expandedCustomIds, generatedCustomId, type Limits } from "../../contract/limits.ts";
import { canonicalJson } from "../../kernel/json.ts";
import { safeFileName } from "../../kernel/text.ts";
import type { Shape } from "../../prompts/shape.ts";
import { splitIntoBatches } from "../../prompts/split-into-batches.ts";
import { createDiskNames } from "../directory/names.ts";
import type { PromptItem } from "./prompt-files.ts";
import type { PromptReference } from "./reference-files.ts";
import { type PromptText, textOf } from "./spool.ts";

/** Everything that decides the images of a run. */
export interface RunRequest {
  model: string;
  name: string | null;
  parentId: string | null;
  mimeType: ImageMimeType;
  metadata: Record<string, string> | null;
  items: readonly PromptItem[];
  /** The embedded service makes the images with an upstream: an earlier run with drawings is then another one. */
  isReal?: boolean;
}

export interface PlannedItem extends PromptItem {
  customId: string;
  /** The id as typed; null if the line had none. */
  typedId: string | null;
}

/** The part of a run that becomes one batch. */
export interface Chunk {
  /** From 0. */
  index: number;
  items: PlannedItem[];
  /** Images that are requested. */
  imageCount: number;
  /** Derived from the content alone: the same request gives the same key anywhere. */
  contentKey: string;
}

export interface Plan {
  request: RunRequest;
  items: PlannedItem[];
  chunks: Chunk[];
  /** Identifies the run: hash of everything that it requests. */
  inputSha256: string;
}

/** Assigns the missing ids, splits the run into batches, and derives their idempotency keys. */
export function planRun(request: RunRequest, limits: Limits): Plan {
  const items = assignIds(request.items);
  const chunks = splitIntoBatches(items, limits).map((part, index) => ({
    index,
    items: part,
    imageCount: part.reduce((sum, item) => sum + item.outputCount, 0),
    contentKey: contentKeyOf(request, index, part),
  }));
  const inputSha256 = contentHash(headOf(request), items);
  return { request, items, chunks, inputSha256 };
}

/** Returns the idempotency key of a batch that its content alone decides. `index` is its number in the run, from 0. */
export function contentKeyOf(
  request: Omit<RunRequest, "items">,
  index: number,
  items: readonly PlannedItem[],
): string {
  return `ib1-${contentHash({ ...headOf(request), chunk: index }, items)}`;
}

/** Gives ids by position in the whole run, so that they do not depend on how it is split. */
export function assignIds(items: readonly PromptItem[]): PlannedItem[] {
  const taken = new Set(
    items.flatMap((item) =>
      item.customId === null ? [] : expandedCustomIds(item.customId, item.outputCount),
    ),
  );
  return items.map((item, index) => {
    const { customId: typedId } = item;
    if (typedId !== null) return { ...item, customId: typedId, typedId };
    const stem = item.variant?.stem ?? generatedCustomId(item.number ?? index + 1);
    let customId = stem;
    for (let n = 2; expandedCustomIds(customId, item.outputCount).some((id) => taken.has(id)); n++)
      customId = `${stem}-${n}`;
    for (const id of expandedCustomIds(customId, item.outputCount)) taken.add(id);
    return { ...item, customId, typedId };
  });
}

type JsonValue = Parameters<typeof canonicalJson>[0];

function headOf(request: Omit<RunRequest, "items">): { [key: string]: JsonValue } {
  const { model, name, parentId, mimeType, metadata, isReal = false } = request;
  const head = { model, task_name: name, parent_batch_id: parentId, response_mime_type: mimeType, metadata };
  return isReal ? { ...head, images: "real" } : head;
}

/**
 * Returns the SHA-256 of a request: of the canonical JSON (RFC 8785) of `head` with the items, including their ids, as its
 * `items`. Only one item is in memory at a time.
 */
function contentHash(head: { readonly [key: string]: JsonValue }, items: readonly PromptItem[]): string {
  const hash = createHash("sha256");
  const names = [...Object.keys(head), "items"].sort();
  for (const [at, name] of names.entries()) {
    hash.update(`${at === 0 ? "{" : ","}${JSON.stringify(name)}:`);
    if (name !== "items") hash.update(canonicalJson(head[name] ?? null));
    else addItems(items, (text) => hash.update(text));
  }
  return hash.update("}").digest("hex");
}

function addItems(items: readonly PromptItem[], add: (text: string) => void): void {
  add("[");
  for (const [at, item] of items.entries()) add(`${at === 0 ? "" : ","}${canonicalJson(identityOf(item))}`);
  add("]");
}

/** Returns the fields of an item that decide the picture, and its id. */
function identityOf(item: PromptItem): JsonValue {
  const references = item.references.map(({ id = null, type = null, mimeType, sha256 }) => ({
    id,
    type,
    mimeType,
    sha256,
  }));
  const { customId: custom_id, outputCount: output_count, aspectRatio, size } = item;
  return {
    custom_id,
    prompt: textOf(item.prompt),
    output_count,
    references,
    ...(aspectRatio === undefined ? {} : { aspect_ratio: aspectRatio }),
    ...(size === undefined ? {} : { size }),
  };
}

/** The settings that all requests of a run without batches share. */
interface RealtimeSettings {
  model: string;
  aspectRatio: string | null;
  size: SizeTier | null;
  mimeType: ImageMimeType | null;
}

/** One request of a run. */
interface PlannedImage extends Pick<RealtimeSettings, "aspectRatio" | "size"> {
  customId: string;
  prompt: PromptText;
  references: readonly PromptReference[];
  /** Its path relative to the run's directory, with `/`. The extension is missing: it follows from the bytes. */
  stem: string;
}

export interface RealtimePlan {
  settings: RealtimeSettings;
  /** Each with the ratio and size that it is asked for in. Null: the directory has them. */
  items: PlannedItem[] | null;
  images: PlannedImage[];
  /** Identifies the run: hash of everything that it requests. */
  inputSha256: string;
}

/** Gives every image an id and a name of its own, the same ones each time. */
export function planRealtimeRun(settings: RealtimeSettings, prompts: readonly PromptItem[]): RealtimePlan {
  const planned = assignIds(prompts);
  const items = planned.map((item) => ({ ...shapeOf(settings), ...item }));
  const images = realtimeImages(
    items.flatMap((item) =>
      expandedCustomIds(item.customId, item.outputCount).map((id) => [id, item] as const),
    ),
  );
  const { model, aspectRatio, size, mimeType } = settings;
  const asked = { model, aspectRatio, size, ...(mimeType === null ? {} : { mimeType }) };
  const inputSha256 = contentHash({ kind: "realtime", ...asked }, planned);
  return { settings, items, images, inputSha256 };
}

/** Names the images of a run, one request each. */
export function realtimeImages(items: readonly (readonly [id: string, PromptItem])[]): PlannedImage[] {
  const names = createDiskNames();
  return items.map(([customId, { prompt, references, aspectRatio = null, size = null }]) => {
    const stem = names.take(safeFileName(customId));
    return { customId, prompt, references, aspectRatio, size, stem };
  });
}

function shapeOf({ aspectRatio, size }: RealtimeSettings): Shape {
  return { ...(aspectRatio === null ? {} : { aspectRatio }), ...(size === null ? {} : { size }) };
}
