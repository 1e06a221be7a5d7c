import { statSync } from "node:fs";
import { basename, extname, resolve } from "node:path";
import { ImgbatchError } from "../../contract/errors.ts";
import { FILE_FORMATS, IMAGE_MIME_TYPES } from "../../contract/image-formats.ts";
import { FIXED_LIMITS, type Limits, WIDEST_LIMITS } from "../../contract/limits.ts";
import { programName, shellWord } from "../../kernel/command-line.ts";
import { holdsApiKey } from "../../kernel/hide-keys.ts";
import { codePointLength, hasUnstorableText } from "../../kernel/text.ts";
import { FORMAT_NAMES } from "../../prompts/lines.ts";
import { NAMINGS } from "../../runs/directory/names.ts";
import type { CommandContext } from "../command.ts";
import * as read from "../options.ts";
import { defaultRunDirectory } from "../output/next-step.ts";
import { itemOptions, readItemOptions, variableOptions } from "./input-options.ts";
import { formatOption, readRunOptions, runOptions, upstreamOption } from "./shared-options.ts";

export const submitOptions: readonly read.OptionSpec[] = [
  {
    flags: "-m, --model <id>",
    description: "the model of lines that name none",
    default: "the first of `imgbatch models`",
  },
  upstreamOption,
  {
    flags: "-n, --name <name>",
    description: "a name for the run",
    default: "the stem of the first file",
  },
  {
    flags: "-o, --output <dir>",
    description: "the directory of the run",
    default: "<stem of the first file>-images",
  },
  formatOption,
  ...variableOptions,
  {
    flags: "--reference <file>",
    description: "a reference image of every prompt, behind its own ones; may be repeated",
    repeatable: true,
  },
  { flags: "--count <n>", description: "images for each prompt that sets no output_count", default: "1" },
  {
    flags: "--mime-type <type>",
    description: "image/png, image/jpeg or image/webp",
    default: "image/png",
    choices: IMAGE_MIME_TYPES,
  },
  ...itemOptions,
  {
    flags: "--metadata <k=v>",
    description: "a pair to store with the batch; may be repeated",
    repeatable: true,
  },
  {
    flags: "--file <path>",
    description:
      "make a file of each picture besides those of the run, from the prompt file on, such as 'public/{{slug}}.webp'; a line's own wins",
  },
  {
    flags: "--file-format <format>",
    description: "the format of such files, where their names have no ending",
    choices: FILE_FORMATS,
  },
  {
    flags: "--root <dir>",
    description: "such files may lie below this directory, too",
    default: "the directory of the prompt file",
  },
  { flags: "--force", description: "replace such files also where others made or changed them" },
  {
    flags: "--no-mark",
    description: "such files do not say in their metadata (XMP) that they are made by AI",
  },
  { flags: "--parent <id>", description: "the id of the batch that this one retries" },
  { flags: "--max-batch <n>", description: "at most this many images in a batch", default: "200" },
  { flags: "-d, --detach", description: "print the batch ids and do not wait" },
  ...runOptions,
  {
    flags: "--dry-run",
    description:
      "check and count the prompts, and say what they cost; submit nothing (with -v: the idempotency keys)",
  },
  { flags: "--expand", description: "with --dry-run: print each prompt with its values, as a prompt file" },
  {
    flags: "--update",
    description: "after the prompts were edited: make only changed and added ones, keep the others",
  },
  {
    flags: "--lock",
    description:
      "keep a lock file beside each prompt file (prompts.lock) that says which picture each prompt has; where there is one, it is kept",
  },
  {
    flags: "--include-lost",
    description: "also make pictures of the lock file that are not here any more, which is paid again",
  },
  {
    flags: "--strict",
    description: "refuse unknown fields, columns and variables instead of keeping them",
  },
  { flags: "--new", description: "generate and pay again, even if the same run was submitted before" },
  {
    flags: "--idempotency-key <key>",
    description: "use this key instead of one made from the content",
  },
  {
    flags: "--names <how>",
    description:
      "name the files by `id`, by id and `words` of the prompt, or `auto`: words for prompts without an id of their own",
    default: "auto; a run keeps its names",
    choices: NAMINGS,
  },
  {
    flags: "--no-retry",
    description: "leave images that failed before as they are; without it, they are made again",
  },
  { flags: "--zip", description: "keep the ZIP instead of unpacking it; all images then come at the end" },
];

