import { readFileSync } from "node:fs";
import { packageFile } from "./files/package-file.ts";

/** The version of this package. */
export function readVersion(): string {
  return JSON.parse(readFileSync(packageFile("package.json"), "utf8")).version;
}
