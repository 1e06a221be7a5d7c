import { stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import type { Batch } from "../../client/answers.ts";
import { listItems } from "../../client/batches.ts";
import { getContent } from "../../client/download.ts";
import { saving } from "../../client/file-errors.ts";
import { type ErrorCode, ImgbatchError } from "../../contract/errors.ts";
import { sniffImageType } from "../../contract/image-formats.ts";
import type { Http } from "../../http/http.ts";
import { syncDirectory } from "../../kernel/files.ts";
import { collectRun } from "../../runs/collect-run.ts";
import { adoptDirectory, withRunLock } from "../../runs/directory/claim.ts";
import { imageFileName } from "../../runs/directory/names.ts";
import {
  inspect,
  isThereAlready,
  requireReplaceable,
  writeVerified,
} from "../../runs/directory/run-files.ts";
import { readRunState, standsFor } from "../../runs/directory/run-state.ts";
import { saveZip, zipName } from "../../runs/fetch/zip.ts";
import { type CommandContext, type CommandResult, defineCommand } from "../command.ts";
import { withService } from "../connect/connect.ts";
import type { ConnectedService } from "../connect/connection.ts";
import { describeFinished } from "../finish-run.ts";
import * as option from "../options.ts";
import { notEnded } from "../output/batches.ts";
import { nextCommand } from "../output/next-step.ts";
import {
  rememberedUpstream,
  requireBatches,
  requireSubmitted,
  resolveTarget,
  type Target,
  unknownRun,
} from "../targets.ts";
import { reportOptions, target, waiting } from "./shared-options.ts";

const MOST_IMAGES = 1_000_000;

const options = {
  output: option.path({
    flags: "-o, --output <path>",
    description: "the directory for the images; with --zip or --item, the file",
    default: "the directory of the run; for an id, one of that name",
  }),
  zip: option.flag({ flags: "--zip", description: "download the ZIP without unpacking it" }),
  item: option.text({ flags: "--item <id>", description: "download the image of this item only" }),
  index: option.whole({
    flags: "--index <n>",
    description: "with --item: which of its images, counted from 0",
    default: "0",
    min: 0,
    max: MOST_IMAGES,
  }),
  force: option.flag({
    flags: "--force",
    description: "with --zip or --item: replace an existing file with other content",
  }),
  ...reportOptions,
};
type Options = option.Values<typeof options>;

export const command = defineCommand({
  arguments: [target],
  options,
  examples: ["imgbatch download out", "imgbatch download imgbatch_… --item cat --output cat.png"],
  exits: [...waiting.filter((name) => name !== "timeout"), "saving"],
  resumes: true,
  run,
});

/** `imgbatch download`: saves the images of ended batches as a directory or a ZIP, or one image. Never waits. */
async function run(context: CommandContext<Options>): Promise<CommandResult> {
  const { options, cwd, signal } = context;
  const argument = context.arguments[0] ?? "";
  const { output, item, index, zip: wantsZip, force: mayReplace } = options;
  if (item !== undefined && wantsZip) throw new ImgbatchError("USAGE", "--item and --zip: use one of them.");
  if (item === undefined && index !== undefined)
    throw new ImgbatchError("USAGE", "--index works only with --item.");

  const isOneFile = item !== undefined || wantsZip;
  if (isOneFile) refuseReports(options);
  else if (mayReplace)
    throw new ImgbatchError("USAGE", "--force works only with --item or --zip.", { param: "--force" });

  const target = await resolveTarget(argument, cwd);
  const needs = { workers: false, ...rememberedUpstream([target]) };
  return withService(context, needs, async (service) => {
    requireSubmitted([target], service, context.global);
    const { http } = service;
    if (item !== undefined) {
      const state = target.run?.state;
      const ids = target.ids.filter((id) => state === undefined || standsFor(state, id, item));
      const one = { ids, customId: item, index: index ?? 0, output, mayReplace };
      return downloadItem(context, http, one);
    }
    const batches = await requireBatches(http, [target], signal);
    requireEnded(batches);
    const shownDir = output ?? argument;
    const dir = resolve(cwd, shownDir);
    if (wantsZip || dir !== target.run?.dir) {
      const unknown = await unknownRun(target, batches, service, context.global);
      if (unknown !== null) throw unknown.error;
    }
    if (wantsZip) return downloadZip(context, http, batches, { output, mayReplace });
    return withRunLock(dir, { clock: context.clock, signal }, () =>
      downloadDirectory(context, service, target, batches, shownDir),
    );
  });
}

async function downloadDirectory(
  context: CommandContext,
  service: ConnectedService,
  target: Target,
  batches: readonly Batch[],
  shownDir: string,
): Promise<CommandResult> {
  const dir = resolve(context.cwd, shownDir);
  // Another process may have changed the state before this one got the lock.
  const own = target.run?.dir === dir ? await readRunState(dir) : null;
  const from = target.run?.state ?? null;
  const runState = own ?? (await adoptDirectory(dir, batches, service, context.clock, from));
  const known = runState.batches
    .map((entry) => batches.find((batch) => batch.id === entry.id))
    .filter((batch) => batch !== undefined);
  const { clock, output: reporter, signal, beganMs } = context;
  const run = { dir, state: runState, batches: known, keepZip: false };
  const outcome = await collectRun({ ...run, service, clock, reporter, signal, beganMs });
  return describeFinished(context, { outcome, state: runState, replayed: null, shownDir });
}

/** Throws `USAGE` for report options: reports describe a whole directory. */
function refuseReports(options: Options): void {
  const reports = ["junit", "markdown", "gallery", "noGallery", "open"] as const;
  const param = option.firstTyped(command.options, options, reports);
  if (param === undefined) return;
  const message = `${param} works only for a whole directory, not with --item or --zip.`;
  throw new ImgbatchError("USAGE", message, { param });
}

function requireEnded(batches: readonly Batch[]): void {
  const running = batches.find((batch) => !batch.isDone);
  if (running === undefined) return;
  throw notEnded(running);
}

interface ItemDownload {
  /** The batches that may hold the item. */
  ids: readonly string[];
  customId: string;
  index: number;
  /** A file or an existing directory. Default: a file named after the item in the working directory. */
  output: string | undefined;
  /** Whether to replace a file with other content. */
  mayReplace: boolean;
}

/**
 * Saves one image of an item, verified against the facts that the service reports. Throws `FILE_EXISTS` for a file with
 * other content unless it may be replaced. A file with the same content stays.
 */
async function downloadItem(
  { cwd, output: reporter, signal }: CommandContext,
  http: Http,
  job: ItemDownload,
): Promise<CommandResult> {
  const { customId, index } = job;
  const isFile = job.output !== undefined && !(await isDirectory(resolve(cwd, job.output)));
  if (isFile) await requireReplaceable(resolve(cwd, job.output ?? ""));
  const { batchId, content } = await findContent(http, job, signal);
  const expected = { sha256: content.sha256, bytes: null, crc32: null };
  const { file, verified } = await inspect([content.data], expected, customId);
  const shown = isFile ? (job.output ?? "") : join(job.output ?? "", nameOf(job, content.data));
  const path = resolve(cwd, shown);
  if (await isThereAlready(path, file.sha256, job.mayReplace)) {
    reporter.note(`${shown} already exists with the same content`);
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
  return { json: result, lines: [shown] };
}

function nameOf({ customId, index }: ItemDownload, data: Buffer): string {
  const type = sniffImageType(data);
  if (type === null) throw new ImgbatchError("VERIFY_FAILED", `The content of ${customId} is not an image.`);
  return imageFileName(customId, index, type);
}

/** Gets the image from the first batch that has the item. The batches of a run have different items. */
async function findContent(http: Http, { ids, customId, index }: ItemDownload, signal: AbortSignal) {
  let last: unknown = new ImgbatchError("BATCH_IMAGE_ITEM_NOT_FOUND");
  for (const batchId of ids) {
    try {
      return { batchId, content: await getContent(http, batchId, customId, index, { signal }) };
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

/** Saves the ZIP of each batch, with every image verified. */
async function downloadZip(
  { cwd, output: reporter, signal, global, arguments: [argument = ""] }: CommandContext,
  http: Http,
  batches: readonly Batch[],
  job: Pick<ItemDownload, "output" | "mayReplace">,
): Promise<CommandResult> {
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
    const saved = saveZip(zip, { name: shown, mayReplace: job.mayReplace }).catch((error) => {
      throw withoutZip(error, batch.id, nextCommand(global, "download", argument));
    });
    const { images, bytes, wasThere } = await saved;
    const imageCount = [...images.values()].reduce((sum, each) => sum + each.length, 0);
    if (wasThere) reporter.note(`${shown} already exists with the same content`);
    files.push({ batch_id: batch.id, path: shown, bytes, image_count: imageCount });
  }
  return { json: { files }, lines: files.map((file) => file.path) };
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
