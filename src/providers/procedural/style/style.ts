import type { ScenePlan } from "../prompt/scene-plan.ts";
import type { Tint } from "../prompt/vocabulary.ts";
import type { Palette } from "../scene/palette.ts";
import { chroma, type Hex, lighten, lightness, mix, tone } from "../svg/color.ts";
import { createInk, type Ink } from "./ink.ts";

/** Returns the ink for the style and tint of a plan. */
export function inkOf(plan: ScenePlan, palette: Palette): Ink {
  const tint = TINTS[plan.tint];
  switch (plan.style) {
    case "neon":
      return createInk("neon", { paper: mix("#0a0820", palette.sky[0], 0.12), grade: tint });
    case "line":
      if (plan.tint === "blueprint")
        return createInk("outline", { paper: "#1d4f9c", ink: "#e9f2ff", grade: () => "#5f93dc" });
      return createInk("outline", { paper: "#fbf8f0", ink: "#262837", grade: tint });
    case "retro":
      return createInk("fill", { grade: (color) => tint(faded(color)) });
    case "watercolor":
      return createInk("wet", { grade: (color) => tint(mix(color, "#fdf9f0", 0.16)) });
    case "minimal":
      return createInk("fill", { grade: (color) => tint(tone(color, 0.12 + lightness(color) * 0.9, 0.75)) });
    default:
      return createInk("fill", { grade: tint });
  }
}

const SEPIA: readonly [Hex, Hex] = ["#2e1c10", "#f6e7c8"];

const TINTS: Record<Tint, (color: Hex) => Hex> = {
  none: (color) => color,
  mono: (color) => tone(color, lightness(color), 0),
  sepia: (color) => mix(SEPIA[0], SEPIA[1], Math.min(1, Math.max(0, (lightness(color) - 0.15) / 0.83))),
  pastel: (color) => tone(color, 0.5 + lightness(color) * 0.48, 0.62),
  vivid: (color) => tone(color, lightness(color), Math.max(1, Math.min(1.45, 0.24 / (chroma(color) + 0.01)))),
  blueprint: (color) => mix("#123a7a", "#dcecff", lightness(color)),
};

/** The few warm, slightly faded inks of old posters. */
const OLD_INKS: readonly Hex[] = [
  "#2f2a36",
  "#1f5a66",
  "#3f8f86",
  "#8fb49a",
  "#f3e3bd",
  "#f0b24f",
  "#e2733c",
  "#b8382f",
  "#7a4a34",
  "#5a7d9a",
];

function faded(color: Hex): Hex {
  const distance = (other: Hex) => {
    const parts = [1, 3, 5].map(
      (at) => Number.parseInt(color.slice(at, at + 2), 16) - Number.parseInt(other.slice(at, at + 2), 16),
    );
    return Math.hypot(...parts);
  };
  const nearest = OLD_INKS.reduce((best, other) => (distance(other) < distance(best) ? other : best));
  return mix(lighten(color, -0.01), nearest, 0.62);
}
