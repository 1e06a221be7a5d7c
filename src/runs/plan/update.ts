import { ImgbatchError } from "../../contract/errors.ts";
import { expandedCustomIds, isGeneratedId } from "../../contract/limits.ts";
import { shellWord } from "../../kernel/command-line.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { canonicalJson, groupBy } from "../../kernel/json.ts";
import { counted, firstLines } from "../../kernel/text.ts";
import { type Options, optionsOf } from "../../prompts/options.ts";
import { formatProblem } from "../../prompts/problems.ts";
import {
  damaged,
  type InputLine,
  readRunInput,
  referencePath,
  requireUndamaged,
} from "../directory/input.ts";
import type { RunState } from "../directory/run-state-schema.ts";
import { assignIds, idOf, type Plan, type PlannedItem } from "./plan.ts";
import type { PromptItem } from "./prompt-files.ts";
import { textOf } from "./spool.ts";

/** A prompt of the run as it is, without its text. */
interface OldItem {
  id: string;
  outputCount: number;
  /** Identifies everything about the prompt that decides an image. */
  content: string;
  /** Whether the id was made from the position, because the prompt had none. */
  isGenerated: boolean;
}

/** The difference between the prompts of a run and the edited ones. */
interface Match {
  /** The edited prompts. Those that the run has too keep their ids. */
  items: PlannedItem[];
  kept: PlannedItem[];
  changed: PlannedItem[];
  added: PlannedItem[];
  removed: OldItem[];
  /** The removed prompts that were added again with another id. Their images are made again. */
  renamed: PlannedItem[];
  /** The images that stay: all those of `kept`, and those of a changed number of images. */
  keptImages: ReadonlySet<string>;
  /** The images that the run has for prompts that were changed or removed. */
  superseded: string[];
}

/** Reads the prompts of a run. Throws `DIRECTORY_CONFLICT` if its input is damaged or missing. */
async function readOldItems(dir: string): Promise<OldItem[]> {
  const input = await readRunInput(dir);
  requireUndamaged(input);
  const items = Array.from(input.lines(), toOldItem);
  if (items.length === 0) throw damaged(`${input.path} is missing`);
  return items;
}

/** The same for a line of a run's input. */
export function contentOfLine(line: InputLine): string {
  return toOldItem(line).content;
}

function toOldItem(line: InputLine): OldItem {
  const { custom_id: id, prompt, output_count: outputCount = 1, reference_images = [], source } = line;
  const isGenerated = source.id === undefined;
  const { size, ...others } = optionsOf(line);
  // Earlier versions wrote the default size, too.
  const options = { ...others, ...(size === "1K" ? {} : { size }), model: line.model };
  return { id, outputCount, content: contentOf(prompt, reference_images, options), isGenerated };
}

/**
 * Finds the prompts of a run among the edited ones: by the id as typed, else by the content. A prompt without an id that
 * was changed between two kept ones is found by its place. If the settings differ, all prompts count as changed. The same
 * input always gives the same result.
 */
function matchItems(
  old: readonly OldItem[],
  items: readonly PromptItem[],
  { isSameRequest }: { isSameRequest: boolean },
): Match {
  const found = findItems(old, items);
  const named = items.map((item) => ({ ...item, customId: found.get(item)?.id ?? item.customId }));
  const planned = assignIds(named).map((item, i) => ({ ...item, typedId: items[i]?.customId ?? null }));
  const before = planned.map((_, i) => found.get(items[i] as PromptItem));
  const isAlike = planned.map((item, i) => isSameRequest && before[i]?.content === contentOfItem(item));
  const isKept = planned.map(({ outputCount }, i) => isAlike[i] && before[i]?.outputCount === outputCount);
  const keptImages = new Set(
    planned.flatMap((item, i) => {
      const was = before[i];
      const own = was === undefined ? [] : expandedCustomIds(was.id, was.outputCount);
      return isAlike[i] ? imagesOf(item).filter((id) => own.includes(id)) : [];
    }),
  );
  const there = new Set(found.values());
  const added = planned.filter((_, i) => before[i] === undefined);
  const removed = old.filter((item) => !there.has(item));
  const gone = new Set(removed.map(({ content }) => content));
  return {
    items: planned,
    kept: planned.filter((_, i) => isKept[i]),
    changed: planned.filter((_, i) => before[i] !== undefined && !isKept[i]),
    added,
    removed,
    renamed: added.filter((item) => gone.has(contentOfItem(item))),
    keptImages,
    superseded: old
      .flatMap(({ id, outputCount }) => expandedCustomIds(id, outputCount))
      .filter((id) => !keptImages.has(id)),
  };
}

/** Returns the ids of the images of a prompt. */
function imagesOf({ customId, outputCount }: PlannedItem): string[] {
  return expandedCustomIds(customId, outputCount);
}

