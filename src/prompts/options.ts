import type { ItemOptions } from "../contract/batch-api.ts";
import {
  BACKGROUNDS,
  type Background,
  type ImageSize,
  MOST_SEED,
  pixelAdvice,
  readImageSize,
  readPixels,
  type ShapeFacts,
  SIZE_TIERS,
  sizeOfPixels,
} from "../contract/image-formats.ts";
import { DEFAULT_LIMITS } from "../contract/limits.ts";
import { codePointLength, hasUnstorableText } from "../kernel/text.ts";
import type { Report } from "./problems.ts";

/**
 * What a line asks for besides its prompt, under the names that it has in every file of a run. An absent option is that of the
 * run, else as the model does it.
 */
export interface Options {
  aspect_ratio?: string;
  size?: ImageSize;
  /** A word of the model. */
  quality?: string;
  background?: Background;
  /** The seed of the first image of the prompt. See `seedOf`. */
  seed?: number;
  negative_prompt?: string;
}
export type OptionField = keyof Options;

/** How an option is read from the text of a cell or a flag; null for a wrong one. */
interface Kind {
  read: (text: string) => string | number | null;
  /** What would be right. */
  advice: string;
  /** Returns the right value that the person probably meant by a wrong value; null when none is likely. Default: always null. */
  meant?: (text: string) => string | null;
}

const MOST_WORD_CHARS = 40;
const MOST_TEXT_CHARS = DEFAULT_LIMITS.promptChars;

/** Returns the number of a text such as `42`, or `42.0` as spreadsheets write it; null for anything else. */
export function wholeNumberOf(text: string): number | null {
  const [, digits] = /^(\d{1,15})(?:[.,]0+)?$/.exec(text) ?? [];
  return digits === undefined ? null : Number(digits);
}

/** `16:9`, also as spreadsheets, people and keyboards of other languages write it: `16:09:00`, `16 / 9`, `16x9`, `16：9`. */
const RATIO = /^0?([1-9]\d?)\s*[:/x×∶]\s*0?([1-9]\d?)(?::00)?$/i;

function ratioOf(text: string): string | null {
  const [, width, height] = RATIO.exec(text.normalize("NFKC")) ?? [];
  return width === undefined ? null : `${width}:${height}`;
}

const isWord = (text: string) => text.length <= MOST_WORD_CHARS && /^[\w.-]+$/.test(text);

/** In the order in which they are written. Whether a model takes a value is checked when it is known. */
export const OPTIONS: Readonly<Record<OptionField, Kind>> = {
  aspect_ratio: {
    read: ratioOf,
    advice: "write width:height in whole numbers, such as 1:1, 3:2 or 16:9",
  },
  size: {
    read: readImageSize,
    advice: `use ${SIZE_TIERS.join(", ")}, or pixels such as 1536x1024`,
    meant: tierOfSide,
  },
  quality: {
    read: (text) => (isWord(text) ? text : null),
    advice: "write a word of the model, such as low or high",
  },
  background: {
    read: (text) => BACKGROUNDS.find((each) => each === text) ?? null,
    advice: `use ${BACKGROUNDS.join(", ")}`,
  },
  seed: {
    read: seedOfText,
    advice: `write a whole number from 0 to ${MOST_SEED}`,
  },
  negative_prompt: {
    read: (text) => (codePointLength(text) > MOST_TEXT_CHARS || hasUnstorableText(text) ? null : text),
    advice: `write what the image must not show, in at most ${MOST_TEXT_CHARS} characters`,
  },
};

/** Returns the size whose square has this side in pixels. */
function tierOfSide(text: string): string | null {
  const [, side] = /^(512|1024|2048|4096)(?:px)?$/i.exec(text) ?? [];
  return side === undefined ? null : side === "512" ? side : `${Number(side) / 1024}K`;
}

function seedOfText(text: string): number | null {
  const seed = wholeNumberOf(text);
  return seed !== null && seed <= MOST_SEED ? seed : null;
}

const ENTRIES = Object.entries(OPTIONS) as [OptionField, Kind][];
export const OPTION_FIELDS = ENTRIES.map(([field]) => field);

