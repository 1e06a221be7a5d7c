import type { Place } from "../../prompt/vocabulary.ts";
import type { Canvas } from "../../svg/canvas.ts";
import type { Hex } from "../../svg/color.ts";

/** The colours of one thing, in the light of its picture. */
export interface Coat {
  main: Hex;
  /** The main colour in shadow and in light. */
  dark: Hex;
  light: Hex;
  /** Bellies, muzzles, paper: near white. */
  soft: Hex;
  /** Eyes, noses, wheels: near black. */
  ink: Hex;
  /** What sets something off from the main colour. */
  accent: Hex;
  /** A colour of the thing's own in this light. */
  own(color: Hex): Hex;
}

/** How to draw one kind of thing. */
export interface Motif {
  /** The words that name it, in the singular. */
  words: string;
  /** Its usual colours, one of which is chosen. */
  colors: readonly [Hex, ...Hex[]];
  /** Where it keeps itself. `ground` stands on its feet, `air` and `water` float around their middle. */
  realm: "ground" | "air" | "water";
  /** How tall it is beside others; 1 unless told. */
  size?: number;
  /** Width over height; 1 unless told. Decides how many fit side by side. */
  wide?: number;
  /** The place that it belongs to when the prompt names none. */
  home?: Place;
  /** It may stand in a meadow when the prompt names no place. */
  outdoors?: boolean;
  /**
   * Draws it 100 units tall: standing with its foot at 0, 0 and its head at 0, -100, or floating within 50 units
   * around 0, 0. It looks to the right.
   */
  draw(canvas: Canvas, coat: Coat): void;
}
