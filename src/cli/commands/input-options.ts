import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import { ImgbatchError } from "../../contract/errors.ts";
import { BACKGROUNDS, SIZE_TIERS } from "../../contract/image-formats.ts";
import { DEFAULT_LIMITS, type Limits } from "../../contract/limits.ts";
import { type Options, optionsOf, readOptions } from "../../prompts/options.ts";
import type { FieldFlags } from "../../prompts/prompt-reader.ts";
import type { VariableRules } from "../../prompts/variables.ts";
import { loadReference, type PromptReference } from "../../runs/plan/reference-files.ts";
import { Spool } from "../../runs/plan/spool.ts";
import { readImages, readVariable } from "../../runs/plan/variable-lists.ts";
import type { CommandContext } from "../command.ts";
import {
  flagOf,
  type OptionSpec,
  pathOption,
  readOption,
  type TypedOptions,
  textOption,
} from "../options.ts";

/** What images are asked for besides the prompt. `readItemOptions` reads these options. */
export const itemOptions: readonly OptionSpec[] = [
  {
    flags: "--aspect-ratio <w:h>",
    description: "width to height, such as 1:1, 3:2 or 16:9; as all of these, a line's own wins",
    default: "that of the first reference image, else the model decides",
  },
  {
    flags: "--size <size>",
    description: "512, 1K, 2K or 4K, or pixels such as 1536x1024, if the model makes them",
    default: "1K",
    suggestions: SIZE_TIERS,
  },
  {
    flags: "--quality <word>",
    description: "a quality of the model, such as low or high",
    default: "the model's own",
  },
  {
    flags: "--background <kind>",
    description: "transparent (PNG or WebP), opaque or auto",
    default: "auto",
    choices: BACKGROUNDS,
  },
  { flags: "--seed <n>", description: "the seed of the first image of each prompt; each further one adds 1" },
  { flags: "--negative-prompt <text>", description: "what the images must not show" },
];

/** Throws `USAGE` for a wrong option. */
export function readItemOptions(typed: TypedOptions): Options {
  return readOptions((field, { read, advice, meant }) => {
    const name = field.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
    return readOption(typed, name, advice, (text) => read(text.trim()), meant);
  });
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

/** What goes into the prompts of a file. `readVariableRules` reads these options. */
export const variableOptions: readonly OptionSpec[] = [
  {
    flags: "--var <name=values>",
    description:
      "{{name}} stands for each of these values, such as animal=fox,owl or season=@seasons.txt; may be repeated",
    repeatable: true,
  },
  {
    flags: "--images <files>",
    description:
      "an image of each prompt from each of these files, such as 'photos/*.jpg'; {{image}} is the name",
  },
  {
    flags: "--prompt <text>",
    description: "the prompt of every line, with its columns as {{column}} and its own prompt as {{prompt}}",
  },
  { flags: "--prompt-column <name>", description: "the column or field of the prompts", default: "prompt" },
  {
    flags: "--id-column <name>",
    description: "the column or field of the ids, which name the images",
    default: "custom_id",
  },
];

/** Throws `USAGE` for a wrong option. */
export async function readVariableRules({
  options,
  cwd,
  root,
  output,
}: Pick<CommandContext, "options" | "cwd" | "root" | "output">): Promise<Omit<VariableRules, "isStrict">> {
  const texts = Array.isArray(options.var) ? options.var.map(String) : [];
  const variables = await Promise.all(texts.map((text) => readVariable(text, cwd, root)));
  const images = pathOption(options, "images");
  if (images !== undefined) variables.push(await readImages(images, cwd, output.note));
  const twice = variables.find(({ name }, i) => variables.findIndex((other) => other.name === name) < i);
  if (twice !== undefined) throw usage("--var", `${twice.name} is given twice; write its values after one =`);
  return {
    variables,
    template: textOption(options, "prompt"),
    promptColumn: textOption(options, "promptColumn"),
    idColumn: textOption(options, "idColumn"),
  };
}

/** Reads and checks the images that an option names. Throws `USAGE`. */
export async function loadReferences(
  options: TypedOptions,
  name: "image" | "reference",
  cwd: string,
  limits: Limits = DEFAULT_LIMITS,
): Promise<PromptReference[]> {
  const given = options[name];
  const paths = Array.isArray(given) ? given.map(String) : [];
  const loaded: PromptReference[] = [];
  const spool = new Spool();
  for (const path of paths) {
    if ((await stat(resolve(cwd, path)).catch(() => null)) === null)
      throw usage(flagOf(name), `there is no file ${JSON.stringify(path)}`);
    let problem = "";
    const rules = { baseDir: cwd, limits, spool };
    const image = await loadReference({ field: flagOf(name), path }, rules, (_field, message) => {
      problem = message;
    });
    if (image === null) throw usage(flagOf(name), problem);
    loaded.push(image);
  }
  return loaded;
}

/** Throws `USAGE` for more images of each prompt than the service makes. */
export function requireCount(count: number, { outputCountPerItem: most }: Limits): void {
  if (count > most) throw usage("--count", `write a whole number from 1 to ${most}, not ${count}`);
}

function usage(flag: string, problem: string): ImgbatchError {
  return new ImgbatchError("USAGE", `${flag}: ${problem}.`, { param: flag });
}