/** Returns the options that are given; `read` throws, or reports and returns null, for a wrong one. */
export function readOptions(
  read: (field: OptionField, kind: Kind) => string | number | null | undefined,
): Options {
  const found = ENTRIES.map(([field, kind]) => [field, read(field, kind)] as const);
  return Object.fromEntries(found.filter(([, value]) => value != null && value !== ""));
}

/** Checks the options of a row. */
export function checkOptions(fields: Record<string, unknown>, report: Report): Options {
  return readOptions((field, { read, advice, meant }) => {
    const value = fields[field] ?? null;
    if (value === null) return null;
    const isNumber = typeof value === "number" && (field === "seed" || field === "size");
    const found = isNumber || typeof value === "string" ? read(String(value).trim()) : null;
    const isAny = field === "seed" && /^-1(\.0+)?$/.test(String(value).trim());
    if (found !== null) return found;
    const right = meant?.(String(value).trim()) ?? null;
    const more = right === null ? "" : `; did you mean ${right}?`;
    report(field, `${shown(value)}: ${isAny ? "leave it out for any seed" : advice}${more}`);
    return null;
  });
}

function shown(value: unknown): string {
  const text = JSON.stringify(value);
  return text.length > MOST_WORD_CHARS ? `${text.slice(0, MOST_WORD_CHARS)}…` : text;
}

/** Returns the options that are given among the fields of an item, or of a line of a file that a run has written. */
export function optionsOf(item: { readonly [Field in OptionField]?: Options[Field] | undefined }): Options {
  return Object.fromEntries(
    OPTION_FIELDS.flatMap((field) => (item[field] === undefined ? [] : [[field, item[field]]])),
  );
}

/** Returns the options of an item as the batch API names them. */
export function wireOptions(options: Options): ItemOptions {
  const { size, ...others } = optionsOf(options);
  return { ...others, ...(size === undefined ? {} : { image_size: size }) };
}

/** Returns the seed of an image of a prompt, from 0, whose first image has this one. */
export function seedOf(seed: number, index: number): number {
  return (seed + index) % (MOST_SEED + 1);
}

/** Returns the options without those that ask for what every model does anyway. */
export function withoutDefaults<T extends Options>(item: T): T {
  const { size, background, ...others } = item;
  return {
    ...others,
    ...(size === undefined || size === "1K" ? {} : { size }),
    ...(background === undefined || background === "auto" ? {} : { background }),
  } as T;
}

/** The values that a model takes for each option; true for any. `pixels`: the exact pixels that `size` may be besides. */
export type ModelTakes = { id: string; pixels: ShapeFacts["pixels"]; maxSeed: number } & Record<
  OptionField,
  readonly string[] | boolean
>;

/** Returns the sizes of a model, by which pixels are checked. */
function shapesOf({ aspect_ratio, size, pixels }: ModelTakes): ShapeFacts {
  const [ratios, tiers] = [aspect_ratio, size].map((values) => (Array.isArray(values) ? values : []));
  return { ratios, tiers, pixels } as ShapeFacts;
}

/** Returns why a model does not take an option, and which of the others would; null if it does. */
export function optionProblem(
  field: OptionField,
  value: string,
  model: ModelTakes,
  others: readonly ModelTakes[],
): string | null {
  const exact = field === "size" ? readPixels(value) : null;
  const isTaken = (each: ModelTakes) => {
    if (exact !== null) return sizeOfPixels(shapesOf(each), exact) !== null;
    const values = each[field];
    if (field === "seed" && Number(value) > each.maxSeed) return false;
    return typeof values === "boolean" ? values : values.includes(value);
  };
  if (isTaken(model)) return null;
  if (exact !== null) return `${value}: ${model.id} takes ${pixelAdvice(shapesOf(model), exact)}`;
  if (field === "seed" && model.seed) return `${value}: ${model.id} takes seeds from 0 to ${model.maxSeed}`;
  const values = model[field];
  const would = others.filter(isTaken).map(({ id }) => id);
  const takes = typeof values === "boolean" || values.length === 0 ? "none" : values.join(", ");
  const instead = would.length === 0 ? "" : `; ${would.join(", ")} would take it`;
  return `${typeof values === "boolean" ? "" : `${value}: `}${model.id} takes ${takes}${instead}`;
}
