import { foldFileName } from "../kernel/text.ts";
import { IMAGES_FOLDER } from "./run-directory.ts";

/** Gives every file of a run a path of its own below `images/`. */
export interface DiskNames {
  /** The path for an entry of a ZIP, with `/`: `~2`, `~3`, … when another file of the run has the name. */
  take(entryName: string): string;
  /** Marks a path of an earlier run as taken. */
  keep(path: string): void;
}

export function createDiskNames(): DiskNames {
  const taken = new Set<string>();
  return {
    keep: (path) => {
      taken.add(foldFileName(path));
    },
    take: (entryName) => {
      const name = entryName.replace(/^.*\//s, "").replace(/^\.+/, "_") || "image";
      const dot = name.lastIndexOf(".");
      const [stem, extension] = dot <= 0 ? [name, ""] : [name.slice(0, dot), name.slice(dot)];
      let path = `${IMAGES_FOLDER}/${name}`;
      for (let n = 2; taken.has(foldFileName(path)); n++) path = `${IMAGES_FOLDER}/${stem}~${n}${extension}`;
      taken.add(foldFileName(path));
      return path;
    },
  };
}
