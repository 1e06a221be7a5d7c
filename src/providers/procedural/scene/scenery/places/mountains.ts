import { short } from "../../../svg/canvas.ts";
import { darken, lighten, mix } from "../../../svg/color.ts";
import { below, type Point, peaks, polygon } from "../../../svg/shapes.ts";
import type { Scene } from "../scene.ts";
import { fir } from "../trees.ts";

/** Mountain ranges, paler with distance, with snow on the tops. */
export function drawMountains(scene: Scene): void {
  const { canvas, w, h, unit, horizon, palette, plan } = scene;
  const random = scene.random.fork("mountains");
  const layers = plan.style === "minimal" ? 2 : 3;
  const high = Math.min(unit * 0.44, horizon * 0.66);
  const capped =
    plan.season === "winter" || plan.weather === "snow" || (plan.placeColor === null && random.chance(0.75));
  for (let i = 0; i < layers; i++) {
    const depth = (i + 1) / (layers + 1);
    const color = mix(palette.far, palette.near, depth * 0.9);
    const rock =
      plan.season === "winter"
        ? mix(color, palette.lit("#4a6485"), 0.62 - depth * 0.2)
        : mix(color, palette.sky[0], 0.32 - depth * 0.2);
    const rise = high * (1.05 - depth * 0.62) * random.between(0.9, 1.1);
    const width = unit * (0.62 - depth * 0.2);
    const ridge = peaks(random, w, horizon + unit * 0.02, rise, width);
    canvas.path(
      below(ridge.points, h, false),
      canvas.vertical(
        { at: 0, color: lighten(rock, 0.02) },
        { at: Math.min(0.9, (rise * 1.6) / (h - horizon + rise)), color: mix(rock, palette.sky[2], 0.3) },
      ),
    );
    drawSides(scene, ridge.points, rock, capped && i < 2, rise);
  }
}

/** The shaded side and the snow. Both begin at the highest points of the ridge. */
function drawSides(
  scene: Scene,
  points: readonly Point[],
  rock: string,
  capped: boolean,
  rise: number,
): void {
  const { canvas, palette, horizon } = scene;
  const random = scene.random.fork(`sides${rise}`);
  let shadows = "";
  let snow = "";
  let snowShadow = "";
  for (let i = 4; i + 4 < points.length; i += 8) {
    const top = points[i];
    const right = points[i + 4];
    const left = points[i - 4];
    if (top === undefined || right === undefined || left === undefined) continue;
    const edge = points.slice(i, i + 5);
    const foot = Math.min(horizon + 4, right[1] + rise * 0.5);
    shadows += polygon([
      ...edge,
      [right[0], foot],
      [top[0] + (right[0] - top[0]) * 0.25, foot],
      [top[0] - (right[0] - top[0]) * 0.1, top[1] + (foot - top[1]) * 0.45],
    ]);
    const drop = Math.min(rise * 0.3, (Math.max(left[1], right[1]) - top[1]) * 0.42);
    if (!capped || drop < rise * 0.1) continue;
    const down = (to: Point, share: number): Point => [
      top[0] + (to[0] - top[0]) * share,
      top[1] + (to[1] - top[1]) * share,
    ];
    const a = down(left, drop / (left[1] - top[1] || 1));
    const b = down(right, drop / (right[1] - top[1] || 1));
    const third = (b[0] - a[0]) / 4;
    const zigzag: Point[] = [
      b,
      [b[0] - third * 0.8, b[1] - drop * 0.3],
      [b[0] - third * 1.6, b[1] + drop * random.between(0.05, 0.3)],
      [a[0] + third * 1.4, a[1] - drop * 0.25],
      [a[0] + third * 0.6, a[1] + drop * random.between(0, 0.2)],
      a,
    ];
    snow += polygon([top, ...zigzag]);
    snowShadow += polygon([
      top,
      b,
      [b[0] - third * 0.8, b[1] - drop * 0.3],
      [b[0] - third * 1.6, b[1] + drop * 0.05],
      [top[0] - third * 0.12, top[1] + drop * 0.5],
    ]);
  }
  canvas.wash(shadows || `M0 ${short(horizon)}`, darken(rock, 0.07), 0.55);
  if (snow === "") return;
  const white = palette.lit("#fdfdfb", 0.45);
  canvas.wash(snow, white, 0.96);
  canvas.wash(snowShadow, mix(white, palette.sky[0], 0.4), 0.8);
}

/** Firs on the near slopes, in two groups with an open middle. */
export function drawFoothills(scene: Scene): void {
  const { canvas, w, h, unit, horizon, palette, plan } = scene;
  if (plan.style === "minimal") return;
  const random = scene.random.fork("foothills");
  const snow = plan.season === "winter" ? palette.lit("#fbfdff", 0.45) : null;
  const wood = palette.foliage[4] ?? palette.foliage[0];
  const count = Math.round(12 * Math.max(1, Math.min(4, w / unit)));
  const trees = Array.from({ length: count }, () => ({
    depth: random.between(0.14, 0.86),
    x: random.chance(0.5) ? random.next() ** 1.5 * 0.4 : 1 - random.next() ** 1.5 * 0.4,
  })).sort((a, b) => a.depth - b.depth);
  for (const { depth, x } of trees) {
    const height = unit * (0.06 + depth * 0.24) * random.between(0.8, 1.2);
    const y = horizon + (h - horizon) * depth;
    canvas.ellipse(x * w, y, height * 0.2, height * 0.02, darken(palette.near, 0.16), 0.35);
    fir(canvas, x * w, y, height, mix(wood, palette.sky[2], 0.4 * (1 - depth)), snow);
  }
}
