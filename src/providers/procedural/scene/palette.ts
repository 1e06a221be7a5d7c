import type { ScenePlan } from "../prompt/scene-plan.ts";
import type { Season, Time } from "../prompt/vocabulary.ts";
import type { Random } from "../random.ts";
import { chroma, darken, type Hex, lighten, mix, tone, turnHue } from "../svg/color.ts";

/** The colours of one picture, all in the same light. */
export interface Palette {
  /** Top, middle and horizon of the sky. */
  sky: readonly [Hex, Hex, Hex];
  /** The sun's or the moon's disc. */
  disc: Hex;
  /** Land at the horizon. */
  far: Hex;
  /** Land at the viewer's feet. */
  near: Hex;
  /** Water at the horizon, and near the viewer. */
  water: readonly [Hex, Hex];
  /** Several colours of leaves. */
  foliage: readonly [Hex, ...Hex[]];
  accent: Hex;
  cloud: Hex;
  /** The margin of the page. */
  paper: Hex;
  /** The text on the margin. */
  ink: Hex;
  /** Returns a colour as it looks in this light. `share` 1 is the full effect, as on land; 0 keeps the colour. */
  lit(color: Hex, share?: number): Hex;
}

type Sky = readonly [top: Hex, middle: Hex, low: Hex, disc: Hex];

const SKIES: Record<Time, readonly [Sky, ...Sky[]]> = {
  day: [
    ["#3a8fd0", "#8ccbea", "#eef6e4", "#fff6d8"],
    ["#2a9aa8", "#86d0c6", "#fbf3d4", "#fffbe6"],
    ["#5f9fe0", "#b4d6f2", "#fde9d6", "#fff4d0"],
    ["#f0a35c", "#f9cf95", "#fff1d3", "#fffbe8"],
  ],
  dawn: [
    ["#5b6fb5", "#e3a5b8", "#ffe2b5", "#fff3cf"],
    ["#4f8fa8", "#f0b7a4", "#ffe9c4", "#fff6da"],
    ["#7a6bb0", "#f2a7a0", "#ffd9a8", "#fff0cc"],
  ],
  sunset: [
    ["#3b2a6b", "#dd5278", "#ffb15a", "#fff0b8"],
    ["#232c66", "#c8527f", "#ffc76b", "#fff2c0"],
    ["#6d1f4f", "#ec6040", "#ffcf5c", "#fff6cc"],
    ["#274472", "#e8836b", "#ffd493", "#fff1cf"],
  ],
  night: [
    ["#0b1437", "#1f3a73", "#5577ad", "#fdf6d8"],
    ["#120f33", "#3a2a6b", "#8566a6", "#fff3dd"],
    ["#05202e", "#0f4a58", "#4f9a98", "#f4f8e0"],
    ["#10122b", "#27305f", "#b0728a", "#ffeccf"],
  ],
};
const LAND: Record<Season, readonly [Hex, ...Hex[]]> = {
  spring: ["#4c9b57", "#3f9168", "#6aa84f"],
  summer: ["#2f7d4f", "#3c7a3f", "#1f7360"],
  autumn: ["#9c5527", "#b0752e", "#7f5a2c"],
  winter: ["#dfe9f2", "#d3e2ee", "#e6ebf4"],
};
const FOLIAGE: Record<Season, readonly [Hex, ...Hex[]]> = {
  spring: ["#5aa85c", "#7fc066", "#f4abc4", "#fbd3df", "#4a9568"],
  summer: ["#2e7d4c", "#438f4a", "#1f6b52", "#5f9f45", "#2a6a3c"],
  autumn: ["#d9742b", "#e8a33a", "#b8432f", "#c9882c", "#8f4a2b"],
  winter: ["#e9f1f7", "#c3d5e3", "#47747a", "#d8e5ee", "#3d6570"],
};
/** The colour of the shadows, and the share of it (0 to 1) in the land. */
const LIGHT: Record<Time, { shade: Hex | null; depth: number }> = {
  day: { shade: "#5b86b8", depth: 0.06 },
  dawn: { shade: "#6a5a9a", depth: 0.28 },
  sunset: { shade: "#3a1f55", depth: 0.5 },
  night: { shade: null, depth: 0.66 },
};

