import { rm } from "node:fs/promises";
import { ImgbatchError } from "../contract/errors.ts";
import { systemCodeOf } from "../kernel/system-errors.ts";

const ADVICE: Record<string, string> = {
  ENOSPC: "the disk is full",
  EDQUOT: "the disk quota is used up",
  EACCES: "no permission",
  EPERM: "no permission",
  EROFS: "the file system is read-only",
  ENOTDIR: "a part of the path is not a directory",
  EISDIR: "it is a directory",
  EEXIST: "a file is in the way",
  ENOENT: "nothing can be made there",
  EXDEV: "a link leads out of the directories that may be written",
  ENAMETOOLONG: "the name is too long",
};

/** Runs work on the disk. Throws `SAVE_FAILED`, naming the path, when the system refuses. */
export async function saving<T>(path: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw isSystemError(error) ? saveFailed(path, error) : error;
  }
}

/** Removes a file if it exists. Throws `SAVE_FAILED` when the system refuses. */
export async function removeFile(path: string): Promise<void> {
  await saving(path, () => rm(path, { force: true }));
}

export function isSystemError(error: unknown): error is NodeJS.ErrnoException & { code: string } {
  return error instanceof Error && "syscall" in error && "code" in error && typeof error.code === "string";
}

function saveFailed(path: string, error: NodeJS.ErrnoException & { code: string }): ImgbatchError {
  const reason = ADVICE[systemCodeOf(error)] ?? error.message;
  return new ImgbatchError("SAVE_FAILED", `Could not save ${path}: ${reason}`, { cause: error });
}
