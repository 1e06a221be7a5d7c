import {
  DEFAULT_RATIO,
  enlargementOf,
  exactPixels,
  imageSizePx,
  isTier,
  pixelSize,
  pixelsAt,
  RATIOS,
  readPixels,
  type ShapeFacts,
  SIZE_TIERS,
  type SizePx,
  sidesOf,
  sizeOfPixels,
} from "../../contract/image-formats.ts";
import { expandedCustomIds } from "../../contract/limits.ts";
import { canonicalJson, groupBy } from "../../kernel/json.ts";
import { formatProblem, Problems } from "../../prompts/problems.ts";
import type { WantedFile } from "../../prompts/wanted-files.ts";
import { type InputLine, readRunInput } from "../directory/input.ts";
import { readResults } from "../directory/results.ts";
import type { ChosenModel, RunModels } from "./choose-model.ts";
import type { PromptItem } from "./prompt-files.ts";
import { settleItems } from "./settle-items.ts";
import { contentOfItem, contentOfLine } from "./update.ts";

/*
 * The size and ratio that a model is asked for where a line names no ratio, but files with pixels: pictures of which these files
 * can be cut.
 */

type Shape = Pick<PromptItem, "aspect_ratio" | "size">;

interface ShapedItems {
  items: PromptItem[];
  /** The items whose shape follows from their files and is still to be chosen. */
  open: ReadonlySet<PromptItem>;
}

/**
 * Gives items the shapes that the run in a directory has asked for, where its pictures have enough pixels for the files as they are
 * now: then no picture is made again. `dir`: null for a run that makes all pictures anew. `first`: the model of items that name
 * none. `qualityOf` returns the default quality of the model of an item.
 */
export async function adoptShapes(
  dir: string | null,
  items: readonly PromptItem[],
  first: string,
  qualityOf: (item: PromptItem) => string | null,
): Promise<ShapedItems> {
  const following = items.filter(followsFiles);
  if (dir === null || following.length === 0) return { items: [...items], open: new Set(following) };
  const input = await readRunInput(dir);
  const pictures = new Map((await readResults(dir)).map((line) => [line.custom_id, line.files[0]]));
  const known = groupBy(input.lines(), ({ aspect_ratio: _, size: __, ...line }) => contentOfLine(line));
  const isEnough = (line: InputLine, { wanted }: NonNullable<PromptItem["files"]>) => {
    const before = line.source.files?.wanted;
    if (before !== undefined && needsOf(before) === needsOf(wanted)) return true;
    const sizes = expandedCustomIds(line.custom_id, line.output_count ?? 1).flatMap((id) => {
      const { width = null, height = null } = pictures.get(id) ?? {};
      return width === null || height === null ? [] : [{ widthPx: width, heightPx: height }];
    });
    return sizes.length > 0 && sizes.every((size) => isCovered(size, wanted));
  };
  const open = new Set<PromptItem>();
  const adopted = items.map((item) => {
    const { files, size: typed, ...plain } = item;
    if (files === undefined || !followsFiles(item)) return item;
    const lines = settleItems([plain], first, qualityOf).flatMap(
      (settled) => known.get(contentOfItem(settled)) ?? [],
    );
    const isOwn = ({ custom_id: id }: InputLine) => id === item.customId;
    const line = [...lines.filter(isOwn), ...lines].find(
      (each) => (typed === undefined || (each.size ?? "1K") === typed) && isEnough(each, files),
    );
    if (line === undefined) {
      open.add(item);
      return item;
    }
    const { aspect_ratio, size } = line;
    return {
      ...plain,
      files,
      ...(aspect_ratio === undefined ? {} : { aspect_ratio }),
      ...(size === undefined ? {} : { size }),
    };
  });
  return { items: adopted, open };
}

/** Gives items their shapes: those of the run in a directory, as `adoptShapes` does, else chosen ones, as `chooseShapes` does. */
export async function shapeItems(
  dir: string | null,
  items: readonly PromptItem[],
  models: RunModels,
  how: { isStrict: boolean; note: (remark: string) => void },
): Promise<PromptItem[]> {
  const qualityOf = (item: PromptItem) => models.of(item).options?.defaultQuality ?? null;
  return chooseShapes(await adoptShapes(dir, items, models.first.id, qualityOf), models, how);
}

/** Whether the shape of an item follows from its files. */
export function followsFiles({ files, aspect_ratio, size }: PromptItem): boolean {
  const hasPixels = files?.wanted.some(({ pixels }) => pixels !== undefined) === true;
  return hasPixels && aspect_ratio === undefined && (size === undefined || isTier(size));
}

/** What the files of a line need of its pictures. */
function needsOf(wanted: readonly WantedFile[]): string {
  return canonicalJson(wanted.map(({ pixels = null, fit = null }) => ({ pixels, fit })));
}

function isCovered(size: SizePx, wanted: readonly WantedFile[]): boolean {
  return wanted.every((file) => enlargementOf(size, file) <= 1);
}

/**
 * Gives the `open` items the shapes that their models are asked for: of those that cover all files of the line the cheapest, then
 * the one of which the first file cuts least away, then the one of the fewest pixels; at a model that takes all sizes by a rule,
 * the shape of the file itself. Where none covers the files, the largest is asked for, and `note` says so. Throws `INVALID_INPUT`
 * instead if `isStrict`, as for other items with too few pixels.
 */
