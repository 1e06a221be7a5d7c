import type { LineReaders } from "../domain/lines/line.ts";
import type { LineRules } from "./jobs/line-reader.ts";
import { nativeLines } from "./native-api/jobs/read-lines.ts";
import { openaiLines } from "./openai-batches/read-lines.ts";

/** The reader of each surface that takes batch jobs. A worker calls them, some time after the request. */
export function lineReaders(rules: LineRules): LineReaders {
  return { native: nativeLines(rules), openai: openaiLines(rules) };
}