/** Chooses the colours of a picture: first those that the prompt names, then others that match them. */
export function createPalette(plan: ScenePlan, random: Random): Palette {
  const [top, middle, low, disc] = skyOf(plan, random);
  const light = LIGHT[plan.time];
  const shade = light.shade ?? mix(top, middle, 0.4);
  const lit = (color: Hex, share: number) => mix(color, shade, light.depth * share);

  const land =
    plan.placeColor ??
    (plan.style === "neon" ? random.pick(["#2de2e6", "#ff3cac", "#8aff80"]) : random.pick(LAND[plan.season]));
  const near = lit(land, plan.placeColor === null ? 1 : 0.55);
  const far = mix(mix(near, middle, 0.45), low, 0.35);
  const leaves = plan.leafColor === null ? FOLIAGE[plan.season] : shadesOf(plan.leafColor);
  const water = plan.waterColor === null ? mix(middle, "#1d6f93", 0.5) : lit(plan.waterColor, 0.5);
  const accent =
    plan.accents[0] ?? lit(random.pick(["#e4572e", "#f3a712", "#d7263d", "#1b998b", "#8a4fd0"]), 0.3);
  const dark = plan.time === "night" || (plan.time === "sunset" && random.chance(0.3));
  const hue = plan.accents[0] ?? plan.placeColor ?? middle;
  return {
    sky: [top, middle, low],
    disc,
    far,
    near,
    water: [mix(water, low, 0.42), darken(mix(water, top, 0.3), 0.06)],
    foliage: leaves.map((leaf) => lit(leaf, 0.85)) as [Hex, ...Hex[]],
    accent,
    cloud:
      plan.weather === "storm"
        ? mix(top, "#7c8794", 0.5)
        : mix("#ffffff", low, plan.time === "night" ? 0.75 : 0.3),
    paper: dark
      ? tone(hue, 0.2, Math.min(0.5, 0.045 / (chroma(hue) + 0.001)))
      : tone(hue, 0.962, Math.min(0.4, 0.017 / (chroma(hue) + 0.001))),
    ink: dark ? "#f7f1e3" : tone(hue, 0.24, Math.min(0.6, 0.05 / (chroma(hue) + 0.001))),
    lit,
  };
}

function skyOf(plan: ScenePlan, random: Random): Sky {
  if (plan.style === "neon" && plan.skyColor === null) return ["#120733", "#4a1a8a", "#ff4fa8", "#ffe36a"];
  let [top, middle, low, disc] = random.pick(SKIES[plan.time]);
  if (plan.time === "day" && plan.season === "winter") [top, middle, low] = ["#7fa9cf", "#bcd5e6", "#f1f3f0"];
  if (plan.skyColor !== null) {
    const color = plan.skyColor;
    top = mix(darken(color, plan.time === "night" ? 0.2 : 0.04), top, 0.12);
    middle = lighten(color, 0.07);
    low = mix(lighten(color, 0.2), "#fff3dc", 0.35);
  }
  const grey =
    plan.weather === "storm" ? 0.72 : plan.weather === "rain" ? 0.5 : plan.weather === "fog" ? 0.45 : 0;
  if (grey > 0) {
    const veil = plan.weather === "storm" ? [0.34, 0.5, 0.68] : [0.55, 0.7, 0.82];
    const night = plan.time === "night" ? 0.25 : 0;
    const dull = (color: Hex, l = 0.6) => mix(color, tone(mix(color, "#5f7488", 0.6), l - night, 0.5), grey);
    [top, middle, low] = [dull(top, veil[0]), dull(middle, veil[1]), dull(low, veil[2])];
  }
  return [top, middle, low, disc];
}

/** Returns a colour and its neighbours, like the leaves of one tree. */
function shadesOf(color: Hex): [Hex, ...Hex[]] {
  return [
    color,
    lighten(color, 0.06),
    darken(color, 0.06),
    turnHue(color, 14),
    turnHue(darken(color, 0.03), -14),
  ];
}