function chooseShapes(
  { items, open }: ShapedItems,
  models: RunModels,
  { isStrict, note }: { isStrict: boolean; note: (remark: string) => void },
): PromptItem[] {
  const problems = new Problems();
  const small: string[] = [];
  const shaped = items.map((item) => {
    const wanted = item.files?.wanted ?? [];
    const model = models.of(item);
    const facts = factsOf(model);
    if (facts === null || wanted.length === 0) return item;
    const chosen = open.has(item) ? chooseShape(item, wanted, { model, facts }) : null;
    const px = chosen === null ? askedPixels(item, facts) : chosen.px;
    const tooLarge = px === null ? undefined : wanted.find((file) => enlargementOf(px, file) > 1);
    if (px !== null && tooLarge !== undefined && (isStrict || chosen !== null)) {
      const most = chosen === null ? "the picture has" : `${model.id} makes at most`;
      const message = `the file needs ${tooLarge.pixels}, and ${most} ${pixelSize(px)}`;
      if (isStrict) problems.add(item.fileLine, "pixels", `${message}; ask for fewer pixels`);
      else small.push(formatProblem({ ...item.fileLine, field: "pixels", message }));
    }
    if (chosen === null) return item;
    const { size: _, ...plain } = item;
    const { size, aspect_ratio } = chosen.shape;
    // Nothing else is asked for without files.
    const isUsual = size === "1K" && aspect_ratio === DEFAULT_RATIO && item.references.length === 0;
    return isUsual ? plain : { ...plain, ...chosen.shape };
  });
  problems.throwIfAny();
  for (const line of small.slice(0, MOST_SHOWN)) note(`${line}: it is enlarged`);
  if (small.length > MOST_SHOWN) note(`and ${small.length - MOST_SHOWN} more such files`);
  return shaped;
}

const MOST_SHOWN = 5;

/** What a model can be asked for; null where the service does not say. */
function factsOf({ options }: ChosenModel): ShapeFacts | null {
  if (options === null) return null;
  const { aspectRatios, sizes, pixels } = options;
  const ratios = RATIOS.extended.filter((ratio) => aspectRatios.includes(ratio));
  return { ratios, tiers: SIZE_TIERS.filter((tier) => sizes.includes(tier)), pixels };
}

interface Candidate {
  shape: Shape;
  px: SizePx;
}

/** Null where the model has no shape to choose. */
function chooseShape(
  item: PromptItem,
  wanted: readonly WantedFile[],
  { model, facts }: { model: ChosenModel; facts: ShapeFacts },
): Candidate | null {
  const box = wanted.map(boxOf).find((each) => each !== null) ?? null;
  const exact = box === null || item.size !== undefined ? null : exactShape(box, wanted, facts);
  if (exact !== null) return { px: exact, shape: shapeOf(exact, facts) };
  const all = candidatesOf(item, facts).map((candidate) => {
    const { px, shape } = candidate;
    const factor = Math.max(1, ...wanted.map((file) => enlargementOf(px, file)));
    const price = model.priceOf({ ...item, size: shape.size })?.imageMicroUsd ?? 0;
    return { candidate, rank: [factor, price, cutOf(px, box), px.widthPx * px.heightPx] };
  });
  return all.toSorted((a, b) => compare(a.rank, b.rank))[0]?.candidate ?? null;
}

/** Compares by the first number that differs. */
function compare(a: readonly number[], b: readonly number[]): number {
  return a.map((value, i) => value - (b[i] ?? 0)).find((difference) => Math.abs(difference) > 1e-9) ?? 0;
}

function candidatesOf({ size: typed }: PromptItem, facts: ShapeFacts): Candidate[] {
  const { ratios, tiers, pixels } = facts;
  const usual = [...ratios].sort((a, b) => Number(b === DEFAULT_RATIO) - Number(a === DEFAULT_RATIO));
  const ofTable = tiers.flatMap((size) =>
    usual.flatMap((aspect_ratio) => {
      const px = pixelsAt(pixels, size, aspect_ratio);
      return px === null ? [] : [{ shape: { size, aspect_ratio }, px }];
    }),
  );
  return typed === undefined ? ofTable : ofTable.filter(({ shape }) => shape.size === typed);
}

/** The sides of the pixels of a file; null where one follows from the picture. */
function boxOf({ pixels = "x" }: WantedFile): SizePx | null {
  const { widthPx, heightPx } = sidesOf(pixels);
  return widthPx === null || heightPx === null ? null : { widthPx, heightPx };
}

/** Returns the pixels in the shape of a file that cover all of them, at a model that takes all sizes by a rule; else null. */
function exactShape(box: SizePx, wanted: readonly WantedFile[], { pixels }: ShapeFacts): SizePx | null {
  const factor = Math.max(1, ...wanted.map((file) => enlargementOf(box, file)));
  const large = { widthPx: box.widthPx * factor, heightPx: box.heightPx * factor };
  return pixels === null ? null : exactPixels(pixels, large);
}

function shapeOf(px: SizePx, facts: ShapeFacts): Shape {
  const found = sizeOfPixels(facts, px);
  if (found === null || !isTier(found.size)) return { size: pixelSize(px) };
  return { size: found.size, aspect_ratio: found.ratio };
}

/** The share of a picture that is cut away for these pixels; 0 where the whole picture is seen. */
function cutOf({ widthPx, heightPx }: SizePx, box: SizePx | null): number {
  if (box === null) return 0;
  const [is, wanted] = [widthPx / heightPx, box.widthPx / box.heightPx];
  return 1 - Math.min(is / wanted, wanted / is);
}

/** Returns the pixels that an item asks for; null where they follow from a reference image. */
function askedPixels(
  { size = "1K", aspect_ratio, references }: PromptItem,
  { pixels }: ShapeFacts,
): SizePx | null {
  if (!isTier(size)) return readPixels(size);
  if (aspect_ratio === undefined && references.length > 0) return null;
  const ratio = RATIOS.extended.find((each) => each === aspect_ratio) ?? DEFAULT_RATIO;
  return pixelsAt(pixels, size, ratio) ?? imageSizePx(size, ratio);
}
