import { randomBytes } from "node:crypto";
import * as fs from "node:fs";
import {
  constants,
  copyFile,
  link,
  mkdir,
  open,
  readdir,
  readFile,
  rename,
  rm,
  stat,
} from "node:fs/promises";
import { dirname, join, relative, sep } from "node:path";
import { promisify } from "node:util";
import { crc32 } from "node:zlib";
import type { BlobStore } from "../../domain/ports/blob-store.ts";
import { systemClock } from "../../kernel/clock.ts";
import { syncDirectory, writeFileDurably } from "../../kernel/files.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { systemCodeOf } from "../../kernel/system-errors.ts";
import { notStored } from "../disk-trouble.ts";
import { fileDraft } from "./file-draft.ts";
import { LentMemory, readFully } from "./file-reading.ts";

/** On the same file system as the blobs: a draft becomes one by its new name alone. */
const DRAFTS = "drafts";

/** Blobs as files below a directory: the key is the relative path. */
export function fileBlobs(root: string): BlobStore {
  const path = (key: string) => join(root, ...key.split("/"));
  const durableDirectories = new Set<string>([root]);
  const memory = new LentMemory();

  /** A new directory survives a power cut only when its parent is synced. */
  const ensureDirectory = async (directory: string): Promise<void> => {
    if (durableDirectories.has(directory)) return;
    await ensureDirectory(dirname(directory));
    await mkdir(directory, { recursive: true });
    await syncDirectory(dirname(directory));
    durableDirectories.add(directory);
  };

  /** Runs the step that puts a file at `target`, in a directory that exists and is durable. */
  const place = async (target: string, step: () => Promise<void>): Promise<void> => {
    const directory = dirname(target);
    await ensureDirectory(directory);
    await step().catch(async (error) => {
      if (systemCodeOf(error) !== "ENOENT") throw error;
      // The directory was deleted meanwhile, by `deleteAll` or from outside.
      durableDirectories.delete(directory);
      await ensureDirectory(directory);
      await step();
    });
  };

  const newDraft = () => {
    const draft = path(`${DRAFTS}/${randomBytes(12).toString("hex")}`);
    return { path: draft, move: (key: string) => move(draft, path(key)), memory };
  };

  const move = async (from: string, to: string): Promise<void> => {
    const file = await open(from, "r+");
    await file.sync().finally(() => file.close());
    await place(to, () => rename(from, to).then(() => syncDirectory(dirname(to))));
  };

  const put: BlobStore["put"] = async (key, bytes) => {
    try {
      await place(path(key), () => writeFileDurably(path(key), bytes, { mode: 0o600 }));
    } catch (error) {
      throw notStored(error);
    }
    return { sizeBytes: bytes.length, sha256: sha256Hex(bytes), crc32: crc32(bytes) };
  };

  return {
    put,
    // One process alone has the directory.
    putNew: async (key, bytes) => {
      if (!fs.existsSync(path(key))) await put(key, bytes);
    },
    draft: () => fileDraft(newDraft()),
    borrow: async (key) => {
      const draft = newDraft();
      try {
        await place(draft.path, () => linkOrCopy(path(key), draft.path));
      } catch (error) {
        if (ABSENT.includes(systemCodeOf(error))) return null;
        throw notStored(error);
      }
      return fileDraft({ ...draft, isThere: true });
    },
    removeDrafts: () => rm(path(DRAFTS), { recursive: true, force: true }),
    read: async (key, sizeBytes) => {
      const file = path(key);
      const bytes = sizeBytes === undefined ? readFile(file) : readSized(file, sizeBytes);
      return orNull<Buffer | null>(bytes, [...ABSENT, ...UNREADABLE]);
    },
    lend: async (key, work) => {
      // Failures of the work itself must not be taken for those of the file.
      const lent = memory.withFile(path(key), async (bytes) => (await Promise.allSettled([work(bytes)]))[0]);
      const outcome = await orNull(lent, [...ABSENT, ...UNREADABLE]);
      if (outcome?.status === "rejected") throw outcome.reason;
      return outcome === null ? null : outcome.value;
    },
    open: async (key, range) => {
      const file = await orNull(open(path(key)), [...ABSENT, ...UNREADABLE]);
      return file?.createReadStream(range ?? {}) ?? null;
    },
    reader: async (key) => {
      const file = await orNull(open(path(key)), [...ABSENT, ...UNREADABLE]);
      return (
        file && {
          read: async (memory, at) => (await orNull(readFully(file, memory, at), UNREADABLE)) ?? 0,
          close: () => file.close(),
        }
      );
    },
    sizeOf: (key) => sizeOf(path(key)),
    list: async (prefix) => {
      const all = readdir(path(prefix), { recursive: true, withFileTypes: true });
      const entries = await orNull(all, [...ABSENT, ...UNREADABLE]);
      const files = (entries ?? []).filter((entry) => entry.isFile());
      const listed = await Promise.all(
        files.map(async (file) => {
          const facts = await factsOf(join(file.parentPath, file.name));
          const key = relative(root, join(file.parentPath, file.name)).split(sep).join("/");
          return facts && { key, sizeBytes: facts.size, ageMs: systemClock.nowMs() - facts.mtimeMs };
        }),
      );
      return listed.filter((blob) => blob !== null);
    },
    delete: (key) => rm(path(key), { force: true }),
    deleteAll: async (prefix) => {
      const directory = path(prefix);
      durableDirectories.delete(directory);
      await rm(directory, { recursive: true, force: true });
    },
  };
}

const [openFd, readFd] = [promisify(fs.open), promisify(fs.read)] as const;

/** A FIFO in the place of a file must not block. Windows has no such flag. */
const { O_RDONLY, O_NONBLOCK = 0 } = fs.constants;

/** Returns the bytes of a file of this size; null when it has another one. Reads a byte more at most, to notice that. */
async function readSized(path: string, sizeBytes: number): Promise<Buffer | null> {
  const file = await openFd(path, O_RDONLY | O_NONBLOCK);
  try {
    const memory = Buffer.allocUnsafeSlow(sizeBytes + 1);
    let done = 0;
    for (let more = 1; more > 0 && done < memory.length; done += more) {
      more = (await readFd(file, memory, done, memory.length - done, done)).bytesRead;
      if (done + more === sizeBytes) return memory.subarray(0, sizeBytes);
    }
    return null;
  } finally {
    // Closing a file that was only read takes no time, so it needs no thread.
    fs.closeSync(file);
  }
}

const ABSENT = ["ENOENT"];
/** Errors that reading again does not change. A lack of file handles or memory is not among them. */
const UNREADABLE = ["EIO", "EISDIR", "EACCES", "EPERM", "ENOTDIR", "ELOOP", "ENXIO", "ESPIPE"];

/** Some file systems have no second names for a file. */
async function linkOrCopy(from: string, to: string): Promise<void> {
  try {
    await link(from, to);
  } catch (error) {
    if (ABSENT.includes(systemCodeOf(error))) throw error;
    await copyFile(from, to, constants.COPYFILE_FICLONE);
  }
}

/** Null when there is no such file. */
async function factsOf(path: string): Promise<fs.Stats | null> {
  const facts = await orNull(stat(path), [...ABSENT, ...UNREADABLE]);
  return facts?.isFile() ? facts : null;
}

async function sizeOf(path: string): Promise<number | null> {
  return (await factsOf(path))?.size ?? null;
}

async function orNull<T>(result: Promise<T>, codes = ABSENT): Promise<T | null> {
  try {
    return await result;
  } catch (error) {
    if (codes.includes((error as NodeJS.ErrnoException).code ?? "")) return null;
    throw error;
  }
}
