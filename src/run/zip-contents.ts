import { z } from "zod";
import type { BatchItem } from "../client/read-lists.ts";
import { foldFileName } from "../kernel/text.ts";
import type { ZipEntry, ZipReader } from "./zip-reader.ts";

const MAX_MANIFEST_BYTES = 64 * 1024 * 1024;
const MANIFEST = "manifest.json";
const IMAGE_NAME = /\.(png|jpe?g|webp)$/i;

/** The part of a manifest that files are checked by; other services may leave the hashes out. */
const manifestSchema = z.looseObject({
  files: z.array(
    z.looseObject({
      custom_id: z.string(),
      filename: z.string(),
      image_index: z.int().nullish().catch(null),
      size: z.int().nullish().catch(null),
      sha256: z
        .string()
        .regex(/^[0-9a-f]{64}$/i)
        .nullish()
        .catch(null),
    }),
  ),
});

/** What a manifest says of an image. */
export interface Told {
  /** Lower case; null when it says none. */
  sha256: string | null;
  bytes: number | null;
}

/** An image of the ZIP and the item that it belongs to. */
export interface ZippedImage extends Told {
  customId: string;
  /** Which of its item's images it is, from 0. */
  index: number;
  entry: ZipEntry;
}

export interface ZipContents {
  /** In the order of each item's images. */
  images: ZippedImage[];
  /** What the manifest says of each item's images, in their order, also of those that are not in the ZIP. */
  told: ReadonlyMap<string, readonly Told[]>;
}

/**
 * The images of a batch's ZIP: by the manifest, or by their names without one.
 * Rules: RUN-16, RUN-18, SAVE-11, SAVE-12.
 */
export async function readContents(zip: ZipReader, items: readonly BatchItem[]): Promise<ZipContents> {
  const manifest = await readManifest(zip);
  if (manifest === null) return { images: matchByName(zip, items), told: new Map() };
  return matchByManifest(zip, manifest);
}

async function readManifest(zip: ZipReader): Promise<z.infer<typeof manifestSchema> | null> {
  const entry =
    zip.entries.find((each) => each.name === MANIFEST) ??
    zip.entries.find((each) => each.name.endsWith(`/${MANIFEST}`));
  if (entry === undefined || entry.bytes > MAX_MANIFEST_BYTES) return null;
  const chunks: Buffer[] = [];
  for await (const chunk of await entry.read()) chunks.push(chunk);
  try {
    return manifestSchema.parse(JSON.parse(Buffer.concat(chunks).toString("utf8")));
  } catch {
    return null;
  }
}

function matchByManifest(zip: ZipReader, manifest: z.infer<typeof manifestSchema>): ZipContents {
  const entries = new Map(zip.entries.map((entry) => [entry.name, entry]));
  const images: ZippedImage[] = [];
  const told = new Map<string, Told[]>();
  for (const file of manifest.files.toSorted((a, b) => (a.image_index ?? 0) - (b.image_index ?? 0))) {
    const { custom_id: customId, filename } = file;
    const said = { sha256: file.sha256?.toLowerCase() ?? null, bytes: file.size ?? null };
    const before = told.get(customId) ?? [];
    told.set(customId, [...before, said]);
    const entry = entries.get(filename) ?? entries.get(`images/${filename}`);
    if (entry !== undefined) images.push({ customId, index: before.length, entry, ...said });
  }
  return { images, told };
}

/**
 * `cat.png` is of item `cat`, and so is `cat_2.png` when no item is called `cat_2`. Where more or fewer files than images
 * go by an item's name nobody knows which are meant, and none is taken; nor where the names of two items become the
 * same, of which a ZIP may hold the last one alone.
 */
function matchByName(zip: ZipReader, items: readonly BatchItem[]): ZippedImage[] {
  const owners = new Map<string, BatchItem | null>();
  for (const item of items) {
    const name = foldFileName(safeName(item.customId));
    owners.set(name, owners.has(name) ? null : item);
  }
  const found = new Map<BatchItem, ZipEntry[]>();
  for (const entry of zip.entries.toSorted((a, b) => (a.name < b.name ? -1 : 1))) {
    if (!IMAGE_NAME.test(entry.name)) continue;
    const stem = foldFileName(entry.name.replace(/^.*\//, "").replace(/\.[^.]*$/, ""));
    const owner = owners.has(stem) ? owners.get(stem) : owners.get(stem.replace(/[_-]\d+$/, ""));
    if (owner != null) found.set(owner, [...(found.get(owner) ?? []), entry]);
  }
  return [...found].flatMap(([{ customId, imageCount }, entries]) =>
    entries.length === imageCount
      ? entries.map((entry, index) => ({ customId, index, entry, sha256: null, bytes: null }))
      : [],
  );
}

/** What services commonly make of an id to use it as a file's name. */
function safeName(id: string): string {
  return id.replace(/[\p{Cc}/\\:*?"<>|]/gu, "_");
}
