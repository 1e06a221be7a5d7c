import { readRunInput } from "../directory/input-file.ts";
import { readResults } from "../directory/results-file.ts";
import { isWholeResult } from "../files/intact-files.ts";
import { isFailed, isHere } from "./image-outcome.ts";

/** Whether every image of a run is on disk as the results say, or has failed. The service is not asked. */
export async function isWholeHere(dir: string): Promise<boolean> {
  const lines = new Map((await readResults(dir)).map((line) => [line.custom_id, line]));
  for (const id of (await readRunInput(dir)).keys()) if (!lines.has(id)) return false;
  for (const line of lines.values())
    if (!isFailed(line) && !(isHere(line) && (await isWholeResult(dir, line)))) return false;
  return lines.size > 0;
}
