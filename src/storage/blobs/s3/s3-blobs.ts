import { createHash, randomBytes } from "node:crypto";
import { createReadStream } from "node:fs";
import { open, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { crc32 } from "node:zlib";
import PQueue from "p-queue";
import type { BlobStore } from "../../../domain/ports/blob-store.ts";
import { sha256Hex } from "../../../kernel/ids.ts";
import { notStored } from "../../disk-trouble.ts";
import { fileDraft, openNew } from "../file-draft.ts";
import { LentMemory, readFully } from "../file-reading.ts";
import { type BucketSettings, S3Bucket } from "./s3-bucket.ts";

interface S3Settings extends BucketSettings {
  /** For drafts, and for copies of what is read in any order. Belongs to this process alone. */
  scratchDirectory: string;
}

const DELETIONS_AT_ONCE = 8;

/**
 * Blobs as objects of an S3 bucket, below a prefix. Everything is repeated for some seconds when the server or the
 * network fails. Objects that are lent, borrowed, or read in any order are copied into a local file first, so that
 * they stay when the object is deleted.
 */
export function s3Blobs(settings: S3Settings): BlobStore {
  const bucket = new S3Bucket(settings);
  const memory = new LentMemory();
  const newPath = () => join(settings.scratchDirectory, randomBytes(12).toString("hex"));
  const newDraft = () => {
    const path = newPath();
    return { path, move: (key: string) => putFile(bucket, key, path), memory };
  };

  /** Returns the path of a local copy, which the caller must remove; null when there is no such object. */
  const copy = async (key: string): Promise<string | null> => {
    const path = newPath();
    const isCopied = await bucket
      .whole(key, async (_object, bytes) => {
        await writeFile(path, bytes);
        return true;
      })
      .catch(async (error) => {
        await rm(path, { force: true });
        throw error;
      });
    if (isCopied) return path;
    await rm(path, { force: true });
    return null;
  };

  return {
    put: async (key, bytes) => {
      const facts = { sizeBytes: bytes.length, sha256: sha256Hex(bytes) };
      await bucket.put(key, { ...facts, bytes });
      return { ...facts, crc32: crc32(bytes) };
    },
    putNew: (key, bytes) =>
      bucket.putNew(key, {
        sizeBytes: bytes.length,
        sha256: sha256Hex(bytes),
        bytes,
      }),
    draft: () => fileDraft(newDraft()),
    borrow: async (key) => {
      const path = await copy(key);
      if (path === null) return null;
      return fileDraft({ path, move: (to) => putFile(bucket, to, path), memory, isThere: true });
    },
    removeDrafts: () => rm(settings.scratchDirectory, { recursive: true, force: true }),
    read: (key, sizeBytes) =>
      bucket.whole(key, async (object, bytes) => {
        if (sizeBytes !== undefined && object.sizeBytes !== sizeBytes) return null;
        const all = Buffer.allocUnsafeSlow(object.sizeBytes);
        let at = 0;
        for await (const chunk of bytes) at += chunk.copy(all, at);
        return all;
      }),
    lend: async (key, work) => {
      const path = await copy(key);
      if (path === null) return null;
      return memory.withFile(path, work).finally(() => rm(path, { force: true }));
    },
    open: async (key, range) => {
      const object = await bucket.get(key, range);
      if (object === null) return null;
      return Readable.from(object.bytes(), { objectMode: false }).once("close", () => object.drop());
    },
    reader: async (key) => {
      const path = await copy(key);
      if (path === null) return null;
      const file = await open(path).finally(() => rm(path, { force: true }));
      return { read: (into, at) => readFully(file, into, at), close: () => file.close() };
    },
    sizeOf: (key) => bucket.sizeOf(key),
    list: (prefix) => bucket.list(prefix),
    delete: (key) => bucket.delete(key),
    deleteAll: async (prefix) => {
      const queue = new PQueue({ concurrency: DELETIONS_AT_ONCE });
      const keys = (await bucket.list(prefix)).map(({ key }) => key);
      await queue.addAll(keys.map((key) => () => bucket.delete(key)));
    },
  };
}

async function putFile(bucket: S3Bucket, key: string, path: string): Promise<void> {
  const { size } = await stat(path);
  const hash = createHash("sha256");
  for await (const chunk of readFile(path)) hash.update(chunk);
  await bucket.put(key, { sizeBytes: size, sha256: hash.digest("hex"), bytes: () => readFile(path) });
}

/** Opens the file only when it is read: the error of a stream that is never read would have no listener. */
async function* readFile(path: string): AsyncGenerator<Buffer> {
  yield* createReadStream(path);
}

async function writeFile(path: string, bytes: AsyncIterable<Buffer>): Promise<void> {
  await rm(path, { force: true });
  const file = await openNew(path).catch((error) => {
    throw notStored(error);
  });
  try {
    for await (const chunk of bytes) {
      await file.writeFile(chunk).catch((error) => {
        throw notStored(error);
      });
    }
  } finally {
    await file.close();
  }
}
