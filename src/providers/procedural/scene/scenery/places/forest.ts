import { darken, mix } from "../../../svg/color.ts";
import { below, hills } from "../../../svg/shapes.ts";
import { drawGrass } from "../ground.ts";
import type { Scene } from "../scene.ts";
import { fir, roundTree, treeLine } from "../trees.ts";

/** Layers of trees, paler with distance, with a clearing in front. */
export function drawForest(scene: Scene): void {
  const { canvas, w, h, unit, horizon, palette, plan } = scene;
  const random = scene.random.fork("forest");
  const snowy = plan.season === "winter";
  const leafy =
    plan.season === "autumn" || plan.season === "spring" || (plan.season === "summer" && random.chance(0.45));
  const wood = palette.foliage[2] ?? palette.foliage[0];
  for (let i = 0; i < 3; i++) {
    const depth = (i + 1) / 4;
    const y = hills(random, w, horizon + unit * (0.01 + i * 0.035), unit * 0.03, unit);
    const color = mix(mix(palette.far, wood, 0.25 + depth * 0.4), palette.sky[2], 0.4 - depth * 0.42);
    canvas.path(
      treeLine(random, w, h, y.at, unit * (0.14 + i * 0.07)),
      canvas.vertical({ at: 0, color }, { at: 0.55, color: mix(color, palette.sky[2], 0.22) }),
    );
  }
  const ground = hills(random, w, horizon + unit * 0.12, unit * 0.04, unit * 1.2);
  canvas.path(
    below(ground.points, h + 5),
    canvas.vertical(
      { at: 0, color: mix(palette.near, palette.sky[2], 0.3) },
      { at: 1, color: darken(palette.near, 0.04) },
    ),
  );
  if (!snowy) drawGrass(scene, plan.season === "spring" ? [palette.lit("#fff3f6", 0.3)] : []);
  drawTrees(scene, leafy, snowy);
}

function drawTrees(scene: Scene, leafy: boolean, snowy: boolean): void {
  const { canvas, w, h, unit, horizon, palette, plan } = scene;
  const random = scene.random.fork("trees");
  const count = Math.round((plan.style === "minimal" ? 3 : 7) * Math.max(1, Math.min(4, (w / unit) * 0.9)));
  const trees = Array.from({ length: count }, (_, i) => ({
    depth: random.next(),
    // The middle stays open for the subjects.
    x: open((i + random.between(0.15, 0.85)) / count, w / unit),
  })).sort((a, b) => a.depth - b.depth);
  const bark = palette.lit("#5d4030", 0.9);
  for (const { x, depth } of trees) {
    const y = horizon + unit * 0.12 + (h - horizon - unit * 0.12) * depth * 0.5;
    const height = unit * (0.26 + depth * 0.38) * random.between(0.85, 1.15);
    const leaf = random.pick(palette.foliage as [string, ...string[]]);
    const evergreen = palette.foliage[4] ?? leaf;
    const pale = mix(leafy ? leaf : evergreen, palette.sky[2], 0.3 - depth * 0.3);
    canvas.ellipse(x * w, y, height * 0.2, height * 0.022, darken(palette.near, 0.16), 0.35);
    if (leafy && random.chance(0.8)) roundTree(canvas, random, x * w, y, height, pale, bark);
    else fir(canvas, x * w, y, height, pale, snowy ? palette.lit("#fbfdff", 0.45) : null);
  }
}

function open(share: number, wide: number): number {
  if (wide > 2.2) return share;
  return share < 0.5 ? share * 0.62 : 1 - (1 - share) * 0.62;
}
