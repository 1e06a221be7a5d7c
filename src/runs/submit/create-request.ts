import { createHash } from "node:crypto";
import { type FileHandle, open } from "node:fs/promises";
import { join } from "node:path";
import { saving } from "../../client/file-errors.ts";
import type { CreateBatchBody, CreateItemBody } from "../../contract/batch-api/create-batch.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { StreamedBody } from "../../http/transport.ts";
import { referencePath } from "../directory/references.ts";
import type { Chunk, PlannedItem, RunRequest } from "../plan/plan.ts";
import type { PromptReference } from "../prompts/prompt-item.ts";
import type { KeptText } from "../prompts/spool.ts";

/** A part of the body: text as it is, a prompt that becomes a JSON string, or a reference image that becomes Base64. */
type Piece = string | KeptText | PromptReference;

/**
 * Returns the JSON text of the create request of a chunk. Reference images and spooled prompts are read while it is sent,
 * so that only a piece of it is in memory. Sending throws `SAVE_FAILED` when a stored image was changed.
 */
export function createRequest(dir: string, request: RunRequest, chunk: Chunk): string | StreamedBody {
  const pieces = joined(piecesOf(request, chunk));
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

function* piecesOf(request: RunRequest, chunk: Chunk): Generator<Piece> {
  const head: Omit<CreateBatchBody, "items"> = {
    model: request.model,
    ...(request.name === null ? {} : { task_name: request.name }),
    ...(request.parentId === null ? {} : { parent_batch_id: request.parentId }),
    ...(request.metadata === null ? {} : { metadata: request.metadata }),
    response_mime_type: request.mimeType,
  };
  yield `${opened(head)},"items":[`;
  for (const [index, item] of chunk.items.entries()) {
    if (index > 0) yield ",";
    yield* itemPieces(item);
  }
  yield "]}";
}

function* itemPieces({ customId, prompt, outputCount, references }: PlannedItem): Generator<Piece> {
  const head: Pick<CreateItemBody, "custom_id"> = { custom_id: customId };
  yield `${opened(head)},"prompt":`;
  yield typeof prompt === "string" ? JSON.stringify(prompt) : prompt;
  if (outputCount !== 1) yield `,"output_count":${outputCount}`;
  for (const [index, reference] of references.entries()) {
    const { id, type, mimeType } = reference;
    yield index === 0 ? ',"reference_images":[' : ",";
    yield `${opened({ id, type, mime_type: mimeType })},"data":"`;
    yield reference;
    yield '"}';
  }
  yield references.length === 0 ? "}" : "]}";
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
