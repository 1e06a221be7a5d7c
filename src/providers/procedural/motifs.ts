import type { Hex } from "./color.ts";
import { drawingData, motifFiles } from "./drawing.ts";
import type { Place } from "./words.ts";

/** A kind of thing that a word can name. The attributes of its SVG file describe it. */
export interface Motif {
  /** The name of the file. */
  name: string;
  /** Its usual colours. The seed chooses one. */
  colors: readonly Hex[];
  /** Where it lives. On the `ground` it stands on its foot; in `air` and `water` it floats around its middle. */
  realm: "ground" | "air" | "water";
  /** Its height relative to other motifs. */
  size: number;
  /** Its width over its height. It decides how many fit side by side. */
  wide: number;
  /** The place to show it in if the prompt names none. */
  home: Place | undefined;
  /** Whether it may stand in a meadow if the prompt names no place. */
  isOutdoors: boolean;
}

const byWord = new Map<string, Motif>();

/** All motifs by each word, in the singular, that names them. The files are read once. */
export function motifsByWord(): ReadonlyMap<string, Motif> {
  if (byWord.size > 0) return byWord;
  for (const name of motifFiles()) {
    const {
      words = "",
      colors = "",
      realm,
      size = 1,
      wide = 1,
      home,
      outdoors,
    } = drawingData(`motifs/${name}`);
    const motif: Motif = {
      name,
      colors: colors.split(" "),
      realm: realm as Motif["realm"],
      size: Number(size),
      wide: Number(wide),
      home: home as Place | undefined,
      isOutdoors: outdoors !== undefined,
    };
    for (const word of words.split(" ")) byWord.set(word, motif);
  }
  return byWord;
}
