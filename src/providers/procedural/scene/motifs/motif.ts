import type { Place } from "../../prompt/vocabulary.ts";
import type { Canvas } from "../../svg/canvas.ts";
import type { Hex } from "../../svg/color.ts";

/** The colours of one thing, in the light of the picture. */
export interface Coat {
  main: Hex;
  /** The main colour in shadow. */
  dark: Hex;
  /** The main colour in bright light. */
  light: Hex;
  /** Almost white, for bellies, muzzles and paper. */
  soft: Hex;
  /** Almost black, for eyes, noses and wheels. */
  ink: Hex;
  /** A contrast to the main colour. */
  accent: Hex;
  /** Returns any other colour as it looks in this light. */
  own(color: Hex): Hex;
}

/** A kind of thing, and the way to draw it. */
export interface Motif {
  /** The words that name it, in the singular, separated by spaces. */
  words: string;
  /** Its usual colours. The seed chooses one. */
  colors: readonly [Hex, ...Hex[]];
  /** Where it lives. On the `ground` it stands on its foot; in `air` and `water` it floats around its middle. */
  realm: "ground" | "air" | "water";
  /** Its height relative to other motifs; 1 by default. */
  size?: number;
  /** Its width over its height; 1 by default. It decides how many fit side by side. */
  wide?: number;
  /** The place to show it in if the prompt names none. */
  home?: Place;
  /** It may stand in a meadow if the prompt names no place. */
  outdoors?: boolean;
  /**
   * Draws it 100 units tall, facing right. On the ground its foot is at 0, 0 and its head at 0, -100; otherwise it floats
   * within 50 units around 0, 0.
   */
  draw(canvas: Canvas, coat: Coat): void;
}
