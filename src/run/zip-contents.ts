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

/** An image of the ZIP and the item that it belongs to. */
export interface ZippedImage {
  customId: string;
  entry: ZipEntry;
  /** From the manifest, lower case; null when it says none. */
  sha256: string | null;
  /** From the manifest. */
  bytes: number | null;
}

/**
 * The images of a batch's ZIP in the order of each item's images: by the manifest, or by their names without one.
 * Rules: RUN-16, RUN-18.
 */
export async function readContents(zip: ZipReader, items: readonly BatchItem[]): Promise<ZippedImage[]> {
  const manifest = await readManifest(zip);
  return manifest === null ? matchByName(zip, items) : matchByManifest(zip, manifest);
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

function matchByManifest(zip: ZipReader, manifest: z.infer<typeof manifestSchema>): ZippedImage[] {
  const entries = new Map(zip.entries.map((entry) => [entry.name, entry]));
  return manifest.files
    .toSorted((a, b) => (a.image_index ?? 0) - (b.image_index ?? 0))
    .flatMap((file) => {
      const entry = entries.get(file.filename) ?? entries.get(`images/${file.filename}`);
      if (entry === undefined) return [];
      return [
        {
          customId: file.custom_id,
          entry,
          sha256: file.sha256?.toLowerCase() ?? null,
          bytes: file.size ?? null,
        },
      ];
    });
}

/**
 * `cat.png` is of item `cat`, and so is `cat_2.png` when no item is called `cat_2`. Where more files than images go by
 * an item's name (previews, say) nobody knows which are meant, and none is taken.
 */
function matchByName(zip: ZipReader, items: readonly BatchItem[]): ZippedImage[] {
  const ids = new Map(items.map((item) => [foldFileName(safeName(item.customId)), item.customId]));
  const found = zip.entries
    .filter((entry) => IMAGE_NAME.test(entry.name))
    .toSorted((a, b) => (a.name < b.name ? -1 : 1))
    .flatMap((entry) => {
      const stem = foldFileName(entry.name.replace(/^.*\//, "").replace(/\.[^.]*$/, ""));
      const customId = ids.get(stem) ?? ids.get(stem.replace(/[_-]\d+$/, ""));
      return customId === undefined ? [] : [{ customId, entry, sha256: null, bytes: null }];
    });
  const most = new Map(items.map((item) => [item.customId, item.imageCount]));
  const counts = new Map<string, number>();
  for (const { customId } of found) counts.set(customId, (counts.get(customId) ?? 0) + 1);
  return found.filter(({ customId }) => (counts.get(customId) ?? 0) <= (most.get(customId) ?? 0));
}

/** What services commonly make of an id to use it as a file's name. */
function safeName(id: string): string {
  return id.replace(/[\p{Cc}/\\:*?"<>|]/gu, "_");
}
