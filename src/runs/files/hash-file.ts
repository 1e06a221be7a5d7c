import { createHash } from "node:crypto";
import { open } from "node:fs/promises";

/** Returns the SHA-256 of a file; null when it cannot be read. */
export async function hashFile(path: string): Promise<string | null> {
  try {
    return (await readFacts(path, 0)).sha256;
  } catch {
    return null;
  }
}

const PIECE_BYTES = 256 * 1024;

/**
 * Returns SHA-256, size and the first `headBytes` bytes of a file of any size. Holds one piece (256 KiB) and these bytes
 * in memory. Throws the system's error.
 */
export async function readFacts(
  path: string,
  headBytes: number,
): Promise<{ sha256: string; bytes: number; head: Buffer }> {
  const hash = createHash("sha256");
  const piece = Buffer.allocUnsafe(PIECE_BYTES);
  const head: Buffer[] = [];
  let bytes = 0;
  const file = await open(path, "r");
  try {
    for (;;) {
      const { bytesRead } = await file.read(piece, 0, PIECE_BYTES, null);
      if (bytesRead === 0) break;
      hash.update(piece.subarray(0, bytesRead));
      if (bytes < headBytes)
        head.push(Buffer.from(piece.subarray(0, Math.min(bytesRead, headBytes - bytes))));
      bytes += bytesRead;
    }
  } finally {
    await file.close();
  }
  return { sha256: hash.digest("hex"), bytes, head: Buffer.concat(head) };
}
