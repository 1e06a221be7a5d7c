import { readFile } from "node:fs/promises";
import { basename, extname } from "node:path";
import { timeLimit } from "../../client/poll.ts";
import { generateImage } from "../../client/realtime.ts";
import { PAID_TWICE_NOTE } from "../../contract/batch-api.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { typeOfFileName } from "../../contract/image-formats.ts";
import { type Limits, WIDEST_LIMITS } from "../../contract/limits.ts";
import { shownPath } from "../../kernel/files.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import {
  type Cost,
  costText,
  formatUsd,
  microsToNumber,
  numberToMicros,
  playMoneyField,
} from "../../kernel/money.ts";
import { codePointLength } from "../../kernel/text.ts";
import { tooLarge } from "../../prompts/problems.ts";
import { announcedLimits, chooseRealtimeModel } from "../../runs/plan/choose-model.ts";
import type { PromptReference } from "../../runs/plan/reference-files.ts";
import { chooseTarget, saveImage } from "../../runs/save-image.ts";
import { type CommandContext, type CommandResult, defineCommand } from "../command.ts";
import { expectedLimits, withService } from "../connect/connect.ts";
import { billNote, upstreamBill } from "../finish-run.ts";
import { stopReason } from "../interruption.ts";
import { orWithSuccessor } from "../model-check.ts";
import { openStep } from "../output/next-step.ts";
import { chooseUpstream } from "../targets.ts";
import { generateMany, realtimeConsent } from "./generate-file.ts";
import {
  type GenerateContext,
  type GenerateOptions,
  generateOptions,
  readGenerateOptions,
} from "./generate-options.ts";
import { running } from "./shared-options.ts";

export const command = defineCommand({
  arguments: [{ name: "[prompt]", description: "the description of the image, or - for standard input" }],
  options: generateOptions,
  first: [
    ...(["output", "image", "upstream", "maxCostMicroUsd", "model"] as const),
    ...(["aspect_ratio", "size", "seed", "promptFile", "concurrency"] as const),
  ],
  examples: [
    'imgbatch generate "a red fox in the snow" -o fox.png',
    'imgbatch generate "in autumn" -i fox.png -o autumn.png --size 2K',
    "imgbatch generate --file prompts.jsonl -o out -j 8 --rpm 60",
  ],
  notes: [
    "The file gets the extension of the image's real type: if the service returns a JPEG for fox.png, the image is saved as fox.jpg, and that path is printed. Without --force an existing file is never replaced: the command sends nothing and fails.",
    "Running the command again makes and bills another image. With --file, running the same command again makes only the missing images. Each request has an idempotency key: an imgbatch service bills an image once, however often its response was lost; another service may bill each attempt. For many images use `imgbatch submit`, which costs less and never pays twice.",
  ],
  exits: running,
  paysAgain: true,
  run,
});

/** `imgbatch generate`: makes images in real time, one request for each. */
async function run(context: GenerateContext): Promise<CommandResult> {
  const limit = timeLimit(context, context.options.timeoutMs);
  const { signal } = limit;
  const limited = { ...context, signal, readStdin: () => context.readStdin(signal) };
  try {
    const given = await readGenerateOptions(limited, await limitsOf(context));
    const { prompt, file } = given;
    return await orWithSuccessor(limited, (successor) => {
      const options = { ...given, model: successor ?? given.model };
      return file === null
        ? generateOne(limited, options, prompt ?? "")
        : generateMany(limited, options, file);
    });
  } catch (error) {
    throw explainEarly(error, signal);
  } finally {
    limit.stop();
  }
}

/** Returns the limits of the input images. Without any, the configuration is not read. */
async function limitsOf(context: GenerateContext): Promise<Limits> {
  if (context.options.image.length === 0) return WIDEST_LIMITS;
  return expectedLimits(context, await chooseUpstream(context, null).catch(() => null));
}

/**
 * Once a request was sent, it may be billed: `generateOne` and `generateMany` then replace the reason of a stop. The
 * plain reason therefore means that nothing was sent.
 */
function explainEarly(error: unknown, { reason }: AbortSignal): unknown {
  const isEarly = error === reason && error instanceof ImgbatchError && error.code === "TIMEOUT";
  return isEarly ? new ImgbatchError("TIMEOUT", `${error.message} No image was requested yet.`) : error;
}

const TICK_MS = 1000;

