import { statSync } from "node:fs";
import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import { ImgbatchError } from "../../contract/errors.ts";
import { BACKGROUNDS, FILE_FORMATS, IMAGE_MIME_TYPES, SIZE_TIERS } from "../../contract/image-formats.ts";
import { DEFAULT_LIMITS, type Limits, WIDEST_LIMITS } from "../../contract/limits.ts";
import { shellWord } from "../../kernel/command-line.ts";
import { OPTIONS, type Options, optionsOf, readOptions } from "../../prompts/options.ts";
import type { FieldFlags } from "../../prompts/prompt-reader.ts";
import type { VariableRules } from "../../prompts/variables.ts";
import { loadReference, type PromptReference } from "../../runs/plan/reference-files.ts";
import { Spool } from "../../runs/plan/spool.ts";
import { readImages, readVariable } from "../../runs/plan/variable-lists.ts";
import type { CommandContext } from "../command.ts";
import * as option from "../options.ts";
import { formatOption, modelOption } from "./shared-options.ts";

/** An option of an image. It takes what the field of this name takes in a prompt line. */
function ofItem<F extends keyof Options>(
  field: F,
  words: Omit<option.OptionSpec, "group">,
): option.Option<Options[F]> {
  const { read, advice, meant } = OPTIONS[field];
  const found = option.parsed({ ...words, group: "picture" }, advice, (text) => read(text.trim()), meant);
  return found as option.Option<Options[F]>;
}

/** What images are asked for besides the prompt, by the fields of a line. */
export const itemOptions = {
  aspect_ratio: ofItem("aspect_ratio", {
    flags: "--aspect-ratio <w:h>",
    description: "width to height, such as 1:1, 3:2 or 16:9; as all of these, a line's own wins",
    default: "that of the first reference image, else the model decides",
  }),
  size: ofItem("size", {
    flags: "--size <size>",
    description: "512, 1K, 2K or 4K, or pixels such as 1536x1024, if the model makes them",
    default: "1K",
    suggestions: SIZE_TIERS,
  }),
  quality: ofItem("quality", {
    flags: "--quality <word>",
    description: "a quality of the model, such as low or high",
    default: "the model's own",
  }),
  background: ofItem("background", {
    flags: "--background <kind>",
    description: "transparent (PNG or WebP), opaque or auto",
    default: "auto",
    choices: BACKGROUNDS,
  }),
  seed: ofItem("seed", {
    flags: "--seed <n>",
    description: "the seed of the first image of each prompt; each further one adds 1",
  }),
  negative_prompt: ofItem("negative_prompt", {
    flags: "--negative-prompt <text>",
    description: "what the images must not show",
  }),
};

/** Returns what was typed for all images. */
export function typedItemOptions(values: option.Values<typeof itemOptions>): Options {
  return readOptions((field) => values[field]);
}

/** Returns the flags that lines without a field of their own get it from. `others`: those that are no options of an item. */
export function fieldFlags(items: Options, others: FieldFlags): FieldFlags {
  const ofItems = Object.entries(optionsOf(items)).map(([field, value]) => {
    const flag = `--${field.replaceAll("_", "-")}`;
    return [field, { flag, value }] as const;
  });
  const typed = Object.entries(others).filter(([, { value }]) => value !== undefined && value !== null);
  return Object.fromEntries([...ofItems, ...typed]);
}

/** The options that give the prompts of a file their words. */
export const variableOptions = {
  variables: option.list({
    flags: "--var <name=values>",
    description:
      "{{name}} stands for each of these values, such as animal=fox,owl or season=@seasons.txt; may be repeated",
    group: "prompts",
  }),
  images: option.path({
    flags: "--images <files>",
    description:
      "an image of each prompt from each of these files, such as 'photos/*.jpg'; {{image}} is the name",
    group: "prompts",
  }),
  prompt: option.text({
    flags: "--prompt <text>",
    description: "the prompt of every line, with its columns as {{column}} and its own prompt as {{prompt}}",
    group: "prompts",
  }),
  promptColumn: option.text({
    flags: "--prompt-column <name>",
    description: "the column or field of the prompts",
    default: "prompt",
    group: "prompts",
  }),
  idColumn: option.text({
    flags: "--id-column <name>",
    description: "the column or field of the ids, which name the images",
    default: "custom_id",
    group: "prompts",
  }),
};

