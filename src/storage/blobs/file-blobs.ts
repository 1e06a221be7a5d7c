import { mkdir, readdir, readFile, rm, stat } from "node:fs/promises";
import { dirname, join, relative, sep } from "node:path";
import { crc32 } from "node:zlib";
import type { BlobStore } from "../../domain/ports/blob-store.ts";
import { syncDirectory, writeFileDurably } from "../../kernel/durable-file.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { codeOf, notStored } from "../disk-trouble.ts";

/** Blobs as files below a directory: the key is the relative path. */
export function fileBlobs(root: string): BlobStore {
  const path = (key: string) => join(root, ...key.split("/"));
  const durableDirectories = new Set<string>([root]);

  /** A new directory survives a power cut only when its parent is synced. */
  const ensureDirectory = async (directory: string): Promise<void> => {
    if (durableDirectories.has(directory)) return;
    await ensureDirectory(dirname(directory));
    await mkdir(directory, { recursive: true });
    await syncDirectory(dirname(directory));
    durableDirectories.add(directory);
  };

  const write = async (target: string, bytes: Buffer): Promise<void> => {
    const directory = dirname(target);
    await ensureDirectory(directory);
    await writeFileDurably(target, bytes, { mode: 0o600 }).catch(async (error) => {
      if (codeOf(error) !== "ENOENT") throw error;
      // The directory was deleted meanwhile, behind our back or by `deleteAll`.
      durableDirectories.delete(directory);
      await ensureDirectory(directory);
      await writeFileDurably(target, bytes, { mode: 0o600 });
    });
  };

  return {
    put: async (key, bytes) => {
      try {
        await write(path(key), bytes);
      } catch (error) {
        throw notStored(error);
      }
      return { sizeBytes: bytes.length, sha256: sha256Hex(bytes), crc32: crc32(bytes) };
    },
    read: (key) => orNull(readFile(path(key)), [...ABSENT, ...UNREADABLE]),
    sizeOf: async (key) => {
      const facts = await orNull(stat(path(key)), [...ABSENT, ...UNREADABLE]);
      return facts?.isFile() ? facts.size : null;
    },
    list: async (prefix) => {
      const entries = await orNull(readdir(path(prefix), { recursive: true, withFileTypes: true }));
      const files = (entries ?? []).filter((entry) => entry.isFile());
      return files.map((file) => relative(root, join(file.parentPath, file.name)).split(sep).join("/"));
    },
    delete: (key) => rm(path(key), { force: true }),
    deleteAll: async (prefix) => {
      const directory = path(prefix);
      durableDirectories.delete(directory);
      await rm(directory, { recursive: true, force: true });
    },
  };
}

const ABSENT = ["ENOENT"];
/** What reading again will not change; running out of file handles or memory is not among it. */
const UNREADABLE = ["EIO", "EISDIR", "EACCES", "EPERM", "ENOTDIR", "ELOOP"];

async function orNull<T>(result: Promise<T>, codes = ABSENT): Promise<T | null> {
  try {
    return await result;
  } catch (error) {
    if (codes.includes((error as NodeJS.ErrnoException).code ?? "")) return null;
    throw error;
  }
}
