import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
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

/** The version of the image library, which is not loaded; `unknown` where it cannot be found. */
export function readSharpVersion(): string {
  try {
    let folder = dirname(createRequire(import.meta.url).resolve("sharp"));
    while (!existsSync(join(folder, "package.json"))) folder = dirname(folder);
    const { name, version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    return name === "sharp" ? version : "unknown";
  } catch {
    return "unknown";
  }
}
