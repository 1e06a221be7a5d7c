import { statSync } from "node:fs";

/** Tells a file from another that got its name, and maybe its place on disk, later; null when there is none. */
export function fileIdentity(path: string): string | null {
  const stats = statSync(path, { bigint: true, throwIfNoEntry: false });
  return stats === undefined ? null : `${stats.dev} ${stats.ino} ${stats.birthtimeNs}`;
}
