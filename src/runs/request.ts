import { createHash } from "node:crypto";
import { type FileHandle, open } from "node:fs/promises";
import { join } from "node:path";
import { saving } from "../client/file-errors.ts";
import type { CreateBatchBody, CreateItemBody } from "../contract/batch-api.ts";
import { ImgbatchError } from "../contract/errors.ts";
import type { StreamedBody } from "../http/transport.ts";
import { optionsOf, wireOptions } from "../prompts/options.ts";
import {
  damaged,
  type InputLine,
  type RunInput,
  referencePath,
  requireUndamaged,
  storedReference,
} from "./directory/input.ts";
import { retriedId } from "./directory/run-state.ts";
import type { MadeAgain, RunBatch, RunState } from "./directory/run-state-schema.ts";
import { contentKeyOf, modelOf, type PlannedItem, type RunRequest } from "./plan/plan.ts";
import type { PromptReference } from "./plan/reference-files.ts";
import { type KeptText, Spool } from "./plan/spool.ts";

/**
 * Returns the body of the create request of a batch: what its entry names, read from the input on disk. The same entry
 * always gives the same body. `parentId` is the parent that the service knows. Throws `DIRECTORY_CONFLICT` when the input
 * is not as the run has written it, so that no other prompt is sent under the key of this one.
 */
export async function requestOf(
  {
    dir,
    state,
    sharesReferences,
    qualities = {},
  }: {
    dir: string;
    state: RunState;
    sharesReferences?: boolean | undefined;
    qualities?: Readonly<Record<string, string>> | undefined;
  },
  entry: RunBatch,
  input: RunInput,
  parentId: string | null,
): Promise<{ body: string | StreamedBody; items: readonly PlannedItem[] }> {
  const asked = await itemsOf(dir, input, entry.images ?? entry.prompts ?? [], entry.again?.images);
  const settings = { ...settingsOf(state), parentId };
  const { provider, model = settings.model } = entry;
  // Another provider may have other models than those that the prompts name.
  const items: readonly PlannedItem[] =
    provider === undefined ? asked : asked.map(({ model: _, ...item }) => item);
  const request = provider === undefined ? settings : { ...settings, model, provider };
  if (entry.prompts !== undefined) {
    const { idempotency_key: key, index } = entry;
    const contentKey = contentKeyOf({ ...request, parentId: entry.parent_batch_id }, index, items);
    if (isContentKey(key) && key !== contentKey)
      throw damaged(`${input.path} is not as the run has written it`);
  }
  const sent = items.map((item) => {
    const { [item.model ?? model]: usual } = qualities;
    return usual === undefined || item.quality !== undefined ? item : { ...item, quality: usual };
  });
  return { body: createBody(dir, request, sent, sharesReferences), items: sent };
}

/** Returns the settings that all requests of a run share. Throws `USAGE` when the run did not make its batches. */
export function settingsOf({ request }: RunState): Omit<RunRequest, "items" | "parentId"> {
  if (request === null) {
    const message = "The run does not say how these images were asked for: submit the prompts again.";
    throw new ImgbatchError("USAGE", message);
  }
  const { model, task_name: name, response_mime_type: mimeType, metadata, images, origins = {} } = request;
  return { model, name, mimeType, metadata, isReal: images === "real", origins };
}

const isContentKey = (key: string | null) => key !== null && /^ib1-[0-9a-f]{64}$/.test(key);

/**
 * Returns prompts of a run's input: the lines `[first, count]`, from 0, or one item for each image by its id. `again`: what
 * images are asked for instead. Throws `DIRECTORY_CONFLICT` when a line was edited, or a reference image is another one.
 */
export async function itemsOf(
  dir: string,
  input: RunInput,
  named: readonly string[] | readonly [first: number, count: number],
  again: Readonly<Record<string, MadeAgain>> = {},
): Promise<PlannedItem[]> {
  const spool = new Spool();
  /** Many prompts share a reference image. */
  const stored = new Map<string, PromptReference>();
  const items: PlannedItem[] = [];
  for (const line of isRange(named) ? rangeOf(input, ...named) : imagesOf(input, named, again)) {
    const { custom_id: customId, prompt, output_count: outputCount = 1, model, metadata, source } = line;
    const references: PromptReference[] = [];
    for (const { path, ...labels } of line.reference_images ?? []) {
      const reference = stored.get(path) ?? (await storedReference(dir, path));
      stored.set(path, reference);
      references.push({ ...reference, ...labels });
    }
    items.push({
      customId,
      typedId: source.id ?? null,
      prompt: spool.keepText(prompt),
      outputCount,
      references,
      ...(model === undefined ? {} : { model }),
      ...optionsOf(line),
      metadata: metadata === undefined ? null : spool.keepText(JSON.stringify(metadata)),
      fileLine: { file: source.file, line: source.line },
    });
  }
  return items;
}

function isRange(named: readonly unknown[]): named is readonly [number, number] {
  return typeof named[0] === "number";
}

function* rangeOf(input: RunInput, first: number, count: number): Generator<InputLine> {
  requireUndamaged(input);
  for (let at = first; at < first + count; at++) {
    const found = input.at(at);
    if (found === undefined) throw damaged(`${input.path} does not hold all prompts of the run`);
    yield found;
  }
}

function* imagesOf(
  input: RunInput,
  ids: readonly string[],
  again: Readonly<Record<string, MadeAgain>>,
): Generator<InputLine> {
  for (const id of ids) {
    const typed = input.get(id);
    if (typed === undefined) {
      requireUndamaged(input);
      throw damaged(`${input.path} does not hold the prompt of ${JSON.stringify(id)}`);
    }
    yield { ...askedAgain(typed, again[id]), custom_id: retriedId(id) };
  }
}

