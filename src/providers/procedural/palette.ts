import colors from "./colors.json" with { type: "json" };
import type { Coat } from "./drawing.ts";
import type { Plan } from "./plan.ts";
import type { Random } from "./random.ts";

/** A colour as `#rrggbb`. */
export type Hex = string;

/** A colour as the eye sees it (Oklab): lightness from 0 to 1, and two coordinates of hue and strength. */
type Oklab = readonly [l: number, a: number, b: number];

function toOklab(hex: Hex): Oklab {
  const value = Number.parseInt(hex.slice(1), 16);
  const [r, g, b] = [toLinear((value >> 16) & 255), toLinear((value >> 8) & 255), toLinear(value & 255)];
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

function toHex(lightness: number, a: number, b: number): Hex {
  const l = Math.min(1, Math.max(0, lightness));
  const x = (l + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const y = (l - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const z = (l - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const red = fromLinear(4.0767416621 * x - 3.3077115913 * y + 0.2309699292 * z);
  const green = fromLinear(-1.2684380046 * x + 2.6097574011 * y - 0.3413193965 * z);
  const blue = fromLinear(-0.0041960863 * x - 0.7034186147 * y + 1.707614701 * z);
  return `#${((red << 16) | (green << 8) | blue).toString(16).padStart(6, "0")}`;
}

function toLinear(byte: number): number {
  const share = byte / 255;
  return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
}

function fromLinear(linear: number): number {
  const share = linear <= 0.0031308 ? linear * 12.92 : 1.055 * linear ** (1 / 2.4) - 0.055;
  return Math.round(Math.min(1, Math.max(0, share)) * 255);
}

/** Mixes two colours in even steps to the eye. `share` 0 is the first colour, 1 the second. */
export function mix(first: Hex, second: Hex, share: number): Hex {
  const [l, a, b] = toOklab(first);
  const [l2, a2, b2] = toOklab(second);
  return toHex(l + (l2 - l) * share, a + (a2 - a) * share, b + (b2 - b) * share);
}

/** Adds `amount` to the lightness; 0.1 is a clear step, and a negative one darkens. */
export function lighten(hex: Hex, amount: number): Hex {
  const [l, a, b] = toOklab(hex);
  return toHex(l + amount, a, b);
}

/** The lightness to the eye, from 0 (black) to 1 (white). */
export function lightness(hex: Hex): number {
  return toOklab(hex)[0];
}

/** The strength of a colour: 0 for greys, about 0.3 for the strongest. */
export function chroma(hex: Hex): number {
  const [, a, b] = toOklab(hex);
  return Math.hypot(a, b);
}

/** Returns a colour of the same hue with this lightness, and with its strength multiplied by `strength`. */
export function tone(hex: Hex, l: number, strength = 1): Hex {
  const [, a, b] = toOklab(hex);
  return toHex(l, a * strength, b * strength);
}

/** Turns the hue by `degrees` on the colour wheel. */
export function turnHue(hex: Hex, degrees: number): Hex {
  const [l, a, b] = toOklab(hex);
  const [cos, sin] = [Math.cos((degrees * Math.PI) / 180), Math.sin((degrees * Math.PI) / 180)];
  return toHex(l, a * cos - b * sin, a * sin + b * cos);
}

/**
 * Returns the colour that differs from `to` as `color` differs from `from`: lighter, paler, or of a turned hue. In the dark
 * the differences are smaller.
 */
export function recolor(color: Hex, from: Hex, to: Hex): Hex {
  const [l, a, b] = toOklab(color);
  const [fromL, fromA, fromB] = toOklab(from);
  const [toL, toA, toB] = toOklab(to);
  const lightness = toL + (l - fromL) * Math.min(1, toL / fromL);
  const strength = fromA ** 2 + fromB ** 2;
  // A grey has no hue that could be turned.
  if (strength < 0.004) return toHex(lightness, toA + a - fromA, toB + b - fromB);
  const [turnA, turnB] = [(a * fromA + b * fromB) / strength, (b * fromA - a * fromB) / strength];
  return toHex(lightness, toA * turnA - toB * turnB, toA * turnB + toB * turnA);
}

/** The colours of one picture, all in the same light. */
export interface Palette {
  /** The colours of the roles in the files of `scenery`. */
  roles: Coat["roles"];
  leaves: readonly Hex[];
  /** The margin of the page. */
  paper: Hex;
  /** The text on the margin. */
  ink: Hex;
  /** Returns a colour as it looks in this light. `share` 1 is the full effect, as on land; 0 keeps the colour. */
  lit(color: Hex, share?: number): Hex;
}

/** Chooses the colours of a picture: first those that the prompt names, then others that match them. */
export function createPalette(plan: Plan, random: Random): Palette {
  const { time, season, accents, parts } = plan;
  const sky = skyOf(plan, random);
  // The shadows have this colour, or that of the night's sky.
  const { shade, depth } = colors.light[time];
  const dark = shade ?? mix(sky.top, sky.middle, 0.4);
  const lit = (color: Hex, share = 0.8) => mix(color, dark, depth * share);
  const land = random.pick(colors.land[season]);
  const near = parts.place ? lit(parts.place, 0.55) : lit(land, 1);
  const { leaf = "" } = parts;
  const leaves = leaf ? [leaf, turnHue(leaf, 14), turnHue(leaf, -14)] : colors.leaves[season];
  const isDark = time === "night" || (time === "sunset" && random.chance(0.3));
  const hue = accents[0] ?? parts.place ?? sky.middle;
  const tinted = (lightness: number, strength: number) =>
    tone(hue, lightness, Math.min(0.5, strength / (chroma(hue) + 0.001)));
  return {
    roles: rolesOf(plan, sky, near, lit, random),
    leaves: leaves.map((color) => lit(color)),
    paper: isDark ? tinted(0.2, 0.045) : tinted(0.962, 0.017),
    ink: isDark ? "#f7f1e3" : tinted(0.24, 0.05),
    lit,
  };
}

function skyOf({ style, parts, time, season, weather }: Plan, random: Random) {
  if (style === "neon" && !parts.sky)
    return { top: "#120733", middle: "#4a1a8a", low: "#ff4fa8", disc: "#ffe36a" };
  let [top = "", middle = "", low = "", disc = ""] = random.pick(colors.skies[time]);
  if (time === "day" && season === "winter") [top, middle, low] = ["#7fa9cf", "#bcd5e6", "#f1f3f0"];
  if (parts.sky) {
    top = mix(lighten(parts.sky, time === "night" ? -0.2 : -0.04), top, 0.12);
    [middle, low] = [lighten(parts.sky, 0.07), mix(lighten(parts.sky, 0.2), "#fff3dc", 0.35)];
  }
  const grey = { storm: 0.72, rain: 0.5, fog: 0.45, snow: 0, clear: 0 }[weather];
  const dull = (color: Hex, lightness: number) => {
    const dim = (weather === "storm" ? 0.18 : 0) + (time === "night" ? 0.25 : 0);
    return mix(color, tone(mix(color, "#5f7488", 0.6), lightness - dim, 0.5), grey);
  };
  return { top: dull(top, 0.54), middle: dull(middle, 0.69), low: dull(low, 0.84), disc };
}

function rolesOf(
  plan: Plan,
  sky: ReturnType<typeof skyOf>,
  near: Hex,
  lit: Palette["lit"],
  random: Random,
): Coat["roles"] {
  const { season, accents, parts, time, weather } = plan;
  const { top, middle, low, disc } = sky;
  const [place] = plan.places;
  const isWinter = season === "winter";
  const isDark = time === "night" || time === "sunset";
  const far = mix(mix(near, middle, 0.45), low, 0.35);
  const rock = (depth: number) =>
    mix(mix(far, near, depth), mix(top, "#1c2733", isWinter ? 0.7 : 0.3), 0.5 - depth * 0.3);
  const built = parts.place ?? lit("#6b7fa0");
  const rows = [0.6, 0.35, 0.1].map((pale) => mix(built, middle, pale));
  const [tower = "", block = "", house = ""] = plan.style === "neon" ? colors.neon : rows;
  const water = parts.water ? lit(parts.water, 0.5) : mix(middle, "#1d6f93", 0.5);
  const flowers =
    season === "spring" || season === "summer"
      ? [accents[0] ?? "#f7d046", "#fdf6e3", accents[1] ?? "#e4577d"]
      : [];
  const [flower = null, petal = null, blossom = null] = flowers.map((color) => lit(color, 0.5));
  const sand = place === "desert" ? "#e6ac66" : isWinter ? "#e3e9ef" : "#f0d9a4";
  const studio = mix(accents[0] ?? random.pick(colors.studios), top, time === "night" ? 0.6 : 0);
  const clouds =
    weather === "storm" ? mix(top, "#7c8794", 0.5) : mix("#ffffff", low, time === "night" ? 0.75 : 0.3);
  return {
    ...{
      sky: top,
      air: middle,
      low,
      disc,
      cloud: clouds,
      star: lighten(low, 0.25),
      aurora: parts.sky ?? "#5af2b0",
    },
    ...{ far, middle: mix(far, near, 0.5), near, peak: rock(0.25), ridge: rock(0.5), slope: rock(0.75) },
    ...{
      tower,
      block,
      house,
      flower,
      petal,
      blossom,
      water: mix(water, low, 0.42),
      deep: mix(water, top, 0.35),
    },
    snow: isWinter || random.chance(0.6) ? lit("#fdfdfb", 0.45) : null,
    window: isDark ? mix(accents[0] ?? "#ffd98a", "#ffe9b8", 0.35) : lighten(built, 0.13),
    pane: lighten(built, isDark ? -0.1 : 0.08),
    glow: isDark ? "#ffe2a0" : null,
    bulb: isDark ? "#fff0c4" : "#e9e4d4",
    sand: lit(parts.place ?? sand),
    asphalt: lit(isWinter ? "#a9b4c4" : "#59606f"),
    rock: parts.place ?? "#8d8fa6",
    wall: lit(accents[0] ?? parts.place ?? random.pick(colors.walls), 0.7),
    wood: lit(random.pick(colors.woods), 0.7),
    accent: accents[0] ?? lit(random.pick(colors.accents), 0.3),
    nebula: parts.sky ?? random.pick(colors.nebulas),
    lagoon: parts.water ?? parts.sky ?? random.pick(colors.lagoons),
    ground: place === "stage" ? studio : near,
    back: accents[1] ?? lighten(turnHue(studio, random.between(-30, 30)), 0.1),
  };
}

/** Returns five colours for a pattern, from dark to light: from those that the prompt names, or a collection. */
export function patternColors({ accents: [first, second, third] }: Plan, random: Random): readonly Hex[] {
  if (first === undefined) return random.pick(colors.harmonies);
  const other = second ?? turnHue(first, random.pick([28, -28, 180]));
  return [tone(first, 0.3, 0.8), first, third ?? other, lighten(other, 0.08), tone(first, 0.95, 0.2)];
}
