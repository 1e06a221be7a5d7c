import { stat } from "node:fs/promises";
import { dirname } from "node:path";

/** The path itself, or the nearest above it that is there. What cannot be looked at counts as there. */
export async function nearestExisting(path: string): Promise<string> {
  for (let at = path; ; at = dirname(at)) {
    const isThere = await stat(at).then(
      () => true,
      ({ code }: NodeJS.ErrnoException) => code !== "ENOENT" && code !== "ENOTDIR",
    );
    if (isThere || at === dirname(at)) return at;
  }
}