/** Throws `USAGE` for the first wrong option. */
export function readSubmitOptions(context: CommandContext) {
  const { options, arguments: files, cwd, global } = context;
  if (files.filter((file) => file === "-").length > 1)
    throw new ImgbatchError("USAGE", "Standard input can be read only once.");
  if (files.includes("-") && global.apiKeyStdin) {
    throw new ImgbatchError("USAGE", "Standard input is either the prompts or the key: use --api-key-file.");
  }
  const shownDir = read.pathOption(options, "output") ?? defaultRunDirectory(files[0] ?? "-");
  if (shownDir === "") throw new ImgbatchError("USAGE", "--output: name a directory.");
  requireDirectory(resolve(cwd, shownDir), shownDir);
  const isNew = read.flagOption(options, "new");
  const dryRun = read.flagOption(options, "dryRun");
  const isExpanded = read.flagOption(options, "expand");
  if (isExpanded && !dryRun)
    throw new ImgbatchError("USAGE", "--expand: works only with --dry-run.", { param: "--expand" });
  const explicitKey = read.textOption(options, "idempotencyKey") ?? null;
  if (isNew && explicitKey !== null)
    throw new ImgbatchError("USAGE", "--new makes a key of its own: leave --idempotency-key out.");
  if (read.flagOption(options, "lock") && files.every((file) => file === "-"))
    throw new ImgbatchError("USAGE", "--lock: standard input has no lock file; name a prompt file.", {
      param: "--lock",
    });
  const isUpdate = read.flagOption(options, "update");
  if (isUpdate && isNew)
    throw new ImgbatchError(
      "USAGE",
      "--update keeps unchanged images, and --new makes all again: use one of them.",
    );
  if (isUpdate && explicitKey !== null)
    throw new ImgbatchError("USAGE", "--update makes keys of its own: leave --idempotency-key out.");
  const detach = read.flagOption(options, "detach");
  if (detach && !dryRun) refuseReports(options);
  return {
    model: read.textOption(options, "model") ?? null,
    /** The typed name. */
    name: read.textOption(options, "name") ?? null,
    /** The name of a new run without a typed one: the stem of its first file. */
    defaultName: stemOf(files[0] ?? "-"),
    parentId: read.textOption(options, "parent") ?? null,
    dir: resolve(cwd, shownDir),
    /** The directory for messages: relative if it was typed so. */
    shownDir,
    count: read.wholeOption(options, "count", { min: 1, max: WIDEST_LIMITS.outputCountPerItem }) ?? 1,
    format: read.choiceOption(options, "format", FORMAT_NAMES) ?? null,
    mimeType: read.choiceOption(options, "mimeType", IMAGE_MIME_TYPES) ?? "image/png",
    metadata: metadataOption(options),
    /** Where the files of lines go, and how. */
    files: {
      path: read.textOption(options, "file"),
      format: read.choiceOption(options, "fileFormat", FILE_FORMATS),
      root: rootOption(read.pathOption(options, "root"), cwd),
      isForced: read.flagOption(options, "force"),
      isUnmarked: options.mark === false,
    },
    /** What all lines ask for that do not say so themselves. */
    itemOptions: readItemOptions(options),
    detach,
    dryRun,
    isExpanded,
    isNew,
    isUpdate,
    /** Every prompt file gets a lock file. */
    isLocked: read.flagOption(options, "lock"),
    /** Pictures that the lock file names, and that are not here any more, are made again. */
    includesLost: read.flagOption(options, "includeLost"),
    isStrict: read.flagOption(options, "strict"),
    keepZip: read.flagOption(options, "zip"),
    flags: typedFlags(options),
    // An agent's repeated call stays free.
    retries: options.retry !== false && context.root === undefined,
    names: read.choiceOption(options, "names", NAMINGS) ?? "auto",
    explicitKey,
    ...readRunOptions(options),
    /** Puts the typed size of a batch over the limits of a service. */
    limitsFor: limitsOption(options),
  };
}

/** Throws `USAGE` for anything but a directory. */
function rootOption(root: string | undefined, cwd: string): string | undefined {
  if (root === undefined) return undefined;
  const path = resolve(cwd, root);
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory()) return path;
  throw new ImgbatchError("USAGE", `--root: ${root} is no directory.`, { param: "--root" });
}

/** Throws `USAGE` for a report of a command that ends before there is anything to report. */
function refuseReports(options: read.TypedOptions): void {
  const name = ["junit", "markdown", "open"].find((each) => options[each] !== undefined);
  if (name === undefined) return;
  const flag = read.flagOf(name);
  const message = `${flag}: with --detach the command ends before there are images.`;
  const advice = `give ${flag} to \`${programName()} download\`, or leave out --detach`;
  throw new ImgbatchError("USAGE", message, { param: flag, advice });
}

/** The flags that say something about all prompts, as they were typed. */
const ABOUT_ALL = [
  ...["aspectRatio", "size", "quality", "background", "seed", "negativePrompt"],
  ...["mimeType", "count", "prompt", "promptColumn", "file", "fileFormat"],
];

function typedFlags(options: read.TypedOptions): Record<string, string> {
  return Object.fromEntries(
    ABOUT_ALL.flatMap((name) => {
      const value = read.textOption(options, name);
      return value === undefined ? [] : [[read.flagOf(name), value]];
    }),
  );
}

/** Throws `USAGE` where a file is in the place of the output directory. */
export function requireDirectory(dir: string, shownDir: string): void {
  if (!isFile(dir)) return;
  const right = `${shownDir}-images`;
  const advice = `name a directory, such as --output ${shellWord(right)}`;
  const meant = { typed: shownDir, right };
  throw new ImgbatchError("USAGE", `--output: ${shownDir} is a file.`, { param: "--output", advice, meant });
}

function isFile(path: string): boolean {
  try {
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

function stemOf(file: string): string | null {
  const stem = basename(file, extname(file)).trim();
  return file === "-" || stem === "" || hasUnstorableText(stem) || holdsApiKey(stem) ? null : stem;
}

const MOST_IN_A_BATCH = 10_000;

function limitsOption(options: read.TypedOptions): (limits: Limits) => Limits {
  const most = read.wholeOption(options, "maxBatch", { min: 1, max: MOST_IN_A_BATCH });
  if (most === undefined) return (limits) => limits;
  return (limits) => ({ ...limits, itemsPerBatch: most, outputImagesPerBatch: most });
}

function metadataOption(options: read.TypedOptions): Record<string, string> | null {
  const metadata = pairsOf(options.metadata);
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

function pairsOf(values: unknown): Record<string, string> | null {
  if (!Array.isArray(values)) return null;
  const pairs: Record<string, string> = {};
  for (const text of values) {
    const at = String(text).indexOf("=");
    if (at < 1) throw wrongMetadata(` ${JSON.stringify(text)}: write name=value.`);
    pairs[String(text).slice(0, at)] = String(text).slice(at + 1);
  }
  return pairs;
}

function wrongMetadata(problem: string): ImgbatchError {
  return new ImgbatchError("USAGE", `--metadata${problem}`, { param: "--metadata" });
}