function askedAgain(line: InputLine, { model, seed, edit, picture }: MadeAgain = {}): InputLine {
  const edited = { prompt: edit ?? line.prompt, reference_images: [{ path: referencePath(picture ?? "") }] };
  return {
    ...line,
    ...(model !== undefined && { model }),
    ...(seed !== undefined && { seed }),
    ...(picture !== undefined && edited),
  };
}

/** A part of the body: text as it is, a prompt that becomes a JSON string, or a reference image that becomes Base64. */
type Piece = string | KeptText | PromptReference;

/**
 * Returns the JSON text of a create request. Reference images and spooled prompts are read while it is sent, so that only a
 * piece of it is in memory. Sending throws `SAVE_FAILED` when a stored image was changed.
 */
export function createBody(
  dir: string,
  request: Omit<RunRequest, "items">,
  items: readonly PlannedItem[],
  sharesReferences = false,
): string | StreamedBody {
  const pieces = joined(piecesOf(request, items, sharesReferences));
  const [only, ...more] = pieces;
  if (typeof only === "string" && more.length === 0) return only;
  return {
    bytes: pieces.reduce((sum, piece) => sum + bytesOf(piece), 0),
    open: async function* () {
      for (const piece of pieces) {
        if (typeof piece === "string") yield Buffer.from(piece);
        else if ("read" in piece) yield Buffer.from(JSON.stringify(piece.read()));
        else yield* base64Of(join(dir, referencePath(piece.sha256)), piece);
      }
    },
  };
}

function* piecesOf(
  request: Omit<RunRequest, "items">,
  items: readonly PlannedItem[],
  sharesReferences: boolean,
): Generator<Piece> {
  const head: Omit<CreateBatchBody, "items"> = {
    model: modelOf(request, items),
    ...(request.name === null ? {} : { task_name: request.name }),
    ...(request.parentId === null ? {} : { parent_batch_id: request.parentId }),
    ...(request.metadata === null ? {} : { metadata: request.metadata }),
    ...(request.provider === undefined ? {} : { provider: request.provider }),
    response_mime_type: request.mimeType,
  };
  yield `${opened(head)},"items":[`;
  const sent = new Set<string>();
  for (const [index, item] of items.entries()) {
    if (index > 0) yield ",";
    yield* itemPieces(item, sharesReferences ? sent : null);
  }
  yield "]}";
}

/** `sent`: the hashes of references that the request has already, which are not sent again; null: all are sent. */
function* itemPieces(
  { customId, prompt, outputCount, references, ...item }: PlannedItem,
  sent: Set<string> | null,
): Generator<Piece> {
  const head: Pick<CreateItemBody, "custom_id"> = { custom_id: customId };
  yield `${opened(head)},"prompt":`;
  yield typeof prompt === "string" ? JSON.stringify(prompt) : prompt;
  if (outputCount !== 1) yield `,"output_count":${outputCount}`;
  for (const [index, reference] of references.entries()) {
    const { id, type, mimeType, sha256 } = reference;
    yield index === 0 ? ',"reference_images":[' : ",";
    if (sent?.has(sha256)) {
      yield JSON.stringify({ id, type, sha256 });
      continue;
    }
    sent?.add(sha256);
    yield `${opened({ id, type, mime_type: mimeType })},"data":"`;
    yield reference;
    yield '"}';
  }
  if (references.length > 0) yield "]";
  const options = wireOptions(item);
  yield Object.keys(options).length === 0 ? "}" : `,"options":${JSON.stringify(options)}}`;
}

/** Returns the text of an object without its closing brace. */
function opened(value: object): string {
  return JSON.stringify(value).slice(0, -1);
}

/** Joins neighbouring texts. */
function joined(pieces: Iterable<Piece>): Piece[] {
  const result: Piece[] = [];
  let text: string[] = [];
  const flush = () => {
    if (text.length > 0) result.push(text.join(""));
    text = [];
  };
  for (const piece of pieces) {
    if (typeof piece === "string") {
      text.push(piece);
      continue;
    }
    flush();
    result.push(piece);
  }
  flush();
  return result;
}

function bytesOf(piece: Piece): number {
  if (typeof piece === "string") return Buffer.byteLength(piece);
  return "read" in piece ? piece.jsonBytes : Math.ceil(piece.bytes / 3) * 4;
}

/** A multiple of three: Base64 of whole groups of three bytes can be concatenated. */
const PIECE_BYTES = 48 * 1024;

async function* base64Of(path: string, { sha256, bytes }: PromptReference): AsyncGenerator<Buffer> {
  const hash = createHash("sha256");
  const file = await saving(path, () => open(path, "r"));
  const piece = Buffer.allocUnsafe(PIECE_BYTES);
  try {
    for (let left = bytes; left > 0; ) {
      const size = Math.min(left, PIECE_BYTES);
      const data = piece.subarray(0, await saving(path, () => fill(file, piece, size)));
      if (data.length < size) break;
      hash.update(data);
      left -= size;
      yield Buffer.from(data.toString("base64"), "latin1");
    }
  } finally {
    await file.close();
  }
  // The request is not complete yet, so the service cannot act on it.
  if (hash.digest("hex") !== sha256)
    throw new ImgbatchError("SAVE_FAILED", `${path} was changed; remove it and run the command again.`);
}

/** Reads until `piece` holds `size` bytes or the file ends. Returns the number of bytes read. */
async function fill(file: FileHandle, piece: Buffer, size: number): Promise<number> {
  let filled = 0;
  while (filled < size) {
    const { bytesRead } = await file.read(piece, filled, size - filled, null);
    if (bytesRead === 0) break;
    filled += bytesRead;
  }
  return filled;
}
