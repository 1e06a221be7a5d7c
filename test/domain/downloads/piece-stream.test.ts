import { truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import {
  openIntact,
  type Piece,
  pieceBytes,
  pieceStream,
} from "../../../src/domain/downloads/piece-stream.ts";
import type { BlobStore } from "../../../src/domain/ports/blob-store.ts";
import { sha256Hex } from "../../../src/kernel/ids.ts";
import { fileBlobs } from "../../../src/storage/blobs/file-blobs.ts";
import { tempDir } from "../../support/temp-dir.ts";

const KIB = 1024;

/** All bytes of a range. They are copied, because their memory is used again. */
async function bytesOf(blobs: BlobStore, pieces: Piece[], range: { start: number; end: number }) {
  const chunks: Buffer[] = [];
  for await (const chunk of pieceStream(blobs, pieces, range)) chunks.push(Buffer.from(chunk));
  return chunks;
}

/** An image of 900 KiB: more than the memory through which it is read. */
async function largeImage() {
  const root = await tempDir();
  const blobs = fileBlobs(root);
  const bytes = Buffer.from(Array.from({ length: 900 * KIB }, (_, i) => (i * 31 + (i >> 8)) % 256));
  const blobKey = "outputs/b/1";
  const { sizeBytes, crc32 } = await blobs.put(blobKey, bytes);
  return { blobs, bytes, image: { blobKey, sizeBytes, crc32 }, path: join(root, blobKey) };
}

describe("a document with stored images in it", () => {
  it("is the same from every byte to every byte, and its size is known before", async () => {
    const blobs = fileBlobs(await tempDir());
    const pieces: Piece[] = ['{"ö":"'];
    const parts = [Buffer.from('{"ö":"')];
    for (const length of [0, 1, 2, 3, 4, 11]) {
      const bytes = Buffer.from(Array.from({ length }, (_, i) => (i * 89 + length) % 256));
      const blobKey = `outputs/b/${length}`;
      const { sizeBytes, crc32 } = await blobs.put(blobKey, bytes);
      const image = { blobKey, sizeBytes, crc32 };
      pieces.push({ ...image, isBase64: true }, "é|", { ...image, isBase64: false });
      parts.push(Buffer.from(`${bytes.toString("base64")}é|`), bytes);
    }
    const expected = Buffer.concat(parts);
    expect(pieces.reduce((sum, piece) => sum + pieceBytes(piece), 0)).toBe(expected.length);
    for (let start = 0; start < expected.length; start++) {
      for (const end of [start, start + 1, start + 6, expected.length - 1]) {
        const last = Math.min(end, expected.length - 1);
        const part = Buffer.concat(await bytesOf(blobs, pieces, { start, end: last }));
        expect(part.equals(expected.subarray(start, last + 1)), `${start} to ${last}`).toBe(true);
      }
    }
  });

  it("is read in small parts", async () => {
    const { blobs, bytes, image } = await largeImage();
    for (const isBase64 of [true, false]) {
      const piece = { ...image, isBase64 };
      const expected = isBase64 ? Buffer.from(bytes.toString("base64")) : bytes;
      const size = expected.length;
      for (const [start, end] of [
        [0, size - 1],
        [300 * KIB + 1, 850 * KIB],
        [size - 5, size - 1],
        [256 * KIB - 1, 256 * KIB],
      ] as const) {
        const chunks = await bytesOf(blobs, [piece], { start, end });
        expect(Buffer.concat(chunks).equals(expected.subarray(start, end + 1))).toBe(true);
        expect(Math.max(...chunks.map((chunk) => chunk.length))).toBeLessThan(400 * KIB);
      }
    }
  });

  it.each([true, false])(
    "has no byte of a part of a damaged image, and not the end of a whole one (Base64: %s)",
    async (isBase64) => {
      const { blobs, bytes, image, path } = await largeImage();
      const piece = { ...image, isBase64 };
      const size = pieceBytes(piece);
      const parts = [
        { start: 0, end: size - 5 },
        { start: 4, end: size - 1 },
        { start: 500 * KIB, end: 500 * KIB },
        { start: 0, end: 0 },
        { start: size - 1, end: size - 1 },
      ];
      const isMissing = { code: "BATCH_IMAGE_RESULT_MISSING" };
      const expectRefused = async () => {
        for (const range of parts) {
          await expect(pieceStream(blobs, [piece], range).next()).rejects.toMatchObject(isMissing);
        }
        let received = 0;
        const whole = async () => {
          for await (const chunk of pieceStream(blobs, [piece], { start: 0, end: size - 1 })) {
            received += chunk.length;
          }
        };
        await expect(whole()).rejects.toMatchObject(isMissing);
        expect(received).toBeLessThan(size - 100 * KIB);
      };
      for (const at of [0, 400 * KIB, bytes.length - 1]) {
        const damaged = Buffer.from(bytes);
        damaged[at] = (damaged[at] ?? 0) ^ 4;
        await writeFile(path, damaged);
        await expectRefused();
      }
      await truncate(path, bytes.length - 1);
      await expectRefused();
      await blobs.delete(image.blobKey);
      await expectRefused();
    },
  );
});

it("a part of a large image is sent after all of it was compared with its hash, without all of it in memory", async () => {
  const blobs = fileBlobs(await tempDir());
  const bytes = Buffer.alloc(3 * KIB * KIB, "image");
  const { sizeBytes, sha256 } = await blobs.put("outputs/b/1", bytes);
  expect(sha256).toBe(sha256Hex(bytes));
  const image = { blobKey: "outputs/b/1", sizeBytes, sha256 };
  const inPieces = { ...blobs, read: () => Promise.reject(new Error("read as a whole")) };
  const range = { start: 7, end: 2_000_000 };
  const sent = await (await openIntact(inPieces, image, range)).toArray();
  expect(Buffer.concat(sent).equals(bytes.subarray(7, 2_000_001))).toBe(true);
  bytes[bytes.length - 1] = 0;
  await blobs.put(image.blobKey, bytes);
  await expect(openIntact(inPieces, image, range)).rejects.toMatchObject({
    code: "BATCH_IMAGE_RESULT_MISSING",
  });
  await blobs.delete(image.blobKey);
  await expect(openIntact(inPieces, image, range)).rejects.toMatchObject({
    code: "BATCH_IMAGE_RESULT_MISSING",
  });
});
