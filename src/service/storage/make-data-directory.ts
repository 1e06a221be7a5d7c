import { statfs } from "node:fs/promises";
import { ImgbatchError } from "../../contract/errors.ts";
import { systemCodeOf } from "../../kernel/files/disk-full.ts";
import { makeDirectory } from "../../kernel/files/make-directory.ts";

/** Makes a data directory that only its user can read. Throws `SAVE_FAILED` with the reason of the system. */
export async function makeDataDirectory(directory: string): Promise<void> {
  await makeDirectory(directory, 0o700).catch((cause) => {
    const message = `The data directory ${directory} cannot be made: ${systemCodeOf(cause)}.`;
    throw new ImgbatchError("SAVE_FAILED", message, {
      cause,
      advice: "choose another directory with --data",
    });
  });
}

/** Returns the bytes that may still be written to the disk of a directory. */
export async function freeBytesOf(directory: string): Promise<number> {
  const { bavail, bsize } = await statfs(directory);
  return bavail * bsize;
}
