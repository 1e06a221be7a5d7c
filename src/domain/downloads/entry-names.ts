import { foldFileName } from "../../kernel/text.ts";

/** Names of devices that Windows does not let a file have, with or without an extension. */
const DEVICE_NAME = /^(con|conin\$|conout\$|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\.|$)/i;
const FORBIDDEN = /\p{Cc}|[/\\:*?"<>|]/gu;
const MAX_NAME_BYTES = 120;

/**
 * A file name that every file system takes, from any text. Never empty, never hidden, never leads elsewhere.
 * Rule: ZIP-5.
 */
export function safeFileName(text: string): string {
  const replaced = text
    .normalize("NFC")
    .replace(FORBIDDEN, "_")
    .replace(/\.{2,}/g, "_")
    .replace(/^\.+/, "_");
  const trimmed = cutToBytes(replaced, MAX_NAME_BYTES).replace(/[. ]+$/, "");
  if (trimmed === "") return "_";
  return DEVICE_NAME.test(trimmed) ? `_${trimmed}` : trimmed;
}

interface NamedImage {
  customId: string;
  imageIndex: number;
  extension: string;
}

/**
 * The names of images in the ZIP, in the order given: `images/<custom id>.png`, `…_2.png` for the second image of an
 * item. Names that a file system without upper and lower case would take for the same get `~2`, `~3`, …
 * Rule: ZIP-5.
 */
export function assignEntryNames(images: readonly NamedImage[]): string[] {
  const taken = new Set<string>();
  return images.map(({ customId, imageIndex, extension }) => {
    const base = imageIndex === 0 ? customId : `${customId}_${imageIndex + 1}`;
    const safe = safeFileName(base);
    for (let n = 1; ; n++) {
      const suffix = n === 1 ? "" : `~${n}`;
      const name = `${cutToBytes(safe, MAX_NAME_BYTES - suffix.length)}${suffix}.${extension}`;
      const folded = foldFileName(name);
      if (taken.has(folded)) continue;
      taken.add(folded);
      return `images/${name}`;
    }
  });
}

function cutToBytes(text: string, maxBytes: number): string {
  if (Buffer.byteLength(text) <= maxBytes) return text;
  let result = "";
  let bytes = 0;
  for (const character of text) {
    bytes += Buffer.byteLength(character);
    if (bytes > maxBytes) break;
    result += character;
  }
  return result;
}
