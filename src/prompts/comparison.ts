import { OPTION_FIELDS } from "./options.ts";

/** An image that may be a variant of others. */
interface Comparable {
  /** Null when it is not known. */
  prompt: string | null;
  variant: Variant;
}

/** The prompt, or the line of a prompt file, that an image is a variant of, and its values by name. */
export interface Variant {
  origin: string;
  values: ReadonlyMap<string, string>;
}

/** The images of prompts that repeat over variants or models: a row a prompt, a column a variant. */
export interface Comparison<Image extends Comparable> {
  /** The words of each variant; a single empty one when the images of a prompt differ in nothing that was asked for. */
  columns: string[];
  rows: ComparedRow<Image>[];
}

interface ComparedRow<Image> {
  /** The words that the prompts of the row share. Null when none is known. */
  prompt: string | null;
  /** For each column, the images in it. */
  cells: Image[][];
}

/** More columns do not fit beside each other. */
const MOST_COLUMNS = 6;
/** In a comparison at least this share of the cells has an image. */
const LEAST_FILLED = 0.65;
/** A list without columns shows each prompt once when so many images, on average, share it. */
const LEAST_SHARED = 2;

/** Returns null when the images compare nothing. */
export function compareImages<Image extends Comparable>(images: readonly Image[]): Comparison<Image> | null {
  if (images.length < 2 || images.some(({ prompt }) => prompt === null)) return null;
  const names = columnNames(images);
  const labelOf = ({ variant }: Comparable) =>
    names.map((name) => variant.values.get(name) ?? "as usual").join(" · ");
  const columns = [...new Set(images.map(labelOf))];
  const cells = new Map<string, Image[][]>();
  for (const image of images) {
    const { origin, values } = image.variant;
    const key = JSON.stringify([origin, ...[...values].filter(([name]) => !names.includes(name))]);
    const row = cells.get(key) ?? columns.map((): Image[] => []);
    row[columns.indexOf(labelOf(image))]?.push(image);
    cells.set(key, row);
  }
  const rows = [...cells.values()].map((row) => ({ prompt: sharedWords(row.flat()), cells: row }));
  const filled = rows.flatMap((row) => row.cells).filter((cell) => cell.length > 0).length;
  const isComparison =
    columns.length > 1
      ? rows.length < filled && filled >= LEAST_FILLED * rows.length * columns.length
      : images.length >= LEAST_SHARED * rows.length;
  return isComparison ? { columns, rows } : null;
}

/**
 * The variables that make the columns: as many as fit, from the one that changes fastest. The model is always the first;
 * beside it stand options alone, so that a row has one prompt.
 */
function columnNames(images: readonly Comparable[]): string[] {
  const seen = new Map<string, Set<string>>();
  for (const { variant } of images)
    for (const [name, value] of variant.values) seen.set(name, (seen.get(name) ?? new Set()).add(value));
  const differs = (name: string) =>
    (seen.get(name)?.size ?? 0) > 1 || images.some(({ variant }) => !variant.values.has(name));
  const names = [...seen.keys()].filter(differs);
  const byRank = names.includes("model")
    ? [...names.filter((name) => (OPTION_FIELDS as readonly string[]).includes(name)), "model"]
    : names;
  let chosen: string[] = [];
  for (const name of byRank.reverse()) {
    const more = [name, ...chosen];
    const key = ({ variant }: Comparable) => JSON.stringify(more.map((each) => variant.values.get(each)));
    if (new Set(images.map(key)).size > MOST_COLUMNS) break;
    chosen = more;
  }
  return chosen;
}

/** `a poster of … in oil`: the words at the beginning and the end that all prompts share. */
function sharedWords(images: readonly Comparable[]): string | null {
  const prompts = [...new Set(images.map(({ prompt }) => prompt ?? ""))];
  const [first = "", ...others] = prompts;
  if (others.length === 0) return first;
  const words = prompts.map((prompt) => prompt.split(/\s+/));
  const shortest = Math.min(...words.map((each) => each.length));
  const countShared = (at: (list: readonly string[], i: number) => string | undefined, most: number) => {
    let count = 0;
    while (count < most && words.every((list) => at(list, count) === at(words[0] ?? [], count))) count++;
    return count;
  };
  const before = countShared((list, i) => list[i], shortest);
  const after = countShared((list, i) => list[list.length - 1 - i], shortest - before);
  const [beginning, end] = [
    first.split(/\s+/).slice(0, before),
    first.split(/\s+/).slice(-after || undefined),
  ];
  return before + after === 0 ? first : [...beginning, "…", ...(after === 0 ? [] : end)].join(" ");
}

/** Where nothing but the prompt is known, images are variants of each other whose prompts are equal. */
export function variantByPrompt(prompt: string, asked: Readonly<Record<string, unknown>>): Variant {
  const given = Object.entries(asked).filter(([name, value]) => value != null && name !== "seed");
  return { origin: prompt, values: new Map(given.map(([name, value]) => [name, String(value)])) };
}
