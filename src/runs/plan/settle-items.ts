import type { TakenOptions } from "../../client/models.ts";
import { type ImageMimeType, readPixels } from "../../contract/image-formats.ts";
import { type Limits, WIDEST_LIMITS } from "../../contract/limits.ts";
import { programName, shellWord } from "../../kernel/command-line.ts";
import { codePointLength, counted } from "../../kernel/text.ts";
import {
  type ModelTakes,
  type OptionField,
  type Options,
  optionProblem,
  optionsOf,
  withoutDefaults,
} from "../../prompts/options.ts";
import { Problems, tooLarge } from "../../prompts/problems.ts";
import type { RunModels } from "./choose-model.ts";
import { type PromptItem, STDIN } from "./prompt-files.ts";
import { textOf } from "./spool.ts";

/**
 * Returns the items without what is so anyway: `first` as their model, a default size or background, and the default quality
 * of their model, where it is known. Those of one model stand together, the first model first.
 */
export function settleItems(
  items: readonly PromptItem[],
  first: string,
  defaultQuality: (item: PromptItem) => string | null = () => null,
): PromptItem[] {
  const settled = items.map((item) => {
    const { model = first, quality, ...others } = withoutDefaults(item);
    const isUsual = quality === undefined || quality === defaultQuality(item);
    return { ...others, ...(model === first ? {} : { model }), ...(isUsual ? {} : { quality }) };
  });
  const models = [...new Set([undefined, ...settled.map(({ model }) => model)])];
  return models.length === 1
    ? settled
    : models.flatMap((model) => settled.filter((item) => item.model === model));
}

interface FitRules {
  mimeType: ImageMimeType;
  /** What flags ask for in all items; a wrong one is named once. Default: nothing. */
  shared?: Options;
  /** The limits of the service. Default: only what no service takes. */
  limits?: Limits;
}

/**
 * Checks what the items ask of their models, and returns them settled. Throws `INVALID_INPUT` naming file, line and field,
 * what the model takes, and which one would.
 */
export function fitItems(items: readonly PromptItem[], models: RunModels, rules: FitRules): PromptItem[] {
  const problems = new Problems();
  reportMisfits(items, models, rules, problems);
  problems.throwIfAny([...new Set(items.map(({ fileLine }) => fileLine.file))]);
  return settleItems(items, models.first.id, (item) => models.of(item).options?.defaultQuality ?? null);
}

/** Adds what the items ask for that their models do not take. A field with a problem gets no second one. */
export function reportMisfits(
  items: readonly PromptItem[],
  models: RunModels,
  { mimeType, shared = {}, limits = WIDEST_LIMITS }: FitRules,
  problems: Problems,
): void {
  const wrongFlags = new Set<OptionField>();
  const foreign = new Map<string, ForeignOption>();
  const others = (models.listed ?? []).flatMap(({ id, options }) => (options ? [takesOf(id, options)] : []));
  for (const item of items) {
    const { fileLine, references } = item;
    // Which model was meant is not known.
    if (problems.has(fileLine, "model")) continue;
    const model = models.of(item);
    const report = (field: string, message: string) => {
      if (!problems.has(fileLine, field)) problems.add(fileLine, field, message);
    };
    reportExcess(item, limits, report);
    if (item.model !== undefined && !models.isThere(item.model)) {
      const there = models.listed?.map(({ id }) => id).join(", ") || "none";
      report("model", `there is no batch model ${JSON.stringify(item.model)}; there is ${there}`);
      continue;
    }
    const max = model.maxReferenceImages;
    if (references.length > max) {
      const most = max === 0 ? "no reference images" : `at most ${counted(max, "reference image")}`;
      const message = `${model.id} takes ${most}; this prompt has ${references.length}`;
      report("reference_images", message);
    } else reportLoad(item, models.limits, report);
    const { background, size, aspect_ratio } = item;
    if (size !== undefined && aspect_ratio !== undefined && readPixels(size) !== null)
      report("aspect_ratio", `the size ${size} has a ratio of its own; leave one of them out`);
    if (background === "transparent" && mimeType === "image/jpeg")
      report(
        "background",
        "transparent: a JPEG has no transparency; use --mime-type image/png or image/webp",
      );
    for (const field of Object.keys(optionsOf(withoutDefaults(item))) as OptionField[]) {
      if (model.options === null) noteForeign(foreign, item, field);
      else {
        const { seed = 0, outputCount } = item;
        const value = String(field === "seed" ? seed + outputCount - 1 : item[field]);
        const problem = optionProblem(field, value, takesOf(model.id, model.options), others);
        const isOfFlag = shared[field] !== undefined && shared[field] === item[field];
        if (problem === null || (isOfFlag && wrongFlags.has(field))) continue;
        if (isOfFlag) problems.add({ file: `--${field.replaceAll("_", "-")}`, line: null }, null, problem);
        else report(field, problem);
        if (isOfFlag) wrongFlags.add(field);
      }
    }
  }
  for (const { item, field, lines } of foreign.values()) {
    const also = lines === 1 ? "" : ` (also on ${counted(lines - 1, "other line")})`;
    const file = item.fileLine.file === "<stdin>" ? STDIN : shellWord(item.fileLine.file);
    const way = REALTIME.includes(field)
      ? `\`${programName()} generate --file ${file}\` makes these images, one request each, at the real-time price`
      : "leave it out, or use the embedded service";
    problems.add(item.fileLine, field, `this service makes batches without such options${also}; ${way}`);
  }
}

