import { truncateBytes } from "../text.ts";

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

/** Makes a file name that every file system takes, from any text. Never empty, never hidden, never leads elsewhere. */
export function safeFileName(text: string): string {
  const replaced = replaceForbidden(text.normalize("NFC"))
    .replace(/\.{2,}/g, "_")
    .replace(/^\.+/, "_");
  const trimmed = truncateBytes(replaced, MAX_NAME_BYTES).replace(/[. ]+$/, "");
  if (trimmed === "") return "_";
  return isDeviceName(trimmed) ? `_${trimmed}` : trimmed;
}