/** Returns the prompt of the run that each edited prompt was, where there is one. */
function findItems(old: readonly OldItem[], items: readonly PromptItem[]): Map<PromptItem, OldItem> {
  const found = new Map<PromptItem, OldItem>();
  const free = new Set(old);
  const typed = items.filter(({ customId }) => customId !== null);
  const typedIds = new Set(typed.flatMap((item) => expandedCustomIds(item.customId ?? "", item.outputCount)));
  const take = (item: PromptItem, other: OldItem | undefined) => {
    if (other !== undefined && free.delete(other)) found.set(item, other);
  };
  const byId = new Map(old.map((item) => [item.id, item]));
  for (const item of typed) take(item, byId.get(item.customId ?? ""));
  const nameless = items.filter(({ customId }) => customId === null);
  const takeNameless = (item: PromptItem, other: OldItem | undefined) => {
    const ids = other === undefined ? [] : expandedCustomIds(other.id, item.outputCount);
    if (!ids.some((id) => typedIds.has(id))) take(item, other);
  };
  const same = groupBy(free, ({ content, outputCount }) => `${content} ${outputCount}`);
  for (const item of nameless)
    takeNameless(item, same.get(`${contentOfItem(item)} ${item.outputCount}`)?.shift());
  const alike = groupBy(free, ({ content }) => content);
  for (const item of nameless.filter((each) => !found.has(each)))
    takeNameless(item, alike.get(contentOfItem(item))?.shift());
  // The values in an id name the prompt: a line with other values is another one.
  for (const item of nameless.filter(({ variant }) => variant !== undefined))
    if (!found.has(item)) takeNameless(item, byId.get(idOf(item, 0)));
  const places = gapsIn(old, (item) => (free.has(item) ? undefined : item));
  for (const [place, others] of gapsIn(items, (item) => found.get(item))) {
    const gone = places.get(place)?.filter(({ id, isGenerated }) => isGenerated && isGeneratedId(id)) ?? [];
    const lines = others.filter(({ customId, variant }) => customId === null && variant === undefined);
    for (const item of lines) takeNameless(item, gone.shift());
  }
  return found;
}

/** Groups the values without an anchor by the anchor before them; null: before the first anchor. */
export function gapsIn<Value, Anchor>(
  values: readonly Value[],
  anchorOf: (value: Value) => Anchor | undefined,
): Map<Anchor | null, Value[]> {
  const gaps = new Map<Anchor | null, Value[]>();
  let before: Anchor | null = null;
  for (const value of values) {
    const anchor = anchorOf(value);
    if (anchor !== undefined) {
      before = anchor;
      continue;
    }
    const gap = gaps.get(before) ?? [];
    gap.push(value);
    gaps.set(before, gap);
  }
  return gaps;
}

/** Returns a text that stands for all that an item asks for but its id: equal for equal items. */
export function contentOfItem({ prompt, references, ...item }: PromptItem): string {
  const named = references.map(({ sha256, id, type }) => ({ path: referencePath(sha256), id, type }));
  return contentOf(textOf(prompt), named, { ...optionsOf(item), model: item.model });
}

interface NamedReference {
  path: string;
  id?: string | undefined;
  type?: string | undefined;
}

function contentOf(
  prompt: string,
  references: readonly NamedReference[],
  options: Options & { model: string | undefined },
): string {
  const named = references.map(({ path, id = null, type = null }) => ({ path, id, type }));
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
  return sha256Hex(canonicalJson({ prompt, references: named, ...given }));
}

/** The changes from a run to its edited prompts. Nothing is written or sent yet. */
interface UpdatePlan extends Match {
  /**
   * The images to make: those of changed and added prompts, those of an earlier update that the service refused, and those
   * that had failed.
   */
  images: string[];
  /** Settings that decide the images and are others now, in words. */
  settings: string[];
}

type Changes = Match & Pick<UpdatePlan, "settings">;

/** Compares a run with edited prompts. `failed`: images that had failed, and are made again. Default: none. Throws `DIRECTORY_CONFLICT` if its input is damaged or unknown. */
export async function planUpdate(
  dir: string,
  state: RunState,
  plan: Plan,
  failed: readonly string[] = [],
): Promise<UpdatePlan> {
  const settings = otherSettings(state, plan);
  const old = await readOldItems(dir);
  const match = matchItems(old, plan.request.items, { isSameRequest: settings.length === 0 });
  const { keptImages } = match;
  const refused = state.batches.flatMap((batch) => (batch.refused === true ? (batch.images ?? []) : []));
  const made = new Set([
    ...[...match.changed, ...match.added].flatMap(imagesOf).filter((id) => !keptImages.has(id)),
    ...[...refused, ...failed].filter((id) => keptImages.has(id)),
  ]);
  const images = match.items.flatMap(imagesOf).filter((id) => made.has(id));
  return { ...match, images, settings };
}