/** Reports what is above the limits of the service. They may have been unknown when the files were read. */
export function reportExcess(
  { prompt, outputCount, references }: Pick<PromptItem, "prompt" | "outputCount" | "references">,
  { promptChars, outputCountPerItem, referenceImageBytes }: Limits,
  report: (field: string, message: string) => void,
): void {
  const chars = prompt.length > promptChars ? codePointLength(textOf(prompt)) : 0;
  if (chars > promptChars) report("prompt", `has ${chars} characters; at most ${promptChars} are allowed`);
  if (outputCount > outputCountPerItem)
    report("output_count", `must be a whole number from 1 to ${outputCountPerItem}, not ${outputCount}`);
  for (const { bytes } of references)
    if (bytes > referenceImageBytes) report("reference_images", tooLarge(bytes, referenceImageBytes));
}

/** Reports reference images of a line that no batch of the service holds, not even one of that line alone. */
function reportLoad(
  { references, outputCount }: Pick<PromptItem, "references" | "outputCount">,
  { referenceImagesPerBatch: most, referenceBytesPerBatch: mostBytes }: Partial<Limits>,
  report: (field: string, message: string) => void,
): void {
  const count = references.length * outputCount;
  const bytes = references.reduce((sum, reference) => sum + reference.bytes, 0);
  if (most !== undefined && count > most)
    report(
      "reference_images",
      `${counted(references.length, "image")} for each of ${outputCount} are ${count} in a batch; at most ${most} are allowed`,
    );
  else if (mostBytes !== undefined && bytes > mostBytes)
    report("reference_images", `have ${bytes} bytes together; at most ${mostBytes} are allowed in a batch`);
}

/** What `imgbatch generate` can ask for. */
const REALTIME: readonly OptionField[] = ["aspect_ratio", "size", "seed"];

/** An option that a service does not announce, at the first line of a file that asks for it. */
interface ForeignOption {
  item: PromptItem;
  field: OptionField;
  lines: number;
}

function noteForeign(found: Map<string, ForeignOption>, item: PromptItem, field: OptionField): void {
  const key = `${field} ${item.fileLine.file}`;
  const noted = found.get(key);
  if (noted === undefined) found.set(key, { item, field, lines: 1 });
  else noted.lines++;
}

function takesOf(id: string, options: TakenOptions): ModelTakes {
  return {
    id,
    aspect_ratio: options.aspectRatios,
    size: options.sizes,
    pixels: options.pixels,
    quality: options.qualities,
    background: options.backgrounds,
    seed: options.seed,
    maxSeed: options.maxSeed,
    negative_prompt: options.negativePrompt,
  };
}
