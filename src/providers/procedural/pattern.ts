import { mix } from "./color.ts";
import { type Drawing, tilesOf } from "./drawing.ts";
import { patternColors } from "./palette.ts";
import { put, type Scene } from "./scene.ts";

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
