/**
 * Why the storage cannot be used now. `full`: no space, or a quota is used up. `broken`: the disk or its rights fail.
 * `busy`: another process keeps the database locked. `unknown-commit`: the disk failed during a commit, so the write
 * may have happened and may still appear after the next start.
 */
export type StorageTrouble = "full" | "broken" | "busy" | "unknown-commit";

/**
 * The storage cannot take or return data now. The message is fit for callers: it names no path, at most the bare error
 * code of the operating system. `cause` is the error of the disk or the database.
 */
export class StorageUnavailable extends Error {
  readonly reason: StorageTrouble;

  constructor(reason: StorageTrouble, message: string, cause: unknown) {
    super(message, { cause });
    this.name = "StorageUnavailable";
    this.reason = reason;
  }
}
