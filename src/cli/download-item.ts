import { stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { getContent } from "../client/content.ts";
import type { Http } from "../client/http.ts";
import { saving } from "../client/saving.ts";
import { ImgbatchError } from "../contract/errors.ts";
import { EXIT_CODES } from "../contract/exit-codes.ts";
import { syncDirectory } from "../kernel/durable-file.ts";
import { fileName } from "../run/fetch-by-content.ts";
import { placeFile } from "../run/place-file.ts";
import type { CommandResult } from "./command.ts";

export interface ItemDownload {
  http: Http;
  /** The batches that may hold the item. */
  ids: readonly string[];
  customId: string;
  index: number;
  /** A file, or a directory that is there; default: a file named after the item in the working directory. */
  output: string | undefined;
  cwd: string;
  signal: AbortSignal;
}

/** Saves one image of an item, checked by what the service says of it. */
export async function downloadItem(job: ItemDownload): Promise<CommandResult> {
  const { customId, index, cwd } = job;
  const { batchId, content } = await findContent(job);
  const name = fileName(customId, index, content.data);
  const shown =
    job.output === undefined
      ? name
      : (await isDirectory(resolve(cwd, job.output)))
        ? join(job.output, name)
        : job.output;
  const path = resolve(cwd, shown);
  const expected = { sha256: content.sha256, bytes: null, crc32: null };
  const { file, verified } = await placeFile([content.data], path, expected, customId);
  await saving(path, () => syncDirectory(resolve(path, "..")));
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

/** The batches of a run have different items: the first that knows this one has it. */
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
