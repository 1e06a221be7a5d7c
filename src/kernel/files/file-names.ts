/** Names of devices that Windows does not let a file have, with or without an extension. */
const DEVICE_NAME = /^(con|conin\$|conout\$|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\.|$)/i;
const FORBIDDEN = /\p{Cc}|[/\\:*?"<>|]/gu;

/** A longer name is cut, so that an extension and a counter still fit into what file systems take. */
export const MAX_NAME_BYTES = 120;

/**
 * A file name that every file system takes, from any text. Never empty, never hidden, never leads elsewhere.
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

/** The longest beginning of the text that has at most so many bytes in UTF-8, without half characters. */
export function cutToBytes(text: string, maxBytes: number): string {
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
