import type { OpenaiFile } from "../../contract/openai-api.ts";
import type { FileRecord } from "../../domain/ports/files.ts";

const secondsOf = (ms: number) => Math.floor(ms / 1000);

/** A file as OpenAI's API shows it. Those of the vendor's API have no purpose of their own. */
export function fileView(file: FileRecord): OpenaiFile {
  return view(file, file.displayName ?? file.id, (file.purpose ?? "user_data") as OpenaiFile["purpose"]);
}

/** A file with the results of a batch. */
export function resultView(
  id: string,
  file: { sizeBytes: number; createdAtMs: number; expiresAtMs: number | null },
): OpenaiFile {
  return view({ id, ...file }, `${id}.jsonl`, "batch_output");
}

function view(
  file: { id: string; sizeBytes: number; createdAtMs: number; expiresAtMs: number | null },
  filename: string,
  purpose: OpenaiFile["purpose"],
): OpenaiFile {
  const { id, sizeBytes, createdAtMs, expiresAtMs } = file;
  return {
    id,
    object: "file",
    bytes: sizeBytes,
    created_at: secondsOf(createdAtMs),
    ...(expiresAtMs === null ? {} : { expires_at: secondsOf(expiresAtMs) }),
    filename,
    purpose,
    status: "processed",
  };
}
