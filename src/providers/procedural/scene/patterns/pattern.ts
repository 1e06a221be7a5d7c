import type { Random } from "../../random.ts";
import { chroma, darken, type Hex, lighten, tone, turnHue } from "../../svg/color.ts";
import type { Scene } from "../scenery/scene.ts";

/** Five matching colours, roughly from dark to light. */
export type Colors = readonly [Hex, Hex, Hex, Hex, Hex];

/** Draws one pattern over the whole scene. */
export type DrawPattern = (scene: Scene, colors: Colors) => void;

const HARMONIES: readonly [Colors, ...Colors[]] = [
  ["#264653", "#2a9d8f", "#e9c46a", "#f4a261", "#e76f51"],
  ["#1d3557", "#457b9d", "#e63946", "#a8dadc", "#f1faee"],
  ["#2d1e2f", "#8c2f39", "#f26a4b", "#f7b267", "#fbe8c8"],
  ["#0b3954", "#087e8b", "#ff5a5f", "#bfd7ea", "#f4e9cd"],
  ["#3d2c5e", "#7b4fa3", "#e56b9f", "#f9b4ab", "#fdebd3"],
  ["#133c2f", "#3c7a57", "#e58e4a", "#a3c77a", "#f2e3a1"],
  ["#14213d", "#3a5ba0", "#fca311", "#7fb2e5", "#f5f1e6"],
  ["#4a1c40", "#c2386a", "#5bc0be", "#ff8e72", "#ffd6a5"],
  ["#22333b", "#5e503f", "#c6683c", "#d8b48a", "#f2ebe0"],
  ["#102b3f", "#e2725b", "#4c9f9b", "#f2c57c", "#ddfff7"],
  ["#2b2d42", "#6d77a8", "#ef476f", "#ffd166", "#edf2f4"],
  ["#0f4c5c", "#9a031e", "#fb8b24", "#e8c7a0", "#f8f0df"],
];

/** Returns colours made from those that the prompt names, or else one of the collection. */
export function colorsOf(scene: Scene, random: Random): Colors {
  const { accents, time } = scene.plan;
  const [first, second, third] = accents;
  if (first === undefined) {
    const [a, b, c, d, e] = random.pick(HARMONIES);
    return time === "night"
      ? [darken(a, 0.08), darken(b, 0.06), c, darken(d, 0.12), darken(e, 0.5)]
      : [a, b, c, d, e];
  }
  const grey = chroma(first) < 0.04;
  const other = second ?? (grey ? tone(first, 0.55) : turnHue(first, random.pick([28, -28, 180])));
  return [tone(first, 0.3, 0.8), first, third ?? other, lighten(other, 0.08), tone(first, 0.95, 0.2)];
}
