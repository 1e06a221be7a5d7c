import { statSync } from "node:fs";
import { basename, extname, resolve } from "node:path";
import { ImgbatchError } from "../../contract/errors.ts";
import { FIXED_LIMITS, type Limits } from "../../contract/limits.ts";
import { programName } from "../../kernel/command-line.ts";
import { holdsApiKey } from "../../kernel/hide-keys.ts";
import { codePointLength, hasUnstorableText } from "../../kernel/text.ts";
import { NAMINGS } from "../../runs/directory/names.ts";
import type { CommandContext } from "../command.ts";
import * as option from "../options.ts";
import { defaultRunDirectory } from "../output/next-step.ts";
import { requireDirectory, shapingOptions, typedItemOptions } from "./input-options.ts";
import { dryRunOption, judgeOptions, runOptions, upstreamOption } from "./shared-options.ts";

const MOST_IN_A_BATCH = 10_000;

const { model, ...shaping } = shapingOptions;

export const submitOptions = {
  model,
  upstream: upstreamOption,
  name: option.text({
    flags: "-n, --name <name>",
    description: "a name for the run",
    group: "directory",
    default: "the stem of the first file",
  }),
  output: option.path({
    flags: "-o, --output <dir>",
    description: "the directory of the run",
    group: "directory",
    default: "<stem of the first file>-images",
  }),
  ...shaping,
  metadata: option.list({
    flags: "--metadata <k=v>",
    description: "a pair to store with the batch; may be repeated",
    group: "service",
  }),
  force: option.flag({
    flags: "--force",
    description: "replace such files also where others made or changed them",
    group: "directory",
  }),
  parentId: option.text({
    flags: "--parent <id>",
    description: "the id of the batch that this one retries",
    group: "service",
  }),
  maxBatch: option.whole({
    flags: "--max-batch <n>",
    description: "at most this many images in a batch",
    group: "service",
    default: "200",
    min: 1,
    max: MOST_IN_A_BATCH,
  }),
  detach: option.flag({
    flags: "-d, --detach",
    description: "print the batch ids and do not wait",
    group: "waiting",
  }),
  ...judgeOptions,
  ...runOptions,
  dryRun: {
    ...dryRunOption,
    description:
      "check and count the prompts, and say what they cost; submit nothing (with -v: the idempotency keys)",
  },
  isExpanded: option.flag({
    flags: "--expand",
    description: "with --dry-run: print each prompt with its values, as a prompt file",
    group: "prompts",
  }),
  isUpdate: option.flag({
    flags: "--update",
    description: "after the prompts were edited: make only changed and added ones, keep the others",
    group: "prompts",
  }),
  isLocked: option.flag({
    flags: "--lock",
    description:
      "keep a lock file beside each prompt file (prompts.lock) that says which picture each prompt has; where there is one, it is kept",
    group: "prompts",
  }),
  includesLost: option.flag({
    flags: "--include-lost",
    description: "also make pictures of the lock file that are not here any more, which is paid again",
    group: "money",
  }),
  isStrict: option.flag({
    flags: "--strict",
    description: "refuse unknown fields, columns and variables instead of keeping them",
    group: "prompts",
  }),
  isNew: option.flag({
    flags: "--new",
    description: "generate and pay again, even if the same run was submitted before",
    group: "money",
  }),
  idempotencyKey: option.text({
    flags: "--idempotency-key <key>",
    description: "use this key instead of one made from the content",
    group: "service",
  }),
  names: option.choice({
    flags: "--names <how>",
    description:
      "name the files by `id`, by id and `words` of the prompt, or `auto`: words for prompts without an id of their own",
    group: "directory",
    default: "auto; a run keeps its names",
    choices: NAMINGS,
  }),
  noRetry: option.flag({
    flags: "--no-retry",
    description: "leave images that failed before as they are; without it, they are made again",
    group: "money",
  }),
  keepZip: option.flag({
    flags: "--zip",
    description: "keep the ZIP instead of unpacking it; all images then come at the end",
    group: "directory",
  }),
};
type Options = option.Values<typeof submitOptions>;
/** What `imgbatch submit` works with. */
export type SubmitContext = CommandContext<Options>;

