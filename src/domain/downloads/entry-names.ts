import { IMAGE_EXTENSIONS } from "../../contract/image-formats.ts";
import { foldFileName, MAX_NAME_BYTES, safeFileName, truncateBytes } from "../../kernel/text.ts";
import type { ItemRecord, OutputRecord } from "../records.ts";

interface NamedImage {
  customId: string;
  imageIndex: number;
  extension: string;
}

/**
 * The names of images in the ZIP, in the order given: `images/<custom id>.png`, `…_2.png` for the second image of an
 * item. Names that a file system without upper and lower case would take for the same get `~2`, `~3`, …
 */
export function assignEntryNames(images: readonly NamedImage[]): string[] {
  const taken = new Set<string>();
  return images.map(({ customId, imageIndex, extension }) => {
    const base = imageIndex === 0 ? customId : `${customId}_${imageIndex + 1}`;
    const safe = safeFileName(base);
    for (let n = 1; ; n++) {
      const suffix = n === 1 ? "" : `~${n}`;
      const name = `${truncateBytes(safe, MAX_NAME_BYTES - suffix.length)}${suffix}.${extension}`;
      const folded = foldFileName(name);
      if (taken.has(folded)) continue;
      taken.add(folded);
      return `images/${name}`;
    }
  });
}

/** An image of the ZIP: what is stored, under the name that it gets. */
export interface ZipImage {
  output: OutputRecord;
  customId: string;
  entryName: string;
}

/** The files of a ZIP, in their order. */
export interface ZipEntries {
  images: readonly ZipImage[];
  /** Files behind the images. */
  texts: readonly { name: string; text: string }[];
}

/** The images of a batch with their names; a batch that never reached the naming of results is named here. */
export function nameImages(
  items: readonly Pick<ItemRecord, "id" | "customId">[],
  outputs: readonly OutputRecord[],
): ZipImage[] {
  const customIds = new Map(items.map((item) => [item.id, item.customId]));
  const images = outputs.map((output) => ({ output, customId: customIds.get(output.itemId) ?? "" }));
  const names = assignEntryNames(
    images.map(({ output, customId }) => ({
      customId,
      imageIndex: output.imageIndex,
      extension: IMAGE_EXTENSIONS[output.mimeType],
    })),
  );
  return images.map((image, i) => ({ ...image, entryName: image.output.entryName ?? names[i] ?? "" }));
}