export const countOption = option.whole({
  flags: "--count <n>",
  description: "images for each prompt that sets no output_count",
  group: "picture",
  default: "1",
  min: 1,
  max: WIDEST_LIMITS.outputCountPerItem,
});

/** The options of `submit` that shape the pictures of a prompt file. A lock file keeps what is typed for them. */
export const shapingOptions = {
  model: {
    ...modelOption,
    description: "the model of lines that name none",
    default: "the first of `imgbatch models`",
  },
  format: formatOption,
  ...variableOptions,
  references: option.list({
    flags: "--reference <file>",
    description: "a reference image of every prompt, behind its own ones; may be repeated",
    group: "prompts",
  }),
  count: countOption,
  mimeType: option.choice({
    flags: "--mime-type <type>",
    description: "image/png, image/jpeg or image/webp",
    group: "picture",
    default: "image/png",
    choices: IMAGE_MIME_TYPES,
  }),
  ...itemOptions,
  file: option.text({
    flags: "--file <path>",
    description:
      "make a file of each picture besides those of the run, from the prompt file on, such as 'public/{{slug}}.webp'; a line's own wins",
    group: "directory",
  }),
  fileFormat: option.choice({
    flags: "--file-format <format>",
    description: "the format of such files, where their names have no ending",
    group: "directory",
    choices: FILE_FORMATS,
  }),
  root: option.path({
    flags: "--root <dir>",
    description: "such files may lie below this directory, too",
    group: "directory",
    default: "the directory of the prompt file",
  }),
  noMark: option.flag({
    flags: "--no-mark",
    description: "such files do not say in their metadata (XMP) that they are made by AI",
    group: "directory",
  }),
};

/** Throws `USAGE` for a wrong option. */
export async function readVariableRules(
  { variables: texts, images, prompt: template, ...columns }: option.Values<typeof variableOptions>,
  { cwd, root, output }: Pick<CommandContext, "cwd" | "root" | "output">,
): Promise<Omit<VariableRules, "isStrict">> {
  const variables = await Promise.all(texts.map((text) => readVariable(text, cwd, root)));
  if (images !== undefined) variables.push(await readImages(images, cwd, output.note));
  const twice = variables.find(({ name }, i) => variables.findIndex((other) => other.name === name) < i);
  if (twice !== undefined) throw usage("--var", `${twice.name} is given twice; write its values after one =`);
  const { promptColumn, idColumn } = columns;
  return { variables, template, promptColumn, idColumn };
}

/** Reads and checks the images that an option names. Throws `USAGE` with its flag. */
export async function loadReferences(
  paths: readonly string[],
  flag: `--${string}`,
  cwd: string,
  limits: Limits = DEFAULT_LIMITS,
): Promise<PromptReference[]> {
  const loaded: PromptReference[] = [];
  const spool = new Spool();
  for (const path of paths) {
    if ((await stat(resolve(cwd, path)).catch(() => null)) === null)
      throw usage(flag, `there is no file ${JSON.stringify(path)}`);
    let problem = "";
    const rules = { baseDir: cwd, limits, spool };
    const image = await loadReference({ field: flag, path }, rules, (_field, message) => {
      problem = message;
    });
    if (image === null) throw usage(flag, problem);
    loaded.push(image);
  }
  return loaded;
}

/** Throws `USAGE` for more images of each prompt than the service makes. */
export function requireCount(count: number, { outputCountPerItem: most }: Limits): void {
  if (count > most) throw usage("--count", `write a whole number from 1 to ${most}, not ${count}`);
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

function usage(flag: string, problem: string): ImgbatchError {
  return new ImgbatchError("USAGE", `${flag}: ${problem}.`, { param: flag });
}
