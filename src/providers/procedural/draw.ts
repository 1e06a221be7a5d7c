// Longer than other files, because a picture is drawn in one go: its colours, its scene, and its page.
import type { Sharp } from "sharp";
import { type ImageMimeType, TIER_FACTORS, tierOf } from "../../contract/image-formats.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import type { ImageRequest } from "../../domain/ports/image-provider.ts";
import { DECODE_SECONDS, Decoding } from "../../imaging/decoding.ts";
import { addMetadata } from "../../imaging/picture-metadata.ts";
import { sharp } from "../../imaging/sharp-config.ts";
import { escapeMarkup, renderText } from "../../imaging/text.ts";
import { chroma, type Hex, lighten, lightness, mix, tone, turnHue } from "./color.ts";
import colors from "./colors.json" with { type: "json" };
import { type Coat, type Ink, paint, type SvgFile, tilesOf } from "./drawing.ts";
import { type Plan, pictureSeed, planScene, type Subject } from "./plan.ts";
import { Random } from "./random.ts";

/** The colours of one picture, all in the same light. */
interface Palette {
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
function createPalette(plan: Plan, random: Random): Palette {
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
function patternColors({ accents: [first, second, third] }: Plan, random: Random): readonly Hex[] {
  if (first === undefined) return random.pick(colors.harmonies);
  const other = second ?? turnHue(first, random.pick([28, -28, 180]));
  return [tone(first, 0.3, 0.8), first, third ?? other, lighten(other, 0.08), tone(first, 0.95, 0.2)];
}

import layers from "./scene.json" with { type: "json" };

/** A scene while it is drawn: its measures in pixels at 1K, its colours and plan, and what is drawn so far. */
interface Scene {
  plan: Plan;
  palette: Palette;
  ink: Ink;
  random: Random;
  w: number;
  h: number;
  /** The length that the sizes of things are shares of, so that they look right in any ratio. */
  unit: number;
  /** The height of the line where the ground begins. */
  horizon: number;
  shapes: string[];
}

/** What `scene.json` says of one layer of a scene. Words are separated by spaces. */
interface Layer {
  /** The files of `scenery` to draw. The seed chooses one for each copy. */
  draw: string;
  /**
   * A `backdrop` fills the picture, and a `cover` repeats a square. A `strip` of land repeats from edge to edge, from a random
   * point or from the `centre`. Without a value, `count` things stand or hang around.
   */
  as?: string;
  /** The layer is drawn if one word of each group (separated by &) holds, and none of `unless`. */
  when: string;
  unless?: string;
  count?: number;
  /** Shares of the width, from the left or right edge. Default: everywhere. */
  x?: readonly number[];
  /** Shares of the sky above the horizon (negative) or of the ground below it. */
  y?: readonly number[];
  /** The share of a unit that 100 units of the drawing take. */
  size?: number;
  /** The lower end of a backdrop or cover, as a share of the sky. */
  to?: number;
  /** The top of a strip, as a share of the ground. */
  at?: number;
  /** A name for the points where this layer stands. Layers that share the name share the points. */
  place?: string;
  /** Colours by role, of which the seed chooses. Those that the prompt names come first. */
  colors?: Record<string, string>;
}

/**
 * Returns where things are in a place, as shares of the picture's height: its `horizon`, the height of a thing of size 1
 * (`tall`), where things `fly` and `swim`, and the point of the ground where they `stand`. `least` is the least size of a
 * thing that is alone.
 */
function groundOf([place]: Plan["places"]): (typeof layers.places)["outdoors"] & { swim?: number } {
  return place in layers.places ? layers.places[place as keyof typeof layers.places] : layers.places.outdoors;
}

/** The words of a plan that the layers of `scene.json` may ask for. */
function wordsOf({ plan }: Scene): Set<string> {
  const { places, time, season, weather, style, extras, subjects } = plan;
  const [first] = places;
  const words = new Set<string>([...places, `on-${first}`, time, season, weather, style, ...extras]);
  if (groundOf(places) === layers.places.outdoors) words.add("outdoors");
  if (weather === "rain" || weather === "storm") words.add("wet");
  if (plan.isBold) words.add("bold");
  for (const { motif } of subjects)
    words
      .add(motif.name)
      .add(motif.realm === "ground" ? "standing" : motif.realm === "water" ? "afloat" : "flying");
  return words;
}

/** Draws the layers behind the subjects, or those in front of them. */
function drawLayers(scene: Scene, where: "back" | "front"): void {
  const words = wordsOf(scene);
  const has = (list: string) => list.split(" ").some((word) => words.has(word));
  for (const [i, layer] of (layers[where] as Layer[]).entries()) {
    if (!layer.when.split(" & ").every(has) || (layer.unless && has(layer.unless))) continue;
    const random = scene.random.fork(layer.place ?? `${where}${i}`);
    if (layer.as === undefined) drawThings(scene, layer, random);
    else drawSurface(scene, layer, random);
  }
}

/** The side of a square drawing and the width of a strip, in units of the drawing. */
const [SQUARE, STRIP] = [1000, 2400];

function drawSurface(scene: Scene, { draw, as, to, at = 0 }: Layer, random: Random): void {
  const { w, h, unit, horizon } = scene;
  const file = drawing(`scenery/${random.pick(draw.split(" "))}`);
  const bottom = to === undefined ? h : horizon * to;
  const scale = unit / SQUARE;
  if (as === "backdrop") {
    put(scene, file, { x: 0, y: 0, scale: w / SQUARE, tall: bottom / w });
    return;
  }
  if (as === "cover") {
    for (let y = 0; y < bottom; y += unit)
      for (let x = 0; x < w; x += unit) put(scene, file, { x, y, scale });
    return;
  }
  const wide = STRIP * scale;
  const isTurned = random.chance(0.5);
  const middle = w / 2 + (as === "centre" ? 0 : random.between(-0.22, 0.22) * wide);
  const y = horizon + (h - horizon) * at;
  // Where one drawing is not enough, its mirror image follows.
  for (let i = -Math.ceil(middle / wide - 0.5); (i - 0.5) * wide + middle < w; i++)
    put(scene, file, { x: middle + i * wide, y, scale, flip: (i % 2 !== 0) !== isTurned });
}

/** Returns the drawing of a file, such as `motifs/fox`. */
function drawing(path: string): SvgFile {
  const [first] = tilesOf(path);
  if (first === undefined) throw new Error(`${path}.svg has no shapes`);
  return first;
}

/** Draws things that stand on the ground or hang in the sky, the far ones first and paler. */
function drawThings(scene: Scene, layer: Layer, random: Random): void {
  const { w, h, unit, horizon, palette, plan } = scene;
  const { draw, count = 1, x: [left = 0, right = 0.5] = [], y: [from = 0, to = 0] = [], size = 1 } = layer;
  const many = count === 1 ? 1 : Math.round(count * Math.max(1, Math.min(4, w / unit)));
  const isLeft = random.chance(0.5);
  const things = Array.from({ length: many }, (_, i) => {
    const share = random.between(left, right);
    return {
      x: (i % 2 === 0) === isLeft ? share : 1 - share,
      near: random.next(),
      grow: random.between(0.85, 1.15),
    };
  }).sort((a, b) => a.near - b.near);
  for (const { x, near, grow } of things) {
    const depth = from + (to - from) * near;
    const y = horizon + depth * (depth < 0 ? horizon : Math.min(h - horizon, unit * 0.6));
    const scale = (unit * size * grow * (many > 1 ? 0.6 + 0.7 * near : 1)) / 100;
    const low = palette.roles.low ?? "";
    const pale = (color: Hex) => mix(color, low, Math.max(0, 0.3 - depth * 0.4));
    const name = random.pick(draw.split(" "));
    const leaf = name === "pine" ? palette.leaves.at(-1) : random.pick(palette.leaves);
    const roles: Record<string, Hex | null> = { leaf: pale(leaf ?? ""), trunk: pale(palette.lit("#5d4030")) };
    for (const [role, list] of Object.entries(layer.colors ?? {}))
      roles[role] = random.pick(plan.accents.length > 0 ? plan.accents : list.split(" "));
    if (depth > 0) shadow(scene, x * w, y, scale * 26, 0.14);
    put(scene, drawing(`scenery/${name}`), { x: x * w, y, scale, flip: random.chance(0.5) }, roles);
  }
}

/** Draws the shadow of a thing that stands on the ground. */
function shadow({ shapes }: Scene, x: number, y: number, reach: number, opacity: number): void {
  const [cx, cy, rx, ry] = [x, y, reach, reach * 0.11].map(round);
  shapes.push(
    `<ellipse cx="${cx}" cy="${cy}" rx="${rx}" ry="${ry}" fill="#10122a" fill-opacity="${opacity}"/>`,
  );
}

interface Placement {
  x: number;
  y: number;
  /** The pixels of one unit of the drawing. */
  scale: number;
  /** The height of a unit over its width; 1 by default. */
  tall?: number;
  flip?: boolean;
  /** Degrees, clockwise. */
  turn?: number;
}

/**
 * Draws a file at a point. `roles` are colours of its own, before those of the scene. Colours without a role get the share
 * `lit` (0 to 1) of the picture's light.
 */
function put(
  { ink, palette, shapes }: Scene,
  file: SvgFile,
  { x, y, scale, tall = 1, flip, turn = 0 }: Placement,
  roles: Coat["roles"] = {},
  lit = 0.8,
): void {
  const coat = {
    roles: { ...palette.roles, ...roles },
    lit: (color: Hex) => palette.lit(color, lit),
    ink,
    scale,
  };
  const place = `translate(${round(x)} ${round(y)})rotate(${turn})scale(${round(flip ? -scale : scale)} ${round(scale * tall)})`;
  shapes.push(`<g transform="${place}">${paint(file, coat, `d${shapes.length}-`)}</g>`);
}

/** Writes a length with as many decimals as can be seen. */
function round(value: number): string {
  return String(Math.round(value * 1000) / 1000);
}

/** Draws the subjects, the far ones first. */
function drawSubjects(scene: Scene): void {
  const { plan, palette } = scene;
  const random = scene.random.fork("coats");
  const placed = plan.isRiding ? riderOf(scene) : arrange(scene);
  for (const { subject, x, y, height, flip } of placed.sort((a, b) => a.y - b.y)) {
    const { motif, color } = subject;
    const isInside = groundOf(plan.places).least > 0.9 && plan.time !== "night";
    const share = isInside ? 0.06 : color !== null ? 0.22 : 0.34;
    const usual = random.pick(["#e4503f", "#f2b52c", "#2f8fa8", "#d8508f"]);
    const main = palette.lit(color ?? random.pick(motif.colors), share);
    const accent = palette.lit(plan.accents[0] ?? usual, share);
    if (motif.realm === "ground" && y > scene.horizon)
      shadow(scene, x + height * 0.05, y, height * 0.4 * Math.min(1.6, motif.wide), 0.26);
    put(scene, drawing(`motifs/${motif.name}`), { x, y, scale: height / 100, flip }, { main, accent }, share);
  }
}

/** Places the subjects side by side. Small things grow, most of all one that stands alone. */
function arrange(scene: Scene) {
  const { plan, w, h, unit } = scene;
  const random = scene.random.fork("subjects");
  const { tall, least } = groundOf(plan.places);
  const things = plan.subjects.flatMap((subject) => Array.from({ length: subject.count }, () => subject));
  const all = things.slice(0, 9);
  const sizeOf = ({ motif }: Subject) =>
    Math.min(least > 0.9 ? 1.25 : 2, Math.max(all.length > 1 ? 0.6 : least, motif.size));
  const widthOf = (subject: Subject) => sizeOf(subject) * Math.max(0.55, subject.motif.wide) * 1.08;
  // The widths of all things. Their unit is the height of a thing of size 1.
  const total = all.reduce((sum, subject) => sum + widthOf(subject), 0);
  const inRows = total > 3.4 && all.length > 3;
  const wanted = Math.min(tall * Math.min(h, unit), (w * 0.88) / Math.max(1, total));
  const base = inRows ? Math.min(tall * 0.62 * unit, wanted * 1.6) : wanted;
  const span = Math.min(w * 0.92, total * base * (inRows ? 0.67 : 1.08));
  let at = (w - span) / 2;
  return all.map((subject, i) => {
    const share = (widthOf(subject) * span) / total;
    at += share;
    const x = at - share / 2;
    const depth = subject.count > 1 ? random.next() : 1;
    const grown = base * sizeOf(subject) * (subject.count > 1 ? 0.86 + depth * 0.22 : 1);
    const height = Math.min(grown, h * 0.78, (w * 0.9) / Math.max(0.5, subject.motif.wide));
    const y = levelOf(scene, subject, height, depth) - (inRows && i % 2 === 0 ? unit * 0.1 : 0);
    return { subject, x, y, height, flip: all.length > 1 ? x > w / 2 : random.chance(0.3) };
  });
}

/** Places the first subject on the second. It is higher up, so it is drawn first and stays behind the mount's neck. */
function riderOf(scene: Scene): ReturnType<typeof arrange> {
  const [rider, mount] = scene.plan.subjects;
  if (rider === undefined || mount === undefined) return [];
  const height = Math.min(scene.unit * 0.48, (scene.w * 0.8) / Math.max(1, mount.motif.wide));
  const y = levelOf(scene, mount, height, 1);
  const saddle = height * (mount.motif.realm === "ground" ? 0.58 : 0.2);
  const on = { subject: mount, x: scene.w / 2, y, height, flip: false };
  return [{ ...on, subject: rider, x: on.x - height * 0.05, y: y - saddle, height: height * 0.58 }, on];
}

/** Returns the height on the page of a motif's foot, or of the middle of a floating motif. */
function levelOf(
  { h, horizon, plan, unit, random }: Scene,
  { motif }: Subject,
  height: number,
  depth: number,
): number {
  const { stand, fly, swim } = groundOf(plan.places);
  const sway = random.fork(`level${depth}`).between(-0.1, 0.1) * unit;
  if (motif.realm === "ground") return horizon + (h - horizon) * Math.min(0.9, stand + depth * 0.25);
  if (motif.realm === "water" && swim === undefined) return horizon + (h - horizon) * 0.4 - height * 0.2;
  return h * ((motif.realm === "water" ? swim : null) ?? fly) + sway;
}

/**
 * Covers the scene with the tiles of the plan's pattern, in the colours of the prompt if it names any. The attributes of
 * the file say how: `across` is the tiles of a unit, `turn` the degrees of one step of turning, and `scatter` or `rows` the
 * number of tiles where they lie in no grid. `colors` is `mixed` for each tile, or `drift` from corner to corner.
 */
function drawPattern(scene: Scene): void {
  const { plan, w, h, unit } = scene;
  const random = scene.random.fork("pattern");
  const colors = patternColors(plan, random);
  const tiles = tilesOf(`patterns/${plan.pattern}`);
  const { across = 1, turn = 360, scatter = 0, rows = 0, colors: order } = tiles[0]?.data ?? {};
  const turns = Array.from({ length: 360 / Number(turn) }, (_, i) => i * Number(turn));
  const drift = (x: number, y: number) => {
    const at = Math.min(3.99, Math.max(0, (x / w + y / h) * 2 + random.between(-0.4, 0.4)));
    return mix(colors[Math.floor(at)] ?? "", colors[Math.floor(at) + 1] ?? "", at % 1);
  };
  const tile = (x: number, y: number, scale: number, file: SvgFile = random.pick(tiles)) => {
    const keys = new Map(colors.map((color) => [color, order === "mixed" ? random.next() : 0]));
    const own = colors.toSorted((a, b) => (keys.get(a) ?? 0) - (keys.get(b) ?? 0));
    if (order === "drift") own.splice(0, 2, drift(x, y), drift(x, y));
    const roles = Object.fromEntries(own.map((color, i) => [`c${i + 1}`, color]));
    put(scene, file, { x, y, scale, turn: random.pick(turns) }, roles, 0);
  };
  const ground = scene.ink.fill(mix(colors[4] ?? "", colors[3] ?? "", 0.4));
  scene.shapes.push(`<rect width="${w}" height="${h}" fill="${ground}"/>`);
  for (let i = Math.round(Number(scatter) * Math.max(1, (w * h) / unit ** 2)); i > 0; i--)
    tile(random.next() * w, random.next() * h, (unit / 100) * random.between(0.6, 1));
  for (let i = 0; i < Number(rows); i++)
    tile(w * random.next(), h * (0.2 + (0.78 * i) / Number(rows)), Math.max(unit, w) / 1000);
  const size = unit / Number(across);
  if (Number(scatter) + Number(rows) > 0) return;
  for (let y = size / 2; y < h + size / 2; y += size)
    for (let x = size / 2; x < w + size / 2; x += size) tile(x, y, size / 100);
}

/** A reference image as an SVG element without its size, and its width over its height. */
interface Card {
  ratio: number;
  element: string;
}

/** The longest side of a single reference in a picture at 1K, and that of one of several, in pixels. */
const CARD_PX = { single: 820, several: 480 };

/** Draws the references of a request as framed cards. */
async function drawReferences(
  scene: Scene,
  { references }: ImageRequest,
  tier: number,
  { signal, decoding }: { signal: AbortSignal; decoding: Decoding },
): Promise<void> {
  const { w, h } = scene;
  const count = references.length;
  const longest = (count === 1 ? CARD_PX.single : CARD_PX.several) * tier;
  const cards: Card[] = [];
  for (const reference of references) {
    signal.throwIfAborted();
    const { data, info } = await reference.lend((bytes) =>
      decoding.decode(bytes, { maxPixels: FIXED_LIMITS.referencePixels }, (decodable) =>
        shrink(decodable, longest),
      ),
    );
    const element = `<image preserveAspectRatio="none" href="data:image/jpeg;base64,${data.toString("base64")}"`;
    cards.push({ ratio: info.width / info.height, element });
  }
  const random = scene.random.fork("cards");
  const rows = Math.max(1, Math.round(Math.sqrt((count * h) / w)));
  const columns = Math.ceil(count / rows);
  const cell = { w: (w * 0.94) / columns, h: (h * 0.94) / rows };
  for (const [i, card] of cards.entries()) {
    const row = Math.floor(i / columns);
    const inRow = Math.min(columns, count - row * columns);
    const x = w / 2 + ((i % columns) - (inRow - 1) / 2) * cell.w;
    const y = h * 0.02 + (row + 0.5) * cell.h;
    const width = Math.min(cell.w * 0.84, cell.h * 0.84 * card.ratio);
    drawCard(scene, card, { x, y, width, turn: count === 1 ? 0 : random.between(-3.5, 3.5) });
  }
}

/** Turns an image upright and shrinks it. */
function shrink(bytes: Buffer, longest: number) {
  return sharp(bytes)
    .autoOrient()
    .resize(longest, longest, { fit: "inside", withoutEnlargement: true })
    .flatten({ background: "#ffffff" })
    .toColourspace("srgb")
    .jpeg({ quality: 90 })
    .timeout({ seconds: DECODE_SECONDS })
    .toBuffer({ resolveWithObject: true });
}

function drawCard(
  { shapes, unit }: Scene,
  { ratio, element }: Card,
  { x, y, width, turn }: { x: number; y: number; width: number; turn: number },
): void {
  const height = width / ratio;
  const mat = Math.max(5, Math.min(width, height) * 0.035);
  const frame = (shift: number, paint: string) =>
    `<rect x="${round(shift - mat)}" y="${round(shift - mat)}" width="${round(width + mat * 2)}" height="${round(height + mat * 2)}" rx="2" ${paint}/>`;
  const place = `translate(${round(x)} ${round(y)})rotate(${round(turn)})translate(${round(-width / 2)} ${round(-height / 2)})`;
  const shadow = frame(unit * 0.011, 'fill="#0c0d1c" fill-opacity="0.3"');
  const card = `${element} width="${round(width)}" height="${round(height)}"/>`;
  shapes.push(`<g transform="${place}">${shadow}${frame(0, 'fill="#fdfbf5"')}${card}</g>`);
}

const SOFTWARE = "imgbatch procedural (a drawing computed locally, not the output of an image model)";
/** Further pictures of one request take indexes from here on, above the index of any request. */
const IMAGE_STRIDE = 1000;

/** A request, the text to draw for it, and the number of this picture among several (from 0). */
interface Drawing extends ImageRequest {
  text: string;
  image: number;
  /** The version of the drawings. */
  version: string;
}

/** Draws a picture and encodes it with its metadata. Throws the signal's reason if it is aborted. */
export async function drawPicture(
  drawing: Drawing,
  signal: AbortSignal,
  decoding = new Decoding(),
): Promise<Buffer> {
  const { options, pixels: size, model, text, image } = drawing;
  const { mimeType, quality, background, negativePrompt } = options;
  const index = drawing.outputIndex + image * IMAGE_STRIDE;
  const seed = pictureSeed(model, text, options.seed === null ? index : `seed ${options.seed} ${image}`);
  const { svg, caption, left, top } = await pageOf(drawing, seed, signal, decoding);
  signal.throwIfAborted();
  const page = sharp(Buffer.from(svg), { limitInputPixels: false, unlimited: true }).composite([
    { input: caption.data, raw: caption.info, left, top },
  ]);
  const encoded = await encodePicture(page, mimeType, isTransparent(drawing));
  signal.throwIfAborted();
  return addMetadata(encoded, mimeType, size, {
    software: SOFTWARE,
    prompt: drawing.prompt,
    settings: {
      Steps: 1,
      Sampler: "procedural",
      "CFG scale": 1,
      Seed: seed,
      Size: `${size.widthPx}x${size.heightPx}`,
      Model: model,
      Version: `imgbatch procedural/${drawing.version}`,
    },
    details: {
      provider: "procedural",
      version: drawing.version,
      prompt: drawing.prompt,
      model,
      seed,
      index: drawing.outputIndex,
      ...Object.fromEntries(
        Object.entries({ quality, background, negativePrompt, seed: options.seed }).filter(
          ([, value]) => value !== null,
        ),
      ),
      references: drawing.references.length,
    },
  });
}

function isTransparent({ options }: Drawing): boolean {
  return options.background === "transparent";
}

/** Returns the page as an SVG document of the requested size, and the caption that lies over it. */
async function pageOf(drawing: Drawing, seed: number, signal: AbortSignal, decoding: Decoding) {
  const { pixels: size, text, model } = drawing;
  const factor = TIER_FACTORS[tierOf(drawing.options.size)];
  // Lengths are pixels at 1K in every tier: a larger picture is the same drawing with more pixels.
  const [w, h] = [size.widthPx / factor, size.heightPx / factor];
  const least = Math.min(w, h);
  const margin = Math.round(least * 0.032);
  const { quality, negativePrompt } = drawing.options;
  const plan = planScene(text, seed, negativePrompt ?? "");
  const random = new Random(seed);
  const palette = createPalette(plan, random.fork("palette"));
  const options = [quality && `quality ${quality}`, negativePrompt && `without ${negativePrompt}`];
  const label = [
    "procedural",
    "local drawing",
    `no. ${drawing.outputIndex + 1}`,
    model,
    ...options.filter(Boolean),
  ];
  // On a narrow strip the letters would be too small, and there is space below. On a wide one, too.
  const letter = least * (Math.max(h / w, w / h) > 1.9 ? 1.5 : 1);
  const caption = await renderCaption(
    text,
    label.join(" · "),
    {
      width: (w - margin * 2) * factor,
      height: Math.min(h * 0.24, least * 0.34) * factor,
      largest: letter * 0.046 * factor,
      smallest: letter * 0.021 * factor,
    },
    [palette.ink, mix(palette.ink, palette.paper, 0.42)],
  );
  const top = h - margin * 0.85 - caption.info.height / factor;
  const box = { x: margin, y: margin, w: w - margin * 2, h: top - margin * 1.7 };
  const shapes = await drawScene(drawing, plan, palette, random.fork("scene"), box, { signal, decoding });
  const place = `x="${round(box.x)}" y="${round(box.y)}" width="${round(box.w)}" height="${round(box.h)}"`;
  const paper = `<rect width="${w}" height="${h}" fill="${palette.paper}"/>`;
  const frame = `<rect ${place} fill="none" stroke="${palette.ink}" stroke-opacity="0.25"/>`;
  // Whatever lies behind a transparent picture, its words can be read.
  const pad = margin * 0.4;
  const words = { w: caption.info.width / factor + pad * 2, h: caption.info.height / factor + pad * 2 };
  const plate = `<rect x="${round(margin - pad)}" y="${round(top - pad)}" width="${round(words.w)}" height="${round(words.h)}" rx="${round(pad)}" fill="${palette.paper}"/>`;
  const page = isTransparent(drawing)
    ? `<svg ${place}>${shapes}</svg>${plate}`
    : `${paper}<svg ${place}>${shapes}</svg>${frame}`;
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${size.widthPx}" height="${size.heightPx}" viewBox="0 0 ${round(w)} ${round(h)}">${page}</svg>`;
  return { svg, caption, left: Math.round(margin * factor), top: Math.round(top * factor) };
}

async function drawScene(
  drawing: Drawing,
  plan: Plan,
  palette: Palette,
  random: Random,
  { w, h }: { w: number; h: number },
  options: { signal: AbortSignal; decoding: Decoding },
): Promise<string> {
  const [place] = plan.places;
  const unit = Math.min(w, h, Math.sqrt(w * h) * 0.9);
  const horizon = h * groundOf(plan.places).horizon;
  const shapes: string[] = [];
  const scene: Scene = { plan, palette, random, w, h, unit, horizon, ink: inkOf(plan, palette), shapes };
  // A transparent picture has the subjects alone.
  const hasPlace = place !== "pattern" && !isTransparent(drawing);
  if (hasPlace) drawLayers(scene, "back");
  else if (place === "pattern") drawPattern(scene);
  await drawReferences(scene, drawing, TIER_FACTORS[tierOf(drawing.options.size)], options);
  // With a reference, the subjects are small and stand in the lower right corner.
  const hasCards = drawing.references.length > 0;
  const corner = `translate(${round(w * 0.52)} ${round(h * 0.52)})scale(0.48)`;
  shapes.push(`<g transform="${hasCards ? corner : "scale(1)"}">`);
  drawSubjects(scene);
  shapes.push("</g>");
  if (hasPlace) drawLayers(scene, "front");
  options.signal.throwIfAborted();
  return await repaint(shapes.join(""), plan.style, scene);
}

type Grade = (color: Hex) => Hex;

const TINTS: Record<string, Grade> = {
  mono: (color) => tone(color, lightness(color), 0),
  sepia: (color) => mix("#2e1c10", "#f6e7c8", Math.min(1, Math.max(0, (lightness(color) - 0.15) / 0.83))),
  pastel: (color) => tone(color, 0.5 + lightness(color) * 0.48, 0.62),
  vivid: (color) => tone(color, lightness(color), Math.max(1, Math.min(1.45, 0.24 / (chroma(color) + 0.01)))),
  blueprint: (color) => mix("#123a7a", "#dcecff", lightness(color)),
};

/** Returns the ink for the style and tint of a plan. */
function inkOf({ style, tint }: Plan, { roles }: Palette): Ink {
  const tinted = TINTS[tint] ?? ((color: Hex) => color);
  const plain = (fill: Grade): Ink => ({ fill, line: fill, edge: () => "" });
  const stroke = (color: Hex, width: number) =>
    ` stroke="${color}" stroke-width="${width.toFixed(3)}" stroke-linejoin="round"`;
  switch (style) {
    case "retro":
      return plain((color) => tinted(tone(mix(color, "#e8b77a", 0.2), lightness(color) * 0.94, 0.85)));
    case "minimal":
      return plain((color) => tinted(tone(color, 0.12 + lightness(color) * 0.9, 0.75)));
    case "watercolor": {
      const wet = plain((color) => tinted(mix(color, "#fdf9f0", 0.16)));
      const edge = (color: Hex, scale: number) => stroke(mix(wet.fill(color), "#2a2c4a", 0.28), 2.4 / scale);
      return {
        ...wet,
        edge: (color, scale) => `${edge(color, scale)} fill-opacity="0.84" stroke-opacity="0.34"`,
      };
    }
    case "line": {
      const [paper, ink] = tint === "blueprint" ? ["#1d4f9c", "#e9f2ff"] : ["#fbf8f0", "#262837"];
      const line: Grade = (color) => mix(ink, tinted(color), 0.35);
      return {
        fill: (color) => mix(paper, tinted(color), 0.18),
        line,
        edge: (_, scale) => stroke(ink, 2.2 / scale),
      };
    }
    case "neon": {
      const paper = mix("#0a0820", roles.sky ?? "", 0.12);
      // A lit tube is bright, and strong unless it is a grey.
      const line: Grade = (color) =>
        tone(
          color,
          Math.min(0.85, Math.max(0.72, lightness(color))),
          Math.min(3, 0.25 / (chroma(color) + 0.04)),
        );
      const edge: Ink["edge"] = (color, scale) => stroke(line(color), 2.8 / scale);
      return { fill: (color) => mix(paper, line(color), 0.16), line, edge };
    }
    default:
      return plain(tinted);
  }
}

/** Styles that paint a small rendering of the scene again: the pixels of one unit. */
const GRAINS: Record<string, number> = { pixel: 104, mosaic: 48, oil: 420 };

/** Paints a scene again, in a style that asks for it. Others are returned unchanged. */
async function repaint(
  shapes: string,
  style: string,
  { w, h, unit }: { w: number; h: number; unit: number },
): Promise<string> {
  const grain = GRAINS[style];
  if (grain === undefined) return shapes;
  const [width, height] = [Math.ceil((w / unit) * grain), Math.ceil((h / unit) * grain)];
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${w} ${h}" preserveAspectRatio="none">${shapes}</svg>`;
  const small = sharp(Buffer.from(svg));
  const brushed = style === "oil" ? small.median(9).modulate({ saturation: 1.15 }) : small;
  const png = await brushed.png({ palette: style !== "oil", colours: 56, dither: 0 }).toBuffer();
  const rendering = style === "oil" ? "auto" : "pixelated";
  return `<image width="${w}" height="${h}" preserveAspectRatio="none" style="image-rendering:${rendering}" href="data:image/png;base64,${png.toString("base64")}"/>`;
}

/** The room for a caption, in pixels of the picture, and the sizes of its letters. */
interface Room {
  width: number;
  height: number;
  largest: number;
  smallest: number;
}

const segmenter = new Intl.Segmenter("en", { granularity: "grapheme" });
/** The mean width of a letter in ems, and the height of a line. */
const LETTER = 0.63;
const LINE = 1.17;
/** Characters that are about as wide as they are high. */
const WIDE = /[\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7af\uf900-\ufaff\uff00-\uff60]|\p{Extended_Pictographic}/u;

/**
 * Draws a text in the largest letters that fit, and a smaller label below it. A text that is too long for the smallest
 * letters is cut with an ellipsis.
 */
export async function renderCaption(
  text: string,
  label: string,
  room: Room,
  [color, faded]: readonly [Hex, Hex],
): ReturnType<typeof renderText> {
  const words = text.replaceAll(/\s+/gu, " ").trim() || "untitled";
  const small = room.largest * 0.33;
  const capacity = (size: number) =>
    (room.width / size / LETTER) * Math.floor((room.height - small * 2.6) / size / LINE);
  const letters: string[] = [];
  let length = 0;
  // No more than the smallest letters have room for.
  for (const { segment } of segmenter.segment(words.slice(0, 5000))) {
    length += WIDE.test(segment) ? 1.7 : 1;
    if (length > capacity(room.smallest) * 0.9) break;
    letters.push(segment);
  }
  const most = Math.floor(room.width / small / LETTER);
  const below = label.length > most ? `${label.slice(0, most - 1)}…` : label;
  let shown = letters.join("");
  if (shown.length < words.length) shown = `${shown.trimEnd()}…`;
  for (let size = room.largest; ; size *= 0.92) {
    const isLast = size <= room.smallest;
    if (!isLast && length > capacity(size)) continue;
    const markup = [
      `<span foreground="${color}">${escapeMarkup(shown)}</span>`,
      `<span size="${Math.round(small * 700)}"> </span>`,
      `<span foreground="${faded}" size="${Math.round(small * 1024)}">${escapeMarkup(below)}</span>`,
    ];
    const image = await renderText(markup.join("\n"), { size, width: room.width });
    if (image.info.height <= room.height || shown.length <= 1) return image;
    // The estimate was too low.
    if (isLast) shown = `${shown.slice(0, Math.floor(shown.length * 0.8 - 1)).trimEnd()}…`;
  }
}

/** Encodes for speed first: these files are made many a second, and their bytes never depend on the machine's load. */
function encodePicture(picture: Sharp, mimeType: ImageMimeType, hasAlpha = false): Promise<Buffer> {
  const page = hasAlpha ? picture : picture.removeAlpha();
  switch (mimeType) {
    case "image/png":
      return page.png({ compressionLevel: 6, adaptiveFiltering: false }).toBuffer();
    case "image/jpeg":
      return picture.flatten({ background: "#ffffff" }).jpeg({ quality: 88 }).toBuffer();
    case "image/webp":
      return page.webp({ quality: 86, effort: 1 }).toBuffer();
  }
}
