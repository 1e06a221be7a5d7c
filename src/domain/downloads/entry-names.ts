import { MAX_NAME_BYTES, safeFileName } from "../../kernel/files/file-names.ts";
import { foldFileName, truncateBytes } from "../../kernel/text.ts";

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
