import { chroma, type Hex, lighten, mix, tone, turnHue } from "./color.ts";
import colors from "./colors.json" with { type: "json" };
import type { Coat } from "./drawing.ts";
import type { Plan } from "./plan.ts";
import type { Random } from "./random.ts";

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
    far,
    middle: mix(far, near, 0.5),
    near,
    peak: rock(0.25),
    ridge: rock(0.5),
    slope: rock(0.75),
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
