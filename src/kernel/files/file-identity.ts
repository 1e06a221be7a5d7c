import { statSync } from "node:fs";

/** Returns a text that differs from that of any later file of the same name. Null when the file is missing. */
export function fileIdentity(path: string): string | null {
  const stats = statSync(path, { bigint: true, throwIfNoEntry: false });
  return stats === undefined ? null : `${stats.dev} ${stats.ino} ${stats.birthtimeNs}`;
}
