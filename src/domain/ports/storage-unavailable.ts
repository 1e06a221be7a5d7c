/**
 * Why the storage cannot be used now. `full`: no space, or a quota is used up. `broken`: the disk or its rights fail.
 * `busy`: another process keeps the database locked. `unknown-commit`: the disk failed, or the connection was lost, during a
 * commit. The write may have happened, or may still appear; so it is repeated only where a repeat finds what it has done.
 */
type StorageTrouble = "full" | "broken" | "busy" | "unknown-commit";

/**
 * The storage cannot take or return data now. The message is fit for callers: it names no path, at most the bare error
 * code of the operating system. `cause` is the error of the disk or the database.
 */
export class StorageUnavailable extends Error {
  readonly reason: StorageTrouble;

  /** Whether an error leaves open if the write has happened. */
  static mayHaveHappened(error: unknown): boolean {
    return error instanceof StorageUnavailable && error.reason === "unknown-commit";
  }

  constructor(reason: StorageTrouble, message: string, cause: unknown) {
    super(message, { cause });
    this.name = "StorageUnavailable";
    this.reason = reason;
  }
}