/** Says how the settings that decide the images differ: `the model is a, not b`. */
function otherSettings({ request }: RunState, { request: wanted }: Plan): string[] {
  if (request === null) return ["the run was not submitted here"];
  const isReal = request.images === "real";
  const drawn = ["an upstream made its images, which would be drawn now"];
  const real = ["its images were drawn, and an upstream would make them now"];
  return [
    ...(request.model === wanted.model ? [] : [`the model was ${request.model}, not ${wanted.model}`]),
    ...(request.response_mime_type === wanted.mimeType
      ? []
      : [`the type was ${request.response_mime_type}, not ${wanted.mimeType}`]),
    ...(isReal === (wanted.isReal ?? false) ? [] : isReal ? drawn : real),
  ];
}

/** Describes the changes: `2 prompts changed, 1 added, 1 removed; the model is the same`. */
export function describeChanges(update: Changes): string {
  const renamed = update.renamed.length;
  const again = `${renamed} of the added ${renamed === 1 ? "prompts is a removed one with another id, whose images are" : "prompts are removed ones with other ids, whose images are"} made again`;
  return renamed === 0 ? countsOf(update) : `${countsOf(update)}; ${again}`;
}

function countsOf({ kept, changed, added, removed, settings }: Changes): string {
  const counts = [
    [changed.length, "changed"],
    [added.length, "added"],
    [removed.length, "removed"],
  ].filter(([count]) => count !== 0);
  const [first, ...others] = counts.map(
    ([count, verb], i) => `${i === 0 ? counted(Number(count), "prompt") : count} ${verb}`,
  );
  if (first === undefined)
    return kept.length === 0 ? "no prompt is the same" : "the prompts are the same, other options are not";
  if (settings.length > 0) return `${[first, ...others].join(", ")}; ${settings.join("; ")}`;
  return `${[first, ...others].join(", ")}; the model is the same`;
}

/** The longest list of changed prompts that helps. */
const MOST_LISTED = 20;

/**
 * The error for a directory whose run had other prompts or settings. `again` names the command that makes these images, and the
 * one with the flags of before. `otherFlags`: see `Start`.
 */
export function changedError(
  shownDir: string,
  update: UpdatePlan,
  otherFlags: Readonly<Record<string, string | undefined>>,
  again: { update: string; before: string },
): ImgbatchError {
  const flags = Object.entries(otherFlags);
  const ways = [
    "name another directory with --output to make all images there",
    ...(update.keptImages.size === 0 ? [] : [again.update]),
    ...(flags.length === 0 ? [] : [`with the flags of before: ${again.before}`]),
  ];
  const had = flags.flatMap(([flag, value]) => (value === undefined ? [] : `${flag} ${shellWord(value)}`));
  const lacked = flags.flatMap(([flag, value]) => (value === undefined ? flag : []));
  const made = [
    ...(had.length > 0 ? [`with ${had.join(" ")}`] : []),
    ...(lacked.length > 0 ? [`without ${lacked.join(" ")}`] : []),
  ];
  const more = flags.length === 0 ? "" : ` This run was made ${made.join(" and ")}.`;
  return conflict(shownDir, update, { advice: ways.join("\n"), more });
}

/** The same for a run without batches, which cannot be updated. `settings`: those that differ, in words. */
export async function changedRealtimeError(
  dir: string,
  items: readonly PlannedItem[],
  settings: string[],
): Promise<ImgbatchError> {
  const typed = items.map((item) => ({ ...item, customId: item.typedId }));
  const match = matchItems(await readOldItems(dir), typed, { isSameRequest: true });
  return conflict(dir, { ...match, settings }, { more: " Choose another directory with --output." });
}

function conflict(
  dir: string,
  changes: Changes,
  { advice, more = "" }: { advice?: string; more?: string },
): ImgbatchError {
  const message = `${dir} belongs to a run with other prompts or options: ${describeChanges(changes)}.${more}`;
  return new ImgbatchError("DIRECTORY_CONFLICT", message, { details: changeLines(changes), advice });
}

/** Returns a line for each prompt that differs, up to a number that helps. */
function changeLines(update: Match): string[] {
  const lines = [
    ...update.changed.map((item) => lineOf(item, "changed")),
    ...update.added.map((item) => lineOf(item, "added")),
    ...update.removed.map(({ id }) => `${id}: removed`),
  ];
  return firstLines(lines, MOST_LISTED);
}

function lineOf({ fileLine, customId }: PlannedItem, what: string): string {
  return formatProblem({ ...fileLine, field: customId, message: what });
}
