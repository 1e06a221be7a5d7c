import { createHash } from "node:crypto";
import type { ImageMimeType } from "../../contract/image-formats.ts";
import { expandedCustomIds, generatedCustomId, type Limits } from "../../contract/limits.ts";
import { canonicalJson } from "../../kernel/json.ts";
import { safeFileName, truncateCodePoints } from "../../kernel/text.ts";
import { type Options, optionsOf, seedOf, withoutDefaults } from "../../prompts/options.ts";
import { splitIntoBatches } from "../../prompts/split-into-batches.ts";
import { createDiskNames, modelEnd } from "../directory/names.ts";
import type { PromptItem } from "./prompt-files.ts";
import type { PromptReference } from "./reference-files.ts";
import { type PromptText, textOf } from "./spool.ts";

/** Everything that decides the images of a run. */
export interface RunRequest {
  /** The model of items that name none. */
  model: string;
  name: string | null;
  parentId: string | null;
  mimeType: ImageMimeType;
  metadata: Record<string, string> | null;
  items: readonly PromptItem[];
  /** The provider that makes the images, by its name. Default: the first one that has the model. */
  provider?: string;
  /** The embedded service makes the images with an upstream: an earlier run with drawings is then another one. */
  isReal?: boolean;
  /**
   * Type and origin of the upstream of each model that has one of its own address, not the vendor's: pictures of a stand-in
   * are never taken for the vendor's. Default: none.
   */
  origins?: Readonly<Record<string, string>>;
  /** The flags that were typed for all prompts, such as `--size`. They decide no image by themselves: items have them. */
  flags?: Readonly<Record<string, string>>;
  /** The default quality of each model that has one. It decides no image: items do not name it any more. */
  defaultQualities?: Record<string, string>;
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
  model: string;
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

/**
 * Assigns the missing ids, splits the run into batches, and derives their idempotency keys. `sharesReferences`: a request
 * holds equal reference images once.
 */
export function planRun(request: RunRequest, limits: Limits, sharesReferences = false): Plan {
  const items = assignIds(request.items);
  const chunks = splitIntoBatches(items, limits, sharesReferences).map((part, index) => ({
    index,
    items: part,
    model: modelOf(request, part),
    imageCount: part.reduce((sum, item) => sum + item.outputCount, 0),
    contentKey: contentKeyOf(request, index, part),
  }));
  return { request, items, chunks, inputSha256: inputHash(request, items) };
}

/** Identifies a run: the hash of everything that it requests. */
export function inputHash(request: Omit<RunRequest, "items">, items: readonly PlannedItem[]): string {
  return contentHash(headOf(request), items);
}

/** Returns the idempotency key of a batch that its content alone decides. `index` is its number in the run, from 0. */
export function contentKeyOf(
  request: Omit<RunRequest, "items">,
  index: number,
  items: readonly PlannedItem[],
): string {
  const model = modelOf(request, items);
  const { [model]: own } = request.origins ?? {};
  const head = { ...headOf({ ...request, origins: own === undefined ? {} : { [model]: own } }), model };
  return `ib1-${contentHash({ ...head, chunk: index }, items)}`;
}

/** Returns the model of a batch. All of its items have the same. */
export function modelOf({ model }: Pick<RunRequest, "model">, [item]: readonly PromptItem[]): string {
  return item?.model ?? model;
}

const MOST_STEM_CHARS = 100;

/** Returns the id of an item without one of its own, unless another image has it. `model`: the one that is not named. */
export function idOf(item: PromptItem, index: number, model: string | null = null): string {
  const stem = item.variant?.stem ?? generatedCustomId(item.number ?? index + 1);
  if (item.model === undefined || item.model === model) return stem;
  const end = modelEnd(item.model);
  return stem.endsWith(end) ? stem : `${truncateCodePoints(stem, MOST_STEM_CHARS - end.length)}${end}`;
}

/**
 * Gives ids by position in the whole run, so that they do not depend on how it is split. Those of items with another model
 * than `model` (default: of items that name one) end with its name.
 */
export function assignIds(items: readonly PromptItem[], model: string | null = null): PlannedItem[] {
  const taken = new Set(
    items.flatMap((item) =>
      item.customId === null ? [] : expandedCustomIds(item.customId, item.outputCount),
    ),
  );
  /** The number to try next for a stem, with as many images, that was taken before. */
  const numbers = new Map<string, number>();
  return items.map((item, index) => {
    const { customId: typedId } = item;
    if (typedId !== null) return { ...item, customId: typedId, typedId };
    const stem = idOf(item, index, model);
    let customId = stem;
    const tried = `${item.outputCount} ${stem}`;
    let n = numbers.get(tried) ?? 2;
    for (; expandedCustomIds(customId, item.outputCount).some((id) => taken.has(id)); n++)
      customId = numbered(stem, n);
    numbers.set(tried, n);
    for (const id of expandedCustomIds(customId, item.outputCount)) taken.add(id);
    return { ...item, customId, typedId };
  });
}

/** A number must not make an id too long for a request. */
function numbered(stem: string, n: number): string {
  const end = `-${n}`;
  return `${truncateCodePoints(stem, MOST_STEM_CHARS - end.length)}${end}`;
}

type JsonValue = Parameters<typeof canonicalJson>[0];

function headOf(request: Omit<RunRequest, "items">): { [key: string]: JsonValue } {
  const { model, name, parentId, mimeType, metadata, provider, isReal = false, origins = {} } = request;
  const named = provider === undefined ? {} : { provider };
  const facts = { task_name: name, parent_batch_id: parentId, response_mime_type: mimeType, metadata };
  const head = { model, ...facts, ...named, ...(Object.keys(origins).length > 0 && { origins }) };
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
  const { customId: custom_id, outputCount: output_count, model } = item;
  return {
    custom_id,
    prompt: textOf(item.prompt),
    output_count,
    references,
    ...(model === undefined ? {} : { model }),
    ...(optionsOf(item) as { [name: string]: JsonValue }),
  };
}

/** The settings that all requests of a run without batches share. */
interface RealtimeSettings {
  model: string;
  /** What prompts ask for that do not say so themselves. */
  options: Options;
  mimeType: ImageMimeType | null;
  /** See `origins` of a `RunRequest`. Default: none. */
  origin?: string | null;
}

/** One request of a run. */
interface PlannedImage extends Options {
  customId: string;
  prompt: PromptText;
  references: readonly PromptReference[];
  /** Its path relative to the run's directory, with `/`. The extension is missing: it follows from the bytes. */
  stem: string;
}

export interface RealtimePlan {
  settings: RealtimeSettings;
  /** Each with all that it asks for. Null: the directory has them. */
  items: PlannedItem[] | null;
  images: PlannedImage[];
  /** Identifies the run: hash of everything that it requests. */
  inputSha256: string;
}

/** Gives every image an id and a name of its own, the same ones each time. */
export function planRealtimeRun(settings: RealtimeSettings, prompts: readonly PromptItem[]): RealtimePlan {
  const usual = withoutDefaults(settings.options);
  // A line may ask for the default where the run asks for something else.
  const planned = assignIds(usual.size === undefined ? prompts.map(withoutDefaults) : prompts);
  const items = planned.map((item) => ({ ...usual, ...item }));
  const images = realtimeImages(
    items.flatMap((item) =>
      expandedCustomIds(item.customId, item.outputCount).map((id, i) => {
        const seed = item.seed === undefined ? {} : { seed: seedOf(item.seed, i) };
        return [id, { ...item, ...seed }] as const;
      }),
    ),
  );
  const { model, mimeType, origin = null } = settings;
  const { aspect_ratio = null, size = null, ...others } = usual;
  const asked = { model, aspect_ratio, size, ...others };
  const more = { ...(mimeType !== null && { mimeType }), ...(origin !== null && { origin }) };
  const head = { kind: "realtime", ...asked, ...more };
  const inputSha256 = contentHash(head, planned);
  return { settings, items, images, inputSha256 };
}

/** Names the images of a run, one request each. */
export function realtimeImages(items: readonly (readonly [id: string, PromptItem])[]): PlannedImage[] {
  const names = createDiskNames();
  return items.map(([customId, { prompt, references, ...item }]) => {
    const stem = names.take(safeFileName(customId));
    return { customId, prompt, references, ...optionsOf(item), stem };
  });
}
