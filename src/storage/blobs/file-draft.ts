import { type FileHandle, mkdir, open, readFile, rm, statfs } from "node:fs/promises";
import { dirname } from "node:path";
import type { BlobDraft } from "../../domain/ports/blob-store.ts";
import { systemCodeOf } from "../../kernel/system-errors.ts";
import { notStored } from "../disk-trouble.ts";
import type { LentMemory } from "./file-reading.ts";

const MIB = 1024 * 1024;
/** Free disk space that drafts leave: the database must be able to write when uploads have taken the rest. */
const RESERVED_BYTES = 32 * MIB;
const BYTES_PER_LOOK = 16 * MIB;

interface Place {
  /** Where the draft is written. */
  path: string;
  /** Makes the file the blob of a key, durably, and may leave it where it is. */
  move(key: string): Promise<void>;
  memory: LentMemory;
  /** Whether the file exists already. Default: false. */
  isThere?: boolean;
}

/** A draft as a file of its own, which becomes a blob by its new name. */
export function fileDraft({ path, move, memory, isThere = false }: Place): BlobDraft {
  let file: FileHandle | null = null;
  let unseen = BYTES_PER_LOOK;
  let last: Promise<unknown> = Promise.resolve();

  /** Runs one step after the other; a failed step does not hold up the next. */
  const inOrder = <T>(step: () => Promise<T>): Promise<T> => {
    const result = last.then(step);
    last = result.catch(() => {});
    return result;
  };
  const stored = <T>(step: () => Promise<T>): Promise<T> =>
    inOrder(() =>
      step().catch((error) => {
        throw notStored(error);
      }),
    );
  const close = async () => {
    const open = file;
    file = null;
    await open?.close();
  };
  const begin = async () => {
    const begun = await openNew(path);
    isThere = true;
    return begun;
  };
  const refuseLast = async (bytes: number) => {
    unseen += bytes;
    if (unseen < BYTES_PER_LOOK) return;
    unseen = 0;
    const { bavail, bsize } = await statfs(dirname(path));
    if (bavail * bsize < RESERVED_BYTES) throw Object.assign(new Error("no space left"), { code: "ENOSPC" });
  };

  return {
    write: (bytes) =>
      stored(async () => {
        file ??= isThere ? await open(path, "a") : await begin();
        await refuseLast(bytes.length);
        await file.writeFile(bytes);
      }),
    finish: () => stored(close),
    read: () => inOrder(() => readFile(path)),
    lend: async (work) => {
      await inOrder(async () => {});
      return memory.withFile(path, work);
    },
    keepAs: (key) =>
      stored(async () => {
        await close();
        await move(key);
        // A rename onto another name of the same file does nothing.
        await rm(path, { force: true });
        isThere = false;
      }),
    discard: () =>
      inOrder(async () => {
        await close().catch(() => {});
        if (isThere) await rm(path, { force: true });
        isThere = false;
      }),
  };
}

/** Makes an empty file, with its directory. Fails when there is one. */
async function openNew(path: string): Promise<FileHandle> {
  try {
    return await open(path, "wx", 0o600);
  } catch (error) {
    if (systemCodeOf(error) !== "ENOENT") throw error;
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    return open(path, "wx", 0o600);
  }
}
