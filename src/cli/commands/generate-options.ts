import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import { ImgbatchError } from "../../contract/errors.ts";
import { IMAGE_MIME_TYPES, typeOfFileName } from "../../contract/image-formats.ts";
import { type Limits, WIDEST_LIMITS } from "../../contract/limits.ts";
import { programName, shellWord } from "../../kernel/command-line.ts";
import { hasUnstorableText } from "../../kernel/text.ts";
import { BAD_TEXT, FORMAT_NAMES, inspectFile, isBlank, readLines } from "../../prompts/lines.ts";
import { STDIN } from "../../runs/plan/prompt-files.ts";
import type { PromptReference } from "../../runs/plan/reference-files.ts";
import type { CommandContext } from "../command.ts";
import * as read from "../options.ts";
import { loadReferences, readItemOptions } from "./input-options.ts";

/** The options of `generate`, checked. */
export type GenerateOptions = Awaited<ReturnType<typeof readGenerateOptions>>;

const MOST_REQUESTS = 100_000;
const MOST_RETRIES = 3;
/**
 * The share of the body limit that image files may take: Base64 makes them a third larger, and the prompt needs space
 * too.
 */
const IMAGE_SHARE = 0.74;

/** Throws `USAGE` for the first wrong option. It sends nothing. */
export async function readGenerateOptions(context: CommandContext, limits: Limits) {
  const { options, global, cwd } = context;
  const file = read.textOption(options, "file") ?? null;
  const [argument] = context.arguments;
  requireOneSource(argument, file);
  if (file === null) await refuseFile(argument ?? "", cwd);
  if (file === null) refuseRunOptions(options);
  else if (read.flagOption(options, "force"))
    throw usage("--force", "works only for a single image: a run with --file makes only the missing images");
  if ((argument === STDIN || file === STDIN) && global.apiKeyStdin)
    throw usage("--api-key-stdin", "standard input is either the prompt or the key: use --api-key-file");
  const output = read.pathOption(options, "output") ?? null;
  return {
    /** Null when a file gives the prompts. */
    prompt: file === null ? await readPrompt(argument ?? "", context) : null,
    file,
    output,
    model: read.textOption(options, "model") ?? null,
    options: readItemOptions(options),
    /** Null: by the ending of the output file, else PNG. */
    mimeType: read.choiceOption(options, "mimeType", IMAGE_MIME_TYPES) ?? null,
    /** The checked input images. With a file, they go with each prompt that has no images of its own. */
    images: await loadImages(options, cwd, limits),
    mayReplace: read.flagOption(options, "force"),
    concurrency: read.concurrencyOf(options),
    rpm: read.wholeOption(options, "rpm", { min: 1, max: MOST_REQUESTS }),
    count: read.wholeOption(options, "count", { min: 1, max: WIDEST_LIMITS.outputCountPerItem }) ?? 1,
    format: read.choiceOption(options, "format", FORMAT_NAMES) ?? null,
    retries: read.wholeOption(options, "retries", { min: 0, max: MOST_RETRIES }),
    maxCostMicroUsd: read.usdOption(options, "maxCost"),
    unitCostMicroUsd: read.usdOption(options, "unitCost"),
  };
}

function requireOneSource(argument: string | undefined, file: string | null): void {
  if (argument === undefined && file === null)
    throw new ImgbatchError(
      "USAGE",
      `Say what the image shows: ${programName()} generate "a red fox". Or use --file.`,
    );
  if (argument !== undefined && file !== null)
    throw new ImgbatchError("USAGE", "Give either a prompt or --file, not both.");
}

/** Throws `USAGE` for a prompt that is the name of a file: a picture of its name would be paid for. */
async function refuseFile(prompt: string, cwd: string): Promise<void> {
  if (!/\.[A-Za-z]\w*$/.test(prompt) || !(await stat(resolve(cwd, prompt)).catch(() => null))?.isFile())
    return;
  const [word, program] = [shellWord(prompt), programName()];
  const isImage = typeOfFileName(prompt) !== null;
  const advice = isImage
    ? `say what the image shows, and edit the file with --image ${word}`
    : `each with a request of its own: ${program} generate --file ${word}\n${program} submit ${word}`;
  throw new ImgbatchError("USAGE", `${prompt} is a file, not a prompt.`, { param: "<prompt>", advice });
}

const RUN_OPTIONS = [
  ...["concurrency", "rpm", "count", "format", "junit", "markdown", "gallery", "open"],
  ...["var", "images", "prompt", "promptColumn", "idColumn"],
];

function refuseRunOptions(options: read.TypedOptions): void {
  for (const name of RUN_OPTIONS)
    if (options[name] !== undefined) throw usage(read.flagOf(name), "works only with --file");
}

async function readPrompt(argument: string, { readStdin }: CommandContext): Promise<string> {
  const prompt = (argument === STDIN ? await textOfStdin(await readStdin()) : argument).trim();
  if (isBlank(prompt)) throw new ImgbatchError("USAGE", "The prompt is empty: say what the image shows.");
  if (hasUnstorableText(prompt))
    throw new ImgbatchError(
      "USAGE",
      "The prompt contains a NUL or half of a surrogate pair, which cannot be stored.",
    );
  return prompt;
}

/** Returns the text of standard input. Throws `INVALID_INPUT` with the line that is not UTF-8: nonsense would be paid for. */
async function textOfStdin(data: Uint8Array): Promise<string> {
  const problem = (message: string) =>
    new ImgbatchError("INVALID_INPUT", "1 problem in the input; nothing was sent.", {
      details: [`<stdin>${message}`],
    });
  const inspected = await inspectFile(pieces(data));
  if (inspected.problem !== null) throw problem(`: ${inspected.problem}`);
  const lines: string[] = [];
  for await (const line of readLines(inspected.bytes, data.length)) {
    const advice = line.problem === BAD_TEXT ? "; save the text as UTF-8" : "";
    if (line.problem !== null) throw problem(`:${line.number}: ${line.problem}${advice}`);
    lines.push(line.text);
  }
  return lines.join("\n");
}

async function* pieces(data: Uint8Array): AsyncGenerator<Uint8Array> {
  yield data;
}

async function loadImages(
  options: read.TypedOptions,
  cwd: string,
  limits: Limits,
): Promise<PromptReference[]> {
  const loaded = await loadReferences(options, "image", cwd, limits);
  const bytes = loaded.reduce((sum, image) => sum + image.bytes, 0);
  if (bytes > limits.realtimeBodyBytes * IMAGE_SHARE)
    throw usage(
      "--image",
      `the files have ${bytes} bytes together, which is more than one request can carry`,
    );
  return loaded;
}

function usage(flag: string, problem: string): ImgbatchError {
  return new ImgbatchError("USAGE", `${flag}: ${problem}.`, { param: flag });
}
