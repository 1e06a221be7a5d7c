import { resolve } from "node:path";
import type { Batch } from "../../../client/batch.ts";
import { listItems } from "../../../client/batches.ts";
import { type ErrorCode, ImgbatchError } from "../../../contract/errors.ts";
import { EXIT_CODES } from "../../../contract/exit-codes.ts";
import type { Http } from "../../../http/http.ts";
import { saveZip, zipName } from "../../../runs/fetch/fetch-zip.ts";
import type { RunReporter } from "../../../runs/reporter.ts";
import type { CommandResult } from "../../command-line/command-context.ts";

export interface ZipDownload {
  http: Http;
  batches: readonly Batch[];
  output: string | undefined;
  /** Whether to replace a file with other content. */
  mayReplace: boolean;
  cwd: string;
  signal: AbortSignal;
  reporter: RunReporter;
  /** The command that downloads the same images one by one. */
  singly: string;
}

/** Saves the ZIP of each batch, with every image verified. */
export async function downloadZip(job: ZipDownload): Promise<CommandResult> {
  const { http, batches, cwd, signal, reporter, mayReplace } = job;
  if (job.output !== undefined && batches.length > 1) {
    throw new ImgbatchError(
      "USAGE",
      `This run has ${batches.length} batches, each with a ZIP of its own: leave --output out.`,
    );
  }
  const files = [];
  for (const batch of batches) {
    const shown = job.output ?? zipName(batch.id);
    const items = await listItems(http, batch.id, signal);
    const target = resolve(cwd, shown);
    const zip = { http, batch, items, target, signal, reporter };
    const saved = saveZip(zip, { mayReplace }).catch((error) => {
      throw withoutZip(error, batch.id, job.singly);
    });
    const { images, bytes, wasThere } = await saved;
    if (wasThere) reporter.note(`${shown} already exists with the same content`);
    files.push({ batch_id: batch.id, path: shown, bytes, image_count: images.length });
  }
  return { exitCode: EXIT_CODES.ok.code, json: { files }, lines: files.map((file) => file.path) };
}

const NO_ZIP: readonly ErrorCode[] = [
  "NOT_FOUND",
  "METHOD_NOT_ALLOWED",
  "HTTP_501",
  "BATCH_IMAGE_RESULT_MISSING",
];

/** Adds advice to the error of a service without ZIPs, or of a batch with a lost image: single images may still work. */
function withoutZip(error: unknown, id: string, singly: string): unknown {
  if (!(error instanceof ImgbatchError) || !NO_ZIP.includes(error.code)) return error;
  const { code, httpStatus, requestId } = error;
  const message = `The service has no ZIP of ${id}: ${error.message}`;
  const advice = `${singly} (downloads the images one by one)`;
  return new ImgbatchError(code, message, { cause: error, httpStatus, requestId, advice });
}