/** Throws `USAGE` for the first wrong option. */
export function readSubmitOptions(context: SubmitContext) {
  const { options, arguments: files, cwd, global } = context;
  if (files.filter((file) => file === "-").length > 1)
    throw new ImgbatchError("USAGE", "Standard input can be read only once.");
  if (files.includes("-") && global.apiKeyStdin) {
    throw new ImgbatchError("USAGE", "Standard input is either the prompts or the key: use --api-key-file.");
  }
  const shownDir = options.output ?? defaultRunDirectory(files[0] ?? "-");
  if (shownDir === "") throw new ImgbatchError("USAGE", "--output: name a directory.");
  requireDirectory(resolve(cwd, shownDir), shownDir);
  const { isNew, isUpdate, dryRun, detach, idempotencyKey: explicitKey = null } = options;
  if (options.isExpanded && !dryRun)
    throw new ImgbatchError("USAGE", "--expand: works only with --dry-run.", { param: "--expand" });
  if (isNew && explicitKey !== null)
    throw new ImgbatchError("USAGE", "--new makes a key of its own: leave --idempotency-key out.");
  if (options.isLocked && files.every((file) => file === "-"))
    throw new ImgbatchError("USAGE", "--lock: standard input has no lock file; name a prompt file.", {
      param: "--lock",
    });
  if (isUpdate && isNew)
    throw new ImgbatchError(
      "USAGE",
      "--update keeps unchanged images, and --new makes all again: use one of them.",
    );
  if (isUpdate && explicitKey !== null)
    throw new ImgbatchError("USAGE", "--update makes keys of its own: leave --idempotency-key out.");
  if (detach && !dryRun) refuseReports(options);
  const { model = null, name = null, parentId = null, count = 1, format = null } = options;
  const { mimeType = "image/png", names = "auto", allowance = { count: 0 }, maxBatch } = options;
  return {
    ...options,
    model,
    /** The typed name. */
    name,
    /** The name of a new run without a typed one: the stem of its first file. */
    defaultName: stemOf(files[0] ?? "-"),
    dir: resolve(cwd, shownDir),
    /** The directory for messages: relative if it was typed so. */
    shownDir,
    parentId,
    count,
    format,
    mimeType,
    names,
    allowance,
    explicitKey,
    metadata: metadataOf(options.metadata),
    /** Where the files of lines go, and how. */
    files: {
      path: options.file,
      format: options.fileFormat,
      root: rootOf(options.root, cwd),
      isForced: options.force,
      isUnmarked: options.noMark,
    },
    /** What all lines ask for that do not say so themselves. */
    itemOptions: typedItemOptions(options),
    flags: typedFlags(options),
    // An agent's repeated call stays free.
    retries: !options.noRetry && context.root === undefined,
    /** Puts the typed size of a batch over the limits of a service. */
    limitsFor: (limits: Limits): Limits =>
      maxBatch === undefined
        ? limits
        : { ...limits, itemsPerBatch: maxBatch, outputImagesPerBatch: maxBatch },
  };
}

/** Throws `USAGE` for anything but a directory. */
function rootOf(root: string | undefined, cwd: string): string | undefined {
  if (root === undefined) return undefined;
  const path = resolve(cwd, root);
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory()) return path;
  throw new ImgbatchError("USAGE", `--root: ${root} is no directory.`, { param: "--root" });
}

/** Throws `USAGE` for a report of a command that ends before there is anything to report. */
function refuseReports(options: Options): void {
  const flag = option.firstTyped(submitOptions, options, ["junit", "markdown", "open"]);
  if (flag === undefined) return;
  const message = `${flag}: with --detach the command ends before there are images.`;
  const advice = `give ${flag} to \`${programName()} download\`, or leave out --detach`;
  throw new ImgbatchError("USAGE", message, { param: flag, advice });
}

/** The options that say something about all prompts. */
const ABOUT_ALL = [
  ...(["aspect_ratio", "size", "quality", "background", "seed", "negative_prompt"] as const),
  ...(["mimeType", "count", "prompt", "promptColumn", "file", "fileFormat"] as const),
];

/** Returns the options about all prompts that were typed, by their flags. */
function typedFlags(typed: Options): Record<string, string> {
  return Object.fromEntries(
    ABOUT_ALL.flatMap((name) =>
      typed[name] === undefined ? [] : [[option.flagIn(submitOptions[name]), String(typed[name])]],
    ),
  );
}

function stemOf(file: string): string | null {
  const stem = basename(file, extname(file)).trim();
  return file === "-" || stem === "" || hasUnstorableText(stem) || holdsApiKey(stem) ? null : stem;
}

function metadataOf(texts: readonly string[]): Record<string, string> | null {
  const metadata = pairsOf(texts);
  const pairs = Object.entries(metadata ?? {});
  const { metadataPairs, metadataKeyChars, metadataValueChars } = FIXED_LIMITS;
  const isRight = ([key, value]: [string, string]) =>
    codePointLength(key) <= metadataKeyChars &&
    codePointLength(value) <= metadataValueChars &&
    !hasUnstorableText(key + value);
  if (pairs.length <= metadataPairs && pairs.every(isRight)) return metadata;
  throw wrongMetadata(
    `: at most ${metadataPairs} pairs, names of at most ${metadataKeyChars} and values of at most ${metadataValueChars} characters.`,
  );
}

function pairsOf(texts: readonly string[]): Record<string, string> | null {
  if (texts.length === 0) return null;
  const pairs: Record<string, string> = {};
  for (const text of texts) {
    const at = text.indexOf("=");
    if (at < 1) throw wrongMetadata(` ${JSON.stringify(text)}: write name=value.`);
    pairs[text.slice(0, at)] = text.slice(at + 1);
  }
  return pairs;
}

function wrongMetadata(problem: string): ImgbatchError {
  return new ImgbatchError("USAGE", `--metadata${problem}`, { param: "--metadata" });
}
