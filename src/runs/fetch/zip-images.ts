import { z } from "zod";
import type { BatchItem } from "../../client/wire/read-items.ts";
import { replaceForbidden } from "../../kernel/files/file-names.ts";
import { foldFileName } from "../../kernel/text.ts";
import { readStart, type ZipEntry, type ZipReader } from "./zip-reader.ts";

const MAX_MANIFEST_BYTES = 64 * 1024 * 1024;
/** A manifest is parsed in one piece, so it may only be as large as the number of its images warrants. */
const MANIFEST_HEAD_BYTES = 1024 * 1024;
const MANIFEST_BYTES_PER_IMAGE = 64 * 1024;
const MANIFEST = "manifest.json";
const IMAGE_NAME = /\.(png|jpe?g|webp)$/i;

/** The part of a manifest that files are checked against. Other services may leave out the hashes. */
const manifestSchema = z.looseObject({
  files: z.array(
    z.looseObject({
      custom_id: z.string(),
      filename: z.string(),
      image_index: z.int().nullish().catch(null),
      size: z.int().min(0).nullish().catch(null),
      sha256: z
        .string()
        .regex(/^[0-9a-f]{64}$/i)
        .nullish()
        .catch(null),
    }),
  ),
});

/** The facts that a manifest states about an image. */
export interface Stated {
  /** Lower case. Null when the manifest has none. */
  sha256: string | null;
  bytes: number | null;
}

/** An image of the ZIP and the item that it belongs to. */
export interface ZippedImage extends Stated {
  customId: string;
  /** The index of the image within its item, from 0. */
  index: number;
  entry: ZipEntry;
}

export interface ZipContents {
  /** In the order of each item's images. */
  images: ZippedImage[];
  /** The manifest's facts about each item's images, in their order, including images that are not in the ZIP. */
  stated: ReadonlyMap<string, readonly Stated[]>;
}

/**
 * Finds the images of a batch's ZIP: by the manifest, or by their names when there is none. Returns at most as many
 * images of an item as the service announced, and no entry twice.
 */
export async function readContents(zip: ZipReader, items: readonly BatchItem[]): Promise<ZipContents> {
  const manifest = await readManifest(zip, items);
  if (manifest === null) return { images: matchByName(zip, items), stated: new Map() };
  return matchByManifest(zip, manifest, items);
}

async function readManifest(
  zip: ZipReader,
  items: readonly BatchItem[],
): Promise<z.infer<typeof manifestSchema> | null> {
  const entry =
    zip.entries.find((each) => each.name === MANIFEST) ??
    zip.entries.find((each) => each.name.endsWith(`/${MANIFEST}`));
  const imageCount = items.reduce((sum, item) => sum + item.imageCount, 0);
  const maxBytes = Math.min(MAX_MANIFEST_BYTES, MANIFEST_HEAD_BYTES + imageCount * MANIFEST_BYTES_PER_IMAGE);
  if (entry === undefined || entry.bytes > maxBytes) return null;
  const data = await readStart(entry, entry.bytes);
  try {
    return manifestSchema.parse(JSON.parse(data.toString("utf8")));
  } catch {
    return null;
  }
}

function matchByManifest(
  zip: ZipReader,
  manifest: z.infer<typeof manifestSchema>,
  items: readonly BatchItem[],
): ZipContents {
  const entries = new Map(zip.entries.map((entry) => [entry.name, entry]));
  const counts = new Map(items.map((item) => [item.customId, item.imageCount]));
  const stated = new Map<string, Stated[]>();
  const named = new Map<ZipEntry, ZippedImage[]>();
  for (const file of manifest.files.toSorted((a, b) => (a.image_index ?? 0) - (b.image_index ?? 0))) {
    const { custom_id: customId, filename } = file;
    const before = stated.get(customId) ?? [];
    const index = before.length;
    if (index >= (counts.get(customId) ?? 0)) continue;
    const said = { sha256: file.sha256?.toLowerCase() ?? null, bytes: file.size ?? null };
    before.push(said);
    stated.set(customId, before);
    const entry = entries.get(filename) ?? entries.get(`images/${filename}`);
    if (entry !== undefined) append(named, entry, { customId, index, entry, ...said });
  }
  // An entry that several images claim belongs to none of them for certain.
  return { images: [...named.values()].filter((claims) => claims.length === 1).flat(), stated };
}

function append<Key, Value>(lists: Map<Key, Value[]>, key: Key, value: Value): void {
  const list = lists.get(key);
  if (list === undefined) lists.set(key, [value]);
  else list.push(value);
}

/**
 * Finds the images by their names. `cat.png` belongs to item `cat`, and so does `cat_2.png` when no item is called
 * `cat_2`. An item gets no image when its name fits more or fewer files than it has images, or when two items have the
 * same file name, since a ZIP may then hold only the last one.
 */
function matchByName(zip: ZipReader, items: readonly BatchItem[]): ZippedImage[] {
  const owners = new Map<string, BatchItem | null>();
  for (const item of items) {
    // Services commonly name a file after the id in this way.
    const name = foldFileName(replaceForbidden(item.customId));
    owners.set(name, owners.has(name) ? null : item);
  }
  const found = new Map<BatchItem, ZipEntry[]>();
  for (const entry of zip.entries.toSorted((a, b) => (a.name < b.name ? -1 : 1))) {
    if (!IMAGE_NAME.test(entry.name)) continue;
    const stem = foldFileName(entry.name.replace(/^.*\//, "").replace(/\.[^.]*$/, ""));
    const owner = owners.has(stem) ? owners.get(stem) : owners.get(stem.replace(/[_-]\d+$/, ""));
    if (owner != null) append(found, owner, entry);
  }
  return [...found].flatMap(([{ customId, imageCount }, entries]) =>
    entries.length === imageCount
      ? entries.map((entry, index) => ({ customId, index, entry, sha256: null, bytes: null }))
      : [],
  );
}
