import { type Hex, mix } from "./color.ts";
import { type Coat, type Drawing, type Ink, paint, tilesOf } from "./drawing.ts";
import { type Palette, patternColors } from "./palette.ts";
import type { Plan, Subject } from "./plan.ts";
import type { Random } from "./random.ts";
import layers from "./scene.json" with { type: "json" };

/** A scene while it is drawn: its measures in pixels at 1K, its colours and plan, and what is drawn so far. */
export interface Scene {
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
export function groundOf([place]: Plan["places"]): (typeof layers.places)["outdoors"] & { swim?: number } {
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
export function drawLayers(scene: Scene, where: "back" | "front"): void {
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
function drawing(path: string): Drawing {
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
  file: Drawing,
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
export function round(value: number): string {
  return String(Math.round(value * 1000) / 1000);
}

/** Draws the subjects, the far ones first. */
export function drawSubjects(scene: Scene): void {
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
export function drawPattern(scene: Scene): void {
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
  const tile = (x: number, y: number, scale: number, file: Drawing = random.pick(tiles)) => {
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
