import { type Piece, pieceBytes, pieceStream } from "../../domain/downloads/piece-stream.ts";
import type { GeneratedFile } from "../../domain/files/generated.ts";
import type { BlobStore } from "../../domain/ports/blob-store.ts";
import type { BatchRecord } from "../../domain/records.ts";
import { sha256Hex } from "../../kernel/ids.ts";

/** Returns a file of JSON lines about an ended batch. Its images are read when they are sent. */
export function linesFile(
  blobs: Pick<BlobStore, "reader">,
  { id, endedAtMs, createdAtMs, outputsExpireAtMs }: BatchRecord,
  fileId: string,
  lines: readonly (readonly Piece[])[],
): GeneratedFile {
  const pieces = lines.flatMap((line) => [...line, "\n"]);
  const sizeBytes = pieces.reduce((sum, piece) => sum + pieceBytes(piece), 0);
  return {
    sizeBytes,
    // An ended batch does not change.
    etag: sha256Hex(`${id} ${fileId} ${endedAtMs} ${sizeBytes}`).slice(0, 32),
    mimeType: "application/jsonl",
    createdAtMs: endedAtMs ?? createdAtMs,
    expiresAtMs: outputsExpireAtMs,
    open: (range) => pieceStream(blobs, pieces, range),
  };
}
