import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";

/**
 * Returns the path of a file of this package, such as `templates/prompts.jsonl`. The running code is bundled, so that its
 * place is not that of its source.
 */
export function packageFile(path: string): string {
  let folder = import.meta.dirname;
  while (!existsSync(join(folder, "package.json"))) folder = dirname(folder);
  return join(folder, path);
}

/** The version of this package. */
export function readVersion(): string {
  return JSON.parse(readFileSync(packageFile("package.json"), "utf8")).version;
}
