import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import { ImgbatchError } from "../../contract/errors.ts";
import { IMAGE_MIME_TYPES, typeOfFileName } from "../../contract/image-formats.ts";
import type { Limits } from "../../contract/limits.ts";
import { programName, shellWord } from "../../kernel/command-line.ts";
import { hasUnstorableText } from "../../kernel/text.ts";
import { BAD_TEXT, inspectFile, isBlank, readLines } from "../../prompts/lines.ts";
import { STDIN } from "../../runs/plan/prompt-files.ts";
import type { PromptReference } from "../../runs/plan/reference-files.ts";
import type { CommandContext } from "../command.ts";
import * as option from "../options.ts";
import {
  countOption,
  itemOptions,
  loadReferences,
  typedItemOptions,
  variableOptions,
} from "./input-options.ts";
import {
  concurrencyOption,
  formatOption,
  modelOption,
  moneyOptions,
  reportOptions,
  upstreamOption,
} from "./shared-options.ts";

const MOST_REQUESTS = 100_000;
const MOST_RETRIES = 3;

/** Says in the help of these options that they need `--file`. */
function withFile<T extends option.OptionTable>(table: T): T {
  const described = Object.entries(table).map(([name, entry]) => [
    name,
    { ...entry, description: `with --file: ${entry.description}` },
  ]);
  return Object.fromEntries(described) as T;
}

/** The options of a run, which a single image does not have. */
const ofRuns = withFile({
  concurrency: { ...concurrencyOption, description: "concurrent requests", default: "4" },
  rpm: option.whole({
    flags: "--rpm <n>",
    description: "at most this many requests per minute",
    group: "service",
    min: 1,
    max: MOST_REQUESTS,
  }),
  format: formatOption,
  count: countOption,
  ...variableOptions,
  ...reportOptions,
});

export const generateOptions = {
  output: option.path({
    flags: "-o, --output <path>",
    description:
      "the image file, or a directory in which the prompt names it; with --file, the directory of the run",
    group: "directory",
    default: "this directory; with --file, <stem of the file>-images",
  }),
  image: option.list({
    flags: "-i, --image <file>",
    description:
      "an input image to edit or follow (PNG, JPEG, WebP); may be repeated; with --file, for prompts without images of their own",
    group: "prompts",
  }),
  model: { ...modelOption, default: "the first of `imgbatch models --realtime`" },
  upstream: upstreamOption,
  ...itemOptions,
  mimeType: option.choice({
    flags: "--mime-type <type>",
    description: "image/png, image/jpeg or image/webp",
    group: "picture",
    default: "by the ending of the file in --output, else image/png",
    choices: IMAGE_MIME_TYPES,
  }),
  ...moneyOptions,
  force: option.flag({
    flags: "--force",
    description: "replace an existing file",
    group: "directory",
  }),
  promptFile: option.text({
    flags: "--file <file>",
    description: "make all images of a prompt file (.jsonl, .txt, .csv, .tsv, or -)",
    group: "prompts",
  }),
  ...ofRuns,
  retries: option.whole({
    flags: "--retries <n>",
    description: "further attempts after a temporary error, 0 to 3",
    group: "service",
    default: "3",
    min: 0,
    max: MOST_RETRIES,
  }),
  timeoutMs: option.positiveDuration({
    flags: "--timeout <time>",
    description:
      "stop everything after this time; a single attempt may take 120 s (512, 1K), 180 s (2K) or 300 s (4K)",
    group: "waiting",
  }),
};

/** What `imgbatch generate` works with. */
export type GenerateContext = CommandContext<option.Values<typeof generateOptions>>;

/** The options of `generate`, checked. */
export type GenerateOptions = Awaited<ReturnType<typeof readGenerateOptions>>;

/**
 * The share of the body limit that image files may take: Base64 makes them a third larger, and the prompt needs space
 * too.
 */
const IMAGE_SHARE = 0.74;

/** Throws `USAGE` for the first wrong option. It sends nothing. */
export async function readGenerateOptions(context: GenerateContext, limits: Limits) {
  const { options, global, cwd } = context;
  const {
    promptFile: file = null,
    output = null,
    model = null,
    mimeType = null,
    format = null,
    count = 1,
  } = options;
  const [argument] = context.arguments;
  requireOneSource(argument, file);
  if (file === null) await refuseFile(argument ?? "", cwd);
  if (file === null) refuseRunOptions(options);
  else if (options.force)
    throw usage("--force", "works only for a single image: a run with --file makes only the missing images");
  if ((argument === STDIN || file === STDIN) && global.apiKeyStdin)
    throw usage("--api-key-stdin", "standard input is either the prompt or the key: use --api-key-file");
  return {
    ...options,
    /** Null when a file gives the prompts. */
    prompt: file === null ? await readPrompt(argument ?? "", context) : null,
    file,
    output,
    model,
    options: typedItemOptions(options),
    /** Null: by the ending of the output file, else PNG. */
    mimeType,
    /** The checked input images. With a file, they go with each prompt that has no images of its own. */
    images: await loadImages(options.image, cwd, limits),
    mayReplace: options.force,
    count,
    format,
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

function refuseRunOptions(typed: GenerateContext["options"]): void {
  const names = Object.keys(ofRuns) as (keyof typeof ofRuns)[];
  const flag = option.firstTyped(ofRuns, typed, names);
  if (flag !== undefined) throw usage(flag, "works only with --file");
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

async function loadImages(paths: readonly string[], cwd: string, limits: Limits): Promise<PromptReference[]> {
  const loaded = await loadReferences(paths, "--image", cwd, limits);
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
