import { expandedCustomIds } from "../../contract/text-rules.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { canonicalJson } from "../../kernel/json/canonical-json.ts";
import type { InputLine } from "../directory/input-file.ts";
import { referencePath } from "../directory/references.ts";
import { assignIds, type PlannedItem } from "../plan/plan.ts";
import type { PromptItem } from "../prompts/prompt-item.ts";
import { textOf } from "../prompts/spool.ts";

/** A prompt of the run as it is, without its text. */
export interface OldItem {
  id: string;
  outputCount: number;
  /** Identifies everything about the prompt that decides an image. */
  content: string;
  /** Whether the id was made from the position, because the prompt had none. */
  isGenerated: boolean;
}

/** The difference between the prompts of a run and the edited ones. */
export interface Match {
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

/** Older versions did not record which ids were typed. */
const GENERATED_ID = /^item_\d{6,}(-\d+)?$/;

/** Reads a prompt of a run from its line of `input.jsonl`. */
export function toOldItem(line: InputLine): OldItem {
  const { custom_id: id, prompt, output_count: outputCount = 1, reference_images = [], source } = line;
  const isGenerated = (source !== undefined && source.id === undefined) || GENERATED_ID.test(id);
  return { id, outputCount, content: contentOf(prompt, reference_images), isGenerated };
}

/**
 * Finds the prompts of a run among the edited ones: by the id as typed, else by the content. A prompt without an id that
 * was changed between two kept ones is found by its place. If the settings differ, all prompts count as changed. The same
 * input always gives the same result.
 */
export function matchItems(
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
export function imagesOf({ customId, outputCount }: PlannedItem): string[] {
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
  const places = gapsIn(old, (item) => (free.has(item) ? undefined : item));
  for (const [place, others] of gapsIn(items, (item) => found.get(item))) {
    const gone = places.get(place)?.filter(({ isGenerated }) => isGenerated) ?? [];
    for (const item of others.filter(({ customId }) => customId === null)) takeNameless(item, gone.shift());
  }
  return found;
}

/** Groups the items without an anchor by the anchor before them. */
function gapsIn<T>(items: readonly T[], anchorOf: (item: T) => OldItem | undefined): Map<string, T[]> {
  let place = "";
  const placed = items.map((item) => {
    const anchor = anchorOf(item);
    if (anchor !== undefined) place = anchor.id;
    return { item, place, isFree: anchor === undefined };
  });
  const gaps = groupBy(
    placed.filter(({ isFree }) => isFree),
    (each) => each.place,
  );
  return new Map([...gaps].map(([key, group]) => [key, group.map(({ item }) => item)]));
}

function groupBy<T>(items: Iterable<T>, keyOf: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const group = groups.get(keyOf(item));
    if (group === undefined) groups.set(keyOf(item), [item]);
    else group.push(item);
  }
  return groups;
}

function contentOfItem({ prompt, references }: PromptItem): string {
  const named = references.map(({ sha256, id, type }) => ({ path: referencePath(sha256), id, type }));
  return contentOf(textOf(prompt), named);
}

interface NamedReference {
  path: string;
  id?: string | undefined;
  type?: string | undefined;
}

function contentOf(prompt: string, references: readonly NamedReference[]): string {
  const named = references.map(({ path, id = null, type = null }) => ({ path, id, type }));
  return sha256Hex(canonicalJson({ prompt, references: named }));
}
