import { readFile } from "node:fs/promises";
import { basename, extname, isAbsolute, relative } from "node:path";
import { type GeneratedImage, generateImage } from "../../../client/realtime.ts";
import { ImgbatchError } from "../../../contract/errors.ts";
import { EXIT_CODES } from "../../../contract/exit-codes.ts";
import { typeOfFileName } from "../../../contract/image-formats.ts";
import { sha256Hex } from "../../../kernel/ids.ts";
import { type Cost, costText, microsToNumber, playMoneyField } from "../../../kernel/money.ts";
import { chooseRealtimeModel } from "../../../runs/plan/choose-model.ts";
import type { PromptReference } from "../../../runs/plan/prompt-files.ts";
import { shellWord } from "../../../runs/reports/run-report.ts";
import { chooseTarget, type ImageTarget, type SavedImage, saveImage } from "../../../runs/save-image.ts";
import type { CommandContext, CommandResult } from "../../command-line/command-context.ts";
import { stopReason } from "../../interruption/stop-reason.ts";
import { chooseUpstream } from "../../runs/upstream.ts";
import { withService } from "../../service/with-service.ts";
import { realtimeConsent } from "./budget.ts";
import type { GenerateOptions } from "./options.ts";

const TICK_MS = 1000;

/** Makes one image from one prompt and saves it as a file. */
export async function generateOne(
  context: CommandContext,
  options: GenerateOptions,
  prompt: string,
): Promise<CommandResult> {
  const { cwd } = context;
  const target = await chooseTarget(options.output, prompt, { cwd, mayReplace: options.mayReplace });
  const { signal } = context;
  const upstream = await chooseUpstream(context, null);
  return withService(context, { workers: true, upstream }, async (service) => {
    const { http } = service;
    const { aspectRatio, size, retries, images } = options;
    const named = target.name === null ? null : typeOfFileName(target.name);
    // PNG is the default of every service; some refuse a field that they do not know.
    const mimeType = options.mimeType ?? (named === "image/png" ? null : named);
    const wish = { model: options.model, aspectRatio, size, inputImages: images.length };
    const chosen = await chooseRealtimeModel(http, wish, signal);
    const model = chosen.id;
    const inputs = await Promise.all(images.map(readInput));
    signal.throwIfAborted();
    const consentMicroUsd = await realtimeConsent(options, chosen, service, context)([{ size }]);
    const request = { model, prompt, images: inputs, aspectRatio, size, mimeType };
    const image = await whileTelling(context, model, () =>
      generateImage(http, request, { signal, maxRetries: retries, consentMicroUsd }).catch((error) => {
        throw explainLoss(error, chosen.isPlay);
      }),
    );
    const saved = await saveImage(target, image.data, image.mimeType);
    const micros = chosen.costOf(size);
    const cost = micros === null ? null : { micros, isPlay: chosen.isPlay };
    return describe(context, { model, image, saved, target, cost });
  });
}

/** Returns the image that was checked. Throws `INVALID_INPUT` if the file has changed since. */
async function readInput(image: PromptReference) {
  const { source, sha256, mimeType } = image;
  const data = "kept" in source ? source.kept.read() : await readFile(source.path);
  if (sha256Hex(data) === sha256) return { mimeType, data };
  throw new ImgbatchError("INVALID_INPUT", "An input image changed while it was read; nothing was sent.");
}

async function whileTelling<T>(
  { output, clock }: CommandContext,
  model: string,
  work: () => Promise<T>,
): Promise<T> {
  const startMs = clock.nowMs();
  const tell = () => output.progress(`waiting for ${model}`, startMs);
  tell();
  const ticking = setInterval(tell, TICK_MS);
  try {
    return await work();
  } finally {
    clearInterval(ticking);
    output.settle();
  }
}

/** Adds to the error of a stop that the request was sent and may be billed, unless the image is drawn. */
function explainLoss(error: unknown, isPlay: boolean): unknown {
  const why = stopReason(error);
  if (why === null || !(error instanceof ImgbatchError)) return error;
  const bill = isPlay ? "" : "; the request was sent and may be billed";
  const advice = isPlay ? "run the same command again" : undefined;
  return new ImgbatchError(error.code, `${why}: no image was saved${bill}.`, { advice });
}

interface Made {
  model: string;
  image: GeneratedImage;
  saved: SavedImage;
  target: ImageTarget;
  /** Null when the service does not publish it. */
  cost: Cost | null;
}

function describe(
  { cwd, output }: CommandContext,
  { model, image, saved, target, cost }: Made,
): CommandResult {
  const path = shownPath(cwd, saved.path);
  const { facts } = saved;
  const { bytes, sha256 } = facts;
  output.event({ event: "file_saved", batch_id: null, custom_id: null, path, bytes, sha256 });
  if (target.name !== null && basename(saved.path) !== target.name) {
    const isOtherType = extname(saved.path) !== extname(target.name).toLowerCase();
    output.warn(
      isOtherType
        ? `the image is ${facts.mime_type}: saved as ${path}, not ${target.name}`
        : `another program has created ${target.name} meanwhile: saved as ${path}`,
    );
  }
  if (image.text !== "") output.detail(`the model wrote: ${image.text}`);
  if (image.furtherImages > 0)
    output.note(`the response held more than one image (${image.furtherImages + 1}); the first was saved`);
  const ran = image.modelVersion?.startsWith(model)
    ? image.modelVersion
    : withVersion(model, image.modelVersion);
  const price = cost === null ? "" : `${cost.isPlay ? ";" : ","} ${costText(cost, "exact")}`;
  output.note(`${facts.width}x${facts.height} ${facts.mime_type}, ${bytes} bytes, by ${ran}${price}`);
  return {
    exitCode: EXIT_CODES.ok.code,
    json: {
      path,
      ...facts,
      model,
      model_version: image.modelVersion,
      text: image.text === "" ? null : image.text,
      usage: image.usage,
      cost: cost === null ? null : microsToNumber(cost.micros),
      ...playMoneyField(cost),
      attempts: image.attempts,
      request_id: image.requestId ?? null,
    },
    lines: [path],
    next: `look at ${shellWord(path)}`,
  };
}

/** The service may have mapped the model to another one. */
function withVersion(model: string, version: string | null): string {
  return version === null ? model : `${model} (${version})`;
}

/** Returns a path below the working directory relative to it, and any other path as it is. */
function shownPath(cwd: string, path: string): string {
  const shown = relative(cwd, path);
  return shown.startsWith("..") || isAbsolute(shown) ? path : shown;
}
