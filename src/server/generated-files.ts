import type { FindGeneratedFile } from "../domain/files/generated.ts";
import type { ApiDeps } from "./deps.ts";
import { resultFile as nativeResultFile } from "./native-api/jobs/result-file.ts";
import { resultFile as openaiResultFile } from "./openai-batches/result-file.ts";

/** Finds the files that the surfaces make of ended batch jobs. */
export function generatedFiles(deps: Pick<ApiDeps, "stores" | "blobs">): FindGeneratedFile {
  return async (keyId, id) =>
    (await nativeResultFile(deps, keyId, id)) ?? (await openaiResultFile(deps, keyId, id));
}
