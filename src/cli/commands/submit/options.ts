import { basename, extname, resolve } from "node:path";
import { ImgbatchError } from "../../../contract/errors.ts";
import { IMAGE_MIME_TYPES, type ImageMimeType } from "../../../contract/image-formats.ts";
import { DEFAULT_LIMITS, FIXED_LIMITS, type Limits } from "../../../contract/limits.ts";
import { holdsApiKey } from "../../../kernel/hide-keys.ts";
import { codePointLength, hasUnstorableText } from "../../../kernel/text.ts";
import { FORMAT_NAMES, type FormatName } from "../../../prompts/lines.ts";
import { NAMINGS, type Naming } from "../../../runs/directory/names.ts";
import type { CommandContext } from "../../command-line/command-context.ts";
import * as read from "../../command-line/option-values.ts";
import { defaultRunDirectory } from "../../result/next-command.ts";
import { type RunOptions, readRunOptions } from "../../runs/run-options.ts";
import { requireBatchShape } from "./batch-shape.ts";

/** The options of `submit`, checked. */
export interface SubmitOptions extends RunOptions {
  model: string | null;
  /** The typed name; null without one. */
  name: string | null;
  /** The name of a new run without a typed one: the stem of its first file. Null for standard input. */
  defaultName: string | null;
  parentId: string | null;
  dir: string;
  /** The directory for messages: relative if it was typed so. */
  shownDir: string;
  count: number;
  stdinFormat: FormatName | null;
  mimeType: ImageMimeType;
  metadata: Record<string, string> | null;
  detach: boolean;
  dryRun: boolean;
  isNew: boolean;
  /** Make only what is new in edited prompts, in the directory of their run. */
  isUpdate: boolean;
  /** Report unknown fields of prompts. */
  isStrict: boolean;
  keepZip: boolean;
  names: Naming;
  explicitKey: string | null;
  /** The default limits of a service, with the caller's batch size if there is one. */
  limits: Limits;
}

/** Throws `USAGE` for the first wrong option. */
export function readSubmitOptions(context: CommandContext): SubmitOptions {
  const { options, arguments: files, cwd, global } = context;
  if (files.filter((file) => file === "-").length > 1)
    throw new ImgbatchError("USAGE", "Standard input can be read only once.");
  if (files.includes("-") && global.apiKeyStdin) {
    throw new ImgbatchError("USAGE", "Standard input is either the prompts or the key: use --api-key-file.");
  }
  const shownDir = read.pathOption(options, "output") ?? defaultRunDirectory(files[0] ?? "-");
  if (shownDir === "") throw new ImgbatchError("USAGE", "--output: name a directory.");
  requireBatchShape(context);
  const isNew = read.flagOption(options, "new");
  const explicitKey = read.textOption(options, "idempotencyKey") ?? null;
  if (isNew && explicitKey !== null)
    throw new ImgbatchError("USAGE", "--new makes a key of its own: leave --idempotency-key out.");
  const isUpdate = read.flagOption(options, "update");
  if (isUpdate && isNew)
    throw new ImgbatchError(
      "USAGE",
      "--update keeps unchanged images, and --new makes all again: use one of them.",
    );
  if (isUpdate && explicitKey !== null)
    throw new ImgbatchError("USAGE", "--update makes keys of its own: leave --idempotency-key out.");
  return {
    model: read.textOption(options, "model") ?? null,
    name: read.textOption(options, "name") ?? null,
    defaultName: stemOf(files[0] ?? "-"),
    parentId: read.textOption(options, "parent") ?? null,
    dir: resolve(cwd, shownDir),
    shownDir,
    count: read.wholeOption(options, "count", { min: 1, max: DEFAULT_LIMITS.outputCountPerItem }) ?? 1,
    stdinFormat: read.choiceOption(options, "format", FORMAT_NAMES) ?? null,
    mimeType: read.choiceOption(options, "mimeType", IMAGE_MIME_TYPES) ?? "image/png",
    metadata: metadataOption(options),
    detach: read.flagOption(options, "detach"),
    dryRun: read.flagOption(options, "dryRun"),
    isNew,
    isUpdate,
    isStrict: read.flagOption(options, "strict"),
    keepZip: read.flagOption(options, "zip"),
    names: read.choiceOption(options, "names", NAMINGS) ?? "auto",
    explicitKey,
    ...readRunOptions(options),
    limits: limitsOption(options),
  };
}

function stemOf(file: string): string | null {
  const stem = basename(file, extname(file)).trim();
  return file === "-" || stem === "" || hasUnstorableText(stem) || holdsApiKey(stem) ? null : stem;
}

const MOST_IN_A_BATCH = 10_000;

function limitsOption(options: read.TypedOptions): Limits {
  const most = read.wholeOption(options, "maxBatch", { min: 1, max: MOST_IN_A_BATCH });
  if (most === undefined) return DEFAULT_LIMITS;
  return { ...DEFAULT_LIMITS, itemsPerBatch: most, outputImagesPerBatch: most };
}

function metadataOption(options: read.TypedOptions): Record<string, string> | null {
  const metadata = read.pairsOption(options, "metadata");
  const pairs = Object.entries(metadata ?? {});
  const { metadataPairs, metadataKeyChars, metadataValueChars } = FIXED_LIMITS;
  const isRight = ([key, value]: [string, string]) =>
    codePointLength(key) <= metadataKeyChars &&
    codePointLength(value) <= metadataValueChars &&
    !hasUnstorableText(key + value);
  if (pairs.length <= metadataPairs && pairs.every(isRight)) return metadata;
  const message = `--metadata: at most ${metadataPairs} pairs, names of at most ${metadataKeyChars} and values of at most ${metadataValueChars} characters.`;
  throw new ImgbatchError("USAGE", message, { param: "--metadata" });
}
