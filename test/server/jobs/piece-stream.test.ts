import { buffer } from "node:stream/consumers";
import { describe, expect, it } from "vitest";
import { type Piece, pieceBytes, pieceStream } from "../../../src/server/jobs/piece-stream.ts";
import { fileBlobs } from "../../../src/storage/blobs/file-blobs.ts";
import { tempDir } from "../../support/temp-dir.ts";

describe("a document with stored images in it", () => {
  it("[LINES-10] is the same from every byte to every byte, and its size is known before", async () => {
    const blobs = fileBlobs(await tempDir());
    const pieces: Piece[] = ['{"ö":"'];
    let whole = '{"ö":"';
    for (const sizeBytes of [0, 1, 2, 3, 4, 11]) {
      const bytes = Buffer.from(Array.from({ length: sizeBytes }, (_, i) => (i * 89 + sizeBytes) % 256));
      const blobKey = `outputs/b/${sizeBytes}`;
      await blobs.put(blobKey, bytes);
      pieces.push({ blobKey, sizeBytes }, "é|");
      whole += `${bytes.toString("base64")}é|`;
    }
    const expected = Buffer.from(whole);
    expect(pieces.reduce((sum, piece) => sum + pieceBytes(piece), 0)).toBe(expected.length);
    for (let start = 0; start < expected.length; start++) {
      for (const end of [start, start + 1, start + 6, expected.length - 1]) {
        const last = Math.min(end, expected.length - 1);
        const part = await buffer(pieceStream(blobs, pieces, { start, end: last }));
        expect(part.equals(expected.subarray(start, last + 1)), `${start} to ${last}`).toBe(true);
      }
    }
  });

  it("[LINES-10] is read in small parts, and breaks off at an image that is missing or short", async () => {
    const blobs = fileBlobs(await tempDir());
    const bytes = Buffer.alloc(1_000_000, "image");
    await blobs.put("outputs/b/1", bytes);
    const image = { blobKey: "outputs/b/1", sizeBytes: bytes.length };
    const size = pieceBytes(image);
    const chunks: Buffer[] = [];
    for await (const chunk of pieceStream(blobs, [image], { start: 0, end: size - 1 })) chunks.push(chunk);
    expect(Buffer.concat(chunks).toString()).toBe(bytes.toString("base64"));
    expect(Math.max(...chunks.map((chunk) => chunk.length))).toBeLessThan(200_000);
    const longer = { ...image, sizeBytes: bytes.length + 3 };
    const all = { start: 0, end: pieceBytes(longer) - 1 };
    await expect(buffer(pieceStream(blobs, [longer], all))).rejects.toThrow("shorter");
    const missing = { blobKey: "outputs/b/2", sizeBytes: 3 };
    await expect(buffer(pieceStream(blobs, [missing], { start: 0, end: 3 }))).rejects.toThrow("missing");
  });
});
