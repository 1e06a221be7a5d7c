import type { ImageMimeType } from "../../contract/images/image-types.ts";
import { FIXED_LIMITS, type Limits } from "../../contract/limits.ts";
import { expandedCustomIds, generatedCustomId } from "../../contract/text-rules.ts";
import type { JsonValue } from "../../kernel/json/canonical-json.ts";
import type { PromptItem, PromptReference } from "../prompts/prompt-item.ts";
import { contentHash } from "./content-hash.ts";

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
  const chunks = split(items, limits).map((part, index) => ({
    index,
    items: part,
    imageCount: part.reduce((sum, item) => sum + item.outputCount, 0),
    contentKey: `ib1-${contentHash({ ...headOf(request), chunk: index }, part)}`,
  }));
  const inputSha256 = contentHash(headOf(request), items);
  return { request, items, chunks, inputSha256 };
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
    let customId = generatedCustomId(index + 1);
    for (let n = 2; expandedCustomIds(customId, item.outputCount).some((id) => taken.has(id)); n++) {
      customId = `${generatedCustomId(index + 1)}-${n}`;
    }
    for (const id of expandedCustomIds(customId, item.outputCount)) taken.add(id);
    return { ...item, customId, typedId };
  });
}

/** The size of a batch, and its limits. A reference counts once for each image that uses it. */
interface Load {
  items: number;
  images: number;
  references: number;
  referenceBytes: number;
  pixels: number;
  bodyBytes: number;
}

/** The share of the body limit that the items may use. The rest is for the fields around them. */
const BODY_SHARE = 0.95;

function split(items: readonly PlannedItem[], limits: Limits): PlannedItem[][] {
  const most: Load = {
    items: limits.itemsPerBatch,
    images: limits.outputImagesPerBatch,
    references: limits.referenceImagesPerBatch,
    referenceBytes: limits.referenceBytesPerBatch,
    pixels: FIXED_LIMITS.referencePixelsPerRequest,
    bodyBytes: limits.createBodyBytes * BODY_SHARE,
  };
  const chunks: PlannedItem[][] = [];
  let chunk: PlannedItem[] = [];
  let load: Load = emptyLoad();
  for (const item of items) {
    const next = addLoad(load, loadOf(item));
    if (chunk.length > 0 && exceeds(next, most)) {
      chunks.push(chunk);
      chunk = [];
      load = loadOf(item);
    } else {
      load = next;
    }
    chunk.push(item);
  }
  return chunk.length === 0 ? chunks : [...chunks, chunk];
}

function emptyLoad(): Load {
  return { items: 0, images: 0, references: 0, referenceBytes: 0, pixels: 0, bodyBytes: 0 };
}

function loadOf(item: PlannedItem): Load {
  const sum = (value: (reference: PromptReference) => number) =>
    item.references.reduce((total, r) => total + value(r), 0);
  return {
    items: 1,
    images: item.outputCount,
    references: item.references.length * item.outputCount,
    referenceBytes: sum((reference) => reference.bytes),
    pixels: sum((reference) => reference.pixels),
    // Base64 takes four bytes for three; JSON may escape each character of a prompt as six.
    bodyBytes: 6 * item.prompt.length + 1024 + sum((reference) => Math.ceil(reference.bytes / 3) * 4 + 512),
  };
}

function addLoad(a: Load, b: Load): Load {
  return {
    items: a.items + b.items,
    images: a.images + b.images,
    references: a.references + b.references,
    referenceBytes: a.referenceBytes + b.referenceBytes,
    pixels: a.pixels + b.pixels,
    bodyBytes: a.bodyBytes + b.bodyBytes,
  };
}

function exceeds(load: Load, most: Load): boolean {
  return (Object.keys(most) as (keyof Load)[]).some((kind) => load[kind] > most[kind]);
}

function headOf(request: RunRequest): { [key: string]: JsonValue } {
  const { model, name, parentId, mimeType, metadata, isReal = false } = request;
  const head = { model, task_name: name, parent_batch_id: parentId, response_mime_type: mimeType, metadata };
  return isReal ? { ...head, images: "real" } : head;
}
