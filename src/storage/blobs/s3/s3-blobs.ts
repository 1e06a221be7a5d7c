import { createHash, randomBytes } from "node:crypto";
import { createReadStream } from "node:fs";
import { open, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { crc32 } from "node:zlib";
import PQueue from "p-queue";
import type { BlobStore } from "../../../domain/ports/blob-store.ts";
import { sha256Hex } from "../../../kernel/ids.ts";
import { fileDraft } from "../file-draft.ts";
import { LentMemory, readFully } from "../file-reading.ts";
import { type BucketSettings, S3Bucket } from "./s3-bucket.ts";

interface S3Settings extends BucketSettings {
  /** For drafts, and for copies of what is read in any order. Belongs to this process alone. */
  scratchDirectory: string;
}

const DELETIONS_AT_ONCE = 8;
/** Writing them makes the file of a draft. */
const NO_BYTES = Buffer.alloc(0);

/**
 * Blobs as objects of an S3 bucket, below a prefix. Everything is repeated for some seconds when the server or the
 * network fails. Objects that are lent, borrowed, or read in any order are copied into a local file first, so that
 * they stay when the object is deleted.
 */
export function s3Blobs(settings: S3Settings): BlobStore {
  const bucket = new S3Bucket(settings);
  const memory = new LentMemory();
  const newDraft = () => {
    const path = join(settings.scratchDirectory, randomBytes(12).toString("hex"));
    return { path, ...fileDraft({ path, move: (key) => putFile(bucket, key, path), memory }) };
  };

  /** Returns a local copy, which the caller must keep or discard; null when there is no such object. */
  const copy = async (key: string) => {
    const draft = newDraft();
    const fill = async (_object: unknown, bytes: AsyncIterable<Buffer>) => {
      await draft.discard();
      await draft.write(NO_BYTES);
      for await (const chunk of bytes) await draft.write(chunk);
      await draft.finish();
      return draft;
    };
    const copied = await bucket.whole(key, fill).catch(async (error) => {
      await draft.discard();
      throw error;
    });
    if (copied === null) await draft.discard();
    return copied;
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
    draft: newDraft,
    borrow: copy,
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
      const draft = await copy(key);
      if (draft === null) return null;
      return draft.lend(work).finally(() => draft.discard());
    },
    open: async (key, range) => {
      const object = await bucket.get(key, range);
      if (object === null) return null;
      return Readable.from(object.bytes(), { objectMode: false }).once("close", () => object.drop());
    },
    reader: async (key) => {
      const draft = await copy(key);
      if (draft === null) return null;
      const file = await open(draft.path).finally(() => draft.discard());
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
