import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { DATA_FILES } from "../../src/contract/data-directory.ts";

/** The names of the files whose bytes are on their way to the images, of all processes that have their data below a directory. */
export async function draftsBelow(data: string): Promise<string[]> {
  const entries = await readdir(data, { recursive: true, withFileTypes: true });
  const places = [join(DATA_FILES.blobs, "drafts"), DATA_FILES.scratch];
  return entries
    .filter((entry) => entry.isFile() && places.some((place) => entry.parentPath.endsWith(place)))
    .map(({ name }) => name);
}
