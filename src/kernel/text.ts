/** `1 image`, `2 images`: a number with its word. `many` is the plural; default `one` with an `s`. */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

/** Returns the first `most` lines, and then a line that says how many more there are. */
export function firstLines(lines: readonly string[], most: number): string[] {
  const more = lines.length - most;
  return more > 0 ? [...lines.slice(0, most), `and ${more} more`] : [...lines];
}

/** Returns the text with a small first letter, to stand inside a sentence. */
export function lowerFirst(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1);
}

/** Length in Unicode code points, without building an array for long plain text. */
export function codePointLength(text: string): number {
  let count = 0;
  for (const _ of text) count++;
  return count;
}

/** Whether text has more than `max` code points. The time does not grow with the length of the text. */
export function isLongerThan(text: string, max: number): boolean {
  if (text.length <= max) return false;
  return text.length > 2 * max || codePointLength(text) > max;
}

/** Returns the first `max` code points. `ellipsis` is added when something was cut. The rest of the text is not read. */
export function truncateCodePoints(text: string, max: number, ellipsis = ""): string {
  if (!isLongerThan(text, max)) return text;
  let end = 0;
  for (let count = 0; count < max; count++) end += (text.codePointAt(end) ?? 0) > 0xffff ? 2 : 1;
  return text.slice(0, end) + ellipsis;
}

/** Returns the longest beginning of the text that fits into `maxBytes` of UTF-8, without half a character. */
export function truncateBytes(text: string, maxBytes: number): string {
  const { read } = new TextEncoder().encodeInto(text, new Uint8Array(maxBytes));
  return text.slice(0, read);
}

/** Joins the texts of a conversation, a line each. Empty ones are left out. */
export function joinTurns(...texts: readonly string[]): string {
  return texts.filter((text) => text !== "").join("\n");
}

/** Whether text holds NUL or a lone surrogate, which cannot be stored and read back unchanged. */
export function hasUnstorableText(text: string): boolean {
  return text.includes("\0") || !text.isWellFormed();
}

/**
 * Characters that can move the cursor, break a line or reverse the order of shown text: C0, DEL, C1, the bidirectional
 * controls of Unicode (UAX #9), and its line and paragraph separators.
 */
const CONTROLS = /[\p{Cc}\p{Bidi_Control}\u2028\u2029]/gu;
/** The control characters that JSON does not escape. */
const JSON_CONTROLS = /[\x7f-\x9f\p{Bidi_Control}\u2028\u2029]/gu;

/** Turns control characters into visible escapes (`\x1b`, `\u202e`), except those in `kept`. For terminals and logs. */
export function escapeControls(text: string, kept = ""): string {
  return text.replace(CONTROLS, (c) => (kept.includes(c) ? c : escaped(c)));
}

function escaped(c: string): string {
  const code = c.charCodeAt(0);
  return code < 0x100
    ? `\\x${code.toString(16).padStart(2, "0")}`
    : `\\u${code.toString(16).padStart(4, "0")}`;
}

/** Writes every control character of a JSON text as `\uXXXX`. The value stays the same. */
export function escapeJsonControls(json: string): string {
  return json.replace(JSON_CONTROLS, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** `10 MiB`, `1000 bytes`: whole mebibytes where the number is one. */
export function formatBytes(bytes: number): string {
  const mib = bytes / 1024 / 1024;
  return Number.isInteger(mib) ? `${mib} MiB` : `${bytes} bytes`;
}

const SIZE_UNITS = ["B", "kB", "MB", "GB", "TB"];

/** `812 B`, `1.4 MB`, `120 GB`: a size for people, in powers of 1000 as file managers show it. */
export function formatSize(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 999.5 && unit < SIZE_UNITS.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${unit === 0 || value >= 99.5 ? Math.round(value) : value.toFixed(1)} ${SIZE_UNITS[unit]}`;
}

/**
 * Returns the same text for file names that some file system treats as one. Upper and lower case, composed and
 * decomposed letters, and letters such as `ß` (`Straße`, `STRASSE`) make no difference.
 */
export function foldFileName(name: string): string {
  return name
    .normalize("NFC")
    .toLowerCase()
    .toUpperCase()
    .toLowerCase()
    .replaceAll("\u03c2", "\u03c3")
    .normalize("NFC");
}

/** The names of devices that Windows opens under any extension (Microsoft, "Naming Files, Paths, and Namespaces"). */
const DEVICE = /^(con|conin\$|conout\$|prn|aux|nul|com[0-9\u00b9\u00b2\u00b3]|lpt[0-9\u00b9\u00b2\u00b3])$/i;
const FORBIDDEN = /[\p{Cc}/\\:*?"<>|]/gu;

/** A longer name is cut, so that an extension and a counter still fit into the 255 bytes of file systems. */
export const MAX_NAME_BYTES = 120;

/** Replaces each character that some file system refuses in a name with `_`. */
export function replaceForbidden(text: string): string {
  return text.replace(FORBIDDEN, "_");
}

/** Whether Windows opens a device under this name: `nul.v2.png` too, since only the part before the first dot counts. */
export function isDeviceName(name: string): boolean {
  return DEVICE.test((name.split(".")[0] ?? "").trimEnd());
}

/**
 * Makes a file name that every file system takes, from any text. Never empty, never hidden, never leads elsewhere, and never
 * looks like an option of a command.
 */
export function safeFileName(text: string): string {
  const replaced = replaceForbidden(text.normalize("NFC"))
    .replace(/\.{2,}/g, "_")
    .replace(/^\.+/, "_")
    .replace(/^-/, "_-");
  const trimmed = truncateBytes(replaced, MAX_NAME_BYTES).replace(/[. ]+$/, "");
  if (trimmed === "") return "_";
  return isDeviceName(trimmed) ? `_${trimmed}` : trimmed;
}
