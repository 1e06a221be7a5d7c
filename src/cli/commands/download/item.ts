import { stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { getContent } from "../../../client/download.ts";
import { saving } from "../../../client/file-errors.ts";
import { ImgbatchError } from "../../../contract/errors.ts";
import { EXIT_CODES } from "../../../contract/exit-codes.ts";
import { sniffImageType } from "../../../contract/image-formats.ts";
import type { Http } from "../../../http/http.ts";
import { syncDirectory } from "../../../kernel/files/durable-file.ts";
import { imageFileName } from "../../../runs/directory/names.ts";
import {
  inspect,
  isThereAlready,
  requireReplaceable,
  writeVerified,
} from "../../../runs/directory/run-files.ts";
import type { RunReporter } from "../../../runs/reporter.ts";
import type { CommandResult } from "../../command-line/command-context.ts";

export interface ItemDownload {
  http: Http;
  /** The batches that may hold the item. */
  ids: readonly string[];
  customId: string;
  index: number;
  /** A file or an existing directory. Default: a file named after the item in the working directory. */
  output: string | undefined;
  /** Whether to replace a file with other content. */
  mayReplace: boolean;
  cwd: string;
  signal: AbortSignal;
  reporter: RunReporter;
}

/**
 * Saves one image of an item, verified against the facts that the service reports. Throws `FILE_EXISTS` for a file with
 * other content unless it may be replaced. A file with the same content stays.
 */
export async function downloadItem(job: ItemDownload): Promise<CommandResult> {
  const { customId, index, cwd } = job;
  const isFile = job.output !== undefined && !(await isDirectory(resolve(cwd, job.output)));
  if (isFile) await requireReplaceable(resolve(cwd, job.output ?? ""));
  const { batchId, content } = await findContent(job);
  const expected = { sha256: content.sha256, bytes: null, crc32: null };
  const { file, verified } = await inspect([content.data], expected, customId);
  const shown = isFile ? (job.output ?? "") : join(job.output ?? "", nameOf(job, content.data));
  const path = resolve(cwd, shown);
  if (await isThereAlready(path, file.sha256, job.mayReplace)) {
    job.reporter.note(`${shown} already exists with the same content`);
  } else {
    await writeVerified([content.data], path, expected, customId);
    await saving(path, () => syncDirectory(resolve(path, "..")));
  }
  const result = {
    batch_id: batchId,
    custom_id: customId,
    image_index: index,
    path: shown,
    ...file,
    verified,
  };
  return { exitCode: EXIT_CODES.ok.code, json: result, lines: [shown] };
}

function nameOf({ customId, index }: ItemDownload, data: Buffer): string {
  const type = sniffImageType(data);
  if (type === null) throw new ImgbatchError("VERIFY_FAILED", `The content of ${customId} is not an image.`);
  return imageFileName(customId, index, type);
}

/** Gets the image from the first batch that has the item. The batches of a run have different items. */
async function findContent({ http, ids, customId, index, signal }: ItemDownload) {
  let last: unknown = new ImgbatchError("BATCH_IMAGE_ITEM_NOT_FOUND");
  for (const batchId of ids) {
    try {
      return { batchId, content: await getContent(http, batchId, customId, index, signal) };
    } catch (error) {
      if (!(error instanceof ImgbatchError) || error.code !== "BATCH_IMAGE_ITEM_NOT_FOUND") throw error;
      last = error;
    }
  }
  throw last;
}

async function isDirectory(path: string): Promise<boolean> {
  return (await stat(path).catch(() => null))?.isDirectory() ?? false;
}
