import { stat } from "node:fs/promises";
import { dirname } from "node:path";

/** Returns the path itself if it exists, else its nearest parent that does. A path that cannot be examined counts as existing. */
export async function nearestExisting(path: string): Promise<string> {
  for (let at = path; ; at = dirname(at)) {
    const isThere = await stat(at).then(
      () => true,
      ({ code }: NodeJS.ErrnoException) => code !== "ENOENT" && code !== "ENOTDIR",
    );
    if (isThere || at === dirname(at)) return at;
  }
}