/** Makes one image from one prompt and saves it as a file. */
async function generateOne(
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
    const { retries, images } = options;
    const { aspect_ratio: aspectRatio = null, size = null, seed = null, ...look } = options.options;
    const { quality = null, background = null, negative_prompt: negativePrompt = null } = look;
    const named = target.name === null ? null : typeOfFileName(target.name);
    // PNG is the default of every service; some refuse a field that they do not know.
    const mimeType = options.mimeType ?? (named === "image/png" ? null : named);
    const wish = { model: options.model, options: options.options, inputImages: images.length };
    const chosen = await chooseRealtimeModel(http, wish, signal);
    const model = chosen.id;
    const { referenceImageBytes, promptChars } = await announcedLimits(http, [...images, { prompt }], signal);
    if (codePointLength(prompt) > promptChars) {
      const message = `The prompt has ${codePointLength(prompt)} characters; at most ${promptChars} are allowed.`;
      throw new ImgbatchError("USAGE", message, { param: "<prompt>" });
    }
    const large = images.find(({ bytes }) => bytes > referenceImageBytes);
    if (large !== undefined)
      throw new ImgbatchError("USAGE", `--image: ${tooLarge(large.bytes, referenceImageBytes)}.`, {
        param: "--image",
      });
    const inputs = await Promise.all(images.map(readInput));
    signal.throwIfAborted();
    const consentOf = await realtimeConsent(options, chosen, service, context)([options.options]);
    const consentMicroUsd = consentOf?.(options.options) ?? null;
    const asked = { aspectRatio, size, seed, quality, background, negativePrompt };
    const request = { model, prompt, images: inputs, ...asked, mimeType };
    const billed: number[] = [];
    const onBilled = (usd: number) => void billed.push(numberToMicros(usd));
    const image = await whileTelling(context, model, () =>
      generateImage(http, request, { signal, maxRetries: retries, consentMicroUsd, onBilled }).catch(
        (error) => {
          throw explainLoss(withBill(error, billed), chosen.isPlay);
        },
      ),
    );
    const saved = await saveImage(target, image.data, image.mimeType);
    const micros = chosen.costOf(options.options);
    const cost = micros === null ? null : { micros, isPlay: chosen.isPlay };
    const upstreamMicroUsd = billed.length === 0 ? null : sumOf(billed);
    return describe(context, { model, image, saved, target, cost, upstreamMicroUsd });
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

const sumOf = (micros: readonly number[]) => micros.reduce((sum, each) => sum + each, 0);

/** Adds to the error of an answer without an image what its upstream billed. */
function withBill(error: unknown, billed: readonly number[]): unknown {
  if (billed.length === 0 || !(error instanceof ImgbatchError) || stopReason(error) !== null) return error;
  const message = `${error.message} The upstream billed ${formatUsd(sumOf(billed))} for it.`;
  return new ImgbatchError(error.code, message, { ...error, cause: error });
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
  image: Awaited<ReturnType<typeof generateImage>>;
  saved: Awaited<ReturnType<typeof saveImage>>;
  target: Awaited<ReturnType<typeof chooseTarget>>;
  /** Null when the service does not publish it. */
  cost: Cost | null;
  /** What the upstream billed; null where it is not known. */
  upstreamMicroUsd: number | null;
}

function describe(
  { cwd, output }: CommandContext,
  { model, image, saved, target, cost, upstreamMicroUsd }: Made,
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
  if (image.mayBePaidTwice) output.warn(PAID_TWICE_NOTE);
  if (image.furtherImages > 0)
    output.note(`the response held more than one image (${image.furtherImages + 1}); the first was saved`);
  const ran = image.modelVersion?.startsWith(model)
    ? image.modelVersion
    : withVersion(model, image.modelVersion);
  const price = cost === null ? "" : `${cost.isPlay ? ";" : ","} ${costText(cost, "exact")}`;
  output.note(`${facts.width}x${facts.height} ${facts.mime_type}, ${bytes} bytes, by ${ran}${price}`);
  const isPaid = cost !== null && !cost.isPlay;
  const upstreamCost = upstreamMicroUsd === null ? null : microsToNumber(upstreamMicroUsd);
  const known = upstreamCost === null ? {} : { upstream_cost: upstreamCost };
  const bill = isPaid ? upstreamBill([{ ...known, cost: microsToNumber(cost.micros) }]) : null;
  if (bill !== null) output.note(billNote(bill));
  return {
    json: {
      path,
      ...facts,
      model,
      model_version: image.modelVersion,
      text: image.text === "" ? null : image.text,
      usage: image.usage,
      cost: cost === null ? null : microsToNumber(cost.micros),
      ...playMoneyField(cost),
      upstream_cost: upstreamCost,
      attempts: image.attempts,
      ...(image.mayBePaidTwice ? { notes: [PAID_TWICE_NOTE] } : {}),
      request_id: image.requestId ?? null,
    },
    lines: [path],
    next: openStep(path),
  };
}

/** The service may have mapped the model to another one. */
function withVersion(model: string, version: string | null): string {
  return version === null ? model : `${model} (${version})`;
}
